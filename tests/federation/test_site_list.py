"""The list over several batches between sites, on drivers without NVFlare."""

import json
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.fake_nvflare import FakeNVFlare
from support.federation import SCORER, SITES, in_one_process
from support.forgeries import assert_every_forgery_is_found
from support.terms import make_terms
from typer.testing import CliRunner

import conovel as cn
from conovel.cli import app
from conovel.cli.run import _print_account
from conovel.federation.consent import Limits
from conovel.federation.processes import wait_for
from conovel.federation.settings import read_site
from conovel.federation.site_list import Standing, objection_to
from conovel.protocol.replay import verify
from conovel.report.page import story_of
from conovel.rows.storage import write_table
from conovel.spec.bodies import Kind

LEVEL = Fraction(1, 5)
pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")
OPTIONS = {"composite": "mean", "bits": 4, "train_fraction": "1/2"}


def columns(X):
    return {f"x{j}": X[:, j] for j in range(X.shape[1])}


def normals(seed=1):
    rng = np.random.default_rng(seed)
    return {name: columns(rng.normal(size=(240, 3))) for name in SITES}


def batch(day, n_novel=4, n_tests=20):
    rng = np.random.default_rng([day, 2])
    rows = {}
    for name in SITES:
        X = rng.normal(size=(n_tests, 3))
        X[:n_novel] += 6
        rows[name] = columns(X)
    return rows


class Sites:
    """The folders of all sites, and runs between them."""

    def __init__(self, folder):
        self.folder, self.null = folder, normals()
        self.day, self.ids = None, {}  # the batch of now, and the last run of each batch
        for name in SITES:
            (folder / name).mkdir(parents=True)
            write_table(folder / name / "normal.parquet", self.null[name])
            self.write(name)

    def write(self, name, listed='[list]\nname = "april"\nledger = "april.json"\n', data=""):
        (self.folder / name / "site.toml").write_text(
            f'[site]\nname = "{name}"\nkit = "kit"\n[data]\nnull = "normal.parquet"\n'
            f'test = "test.parquet"\n{data}[model]\nscorer = "{SCORER}"\n{listed}'
        )

    @property
    def files(self):
        return {name: read_site(self.folder / name / "site.toml") for name in SITES}

    def path(self, name):
        return self.folder / name / "april.json"

    def bring(self, day, n_novel=4):
        self.day = day
        for name, rows in batch(day, n_novel).items():
            write_table(self.folder / name / "test.parquet", rows)

    def fake(self, day=None, n_novel=4, regime="full", **more):
        """Make the parties of a run over a batch."""
        if day is not None:
            self.bring(day, n_novel)
        settings = {"level": LEVEL / 2, "list_name": "april", "seed": 5, "call_seconds": 5}
        asked = make_terms(SITES, **OPTIONS | {"regime": regime} | settings | more)
        self.ids[self.day] = asked.run_id
        limits = dict.fromkeys(SITES, Limits(regimes=("full", "joint", "counts")))
        return FakeNVFlare(asked, self.files, limits)

    def run(self, day=None, n_novel=4, **more):
        return self.fake(day, n_novel, **more).run()

    def ledgers(self):
        return {name: cn.Ledger.load(self.path(name)) for name in SITES}

    def texts(self):
        found = (path for path in self.folder.glob("*/april.json*"))
        return {path: path.read_text() for path in found}

    def results(self, name, run_id):
        return self.folder / name / "results" / run_id


@pytest.fixture
def sites(tmp_path):
    return Sites(tmp_path / "sites")


def in_process(sites, day, folder, regime):
    rows = {name: (sites.null[name], rows) for name, rows in batch(*day).items()}
    states = {name: file.state for name, file in sites.files.items()}
    options = {"level": LEVEL, "regime": regime, "scorer": SCORER, **OPTIONS}
    return in_one_process(rows, states, 5, sites.ids[day[0]], ledger=folder, **options).run()


def quick_only(names, quick):
    """Mark all but one case as slow."""
    return [n if n == quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


def test_a_site_that_changes_its_scorer_is_refused_by_its_own_ledger(sites):
    assert sites.run(0)["state"] == "done"
    path = sites.folder / SITES[1] / "site.toml"
    path.write_text(path.read_text().replace(f'scorer = "{SCORER}"', 'scorer = "boosting"'))
    account = sites.run(1)
    assert account["state"] == "failed"
    assert "this batch has another scorer than the earlier ones" in account["message"]
    assert {len(ledger.entries) for ledger in sites.ledgers().values()} == {1}


@pytest.mark.parametrize("regime", quick_only(["full", "joint"], "joint"))
def test_the_lists_of_a_federation_are_those_of_one_process(regime, sites, tmp_path, capsys):
    for day in [(0, 4), (1, 1), (2, 5)]:
        account = sites.run(*day, regime=regime)
        expected = in_process(sites, day, tmp_path / "ledgers", regime)
        assert account["state"] == "done", account["message"]
        assert not account["unpublished"]
        run_id = account["terms"]["run_id"]
        told, plain = account["ledger"], expected.to_dict()["ledger"]
        assert told["rounds"] == plain["rounds"]
        assert (told["guarantee"], told["level"]) == (plain["guarantee"], plain["level"])
        assert told["n_listed_in_all"] == sum(site.ledger.n_listed for site in expected.values())
        assert verify(account) == []
        for name in SITES:
            assert sites.path(name).read_text() == (tmp_path / f"ledgers/{name}.json").read_text()
            table = pq.read_table(sites.results(name, run_id) / "decisions.parquet")
            for column, values in expected[name].columns().items():
                assert np.array_equal(table[column].to_numpy(), values, equal_nan=True), column
            own = json.loads((sites.results(name, run_id) / "run.json").read_text())
            assert verify(own) == []
            assert own["ledger"]["sites"] == {name: plain["sites"][name]}
    assert sum(ledger.n_listed for ledger in sites.ledgers().values()) > 0
    assert "joined" not in json.dumps(account)  # which rows they are stays at the sites
    _print_account(account)
    assert "list so far" in capsys.readouterr().out
    for record in (account, own):
        assert story_of(record).sections[0].title == "The list so far"
    assert_every_forgery_is_found(json.loads(json.dumps(account)))
    assert_every_forgery_is_found(own)


def kinds(fake):
    return {e.kind for site in fake.sites.values() for e in site.driver.transcript.entries}


def die(fake, name):
    """Let a site vanish: nothing reaches it any more, and the system drops its lock."""
    fake.cut_off.add(name)
    fake.sites[name].driver._listing.close()


def is_over(fake):
    ended = {n: s.record for n, s in fake.sites.items() if n not in fake.cut_off}
    return wait_for(lambda: not any(record.is_open for record in ended.values()), 10)


def goes_on(sites, tmp_path, days):
    """Run until the sites have tested these batches; they have the ledgers of one process."""
    account = sites.run(*days[-1])
    assert account["state"] == "done", account["message"]
    for day in days:
        in_process(sites, day, tmp_path / "ledgers", "full")
    for name in SITES:
        assert sites.path(name).read_text() == (tmp_path / f"ledgers/{name}.json").read_text()
    assert {path.name for path in sites.texts()} == {"april.json"}  # nothing prepared is left


def refusals(sites):
    west = sites.folder / "west"

    def without_list():
        sites.write("west", listed="")

    def another_list():
        sites.write("west", listed='[list]\nname = "may"\nledger = "april.json"\n')

    def in_pieces():
        sites.write("west", data='memory = "1GB"\n')

    def seen():
        write_table(west / "test.parquet", batch(0)["west"])

    def other_normals():
        write_table(west / "normal.parquet", normals(7)["west"])

    def other_columns():
        for name, rows in (("normal", sites.null["west"]), ("test", batch(1)["west"])):
            write_table(west / f"{name}.parquet", dict(zip("abc", rows.values(), strict=True)))

    def no_ledger():
        sites.path("west").unlink()

    def damaged():
        sites.path("west").write_text(sites.path("west").read_text().replace("1/5", "1/4"))

    def damaged_batch():
        (west / "april.json.prepared").write_text('{"conovel": "prepared ledger"}')

    yield without_list, "west refuses: it takes part in none and not in the list 'april'"
    yield another_list, "west refuses: it takes part in 'may' and not in the list 'april'"
    yield in_pieces, "west refuses: it reads its files in pieces"
    yield seen, "west refuses: the ledger has seen these rows: they are batch 1"
    yield other_normals, "west refuses: this batch was scored with other known normals"
    yield other_columns, "west refuses: this batch has other columns"
    yield no_ledger, "the ledgers are not about the same batches: north has 1, south has 1, west"
    yield damaged, "west did not tell of its ledger"
    yield damaged_batch, "west did not tell of its ledger"


def test_what_a_site_refuses_before_a_model_exists(sites, tmp_path, monkeypatch):
    assert sites.run(0)["state"] == "done"
    before = sites.texts()
    with monkeypatch.context() as patch:
        patch.setattr("conovel.site.site.fit_best", None)  # which would make a model
        for change, said in refusals(sites):
            sites.bring(1)
            kept = {p: p.read_bytes() for p in (sites.folder / "west").glob("*.*")}
            change()
            fake = sites.fake()
            account = fake.run()
            assert said in account["message"], change.__name__
            assert is_over(fake)
            assert kinds(fake) <= {"HELLO", "ABORT"}
            for path in (sites.folder / "west").glob("*.*"):
                path.unlink()
            for path, data in kept.items():
                path.write_bytes(data)
            assert sites.texts() == before
        for change, said in (
            ({"seed": 6}, "this batch was scored with other known normals"),
            ({"level": "1/20"}, "its ledger has level 1/5, and the list of the run 1/10"),
            ({"level": "1/3"}, "level 2/3 is above the 1/2"),
        ):
            fake = sites.fake(1, **change)
            assert said in fake.run()["message"]
            assert is_over(fake)
    goes_on(sites, tmp_path, [(0, 4), (1, 4)])


@pytest.mark.slow
def test_a_run_by_itself_leaves_the_ledger_alone(sites):
    sites.run(0)
    before = sites.texts()
    account = sites.run(0, list_name="")
    assert account["state"] == "done"
    assert "ledger" not in account
    assert sites.texts() == before


def test_two_runs_of_a_list_at_once(sites):
    sites.run(0)
    first, second = sites.fake(1), sites.fake()
    standing = first.sites["west"].driver.ledger(5)
    assert standing[0] == 1
    account = second.run()
    assert "west did not tell of its ledger" in account["message"]
    assert "is in use by another process" in second.sites["west"].record.content["message"]
    die(first, "west")


def lost_before_its_history(fake):
    fake.sites["south"].driver._listing.begin = lambda site, agent: die(fake, "south") or []


def lost_at(fake, kind):
    listing = fake.sites["south"].driver._listing
    honest = listing.take

    def take(message, sender):
        if message.body.kind is kind:
            die(fake, "south")
            return []
        return honest(message, sender)

    listing.take = take


def lost_before_it_confirms(fake):
    def settle(names):
        die(fake, "south")
        return FakeNVFlare.settle(fake, names)

    fake.settle = settle


def without_room_to_confirm(fake):
    def prepare():
        raise cn.FileError("no space left on the device")

    fake.sites["south"].driver._listing.prepare = prepare


def lost_after_it_confirms(fake):
    def settle(names):
        replies = FakeNVFlare.settle(fake, names)
        die(fake, "south")
        replies.failures["south"] = replies.values.pop("south") and "no answer in time"
        return replies

    fake.settle = settle


BROKEN_OFF = {
    "before its history": lost_before_its_history,
    "before its count": lambda fake: lost_at(fake, Kind.LISTING),
    "before the list reaches it": lambda fake: lost_at(fake, Kind.LISTED),
    "before it confirms": lost_before_it_confirms,
    "without room to confirm": without_room_to_confirm,
    "after it confirms, and its answer is lost": lost_after_it_confirms,
}


SILENT = {"before its history", "before its count"}


@pytest.mark.parametrize(
    "when", quick_only(BROKEN_OFF, "after it confirms, and its answer is lost")
)
def test_a_site_is_lost_before_all_have_confirmed(when, sites, tmp_path):
    """No ledger changes. The same batch can be tested again, or another one."""
    again = when != "before it confirms"
    sites.run(0)
    before = sites.texts()
    # A silent site is noticed at its deadline, the others sooner.
    fake = sites.fake(1, stage_seconds=10 if when in SILENT else 60)
    BROKEN_OFF[when](fake)
    account = fake.run()
    assert account["state"] == "failed", when
    assert "south" in account["message"]
    assert is_over(fake)
    after = {path: text for path, text in sites.texts().items() if path.suffix == ".json"}
    assert after == before
    assert not any((sites.folder / n / "results" / fake.terms.run_id).exists() for n in SITES)
    goes_on(sites, tmp_path, [(0, 4), (1, 4) if again else (2, 3)])


def test_wrong_counts_and_questions_end_the_run(sites):
    for change, culprit, said in (
        (count_too_much, "south", "south counts 1000 rows"),
        (ask_for_too_few, "coordinator", "k must begin at the number of rows"),
    ):
        fake = sites.fake(0)
        change(fake)
        account = fake.run()
        assert said in account["message"]
        assert account["culprit"] == culprit
        assert is_over(fake)
        assert sites.texts() == {}


def count_too_much(fake):
    fake.sites["south"].files.listing._machine._count = lambda k: 1000


def ask_for_too_few(fake):
    machine = fake.coordinator._listing._machine
    ask = machine._ask
    machine._ask = lambda k: ask(k - 1)


def lost_before_it_writes(fake):
    def publish(names):
        die(fake, "south")
        return FakeNVFlare.publish(fake, names)

    fake.publish = publish


def without_room_to_write(fake):
    def commit():
        raise cn.FileError("no space left on the device")

    fake.sites["south"].driver._listing.commit = commit


def stopped_while_sites_write(fake):
    def publish(names):
        replies = FakeNVFlare.publish(fake, ["north"])
        fake.coordinator.stop("an operator stopped it")
        assert wait_for(lambda: not fake.sites["south"].record.is_open, 5)
        later = FakeNVFlare.publish(fake, ["south", "west"])
        return type(replies)(replies.values, later.failures)

    fake.publish = publish


WRITTEN = {
    "before it writes": lost_before_it_writes,
    "without room to write": without_room_to_write,
    "stopped while sites write": stopped_while_sites_write,
}


@pytest.mark.parametrize("when", quick_only(WRITTEN, "before it writes"))
def test_a_site_is_lost_when_others_may_have_written(when, sites, tmp_path):
    """The next run lets every site take the batch that some have."""
    sites.run(0)
    fake = sites.fake(1)
    WRITTEN[when](fake)
    account = fake.run()
    assert "south" in account["unpublished"] or account["state"] == "failed"
    assert is_over(fake)
    assert len(cn.Ledger.load(sites.path("north")).entries) == 2
    assert len(cn.Ledger.load(sites.path("south")).entries) == 1
    told = CliRunner().invoke(app, ["ledger", str(sites.path("south"))]).stdout
    assert "prepared 20 more rows" in " ".join(told.split())
    # The same rows again are refused: they are on the list.
    again = sites.fake()
    assert "the ledger has seen these rows: they are batch 2" in again.run()["message"]
    assert is_over(again)
    sites.ids[1] = fake.run_id  # this run decided about the batch
    assert len(cn.Ledger.load(sites.path("south")).entries) == 2
    goes_on(sites, tmp_path, [(0, 4), (1, 4), (2, 3)])


@pytest.mark.slow
def test_a_site_is_killed_before_it_removes_the_prepared_batch(sites, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("conovel.runs.ledger_file.drop_prepared", lambda path: None)
        assert sites.run(0)["state"] == "done"
    assert len(sites.texts()) == 6
    goes_on(sites, tmp_path, [(0, 4), (1, 4)])


def standing(n, history, prepared="", agents=()):
    return Standing(n, history * 64, prepared * 64, agents)


@pytest.mark.parametrize(
    ("everybody", "said"),
    [
        ({"a": standing(0, "1"), "b": standing(0, "1")}, ""),
        # One has it in its ledger: the other takes what it has prepared, whoever is absent.
        ({"a": standing(1, "2"), "b": standing(0, "1", "2", ("a", "b", "c"))}, ""),
        # Nobody has it: it is given up, whoever has it prepared.
        ({"a": standing(0, "1", "2", ("a", "b")), "b": standing(0, "1")}, ""),
        ({"a": standing(0, "1", "2", ("a", "b")), "b": standing(0, "1", "2", ("a", "b"))}, ""),
        # An absent site may have it in its ledger.
        (
            {"a": standing(0, "1", "2", ("a", "b", "c")), "b": standing(0, "1")},
            "known to c alone",
        ),
        ({"a": standing(1, "2"), "b": standing(0, "1")}, "a has 1, b has 0"),
        ({"a": standing(1, "2"), "b": standing(1, "3")}, "not about the same batches"),
    ],
)
def test_what_becomes_of_a_prepared_batch(everybody, said):
    found = objection_to(everybody)
    assert said in found
    assert bool(said) is bool(found)


HOSTILE = [
    None,
    7,
    {},
    {"north": []},
    {"north": [True, "0" * 64, "", []]},
    {"north": [-1, "0" * 64, "", []]},
    {"north": [0, "0" * 63, "", []]},
    {"north": [0, "0" * 64, "x", []]},
    {"north": [0, "0" * 64, "", [7]]},
    {"north": [0, "0" * 64, "", ["a"] * 201]},
    {"north": [0, "0" * 64, "", [], 1]},
]


@pytest.mark.parametrize("standings", HOSTILE)
def test_standings_of_a_hostile_coordinator(standings, sites):
    sites.bring(0)
    listing = sites.fake().sites["north"].files.listing
    with pytest.raises(cn.errors.LocalProtocolError, match="the ledger is not open"):
        listing.agree({name: [0, "0" * 64, "", []] for name in SITES})
    own = listing.open()
    assert listing.agree(standings) != ""
    assert listing.agree({name: [own[0], "0" * 64, *own[2:]] for name in SITES}) != ""
    assert listing.agree({"north": own}) != ""  # others are left out
    assert listing.agree(dict.fromkeys(SITES, own)) == ""
    with pytest.raises(cn.errors.LocalProtocolError, match="the list has begun"):
        listing.agree(dict.fromkeys(SITES, own))
    listing.close()
    assert not sites.path("north").exists()


def test_a_site_names_its_list(sites):
    file = sites.files["west"]
    assert (file.list_name, file.ledger) == ("april", sites.path("west").resolve())
    for listed in ('[list]\nname = "april"\n', '[list]\nledger = "april.json"\n'):
        sites.write("west", listed=listed)
        with pytest.raises(cn.InputError, match=r"\[list\]: it needs the key"):
            sites.files["west"]
    sites.write("west", listed="")
    assert sites.files["west"].ledger is None


def test_a_list_needs_runs_that_are_evidence():
    for change, said in (
        ({"regime": "isolated"}, "nobody learns how many rows others reject"),
        ({"on_dropout": "conservative"}, "on_dropout at 'abort'"),
        ({"regime": "full", "pi0": "quantile"}, "runs with a proven bound"),
        ({"level": "3/4"}, "level"),
        ({"list_name": "a\nb"}, "name"),
        ({"list_name": 7}, "name"),
    ):
        with pytest.raises(cn.InputError, match=said):
            make_terms(SITES, **{"list_name": "april"} | change)
