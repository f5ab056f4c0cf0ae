"""Strata between organisations: a site allows columns by name, in memory and in files."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.fake_nvflare import FakeNVFlare
from support.federation import SCORER, SITES, give_secret
from support.terms import make_terms

import conovel as cn
from conovel.federation.settings import read_site
from conovel.protocol.replay import verify
from conovel.rows.storage import read_json, write_table
from conovel.site.engines import MemoryPlan


def write_sites(folder, strata, data="", seed=5):
    rng = np.random.default_rng(seed)
    files = {}
    for name in SITES:
        site = folder / name
        site.mkdir(parents=True, exist_ok=True)
        for sample, n, shares in (("null", 600, [0.7, 0.3]), ("test", 160, [0.3, 0.7])):
            ward = rng.choice(2, size=n, p=shares)
            rows = rng.normal(size=(n, 3)) + 3 * ward[:, np.newaxis]
            if sample == "test":
                rows[-40:, 1:] += [5, -5]
                ward[:6] = 7  # without known normals
            columns = {f"x{j}": rows[:, j] for j in range(3)}
            write_table(site / f"{sample}.parquet", {"ward": ward.astype(float), **columns})
        (site / "site.toml").write_text(
            f'[site]\nname = "{name}"\nkit = "kit"\n'
            f'[data]\nnull = "null.parquet"\ntest = "test.parquet"\n{data}\n'
            f'[model]\nscorer = "{SCORER}"\n'
            f'[consent]\nregimes = ["together", "joint"]\nstrata = {strata}\n'
        )
        give_secret(site / "state", SITES.index(name))
        files[name] = read_site(site / "site.toml")
    return files


def run(files, regime, **more):
    patient = {"call_seconds": 5, "stage_seconds": 30, "masks": regime == "together"}
    usual = {"run_id": bytes(range(16)).hex(), "level": "1/5", **patient}
    terms = make_terms(SITES, regime=regime, strata=["ward"], **usual | more)
    limits = {name: file.limits for name, file in files.items()}
    account = FakeNVFlare(terms, files, limits).run()
    return account, {name: file.results / terms.run_id for name, file in files.items()}


@pytest.mark.parametrize("regime", ["together", "joint"])
def test_sites_that_allow_the_column_take_part(tmp_path, regime):
    account, folders = run(write_sites(tmp_path, '["ward"]'), regime)
    assert account["state"] == "done", account["message"]
    assert verify(account) == []
    for name, folder in folders.items():
        record = read_json(folder / "run.json")
        assert verify(record) == []
        own = record["decisions"][name]
        assert own["tested"][:6] == [False] * 6
        assert sum(own["rejected"]) > 0
        assert [one["tested"] for one in own["strata"]["strata"]] == [True, True, False]
        assert "untested_strata" in {one["kind"] for one in record["warnings"]}


def test_pieces_decide_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(MemoryPlan, "of", classmethod(lambda cls, *_: cls(70, 16)))
    tables = []
    for name, data in (("whole", ""), ("pieces", 'memory = "1GB"')):
        account, folders = run(write_sites(tmp_path / name, '["ward"]', data), "joint")
        assert account["state"] == "done", account["message"]
        table = pq.read_table(folders[SITES[0]] / "decisions.parquet")
        tables.append(table.to_pandas())  # rows that are not tested have no score: NaN
    assert tables[0].equals(tables[1])


def test_a_site_that_does_not_refuses(tmp_path):
    account, _ = run(write_sites(tmp_path, "[]"), "joint")
    assert account["state"] != "done"
    assert "strata" in account["message"]


def test_a_list_over_batches_has_strata_too(tmp_path):
    listed = '[list]\nname = "april"\nledger = "april.json"'
    for day in range(2):
        files = write_sites(tmp_path, '["ward"]', listed, seed=5)
        if day:  # the same known normals, and other tests
            later = write_sites(tmp_path / "later", '["ward"]', seed=6)
            for name in SITES:
                (tmp_path / "later" / name / "test.parquet").replace(
                    tmp_path / name / "test.parquet"
                )
            del later
        account, folders = run(
            files, "joint", level="1/10", list_name="april", run_id=bytes([day] * 16).hex()
        )
        assert account["state"] == "done", account["message"]
    books = [cn.Ledger.load(tmp_path / name / "april.json") for name in SITES]
    assert {tuple(book.history) for book in books} == {tuple(books[0].history)}
    assert [tests for tests, _ in books[0].history] == [len(SITES) * 154] * 2
    assert all(book.n_listed > 40 for book in books)
    assert not any(mask[:6].any() for book in books for mask in book.decisions())
    record = read_json(folders[SITES[0]] / "run.json")
    assert verify(record) == []
