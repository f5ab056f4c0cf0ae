"""Between processes with certificates as within one: the same bytes, the same decisions."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from support.federation import SCORER, SITES, in_one_process
from support.mixed import SCHEMA, mixed_agents

from conovel.deciding.asking import Count
from conovel.federation.processes import wait_for
from conovel.federation.run_records import RunRecords, own_secret
from conovel.federation.settings import read_site
from conovel.protocol.agent import Agent
from conovel.protocol.messages import encode
from conovel.protocol.replay import verify
from conovel.rows.storage import read_json
from conovel.spec.bodies import Message, Model

RUNS = [("full", 3), ("counts", 2), ("split", 1), ("joint", 4), ("consensus", 7)]
RUNS += [("together", 5)]


def transcript_of(expected, run_id):
    """The transcript of a run in one process, under the id that the terms have elsewhere."""
    return json.dumps(expected.transcript.to_dict() | {"run_id": run_id})


@pytest.fixture
def in_process(rows, loopback):
    """Make the network that has the rows, the seed and the secrets of a federated run."""
    states = {name: loopback.folder / name / "state" for name in SITES}

    def make(account):
        terms = account["terms"]
        options = {"regime": terms["spec"]["regime"], "composite": "mean", "bits": 4}
        options["masks"] = terms["spec"].get("masks", False)
        return in_one_process(
            rows,
            states,
            terms["spec"]["seed"],
            terms["run_id"],
            train_fraction="1/2",
            scorer=SCORER,
            **options,
        )

    return make


@pytest.fixture(scope="module")
def done():
    """Accounts of the runs of this module, by regime."""
    return {}


@pytest.fixture
def account_of(submit, done):
    """Run a regime in the federation, once for all tests."""

    def get(regime):
        if regime not in done:
            seed = dict(RUNS)[regime]
            terms = {"regime": regime, "composite": "mean", "bits": 4, "train_fraction": "1/2"}
            terms["masks"] = regime in ("together", "consensus")
            done[regime] = submit(**terms, level="0.1", seed=seed)
        return done[regime]

    return get


@pytest.mark.parametrize(
    "regime",
    # A run starts processes at every party; test_parties.py has all regimes in one process.
    [run[0] if run[0] == "full" else pytest.param(run[0], marks=pytest.mark.slow) for run in RUNS],
)
def test_a_federation_decides_what_one_process_decides(regime, loopback, in_process, account_of):
    account = account_of(regime)
    network = in_process(account)
    expected = network.run()
    run_id = account["terms"]["run_id"]
    assert account["state"] == "done", account["message"]
    assert not account["unpublished"]
    assert json.dumps(account["transcript"]) == transcript_of(expected, run_id)
    assert verify(account) == []
    assert account["guarantee"] == str(expected.guarantee)
    assert account["outcome"]["n_rejected"] == expected.n_rejected
    # Each run divides the rows in another way, and these three find nothing in some divisions.
    assert expected.n_rejected > 0 or regime in ("split", "consensus", "counts")
    for name in SITES:
        folder = loopback.folder / name / "results" / run_id
        written = pq.read_table(folder / "decisions.parquet")
        for column, values in expected[name].columns().items():
            numeric = np.asarray(values).dtype.kind in "biuf"
            assert np.array_equal(written[column].to_numpy(), values, equal_nan=numeric), column
        assert wait_for((folder / "report.html").exists, 60)
        own = read_json(folder / "run.json")
        assert (
            own["decisions"][name] | expected.to_dict()["decisions"][name]
            == (own["decisions"][name])
        )
        (record,) = [
            run
            for run in RunRecords(folder.parents[1] / "state").runs()
            if run["run_id"] == run_id
        ]
        assert record["seed"] == network.agents[SITES.index(name)].seed  # to repeat it there
        counted = {"joint": "HISTOGRAM", "together": "MASKED", "consensus": "SHARED"}.get(
            regime, "COUNT"
        )
        senders = {row[1] for row in own["transcript"]["messages"] if row[3] == counted}
        assert senders == {name}  # nobody learns the counts of another


@pytest.mark.slow
def test_known_novelties_of_one_site_reach_the_others_as_in_one_process(
    rows, loopback, in_process, submit
):
    """The regime `together` with masks: one site shares what it knows."""
    path = loopback.settings("south")
    text = path.read_text()
    table = pa.table(rows["south"][1])
    is_novel = np.arange(table.num_rows) >= 0.9 * table.num_rows  # as the design draws them
    known_rows = table.filter(pa.array(is_novel)).slice(0, 20)
    file = path.parent / "known.parquet"
    pq.write_table(known_rows, file)
    changed = text.replace("[data]", f'[data]\nknown = "{file}"')
    changed = changed.replace("[consent]", "[consent]\nshare_known = true")
    assert changed.count("known") > text.count("known")
    terms = {"regime": "together", "composite": "mean", "bits": 4, "train_fraction": "1/2"}
    terms["masks"] = True
    try:
        path.write_text(changed)
        account = submit(**terms, level="0.1", seed=8)
    finally:
        path.write_text(text)
    network = in_process(account)
    plain = network.run()
    network.agents = [
        replace(agent, X_known=known_rows) if agent.name == "south" else agent
        for agent in network.agents
    ]
    expected = network.run()
    assert account["state"] == "done", account["message"]
    run_id = account["terms"]["run_id"]
    assert json.dumps(account["transcript"]) == transcript_of(expected, run_id)
    assert verify(account) == []
    assert any(not np.array_equal(plain[n].scores, expected[n].scores) for n in SITES[1:])
    for name in SITES:
        written = pq.read_table(loopback.folder / name / "results" / run_id / "decisions.parquet")
        assert np.array_equal(written["score"].to_numpy(), expected[name].scores)


@pytest.mark.slow
def test_a_site_that_reads_its_files_in_pieces_decides_the_same(loopback, in_process, submit):
    """The regime `joint` in memory, in files and between processes: the same bits."""
    path = loopback.settings("south")
    text = path.read_text()
    terms = {"regime": "joint", "composite": "mean", "bits": 4, "train_fraction": "1/2"}
    try:  # settings are read again for every run
        path.write_text(text.replace("[data]", '[data]\nmemory = "1GB"'))
        account = submit(**terms, level="0.1", seed=5)
    finally:
        path.write_text(text)
    run_id = account["terms"]["run_id"]
    expected = in_process(account).run()
    assert account["state"] == "done", account["message"]
    assert json.dumps(account["transcript"]) == transcript_of(expected, run_id)
    assert account["outcome"]["n_rejected"] == expected.n_rejected > 0
    for name in SITES:
        folder = loopback.folder / name / "results" / run_id
        assert ("decisions" in read_json(folder / "run.json")) is (name != "south")
        written = pq.read_table(folder / "decisions.parquet")
        for column, values in expected[name].columns().items():
            assert np.array_equal(written[column].to_numpy(), values, equal_nan=True), column


@pytest.mark.slow
def test_mixed_columns_between_processes_as_within_one(loopback, submit):
    """Categories and missing values, in files: the bytes of one process."""
    rows = mixed_agents(SITES)
    states = {name: loopback.folder / name / "state" for name in SITES}
    options = {"regime": "joint", "level": "0.2", "schema": SCHEMA}
    texts = {name: loopback.settings(name).read_text() for name in SITES}
    try:
        for name, text in texts.items():
            folder = loopback.folder / name
            (folder / "schema.toml").write_text(SCHEMA.to_toml())
            for part, table in zip(("null", "test"), rows[name], strict=True):
                pa_csv.write_csv(table, folder / f"mixed-{part}.csv")
            data = 'null = "mixed-null.csv"\ntest = "mixed-test.csv"\nschema = "schema.toml"\n'
            before, _, after = text.partition("[data]\n")
            rest = after[after.index("\n[") :]
            loopback.settings(name).write_text(f"{before}[data]\n{data}{rest}")
        account = submit(**options, seed=6)
    finally:
        for name, text in texts.items():
            loopback.settings(name).write_text(text)
    run_id = account["terms"]["run_id"]
    expected = in_one_process(rows, states, 6, run_id, scorer=SCORER, **options).run()
    assert account["state"] == "done", account["message"]
    assert json.dumps(account["transcript"]) == transcript_of(expected, run_id)
    assert account["outcome"]["n_rejected"] == expected.n_rejected > 0
    for name in SITES:
        written = pq.read_table(loopback.folder / name / "results" / run_id / "decisions.parquet")
        assert np.array_equal(written["score"].to_numpy(), expected[name].scores)


def test_the_submitter_gets_no_decisions(account_of):
    text = json.dumps(account_of("full"))
    assert '"decisions"' not in text
    assert '"ranks"' not in text


def test_a_tap_on_the_relay_shows_counts_but_no_model(
    loopback, in_process, account_of, monkeypatch
):
    account = account_of("full")
    rounds = account["transcript"]["rounds"]
    network = in_process(account)
    models = []
    take = Agent.take

    def note(self, message, peer=""):
        if isinstance(message.body, Model):
            models.append(message.body.blob)
        return take(self, message, peer)

    monkeypatch.setattr(Agent, "take", note)
    network.run()
    assert len(models) == 6
    tapped = b"".join(path.read_bytes() for path in loopback.sabotage.glob("tap-*"))
    run_id = bytes.fromhex(account["terms"]["run_id"])
    for name, count in rounds[0]["counts"].items():  # the tap works
        assert encode(Message(run_id, name, "coordinator", 1, Count(count))) in tapped
    for name in SITES:  # nor the secret of a site
        secret = own_secret(loopback.folder / name / "state")
        assert secret not in tapped
        assert secret.hex().encode() not in tapped
    for blob in models:
        pieces = [blob[i : i + 16] for i in range(len(blob) - 15)]
        assert pieces
        assert not any(piece in tapped for piece in pieces)


@pytest.mark.slow
def test_private_models_between_real_processes(submit, loopback):
    """Two runs of the same seed send other models; ε is in the terms, the log and the account."""
    sent = []
    for n in (1, 2):
        account = submit(regime="joint", bits="compact", privacy="4", level=0.1)
        assert account["state"] == "done", account["message"]
        assert account["transcript"]["spec"]["privacy"] == "4,1/1000000"
        entries = read_site(loopback.folder / "north" / "site.toml").audit_log.read().entries
        charged = [one for one in entries if one["entry"] == "data" and "privacy" in one]
        assert (charged[-1]["privacy"], charged[-1]["epsilon"]) == ("4,1/1000000", str(4 * n))
        models = [one for one in entries if one["entry"] == "sent" and one["kind"] == "MODEL"]
        sent.append(models[-1]["sha256"])
    assert sent[0] != sent[1]
