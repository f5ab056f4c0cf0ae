"""A site that reads its files in pieces, among sites that do not: nobody can tell."""

import json

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from support.fake_nvflare import FakeNVFlare
from support.federation import SCORER, SITES, give_secret
from support.terms import make_terms

from conovel.errors import InputError
from conovel.federation.consent import Limits
from conovel.federation.settings import read_site
from conovel.report import write_report
from conovel.rows.storage import read_json, write_table
from conovel.site.engines import MemoryPlan


def make_files(folder, rows, large=""):
    """Write the settings and rows of three sites; one of them has files by the dozen."""
    found = {}
    for name, (null, test) in rows.items():
        site = folder / name
        (site / "tests").mkdir(parents=True)
        write_table(site / "normal.parquet", null)
        table = pa.table({"who": [f"{name}-{i}" for i in range(len(test["x0"]))], **test})
        for start in range(0, table.num_rows, 100):
            pa_csv.write_csv(table.slice(start, 100), site / "tests" / f"{start:04d}.csv")
        (site / "site.toml").write_text(
            f'[site]\nname = "{name}"\nkit = "kit"\n'
            '[data]\nnull = "normal.parquet"\ntest = "tests"\nid = "who"\n'
            f'{large if name == "south" else ""}\n[model]\nscorer = "{SCORER}"\n'
        )
        give_secret(site / "state", SITES.index(name))
        found[name] = read_site(site / "site.toml")
    return found


def run(folder, rows, large, regime="full"):
    files = make_files(folder, rows, large)
    patient = {"call_seconds": 5, "stage_seconds": 30}
    patient["masks"] = regime in ("together", "consensus")  # no site takes part without
    asked = make_terms(SITES, run_id=bytes(range(16)).hex(), level="1/2", regime=regime, **patient)
    limits = dict.fromkeys(SITES, Limits(regimes=(regime,)))
    return files, FakeNVFlare(asked, files, limits).run()


@pytest.fixture
def short_pieces(monkeypatch):
    monkeypatch.setattr(MemoryPlan, "of", classmethod(lambda cls, *_: cls(130, 16)))


@pytest.mark.parametrize("regime", ["full", "isolated", "joint", "together", "consensus"])
def test_nobody_can_tell(regime, rows, tmp_path, short_pieces):
    accounts, decisions, findings = [], [], []
    for name, large in (("whole", ""), ("pieces", 'memory = "1GB"')):
        files, account = run(tmp_path / name, rows, large, regime)
        assert account["state"] == "done", account["message"]
        accounts.append(json.dumps([account["transcript"], account["outcome"]]))
        results, run_id = files["south"].results, account["terms"]["run_id"]
        decisions.append((results / run_id / "decisions.parquet").read_bytes())
        findings.append(read_json(results / run_id / "run.json")["warnings"])
        # Nothing is left of the scores that were kept meanwhile.
        assert [path.name for path in results.iterdir()] == [run_id]
    assert accounts[0] == accounts[1]
    assert decisions[0] == decisions[1]
    assert findings[0] == findings[1]


def test_the_summary_leaves_the_rows_to_the_other_file(rows, tmp_path, short_pieces):
    files, account = run(tmp_path / "run", rows, 'memory = "1GB"')
    folder = files["south"].results / account["terms"]["run_id"]
    summary = read_json(folder / "run.json")
    assert "decisions" not in summary
    flagged = pq.read_table(folder / "decisions.parquet")["rejected"].to_numpy()
    assert summary["n_rejected"] == flagged.sum() > 0
    assert set(summary["choices"]) == {"composite"}
    write_report(folder / "run.json", folder / "report.html")
    assert (folder / "report.html").stat().st_size > 0


def test_large_files_are_read_in_pieces_without_being_asked(
    rows, tmp_path, short_pieces, monkeypatch
):
    monkeypatch.setattr("conovel.rows.storage._LARGE", 100)
    monkeypatch.setattr("conovel.federation.site_files.read_samples_of_files", None)
    files, account = run(tmp_path / "run", rows, "")
    assert account["state"] == "done", account["message"]
    assert all(any(file.results.glob("*/decisions.parquet")) for file in files.values())


def test_an_amount_that_is_none_is_named_with_its_file(rows, tmp_path):
    with pytest.raises(InputError, match=r"site\.toml: memory must be like 800MB"):
        make_files(tmp_path / "run", rows, 'memory = "much"')


@pytest.mark.parametrize("memory", ["", 'memory = "1GB"'])
def test_a_site_looks_at_its_rows_unless_told_not_to(rows, tmp_path, short_pieces, memory):
    units = {name: (null, dict(test)) for name, (null, test) in rows.items()}
    units["south"][1]["x0"] = units["south"][1]["x0"] * 1e6
    found = {}
    for check in ("", "check = true", "check = false"):
        files, account = run(tmp_path / check, units, f"{memory}\n{check}", "counts")
        summary = read_json(files["south"].results / account["terms"]["run_id"] / "run.json")
        found[check] = [finding["kind"] for finding in summary["warnings"]]
    assert "units" in found[""]
    assert (found["check = true"], found["check = false"]) == (found[""], [])
