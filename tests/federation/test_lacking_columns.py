"""Sites of a federation of which some do not have a column of the agreed schema."""

import json

import pytest
from support.fake_nvflare import FakeNVFlare
from support.federation import give_secret
from support.hospitals import draw_hospitals
from support.terms import make_terms

from conovel.federation.consent import Limits
from conovel.federation.settings import read_site
from conovel.rows.storage import read_json
from conovel.runs.agents import Agent, with_one_schema
from conovel.site.engines import MemoryPlan

LACKING = {"switzerland": ["ca"], "va": ["ca"]}


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    monkeypatch.setattr(MemoryPlan, "of", classmethod(lambda cls, *_: cls(13, 16)))


def make_files(folder, drawn, schema, large, drop):
    files = {}
    for i, (name, pair) in enumerate(drawn.items()):
        site = folder / name
        site.mkdir(parents=True)
        for role, rows in zip(("null", "test"), pair, strict=True):
            kept = rows.drop(columns=LACKING.get(name, [])) if drop else rows
            kept.to_csv(site / f"{role}.csv", index=False, na_rep="?")
        (site / "schema.toml").write_text(schema.to_toml())
        (site / "site.toml").write_text(
            f'[site]\nname = "{name}"\nkit = "kit"\n[data]\nnull = "null.csv"\ntest = "test.csv"\n'
            f'schema = "schema.toml"\n{large}\n[model]\nscorer = "logistic"\n'
        )
        give_secret(site / "state", i)
        files[name] = read_site(site / "site.toml")
    return files


def run(folder, drawn, schema, regime, *, large="", drop=False):
    files = make_files(folder, drawn, schema, large, drop)
    names = list(files)
    patient = {"call_seconds": 5, "stage_seconds": 30}
    patient["masks"] = regime in ("together", "consensus")
    asked = make_terms(
        names, run_id=bytes(range(16)).hex(), level="1/5", regime=regime, schema=schema, **patient
    )
    limits = dict.fromkeys(names, Limits(regimes=(regime,)))
    account = FakeNVFlare(asked, files, limits).run()
    assert account["state"] == "done", account["message"]
    results = [files[name].results / account["terms"]["run_id"] for name in names]
    warned = {
        name: [one["columns"] for one in read_json(folder / "run.json")["warnings"]]
        for name, folder in zip(names, results, strict=True)
    }
    decisions = [(folder / "decisions.parquet").read_bytes() for folder in results]
    return json.dumps([account["transcript"], account["outcome"]]), decisions, warned


@pytest.mark.filterwarnings("ignore:column 'chol' never changes")
@pytest.mark.parametrize("regime", ["joint", "together", "full", "consensus"])
def test_a_site_without_a_column_takes_part(regime, tmp_path):
    drawn = draw_hospitals(scale=2)
    _, schema = with_one_schema([Agent(name, *pair) for name, pair in drawn.items()], None)
    empty = run(tmp_path / "empty", drawn, schema, regime)
    absent = run(tmp_path / "absent", drawn, schema, regime, drop=True)
    pieces = run(tmp_path / "p", drawn, schema, regime, large='memory = "1GB"', drop=True)
    assert empty[:2] == absent[:2] == pieces[:2]
    for _, _, warned in (empty, absent, pieces):
        named = {name: columns for name, columns in warned.items() if ["ca"] in columns}
        assert named.keys() == LACKING.keys()
