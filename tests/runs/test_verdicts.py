"""Verdicts: their file, and what a detection does with them."""

import json
import os

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import conovel as cn
from conovel.errors import (
    BatchRefusedError,
    FileError,
    InputError,
    SavedFileError,
    SpentRowsError,
)
from conovel.runs.judged import enough_rows
from conovel.site.blocks import split_by_number, split_fresh

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


def normals(seed, n=600):
    return np.random.default_rng([seed, 1]).normal(size=(n, 3))


def batch(seed, n=100, n_novel=15):
    rows = np.random.default_rng([seed, 2]).normal(size=(n, 3))
    rows[:n_novel] += 5
    return rows


def framed(rows, prefix=""):
    cities = np.where(rows[:, 0] > 0, "north", "south")
    frame = pd.DataFrame(rows, columns=list("abc")).assign(city=cities)
    return frame.assign(txn=[f"{prefix}{i}" for i in range(len(rows))]) if prefix else frame


def detect(X_null, X_test, verdicts, **options):
    return cn.AdaDetect("logistic").detect(X_null, X_test, verdicts=verdicts, **options)


def judge(book, n_novel=15):
    """Judge all flagged rows of the last batch: the first rows are novel."""
    last = book.batches[-1]
    words = {i: "novel" if int(i) < n_novel else "normal" for i in last.ids}
    return book.add(words, batch=last.name, who="ana")


@pytest.fixture
def book(tmp_path):
    """A file with a batch of 100 rows, all flagged ones judged."""
    book = cn.Verdicts(tmp_path / "site.verdicts")
    detect(normals(0), batch(0), book, name="monday")
    assert judge(book) >= 5
    return book


def with_fresh(n=400):
    return np.concatenate([normals(0), normals(9, n)])


def test_the_first_batch_is_decided_as_without_verdicts(tmp_path):
    book = cn.Verdicts(tmp_path / "site.verdicts")
    with_book = detect(normals(0), batch(0), book)
    without = cn.AdaDetect("logistic").detect(normals(0), batch(0))
    assert np.array_equal(with_book.scores, without.scores)
    assert np.array_equal(with_book.ranks, without.ranks)
    assert with_book.guarantee == without.guarantee
    assert with_book.warnings == without.warnings
    assert os.stat(book.path).st_mode & 0o777 == 0o600


def test_verdicts_wait_until_fresh_normals_are_there(book):
    assert enough_rows(cn.Ledger(0.1).level) == 199
    before = detect(normals(0), batch(1), book).parts["verdicts"]
    assert (before.batches, before.waiting) == ((), ("monday",))
    few = detect(np.concatenate([normals(0), normals(9, 198)]), batch(2), book)
    assert few.parts["verdicts"].waiting == ("monday",)
    assert few.n_train + few.n_calibration == 798
    enough = detect(np.concatenate([normals(0), normals(9, 198), normals(8, 199)]), batch(3), book)
    update = enough.parts["verdicts"]
    assert (update.n_spent, update.n_left) == (798, 199)
    assert len(update.batches) == 3  # of those that trained, and those that might have
    assert "they were collected apart" in enough.guarantee.assumptions[-1]
    [finding] = [one for one in few.warnings if one.kind == "spent"]
    assert "198 known normals would be left" in finding.message
    assert "append fresh known normals" in finding.fix
    [finding] = [one for one in enough.warnings if one.kind == "spent"]
    assert "199 left to calibrate" in finding.message
    assert not finding.breaks_promise


def test_spent_rows_train_and_never_calibrate(book):
    X_null = with_fresh()[np.random.default_rng(3).permutation(1000)]
    stages = []
    result = detect(X_null, batch(1), book, on_stage=stages.append)
    assert any("400 known normals left to calibrate" in stage for stage in stages)
    spent = book.spent(X_null)
    assert spent.sum() == 600
    assert {tuple(row) for row in X_null[spent]} == {tuple(row) for row in normals(0)}
    train_only = len(book.train_only_rows())
    assert result.n_train >= 600 + train_only
    assert result.n_train + result.n_calibration == 1000 + train_only


def test_calibration_rows_are_fresh_whatever_a_user_appends(book):
    """Judged rows that are put among the normals train; other tested rows have no part."""
    flagged = np.array([int(i) for i in book.batches[0].ids])
    appended = np.concatenate([with_fresh(), batch(0)[flagged], batch(0)[60:70]])
    update = detect(appended, batch(1), book).parts["verdicts"]
    assert (update.n_spent, update.n_left, update.n_left_out) == (600, 400, 0)
    waiting = cn.Verdicts(book.path, learn=False)
    detect(with_fresh(), batch(2), waiting)
    [late] = [batch(2)[60:70]]
    result = detect(np.concatenate([with_fresh(), late]), batch(3), waiting)
    update = result.parts["verdicts"]
    assert (update.n_left, update.n_left_out) == (400, 10)
    assert any("left out" in finding.message for finding in result.warnings)


def test_when_none_is_left_the_error_says_what_to_do(book):
    with pytest.raises(SpentRowsError, match=r"collect fresh known normals.*learn=False"):
        detect(normals(0), batch(1), cn.Verdicts(book.path, learn=True))
    detect(with_fresh(), batch(2), book)
    judge(book)
    with pytest.raises(SpentRowsError, match="no known normal is left"):
        detect(normals(0), batch(3), cn.Verdicts(book.path, learn=False))


def test_rows_of_a_batch_that_has_trained_are_not_tested_again(book):
    with pytest.raises(BatchRefusedError, match="tested in batch 'monday'"):
        detect(with_fresh(), np.concatenate([batch(0)[:20], batch(1)]), book)
    detect(with_fresh(), np.concatenate([batch(0)[:2], batch(1)]), book)  # may be by chance


def test_scores_do_not_know_roles(book):
    """Exchanging fresh calibration rows and test rows exchanges their scores, bit for bit."""
    X_null, X_test = with_fresh(), batch(1)
    earlier = book.path.read_bytes()
    first = detect(X_null, X_test, book)
    assert first.parts["verdicts"].n_novel > 5
    at = np.flatnonzero(first_calibration(first, X_null, book))[:5]
    X_null[at], X_test[:5] = X_test[:5].copy(), X_null[at].copy()
    book.path.write_bytes(earlier)
    second = detect(X_null, X_test, book)
    both = [np.concatenate([one.calibration_scores, one.scores]) for one in (first, second)]
    assert np.array_equal(*map(np.sort, both))
    assert np.array_equal(first.scores[5:], second.scores[5:])
    assert not np.array_equal(first.scores[:5], second.scores[:5])


def first_calibration(result, X_null, book):
    """Mark the rows that calibrated, by the split that numbers and the seed give."""
    from conovel.spec.run_spec import detector_seeds

    seed, _ = detector_seeds(0)
    n_judged = len(book.train_only_rows())
    train_only = np.append(book.spent(X_null), np.ones(n_judged, dtype=bool))
    _, calibration = split_fresh(train_only, result.n_train, seed, 10**5)
    assert calibration.size == result.n_calibration
    return np.isin(np.arange(len(X_null)), calibration)


def test_the_split_of_fresh_rows_follows_from_numbers_and_the_seed():
    train_only = np.array([True, False] * 50)
    train, calibration = split_fresh(train_only, 60, 7, 1000)
    assert (train.size, calibration.size) == (60, 40)
    assert not train_only[calibration].any()
    moved = np.sort(train_only)  # the same numbers in another order
    _, again = split_fresh(moved, 60, 7, 1000)
    places = np.flatnonzero(~train_only).searchsorted(calibration)
    assert np.array_equal(places, np.flatnonzero(~moved).searchsorted(again))
    none = np.zeros(100, dtype=bool)
    for ours, plain in zip(split_fresh(none, 60, 7, 99), split_by_number(100, 60, 7), strict=True):
        assert np.array_equal(ours, plain)
    few, most = split_fresh(train_only, 20, 7, 20)
    assert (few.size, most.size) == (20, 50)  # no more than 20 train; no fresh row needs to


def test_a_later_verdict_replaces_an_earlier_one_and_both_stay(book):
    name = book.batches[0].ids[0]
    before = len(book.known_rows())
    book.add([{"id": name, "verdict": "unclear", "kind": "mule", "note": "asked"}], who="ben")
    assert len(book.known_rows()) == before - 1
    own = [one for one in book.history if one.id == name]
    assert [one.verdict for one in own] == ["novel", "unclear"]
    assert (own[1].kind, own[1].note, own[1].who) == ("mule", "asked", "ben")
    assert book.summary()["batches"][0]["n_unclear"] == 1


def test_rows_come_back_as_they_were_read(tmp_path):
    book = cn.Verdicts(tmp_path / "site.verdicts")
    X_test = framed(batch(0), "t")
    ids = X_test.pop("txn")
    X_test.loc[0, "city"] = None
    X_null = framed(normals(0))
    X_null["b"] = X_null["b"].where(X_null["b"] < 2)
    detect(X_null, X_test, book, ids=ids)
    book.add(dict.fromkeys(book.batches[0].ids, "novel"))
    rows = book.known_rows()
    flagged = [int(i.removeprefix("t")) for i in book.batches[0].ids]
    assert rows["a"].tolist() == X_test.loc[flagged, "a"].tolist()
    assert rows["city"].fillna("").tolist() == X_test.loc[flagged, "city"].fillna("").tolist()
    assert rows["city"].isna().sum() == 1
    more = framed(with_fresh())
    more["b"] = more["b"].where(more["b"] < 2)
    result = detect(more, framed(batch(1)), book)
    assert result.parts["verdicts"].n_spent == 600


def test_the_summary_has_exact_intervals(book):
    book.add(dict.fromkeys(book.batches[0].ids, "novel"))
    book.add({book.batches[0].ids[0]: "normal"})
    [shares] = book.summary()["batches"]
    n = shares["n_judged"]
    assert shares["share"] == 1 / n
    # The chance of at most one hit, and of at least one, at the ends of the interval
    high, low = shares["high"], shares["low"]
    assert (1 - high) ** n + n * high * (1 - high) ** (n - 1) == pytest.approx(0.025)
    assert 1 - (1 - low) ** n == pytest.approx(0.025)
    json.dumps(book.summary())


def test_a_ledger_and_verdicts_have_one_list_over_all_epochs(book, tmp_path):
    ledger = tmp_path / "list.json"
    other = cn.Verdicts(tmp_path / "other.verdicts")
    detect(normals(0), batch(1), other, ledger=ledger)
    judge(other)
    result = detect(with_fresh(), batch(2), other, ledger=ledger)
    assert result.parts["verdicts"].n_spent == 600
    assert result.ledger.n_tests == 200
    assert "list over all batches" in result.guarantee.statement
    with pytest.raises(BatchRefusedError, match="other known normals"):
        detect(with_fresh(), batch(3), book, ledger=ledger)  # another file of verdicts


def test_rows_that_were_judged_novel_are_known_novelties(book):
    """What they add can be seen: a kind that is too weak to be found without them."""
    before = book.path.read_bytes()
    X_test = batch(1, n_novel=0)
    X_test[:6] += 2
    with_rows = cn.AdaDetect("logistic").detect(with_fresh(), X_test, verdicts=book)
    assert with_rows.parts["verdicts"].n_novel == len(book.known_rows()) > 5
    book.path.write_bytes(before)
    book.add(dict.fromkeys(book.batches[0].ids, "unclear"))
    without = cn.AdaDetect("logistic").detect(with_fresh(), X_test, verdicts=book)
    assert without.parts["verdicts"].n_novel == 0
    assert without.n_calibration == with_rows.n_calibration
    assert np.sort(with_rows.ranks[:6]).sum() < np.sort(without.ranks[:6]).sum()


def test_more_known_novelties_may_be_given_but_no_rows_whose_verdicts_wait(book):
    result = detect(with_fresh(), batch(1), book, X_known=batch(7)[:3])
    assert result.parts["verdicts"].n_novel > 5
    waiting = cn.Verdicts(book.path, learn=False)
    with pytest.raises(InputError, match="3 rows of X_known were tested"):
        detect(with_fresh(), batch(2), waiting, X_known=batch(1)[:3])


def test_pipelines_on_frames_learn_from_verdicts(tmp_path):
    book = cn.Verdicts(tmp_path / "site.verdicts")
    columns = ColumnTransformer([("c", OneHotEncoder(), ["city"])], remainder="passthrough")
    detector = cn.AdaDetect(make_pipeline(columns, LogisticRegression()))
    detector.detect(framed(normals(0)), framed(batch(0)), verdicts=book)
    book.add(dict.fromkeys(book.batches[0].ids[1:], "novel"))
    book.add({book.batches[0].ids[0]: "normal"})
    late = np.concatenate([with_fresh(), batch(0)[50:55]])
    result = detector.detect(framed(late), framed(batch(1)), verdicts=book)
    update = result.parts["verdicts"]
    assert (update.n_spent, update.n_left) == (600, 400)
    assert result.n_train + result.n_calibration == 1005


def test_a_verdict_that_is_changed_within_an_epoch_counts_from_the_next_one_on(book):
    first = detect(with_fresh(), batch(1), book).parts["verdicts"]
    book.add(dict.fromkeys(book.batches[0].ids, "unclear"))
    for learn in (None, False):
        same = detect(with_fresh(), batch(2), cn.Verdicts(book.path, learn)).parts["verdicts"]
        assert (same.n_novel, same.n_spent) == (first.n_novel, 600)
    judge(book)
    more = np.concatenate([with_fresh(), normals(8, 300)])
    later = detect(more, batch(3), book).parts["verdicts"]
    assert later.n_spent == 1000
    assert later.n_novel == sum(one.verdict == "novel" for one in book.read().verdicts.values())


def test_rows_that_repeat_are_counted(tmp_path):
    """Of coarse rows, the copies that were added are fresh; without the old ones nobody knows."""
    book = cn.Verdicts(tmp_path / "site.verdicts")
    first, more = (np.clip(normals(k, n).round(), -2, 2) for k, n in ((0, 600), (9, 400)))
    detect(first, batch(0).round(), book)
    judge(book)
    others = detect(more, batch(1).round(), book).parts["verdicts"]
    assert (others.batches, others.n_fresh, others.n_left) == ((), 0, 400)
    with pytest.raises(SpentRowsError, match="known normals of earlier batches"):
        detect(more, batch(2).round(), cn.Verdicts(book.path, learn=True))
    book = cn.Verdicts(tmp_path / "other.verdicts")
    detect(first, batch(0).round(), book)
    judge(book)
    update = detect(np.concatenate([more, first]), batch(1).round(), book).parts["verdicts"]
    assert (update.n_spent, update.n_left, update.n_left_out) == (600, 400, 0)


def test_the_same_detection_again_is_one_batch(book):
    detect(normals(0), batch(0), book, name="monday")
    assert len(book.batches) == 1


@pytest.mark.parametrize(
    ("judged", "message"),
    [
        ({"0": "fraud"}, "write novel, normal or unclear"),
        ({"99": "novel"}, "was not flagged in any batch"),
        ([{"verdict": "novel"}], "was not flagged"),
        ([{"id": "0", "verdict": "novel", "note": "x" * 5000}], "longer than"),
        ([{"id": "0", "verdict": "novel", "note": "\ud800"}], "not Unicode"),
    ],
)
def test_wrong_verdicts_are_named_and_not_written(book, judged, message):
    before = book.path.read_bytes()
    with pytest.raises(InputError, match=message):
        book.add(judged)
    assert book.path.read_bytes() == before


def test_wrong_arguments_are_named(book):
    with pytest.raises(InputError, match="there is no batch 'mondey'"):
        book.add({"0": "novel"}, batch="mondey")
    with pytest.raises(InputError, match=r"must be a conovel\.Verdicts or a path"):
        detect(normals(0), batch(1), 3)
    with pytest.raises(InputError, match="learn must be"):
        cn.Verdicts(book.path, learn="yes")
    with pytest.raises(InputError, match="other columns"):
        detect(normals(0)[:, :2], batch(1)[:, :2], book)


def test_a_file_that_was_changed_is_refused(book):
    whole = book.path.read_bytes()
    book.path.write_bytes(whole.replace(b'"verdict":"novel"', b'"verdict":"normal"', 1))
    with pytest.raises(SavedFileError, match="it is not the line that was written"):
        book.summary()
    book.path.write_bytes(b"")
    assert book.batches == ()
    book.path.write_bytes(b"\x00" * 100 + b"\n")
    with pytest.raises(SavedFileError, match="is not a file of verdicts"):
        book.summary()
    book.path.unlink()
    book.path.mkdir()
    with pytest.raises(FileError):
        book.summary()


def test_a_line_that_was_broken_off_is_left_behind(book):
    n_verdicts = len(book.history)
    whole = book.path.read_bytes()
    book.path.write_bytes(whole + whole.splitlines()[-1][:40])
    assert len(book.history) == n_verdicts
    book.add({book.batches[0].ids[0]: "unclear"})
    assert len(book.history) == n_verdicts + 1


def test_a_detection_that_was_overtaken_is_refused(book):
    """Another process has learnt in the meantime: what is spent has changed."""
    from conovel.runs.judged import plan_judged

    late = plan_judged(
        cn.Verdicts(book.path, False), with_fresh(), batch(1), None, cn.AdaDetect().settings()
    )
    detect(with_fresh(), batch(2), book)
    with pytest.raises(InputError, match="run this one again"):
        late.note_training()
