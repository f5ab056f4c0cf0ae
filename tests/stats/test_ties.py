"""Ties broken by lots: the level is attained for every order, and lots are drawn blindly."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import conovel as cn
from conovel.errors import InputError
from conovel.protocol.replay import verify
from conovel.runs.file_detection import detect_files
from conovel.spec.run_spec import detector_seeds
from conovel.stats.levels import ties_seed
from conovel.stats.ranks import break_ties, conformal_ranks
from conovel.stats.stepup import step_up

RNG = np.random.default_rng(5)
# Two columns of three values each: few different rows, many equal scores.
NULL, TEST = RNG.integers(0, 3, size=(400, 2)), RNG.integers(0, 3, size=(60, 2))
TEST[:20] = RNG.integers(2, 4, size=(20, 2))


def detect(**settings):
    options = {"scorer": "logistic", "level": 0.2, "ties": "random"}
    return cn.AdaDetect(**options | settings).detect(NULL, TEST)


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 99))
def test_places_keep_the_order_of_scores_and_have_no_ties(scores, seed):
    scores = np.array(scores, dtype=np.float64)
    places = break_ties(scores, seed)
    assert sorted(places.tolist()) == list(range(scores.size))
    assert all(
        (scores[i] < scores[j]) <= (places[i] < places[j])
        for i, j in itertools.permutations(range(scores.size), 2)
    )


def exact_fdr(scores, n_calibration, n_novel, level, lots_of):
    """FDR over every choice of calibration rows and every order of lots, in fractions."""
    n = len(scores)
    n_null, found = n - n_novel, []
    for chosen in itertools.combinations(range(n_null), n_calibration):
        tests = [i for i in range(n) if i not in chosen]
        rows = [*chosen, *tests]
        for order in itertools.permutations(range(n)):
            lots = lots_of(order, n_calibration)
            pairs = sorted(range(n), key=lambda i: (scores[rows[i]], lots[i]))
            places = np.argsort(pairs)
            ranks = conformal_ranks(places[:n_calibration], places[n_calibration:])
            mask = step_up([(ranks, n_calibration)], level).rejected[0]
            false = sum(bool(m) and i < n_null for m, i in zip(mask, tests, strict=True))
            found.append(Fraction(false, max(int(mask.sum()), 1)))
    return sum(found) / len(found)


def blind(order, _):
    return order


def favouring_tests(order, n_calibration):
    """INVALID: lots of test rows are above those of calibration rows."""
    return [lot + 100 * (i >= n_calibration) for i, lot in enumerate(order)]


@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
@pytest.mark.parametrize(
    ("scores", "n_novel"), [([0, 0, 0, 1, 1], 0), ([0, 1, 1, 1, 1], 1), ([0, 0, 1, 1, 1, 1], 1)]
)
def test_the_level_is_attained_with_any_ties_and_any_novelties(scores, n_novel):
    """Theorem 3 for pairs: α(ℓ+1)/m is 1, so the FDR equals α·m0/m."""
    n_calibration = 3
    m = len(scores) - n_calibration
    level = Fraction(m, 4)
    exact = exact_fdr(scores, n_calibration, n_novel, level, blind)
    assert exact == level * (m - n_novel) / m
    assert exact_fdr(scores, n_calibration, n_novel, level, favouring_tests) > exact


def test_lots_find_what_ties_hide():
    against, lots = detect(ties="against"), detect()
    assert np.array_equal(against.scores, lots.scores)
    assert (lots.ranks <= against.ranks).all()
    assert (lots.ranks < against.ranks).any()
    assert lots.n_rejected > against.n_rejected
    assert np.array_equal(lots.ranks, detect().ranks)
    others = [detect(random_state=seed).ranks for seed in (1, 2)]
    assert not np.array_equal(*others)


def test_ranks_are_those_of_pairs_and_the_lots_have_a_seed_of_their_own():
    found = detect(random_state=3)
    scores = np.concatenate([found.calibration_scores, found.scores])
    places = break_ties(scores, ties_seed(3))
    expected = conformal_ranks(*np.split(places, [found.n_calibration]))
    assert np.array_equal(found.ranks, expected)
    assert ties_seed(3) not in detector_seeds(3)


@given(st.integers(0, 2**32 - 1))
def test_exchanged_roles_with_exchanged_lots_exchange_the_ranks(seed):
    """The exact form of role-blindness for pairs."""
    rng = np.random.default_rng(seed)
    scores, lots = rng.integers(0, 3, 12), rng.permutation(12)
    swap = rng.permutation(12)  # who calibrates (the first 7) and who is tested

    def ranks(scores, lots):
        places = np.argsort(np.lexsort((lots, scores)))
        return places, conformal_ranks(places[:7], places[7:])

    places, _ = ranks(scores, lots)
    exchanged, of_tests = ranks(scores[swap], lots[swap])
    assert np.array_equal(exchanged, places[swap])
    assert np.array_equal(of_tests, conformal_ranks(places[swap[:7]], places[swap[7:]]))


def test_the_guarantee_and_the_record_say_it():
    found = detect()
    assert any("equal rows may get different answers" in a for a in found.guarantee.assumptions)
    summary = {"command": "detect", **found.summary()}
    assert summary["ties"] == "random"
    assert verify(summary) == []
    assert verify({**summary, "ties": "against"}) == [
        "the guarantee is not that of these settings"
    ]
    assert "ties" not in detect(ties="against").summary()


def test_each_of_several_runs_draws_its_own_lots():
    found = detect(repeats=3)
    assert "equal scores were ordered at random" in str(found.guarantee)
    runs = [
        detect(level=found.repeated.run_level, random_state=seed) for seed in found.repeated.seeds
    ]
    assert np.array_equal(found.repeated.flags, [run.rejected for run in runs])
    assert verify({"command": "detect", **found.summary()}) == []


def test_what_is_not_made_for_lots_is_refused_by_name(tmp_path):
    detector = cn.AdaDetect("logistic", ties="random")
    with pytest.raises(InputError, match="leave repeats, pi0 and ties out"):
        detector.keep(NULL)
    with pytest.raises(InputError, match="leave repeats, pi0 and ties out"):
        detector.detect(NULL, TEST, ledger=tmp_path / "list.json")
    with pytest.raises(InputError, match="ties='random' is for rows in memory"):
        detect_files(detector, tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "out.csv")
    agents = [cn.Agent(name, NULL, TEST) for name in ("north", "south")]
    with pytest.raises(InputError, match="the agents of a network count ties against a row"):
        cn.Network(agents, ties="random").run()
    with pytest.raises(InputError, match="with confidence ties count against a row"):
        detect(confidence=0.9)
    for ties in ("favour", None, 1):
        with pytest.raises(InputError, match="ties must be 'against' or 'random'"):
            detect(ties=ties)
