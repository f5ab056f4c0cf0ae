"""A peer's model is no question about single rows: levels and cells hold at least k rows."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scorers import FunctionScore
from support.spikes import bin_of, flat_model, spike_model

from conovel.experiments.gaussian import gaussian_design
from conovel.models.wire import schema_digest
from conovel.rows.pairs import read_pair
from conovel.scorers.argument import as_candidates
from conovel.scorers.base import Mixture, TrainingSet
from conovel.site.common_scale import LevelledModel, fit_scale, group_starts, with_levels
from conovel.site.site import Site
from conovel.site.work import SiteWork
from conovel.spec.run_spec import RunSpec, site_seed
from conovel.spec.training import least_rows
from conovel.stats.cells import N_CELLS

OPEN = {"group_rows": 1}  # as if a site had no such walls
FIRST_COLUMN = FunctionScore(lambda X: X[:, 0])


def victim(rows, seed, regime="joint", composite="max", **walls):
    """A site of two that waits for the model of the other."""
    spec = RunSpec.of(regime=regime, composite=composite, seed=seed)
    work = SiteWork(spec, tuple(as_candidates("logistic", seed)), 2, **walls)
    site = Site(*read_pair(rows.X_null, rows.X_test, None, shares_schema=True), work)
    site.models(0, ["bank", "peer"], Fraction(1, 3))
    return site


def counted(rows, model, seed, **more):
    """The counts that a site sends, where a peer sent this model."""
    site = victim(rows, seed, **more)
    site.ranks({"peer": model})
    found = site.count_cells()
    return found.calibration, found.tests


def drawn(seed, n_null, n_test, *, is_present):
    """Rows of one site and a person, who is one of the test rows or nowhere."""
    sizes = {"n_agents": 1, "n_null": n_null, "n_test": n_test, "null_share": 1.0}
    (rows,) = gaussian_design(0.0, seed, **sizes)
    person = np.random.default_rng([seed, 1]).normal(size=rows.X_test.shape[1])
    if is_present:
        rows.X_test[0] = person
    return rows, person


def highest_alone(counts):
    """Say whether one row is by itself in the highest cell with rows, far above the next ones."""
    both = counts[0] + counts[1]
    first, second = np.flatnonzero(both)[::-1][:2]
    return bool(both[first] == 1 and first - second > 8)


@pytest.mark.parametrize(("n_null", "n_test"), [(1000, 333), (333, 111)])
def test_a_model_that_is_high_at_one_person_alone_finds_nobody(n_null, n_test):
    """The attack finds everybody without the walls, and changes no count with them."""
    schema = schema_digest(tuple(map(str, range(20))), 4)
    found = {"open": [], "walls": []}
    n_people = 5
    for seed in range(n_people):
        for is_present in (True, False):
            rows, person = drawn(seed, n_null, n_test, is_present=is_present)
            model, flat = spike_model(person, schema, top=[1.0] * 8), flat_model(20, schema)
            found["open"].append(highest_alone(counted(rows, model, seed, **OPEN)))
            asked, unasked = (counted(rows, one, seed) for one in (model, flat))
            found["walls"].append(highest_alone(asked))
            for counts, others in zip(asked, unasked, strict=True):
                assert np.array_equal(counts, others)  # the model says nothing at all
            both = asked[0] + asked[1]
            assert both[both > 0].min() >= least_rows(n_null + n_test)
    assert found["open"] == [True, False] * n_people
    assert not any(found["walls"])


def test_the_secret_column_is_read_without_the_walls():
    """What the walls are for: the cell of the person tells the bin of its secret."""
    schema = schema_digest(tuple(map(str, range(20))), 4)
    cells = {}
    for secret in np.arange(-1.75, 2, 0.5):
        rows, person = drawn(0, 1000, 333, is_present=False)
        person[-1] = secret
        rows.X_test[0] = person
        both = sum(counted(rows, spike_model(person, schema), 0, **OPEN))
        cells[bin_of(secret)] = int(np.flatnonzero(both)[-1])
    assert list(cells) == list(range(8))
    assert list(cells.values()) == sorted(set(cells.values()))  # another cell for each bin


@pytest.mark.parametrize("composite", ["max", "mean", "stacked", "auto"])
@pytest.mark.parametrize("regime", ["joint", "full"])
def test_a_spike_changes_no_count_in_any_composite(regime, composite):
    rows, person = drawn(3, 333, 111, is_present=True)
    schema = schema_digest(tuple(map(str, range(20))), 4)
    sites = [victim(rows, 3, regime, composite) for _ in range(2)]
    for site, model in zip(
        sites, (spike_model(person, schema), flat_model(20, schema)), strict=True
    ):
        site.ranks({"peer": model})
    assert np.array_equal(sites[0].scores, sites[1].scores)
    assert np.array_equal(sites[0].calibration_scores, sites[1].calibration_scores)


def test_two_runs_are_not_compared():
    """A model, and the same with a spike: counts of two runs differ, whoever is in the rows."""
    schema = schema_digest(tuple(map(str, range(20))), 4)
    changed = {"same seed": [], "own seeds": []}
    for number in range(6):
        for is_present in (True, False):
            rows, person = drawn(number, 333, 111, is_present=is_present)
            models = flat_model(20, schema), spike_model(person, schema, top=[1.0] * 8)
            for how, ids in (("same seed", "11"), ("own seeds", "12")):
                seeds = [site_seed(bytes(32), 0, "bank", run_id) for run_id in ids]
                first, second = (
                    sum(counted(rows, model, seed, **OPEN))
                    for model, seed in zip(models, seeds, strict=True)
                )
                changed[how].append(not np.array_equal(first, second))
    assert changed == {"same seed": [True, False] * 6, "own seeds": [True, True] * 6}


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=60),
    st.integers(1, 7),
)
def test_groups_hold_enough_rows_and_equal_scores_stay_together(scores, least):
    ascending = np.sort(np.array(scores))
    starts = group_starts(ascending, least)
    parts = np.split(ascending, starts[1:])
    assert starts[0] == 0
    assert len(parts) == 1 or min(map(len, parts)) >= least
    ends = [(part[0], part[-1]) for part in parts]
    assert all(low[1] < high[0] for low, high in itertools.pairwise(ends))


@given(
    st.lists(st.integers(-300, 300), min_size=2, max_size=80),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_levels_keep_the_order_and_know_no_roles(values, least, random):
    rows = np.array(values, dtype=float)[:, np.newaxis] / 7
    mixture = Mixture.of(rows)
    model = with_levels(FIRST_COLUMN, mixture, least)
    scores = model.score(rows)
    order = np.argsort(rows[:, 0], kind="stable")
    assert (np.diff(scores[order]) >= 0).all()
    if least > 1 and len(values) >= least:
        assert np.unique(scores, return_counts=True)[1].min() >= least
    shuffled = list(range(len(values)))
    random.shuffle(shuffled)
    again = with_levels(FIRST_COLUMN, Mixture.of(rows[shuffled]), least)
    assert np.array_equal(again.score(rows), scores)  # calibration rows may be any of them


def test_a_model_of_few_levels_stays_as_it_is():
    rows = np.repeat([[0.0], [1.0], [2.0]], 6, axis=0)
    model = with_levels(FIRST_COLUMN, Mixture.of(rows), 5)
    assert np.array_equal(model.score(rows), rows[:, 0])
    assert with_levels(FIRST_COLUMN, Mixture.of(rows), 1) is FIRST_COLUMN
    assert isinstance(model, LevelledModel)


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_cells_hold_no_row_or_enough_and_know_no_roles(seed, least):
    rng = np.random.default_rng(seed)
    normal, mixture = rng.normal(size=(60, 1)), rng.standard_t(2, size=(70, 1))
    training = TrainingSet(normal, Mixture.of(mixture))
    scale = fit_scale(FIRST_COLUMN, training, least)
    cells = scale.cells(mixture[:, 0])
    counts = np.bincount(cells, minlength=N_CELLS)
    assert counts[counts > 0].min() >= least
    order = np.argsort(mixture[:, 0])
    assert (np.diff(cells[order]) >= 0).all()
    shuffled = TrainingSet(normal, Mixture.of(rng.permutation(mixture)))
    again = fit_scale(FIRST_COLUMN, shuffled, least)
    assert np.array_equal(again.edges, scale.edges)
    assert again.likely == scale.likely
