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

import conovel as cn
from conovel.drivers.nvflare.consent import Limits
from conovel.drivers.nvflare.settings import read_site
from conovel.protocol.audit import verify
from conovel.site.storage import write_table

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
        for name, rows in batch(day, n_novel).items():
            write_table(self.folder / name / "test.parquet", rows)

    def fake(self, day=None, n_novel=4, regime="full", **more):
        """Make the parties of a run over a batch."""
        if day is not None:
            self.bring(day, n_novel)
        settings = {"level": LEVEL / 2, "list_name": "april", "seed": 5, "call_seconds": 5}
        asked = make_terms(SITES, **OPTIONS | {"regime": regime} | settings | more)
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
    return in_one_process(
        rows, states, 5, level=LEVEL, regime=regime, scorer=SCORER, ledger=folder, **OPTIONS
    ).run()


@pytest.mark.parametrize("regime", ["full", "joint"])
def test_the_lists_of_a_federation_are_those_of_one_process(regime, sites, tmp_path):
    for day in [(0, 4), (1, 1), (2, 5)]:
        expected = in_process(sites, day, tmp_path / "ledgers", regime)
        account = sites.run(*day, regime=regime)
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
    assert_every_forgery_is_found(json.loads(json.dumps(account)))
    assert_every_forgery_is_found(own)
