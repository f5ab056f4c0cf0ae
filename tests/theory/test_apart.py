"""Rows that lie apart decide on the default score: roles must not matter, and FDR is exact."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from support.roles import (
    Sample,
    assert_roles_do_not_matter,
    assert_same_bits,
    in_detector,
    in_files,
    mixtures,
)

import conovel as cn
from conovel.scorers import automatic
from conovel.scorers.all_rows import Neighbours, fit_apart
from conovel.scorers.base import Mixture, TrainingSet
from conovel.site.blocks import split_by_number
from conovel.spec.run_spec import detector_seeds

N_TRAIN, N_CAL, N_NULL, N_NOVEL = 20, 11, 2, 4  # level 1/2: alpha (l + 1)/m = 1
BOUND = Fraction(1, 2) * Fraction(N_NULL, N_NULL + N_NOVEL)


def rows_apart(decimals=9, seed=0):
    """90 known normals and 40 tests, 10 of them far away in one column with a large unit."""
    rng = np.random.default_rng(seed)
    X_null, X_test = rng.normal(size=(90, 4)), rng.normal(size=(40, 4))
    X_test[30:, 0] += 7
    return Sample(*((rows * [100.0, 1, 1, 1]).round(decimals) for rows in (X_null, X_test)))


@pytest.mark.parametrize("decimals", [0, 1, 9], ids=["integers", "equal rows", "continuous"])
def test_roles_do_not_matter(decimals, tmp_path):
    """Exchanged rows keep their scores, and the choice its numbers: in memory and in pieces."""
    sample = rows_apart(decimals)
    for run in (in_detector(level="1/5"), in_files(tmp_path, level="1/5")):
        assert_roles_do_not_matter(run, [sample], None)
    result = cn.AdaDetect(level="1/5").detect(*sample)
    assert result.selection.criterion == "apart"
    assert result.rejected[30:].all()


def test_files_in_pieces_choose_and_score_as_rows_in_memory(tmp_path):
    sample = rows_apart()
    memory, pieces = in_detector(level="1/5"), in_files(tmp_path, level="1/5")
    blocks = mixtures(memory, [sample], splits_rows=False)
    one, other = (run([sample], None, blocks) for run in (memory, pieces))
    assert one.choices == other.choices
    assert one.choices["scorer"].winner == "neighbours, own units"
    assert_same_bits(one.test_scores, other.test_scores, "test rows")
    assert_same_bits(one.null_scores, other.null_scores, "calibration rows")


def peeking(training):
    """Take the units in which most test rows, which come last, are above all calibration rows."""
    fits = [Neighbours(scaled).fit(training) for scaled in (True, False)]
    scores = [training.mixture.score(fitted) for fitted in fits]
    n_tests = N_NULL + N_NOVEL if len(scores[0]) == N_CAL + N_NULL + N_NOVEL else 40
    above = [np.count_nonzero(s[-n_tests:] > s[:-n_tests].max()) for s in scores]
    return fits[int(np.argmax(above))]


def test_a_choice_that_sees_roles_is_noticed(monkeypatch):
    monkeypatch.setattr(automatic, "fit_apart", peeking)
    rng = np.random.default_rng(3)
    sample = Sample(*(rng.normal(size=(n, 2)) * [1, 30] for n in (90, 40)))
    run = in_detector(level="1/5")
    with pytest.raises(AssertionError, match="other scores"):
        assert_roles_do_not_matter(run, [sample], None)


def exact_fdr(seed):
    """Average over all ways to deal 13 null rows out to 11 calibration rows and 2 tests."""
    rng = np.random.default_rng(seed)
    train, pool = (rng.normal(size=(n, 2)) * [1, 30] for n in (N_TRAIN, N_CAL + N_NULL))
    novel = rng.normal(loc=[9, 300], size=(N_NOVEL, 2))
    detector = cn.AdaDetect(level="1/2", train_fraction=f"{N_TRAIN}/{N_TRAIN + N_CAL}")
    places = split_by_number(N_TRAIN + N_CAL, N_TRAIN, detector_seeds(0)[0])
    X_null = np.empty((N_TRAIN + N_CAL, 2))
    X_null[places[0]] = train
    shares, winners = [], set()
    for tested in combinations(range(len(pool)), N_NULL):
        X_null[places[1]] = np.delete(pool, tested, axis=0)
        X_test = np.concatenate([pool[list(tested)], novel])
        result = detector.detect(X_null, X_test, check=False)
        false = np.count_nonzero(result.rejected[:N_NULL])
        shares.append(Fraction(false, max(result.n_rejected, 1)))
        winners.add(None if result.selection is None else result.selection.criterion)
    return sum(shares) / len(shares), winners


@pytest.mark.parametrize("seed", range(3))
def test_the_false_discovery_rate_is_exactly_that_of_the_bound(seed):
    rate, criteria = exact_fdr(seed)
    assert criteria == {"apart"}
    assert rate == BOUND


def test_a_choice_that_sees_roles_breaks_the_bound(monkeypatch):
    monkeypatch.setattr(automatic, "fit_apart", peeking)
    rates = [exact_fdr(seed)[0] for seed in range(3)]
    assert min(rates) >= BOUND
    assert max(rates) > BOUND


def test_the_choice_is_the_same_for_every_order_of_the_mixture():
    """Permuting the mixture permutes the scores and leaves the choice alone."""
    X_null, X_test = rows_apart(0)
    mixture = np.concatenate([X_null[45:], X_test])
    order = np.random.default_rng(0).permutation(len(mixture))
    one, other = (TrainingSet(X_null[:45], Mixture.of(rows)) for rows in (mixture, mixture[order]))
    before, after = fit_apart(one), fit_apart(other)
    assert before.selection == after.selection
    scores = one.mixture.score(before)[order], other.mixture.score(after)
    assert scores[0].tobytes() == scores[1].tobytes()
