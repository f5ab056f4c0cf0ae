"""Drivers without NVFlare: consent, deadlines, and who publishes what."""

import json
import threading
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from support.certificates import authority, credentials
from support.fake_nvflare import FakeNVFlare
from support.federation import SCORER, SITES, give_secret, in_one_process, run_id_of_network
from support.forgeries import assert_every_forgery_is_found
from support.mixed import SCHEMA, mixed_agents
from support.terms import make_terms

import conovel as cn
from conovel.cli.run import _print_account
from conovel.deciding.committed import Committing
from conovel.federation.consent import Limits
from conovel.federation.processes import wait_for
from conovel.federation.session import checked
from conovel.federation.settings import read_site
from conovel.federation.terms import Terms
from conovel.protocol.replay import verify
from conovel.rows.storage import write_table
from conovel.spec.run_spec import site_seed

TABLE = {
    "site": '[site]\nname = "{name}"\nkit = "kit"\n',
    "data": '[data]\nnull = "normal.parquet"\ntest = "test.csv"\nid = "who"\n',
}


@pytest.fixture
def files(rows, tmp_path):
    """Write the settings and rows of three sites; read them as an agent does."""
    found = {}
    for name, (null, test) in rows.items():
        folder = tmp_path / name
        folder.mkdir()
        write_table(folder / "normal.parquet", null)
        ids = np.array([f"{name}-{i}" for i in range(len(test["x0"]))])
        pa_csv.write_csv(pa.table({"who": ids, **test}), folder / "test.csv")
        text = "\n".join(TABLE.values()).format(name=name)
        (folder / "site.toml").write_text(f'{text}\n[model]\nscorer = "{SCORER}"\n')
        found[name] = read_site(folder / "site.toml")
    return found


def terms(**more):
    return make_terms(
        SITES, **({"regime": "full", "bits": 4, "call_seconds": 5, "stage_seconds": 20} | more)
    )


def agreeing_to(regime):
    """What sites agree to that name this regime; `joint` must be named."""
    return dict.fromkeys(SITES, Limits(regimes=(regime,)))


def states(fake):
    return {name: site.record.content["state"] for name, site in fake.sites.items()}


def messages(fake):
    return {name: site.record.content["message"] for name, site in fake.sites.items()}


def states_of(files):
    return {name: file.state for name, file in files.items()}


def published(files):
    return {name for name, file in files.items() if any(file.results.glob("*/run.json"))}


@pytest.mark.parametrize(
    "regime",
    ["full", "counts", "isolated", "split", "conservative", "joint", "consensus", "together"],
)
def test_every_regime_as_in_one_process(regime, files, rows, capsys):
    masks = regime in ("together", "consensus")  # no site takes part without
    options = {"regime": regime, "composite": "mean", "bits": 4, "scorer": SCORER, "masks": masks}
    network = in_one_process(rows, states_of(files), 5, train_fraction="1/2", **options)
    expected = network.run()
    asked = terms(
        regime=regime,
        masks=masks,
        composite="mean",
        train_fraction="1/2",
        seed=5,
        run_id=run_id_of_network(network),
    )
    fake = FakeNVFlare(asked, files, agreeing_to(regime))
    account = fake.run()
    assert account["state"] == "done", account["message"]
    assert json.dumps(account["transcript"]) == json.dumps(expected.transcript.to_dict())
    assert verify(account) == []
    assert states(fake) == dict.fromkeys(SITES, "done")
    _print_account(account)
    told, said = f"rows flagged {expected.n_rejected} in all", capsys.readouterr().out
    assert (told in " ".join(said.split())) is (regime not in ("isolated", "conservative"))
    assert f"regime {regime}" in " ".join(said.split())
    for name, file in files.items():
        table = pq.read_table(file.results / asked.run_id / "decisions.parquet")
        assert np.array_equal(table["rejected"].to_numpy(), expected[name].rejected)
        assert table["id"][0].as_py() == f"{name}-0"
        own = json.loads((file.results / asked.run_id / "run.json").read_text())
        assert own["warnings"] == [one.to_dict() for one in expected[name].warnings]
    assert "warnings" not in account  # findings stay at their site


@pytest.fixture
def mixed(tmp_path):
    """Write sites with categories and missing values, in files of three dialects."""
    rows = mixed_agents(SITES)
    found = {}
    for name, separator, memory in zip(SITES, ",;\t", ("", "", 'memory = "1GB"\n'), strict=True):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "schema.toml").write_text(SCHEMA.to_toml())
        options = pa_csv.WriteOptions(delimiter=separator)
        for part, table in zip(("null", "test"), rows[name], strict=True):
            pa_csv.write_csv(table, folder / f"{part}.csv", options)
        (folder / "site.toml").write_text(
            TABLE["site"].format(name=name)
            + f'[data]\nnull = "null.csv"\ntest = "test.csv"\nid = "who"\n{memory}'
            + f'schema = "schema.toml"\n[model]\nscorer = "{SCORER}"\n'
        )
        give_secret(folder / "state", 0xA1 + len(found))
        found[name] = read_site(folder / "site.toml")
    return rows, found


@pytest.mark.parametrize("regime", ["full", "joint"])
def test_mixed_columns_as_in_one_process(regime, mixed):
    rows, files = mixed
    options = {"regime": regime, "bits": 4, "scorer": SCORER, "level": "0.2", "schema": SCHEMA}
    network = in_one_process(rows, states_of(files), 5, **options)
    expected = network.run()
    assert expected.n_rejected > 0
    del options["scorer"]
    asked = terms(**options, seed=5, run_id=run_id_of_network(network))
    account = FakeNVFlare(asked, files, agreeing_to(regime)).run()
    assert account["state"] == "done", account["message"]
    assert json.dumps(account["transcript"]) == json.dumps(expected.transcript.to_dict())
    assert verify(account) == []
    assert "levels" not in json.dumps(account["transcript"])  # a hello has digests only
    for name, file in files.items():
        table = pq.read_table(file.results / asked.run_id / "decisions.parquet")
        assert np.array_equal(table["score"].to_numpy(), expected[name].scores)
        assert np.array_equal(table["rejected"].to_numpy(), expected[name].rejected)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": "ignore"}, "the column 'size' is another"),
        ({"new": "number"}, "the column 'new' is unknown"),
        (None, "only one of the two has a schema"),
    ],
)
def test_a_site_takes_its_own_schema_and_no_other(change, words, mixed):
    _, files = mixed
    schema = None if change is None else cn.Schema.from_dict(SCHEMA.to_dict() | change)
    own = files["north"].schema
    limits = files["north"].limits
    assert limits.objection_to_schema(terms(schema=SCHEMA), own) == ""
    assert words in limits.objection_to_schema(terms(schema=schema), own)


def test_a_table_without_a_schema_is_refused_by_the_site(mixed):
    _, files = mixed
    files = {name: replace(file, schema=None) for name, file in files.items()}
    fake = FakeNVFlare(terms(regime="full"), files, agreeing_to("full"))
    assert fake.run()["state"] == "failed"
    # The first site that fails ends the run for the others.
    assert any("not numeric: 'size'" in message for message in messages(fake).values())


@pytest.mark.parametrize("of", SITES)
def test_a_site_refuses_a_schema_of_its_own_normals(of, mixed):
    """Files of the three dialects, the last of them read in pieces."""
    rows, files = mixed
    schema = cn.infer_schema(rows[of][0], kinds=SCHEMA.to_dict())
    assert schema == SCHEMA
    files = {name: replace(file, schema=schema) for name, file in files.items()}
    fake = FakeNVFlare(terms(regime="full", schema=schema), files, agreeing_to("full"))
    assert fake.run()["state"] == "failed"
    assert "from the known normals and not from the test rows" in messages(fake)[of]


def test_a_site_that_leaves_out_a_column_has_another_schema(mixed):
    _, files = mixed
    path = files["north"].path
    path.write_text(path.read_text().replace("[data]\n", '[data]\nexclude = ["size"]\n'))
    refused = files["north"].limits.objection_to_schema(
        terms(schema=SCHEMA), read_site(path).schema
    )
    assert "the column 'size' is another" in refused


def test_the_defaults_are_those_of_one_process(files, rows):
    options = {"scorer": SCORER, "regime": "together", "masks": True}
    network = in_one_process(rows, states_of(files), 0, **options)
    expected = network.run()
    asked = make_terms(SITES, run_id=run_id_of_network(network), masks=True)
    assert asked.spec == Terms(SITES).spec
    account = FakeNVFlare(asked, files, agreeing_to("together")).run()
    assert json.dumps(account["transcript"]) == json.dumps(expected.transcript.to_dict())


@pytest.mark.parametrize("regime", ["full", "isolated", "joint"])
def test_every_value_of_an_account_and_of_a_sites_record_is_checked_or_named(regime, files):
    asked = terms(regime=regime, pi0=None if regime == "joint" else "storey")
    account = FakeNVFlare(asked, files, agreeing_to(regime)).run()
    assert account["state"] == "done"
    assert_every_forgery_is_found(json.loads(json.dumps(account)))
    record = files["west"].results / asked.run_id / "run.json"
    assert_every_forgery_is_found(json.loads(record.read_text()))


def test_joint_is_refused_by_a_site_that_does_not_name_it(files):
    account = FakeNVFlare(terms(regime="joint"), files).run()
    assert "regime 'joint' is not among those this site agrees to" in account["message"]
    assert published(files) == set()


def test_a_refusal_ends_the_run_before_it_begins(files):
    limits = {"west": Limits(regimes=("counts",))}
    fake = FakeNVFlare(terms(regime="full"), files, limits)
    account = fake.run()
    assert account["fault"] == "RefusedError"
    assert account["culprit"] == "west"
    assert "west refuses: regime 'full' is not among" in account["message"]
    assert not published(files)


@pytest.mark.parametrize("what", ["another secret", "another run"])
def test_another_secret_or_run_is_another_split(what, files):
    decisions, seeds, known = [], [], bytes([1] * 32)
    for number in (1, 2 if what == "another secret" else 1):
        give_secret(files["south"].state, number)
        asked = terms(seed=3)
        fake = FakeNVFlare(asked, files)
        assert fake.run()["state"] == "done"
        table = files["south"].results / asked.run_id / "decisions.parquet"
        decisions.append(pq.read_table(table)["rank"].to_pylist())
        seeds.append(fake.sites["south"].record.content["seed"])
        own = site_seed(known, 3, "south", asked.run_id)
        assert (own == seeds[-1]) is (number == 1)  # what is on record repeats the run
    assert seeds[0] != seeds[1]
    assert decisions[0] != decisions[1]


def kinds(fake):
    """Tell which messages reached the coordinator or a site."""
    transcripts = [site.driver.transcript for site in fake.sites.values()]
    return {e.kind for t in (fake.coordinator.transcript, *transcripts) for e in t.entries}


@pytest.mark.parametrize("regime", ["full", "split", "conservative"])
@pytest.mark.parametrize("on_dropout", ["abort", "conservative"])
@pytest.mark.parametrize("memory", [None, "1GB"])
def test_no_model_is_learnt_from_one_row(regime, on_dropout, memory, files, monkeypatch):
    monkeypatch.setattr("conovel.site.site.fit_best", None)  # which would make a model
    files = {name: replace(file, memory=memory) for name, file in files.items()}
    asked = terms(regime=regime, train_fraction="1/1000", on_dropout=on_dropout)
    fake = FakeNVFlare(asked, files)
    account = fake.run()
    assert account["state"] == "failed"
    assert account["culprit"] in SITES
    assert "refuses: with train_fraction 1/1000 fewer of its known normals" in account["message"]
    assert "leave it out, or the site lowers min_train_share" in account["message"]
    assert wait_for(lambda: "running" not in states(fake).values(), 5)
    assert kinds(fake) <= {"HELLO", "ABORT"}
    assert not published(files)
    culprit = account["culprit"]
    n = "333" if regime == "split" else "1,000"
    assert f"1 of {n} would train, and" in messages(fake)[culprit]
    assert n not in account["message"]  # how many rows it has is not told to its peers


def test_nor_from_a_mixture_of_a_few(files):
    files["west"].test.write_text("\n".join(files["west"].test.read_text().split("\n")[:4]))
    limits = dict.fromkeys(SITES, Limits(min_calibration_rows=1))
    fake = FakeNVFlare(terms(train_fraction="999/1000"), files, limits)
    account = fake.run()
    assert (
        "west refuses: with train_fraction 999/1000 fewer than 20 calibration and test rows"
        in (account["message"])
    )
    assert "MODEL" not in kinds(fake)


def test_a_small_site_lowers_its_limit_or_stays_away(files, rows):
    null = rows["west"][0]
    write_table(files["west"].null, {name: values[:30] for name, values in null.items()})
    account = FakeNVFlare(terms(), files).run()
    assert (
        "west refuses: without a train_fraction fewer than 20 of its known normals would train its"
        " model: choose a larger one, or the site brings more rows or lowers min_train_rows"
    ) in account["message"]
    agreed = FakeNVFlare(terms(), files, {"west": Limits(min_train_rows=5)}).run()
    assert agreed["state"] == "done", agreed["message"]
    # Where no model leaves there is nothing to refuse.
    assert FakeNVFlare(terms(regime="counts"), files).run()["state"] == "done"


def test_the_blocks_of_a_smaller_roster_are_weighed_again(files, monkeypatch):
    monkeypatch.setattr("conovel.site.site.fit_best", None)
    asked = terms(regime="split", train_fraction="2/5", on_dropout="conservative")
    fake = FakeNVFlare(asked, files)  # 2/5 of blocks of 333 is enough, of 500 it is not
    fake.cut_off.add("south")
    account = fake.run()
    assert "refuses: with train_fraction 2/5 fewer of its known normals" in account["message"]
    assert "MODEL" not in kinds(fake)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(max_bytes_in=300), "west refuses: more than 300 bytes came in"),
        (Limits(min_agents=3), "west refuses: a run of 2 agents is too small"),
    ],
)
def test_a_refusal_during_the_run_is_told_to_all(limits, said, files):
    fake = FakeNVFlare(terms(on_dropout="conservative"), files, {"west": limits})
    if limits.min_agents == 3:  # somebody is gone before the roster
        fake.cut_off.add("south")
    account = fake.run()
    assert said in account["message"]
    assert wait_for(lambda: "failed" in states(fake)["north"], 5)
    assert said in messages(fake)["north"]
    assert not published(files)


def test_a_site_that_vanishes_ends_the_run(files):
    fake = FakeNVFlare(terms(), files)
    fake.cut_off.add("south")
    account = fake.run()
    assert (account["fault"], account["culprit"]) == ("SiteVanishedError", "south")
    assert not published(files)


def test_or_is_left_out_where_the_terms_say_so(files):
    fake = FakeNVFlare(terms(on_dropout="conservative"), files)
    fake.cut_off.add("south")
    account = fake.run()
    assert account["state"] == "done", account["message"]
    assert account["outcome"]["left_out"] == ["south"]
    assert "Left out before the counts: south" in account["guarantee"]
    assert published(files) == {"north", "west"}


def test_a_silent_site_is_given_up_at_its_deadline(files):
    fake = FakeNVFlare(terms(stage_seconds=0.5), files)
    fake.mute.add("south")
    account = fake.run()
    assert account["message"] == "south did not answer within 0.5 s"
    assert not published(files)


@pytest.mark.parametrize("on_dropout", ["abort", "conservative"])
def test_who_waits_for_the_models_of_others_is_not_blamed(on_dropout, files):
    fake = FakeNVFlare(terms(stage_seconds=2, on_dropout=on_dropout), files)
    west = fake.sites["west"].driver._site
    west.models = lambda index, names, weight: time.sleep(5) or {}
    account = fake.run()
    if on_dropout == "abort":
        assert account["message"] == "west did not answer within 2 s"
    else:
        assert account["outcome"]["left_out"] == ["west"]
        assert published(files) == {"north", "south"}


def test_noise_of_a_site_that_was_given_up_ends_nothing(files):
    driver = FakeNVFlare(terms(on_dropout="conservative"), files).coordinator
    driver._coordinator.drop("west")
    driver._receive(b"noise", "west")
    assert driver._coordinator.error is None
    driver._receive(b"noise", "north")
    assert driver._coordinator.error.culprit == "north"


def test_a_run_that_takes_too_long_ends(files):
    fake = FakeNVFlare(terms(run_seconds=0.5), files)
    fake.mute.add("south")
    account = fake.run()
    assert "no outcome within 0.5 s" in account["message"]
    assert wait_for(lambda: set(states(fake).values()) == {"failed"}, 5)


def test_a_site_does_not_wait_for_its_coordinator_for_ever(files):
    fake = FakeNVFlare(terms(run_seconds=0.5), files)
    fake.coordinator.take = lambda data, sender: None
    fake.sites["north"].driver.begin()
    assert wait_for(lambda: states(fake)["north"] == "failed", 5)
    assert messages(fake)["north"] == "no outcome within 0.5 s"


def test_what_goes_wrong_at_a_site_stays_there_but_for_its_kind(files):
    files["west"].null.write_bytes(b"no Parquet at all: patient 4711")
    fake = FakeNVFlare(terms(), files)
    account = fake.run()
    assert "west could not go on (FileError)" in account["message"]
    assert "4711" not in json.dumps(account)
    assert wait_for(lambda: states(fake)["west"] == "failed", 5)
    assert "normal.parquet" in messages(fake)["west"]


def test_nobody_publishes_before_everybody_has_the_outcome(files):
    fake = FakeNVFlare(terms(), files)

    def settle(names):
        fake.cut_off.add("south")
        return FakeNVFlare.settle(fake, names)

    fake.settle = settle
    account = fake.run()
    assert "south did not confirm the outcome" in account["message"]
    assert wait_for(lambda: states(fake)["north"] == "failed", 5)
    assert not published(files)


def test_a_site_without_room_for_its_decisions_is_named(files):
    fake = FakeNVFlare(terms(), files)
    files["south"].results.parent.joinpath("results").write_text("in the way")
    account = fake.run()
    assert account["state"] == "done"
    assert set(account["unpublished"]) == {"south"}
    assert states(fake)["south"] == "failed"
    assert published(files) == {"north", "west"}


def test_publishing_needs_a_settled_run(files):
    fake = FakeNVFlare(terms(), files)
    with pytest.raises(cn.errors.LocalProtocolError, match="not confirmed"):
        fake.sites["north"].driver.publish(5)


HOSTILE = [
    [["north", 10]],
    [["north", 10, None], ["north", 10, None]],
    [["south", 10, None]],
    [["nobody", 10, 1.0]],
    [["west", -1, None]],
    [["west", 9, float("nan")]],
    [["west", 9, "many"]],
    [[["west"], 9, None]],
    [7],
    7,
    "models",
]


@pytest.mark.parametrize("sizes", HOSTILE)
def test_sizes_of_models_that_are_none_end_the_run(sizes, files):
    fake = FakeNVFlare(terms(), files)

    def settle(names):
        replies = FakeNVFlare.settle(fake, names)
        replies.values["south"] = sizes
        return replies

    fake.settle = settle
    account = fake.run()
    assert (account["fault"], account["culprit"]) == ("MalformedMessageError", "south")
    assert not published(files)


def test_a_coordinator_takes_no_large_message(files):
    fake = FakeNVFlare(terms(), files)
    fake.coordinator.take(bytes(1 << 21), "south")
    account = fake.run()
    assert (account["fault"], account["culprit"]) == ("MalformedMessageError", "south")
    assert "south sent 2,097,152 bytes" in account["message"]
    assert not published(files)


def test_what_is_too_much_for_a_site_does_not_wait_in_its_queue(files):
    fake = FakeNVFlare(terms(), files, {"west": Limits(max_bytes_in=1000)})
    west = fake.sites["west"].driver
    busy = threading.Event()
    west._worker.do(busy.wait)
    handed = []
    receive = west._receive
    west._receive = lambda data, sender: handed.append(data) or receive(data, sender)
    for _ in range(3):
        west.take(bytes(600), "north")
    busy.set()
    west._worker.do(int).result()
    assert len(handed) == 1


@pytest.mark.parametrize("on_dropout", ["abort", "conservative"])
def test_an_operator_believes_an_account_that_holds(on_dropout, files):
    fake = FakeNVFlare(terms(on_dropout=on_dropout), files)
    fake.cut_off.add("south")
    account = json.loads(json.dumps(fake.run()))
    assert checked(account, fake.terms) == account


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "another"}, "no account that could be read"),
        ({"message": 7}, "no account that could be read"),
        ({"terms": {}}, "of another run"),
        ({"transcript": 7}, "does not hold"),
        ({"outcome": {"n_rejected": 0}}, "does not hold"),
        ({"state": "neither"}, "no account that could be read"),
    ],
)
def test_and_no_other(change, said, files):
    fake = FakeNVFlare(terms(regime="counts"), files)
    account = json.loads(json.dumps(fake.run()))
    with pytest.raises(cn.errors.FederationError, match=said):
        checked(account | change, fake.terms)


def test_a_person_can_stop_a_run(files):
    fake = FakeNVFlare(terms(), files)
    fake.mute.add("south")
    threading.Timer(0.5, fake.coordinator.stop, ["an operator stopped it"]).start()
    account = fake.run()
    assert account["message"] == "an operator stopped it"
    assert wait_for(lambda: "failed" in states(fake)["north"], 5)
    assert "an operator stopped it" in messages(fake)["north"]


def test_progress_tells_who_is_waited_for(files):
    fake = FakeNVFlare(terms(stage_seconds=2), files)
    fake.mute.add("south")
    runner = threading.Thread(target=fake.run)
    runner.start()
    assert wait_for(lambda: fake.coordinator.progress()["owing"] == ["south"], 10)
    progress = fake.coordinator.progress()
    assert progress["here"] == ["north", "west"]
    assert progress["state"] == "gathering"
    runner.join()


def test_a_site_may_say_how_its_own_model_is_sent(files):
    small = {name: replace(file, bits=1) for name, file in files.items() if name == "west"}
    account = FakeNVFlare(terms(bits=16), files | small).run()
    sizes = {row[1]: row[4] for row in account["transcript"]["messages"] if row[3] == "MODEL"}
    assert sizes["west"] < sizes["north"]


def test_a_model_that_the_relay_replaces_is_refused_and_the_relay_is_named(files):
    fake = FakeNVFlare(terms(), files)
    seen = []

    def replace(sender, receiver, data):
        """Deliver a genuine model of another run, as it is, in the name of south."""
        if sender == "south" and receiver == "north":
            seen.append(data)
            return seen[0][-400:]
        return data

    fake.replace = replace
    account = fake.run()
    assert seen
    assert account["state"] == "failed"
    assert "north got a message that is not signed by south" in account["message"]
    assert "the relay, which is the coordinator, may have replaced it" in account["message"]
    assert published(files) == set()
    assert wait_for(lambda: states(fake) == dict.fromkeys(SITES, "failed"), 10)


def test_a_site_with_a_revoked_certificate_is_refused_by_the_coordinator(files):
    fake = FakeNVFlare(terms(regime="counts"), files)
    fake.authority = authority(credentials("south").certificate)
    account = fake.run()
    assert (account["fault"], account["culprit"]) == ("SignatureError", "south")
    assert "a message of south was refused: its certificate was revoked" in account["message"]
    assert published(files) == set()


# Committed counting --------------------------------------------------------------------------


def without_nonces(transcript):
    """A transcript without what sites draw at random: nonces, and so commitments."""
    reveals = {name: one | {"nonce": ""} for name, one in transcript["reveals"].items()}
    names = sorted(transcript["commitments"])
    return json.dumps(transcript | {"commitments": names, "reveals": reveals})


@pytest.mark.parametrize(
    ("regime", "more"),
    [
        ("full", {"reveal_to": "members"}),
        ("counts", {"liars": 1}),
        ("split", {}),
        ("joint", {"liars": 1, "reveal_to": "members"}),
    ],
)
def test_committed_counts_as_in_one_process(regime, more, files, rows, capsys):
    more = {"counting": "committed"} | more
    options = {"regime": regime, "composite": "mean", "bits": 4, "scorer": SCORER}
    network = in_one_process(rows, states_of(files), 5, train_fraction="1/2", **options, **more)
    expected = network.run()
    run_id = run_id_of_network(network)
    asked = {"regime": regime, "composite": "mean", "train_fraction": "1/2", "seed": 5}
    asked = terms(**asked, **more, run_id=run_id)
    limits = dict.fromkeys(SITES, Limits(regimes=(regime,), reveal_to="members"))
    account = FakeNVFlare(asked, files, limits).run()
    assert account["state"] == "done", account["message"]
    told = account["transcript"]
    assert without_nonces(told) == without_nonces(expected.transcript.to_dict())
    nonces = {reveal["nonce"] for reveal in told["reveals"].values()}
    assert len(nonces) == len(SITES)
    assert verify(account) == []
    _print_account(account)
    assert "counting committed" in " ".join(capsys.readouterr().out.split())
    for name, file in files.items():
        folder = file.results / asked.run_id
        table = pq.read_table(folder / "decisions.parquet")
        assert np.array_equal(table["rejected"].to_numpy(), expected[name].rejected)
        own = json.loads((folder / "run.json").read_text())
        assert verify(own) == []
        seen = set(own["transcript"]["reveals"])
        assert seen == (set(SITES) if "reveal_to" in more else {name})


@pytest.mark.parametrize(
    ("regime", "reveal_to"),
    [
        ("full", "coordinator"),
        pytest.param("counts", "members", marks=pytest.mark.slow),
        pytest.param("joint", "members", marks=pytest.mark.slow),
    ],
)
def test_every_value_of_committed_counts_is_checked_or_named(regime, reveal_to, files):
    asked = terms(regime=regime, counting="committed", reveal_to=reveal_to, liars=1)
    limits = dict.fromkeys(SITES, Limits(regimes=(regime,), reveal_to="members"))
    account = FakeNVFlare(asked, files, limits).run()
    assert account["state"] == "done", account["message"]
    assert_every_forgery_is_found(json.loads(json.dumps(account)))
    record = files["west"].results / asked.run_id / "run.json"
    assert_every_forgery_is_found(json.loads(record.read_text()))


@pytest.mark.parametrize(
    ("limits", "more", "said"),
    [
        ({"min_liars": 1}, {}, "a run that tolerates 0 lying members is refused"),
        ({}, {"reveal_to": "members"}, "counts would be revealed to all members"),
    ],
)
def test_a_site_asks_for_tolerance_and_says_who_sees_its_counts(limits, more, said, files):
    asked = terms(regime="counts", counting="committed", **more)
    account = FakeNVFlare(asked, files, {"west": Limits(**limits)}).run()
    assert account["fault"] == "RefusedError"
    assert said in account["message"]
    assert not published(files)
    # Where there are no counts, nobody can lie about them.
    assert Limits(**limits).objection(terms(regime="isolated")) == ""


def test_a_site_that_does_not_open_its_commitment_ends_the_run(files):
    asked = terms(regime="counts", counting="committed", liars=1, stage_seconds=1)
    fake = FakeNVFlare(asked, files)
    agent = fake.sites["south"].driver._agent
    agent.deciding.open = lambda told: (Committing.REVEALED, [])
    account = fake.run()
    assert (account["fault"], account["culprit"]) == ("SiteVanishedError", "south")
    assert not published(files)
