"""One scale for the rows of all agents: cells from sums, and how much the own score counts."""

from types import SimpleNamespace

import numpy as np
import pytest

from conovel.learning.together.scale import (
    N_NARROW,
    OwnScore,
    edges_from,
    likely_from,
    narrow_cells,
    own_weight,
)
from conovel.scorers.base import FittedScorer, Mixture, TrainingSet
from conovel.stats.cells import N_CELLS


def counts_of(scores):
    return np.bincount(narrow_cells(np.asarray(scores)), minlength=N_NARROW)


def test_edges_are_as_many_as_cells_need_and_ascend():
    rng = np.random.default_rng(0)
    for n in (1, 5, 300, 20_000):
        edges = edges_from(counts_of(rng.normal(size=n)))
        assert edges.shape == (N_CELLS - 1,)
        assert np.all(edges[1:] >= edges[:-1])
        finite = edges[np.isfinite(edges)]
        assert np.all(np.diff(finite) > 0)


def test_no_cell_among_the_highest_rows_holds_many_of_them():
    """Between two edges lie a few percent of the rows above, where narrow cells allow it."""
    rng = np.random.default_rng(1)
    scores = np.sort(rng.normal(0, 2, 3000))[::-1]
    edges = edges_from(counts_of(scores))
    above = np.array([np.count_nonzero(scores >= edge) for edge in edges[np.isfinite(edges)]])
    high = above[above <= 600]
    steps = high[:-1] / high[1:]
    assert high.size > 80
    assert np.median(steps[high[1:] > 30]) < 1.06


def test_scores_beyond_the_narrow_cells_are_in_the_last_ones():
    assert narrow_cells(np.array([-1e300, -9.0, 24.0, 1e300])).tolist() == [
        0,
        0,
        N_NARROW - 1,
        N_NARROW - 1,
    ]


def test_likely_novelties_are_three_spreads_above_the_middle():
    rng = np.random.default_rng(2)
    normal = rng.normal(size=50_000)
    mixture = np.concatenate([rng.normal(size=49_000), rng.normal(8, 1, 1_000)])
    assert likely_from(counts_of(normal), counts_of(mixture)) == pytest.approx(3.15, abs=0.1)
    skewed = np.maximum(mixture, 3 * mixture)  # the upper half is three times as wide
    assert likely_from(counts_of(normal), counts_of(skewed)) > 9


@pytest.mark.parametrize(
    ("n_rows", "between", "weight"),
    [(200, 9.0, 0.0), (600, 9.0, 0.5), (600, 1.0, 0.25), (5000, 0.0, 0.0), (5000, 0.1, 0.0)],
)
def test_the_own_weight_follows_from_rows_and_differences(n_rows, between, weight):
    assert own_weight(n_rows, between) == pytest.approx(weight)


def test_the_own_score_has_standard_units_of_the_mixture():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(200, 2))
    training = TrainingSet(rng.normal(size=(50, 2)), Mixture.of(rows))
    fitted = FittedScorer(SimpleNamespace(label="own"), lambda X: 5 * X[:, 0] + 7, "ordinal")
    own = OwnScore.of(fitted, 0.5, training)
    scores = own.score(rows)
    assert np.median(scores) == pytest.approx(0)
    assert scores.std() == pytest.approx(0.5)
    shuffled = TrainingSet(training.null_train, Mixture.of(rng.permutation(rows)))
    assert OwnScore.of(fitted, 0.5, shuffled).score(rows).tobytes() == scores.tobytes()


def test_a_constant_own_score_adds_nothing():
    training = TrainingSet(np.zeros((5, 1)), Mixture.of(np.arange(6.0)[:, np.newaxis]))
    own = OwnScore.of(
        FittedScorer(SimpleNamespace(label="own"), lambda X: np.ones(len(X)), "ordinal"),
        1.0,
        training,
    )
    assert own.score(np.zeros((3, 1))).tolist() == [0.0, 0.0, 0.0]
