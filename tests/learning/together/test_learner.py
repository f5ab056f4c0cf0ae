"""One score from sums: the same bits however the rows are divided, and whatever their order."""

import numpy as np
import pytest

from conovel.learning.together import bins
from conovel.learning.together.forest import Forest
from conovel.learning.together.learner import Learner, learn
from conovel.learning.together.rounds import AgentRows, Settings, sum_of
from conovel.spec.fields import MAX_MODEL_BYTES

SMALL = Settings(n_trees=12, n_plain_trees=6, depth=5, least=3)


def rows_of(n_agents, seed, n_null=24, n_mixture=30, n_columns=4):
    """Draw agents with heavy tails, zeros, equal rows and a column that never varies."""
    rng = np.random.default_rng(seed)
    agents = []
    for j in range(n_agents):
        null = rng.normal(0.3 * j, 1, (n_null, n_columns))
        mixture = rng.normal(0.3 * j, 1, (n_mixture, n_columns))
        mixture[:3] += 4
        for some in (null, mixture):
            some[:, 1] = np.round(np.exp(6 * some[:, 1]), 1)
            some[:, 2] = np.where(rng.random(len(some)) < 0.6, 0.0, some[:, 2])
            some[:, 3] = 7.0
        mixture[5] = mixture[6]
        agents.append((null, mixture))
    return agents


def state(learner):
    """Return everything that the score is made of, as bytes."""
    parts = [learner.edges, np.array(learner.likely)]
    for forest in learner.forests:
        parts += [forest.column, forest.cut, forest.left, forest.value]
    parts += [one.edges for one in learner.bins]
    parts += [np.array([one.centre, one.unit]) for one in learner.bins]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


class Pooled:
    """All agents' rows in one place: what the same code learns from the rows themselves."""

    def __init__(self, agents):
        self.agents = [AgentRows(*pair) for pair in agents]

    def answer(self, learner):
        return sum_of([learner.answer(rows) for rows in self.agents])


@pytest.mark.parametrize("n_agents", [1, 3, 30])
def test_the_score_follows_from_the_sums_however_they_are_added(n_agents):
    agents = rows_of(n_agents, 1)
    together = learn([AgentRows(*pair) for pair in agents], 5, SMALL)
    pooled = Learner(4, n_agents, 5, SMALL)
    everybody = Pooled(agents)
    while not pooled.is_done:
        pooled.take(everybody.answer(pooled))
    assert state(together) == state(pooled)


def test_bins_of_divided_rows_are_those_of_one_agent():
    agents = rows_of(6, 2)
    one = [tuple(np.vstack(kind) for kind in zip(*agents, strict=True))]
    divided, whole = (
        learn([AgentRows(*pair) for pair in some], 5, SMALL) for some in (agents, one)
    )
    for a, b in zip(divided.bins, whole.bins, strict=True):
        assert a.edges.tobytes() == b.edges.tobytes()
        assert (a.centre, a.unit) == (b.centre, b.unit)


def test_the_order_of_rows_and_agents_does_not_matter():
    agents = rows_of(3, 3)
    rng = np.random.default_rng(0)
    shuffled = [tuple(rng.permutation(some) for some in pair) for pair in agents]
    learnt = [learn([AgentRows(*p) for p in some], 9, SMALL) for some in (agents, shuffled[::-1])]
    assert state(learnt[0]) == state(learnt[1])


def test_permuting_the_mixture_permutes_the_scores():
    agents = rows_of(3, 4)
    order = np.random.default_rng(1).permutation(30)
    swapped = [
        (null, mixture[order] if j == 1 else mixture) for j, (null, mixture) in enumerate(agents)
    ]
    scores = []
    for some in (agents, swapped):
        rows = [AgentRows(*pair) for pair in some]
        learner = learn(rows, 2, SMALL)
        scores.append(learner.score(rows[1].mixture, rows[1].centre))
    assert scores[0][order].tobytes() == scores[1].tobytes()
    assert scores[0][5] == scores[0][6]


def test_a_row_that_is_far_from_all_normals_scores_highest():
    agents = rows_of(5, 6)
    rows = [AgentRows(*pair) for pair in agents]
    learner = learn(rows, 0, SMALL)
    places = [learner.score(one.mixture, one.centre).argsort()[::-1].argsort()[:3] for one in rows]
    assert np.median(np.concatenate(places)) < 5


def test_other_seeds_draw_other_trees():
    agents = rows_of(2, 7)
    a, b = (learn([AgentRows(*pair) for pair in agents], seed, SMALL) for seed in (1, 2))
    assert state(a) != state(b)


def test_an_agent_without_rows_of_a_kind_changes_nothing():
    agents = rows_of(2, 8)
    empty = (np.zeros((0, 4)), np.zeros((0, 4)))
    learner = learn([AgentRows(*pair) for pair in [*agents, empty]], 3, SMALL)
    assert learner.is_done
    assert np.isfinite(learner.score(agents[0][1], AgentRowsCentre(learner, agents[0][0]))).all()


def AgentRowsCentre(learner, null):
    """Return the centre of an agent's normals, as its rounds computed it."""
    standard = learner.standard(null)
    return learner.centres.of_agent(standard.sum(axis=0), len(standard))


def test_keys_have_the_order_of_the_values():
    rng = np.random.default_rng(0)
    values = np.sort(
        np.concatenate([rng.normal(0, 10.0 ** rng.integers(-300, 300, 500)), [0.0, -0.0]])
    )
    keys = bins.keys_of(values)
    assert np.all(np.diff(keys.astype(object)) >= 0)
    assert bins.values_of(keys).tolist() == (values + 0.0).tolist()


def test_no_bin_holds_fewer_rows_than_allowed():
    rng = np.random.default_rng(3)
    null, mixture = rng.lognormal(0, 4, (400, 1)), rng.lognormal(0, 4, (300, 1))
    learner = learn([AgentRows(null, mixture)], 0, Settings(n_trees=4, depth=2, least=7))
    codes = learner.bins[0].codes(bins.keys_of(np.vstack([null, mixture])[:, 0]))
    assert np.bincount(codes).min() >= 7
    assert learner.bins[0].edges.size > 30


@pytest.mark.parametrize(("n_rows", "is_divided"), [(9, False), (10, True)])
def test_an_interval_is_divided_while_it_holds_the_rows_of_two_bins(n_rows, is_divided):
    """Its ends stay: otherwise it would join its neighbours, and be divided elsewhere."""
    cuts = bins.keys_of(np.array([0.0, 1.0, 2.0, 3.0]))
    after = bins.refined(cuts, np.array([0, 0, n_rows, 0, 0]), least=5)
    assert set(cuts[1:3]) <= set(after)
    assert after.size == 2 + 7 * is_divided


def test_leaves_hold_at_least_the_agreed_number_of_rows():
    agents = rows_of(3, 9)
    learner = learn([AgentRows(*pair) for pair in agents], 0, SMALL)
    assert len(learner.forests) == 2  # heavy tails: a second forest without discriminants
    for forest in learner.forests:
        sizes = forest.counts.sum(axis=2)
        assert sizes[sizes > 0].min() >= SMALL.least
        assert (forest.column >= 0).sum() > 50
    assert learner.forests[0].column.max() >= 2 * 4  # columns, relative ones, discriminants
    assert learner.forests[1].column.max() < 2 * 4


@pytest.mark.parametrize("share", [0.3, 0.9, 1.0])
@pytest.mark.filterwarnings("error")
def test_the_largest_number_has_a_place_in_standard_units(share):
    """Its interval ends beyond infinity. Sites refuse such rows, but totals may tell of them."""
    largest = np.finfo(np.float64).max
    agents = rows_of(2, 10)
    rng = np.random.default_rng(0)
    for some in (some for pair in agents for some in pair):
        some[rng.random(len(some)) < share, 0] = largest
    learner = learn([AgentRows(*pair) for pair in agents], 0, SMALL)
    assert all(np.isfinite([one.centre, one.unit]).all() for one in learner.bins)


def more_rows(totals):
    totals[-1] += 1


def all_rows_gone(totals):
    totals[:] = 0


def wrapped(totals):
    """Numbers that add up to the right ones modulo 2^64 only."""
    totals[-4:] += 1 << 62


def exchanged(totals):
    totals[:2] = totals[1::-1].copy()


@pytest.mark.parametrize("change", [more_rows, all_rows_gone, wrapped])
@pytest.mark.parametrize("number", [0, 3, 7, 10])  # three rounds of bins, and one of cells
def test_rows_that_appear_or_vanish_are_refused(change, number):
    assert_refused(change, lambda learner: learner.n_rounds == number)


@pytest.mark.parametrize("number", [3, 7, 8])
def test_other_numbers_of_rows_than_before_are_refused(number):
    assert_refused(exchanged, lambda learner: learner.n_rounds == number)


def test_products_of_other_rows_are_refused():
    assert_refused(all_rows_gone, lambda learner: learner.n_rounds == 9)


def test_a_side_of_a_split_with_more_rows_than_its_node_is_refused():
    """Otherwise shares are below 0 or above 1, and scores are no numbers."""
    assert_refused(wrapped, lambda learner: learner.forests and learner.forests[0].level == 1)


@pytest.mark.parametrize("number", [0, 1, -1])
def test_spreads_that_no_log_odds_have_are_refused(number):
    def change(totals):
        totals[number] = -(1 << 62)

    assert_refused(change, lambda learner: grown(learner) and not learner.is_scaled)


def grown(learner):
    return learner.forests and all(forest.is_grown for forest in learner.forests)


@pytest.mark.parametrize("change", [more_rows, all_rows_gone, wrapped])
def test_scores_of_other_rows_are_refused(change):
    assert_refused(change, lambda learner: learner.is_scaled)


def assert_refused(change, is_now):
    rows = [AgentRows(*pair) for pair in rows_of(2, 11)]
    learner = Learner(4, 2, 0, SMALL)
    while not is_now(learner):
        learner.take(sum_of([learner.answer(one) for one in rows]))
    totals = sum_of([learner.answer(one) for one in rows])
    change(totals)
    with pytest.raises(ValueError, match="rows"):
        learner.take(totals)


def test_the_counts_of_the_widest_tables_fit_in_a_message():
    size, tree = Settings(), Forest((2,) * 2000, np.ones(2000), 1, 8, 5, 0)
    most_nodes = (size.n_trees + size.n_plain_trees) * 2 ** (size.depth - 1)
    assert most_nodes * 2 * tree.n_tried * 2 * 8 <= MAX_MODEL_BYTES


def test_gaussian_normals_need_no_trees_without_discriminants():
    rng = np.random.default_rng(0)
    agents = [AgentRows(rng.normal(size=(300, 5)), rng.normal(size=(200, 5))) for _ in range(3)]
    assert len(learn(agents, 0, SMALL).forests) == 1
    heavy = [AgentRows(np.exp(one.null_train), np.exp(one.mixture)) for one in agents]
    assert len(learn(heavy, 0, SMALL).forests) == 2


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_the_own_score_counts_where_normals_of_agents_differ(shift):
    rng = np.random.default_rng(1)
    agents = [
        AgentRows(*(rng.normal(shift * (j == column), 1, (n, 5)) for n in (400, 600)))
        for j, column in enumerate([0, 0, 9])
    ]
    if shift:
        agents[0] = AgentRows(agents[0].null_train + shift, agents[0].mixture + shift)
    learner = learn(agents, 0, SMALL)
    assert learner.own_weight(1000) == (1.0 if shift else 0.0)
    assert learner.own_weight(150) == 0.0
    assert learner.own_weight(600) == (0.5 if shift else 0.0)


def test_a_single_agent_trusts_its_own_score():
    [pair] = rows_of(1, 12)
    assert learn([AgentRows(*pair)], 0, SMALL).own_weight(1000) == 1.0


@pytest.mark.parametrize("n_columns", [bins.MOST_FINE, bins.MOST_COLUMNS])
def test_counts_of_many_columns_fit_in_a_message(n_columns):
    """Whatever the rows are: every wanted quantile may lie in an interval of its own."""
    is_fine = n_columns <= bins.MOST_FINE
    values = np.sort(np.random.default_rng(0).lognormal(0, 8, 200_000))
    keys, cuts, most = bins.keys_of(values), bins.first_cuts(), 0
    for _ in range(bins.N_ROUNDS):
        counts = bins.counts_between(cuts, keys)
        most = max(most, counts.size)
        cuts = bins.refined(cuts, counts, 5, is_fine=is_fine)
    assert (2 + n_columns * most) * 8 <= MAX_MODEL_BYTES
    assert most > 100
