"""Weights in whole runs: roles, sources of weights, what is refused, and what a result says."""

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression

import conovel as cn
from conovel.errors import ColumnError, InputError
from conovel.protocol.replay import verify
from conovel.runs.file_detection import detect_files
from conovel.scorers.base import Mixture
from conovel.site.blocks import split_by_number
from conovel.site.shift import estimate_weights, like_mixture
from conovel.spec.run_spec import detector_seeds

TILT = 0.7
NAMES = ["a", "b", "c"]


def weigh(X):
    """How much more often a normal row occurs among the tests."""
    return np.exp(TILT * np.asarray(X, dtype=np.float64)[:, 0])


def draw(seed=0, n=600, m=120, n_novel=12, far=5.0):
    rng = np.random.default_rng(seed)
    null, test = rng.normal(size=(n, 3)), rng.normal((TILT, 0, 0), size=(m, 3))
    test[m - n_novel :, 1] += far
    return null, test


def as_frames(null, test, library=pd):
    frames = []
    for X in (null, test):
        columns = dict(zip(NAMES, X.T, strict=True)) | {"w": weigh(X)}
        frames.append(library.DataFrame(columns))
    return frames


def detector(**settings):
    options = {"scorer": LogisticRegression(), "weights": weigh, "level": 0.2}
    return cn.AdaDetect(**options | settings)


@pytest.mark.parametrize("scorer", [None, "extra-trees", LogisticRegression()], ids=str)
@pytest.mark.parametrize("weights", ["w", "estimate"])
def test_scores_and_weights_do_not_depend_on_roles(scorer, weights, few_trees):
    null, test = draw(n=160, m=40, n_novel=4)
    null, test = null.round(1), test.round(1)  # with equal rows
    n_train = cn.AdaDetect(scorer=scorer).settings().n_train(160, 40)
    _, calibration = split_by_number(160, n_train, detector_seeds(0)[0])
    results = []
    for swapped in (False, True):
        known_rows, tests = null.copy(), test.copy()
        if swapped:
            known_rows[calibration[:15]], tests[5:20] = test[5:20], null[calibration[:15]]
        frames = as_frames(known_rows, tests)
        if weights == "estimate":
            frames = [frame.drop(columns="w") for frame in frames]
        one = cn.AdaDetect(scorer=scorer, weights=weights).detect(*frames, check=False)
        results.append(one)
    before, after = results
    scores = before.calibration_scores.copy(), before.scores.copy()
    scores[0][:15], scores[1][5:20] = before.scores[5:20], before.calibration_scores[:15]
    assert np.array_equal(after.calibration_scores, scores[0])
    assert np.array_equal(after.scores, scores[1])
    kept = np.r_[0:5, 20:40]
    assert np.array_equal(before.weighted.weights[kept], after.weighted.weights[kept])


def test_a_column_a_function_and_any_frame_give_the_same():
    null, test = draw()
    by_function = detector().detect(null, test)
    frames = as_frames(null, test)
    results = [detector(weights="w").detect(*as_frames(null, test, lib)) for lib in (pd, pl)]
    results.append(detector(weights=lambda X: X["w"]).detect(*frames))
    for one in results[:2]:
        assert np.array_equal(one.scores, by_function.scores)  # the column is not in the score
        assert np.array_equal(one.weighted.needs, by_function.weighted.needs)
        assert one.test_rows.columns == tuple(NAMES)
    assert results[2].test_rows.columns == (*NAMES, "w")
    assert by_function.n_rejected > 5
    assert by_function.weighted.source == "a function of the row"
    assert results[0].weighted.source == "column 'w'"


def test_equal_weights_decide_as_no_weights_do():
    null, test = draw(3)
    plain = detector(weights=None).detect(null, test)
    equal = detector(weights=lambda X: np.full(len(X), 0.3)).detect(null, test)
    assert np.array_equal(plain.rejected, equal.rejected)
    assert np.array_equal(plain.scores, equal.scores)
    assert np.array_equal(plain.p_values, equal.p_values)
    assert plain.resolution.fewest == equal.resolution.fewest
    assert equal.weighted.effective_rows == pytest.approx(equal.n_calibration)


def rates(reps, **settings):
    """The mean and error of the FDR of a detector, in a shifted design without novelties."""
    found = []
    for seed in range(reps):
        null, test = draw(seed, n=200, m=10, n_novel=0)
        one = detector(random_state=seed, **settings).detect(null, test, check=False)
        found.append(float(one.n_rejected > 0))
    return np.mean(found), np.std(found) / np.sqrt(reps)


def test_the_level_holds_with_weights_and_breaks_without():
    weighted, error = rates(200)
    assert weighted < 0.2 + 3 * error
    plain, error = rates(200, weights=None)
    assert plain > 0.2 + 3 * error


def test_the_score_finds_novelties_and_not_the_shift():
    null, test = draw(1, n=1500, m=300, n_novel=30)
    result = detector(level=0.1).detect(null, test)
    assert result.rejected[270:].mean() > 0.7
    assert result.rejected[:270].sum() < 9


def test_normals_that_train_are_made_like_the_mixture():
    null, _ = draw(n=4000)
    chosen = like_mixture(weigh(null), share=0.5, seed=3)
    # Half of the normal rows of the mixture have mean 0 and half have mean TILT; rows with the
    # largest weights are too few for that.
    assert TILT / 4 < null[chosen, 0].mean() < TILT / 2 + 0.05
    assert abs(null[chosen, 1].mean()) < 0.06
    assert like_mixture(np.ones(100), 0.5, seed=3).size == 100


def test_estimated_weights_find_the_shift():
    null, test = draw(2, n=3000, m=1000, n_novel=0)
    mixture = Mixture.of(np.concatenate([null[1500:], test]))
    of_train, of_mixture = estimate_weights(null[:1500], mixture, share=0.4)
    slope = np.polyfit(null[:1500, 0], np.log(of_train), 1)[0]
    assert slope == pytest.approx(TILT, abs=0.2)
    assert abs(np.polyfit(null[:1500, 1], np.log(of_train), 1)[0]) < 0.2
    assert of_mixture.size == 2500


def test_estimated_weights_are_approximate_wherever_the_promise_is_stated(tmp_path):
    null, test = draw()
    for check in (True, False):
        result = detector(weights="estimate").detect(null, test, check=check)
        assert result.guarantee.statement.startswith("Approximate:")
        assert "approximate" in result.headline
        assert result.summary()["weights"]["estimated"] is True
    result.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "Approximate:" in page
    assert "The weights are estimated" in page
    exact = detector().detect(null, test)
    assert "pproximate" not in exact.guarantee.statement + exact.headline


def test_a_result_says_what_decided_and_is_verified(tmp_path):
    null, test = draw()
    result = detector().detect(null, test)
    record = json.loads(json.dumps({"command": "detect", **result.summary()}))
    frame = result.to_frame() if not isinstance(result.to_frame(), dict) else result.columns()
    needs = np.asarray(result.columns()["needs_flagged"])
    assert set(result.columns()) == {"score", "p_value", "weight", "needs_flagged", "rejected"}
    assert len(frame)
    whole = record | {"needs_flagged": needs.tolist(), "rejected": result.rejected.tolist()}
    assert verify(record) == verify(whole) == []
    changed = whole | {"rejected": (~result.rejected).tolist()}
    assert any("rejected" in finding for finding in verify(changed))
    claimed = whole | {"weights": record["weights"] | {"estimated": True}}
    assert verify(claimed) == ["the guarantee is not that of these settings"]
    assert verify(whole | {"needs_flagged": needs[1:].tolist()})
    result.report(tmp_path / "page.html")
    assert "Each known normal counts by its weight" in (tmp_path / "page.html").read_text("utf-8")


def test_no_drift_is_announced_where_weights_account_for_it():
    rng = np.random.default_rng(0)
    null = rng.normal(size=(600, 3)) + np.linspace(0, 2, 600)[:, None] * [1, 0, 0]
    test = rng.normal((2, 0, 0), size=(100, 3))
    plain = detector(weights=None).detect(null, test)
    assert "drift" in {finding.kind for finding in plain.warnings}
    assert "drift" not in {finding.kind for finding in detector().detect(null, test).warnings}


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"pi0": "storey"}, "pi0"),
        ({"repeats": 3}, "repeats"),
        ({"confidence": 0.9}, "confidence"),
        ({"ties": "random"}, "ties"),
        ({"train_fraction": 0, "weights": "estimate"}, "train_fraction=0"),
        ({"weights": 3}, "must be a function of rows"),
        ({"weights": "w"}, "names a column, and X_null has none"),
    ],
)
def test_what_is_not_proven_is_refused_by_name(settings, word):
    with pytest.raises((InputError, ColumnError), match=word):
        detector(**settings).detect(*draw())


def test_kept_detectors_ledgers_verdicts_certificates_and_pieces_are_refused(tmp_path):
    null, test = draw()
    with pytest.raises(InputError, match="do not work with a ledger"):
        detector().detect(null, test, ledger=tmp_path / "ledger.json")
    with pytest.raises(InputError, match="do not work with verdicts"):
        detector().detect(null, test, verdicts=tmp_path / "verdicts.json")
    with pytest.raises(InputError, match="a kept detector does not know the rows"):
        detector().keep(null)
    with pytest.raises(InputError, match="one detection"):
        detector().fit(null)
    with pytest.raises(InputError, match="with weights evidence decides"):
        detector().detect(null, test).certificate()
    for name, X in (("null", null), ("test", test)):
        pd.DataFrame(X, columns=NAMES).to_csv(tmp_path / f"{name}.csv", index=False)
    files = tmp_path / "null.csv", tmp_path / "test.csv", tmp_path / "out.csv"
    with pytest.raises(InputError, match="weights is for rows in memory"):
        detect_files(detector(), *files)


def test_all_known_normals_may_calibrate_where_weights_are_known():
    null, test = draw()
    result = detector(scorer=None, train_fraction=0).detect(null, test)
    assert result.n_calibration == len(null)
    assert result.n_rejected > 0


def test_weights_that_are_no_function_of_a_row_are_refused():
    with pytest.raises(InputError, match="of each row by itself"):
        detector(weights=lambda X: weigh(X) / weigh(X).mean()).detect(*draw())
    with pytest.raises(InputError, match="weights are negative"):
        detector(weights=lambda X: -weigh(X)).detect(*draw())
    frames = as_frames(*draw())
    frames[1].loc[4, "w"] = np.nan
    with pytest.raises(InputError, match=r"X_test: column 'w': 1 of 120 weights are missing"):
        detector(weights="w").detect(*frames)
    with pytest.raises(InputError, match="rename the column"):
        detector(weights="estimate").detect(*[f.rename(columns={"w": "estimate"}) for f in frames])


def test_known_novelties_may_have_the_column_or_not():
    null, test = as_frames(*draw())
    cases = test.iloc[-3:]
    both = [
        detector(weights="w").detect(null, test, known_rows, check=False)
        for known_rows in (cases, cases.drop(columns="w"))
    ]
    assert np.array_equal(both[0].scores, both[1].scores)


def test_the_random_number_follows_from_the_seed():
    null, test = draw()
    first, again, other = (detector(random_state=s).detect(null, test) for s in (1, 1, 2))
    assert first.weighted.chance == again.weighted.chance != other.weighted.chance
    assert np.array_equal(first.rejected, again.rejected)
    assert 0 < first.weighted.chance <= Fraction(1)
