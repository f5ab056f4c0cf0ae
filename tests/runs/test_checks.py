"""Findings of a network: each agent's own, named, without a change of any decision or message."""

import numpy as np
import pytest

import conovel as cn
from conovel.protocol.replay import verify

RNG = np.random.default_rng(7)


def agents():
    rows = {name: RNG.normal(size=(500, 2)) for name in ("north", "south", "va")}
    rows["south"][:, 0] += np.arange(500) / 120
    sizes = {"north": 300, "south": 300, "va": 36}
    return [cn.Agent(name, rows[name][:n], rows[name][300:]) for name, n in sizes.items()]


@pytest.mark.parametrize("regime", ["counts", "joint", "isolated", "pooled"])
def test_each_agent_finds_its_own(regime):
    members = agents()
    network = cn.Network(members, regime=regime, scorer="logistic")
    run, plain = network.run(), network.run(check=False)
    found = {(one.agent, one.kind) for one in run.warnings}
    assert ("south", "drift") in found
    assert ("va", "thin_calibration") in found or regime == "joint"
    assert not any(agent == "north" for agent, _ in found)
    assert run.headline.startswith("The known normals of south are not like today's rows")
    assert plain.warnings == ()
    for name in run:
        assert np.array_equal(run[name].rejected, plain[name].rejected)
    assert run.transcript.to_dict() == plain.transcript.to_dict()
    assert run.to_dict()["warnings"] == [one.to_dict() for one in run.warnings]
    assert verify(run.to_dict()) == []


def test_thin_calibration_names_agent_and_remedy():
    run = cn.Network(agents(), regime="counts", scorer="logistic", train_fraction=0.5).run()
    (thin,) = (one for one in run.warnings if one.kind == "thin_calibration")
    assert thin.message == (
        "with 18 calibration rows, no row of va can be flagged unless at least 316 of the 600 rows"
        " of all agents are flagged at once"
    )
    assert "use regime='joint'" in thin.fix


def test_notes_are_told_before_the_run():
    told = []
    cn.Network(agents(), regime="counts", scorer="logistic").run(
        on_stage=told.append, on_finding=lambda finding: told.append(str(finding))
    )
    notes = [i for i, text in enumerate(told) if text.startswith("va: with 1")]
    assert notes
    assert notes[0] < next(i for i, text in enumerate(told) if "roster" in text)


def test_with_repeats_the_checks_run_once():
    told = []
    network = cn.Network(agents(), regime="counts", scorer="logistic", repeats=2)
    run = network.run(on_finding=told.append)
    assert sum(finding.agent == "south" for finding in told) == 1
    assert any(one.kind == "drift" for one in run.warnings)
    assert run.to_dict()["warnings"]
