"""`conovel agent site.toml --check`: what a site would refuse, before a run begins."""

import json

import pytest
from support.commands import invoke
from support.desk import run_once, write_sites
from support.terms import make_terms

from conovel.federation.rehearsal import rehearse, usual_terms


@pytest.fixture
def sites(tmp_path):
    return lambda consent="", **more: write_sites(tmp_path, consent, **more)


def announced(path, names, **settings):
    path.write_text(json.dumps(make_terms(tuple(sorted(names)), **settings).to_dict()))
    return path


def test_a_site_that_would_take_part_says_so(sites, tmp_path, monkeypatch, capsys):
    files = sites("regimes = ['together']")
    name, file = next(iter(files.items()))
    before = sorted(tmp_path.rglob("*.jsonl"))
    told = invoke(capsys, monkeypatch, "agent", str(tmp_path / name / "site.toml"), "--check")
    assert told.code == 0, told.out
    assert f"{name} would take part" in told.out
    assert "120" in told.out
    assert sorted(tmp_path.rglob("*.jsonl")) == before
    assert file.audit_log.read().entries == []


def test_everything_that_is_refused_is_named(sites, tmp_path, monkeypatch, capsys):
    files = sites("max_level = 0.05\nregimes = ['counts']\nmin_calibration_rows = 5000")
    name = next(iter(files))
    terms = announced(tmp_path / "terms.json", files, regime="full", level="0.2")
    settings = str(tmp_path / name / "site.toml")
    told = invoke(capsys, monkeypatch, "agent", settings, "--check", "--terms", str(terms))
    assert told.code == 3
    assert "regime 'full' is not among those this site agrees to" in " ".join(told.out.split())
    assert "would calibrate" in told.out
    assert "fewer than 5000 of its known normals would calibrate" in " ".join(told.out.split())


def test_rows_that_cannot_be_read_are_an_objection(sites, tmp_path):
    files = sites()
    name, file = next(iter(files.items()))
    (tmp_path / name / "today.parquet").write_bytes(b"no table")
    outcome = rehearse(file, usual_terms(file))
    assert outcome.facts == ()
    assert any("the rows cannot be read" in objection for objection in outcome.objections)


def test_another_schema_and_a_run_of_others_are_refused(sites):
    files = sites()
    file = next(iter(files.values()))
    outcome = rehearse(file, make_terms(("x", "y", "z"), regime="full"))
    assert any("is not among the agents of the run" in one for one in outcome.objections)


def test_what_was_spent_counts(sites):
    files = sites("max_runs_per_data = 1")
    file = next(iter(files.values()))
    assert rehearse(file, make_terms(tuple(sorted(files)), regime="full", bits=4)).objections == ()
    run_once(files)
    (objection,) = rehearse(
        file, make_terms(tuple(sorted(files)), regime="full", bits=4)
    ).objections
    assert "it agrees to 1 run with the rows it has now" in objection
