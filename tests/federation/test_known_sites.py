"""Known novelties at a site of a federation: they stay there, unless it agrees to share them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.fake_nvflare import FakeNVFlare
from support.federation import SCORER, SITES, give_secret
from support.terms import make_terms

import conovel as cn
from conovel.federation.consent import Limits
from conovel.federation.settings import read_site
from conovel.rows.storage import read_json, write_table
from conovel.site.engines import MemoryPlan


def draw():
    rng = np.random.default_rng(5)
    rows = {}
    for name in SITES:
        null, test = rng.normal(size=(300, 3)), rng.normal(size=(120, 3))
        test[-36:] += 3
        rows[name] = null, test
    return rows, rng.normal(size=(20, 3)) + 3


def columns(rows):
    return {f"x{j}": rows[:, j] for j in range(rows.shape[1])}


def write_sites(folder, known_rows=True, consent="", data=""):
    """Write the settings and rows of three sites, of which south knows some novelties."""
    files, (rows, novel) = {}, draw()
    for name, (null, test) in rows.items():
        site = folder / name
        site.mkdir(parents=True)
        write_table(site / "null.parquet", columns(null))
        write_table(site / "test.parquet", columns(test))
        has = known_rows and name == "south"
        if has:
            kinds = {"class": ["mule"] * len(novel)}
            pq.write_table(pa.table(columns(novel) | kinds), site / "known.parquet")
        (site / "site.toml").write_text(
            f'[site]\nname = "{name}"\nkit = "kit"\n'
            '[data]\nnull = "null.parquet"\ntest = "test.parquet"\n'
            + (f'known = "known.parquet"\nkind_column = "class"\n{data}\n' if has else "")
            + f'[model]\nscorer = "{SCORER}"\n[consent]\n{consent if has else ""}\n'
        )
        give_secret(site / "state", SITES.index(name))
        files[name] = read_site(site / "site.toml")
    return files


def run(folder, regime="full", **more):
    files = write_sites(folder, **more)
    patient = {"call_seconds": 5, "stage_seconds": 30, "masks": regime == "together"}
    terms = make_terms(SITES, run_id=bytes(range(16)).hex(), level="1/5", regime=regime, **patient)
    party = FakeNVFlare(terms, files, dict.fromkeys(SITES, Limits(regimes=(regime,))))
    account = party.run()
    assert account["state"] == "done", account["message"]
    folders = {name: file.results / account["terms"]["run_id"] for name, file in files.items()}
    return {name: read_json(at / "run.json") for name, at in folders.items()}


def test_the_settings(tmp_path):
    file = write_sites(tmp_path)["south"]
    assert file.known == tmp_path / "south" / "known.parquet"
    assert file.kind_column == "class"
    assert not file.limits.share_known
    assert write_sites(tmp_path / "b", consent="share_known = true")["south"].limits.share_known
    assert write_sites(tmp_path / "c", known_rows=False)["south"].known is None
    with pytest.raises(cn.InputError, match="share_known"):
        write_sites(tmp_path / "d", consent="share_known = 1")


@pytest.mark.parametrize("regime", ["counts", "full", "joint"])
def test_the_own_score_learns_from_known_rows(tmp_path, regime):
    sites = run(tmp_path, regime)
    chosen = {name: one["decisions"][name]["choices"] for name, one in sites.items()}
    assert chosen["south"]["known"]["chosen"] == "with known novelties"
    assert "known" not in chosen["north"]


def test_models_carry_known_rows_only_where_they_are_shared(tmp_path):
    runs = {
        name: run(tmp_path / name, **more)
        for name, more in {
            "none": {"known_rows": False},
            "own": {},
            "shared": {"consent": "share_known = true"},
        }.items()
    }
    north, south = (
        {name: sites[who]["decisions"][who]["scores"] for name, sites in runs.items()}
        for who in ("north", "south")
    )
    assert north["none"] == north["own"] != north["shared"]
    assert south["none"] != south["own"]


def test_pieces_decide_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(MemoryPlan, "of", classmethod(lambda cls, *_: cls(70, 16)))
    scores = []
    for name, data in (("whole", ""), ("pieces", 'memory = "1GB"')):
        run(tmp_path / name, data=data)
        [out] = (tmp_path / name / "south" / "results").glob("*/decisions.parquet")
        scores.append(pq.read_table(out))
    assert scores[0].equals(scores[1])
