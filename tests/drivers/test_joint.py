"""The regime `joint` in whole runs: what it decides, whom it asks, and that the bound holds."""

from fractions import Fraction

import numpy as np
import pytest

import conovel as cn
from conovel.errors import InputError
from conovel.protocol.audit import verify
from conovel.scorers.base import Mixture, TrainingSet
from conovel.site.common_scale import fit_scale
from conovel.site.stacking import FunctionScore
from conovel.spec.joint import N_CELLS
from conovel.stats.cells import ROOMS, RoomWanted, choose_room

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
