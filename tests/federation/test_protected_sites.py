"""What a site refuses before a model exists, and what it writes down."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from support.fake_nvflare import FakeNVFlare
from support.federation import SITES
from support.terms import make_terms

from conovel.cli.audit import audit as show_audit
from conovel.errors import InputError, ReplayedMessageError
from conovel.federation.audit_log import AuditLog
from conovel.federation.consent import Limits, objection_to_model_in, objection_to_precision
from conovel.federation.exposure import epsilon_spent, exposure_of, runs_of, spent_by_set
from conovel.federation.processes import wait_for
from conovel.federation.run_records import RunRecords
from conovel.federation.settings import read_site
from conovel.models.forest import Forest
from conovel.models.wire import encode
from conovel.rows.storage import write_table
from conovel.spec.bodies import Message, Roster, Start

N_NULL, N_TEST = 200, 60
OPENS = {"HELLO", "ROSTER", "ABORT"}  # what a run may say before a model exists


@pytest.fixture
def files(tmp_path):
    """Write the settings and a few rows of three sites."""
    found, rng = {}, np.random.default_rng(0)
    for name in SITES:
        folder = tmp_path / name
        folder.mkdir(mode=0o700)
        for part, n in (("null", N_NULL), ("test", N_TEST)):
            columns = {f"x{j}": rng.normal(size=n) for j in range(3)}
            ids = {"who": [f"{name}-{i}" for i in range(n)]} if part == "test" else {}
            write_table(folder / f"{part}.csv", {**ids, **columns})
        (folder / "site.toml").write_text(
            f'[site]\nname = "{name}"\nkit = "kit"\n[data]\nnull = "null.csv"\n'
            'test = "test.csv"\nid = "who"\n[model]\nscorer = "logistic"\n'
        )
        found[name] = read_site(folder / "site.toml")
    return found


def terms(**more):
    return make_terms(SITES, **({"regime": "full", "bits": 4, "call_seconds": 5} | more))


def run(files, limits=None, **more):
    """Run, and wait until every site has written its end down."""
    if isinstance(limits, Limits):
        limits = {"west": limits}
    fake = FakeNVFlare(terms(**more), files, limits)
    account = fake.run()
    ends = {"entry": "end", "run": fake.terms.run_id}
    assert wait_for(lambda: all(entries(file, **ends) for file in whole(files)), 10)
    return account, fake


def whole(files):
    """Give the sites whose log holds."""
    return [file for file in files.values() if not file.audit_log.read().broken]


def entries(file, **about):
    chain = file.audit_log.read()
    assert not chain.broken
    return [one for one in chain.entries if all(one.get(k) == v for k, v in about.items())]


REFUSED = [
    (
        {"min_calibration_rows": 30},
        {"train_fraction": "9/10"},
        "fewer than 30 of its known normals would calibrate",
        "20 would calibrate",
    ),
    ({}, {"bits": None}, "would be sent with bits float64, and it agrees to 16 at most", ""),
    ({"max_bits": 8}, {"bits": 9}, "would be sent with bits 9, and it agrees to 8 at most", ""),
    ({"max_bits": "compact"}, {"bits": 1}, "with bits 1, and it agrees to compact at most", ""),
    (
        {"model_families": ["linear", "dense"]},
        {"bits": "compact:300"},
        "would be of the family 'forest', which may not leave it",
        "",
    ),
    (
        {"max_peer_share": 1.5},
        {},
        "the other agents have more than 1.5 test rows for each of its own",
        "120 for its 60",
    ),
]


@pytest.mark.parametrize(("limits", "asked", "said", "numbers"), REFUSED)
def test_it_is_refused_before_a_model_exists(files, limits, asked, said, numbers, monkeypatch):
    monkeypatch.setattr("conovel.site.site.fit_best", None)  # which would make a model
    account, fake = run(files, dict.fromkeys(SITES, Limits(**limits)), **asked)
    assert said in account["message"]
    assert "site.toml" in account["message"]
    (record,) = RunRecords(files[account["culprit"]].state).runs()
    assert said in record["message"]
    assert numbers in record["message"]
    assert not numbers or numbers not in account["message"]
    assert "models_sent" not in record
    assert record["terms"]["spec"]["regime"] == "full"
    for name, file in files.items():
        (begin,) = entries(file, entry="begin")
        assert begin["terms"] == fake.terms.to_dict()
        assert {one["kind"] for one in entries(file, entry="sent")} <= OPENS
        (end,) = entries(file, entry="end")
        assert end["state"] == "failed"
        assert said in end["reason"], name
        assert exposure_of(file.audit_log.read().entries).n_models == 0


@pytest.mark.parametrize("body", [Roster(SITES, 100, 161), Start(SITES, 161)])
def test_the_others_rows_are_bounded_wherever_they_are_told(body):
    message = Message(bytes(16), "coordinator", "west", 0, body)
    for share, refused in ((1.6, True), (1.7, False), (float("inf"), False)):
        objection = Limits(max_peer_share=share).objection_to_sizes(message, terms(), 60)
        assert bool(objection[0]) is refused
        assert objection[1] == ("101 for its 60" if refused else "")
    alone = terms(regime="conservative")
    assert Limits(max_peer_share=0).objection_to_sizes(message, alone, 60) == ("", "")


@pytest.mark.parametrize(
    ("limits", "asked"),
    [
        ({"max_bits": "float64"}, {"bits": None}),
        ({"max_bits": "compact"}, {"bits": "compact"}),
        ({"max_bits": 8, "model_families": ["linear"]}, {"bits": 8}),
        ({"max_peer_share": 2, "min_calibration_rows": 20}, {"train_fraction": "9/10"}),
        ({"max_peer_share": 0}, {"regime": "conservative"}),
        ({"max_bits": "compact", "model_families": []}, {"regime": "counts", "bits": None}),
    ],
)
def test_what_is_within_the_limits_is_done(files, limits, asked):
    agreed = Limits(**limits)
    fake = FakeNVFlare(terms(**asked), files, dict.fromkeys(SITES, agreed))
    account = fake.run()
    assert account["state"] == "done", account["message"]


def test_the_sites_own_precision_is_bounded_too(files):
    exact = {name: replace(file, bits=None) for name, file in files.items()}
    account, _ = run(exact)
    assert "would be sent with bits float64" in account["message"]


def test_no_model_leaves_in_consensus(files):
    strict = Limits(regimes=["consensus"], max_bits=1, model_families=("forest",))
    assert objection_to_precision(strict, terms(regime="consensus"), None) == ""


def test_a_model_of_a_family_that_may_not_leave_does_not(files):
    account, fake = run(files, Limits(model_families=["forest"]))  # the scorer is linear
    assert "west refuses: its model would be of the family 'linear'" in account["message"]
    assert "MODEL" not in {one["kind"] for one in entries(files["west"], entry="sent")}
    seen = [e.kind for e in fake.sites["north"].driver.transcript.entries if e.sender == "west"]
    assert "MODEL" not in seen


def test_one_more_run_with_the_same_rows_is_refused(files):
    limits = Limits(max_runs_per_data=2)
    # Runs that are refused, and that send nothing, do not count.
    assert "calibrate" in run(files, Limits(min_calibration_rows=900))[0]["message"]
    for _ in range(2):
        assert run(files, limits)[0]["state"] == "done"
    account, fake = run(files, limits)
    assert "west refuses: it agrees to 2 runs with the rows it has now" in account["message"]
    west = fake.sites["west"].record.content
    assert "2 so far, see conovel audit" in west["message"]
    sent = entries(files["west"], entry="sent", run=fake.terms.run_id)
    assert {one["kind"] for one in sent} <= {"ABORT"}
    write_table(files["west"].null, {f"x{j}": np.arange(50.0) + j for j in range(3)})
    assert run(files, limits)[0]["state"] == "done"


def test_one_more_run_today_is_refused(files):
    limits = Limits(max_runs_per_day=1)
    assert run(files, limits)[0]["state"] == "done"
    account, _ = run(files, limits)
    assert "it agrees to 1 run within 24 hours" in account["message"]


def test_a_run_that_is_under_way_counts(files):
    first = FakeNVFlare(terms(), files, {"west": Limits(max_runs_per_day=1)})
    first.sites["west"].driver.begin()
    assert wait_for(lambda: entries(files["west"], entry="data"), 10)
    account, _ = run(files, Limits(max_runs_per_day=1))
    assert "within 24 hours" in account["message"]


def test_what_left_and_what_came_in_is_written_down_and_no_row_is(files):
    account, fake = run(files)
    assert account["state"] == "done"
    for name, file in files.items():
        peers = set(SITES) - {name}
        models = entries(file, entry="sent", kind="MODEL")
        assert {one["to"] for one in models} == peers
        for one in models:  # who got it has written down the same bytes
            (came,) = entries(files[one["to"]], entry="received", kind="MODEL", **{"from": name})
            assert (came["sha256"], came["bytes"]) == (one["sha256"], one["bytes"])
        rounds = len(account["transcript"]["rounds"])
        assert len(entries(file, entry="sent", kind="COUNT")) == rounds
        (data,) = entries(file, entry="data")
        assert (data["n_null"], data["n_test"]) == (N_NULL, N_TEST)
        assert len(data["data"]) == 64
        assert entries(file, entry="end")[0]["state"] == "done"
        (run_,) = runs_of(entries(file))
        assert (run_.n_models, run_.state) == (2, "done")
        found = exposure_of(entries(file))
        assert found.receivers == dict.fromkeys(sorted(peers), 1)
        n_train = fake.sites[name].driver._site.n_train(N_NULL)
        assert (found.n_data, found.n_rows, found.n_trained) == (1, 260, n_train)
        assert fake.sites[name].record.content["models_sent"] == 2
        text = file.audit_log.path.read_text()
        assert f"{name}-0" not in text  # an id
        values = [cell for line in file.test.read_text().split()[1:] for cell in line.split(",")]
        assert not [cell for cell in values[1:4] if cell in text]


@pytest.mark.parametrize("regime", ["split", "joint"])
def test_how_many_rows_trained_is_not_understated(files, regime):
    many = np.random.default_rng(1).normal(size=(3, 1000))
    write_table(files["west"].null, {f"x{j}": values for j, values in enumerate(many)})
    limits = dict.fromkeys(SITES, Limits(regimes=[regime], min_train_rows=1))
    account, fake = run(files, limits, regime=regime)
    assert account["state"] == "done", account["message"]
    local = fake.sites["west"].driver._site
    trained = exposure_of(entries(files["west"])).n_trained
    if regime == "joint":  # the weight of the group lets it train on more rows than its own rule
        assert trained == len(local.own_block.null_train)
        assert trained > local.n_train(1000, by_rule=True)
    else:
        assert trained >= sum(rows.n_train for rows in local.training_rows(3))


def test_a_log_that_does_not_hold_stops_runs(files):
    log = files["west"].audit_log
    assert run(files)[0]["state"] == "done"
    whole = log.path.read_bytes()
    log.path.write_bytes(whole.replace(b'"MODEL"', b'"COUNT"', 1))
    account, _ = run(files)
    assert "west could not go on (FederationError)" in account["message"]
    assert "MODEL" not in {one["kind"] for one in entries(files["north"])[-10:] if "kind" in one}


def test_the_end_of_a_killed_run_is_written_down(files):
    file = files["west"]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    record = RunRecords(file.state, file.audit_log).open("ab" * 16, 60)
    record.note(pid=ended.pid)
    RunRecords(file.state, file.audit_log).close_ended()
    (end,) = entries(file, entry="end")
    assert (end["run"], end["state"]) == ("ab" * 16, "failed")
    assert "its process ended without an outcome" in end["reason"]


def test_a_run_ends_where_the_log_cannot_be_written(files):
    file = files["west"]
    record = RunRecords(file.state, file.audit_log).open("ab" * 16, 60)
    file.audit_log.path.unlink()
    file.audit_log.path.mkdir()
    assert record.finish("failed", "so it ended")
    (kept,) = RunRecords(file.state).runs()
    assert kept["state"] == "failed"
    assert "cannot be written" in kept["audit_log"]


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("memory", [None, pytest.param("1GB", marks=pytest.mark.slow)])
def test_files_of_a_run_are_for_their_owner_whatever_the_umask(files, memory):
    with umask(0):
        files = {
            name: replace(file, memory=memory, results=file.results / "deep" / "er")
            for name, file in files.items()
        }
        account, _ = run(files)
    assert account["state"] == "done", account["message"]
    seen = set()
    for file in files.values():
        for folder in (file.state, file.path.parent / "results"):
            for path in [folder, *folder.rglob("*")]:
                mode = path.stat().st_mode & 0o777
                assert mode == (0o700 if path.is_dir() else 0o600), path
                seen.add(path.name)
    assert {"audit.jsonl", "seed-secret", "decisions.parquet", "run.json", "deep"} <= seen


def test_audit_shows_the_log_and_checks_it(files, conovel):
    assert run(files)[0]["state"] == "done"
    path = files["west"].path
    ended = conovel("audit", path)
    assert ended.returncode == 0, ended.stderr
    said = " ".join(ended.stdout.split())
    assert "models sent 2: 1 to north, 1 to south" in said
    assert "at most 260 rows" in said
    assert max(map(len, ended.stdout.splitlines())) <= 80
    last = AuditLog(files["west"].audit_log.path).read().last
    assert last in said
    assert conovel("audit", path, "--noted", last).returncode == 0
    told = json.loads(conovel("audit", path, "--json").stdout)
    assert (told["holds"], told["exposure"]["n_models"], told["last_hash"]) == (True, 2, last)

    log = files["west"].audit_log.path
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))
    assert conovel("audit", path).returncode == 0  # which the log alone cannot show
    ended = conovel("audit", path, "--noted", last)
    assert ended.returncode == 3
    assert "the noted hash is not in the log" in " ".join(ended.stdout.split())
    log.write_bytes(b"".join(lines).replace(b'"MODEL"', b'"HELLO"', 1))
    ended = conovel("audit", path)
    assert ended.returncode == 3
    number = 1 + next(i for i, line in enumerate(lines) if b'"MODEL"' in line)
    assert f"line {number} does not hold" in " ".join(ended.stdout.split())
    told = conovel("audit", path, "--json")
    assert (told.returncode, json.loads(told.stdout)["broken_line"]) == (3, number)
    assert conovel("audit", path.with_name("null.csv")).returncode == 2


# Differential privacy: ε is charged before a model is made, and refused when it is spent.


def spent_at(file, data_set=""):
    return epsilon_spent(runs_of(entries(file)), data_set)


def test_epsilon_adds_up_until_it_is_spent(files):
    limits = Limits(max_epsilon=9)
    for n in (1, 2):
        assert run(files, limits, privacy="4")[0]["state"] == "done"
        assert spent_at(files["west"]) == (4 * n, Fraction(n, 10**6), n, 0)
        assert entries(files["west"], entry="data")[-1]["epsilon"] == str(4 * n)
    account, fake = run(files, limits, privacy="4")
    assert "west refuses: what it agrees to spend of ε is spent" in account["message"]
    assert "ε 8 in 2 runs so far, and 9 in all" in fake.sites["west"].record.content["message"]
    assert "8" not in account["message"].split("--")[0].split("refuses")[1]
    sent = entries(files["west"], entry="sent", run=fake.terms.run_id)
    assert {one["kind"] for one in sent} <= {"ABORT"}
    # One more row makes other files, and the same data set.
    write_table(files["west"].null, {f"x{j}": np.arange(50.0) + j for j in range(3)})
    assert "is spent" in run(files, limits, privacy="4")[0]["message"]
    assert run(files, limits, privacy="1")[0]["state"] == "done"
    # The site says that it has entirely other rows.
    other = files | {"west": replace(files["west"], data_set="april")}
    assert run(other, limits, privacy="4")[0]["state"] == "done"
    found = spent_by_set(runs_of(entries(files["west"])))
    assert {name: spent.epsilon for name, spent in found.items()} == {"": 9, "april": 4}


def test_a_site_with_a_bound_on_epsilon_sends_no_model_without_privacy(files):
    limits = Limits(max_epsilon="1/2")
    assert "with differential privacy only" in run(files, limits)[0]["message"]
    assert run(files, limits, regime="counts")[0]["state"] == "done"  # sends no model
    assert run(files, limits, privacy="1/2")[0]["state"] == "done"
    assert spent_at(files["west"]) == (Fraction(1, 2), Fraction(1, 10**6), 1, 0)


def test_epsilon_of_sums_is_charged(files):
    limits = Limits(max_epsilon=5, regimes=("together",), masks=False)
    both = dict.fromkeys(files, limits)
    assert "with differential privacy only" in run(files, both, regime="together")[0]["message"]
    assert run(files, both, regime="together", privacy="4")[0]["state"] == "done"
    assert spent_at(files["west"]) == (4, Fraction(1, 10**6), 1, 0)
    assert "is spent" in run(files, both, regime="together", privacy="4")[0]["message"]


def test_no_bound_holds_after_a_model_without_privacy(files):
    assert run(files)[0]["state"] == "done"
    assert spent_at(files["west"]).n_open == 1
    account, fake = run(files, Limits(max_epsilon=100), privacy="1")
    assert "what it agrees to spend of ε is spent" in account["message"]
    assert "1 run without privacy" in fake.sites["west"].record.content["message"]


def test_delta_of_all_runs_is_below_one_over_the_rows(files):
    assert run(files, privacy="1,1/500")[0]["state"] == "done"  # there are 260 rows
    account, _ = run(files, privacy="1,1/500")
    assert "refuses: δ of the run, added to that of earlier runs" in account["message"]


def test_epsilon_of_a_run_that_is_under_way_is_charged(files):
    limits = {"west": Limits(max_epsilon=5)}
    first = FakeNVFlare(terms(privacy="4"), files, limits)
    first.sites["west"].driver.begin()
    assert wait_for(lambda: entries(files["west"], entry="data"), 10)
    assert not entries(files["west"], entry="sent", kind="MODEL")
    account, _ = run(files, limits["west"], privacy="4")
    assert "is spent" in account["message"]


def test_a_run_that_was_cut_off_cannot_be_joined_again_and_stays_charged(files):
    """A site that starts again draws no second noise for a run: its id was used."""
    fake = run(files, privacy="4")[1]
    records = RunRecords(files["west"].state, files["west"].audit_log)
    with pytest.raises(ReplayedMessageError):
        records.open(fake.terms.run_id, seconds=60)
    assert spent_at(files["west"]).epsilon == 4


def test_the_audit_shows_what_was_spent(files, capsys):
    assert run(files, privacy="4")[0]["state"] == "done"
    west = files["west"].path
    west.write_text(west.read_text() + "[consent]\nmax_epsilon = 16\n")
    show_audit(settings=west)
    assert "ε 4 in 1 run of at most 16" in capsys.readouterr().out
    show_audit(settings=west, json=True)
    found = json.loads(capsys.readouterr().out)["privacy"][""]
    assert found == {"epsilon": "4", "delta": "1/1000000", "n_private": 1, "n_open": 0}


def test_private_models_are_forests_whatever_the_scorer(files):
    account, _ = run(files, Limits(model_families=["linear"]), privacy="4")
    assert "of the family 'forest', which may not leave it" in account["message"]
    assert run(files, Limits(model_families=["forest"]), privacy="4")[0]["state"] == "done"


@pytest.mark.parametrize("composite", ["max", "min"])
def test_a_composite_in_which_one_peer_decides_must_be_named(composite):
    for regime, is_refused in (("full", True), ("joint", True), ("counts", False)):
        limits = Limits(regimes=(regime,))
        found = limits.objection(terms(regime=regime, composite=composite))
        assert ("is not among those this site agrees to" in found) is is_refused
        named = replace(limits, composites=("auto", composite))
        assert named.objection(terms(regime=regime, composite=composite)) == ""
        assert limits.objection(terms(regime=regime, composite="auto")) == ""


def test_what_may_come_in_is_bounded():
    stump = Forest([0, -1, -1], [0.5, 0, 0], [1, 1, 2], [0, 0.1, 0.8], [0], n_features=1)
    exact, coded = encode(stump), encode(stump, bits=4)
    limits = Limits()
    assert objection_to_model_in(limits, coded) == ""
    assert objection_to_model_in(limits, b"no model") == ""  # the decoder refuses it
    assert "numbers in float64, and this site takes 16" in objection_to_model_in(limits, exact)
    assert objection_to_model_in(replace(limits, max_bits="float64"), exact) == ""
    few = replace(limits, max_nodes_in=2)
    assert "has 3 nodes, and this site takes 2 at most" in objection_to_model_in(few, coded)
    linear = replace(limits, model_families=("linear",))
    assert "the family 'forest', which this site does not take" in objection_to_model_in(
        linear, coded
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [(0, "from 1"), (2.5, "whole number"), ("three", "whole number"), (True, "whole number")],
)
def test_the_smallest_group_is_a_number_or_the_own_rule(rows, words):
    with pytest.raises(InputError, match=words):
        Limits(min_group_rows=rows)
    assert Limits().own_group_rows is None
    assert Limits(min_group_rows=7).own_group_rows == 7


def test_a_model_that_is_too_large_ends_the_run(files):
    limits = dict.fromkeys(SITES, Limits(regimes=("full",), max_nodes_in=1))
    account = FakeNVFlare(terms(regime="full"), files, limits).run()
    assert account["state"] == "failed"
    assert "nodes, and this site takes 1 at most" in account["message"]
