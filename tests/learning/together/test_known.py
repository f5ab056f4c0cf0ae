"""Known novelties of one agent reach all through sums, and count only where rows are like them."""

import numpy as np
import pytest

from conovel.learning.together.known import KnownPart, part_weight
from conovel.learning.together.learner import Learner, learn
from conovel.learning.together.rounds import AgentRows, Settings, half_of, sum_of

SMALL = Settings(n_trees=10, n_plain_trees=5, depth=4, least=3, n_known_trees=12, known_depth=4)
TO = np.array([3.0, 3.0, 0.0, 0.0])


def rows_of(n_agents, seed, n_novel=6, at=TO):
    rng = np.random.default_rng(seed)
    agents = []
    for _ in range(n_agents):
        mixture = rng.standard_t(5, (120, 4))
        mixture[:n_novel] += at
        agents.append((rng.standard_t(5, (80, 4)), mixture))
    return agents


def drawn_known(seed, n=20, at=TO):
    return np.random.default_rng([seed, 1]).standard_t(5, (n, 4)) + at


def with_known(pairs, known_rows, whose=0):
    return [AgentRows(*pair, known_rows if j == whose else None) for j, pair in enumerate(pairs)]


def learnt_by(agents, settings=SMALL):
    learner = learn(agents, 7, settings)
    scores = [learner.score(one.mixture, one.centre) for one in agents]
    return learner, scores


def test_rows_like_known_novelties_score_higher_at_agents_that_know_none():
    pairs, known_rows = rows_of(5, 1), drawn_known(1)
    _, without = learnt_by([AgentRows(*pair) for pair in pairs])
    learner, scores = learnt_by(with_known(pairs, known_rows))
    assert learner.known_part is not None
    assert learner._units[-1][2] > 0.5

    def places(some):
        return np.mean([np.argsort(np.argsort(-one))[:6].mean() for one in some[1:]])

    assert places(scores) < places(without)


def test_known_novelties_of_another_kind_change_no_bit():
    pairs, known_rows = rows_of(5, 2), drawn_known(2, at=-TO * 4)
    _, without = learnt_by([AgentRows(*pair) for pair in pairs])
    learner, scores = learnt_by(with_known(pairs, known_rows))
    assert learner.known_part is not None
    assert learner._units[-1][2] == 0
    for one, other in zip(without, scores, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("n_known", [0, 1, SMALL.least - 1])
def test_fewer_known_novelties_than_a_leaf_holds_are_not_learnt_from(n_known):
    pairs = rows_of(3, 3)
    plain, without = learnt_by([AgentRows(*pair) for pair in pairs])
    learner, scores = learnt_by(with_known(pairs, drawn_known(3, n_known)))
    assert learner.known_part is None
    assert learner.n_rounds == plain.n_rounds
    assert all(map(np.array_equal, without, scores))


def test_it_does_not_matter_whose_they_are_in_which_order_or_how_they_are_divided():
    """Where centres of agents are alike: known novelties are placed as rows of their agent."""
    pairs, known_rows = rows_of(4, 4), drawn_known(4)
    shuffled = np.random.default_rng(0).permutation(known_rows)
    divided = [
        AgentRows(*pair, part)
        for pair, part in zip(pairs, np.array_split(shuffled, 4), strict=True)
    ]
    states = []
    for agents in (with_known(pairs, known_rows), with_known(pairs, shuffled, 3), divided):
        learner, _ = learnt_by(agents)
        forest = learner.known_part.forest
        states.append([forest.column.tobytes(), forest.cut.tobytes(), forest.value.tobytes()])
        states[-1].append(learner.edges.tobytes())
    assert states[0] == states[1] == states[2]


def test_the_order_of_a_mixture_changes_no_score():
    pairs, known_rows = rows_of(3, 5), drawn_known(5)
    order = np.random.default_rng(1).permutation(120)
    moved = [(null, mixture[order]) for null, mixture in pairs]
    _, scores = learnt_by(with_known(pairs, known_rows))
    _, permuted = learnt_by(with_known(moved, known_rows))
    for one, other in zip(scores, permuted, strict=True):
        assert one[order].tobytes() == other.tobytes()


def test_half_is_held_back_by_content():
    rows = np.random.default_rng(6).normal(size=(400, 3))
    assert 150 < half_of(rows).sum() < 250
    order = np.random.default_rng(7).permutation(400)
    assert (half_of(rows)[order] == half_of(rows[order])).all()
    assert half_of(np.ones((10, 2))).sum() == 5


@pytest.mark.parametrize(
    ("place", "change"),
    [(2, 10_000), (3, 1 << 40), (2, 1), (3, 1)],
    ids=["more held back than there are", "too many", "held back changes", "known changes"],
)
def test_numbers_of_known_novelties_that_cannot_be_are_refused(place, change):
    agents = with_known(rows_of(2, 8), drawn_known(8))
    learner = Learner(4, 2, 7, SMALL)
    if change == 1:  # after the first round
        learner.take(sum_of([learner.answer(one) for one in agents]))
    totals = sum_of([learner.answer(one) for one in agents])
    totals[place] += change
    with pytest.raises(ValueError, match=r"rows|known novelties"):
        learner.take(totals)


def test_counts_of_the_comparison_are_of_all_rows():
    agents = with_known(rows_of(2, 9), drawn_known(9))
    learner = Learner(4, 2, 7, SMALL)
    while learner.n_numbers != 4096:
        learner.take(sum_of([learner.answer(one) for one in agents]))
    totals = sum_of([learner.answer(one) for one in agents])
    held = sum(int(one.is_held.sum()) for one in agents)
    assert [int(part.sum()) for part in np.split(totals, 4)] == [160, 240, held, 240]
    totals[0] += 1
    with pytest.raises(ValueError, match="counted once"):
        learner.take(totals)


def test_the_weight_of_a_part_follows_its_share():
    assert part_weight(0.0) == 0
    assert part_weight(0.5) == pytest.approx(1.5)
    assert part_weight(0.99) == 6.0


def test_leaves_hold_as_many_rows_as_those_of_other_trees():
    """Known novelties are rows: no side of a split holds fewer rows than agreed."""
    agents = with_known(rows_of(3, 10), drawn_known(10, 40))
    learner, _ = learnt_by(agents)
    assert isinstance(learner.known_part, KnownPart)
    counts = learner.known_part.forest.counts.sum(axis=2)
    used = counts[counts > 0]
    assert used.min() >= SMALL.least
