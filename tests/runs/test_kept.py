"""A kept detector: the same answers from its file, honest ranks, and hostile bytes."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, LocalOutlierFactor
from sklearn.pipeline import make_pipeline

import conovel as cn
from conovel.errors import BatchRefusedError, ColumnError, SavedFileError, ScorerError
from conovel.stats.ranks import conformal_ranks
from conovel.stats.stepup import benjamini_hochberg


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(5)
    known_rows, past, today = (rng.normal(size=(n, 3)) for n in (400, 200, 100))
    past[:20] += 4
    today[:10] += 4
    return known_rows, past, today


@pytest.fixture(scope="module")
def kept(samples):
    return cn.AdaDetect("logistic").keep(*samples[:2])


def test_a_batch_is_ranked_among_calibration_rows_that_did_not_train(samples, kept):
    known_rows, _, today = samples
    found = kept.detect(today, ids=np.arange(100))
    assert (kept.n_train + kept.n_calibration, kept.n_unlabelled) == (400, 200)
    scores = kept.score(today)
    assert np.array_equal(found.ranks, conformal_ranks(kept.calibration_scores, scores))
    expected = benjamini_hochberg(found.ranks, kept.n_calibration, 0.1)
    assert np.array_equal(found.rejected, expected)
    assert found.rejected[:10].all()
    assert "no calibration row and no tested row was among the rows" in str(found.guarantee)
    with pytest.raises(BatchRefusedError, match="unlabelled rows that the detector learnt from"):
        kept.detect(samples[1][::-1])
    calibration = set(kept.calibration_scores) & set(kept.score(known_rows))
    assert len(calibration) == kept.n_calibration
    assert kept.detect(today, level=0.01).level == cn.AdaDetect(level=0.01).settings().level


def test_the_score_of_a_calibration_row_does_not_depend_on_calibration_rows(samples):
    """Changing rows that calibrate changes their own scores alone."""
    known_rows, past, today = samples
    detector = cn.AdaDetect("logistic", train_fraction="1/2", random_state=3)
    one = detector.keep(known_rows, past)
    is_train = ~np.isin(one.score(known_rows), one.calibration_scores)
    assert is_train.sum() == one.n_train
    changed = np.where(is_train[:, None], known_rows, known_rows * 0.5)
    other = detector.keep(changed, past)
    assert np.array_equal(one.score(today), other.score(today))
    assert not np.array_equal(one.calibration_scores, other.calibration_scores)


def test_the_file_gives_the_same_detector(samples, kept, tmp_path):
    path = tmp_path / "detector.conovel"
    kept.save(path)
    again = cn.KeptDetector.load(path)
    assert again.digest == kept.digest
    assert repr(again) == repr(kept)
    assert np.array_equal(again.detect(samples[2]).scores, kept.detect(samples[2]).scores)
    assert again.to_bytes() == path.read_bytes() == kept.to_bytes()


def test_without_unlabelled_rows_a_one_class_score_is_learnt(samples):
    known_rows, _, today = samples
    kept = cn.AdaDetect().keep(known_rows)
    assert (kept.scorer, kept.n_unlabelled) == ("MahalanobisDistance", 0)
    assert kept.detect(today).rejected[:10].sum() >= 8
    skewed = cn.AdaDetect().keep(np.exp(known_rows))
    assert skewed.scorer == "IsolationForest"
    with pytest.raises(ScorerError, match="rows that are never tested"):
        cn.AdaDetect("logistic").keep(known_rows)
    with pytest.raises(ScorerError, match="no form that can be kept: use 'isolation-forest'"):
        cn.AdaDetect(cn.OneClass(LocalOutlierFactor(novelty=True), "normal")).keep(known_rows)
    with pytest.raises(cn.InputError, match="leave repeats, pi0 and ties out"):
        cn.AdaDetect(repeats=3).keep(known_rows)
    by_name = make_pipeline(ColumnTransformer([("a", "passthrough", ["a"])]), LogisticRegression())
    with pytest.raises(ScorerError, match="chooses columns by name"):
        cn.AdaDetect(by_name).keep(known_rows, known_rows + 1)


def test_flagged_rows_are_explained_where_normals_were_kept(samples, kept):
    known_rows, past, today = samples
    shifted = today.copy()
    shifted[:10] -= [[4, 4, 0]]  # now high in the last column alone
    again = cn.KeptDetector.from_bytes(
        cn.AdaDetect("isolation-forest").keep(known_rows, explain=True).to_bytes()
    )
    assert len(again.normals) == again.n_train
    found = again.detect(shifted, level=0.3)
    first = found.explain(top=1)
    assert (first["column"][first["row"] < 10] == 2).mean() >= 0.9
    with pytest.raises(cn.InputError, match="no score to explain it by"):
        kept.detect(today).explain()
    assert len(past) == kept.n_unlabelled


def test_what_has_no_numbers_is_imitated(samples):
    known_rows, past, today = samples
    kept = cn.AdaDetect(KNeighborsClassifier(20)).keep(known_rows, past)
    assert kept.imitated
    assert cn.KeptDetector.from_bytes(kept.to_bytes()).imitated
    assert kept.detect(today).rejected[:10].sum() >= 8


def test_columns_are_taken_by_name_and_types_compared(samples):
    names = ["a", "b", "c"]
    known_rows, past, today = (pd.DataFrame(rows, columns=names) for rows in samples)
    kept = cn.AdaDetect("logistic").keep(known_rows, past)
    plain = kept.detect(today)
    assert np.array_equal(kept.detect(today[["c", "a", "b"]]).ranks, plain.ranks)
    with pytest.raises(ColumnError, match="lacks 'b'"):
        kept.detect(today[["a", "c"]])
    with pytest.raises(ColumnError, match="'b' is float32, and the detector was calibrated with"):
        kept.detect(today.astype({"b": np.float32}))
    with pytest.raises(ColumnError, match="X_unlabelled lacks 'c'"):
        cn.AdaDetect("logistic").keep(known_rows, past[["a", "b"]])
    with pytest.raises(ColumnError, match="2 columns, and the detector was made for 3"):
        cn.AdaDetect("logistic").keep(*samples[:2]).detect(samples[2][:, :2])
    single = cn.AdaDetect("logistic").keep(known_rows.astype(np.float32), past.astype(np.float32))
    rounded = single.detect(today.astype(np.float32).astype(np.float64))
    assert np.array_equal(single.detect(today).scores, rounded.scores)


def mixed(rng, n, n_novel, odd="x"):
    frame = pd.DataFrame({"size": rng.normal(size=n), "colour": rng.choice(["red", "blue"], n)})
    frame["age"] = np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))
    frame.loc[: n_novel - 1, "size"] += 6
    frame.loc[n_novel : n_novel + 2, "colour"] = odd
    return frame


def test_columns_of_every_kind_by_a_schema_from_rows_that_train(tmp_path):
    rng = np.random.default_rng(2)
    known_rows, past, today = (
        mixed(rng, 600, 0),
        mixed(rng, 200, 20),
        mixed(rng, 100, 10, odd="unseen"),
    )
    detector = cn.AdaDetect("logistic", train_fraction="1/2", random_state=3)
    kept = detector.keep(known_rows, past)
    found = kept.detect(today)
    assert found.rejected[:10].all()
    kept.save(tmp_path / "d.conovel")
    again = cn.KeptDetector.load(tmp_path / "d.conovel")
    assert again.schema == kept.schema
    assert np.array_equal(again.detect(today, ledger=tmp_path / "m.json").scores, found.scores)
    # A level that only calibration rows have is unknown to the score, as one of test rows is.
    numbers = known_rows["size"].to_numpy()
    order = np.random.default_rng(detector.settings().seed).permutation(600)
    calibration = np.sort(order[300:])
    changed = known_rows.copy()
    changed.loc[calibration, "colour"] = "green"
    changed.loc[calibration[:150], "age"] = np.nan
    other = detector.keep(changed, past)
    assert other.schema == kept.schema
    assert np.array_equal(other.score(today), kept.score(today))
    assert numbers.size == kept.n_train + kept.n_calibration
    refitted = cn.AdaDetect("logistic").detect(known_rows, today, ledger=tmp_path / "r.json")
    assert refitted.ledger.number == 1
    with pytest.raises(BatchRefusedError, match="seen these rows"):
        cn.AdaDetect("logistic").detect(known_rows, today, ledger=tmp_path / "r.json")
    more = mixed(rng, 50, 5, odd="other")
    assert (
        cn.AdaDetect("logistic").detect(known_rows, more, ledger=tmp_path / "r.json").ledger.number
        == 2
    )


def test_one_ledger_for_all_batches(samples, kept, tmp_path):
    today, path = samples[2], tmp_path / "month.json"
    batches = [today, today + 0.01, today - 0.01]
    for X in batches:
        found = kept.detect(X, ledger=path, name=f"day {X[0, 0]:.3f}")
    ranks = np.concatenate([kept.detect(X).ranks for X in batches])
    expected = benjamini_hochberg(ranks, kept.n_calibration, 0.1)
    assert np.array_equal(np.concatenate(cn.Ledger.load(path).decisions()), expected)
    assert np.array_equal(found.rejected, expected[-100:])
    other = cn.AdaDetect("logistic", random_state=1).keep(*samples[:2])
    with pytest.raises(BatchRefusedError, match="scored with another detector"):
        other.detect(today + 1, ledger=path)
    with pytest.raises(BatchRefusedError, match="seen these rows"):
        kept.detect(today[::-1], ledger=path)


def test_scikit_learns_scores(samples):
    known_rows, past, today = samples
    detector = cn.AdaDetect("logistic").fit(known_rows, X_unlabelled=past)
    kept = cn.AdaDetect("logistic").keep(known_rows, past)
    assert detector.kept_.to_bytes() == kept.to_bytes()  # what the command fit writes
    assert np.array_equal(detector.score_samples(today), -kept.score(today))
    decision = detector.decision_function(today)
    assert np.array_equal(decision < 0, kept.detect(today).p_values <= 0.1)
    assert not hasattr(cn.AdaDetect("logistic").fit(known_rows), "score_samples")
    assert hasattr(cn.AdaDetect().fit(known_rows), "decision_function")
    with pytest.raises(cn.InputError, match=r"call fit\(X_null\) first"):
        cn.AdaDetect("isolation-forest").score_samples(today)


def reseal(data):
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


SCORER = cn.Refined(ExtraTreesClassifier(3, max_depth=2), LogisticRegression(), n_folds=2)


def small_file():
    rng = np.random.default_rng(0)
    known_rows, past = rng.normal(size=(30, 2)), rng.normal(size=(20, 2)) + 1
    detector = cn.AdaDetect(SCORER, train_fraction="1/2").keep(known_rows, past)
    return detector.to_bytes()


SMALL = small_file()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "begin like a detector"),
        (b"\x80\x04csystem\n", "begin like a detector"),
        (SMALL[:40], "ends too early"),
        (SMALL[:8] + b"\x04\x00" + SMALL[10:], "version is 4, and this release reads 1 to 3"),
        (SMALL[:-40] + SMALL[-39:], "checksum is wrong"),
        (reseal(SMALL[:10] + b"\xff" * 4 + SMALL[14:]), "header is longer than the file"),
        (reseal(SMALL[:14] + b"\xff" + SMALL[15:]), "header is not JSON"),
        (reseal(SMALL[:-32] + bytes(8) + SMALL[-32:]), "goes on after its arrays"),
        (reseal(SMALL[:-40] + SMALL[-32:]), "ends before its arrays"),
    ],
)
def test_bytes_that_are_no_detector_are_named(tmp_path, data, message):
    path = tmp_path / "a.conovel"
    path.write_bytes(data)
    with pytest.raises(SavedFileError, match=message):
        cn.KeptDetector.load(path)


@st.composite
def hostile(draw):
    """A file with changed bytes, or with a changed header, under a valid checksum."""
    data = bytearray(SMALL)
    size = int.from_bytes(data[10:14], "little")
    if draw(st.booleans()):
        header = json.loads(bytes(data[14 : 14 + size]))
        inner, steps = header, draw(st.integers(1, 6))
        for _ in range(steps):
            keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            value = inner[key]
            if not isinstance(value, dict | list) or not value or draw(st.integers(0, 3)) == 0:
                values = [None, -1, 0, 2**40, 1e308, "x", "forest", [], {}, True, value]
                inner[key] = draw(st.sampled_from(values))
                break
            inner = value
        text = json.dumps(header).encode()
        data[10:14] = len(text).to_bytes(4, "little")
        data[14 : 14 + size] = text
    else:
        for _ in range(draw(st.integers(1, 5))):
            data[draw(st.integers(0, len(data) - 33))] = draw(st.integers(0, 255))
    return reseal(bytes(data))


@settings(max_examples=250, deadline=None)
@given(hostile())
def test_hostile_bytes_are_a_detector_or_a_named_error(data):
    try:
        found = cn.KeptDetector.from_bytes(data)
    except SavedFileError:
        return
    assert np.isfinite(found.score(np.zeros((2, found.n_features)))).all()
