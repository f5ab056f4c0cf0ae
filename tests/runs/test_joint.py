"""The regime `joint` in whole runs: what it decides, whom it asks, and that the bound holds."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from support.scorers import FunctionScore

import conovel as cn
from conovel.deciding.cell_groups import Group, apart_from_group
from conovel.errors import InputError, ResolutionWarning
from conovel.protocol.replay import verify
from conovel.scorers.base import Mixture, TrainingSet
from conovel.site.common_scale import fit_scale
from conovel.spec.bodies import Ready
from conovel.stats.cells import N_CELLS, ROOMS, RoomWanted, choose_room

FIRST = FunctionScore(lambda X: X[:, 0])


def drawn(n_agents, rng, n_null=80, m=20, novel=0, shift=6.0):
    agents, truth = [], {}
    for i in range(n_agents):
        scale = 1 + i % 3
        null = rng.normal(size=(n_null, 1)) * scale
        test = rng.normal(size=(m, 1)) * scale
        test[:novel] += shift * scale
        name = f"{i:02d}"
        agents.append(cn.Agent(name, null, test))
        truth[name] = np.arange(m) < novel
    return agents, truth


def run_of(agents, **options):
    options = {"regime": "joint", "scorer": "logistic", "composite": "mean", "bits": 8} | options
    return cn.Network(agents, **options).run()


def test_many_thin_agents_find_what_none_can_find_alone():
    agents, truth = drawn(30, np.random.default_rng(0), n_null=60, m=15, novel=2)
    found = {regime: run_of(agents, regime=regime) for regime in ("full", "joint")}
    assert found["full"].n_rejected == 0
    hits = sum(int((found["joint"][n].rejected & truth[n]).sum()) for n in truth)
    assert hits >= 30
    assert verify(found["joint"].to_dict()) == []


def test_one_round_and_what_the_transcript_says():
    agents, _ = drawn(3, np.random.default_rng(1), n_null=200, m=50, novel=6)
    run = run_of(agents)
    record = run.transcript
    assert run.rounds == 1
    assert set(record.rooms.values()) <= set(ROOMS)
    kinds = [entry.kind for entry in record.entries]
    assert kinds.count("HISTOGRAM") == 3
    assert not {"BELOW", "STEP", "COUNT"} & set(kinds)
    for name, site in run.items():
        counts = record.histograms[name]
        above = sum(counts.tests) + sum(counts.calibration)
        assert above <= record.rooms[name] * (site.n_calibration + 1)
        limit = max(record.outcome.cell_of(name), site.floor)
        assert np.array_equal(site.rejected, site.cells >= limit)
        assert list(counts.tests[: site.floor]) == [0] * site.floor
    assert sum(site.n_rejected for site in run.values()) == record.outcome.n_rejected


def test_agents_of_very_different_sizes_take_part():
    rng = np.random.default_rng(2)
    agents = []
    for name, n, m in (("large", 4000, 400), ("small", 40, 10), ("tiny", 6, 3)):
        test = rng.normal(size=(m, 1))
        test[: m // 10] += 8.0
        agents.append(cn.Agent(name, rng.normal(size=(n, 1)), test))
    run = run_of(agents)
    assert run["large"].n_rejected >= 30
    assert verify(run.to_dict()) == []


def sized(name, n_null, m, rng, novel):
    test = rng.normal(size=(m, 2))
    test[:novel] += 6.0
    return cn.Agent(name, rng.normal(size=(n_null, 2)), test)


def test_one_odd_agent_takes_nothing_from_the_others():
    """It has a hundredth of the known normals for each of its tests."""
    rng = np.random.default_rng(0)
    agents = [sized(f"{i:02d}", 60, 15, rng, novel=2) for i in range(12)]
    odd = sized("odd", 40, 1000, rng, novel=0)
    before, after = run_of(agents), run_of([*agents, odd])
    found = [sum(run[agent.name].n_rejected for agent in agents) for run in (before, after)]
    assert found[0] >= 20
    assert found[1] >= found[0] - 2  # the peers' models are one more
    assert after["odd"].n_rejected == 0
    first, last = after.groups
    assert first.agents == tuple(agent.name for agent in agents)
    assert last.agents == ("odd",)
    assert (first.can_reject, last.can_reject) == (True, False)
    assert (last.x, last.level_used, last.cell) == (0, Fraction(1, 10), None)
    assert (1 - first.x) / 10 <= first.level_used < Fraction(1, 10)
    assert before.groups[0].weight == first.weight
    assert verify(after.to_dict()) == []


@pytest.mark.parametrize(("novel", "least"), [(0, 0), (400, 350)])
def test_many_small_agents_beside_a_large_one(novel, least):
    """In one group with it, no row could be rejected: there is no room above the floors."""
    rng = np.random.default_rng(0)
    agents = [sized(f"{i:02d}", 60, 15, rng, novel=2) for i in range(20)]
    large = sized("large", 600, 4000, rng, novel=novel)
    run = run_of([*agents, large])
    assert [len(group.agents) for group in run.groups] == [20, 1]
    assert sum(run[agent.name].n_rejected for agent in agents) >= 36
    assert run["large"].n_rejected >= least
    assert verify(run.to_dict()) == []


def test_an_agent_with_many_normals_trains_on_those_it_need_not_count():
    rng = np.random.default_rng(1)
    agents = [sized(f"{i:02d}", 60, 15, rng, novel=2) for i in range(5)]
    rich = sized("rich", 3000, 100, rng, novel=10)
    run = run_of([*agents, rich])
    [group] = run.groups
    weight = run.transcript.weights["rich"]
    assert set(run.transcript.weights.values()) == {weight} == {group.weight}
    assert run["rich"].n_calibration == -(-100 // weight) - 1  # from 3,000 known normals
    assert Fraction(100, run["rich"].n_calibration + 1) <= weight
    assert verify(run.to_dict()) == []
    asked = run_of([*agents, rich], train_fraction="1/2")
    assert asked["rich"].n_calibration == 1500
    assert verify(asked.to_dict()) == []


def test_an_agent_by_itself_is_decided_by_its_own_calibration_rows():
    """It sends only cells in which a row could be rejected, and has no floor."""
    rng = np.random.default_rng(2)
    agents = [sized(f"{i:02d}", 60, 15, rng, novel=2) for i in range(12)]
    busy = sized("busy", 160, 1200, rng, novel=300)
    run = run_of([*agents, busy], train_fraction="1/2")
    others, by_itself = run.groups
    assert by_itself.agents == ("busy",)
    assert run["busy"].n_rejected >= 250
    assert (by_itself.x, by_itself.floors_reached) == (0, ())
    assert others.share + by_itself.share == 1
    counts = run.transcript.histograms["busy"]
    assert 1 + sum(counts.calibration) <= Fraction(81, 10)
    assert sum(counts.tests) < 1200
    assert sum(run[agent.name].n_rejected for agent in agents) >= 16
    assert verify(run.to_dict()) == []


def test_floors_that_were_reached_are_named():
    rng = np.random.default_rng(3)
    # x has room for nine tenths of all likely novelties: so many agents need a small one.
    agents = [sized(f"{i:02d}", 60, 15, rng, novel=1) for i in range(45)]
    full_of_novelties = sized("many", 60, 15, rng, novel=8)
    run = run_of([*agents, full_of_novelties])
    assert "many" in {name for group in run.groups for name in group.floors_reached}
    site = run["many"]
    cell = run.transcript.outcome.cell_of("many")
    assert cell < site.floor
    assert 0 < site.n_rejected < int((site.cells >= cell).sum())


def test_an_agent_with_more_novelties_than_room_decides_by_itself():
    rng = np.random.default_rng(5)
    large, crowded = sized("large", 900, 600, rng, 80), sized("crowded", 200, 150, rng, 80)
    run = run_of([large, crowded])
    assert {group.agents for group in run.groups} == {("large",), ("crowded",)}
    assert all(run[name].rejected[:80].sum() >= 78 for name in run)
    assert verify(run.to_dict()) == []


def test_an_agent_that_could_reject_nothing_by_itself_stays_in_its_group():
    group = Group(("a", "b", "c"), Fraction(1, 2))
    calm, crowded, thin = Ready(150, 200, 10), Ready(150, 200, 101), Ready(150, 20, 50)
    level = Fraction(1, 10)
    assert apart_from_group([group], {"a": calm, "b": thin, "c": calm}, level) == [group]
    found = apart_from_group([group], {"a": calm, "b": crowded, "c": calm}, level)
    assert [one.agents for one in found] == [("b",), ("a", "c")]


def test_large_rooms_keep_agents_in_their_group_where_they_cost_little():
    """Room for half of ℓ + 1 = 201 rows: with three agents it costs little, with twelve much."""
    calm, wanting, level = Ready(150, 200, 10), Ready(150, 200, 80), Fraction(1, 10)
    for n_agents, stays in ((3, True), (12, False)):
        names = tuple(f"{i:02d}" for i in range(n_agents))
        group, ready = Group(names, Fraction(1, 2)), dict.fromkeys(names, calm)
        found = apart_from_group([group], ready | {"00": wanting}, level)
        assert (found == [group]) is stays
        # With liars all that is above a floor is subtracted, so no room is large.
        assert apart_from_group([group], ready | {"00": wanting}, level, liars=1) != [group]


def test_groups_of_other_regimes_are_empty():
    agents, _ = drawn(2, np.random.default_rng(0))
    run = run_of(agents, regime="full", composite="mean")
    assert run.groups == ()
    assert "groups" not in run.to_dict()


def test_agents_that_leave_leave_their_group():
    rng = np.random.default_rng(4)
    agents = [sized(f"{i:02d}", 60, 15, rng, novel=3) for i in range(8)]
    odd = sized("odd", 40, 1000, rng, novel=0)
    options = {"regime": "joint", "scorer": "logistic", "composite": "mean", "bits": 8}
    network = cn.Network([*agents, odd], **options)
    run = network.run(dropouts={"odd": "models", "05": "models"})
    [group] = run.groups
    assert group.agents == ("00", "01", "02", "03", "04", "06", "07")
    assert verify(run.to_dict()) == []
    # Of two in a group one is left when the counts begin: it has no floor.
    pair = [sized(name, 300, 60, rng, novel=10) for name in ("a", "b")]
    network = cn.Network([*pair, odd], **options)
    alone = network.run(dropouts={"b": "models"})
    assert alone.transcript.weights["a"] == alone.transcript.weights["b"] > 0
    assert alone.transcript.rooms == {"a": 0, "odd": 0}
    assert alone["a"].n_rejected >= 8
    assert verify(alone.to_dict()) == []


def test_an_agent_lost_during_the_counts_ends_the_run():
    """Its calibration rows would leave with it: see tests/theory/test_theory.py."""
    agents, _ = drawn(3, np.random.default_rng(0))
    network = cn.Network(agents, regime="joint", scorer="logistic", composite="mean")
    with pytest.raises(cn.errors.SiteVanishedError, match="vanished during the counts"):
        network.run(dropouts={agents[0].name: "counts"})
    kept = cn.Network(agents, on_dropout="conservative", scorer="logistic", composite="mean")
    run = kept.run(dropouts={agents[0].name: "counts"})  # "auto" is `full` then
    assert run.spec.regime.name == "full"
    assert verify(run.to_dict()) == []


def test_thin_agents_are_warned_only_if_they_cannot_reject_together():
    """By itself none of them has the nine calibration rows that a p-value of 1/10 needs."""
    rng = np.random.default_rng(5)
    thin = [sized(f"{i:02d}", 10, 3, rng, novel=1) for i in range(40)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run_of(thin).n_rejected > 0
    with pytest.warns(ResolutionWarning, match="no row can be flagged at level 1/10: p-values"):
        assert run_of(thin, regime="full").n_rejected == 0
    busy = [sized(f"{i:02d}", 10, 20, rng, novel=10) for i in range(3)]
    asked = "calibration rows of 3 agents are too few for 60 tests. Add known normals"
    with pytest.warns(ResolutionWarning, match=asked):
        assert run_of(busy).n_rejected == 0


def test_pi0_is_refused():
    agents, _ = drawn(2, np.random.default_rng(0))
    with pytest.raises(InputError, match="pi0 is not proven for the regime 'joint'"):
        run_of(agents, pi0="storey")


def test_the_scale_does_not_know_which_rows_calibrate():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(90, 1)).round(1)
    edges = [
        fit_scale(FIRST, TrainingSet(rows[:1], Mixture.of(rows[order]))).edges
        for order in (np.arange(90), rng.permutation(90))
    ]
    assert np.array_equal(*edges)
    assert (np.diff(edges[0]) > 0).all()


@pytest.mark.parametrize("scores", [[0.0] * 5, [0.5] * 9, [0.0, 1.0], [-3.0], [1e300, -1e300]])
def test_any_scores_have_cells(scores):
    rows = np.array(scores)[:, np.newaxis]
    scale = fit_scale(FIRST, TrainingSet(rows[:1], Mixture.of(rows)))
    cells = scale.cells(rows[:, 0])
    assert ((cells >= 0) & (cells < N_CELLS)).all()
    assert (np.diff(cells[np.argsort(rows[:, 0])]) >= 0).all()


def test_room_follows_from_numbers_alone():
    level = Fraction(1, 10)
    assert choose_room([], level) == ROOMS[0]
    assert choose_room([RoomWanted(0, 10, 999)], level) == ROOMS[0]
    assert choose_room([RoomWanted(0, 10, 0)], level) == ROOMS[-1]


@pytest.mark.parametrize(("novel", "level"), [(0, "1/2"), (1, "3/10")])
def test_the_false_discovery_rate_of_whole_runs(novel, level):
    """Agents whose normals differ in scale; every step from rows to decisions."""
    rng = np.random.default_rng(7)
    proportions = []
    for seed in range(60):
        agents, truth = drawn(4, rng, 20, 5, novel, shift=4.0)
        run = run_of(agents, level=level, random_state=seed, train_fraction="1/2")
        false = sum(int((run[name].rejected & ~truth[name]).sum()) for name in truth)
        proportions.append(false / max(run.n_rejected, 1))
    error = np.std(proportions) / np.sqrt(len(proportions))
    assert np.mean(proportions) <= float(Fraction(level)) + 3 * error
