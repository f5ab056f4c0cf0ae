"""Bounds of what is sent: no single row decides them, and nothing beyond them is learnt."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier

import conovel as cn
from conovel.scorers.argument import as_candidates
from conovel.scorers.base import Mixture, TrainingSet, fit_best
from conovel.scorers.estimators import as_scorer
from conovel.site.sent.compact import REACH, Ranges, _grow, find_bounds, public_ranges
from conovel.site.sent.surrogate import make_surrogate
from conovel.spec.schema import Schema
from conovel.spec.training import LEAST_ROWS, LEAST_ROWS_OF_FEW

LINEAR = as_scorer(LinearDiscriminantAnalysis())  # has no flat form
TREES = as_scorer(ExtraTreesClassifier(20, max_depth=4, random_state=0))


def drawn(seed=0, n=300, d=4):
    rng = np.random.default_rng(seed)
    train, mixture = rng.normal(size=(n, d)), rng.normal(size=(n, d))
    mixture[: n // 10] += 2.5
    return train, mixture


@given(
    st.integers(0, 2**32 - 1),
    st.integers(20, 400),
    st.floats(-1e9, 1e9),
    st.integers(0, 3),
)
@settings(max_examples=40)
def test_one_row_moves_a_bound_no_further_than_a_neighbouring_row(seed, n, value, column):
    rows = np.random.default_rng(seed).standard_t(3, size=(n, 4))
    outlying = rows.copy()
    outlying[0, column] = value
    ordered = np.sort(rows[:, column])
    before, after = find_bounds(rows), find_bounds(outlying)
    # The quantiles have at least five rows beyond, so a row moves them within inner rows.
    k = 4
    reach = REACH / 0.67  # the largest factor, that of quartiles
    inner = ordered[-k] - ordered[k - 1]
    for bounds in (before, after):
        assert bounds.high[column] <= np.median(ordered) + reach * inner
        assert bounds.low[column] >= np.median(ordered) - reach * inner


def test_gaussian_columns_reach_four_standard_deviations():
    bounds = find_bounds(np.random.default_rng(0).normal(3, 2, size=(100_000, 2)))
    np.testing.assert_allclose(bounds.low, 3 - 2 * REACH, atol=0.2)
    np.testing.assert_allclose(bounds.high, 3 + 2 * REACH, atol=0.2)


def test_columns_without_width_get_some():
    rows = np.column_stack([np.zeros(50), np.full(50, 7.5), np.r_[np.zeros(49), 1.0]])
    bounds = find_bounds(rows)
    assert bounds.low.tolist() == [-1.0, 0.0, -1.0]
    assert bounds.high.tolist() == [1.0, 15.0, 1.0]


def test_bounds_of_whole_numbers_are_whole():
    rows = np.random.default_rng(0).poisson(3, size=(200, 1)).astype(float)
    bounds = find_bounds(rows)
    assert bounds.low[0] == np.floor(bounds.low[0])
    assert bounds.high[0] == np.ceil(bounds.high[0])


def test_agreed_ranges_are_taken_and_others_are_not_known():
    columns = {"age": {"kind": "number", "low": 0, "high": 120}, "x": "number", "ill": "boolean"}
    ranges = public_ranges(Schema.from_dict(columns), 3)
    bounds = find_bounds(np.random.default_rng(0).normal(40, 5, size=(100, 3)), ranges)
    assert (bounds.low[0], bounds.high[0]) == (0.0, 120.0)
    assert (bounds.low[2], bounds.high[2]) == (0.0, 1.0)
    assert 40 < bounds.high[1] < 70


@pytest.mark.parametrize("role", ["trains", "is tested"])
@pytest.mark.parametrize("agreed", [False, True])
def test_an_outlying_row_is_not_in_the_grids(role, agreed):
    train, mixture = drawn()
    ranges = Ranges(np.full(4, -6.0), np.full(4, 6.0)) if agreed else None
    grids = []
    for value in (1.0, 1e9):
        rows, tests = train.copy(), mixture.copy()
        (rows if role == "trains" else tests)[5] = value
        training = TrainingSet(rows, Mixture.of(tests))
        blob = make_surrogate(
            "compact",
            TREES.fit(training),
            training,
            0,
            candidates=[TREES],
            bounds=find_bounds(rows, ranges),
        )
        found = cn.decode(blob).grids.thresholds
        grids.append({f: (g.values()[0], g.values()[-1]) for f, g in found.items()})
    for f in set(grids[0]) & set(grids[1]):
        np.testing.assert_allclose(grids[0][f], grids[1][f], atol=0.8)
        assert max(np.abs(grids[1][f])) < 8


@pytest.mark.parametrize("bits", [4, "compact"])
def test_what_imitates_learns_from_clipped_rows_alone(bits, monkeypatch):
    train, mixture = drawn()
    seen = []

    train[3], mixture[3] = 50.0, -50.0
    training = TrainingSet(train, Mixture.of(mixture))
    local = LINEAR.fit(training)
    assert local.flat is None
    bounds = find_bounds(train)
    real = type(LINEAR).fit
    monkeypatch.setattr(type(LINEAR), "fit", lambda self, t: (seen.append(t), real(self, t))[1])
    make_surrogate(bits, local, training, 0, candidates=[LINEAR], bounds=bounds)
    (clipped,) = seen
    for rows in (clipped.null_train, clipped.mixture.rows):
        assert (rows >= bounds.low).all()
        assert (rows <= bounds.high).all()
    assert np.abs(training.null_train).max() == 50.0  # what ranks at the site is untouched


@pytest.mark.parametrize(("n", "least"), [(60, LEAST_ROWS_OF_FEW), (300, LEAST_ROWS)])
def test_a_leaf_is_learnt_from_several_rows_and_thresholds_lie_between_bounds(n, least):
    train, mixture = drawn(n=n)
    rows = np.concatenate([train, mixture])
    bounds = find_bounds(train)
    forest = _grow(rows, rows[:, 0] ** 2, 0, (50, 8), bounds)
    for root in forest.roots:
        assert min(leaf_counts(forest, root, bounds.clip(rows))) >= least
    split = forest.feature >= 0
    assert (forest.threshold[split] <= bounds.high[forest.feature[split]]).all()
    assert (forest.threshold[split] >= bounds.low[forest.feature[split]]).all()
    unbounded = _grow(rows, rows[:, 0] ** 2, 0, (50, 8), None)
    assert min(min(leaf_counts(unbounded, root, rows)) for root in unbounded.roots) < least


def test_thresholds_do_not_depend_on_the_extremes_of_rows():
    train, mixture = drawn(n=400)
    bounds = find_bounds(train)
    found = []
    for widest in (3.0, 3.9):  # the greatest value of each column, below the bounds
        rows = np.clip(np.concatenate([train, mixture]), -2.9, 2.9)
        rows[0] = widest
        found.append(_grow(rows, rows[:, 0] > 1, 0, (20, 2), bounds))
    np.testing.assert_array_equal(found[0].threshold, found[1].threshold)


def leaf_counts(model, node, rows):
    feature = model.feature[node]
    if feature < 0:
        return [len(rows)]
    left, first = rows[:, feature] <= model.threshold[node], model.left[node]
    return leaf_counts(model, first, rows[left]) + leaf_counts(model, first + 1, rows[~left])


@pytest.mark.parametrize("bits", ["compact", "compact:100", 4])
@pytest.mark.parametrize("scorer", ["automatic", "linear"])
def test_exchanging_calibration_and_test_rows_changes_no_byte(bits, scorer):
    train, mixture = drawn(3, n=120)
    mixture[[0, 7, 50]] *= 40  # beyond the bounds, where clipped rows become equal
    candidates = [LINEAR] if scorer == "linear" else as_candidates(None, 0)
    found = set()
    for order in (np.arange(120), np.random.default_rng(1).permutation(120)):
        training = TrainingSet(train, Mixture.of(mixture[order]))
        local = fit_best(candidates, training)
        found.add(make_surrogate(bits, local, training, 0, candidates=candidates))
    assert len(found) == 1
