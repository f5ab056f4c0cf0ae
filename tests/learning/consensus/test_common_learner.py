"""The score of `consensus`: that of pooled rows; and what agents tell of their normals."""

import numpy as np
import pytest

from conovel.learning.consensus.learner import CommonLearner, PlacedRows, distance_cells
from conovel.learning.together.learner import sum_of
from conovel.stats.cells import N_CELLS


def rows_of(seed=0, n_columns=4):
    """Normals in two places, and a mixture with some rows far away."""
    rng = np.random.default_rng(seed)
    null = rng.normal(size=(360, n_columns)) + 6.0 * (np.arange(360) % 2)[:, None]
    mixture = rng.normal(size=(300, n_columns)) + 6.0 * (np.arange(300) % 2)[:, None]
    mixture[:30, 0] -= 9
    return null, mixture


def learnt(parts, seed=3):
    agents = [
        PlacedRows(null, mixture, place=place) for place, (null, mixture) in enumerate(parts)
    ]
    learner = CommonLearner(agents[0].values.shape[1], len(agents), seed)
    while not learner.is_done:
        learner.take(sum_of([learner.answer(rows) for rows in agents]))
    return learner


def divided(n_agents, seed=0, **options):
    null, mixture = rows_of(**options)
    rng = np.random.default_rng(seed)
    places = [rng.permutation(len(rows)) % n_agents for rows in (null, mixture)]
    return [(null[places[0] == j], mixture[places[1] == j]) for j in range(n_agents)]


@pytest.mark.parametrize("n_columns", [4, 201])  # wide tables have no moments
@pytest.mark.parametrize("n_agents", [3, 30])
def test_the_score_is_that_of_pooled_rows_bit_for_bit(n_agents, n_columns):
    null, mixture = rows_of(n_columns=n_columns)
    pooled = learnt([(null, mixture)])
    for seed in (0, 1):
        learner = learnt(divided(n_agents, seed, n_columns=n_columns))
        for rows in (null, mixture):
            ours, theirs = (one.score(rows, one.centre) for one in (learner, pooled))
            assert ours.tobytes() == theirs.tobytes()
        assert (learner.floor, learner.tail) == (pooled.floor, pooled.tail)


def test_the_score_finds_what_is_far_from_all_normals():
    null, mixture = rows_of()
    learner = learnt(divided(3))
    scores = learner.score(mixture, learner.centre)
    assert scores[:30].min() > np.quantile(scores[30:], 0.9)
    cells = learner.cells(scores)
    assert np.mean(cells >= learner.floor) <= 1 / 3
    assert np.mean(learner.cells(learner.score(null, learner.centre)) >= learner.tail) <= 0.01


def apart(sizes):
    """Agents whose normals are far from one another, with so many rows of null_train."""
    rng = np.random.default_rng(5)
    return [
        (rng.normal(size=(n, 3)) + 8 * j, rng.normal(size=(40, 3)) + 8 * j)
        for j, n in enumerate(sizes)
    ]


def test_rows_are_near_the_agent_that_they_are_normal_at():
    parts = apart((200, 100, 60))
    learner = learnt(parts)
    for j, (_, mixture) in enumerate(parts):
        assert (learner.distances(mixture).argmin(axis=0) == j).all()
    near = learner.distances(parts[0][0])[0]
    assert abs(np.median(near) - 1) < 0.2  # relative to the usual distance


def test_an_agent_with_few_rows_tells_no_centre():
    learner = learnt(apart((200, 29, 30)))
    assert learner.described[:, 0].tolist() == [1, 0, 1]
    assert not learner.described[1].any()
    distances = learner.distances(np.zeros((2, 3)))
    assert np.isinf(distances[1]).all()
    assert (distance_cells(distances)[1] == N_CELLS).all()
    assert distance_cells(distances)[[0, 2]].max() < N_CELLS


def test_one_row_seldom_moves_what_is_told_of_a_centre():
    """A row of 300 moves the centre by less than it is rounded to: values beyond 8 are 8."""
    parts = apart((300, 100))
    told = learnt(parts).described
    null = parts[0][0].copy()
    null[0] += 1e6
    moved = learnt([(null, parts[0][1]), parts[1]]).described
    assert np.abs(moved - told).max() <= 1
