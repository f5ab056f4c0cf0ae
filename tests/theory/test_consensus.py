"""`consensus` in whole runs: roles exchanged bit for bit, and false alarms over composite nulls.

A null row may be exchanged with a calibration row of its type, wherever it is tested. The score
must not notice: it depends on the mixtures of all agents through their sum alone.
"""

import warnings
from fractions import Fraction

import numpy as np
import pytest

import conovel as cn
from conovel.errors import ConovelWarning
from conovel.learning.base import Party
from conovel.learning.consensus import at_site
from conovel.learning.consensus.at_site import ConsensusLearner
from conovel.learning.together.way import NUMBER
from conovel.protocol.replay import verify
from conovel.rows.pairs import KnownRows, read_pair
from conovel.scorers.argument import as_candidates
from conovel.site.site import Site
from conovel.site.work import SiteWork
from conovel.spec.run_spec import RunSpec
from conovel.stats.consensus import Calibration, Group, decide_groups

NAMES = ("east", "north", "west")
SPEC = RunSpec.of(regime="consensus", level="1/5", seed=5)


# Roles ---------------------------------------------------------------------------------------


def samples(kind, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for j in range(3):
        null, test = rng.normal(size=(80, 3)) + 3 * j, rng.normal(size=(31, 3)) + 3 * j
        test[-4:] += 5
        if kind == "integers":
            null, test = np.rint(null), np.rint(test)
        found.append((null, test))
    return found


def worked(rows, known_rows=None):
    """Let three sites work without messages; give sites, counts, and all totals as bytes.

    The first knows some novelties.
    """
    sites, learners = [], []
    for j, (null, test) in enumerate(rows):
        work = SiteWork(SPEC, tuple(as_candidates(None, j)), 3)
        novelties = None if j or known_rows is None else KnownRows(known_rows)
        sites.append(Site(*read_pair(null, test), work, known_rows=novelties))
        learners.append(ConsensusLearner(Party(NAMES[j], SPEC, bytes(16), bytes(32), NAMES)))
    pairs = list(zip(learners, sites, strict=True))
    heard = []
    numbers = [learner.begin(site, 0) for learner, site in pairs]
    while numbers[0] is not None:
        arrays = [np.frombuffer(own, NUMBER) for own in numbers]
        heard.append(np.sum(arrays, axis=0, dtype=NUMBER).tobytes())
        numbers = [learner.go_on(heard[-1]) for learner in learners]
    return sites, [learner.compare(site) for learner, site in pairs], heard


def exchanged(rows, sites, at, x, of, c):
    """Exchange test row x of one agent with calibration row c of another."""
    place = sites[of].split(len(rows[of][0]))[1][c]
    swapped = [(null.copy(), test.copy()) for null, test in rows]
    swapped[of][0][place], swapped[at][1][x] = rows[at][1][x], rows[of][0][place]
    return swapped


@pytest.mark.parametrize("kind", ["continuous", "integers"])
def test_exchanging_a_tested_row_with_a_calibration_row_of_any_agent(kind):
    rows = samples(kind)
    before, counts, heard = worked(rows)
    for at, x, of, c in ((0, 5, 0, 3), (0, 30, 2, 7), (2, 11, 1, 0), (1, 28, 0, 9)):
        after, others, totals = worked(exchanged(rows, before, at, x, of, c))
        assert totals == heard  # so the score is the same, bit for bit
        for j, (one, two) in enumerate(zip(before, after, strict=True)):
            same = np.arange(31) != (x if j == at else -1)
            assert np.array_equal(one.scores[same], two.scores[same])
            # What groups and levels follow from does not depend on roles either.
            assert counts[j].near_trained == others[j].near_trained
            assert (counts[j].n_tail, counts[j].floor) == (others[j].n_tail, others[j].floor)


def test_exchanging_rows_beside_known_novelties():
    rows = samples("continuous")
    known_rows = np.concatenate([test[-4:] for _, test in rows]) + 0.1
    before, _, heard = worked(rows, known_rows)
    assert len(heard) > len(worked(rows)[2])  # a round is about them
    for at, x, of, c in ((0, 5, 0, 3), (0, 30, 2, 7), (2, 11, 1, 0)):
        after, _, totals = worked(exchanged(rows, before, at, x, of, c), known_rows)
        assert totals == heard
        for j, (one, two) in enumerate(zip(before, after, strict=True)):
            same = np.arange(31) != (x if j == at else -1)
            assert np.array_equal(one.scores[same], two.scores[same])


def test_a_row_of_null_train_is_no_calibration_row():
    """The same exchange with a row that trains is noticed: the test above can fail."""
    rows = samples("continuous")
    before, _, heard = worked(rows)
    place = before[1].split(80)[0][3]
    swapped = [(null.copy(), test.copy()) for null, test in rows]
    swapped[1][0][place], swapped[0][1][5] = rows[0][1][5], rows[1][0][place]
    assert worked(swapped)[2] != heard


def test_exchanging_rows_where_a_sample_is_learnt_from(monkeypatch):
    """Which rows are in the sample depends on the rows alone, not on who has them."""
    monkeypatch.setattr(at_site, "_MOST_LEARNT", 100)
    rows = samples("integers")
    before, _, heard = worked(rows)
    for at, x, of, c in ((0, 5, 2, 3), (1, 30, 0, 7), (2, 2, 1, 1)):
        assert worked(exchanged(rows, before, at, x, of, c))[2] == heard
    monkeypatch.setattr(at_site, "_MOST_LEARNT", 10**6)
    assert worked(rows)[2] != heard


@pytest.mark.parametrize("n_test", [1, 2, 12])
def test_exchanging_the_rows_of_an_agent_with_few_tests(n_test):
    rows = samples("continuous")
    rows[0] = (rows[0][0], rows[0][1][:n_test])
    before, _, heard = worked(rows)
    for of in range(3):
        assert worked(exchanged(rows, before, 0, n_test - 1, of, 3))[2] == heard


@pytest.mark.parametrize("numbers", [(1, 100, 100), (1, 1, 100), (1, 1, 1)])
def test_an_agent_with_one_test_row_takes_part(numbers):
    rng = np.random.default_rng(3)
    agents, novel = [], {}
    for name, n in zip(NAMES, numbers, strict=True):
        novel[name] = np.arange(n) < max(1, n // 5)
        rows = rng.normal(size=(n, 3)) + 5.0 * novel[name][:, np.newaxis]
        agents.append(cn.Agent(name, rng.normal(size=(400, 3)), rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConovelWarning)
        run = cn.Network(agents, regime="consensus", level=0.2).run()
    assert verify(run.to_dict()) == []
    assert all(run[name].tested.all() for name in NAMES)
    if sum(numbers) > 3:
        found = np.concatenate([run[name].rejected[novel[name]] for name in NAMES])
        assert found.mean() > 0.9


@pytest.mark.parametrize("n_few", [1, 10, 30])
def test_an_agent_with_few_tests_and_no_novelty_takes_no_power(n_few):
    rng = np.random.default_rng(n_few)
    sizes = {"east": n_few, "north": 150, "west": 150}
    agents = []
    for name, n in sizes.items():
        test = rng.normal(size=(n, 5))
        if n > n_few:
            test[:15] += 2.5
        agents.append(cn.Agent(name, rng.normal(size=(500, 5)), test))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConovelWarning)
        run = cn.Network(agents, regime="consensus").run()
    found = np.concatenate([run[name].rejected[:15] for name in ("north", "west")])
    assert found.mean() > 0.9


def test_every_agent_has_the_same_score():
    rows = samples("continuous")
    common = rows[0][1][:5]
    sites = worked([(null, np.vstack([common, test])) for null, test in rows])[0]
    assert len({site.scores[:5].tobytes() for site in sites}) == 1


# False alarms --------------------------------------------------------------------------------

LEVEL = Fraction(1, 5)


def roaming(rng, share, shift=3.0, n_null=240, n_test=90, n_novel=9):
    """Three agents around a centre; a share of the normal tests is from another agent."""
    centres = shift * np.array([[1, 0], [-0.5, 0.87], [-0.5, -0.87]])
    novel = np.array([0.0, 0.0, 4.5])
    found = []
    for j in range(3):
        types = np.full(n_test, j)
        n_roam = round(share * (n_test - n_novel))
        types[:n_roam] = rng.choice([k for k in range(3) if k != j], size=n_roam)
        types[n_test - n_novel :] = -1
        means = np.column_stack([centres[types], np.zeros(n_test)])
        means[types < 0] = novel
        null = rng.normal(size=(n_null, 3)) + np.append(centres[j], 0)
        found.append((null, rng.normal(size=(n_test, 3)) + means, types))
    return found


def proportions(run, data):
    """The false discovery proportion over composite nulls, and the share of novelties found."""
    types = np.concatenate([types for *_, types in data])
    rejected = np.concatenate([run[name].rejected for name in NAMES])
    false = np.count_nonzero(rejected & (types >= 0))
    return false / max(1, np.count_nonzero(rejected)), rejected[types < 0].mean()


def simulate(regime, n, share=0.3, **design):
    found = []
    for seed in range(n):
        data = roaming(np.random.default_rng(seed), share, **design)
        agents = [cn.Agent(name, *rows[:2]) for name, rows in zip(NAMES, data, strict=True)]
        scorer = None if regime == "consensus" else "logistic"  # both are linear here
        options = {"composite": "max", "bits": 8} if regime == "split" else {"composite": "mean"}
        run = cn.Network(
            agents, regime=regime, scorer=scorer, level=LEVEL, random_state=seed, **options
        ).run(check=False)
        found.append(proportions(run, data))
    return np.array(found)


def mean_and_error(values):
    return values.mean(), values.std() / len(values) ** 0.5


@pytest.mark.filterwarnings("ignore::conovel.ConovelWarning")
def test_only_consensus_keeps_the_level_for_composite_nulls():
    false, power = simulate("consensus", 30).T
    mean, error = mean_and_error(false)
    assert mean <= LEVEL + 3 * error
    assert power.mean() > 0.3
    mean, error = mean_and_error(simulate("full", 8)[:, 0])
    assert mean > LEVEL + 3 * error


N_CELLS, FLOOR = 64, 20  # of the cheap score; the floor is where log-odds are -4


def cheap_rows(data, *, by_heart=False):
    """Cells and nearest agents of calibration and test rows, by a score that numpy learns at once.

    The mean of novelties is that of the mixture rows that are far from all agents. With
    `by_heart`, the score knows which rows are tests.
    """
    trained, known = zip(*((null[::2], null[1::2]) for null, *_ in data), strict=True)
    centres = np.array([rows.mean(axis=0) for rows in trained])
    mixture = np.vstack([*known, *(test for _, test, _ in data)])
    mixture = mixture[np.lexsort(mixture.T)]  # sums do not depend on whose rows are whose
    far = ((mixture[:, np.newaxis] - centres) ** 2).sum(axis=2).min(axis=1) > 12
    novel = mixture[far].mean(axis=0) if far.any() else mixture.mean(axis=0)
    slopes, middles = novel - centres, (novel + centres) / 2

    def of(rows):
        odds = rows @ slopes.T - (slopes * middles).sum(axis=1)
        cells = np.clip(np.floor(5 * odds.min(axis=1)) + 40, 0, N_CELLS - 1).astype(int)
        return cells, ((rows[:, np.newaxis] - centres) ** 2).sum(axis=2).argmin(axis=1)

    tests = [of(test) for _, test, _ in data]
    if by_heart:
        tests = [(np.full(cells.size, N_CELLS - 1), near) for cells, near in tests]
    return [of(rows) for rows in known], tests


def counted(cells):
    return tuple(np.bincount(cells, minlength=N_CELLS).tolist())


def cheap_proportion(seed, share, *, apart, **options):
    """The false discovery proportion of one repetition with the cheap score.

    Types are in groups of their own, or all in one.
    """
    data = roaming(np.random.default_rng(seed), share)
    known, tests = cheap_rows(data, **options)
    cells, near = (np.concatenate(some) for some in zip(*tests, strict=True))
    groups = []
    for members in [[0], [1], [2]] if apart else [[0, 1, 2]]:
        types = tuple(
            Calibration(counted(c), int(((c < FLOOR) & np.isin(n, members)).sum()))
            for c, n in (known[k] for k in members)
        )
        n_region = int(((cells < FLOOR) & np.isin(near, members)).sum())
        groups.append(Group(LEVEL / (3 if apart else 1), n_region, types))
    rejected = cells >= decide_groups(counted(cells), groups, FLOOR).cell
    false = rejected & (np.concatenate([types for *_, types in data]) >= 0)
    return np.count_nonzero(false) / max(1, np.count_nonzero(rejected))


def cheap_proportions(n, share, **options):
    return np.array([cheap_proportion(seed, share, **options) for seed in range(n)])


@pytest.mark.parametrize("apart", [True, False])
def test_a_score_that_knows_the_tested_rows_breaks_the_level(apart):
    mean, error = mean_and_error(cheap_proportions(60, 0.3, apart=apart))
    assert 0.01 < mean <= LEVEL + 3 * error
    assert cheap_proportions(5, 0.3, apart=apart, by_heart=True).mean() > 4 * LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("apart", [True, False])
def test_many_repetitions_keep_the_level(share, apart):
    mean, error = mean_and_error(cheap_proportions(4000, share, apart=apart))
    assert mean <= float(LEVEL) + 3 * error


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::conovel.ConovelWarning")
@pytest.mark.parametrize("regime", ["full", "split"])
def test_many_runs_of_other_regimes_break_it(regime):
    mean, error = mean_and_error(simulate(regime, 300, share=0.5)[:, 0])
    assert mean > float(LEVEL) + 3 * error


@pytest.mark.slow
def test_one_type_attains_the_level():
    """Without roaming rows or further types the bound is α · E[v/N]: nearly all of α is used."""
    found = []
    for seed in range(4000):
        rng = np.random.default_rng(seed)
        known, null = rng.normal(size=400), rng.normal(size=90)
        cells = [np.clip(np.floor(12 * x) + 32, 0, N_CELLS - 1).astype(int) for x in (known, null)]
        tests = np.append(cells[1], np.full(30, N_CELLS - 1))
        below = [int((c < FLOOR).sum()) for c in cells]
        group = Group(LEVEL, below[1], (Calibration(counted(cells[0]), below[0]),))
        cut = decide_groups(counted(tests), [group], FLOOR).cell
        found.append((cells[1] >= cut).sum() / max(1, (tests >= cut).sum()))
    mean, error = mean_and_error(np.array(found))
    assert 0.8 * LEVEL <= mean <= LEVEL + 3 * error


# To whom a row is normal ---------------------------------------------------------------------


def test_the_origin_of_roaming_rows_is_recovered():
    data = roaming(np.random.default_rng(1), 0.4, shift=5.0, n_null=300, n_test=120)
    agents = [cn.Agent(name, *rows[:2]) for name, rows in zip(NAMES, data, strict=True)]
    run = cn.Network(agents, regime="consensus").run()
    for j, name in enumerate(NAMES):
        types, told = data[j][2], run[name].normal_at
        away = [(NAMES[t], told[i]) for i, t in enumerate(types) if t not in (j, -1)]
        assert np.mean([origin in names for origin, names in away]) > 0.75
        assert np.mean([name in names for _, names in away]) < 0.3
        assert np.mean([told[i] == () for i in np.flatnonzero(types < 0)]) > 0.8
    assert verify(run.to_dict()) == []
