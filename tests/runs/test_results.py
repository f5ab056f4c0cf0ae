"""What a network run says of itself: by agent, in all, as a frame and as JSON."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import conovel as cn
from conovel.protocol.replay import verify

ROWS = {"east": 40, "north": 30, "south": 50}  # test rows of each agent
LEVEL = 0.2


def agents():
    rng = np.random.default_rng(0)
    for name, n_test in ROWS.items():
        X_test = rng.normal(size=(n_test, 2))
        X_test[:10] += 6
        yield cn.Agent(name, rng.normal(size=(300, 2)), X_test)


@pytest.fixture(scope="module")
def run():
    network = cn.Network(list(agents()), regime="counts", scorer="logistic", level=LEVEL)
    return network.run(check=False)


def test_it_is_a_mapping_from_agents_to_their_results(run):
    assert list(run) == sorted(ROWS)
    assert len(run) == len(ROWS)
    assert {name: site.rejected.size for name, site in run.items()} == ROWS
    with pytest.raises(KeyError):
        _ = run["west"]


def test_totals_are_sums_over_the_agents(run):
    assert run.n_rejected == sum(int(site.rejected.sum()) for site in run.values()) > 0
    assert run.n_bytes == sum(entry.n_bytes for entry in run.transcript.entries) > 0
    assert run.rounds == run.transcript.n_rounds > 0
    assert run.transcripts == (run.transcript,)
    assert run.n_null == dict.fromkeys(ROWS, 300)


def test_the_headline_has_the_numbers_and_the_level(run):
    assert f"{run.n_rejected} of {sum(ROWS.values())}" in run.headline
    assert "20 %" in run.headline


def test_a_frame_has_one_line_for_each_row_of_each_agent(run):
    frame = run.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame.groupby("agent").size().to_dict() == ROWS
    for name, site in run.items():
        part = frame[frame["agent"] == name]
        assert part["row"].tolist() == list(range(ROWS[name]))
        assert part["rejected"].tolist() == site.rejected.tolist()
    assert "id" not in frame  # no agent has ids


def test_what_is_saved_can_be_verified_and_nothing_is_added(run, tmp_path):
    run.save(tmp_path / "run.json")
    saved = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert saved == json.loads(json.dumps(run.to_dict()))
    assert verify(saved) == []
    assert saved["n_rejected"] == run.n_rejected
    assert saved["guarantee"] == str(run.guarantee)
    decided = {name: one["rejected"] for name, one in saved["decisions"].items()}
    assert decided == {name: site.rejected.tolist() for name, site in run.items()}


def test_an_agent_that_was_lost_has_no_decisions_in_the_record(run):
    record = replace(run, lost=("south",)).to_dict()
    assert set(record["decisions"]) == {"east", "north"}


def test_warnings_of_all_agents_are_listed():
    numbers = np.arange(660.0).reshape(-1, 2)  # the test rows follow upon the known normals
    shifted = [*agents(), cn.Agent("west", numbers[:300], numbers[300:])]
    run = cn.Network(shifted, regime="counts", scorer="logistic", level=LEVEL).run()
    assert "west" in {one.agent for one in run.warnings}
    assert list(run.warnings) == [one for site in run.values() for one in site.warnings]
    assert run.to_dict()["warnings"] == [one.to_dict() for one in run.warnings]


def test_only_calibration_together_has_groups(run):
    assert run.groups == ()
    joint = cn.Network(list(agents()), regime="joint", scorer="logistic", level=LEVEL)
    together = joint.run(check=False)
    assert sorted(name for group in together.groups for name in group.agents) == sorted(ROWS)
    assert len(together.to_dict()["groups"]) == len(together.groups)


def test_repeats_keep_every_run_whole():
    repeated = cn.Network(
        list(agents()), regime="counts", scorer="logistic", level=LEVEL, repeats=2
    ).run(check=False)
    assert len(repeated.runs) == len(repeated.transcripts) == 2
    assert repeated.transcript is repeated.runs[0].transcript
    assert repeated.n_bytes == sum(one.n_bytes for one in repeated.runs)
    of_runs = sum(one.rounds for one in repeated.runs)
    assert repeated.rounds == of_runs + len(repeated.evidence_rounds)
    record = repeated.to_dict()
    assert record["runs"] == [one.to_dict() for one in repeated.runs]
    flagged = {name: one["times_flagged"] for name, one in record["decisions"].items()}
    assert flagged == {
        name: sum(one[name].rejected.astype(int) for one in repeated.runs).tolist()
        for name in ROWS
    }
