"""Known normals that hold novelties: which rows are listed, what is removed, and what it does."""

import re
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest

import conovel as cn
from conovel.errors import InputError, SampleError
from conovel.scorers.automatic import mahalanobis_distance

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


def contaminated(seed, n=600, n_novel=18, shift=3.0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 5))
    places = rng.permutation(n)[:n_novel]
    rows[places, :3] += shift
    return rows, np.isin(np.arange(n), places)


def judged(rows, is_novel, rounds=3, tests=None):
    verdicts = {}
    for _ in range(rounds):
        places = cn.suspicious_normals(rows, 10, tests, verdicts=verdicts).rows
        assert not verdicts.keys() & set(places.tolist())
        verdicts |= {int(i): "novel" if is_novel[i] else "normal" for i in places}
    return verdicts


def test_verdicts_lead_to_more_novelties_than_one_list():
    rows, is_novel = contaminated(0, shift=2.0)
    at_once = is_novel[cn.suspicious_normals(rows, 30).rows].sum()
    verdicts = judged(rows, is_novel)
    assert list(verdicts.values()).count("novel") > at_once


def test_tests_help_where_novelties_are_no_outliers():
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((800, 1)) < 0.5, -5, 5) + rng.normal(size=(800, 3))
    tests = np.where(rng.random((300, 1)) < 0.5, -5, 5) + rng.normal(size=(300, 3))
    rows[:20], tests[:60] = 0.5 * rng.normal(size=(20, 3)), 0.5 * rng.normal(size=(60, 3))
    is_novel = np.arange(800) < 20
    n_alone, n_with = (
        int(is_novel[cn.suspicious_normals(rows, 20, X_test).rows].sum())
        for X_test in (None, tests)
    )
    assert n_with > n_alone
    assert n_with >= 10


def test_the_list_does_not_depend_on_the_order_of_the_rows():
    rows, is_novel = contaminated(2)
    order = np.random.default_rng(0).permutation(len(rows))
    for verdicts in ({}, {int(i): "novel" for i in np.flatnonzero(is_novel)[:4]}):
        first = cn.suspicious_normals(rows, 15, verdicts=verdicts)
        moved = {int(np.flatnonzero(order == i)[0]): word for i, word in verdicts.items()}
        again = cn.suspicious_normals(rows[order], 15, verdicts=moved)
        assert order[again.rows].tolist() == first.rows.tolist()
        assert again.scores.tolist() == first.scores.tolist()


def test_a_verdict_normal_or_unclear_teaches_nothing():
    rows, is_novel = contaminated(3)
    normal = [int(i) for i in np.flatnonzero(~is_novel)[:5]]
    plain = cn.suspicious_normals(rows, 10, verdicts=dict.fromkeys(normal, "normal"))
    unclear = cn.suspicious_normals(rows, 10, verdicts=dict.fromkeys(normal, "unclear"))
    assert plain.rows.tolist() == unclear.rows.tolist()
    assert plain.scores.tolist() == unclear.scores.tolist()
    kept = cn.clean_normals(rows, dict.fromkeys(normal, "unclear"))
    assert kept.n_novel == 0
    assert len(kept.X_null) == len(rows)


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, pl.DataFrame])
def test_only_rows_judged_novel_go_and_frames_stay_frames(kind):
    rows = np.arange(100.0).reshape(50, 2)
    cleaned = cn.clean_normals(kind(rows), {7: "novel", 3: "normal", 40: "novel", 9: "unclear"})
    assert isinstance(cleaned.X_null, type(kind(rows)))
    assert np.array_equal(np.asarray(cleaned.X_null), np.delete(rows, [7, 40], axis=0))
    assert np.array_equal(np.asarray(cleaned.X_known), rows[[7, 40]])
    assert (cleaned.n_judged, cleaned.n_novel, cleaned.n_left) == (4, 2, 48)


def test_reasons_name_the_unusual_column():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=["flow", "heat", "load"])
    frame.loc[5, "heat"] = 30
    first = cn.suspicious_normals(frame, 1)
    assert first.rows.tolist() == [5]
    assert first.reasons[0][0].startswith("heat high: 30")


def test_the_promise_in_numbers_and_words():
    cleaned = cn.clean_normals(np.zeros((1000, 1)), {0: "novel"})
    assert cleaned.bound(0.1, 0) == Fraction(1, 10)
    assert cleaned.bound(0.1, 0.03) == Fraction(1, 10) * Fraction(1000, 971)
    assert "1 row of 1 judged row" in str(cleaned)
    assert "10 % of it on average" in str(cleaned)
    for share in (-0.1, 1, 2):
        with pytest.raises(InputError, match="still_novel"):
            cleaned.bound(0.1, share)


@pytest.mark.parametrize(
    ("verdicts", "what"),
    [
        ({50: "novel"}, "a row of the verdicts must be a whole number from 0 to 49"),
        ({-1: "novel"}, "from 0 to 49"),
        ({"3": "novel"}, "from 0 to 49"),
        ({3: "fraud"}, "the verdict on row 3 is 'fraud': write novel, normal, unclear"),
        ({3: None}, "the verdict on row 3 is None"),
    ],
)
def test_wrong_verdicts_are_refused_by_name(verdicts, what):
    rows = np.random.default_rng(0).normal(size=(50, 2))
    for call in (
        lambda: cn.clean_normals(rows, verdicts),
        lambda: cn.suspicious_normals(rows, verdicts=verdicts),
    ):
        with pytest.raises(InputError, match=re.escape(what)):
            call()


def test_too_few_rows_are_refused():
    with pytest.raises(SampleError, match="look at all of them"):
        cn.suspicious_normals(np.eye(19))
    with pytest.raises(SampleError, match="none is left"):
        cn.clean_normals(np.zeros((3, 2)), dict.fromkeys((0, 1, 2), "novel"))
    with pytest.raises(InputError, match="budget"):
        cn.suspicious_normals(np.eye(30), 0)


def rates(n_trials, prepare):
    """Mean and standard error of the FDP, and the mean power, of normals that were prepared."""
    fdp, power = [], []
    for seed in range(n_trials):
        rows, is_bad = contaminated(seed, 400, 12)
        tests, is_novel = contaminated([seed, 1], 150, 30)
        result = cn.AdaDetect(mahalanobis_distance(), 0.2, random_state=seed).detect(
            prepare(rows, is_bad, seed), tests, check=False
        )
        false = int((result.rejected & ~is_novel).sum())
        fdp.append(false / max(result.n_rejected, 1))
        power.append(result.rejected[is_novel].mean())
    return np.mean(fdp), np.std(fdp, ddof=1) / n_trials**0.5, np.mean(power)


def test_cleaning_gives_power_back_and_keeps_the_level():
    def cleaned(rows, is_bad, seed):
        return cn.clean_normals(rows, judged(rows, is_bad, 2)).X_null

    before, _, weak = rates(60, lambda rows, is_bad, seed: rows)
    after, error, strong = rates(60, cleaned)
    assert before < after
    assert after <= 0.2 * 0.8 + 3 * error
    assert strong > weak + 0.2


def test_dropping_the_most_suspicious_rows_without_a_look_breaks_the_level():
    def dropped(rows, is_bad, seed):
        listed = cn.suspicious_normals(rows, 40).rows
        return np.delete(rows, listed, axis=0)

    rate, error, _ = rates(60, dropped)
    assert rate > 0.2 + 3 * error
