"""The command that writes a report, and the reports of the demo and of the docs."""

import json
import re
from functools import partial

import numpy as np
import pytest
from support.paths import DOCS
from support.reports import PLAIN, SCRIPT, Page, network_run, three_sites

import conovel as cn
from conovel import demo


def test_the_documented_example_writes_a_page(tmp_path, monkeypatch, few_trees):
    docs = (DOCS / "report.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", docs, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/report.md", "exec"), {})
    assert "rows flagged as novel" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_demo_ends_with_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    demo.main()
    printed = capsys.readouterr().out
    assert "conovel-demo.html" in printed
    for bank in demo.HABITS:  # who flagged what, and why
        assert re.search(rf"^ *{bank} +{demo.N_FRAUD}( +\d+){{5}}", printed, re.MULTILINE)
        assert re.search(rf"^{bank} +{bank[0].upper()}\d{{3}} +\S+", printed, re.MULTILINE)
    assert re.search(r"normally .* to ", printed)
    alone, together = re.search(r"^ *all +\d+ +(\d+) +\d+ +(\d+)", printed, re.MULTILINE).groups()
    assert int(alone) < int(together)
    assert re.search(r"like \d+ known", printed)  # a case that north has confirmed
    limits = re.search(r"at most\s+(\d+)\s+of\s+the\s+(\d+)\s+flagged", printed).groups()
    assert int(limits[0]) < int(limits[1])
    page = (tmp_path / "conovel-demo.html").read_text(encoding="utf-8")
    assert "novelties were found" in page
    assert "What does not hold" not in page
    assert re.findall(r"<h2[^>]*>([^<]+)", page)[0] == "Why these rows?"


@pytest.mark.parametrize("columns", [80, 200])
def test_the_demo_fits_on_one_screen(columns, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(demo, "Network", partial(cn.Network, **PLAIN))
    demo.main()
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert len(lines) <= 45


def test_a_detection_on_files_can_be_reported(conovel, tmp_path):
    rng = np.random.default_rng(0)
    np.savetxt(
        tmp_path / "null.csv", rng.normal(size=(300, 2)), delimiter=",", header="a,b", comments=""
    )
    rows = [f"{SCRIPT},{x},{y}" for x, y in rng.normal(5, 1, size=(40, 2))]
    (tmp_path / "test.csv").write_text("\n".join(["txn,a,b", *rows]))
    options = ("--id", "txn", "--scorer", "logistic", "--out", "flagged.csv")
    run = conovel("detect", "--null", "null.csv", "--test", "test.csv", *options, cwd=tmp_path)
    assert "conovel report flagged.csv.json" in run.stdout
    assert conovel("report", "flagged.csv.json", cwd=tmp_path).returncode == 0
    page = Page((tmp_path / "flagged.csv.html").read_text(encoding="utf-8"))
    assert page.words.count(SCRIPT) >= 20
    assert page.tags.count("script") == 4  # data and code of flagged rows and of lists


def test_the_command_writes_beside_the_run_or_where_it_is_told(conovel, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(network_run(three_sites(), "full")))
    run = conovel("report", "run.json", cwd=tmp_path)
    assert (run.returncode, "written to run.html" in run.stdout) == (0, True)
    conovel("report", "run.json", "-o", "other.html", cwd=tmp_path)
    page = (tmp_path / "other.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert conovel("verify", "run.json", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ('{"a":' * 10**5, "cannot be read"),
        ("[]", "does not hold a JSON object"),
        ("{}", "command is missing"),
        ('{"command": "network"}', "transcript is missing"),
        ('{"command": "detect"}', "n_rejected is missing"),
        ('{"command": "network", "transcript": {"format": 1}}', "this is not a transcript"),
    ],
)
def test_bad_files_are_one_clear_line(conovel, tmp_path, text, words):
    (tmp_path / "run.json").write_text(text)
    run = conovel("report", "run.json", cwd=tmp_path)
    assert (run.returncode, words in run.stderr) == (2, True)
    assert "run.json" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.glob("*.html"))
