"""Known novelties at one site and at agents: what they change, and what is refused."""

import numpy as np
import pandas as pd
import pytest

import conovel as cn
from conovel.errors import ColumnError, MissingValueError
from conovel.models.wire import decode
from conovel.runs.agents import open_sites, read_agents
from conovel.runs.network import Network
from conovel.site.site import Site

COLUMNS = ["a", "b", "c"]


def draw(n_null=300, n_test=100, n_novel=30, seed=0, shift=3.0):
    rng = np.random.default_rng(seed)
    X_null, X_test = rng.normal(size=(n_null, 3)), rng.normal(size=(n_test, 3))
    X_test[n_test - n_novel :] += shift
    known_rows = rng.normal(size=(20, 3)) + shift
    return tuple(pd.DataFrame(rows, columns=COLUMNS) for rows in (X_null, X_test, known_rows))


NULL, TEST, KNOWN = draw()


def detect(known_rows=None, scorer="logistic", **more):
    return cn.AdaDetect(scorer).detect(NULL, TEST, known_rows, **more)


def test_known_novelties_count_and_are_named():
    result = detect(KNOWN.assign(kind="mule account"))
    assert result.choices["known"].winner == "with known novelties"
    assert (result.n_known, result.explainer.known_rows.kinds) == (20, ("mule account",) * 20)
    assert result.rejected.size == len(TEST)
    assert not np.array_equal(result.scores, detect().scores)


def test_none_is_as_before():
    """No known novelties, and known ones that no row is like, give the same bits."""
    plain, other, empty = detect(), detect(-3 * KNOWN), detect(KNOWN.iloc[:0])
    assert "known" not in empty.choices
    assert empty.scores.tobytes() == plain.scores.tobytes()
    assert "known" not in plain.choices
    assert other.choices["known"].winner == "without known novelties"
    assert other.scores.tobytes() == plain.scores.tobytes()
    assert other.calibration_scores.tobytes() == plain.calibration_scores.tobytes()


def test_one_known_novelty_works():
    result = detect(KNOWN.iloc[:1])
    assert result.n_known == 1
    assert "1 known novelties" in result.choices["known"].rule or result.choices["known"].chosen


def test_known_rows_that_are_other_rows_too_are_a_finding():
    both = pd.concat([TEST.iloc[-5:], NULL.iloc[:2], KNOWN])
    counts = {finding.kind: finding.numbers for finding in detect(both).warnings}
    assert counts["known_among_tests"] == {"n_shared": 5}
    assert counts["known_among_normals"] == {"n_shared": 2}
    assert not {f.kind for f in detect(KNOWN).warnings} & {"known_among_tests"}


def test_known_rows_that_are_all_test_rows_still_give_a_result():
    result = detect(TEST.iloc[-30:])
    assert result.n_rejected > 0


@pytest.mark.parametrize(
    ("known_rows", "error", "words"),
    [
        (KNOWN[["a", "b"]], ColumnError, "X_known lacks 'c'"),
        (KNOWN.assign(a=np.nan), ColumnError, "X_known: entirely missing"),
        (KNOWN.mask(KNOWN.a > 3), MissingValueError, "X_known"),
        (KNOWN.assign(a="x"), ColumnError, "X_known"),
        (KNOWN.to_numpy()[:, :2], ColumnError, "X_known 2"),
        (KNOWN.assign(kinds="mule"), ColumnError, "'kinds'"),
    ],
)
def test_what_is_refused(known_rows, error, words):
    null = NULL.to_numpy() if isinstance(known_rows, np.ndarray) else NULL
    test = TEST.to_numpy() if isinstance(known_rows, np.ndarray) else TEST
    with pytest.raises(error, match=words):
        cn.AdaDetect("logistic").detect(null, test, known_rows)


def test_dates_and_categories():
    def mixed(frame, seed):
        rng, n = np.random.default_rng(seed), len(frame)
        hours = pd.to_timedelta(rng.integers(0, 900, n), unit="h")
        when = pd.Timestamp("2026-01-01") + hours
        return frame.assign(when=when, size=rng.choice(["S", "L"], n), old=rng.random(n) > 0.5)

    samples = [mixed(frame, seed) for seed, frame in enumerate((NULL, TEST, KNOWN))]
    result = cn.AdaDetect("logistic", schema={"when": "date"}).detect(*samples)
    assert result.explainer.known_rows.values.shape == (20, result.explainer.null_train.shape[1])
    assert result.choices["known"].chosen


def test_a_known_row_may_lack_what_others_lack():
    gaps = NULL.mask(np.random.default_rng(0).random(NULL.shape) < 0.1)
    result = cn.AdaDetect("logistic").detect(gaps, TEST, KNOWN.iloc[:1].assign(a=np.nan))
    assert result.n_known == 1


def test_narrow_numbers_are_rounded_alike():
    narrow = [frame.astype("float32") for frame in (NULL, TEST)]
    result = cn.AdaDetect("logistic").detect(*narrow, KNOWN)
    rounded = KNOWN.to_numpy().astype("float32").astype("float64")
    assert np.array_equal(result.explainer.known_rows.values, rounded)


# Agents -------------------------------------------------------------------------------------


def agents(known_rows=KNOWN, n=2):
    names = "abc"[:n]
    listed = []
    for seed, name in enumerate(names):
        X_null, X_test, _ = draw(400, 160, 48, seed=seed)
        listed.append(cn.Agent(name, X_null, X_test, X_known=known_rows if name == "a" else None))
    return listed


@pytest.mark.parametrize("regime", ["isolated", "counts", "split", "full", "joint", "pooled"])
def test_an_agent_learns_from_what_it_knows(regime):
    with_known, without = (
        cn.Network(agents(known_rows), regime=regime, scorer="logistic").run()
        for known_rows in (KNOWN, None)
    )
    assert with_known["a"].choices["known"].chosen
    assert "known" not in without["a"].choices
    own = {"a", "b"} if regime == "pooled" else {"a"}
    assert {name for name, site in with_known.items() if "known" in site.choices} == own
    assert not np.array_equal(with_known["a"].scores, without["a"].scores, equal_nan=True)
    same = np.array_equal(with_known["b"].scores, without["b"].scores, equal_nan=True)
    assert same == (regime in ("isolated", "counts"))  # elsewhere models carry what a knows


@pytest.mark.filterwarnings("ignore::conovel.errors.DataWarning")
def test_repeats_and_narrow_agents():
    narrow = [cn.Agent("n", NULL.astype("float32"), TEST.astype("float32"))]
    run = cn.Network([*agents(n=1), *narrow], regime="pooled", scorer="logistic").run()
    assert run["a"].choices["known"].chosen
    run = cn.Network(agents(), regime="counts", scorer="logistic", repeats=2).run()
    assert run.n_rejected >= 0


def test_agents_are_checked():
    run = cn.Network(agents(draw(seed=0)[0].iloc[:3]), regime="counts", scorer="logistic").run()
    assert run["a"].choices["known"].winner == "without known novelties"
    with pytest.raises(ColumnError, match="agent a: X_known"):
        cn.Network(agents(KNOWN[["a"]]), regime="counts").run()
    X_null, X_test, _ = draw(200, 80, 24, seed=0)
    listed = [cn.Agent("a", X_null, X_test, X_known=X_test.iloc[-4:]), *agents(None)[1:]]
    found = cn.Network(listed, regime="counts", scorer="logistic").run().warnings
    assert [(f.kind, f.agent) for f in found if "known" in f.kind] == [("known_among_tests", "a")]


def sites(share_known, bits):
    network = Network(agents(), regime="full", scorer="logistic", bits=bits)
    spec = network.spec()
    members = read_agents(spec, network.agents, network.scorer)
    opened = open_sites(spec, members)["a"]
    work = opened.work.__class__(**{**vars(opened.work), "share_known": share_known})
    return Site(opened.null, opened.test, work, known_rows=opened.known_rows)


@pytest.mark.parametrize("bits", ["compact", 4, None])
def test_what_leaves_is_learnt_without_known_rows_unless_they_are_shared(bits):
    private, shared, none = sites(False, bits), sites(True, bits), sites(False, bits)
    none.known_rows = None
    blobs = [site.models(0, ["a", "b"])["b"] for site in (private, shared, none)]
    assert blobs[0] == blobs[2]
    assert blobs[0] != blobs[1]
    assert decode(blobs[0]).n_features == 3
    assert private.fitted.by_known.chosen  # its own score knows them all the same
