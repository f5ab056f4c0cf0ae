"""The common scale: comparable between agents, in the order of the score, blind to roles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scorers import FunctionScore

from conovel.models.linear import expit
from conovel.scorers.base import Mixture, TrainingSet
from conovel.site.common_scale import fit_scale
from conovel.stats.cells import N_CELLS

FIRST_COLUMN = FunctionScore(lambda rows: rows[:, 0])


def scale_of(scores, known):
    rows, null_train = (np.asarray(some, dtype=float)[:, np.newaxis] for some in (scores, known))
    return fit_scale(FIRST_COLUMN, TrainingSet(null_train, Mixture.of(rows)))


def drawn(n_null, n_mixture, n_novel, seed, distance=6.0):
    rng = np.random.default_rng(seed)
    mixture = rng.normal(size=n_mixture)
    mixture[:n_novel] += distance
    return mixture, rng.normal(size=n_null)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(0, 20))
def test_cells_are_in_the_order_of_the_score(seed, size, n_novel):
    mixture, known = drawn(size, size, min(n_novel, size), seed)
    for some, others in ((mixture, known), (expit(mixture), expit(known))):
        cells = scale_of(some, others).cells(np.sort(some))
        assert np.all(np.diff(cells) >= 0)
        assert 0 <= cells.min() <= cells.max() < N_CELLS


def test_the_unit_and_the_origin_of_a_score_do_not_matter():
    mixture, known = drawn(100, 200, 15, seed=0)
    cells = scale_of(mixture, known).cells(mixture)
    stretched = scale_of(8 * mixture - 64, 8 * known - 64)  # powers of two: no rounding
    assert np.abs(stretched.cells(8 * mixture - 64) - cells).max() <= 1
    assert len(np.unique(cells)) > 20


@pytest.mark.parametrize("n_null", [30, 300])
def test_an_agent_without_novelties_has_few_likely_ones(n_null):
    shares = [
        np.mean(scale.cells(mixture) >= scale.likely)
        for mixture, known in (drawn(n_null, 60, 0, seed) for seed in range(50))
        for scale in [scale_of(mixture, known)]
    ]
    assert np.mean(shares) < 0.005


@pytest.mark.parametrize("n_novel", [3, 10, 20, 60])
def test_few_and_many_novelties_stand_out(n_novel):
    mixture, known = drawn(100, 200, n_novel, seed=1, distance=8.0)
    scale = scale_of(mixture, known)
    likely = scale.cells(mixture) >= scale.likely
    assert likely[:n_novel].all()
    assert likely[n_novel:].sum() <= 2


def test_agents_with_other_tails_are_compared_by_odds():
    """The same limit on the scale lets in about the same share of normal rows."""
    mixture, known = drawn(400, 4000, 0, seed=2)
    heavy_mixture, heavy_known = (np.sinh(1.2 * some) for some in (mixture, known))
    light, heavy = (
        scale_of(*pair).cells(pair[0]) for pair in ((mixture, known), (heavy_mixture, heavy_known))
    )
    limits = np.quantile(light, [0.98, 0.99, 0.999])
    shares = np.array([[np.mean(cells >= limit) for limit in limits] for cells in (light, heavy)])
    assert (shares[1] < 2 * shares[0] + 0.005).all()


def test_an_agent_with_heavy_tails_has_no_likely_novelties_for_that():
    """A score that was learnt from few novelties: some normal rows score far out."""
    rng = np.random.default_rng(5)
    mixture, known = (np.sinh(1.5 * rng.normal(size=n)) for n in (800, 500))
    scale = scale_of(mixture, known)
    assert np.mean(scale.cells(mixture) >= scale.likely) < 0.03


def test_equal_scores_share_a_cell():
    scale = scale_of(np.zeros(20), np.zeros(9))
    assert np.all(np.isfinite(scale.edges))
    assert set(scale.cells(np.zeros(3)).tolist()) == {0}


@pytest.mark.parametrize("seed", range(3))
def test_which_mixture_rows_calibrate_does_not_matter(seed):
    mixture, known = drawn(50, 90, 6, seed)
    mixture[:5] = mixture[10]  # equal rows too
    order = np.random.default_rng(seed).permutation(mixture.size)
    first, second = scale_of(mixture, known), scale_of(mixture[order], known)
    assert first.edges.tobytes() == second.edges.tobytes()
