"""Known novelties in kept detectors, ledgers and repeats: used, kept bit for bit, role-blind."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

import conovel as cn
from conovel.errors import BatchRefusedError, ColumnError, SavedFileError
from conovel.rows.pairs import KnownRows
from conovel.scorers.automatic import mahalanobis_distance
from conovel.scorers.weighted_forests import WeightedForests
from conovel.site.blocks import split_by_number

FORESTS = WeightedForests(n_trees=6)
SCORERS = ("logistic", None, FORESTS, "isolation-forest", mahalanobis_distance(), "extra-trees")


def draw(seed=0, n_null=600, n_other=300, n_known=25, d=4):
    """Draw known normals, unlabelled rows, tests and known novelties, all novelties alike."""
    rng = np.random.default_rng(seed)
    null, past, today = (rng.normal(size=(n, d)) for n in (n_null, n_other, n_other))
    for rows in (past, today):
        rows[:40, :2] += 2.5
    confirmed = rng.normal(size=(n_known, d))
    confirmed[:, :2] += 2.5
    return null, past, today, confirmed


def kinds_of(part):
    return {part.kind}.union(*map(kinds_of, part.parts))


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("with_past", [True, False])
def test_a_detector_with_known_novelties_is_kept_bit_for_bit(scorer, with_past, few_trees):
    null, past, today, confirmed = draw()
    kept = cn.AdaDetect(scorer).keep(null, past if with_past else None, confirmed)
    again = cn.KeptDetector.from_bytes(kept.to_bytes())
    assert (again.n_known, again.novelties, again.digest) == (25, None, kept.digest)
    assert np.array_equal(again.score(today), kept.score(today))
    one_by_one = [again.score(today[i : i + 1])[0] for i in range(0, 300, 29)]
    assert np.array_equal(one_by_one, kept.score(today)[::29])
    assert "25 known novelties" in repr(again)
    plain = not with_past and scorer in ("logistic", FORESTS, "extra-trees")
    sums = not plain and not (with_past and scorer == "isolation-forest")
    assert ("sum" in kinds_of(kept.model)) == sums
    assert kept.imitated == (with_past and scorer == "isolation-forest")


def test_known_novelties_help_a_detector_without_unlabelled_rows():
    null, _, today, confirmed = draw(n_null=1500, d=8)
    without = cn.AdaDetect().keep(null).detect(today).rejected
    learnt = cn.AdaDetect().keep(null, None, confirmed).detect(today).rejected
    assert learnt[:40].sum() >= without[:40].sum() + 10
    assert learnt[40:].sum() <= 6


@pytest.mark.parametrize("scorer", ["logistic", None, FORESTS, "isolation-forest"])
@pytest.mark.parametrize("with_past", [True, False])
def test_roles_do_not_matter_in_a_kept_detector(scorer, with_past, few_trees):
    """Calibration rows and later rows change places: the score keeps every bit."""
    null, past, today, confirmed = draw()
    past = past if with_past else None
    detector = cn.AdaDetect(scorer, train_fraction="1/2", random_state=3)
    _, calibration = split_by_number(600, 300, detector.settings().seed)
    moved = null.copy()
    moved[calibration[::2]], later = today[:150], today.copy()
    later[:150] = null[calibration[::2]]
    one, other = (detector.keep(rows, past, confirmed) for rows in (null, moved))
    together = [
        np.sort(np.concatenate([kept.calibration_scores, kept.score(rows)]))
        for kept, rows in ((one, today), (other, later))
    ]
    assert np.array_equal(*together)
    assert one.model.arrays.keys() == other.model.arrays.keys()
    assert np.array_equal(
        one.score(past if with_past else today), other.score(past if with_past else today)
    )
    changed = null.copy()
    train = np.setdiff1d(np.arange(600), calibration)
    changed[train[:50]] += 0.5  # rows that train do matter
    assert not np.array_equal(
        detector.keep(changed, past, confirmed).score(today), one.score(today)
    )


def mixed(rng, n, colours=("red", "blue")):
    return pd.DataFrame({"size": rng.normal(size=n), "colour": rng.choice(list(colours), n)})


def test_a_schema_follows_from_rows_that_train_and_from_known_novelties():
    rng = np.random.default_rng(3)
    null, past, today = mixed(rng, 400), mixed(rng, 200), mixed(rng, 100)
    confirmed = mixed(rng, 20, ["mauve"]).assign(kind="mule account")
    detector = cn.AdaDetect("logistic", train_fraction="1/2", random_state=3)
    kept = detector.keep(null, past, confirmed, explain=True)
    assert "mauve" in kept.schema["colour"].levels
    assert "mauve" not in detector.keep(null, past).schema["colour"].levels
    _, calibration = split_by_number(400, 200, detector.settings().seed)
    changed = null.copy()
    changed.loc[calibration, "colour"] = "green"
    other = detector.keep(changed, past, confirmed)
    assert other.schema == kept.schema
    assert np.array_equal(other.score(today), kept.score(today))
    alone = detector.keep(null, None, confirmed)
    assert alone.score(confirmed.drop(columns="kind")).mean() > alone.score(today).mean()
    with pytest.raises(ColumnError, match="X_known lacks 'size'"):
        detector.keep(null, past, confirmed[["colour"]])
    again = cn.KeptDetector.from_bytes(kept.to_bytes())
    assert again.novelties.kinds == ("mule account",) * 20
    assert np.array_equal(again.novelties.values, kept.novelties.values)


def test_a_detector_with_known_novelties_explains_by_them():
    null, past, today, confirmed = draw()
    names = list("abcd")
    null, past, today = (pd.DataFrame(rows, columns=names) for rows in (null, past, today))
    cases = pd.DataFrame(confirmed, columns=names).assign(kind="mule account")
    cases[["a", "b"]] += 3
    today.loc[:39, ["a", "b"]] += 3
    kept = cn.AdaDetect("logistic").keep(null, past, cases, explain=True)
    found = cn.KeptDetector.from_bytes(kept.to_bytes()).detect(today)
    frame = found.explain().drop_duplicates("row")
    assert (frame.loc[frame["row"] < 40, "known_kind"] == "mule account").mean() > 0.8
    assert (
        "known"
        not in cn.AdaDetect("logistic").keep(null, past, explain=True).detect(today).explain()
    )


def test_fit_and_predict_use_known_novelties(few_trees):
    null, past, today, confirmed = draw()
    detector = cn.AdaDetect("logistic").fit(null, X_known=confirmed)
    expected = cn.AdaDetect("logistic").detect(null, today, confirmed).rejected
    assert np.array_equal(detector.predict(today) == -1, expected)
    assert not np.array_equal(expected, cn.AdaDetect("logistic").detect(null, today).rejected)
    assert (
        detector.kept_.to_bytes()
        == cn.AdaDetect("logistic").keep(null, None, confirmed).to_bytes()
    )
    assert hasattr(detector, "score_samples")
    both = cn.AdaDetect("logistic").fit(null, X_unlabelled=past, X_known=confirmed).kept_
    assert both.to_bytes() == cn.AdaDetect("logistic").keep(null, past, confirmed).to_bytes()


def test_a_ledger_refuses_other_known_novelties(tmp_path):
    null, past, today, confirmed = draw()
    path, detector = tmp_path / "month.json", cn.AdaDetect("logistic", train_fraction=0.4)
    first = detector.detect(null, today, confirmed, ledger=path)
    plain = detector.detect(null, today, confirmed)
    assert np.array_equal(first.ranks, plain.ranks)
    # The order of known novelties is nothing; what is known is.
    assert detector.detect(null, past, confirmed[::-1], ledger=path).ledger.number == 2
    for others in (confirmed[1:], None):
        with pytest.raises(BatchRefusedError, match="another X_known than the earlier ones"):
            detector.detect(null, today + 1, others, ledger=path)
    detector.detect(null, today, ledger=tmp_path / "plain.json")
    with pytest.raises(BatchRefusedError, match="another X_known"):
        detector.detect(null, past, confirmed, ledger=tmp_path / "plain.json")
    frame = pd.DataFrame(confirmed).rename(columns=str)
    null, today, past = (pd.DataFrame(rows).rename(columns=str) for rows in (null, today, past))
    path = tmp_path / "frames.json"
    detector.detect(null, today, frame.assign(kind="a"), ledger=path)
    assert detector.detect(null, past, frame.assign(kind="b"), ledger=path).ledger.number == 2


def test_repeats_learn_from_known_novelties():
    null, _, today, confirmed = draw()
    detector = cn.AdaDetect("logistic", repeats=3)
    found, plain = detector.detect(null, today, confirmed), detector.detect(null, today)
    assert found.repeats == 3
    assert not np.array_equal(found.scores, plain.scores)
    assert found.rejected[:40].sum() >= plain.rejected[:40].sum()


def test_what_has_no_numbers_is_imitated_with_known_novelties():
    null, past, today, confirmed = draw()
    for others in (past, None):
        kept = cn.AdaDetect(KNeighborsClassifier(20)).keep(null, others, confirmed)
        assert kept.imitated
        assert kept.detect(today).rejected[:40].sum() >= 10


def with_known():
    null, past, _, confirmed = draw(n_null=40, n_other=30, n_known=5)
    cases = pd.DataFrame(confirmed).rename(columns=str).assign(kind="mule account")
    null, past = (pd.DataFrame(rows).rename(columns=str) for rows in (null, past))
    settings = {"explain": True, "confidence": "0.9"}
    kept = cn.AdaDetect(mahalanobis_distance()).keep(null, None, cases, **settings)
    return kept.to_bytes()


SMALL = with_known()


def reheaded(change):
    """Change the header of a detector's bytes, under a valid checksum."""
    data = SMALL[:-32]
    size = int.from_bytes(data[10:14], "little")
    header = json.loads(data[14 : 14 + size])
    change(header)
    text = json.dumps(header).encode()
    data = data[:10] + len(text).to_bytes(4, "little") + text + data[14 + size :]
    return data + hashlib.sha256(data).digest()


def set_to(*path, value):
    def change(header):
        inner = header
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_to("settings", "n_known", value=4), "another number of rows or columns"),
        (set_to("settings", "n_known", value=-1), "n_known"),
        (set_to("settings", "known_kinds", value=["a"]), "has a kind, or none has"),
        (set_to("settings", "confidence", value="1.5"), "confidence must lie strictly between"),
        (set_to("settings", "confidence", value=0.9), "confidence"),
        (set_to("model", "parts", value=[]), "a sum has parts|names an array"),
        (set_to("model", "scale", value="probability"), "on the scale of log-odds"),
        (set_to("model", "arrays", value={}), "not whole"),
        (set_to("model", "parts", 0, "kind", value="sum"), "sum"),
        (set_to("arrays", 2, value=["f8", [20]]), "another number of rows or columns"),
    ],
)
def test_a_wrong_header_is_named(change, message):
    with pytest.raises(SavedFileError, match=message):
        cn.KeptDetector.from_bytes(reheaded(change))


@st.composite
def hostile(draw_):
    """A file of version 2 with changed bytes, or with a changed header, under a valid checksum."""
    if not draw_(st.booleans()):
        data = bytearray(SMALL[:-32])
        for _ in range(draw_(st.integers(1, 5))):
            data[draw_(st.integers(0, len(data) - 1))] = draw_(st.integers(0, 255))
        return bytes(data) + hashlib.sha256(bytes(data)).digest()

    def change(header):
        inner = header
        for _ in range(draw_(st.integers(1, 6))):
            keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
            if not keys:
                return
            key = draw_(st.sampled_from(keys))
            value = inner[key]
            if not isinstance(value, dict | list) or not value or draw_(st.integers(0, 3)) == 0:
                values = [None, -1, 0, 2**40, 1e308, "x", "sum", "0.5", [], {}, True, value]
                inner[key] = draw_(st.sampled_from(values))
                return
            inner = value

    return reheaded(change)


@settings(max_examples=250, deadline=None)
@given(hostile())
def test_hostile_bytes_of_a_sum_are_a_detector_or_a_named_error(data):
    try:
        found = cn.KeptDetector.from_bytes(data)
    except SavedFileError:
        return
    assert np.isfinite(found.score(np.zeros((2, found.n_features)))).all()
    assert found.novelties is None or isinstance(found.novelties, KnownRows)
