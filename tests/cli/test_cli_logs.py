"""What runs say goes to Python loggers below ``conovel``; ``--log-file`` writes it down."""

import ast
import logging
import re

import numpy as np
import pandas as pd
import pytest
from support.commands import invoke
from support.paths import ROOT

import conovel as cn

RNG = np.random.default_rng(0)
NULL = pd.DataFrame(RNG.normal(size=(200, 2)), columns=["a", "b"])
TEST = pd.DataFrame(np.vstack([RNG.normal(size=(40, 2)), RNG.normal(6, 1, size=(10, 2))]))
TEST.columns = ["a", "b"]


def with_row_numbers():
    return NULL.assign(c=np.arange(200)), TEST.assign(c=np.arange(200, 250))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    NULL.to_csv("null.csv", index=False)
    TEST.assign(a=TEST["a"].where(TEST.index != 3, np.inf)).to_csv("test.csv", index=False)
    yield tmp_path
    logger = logging.getLogger("conovel")
    for handler in [one for one in logger.handlers if isinstance(one, logging.FileHandler)]:
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(logging.NOTSET)


def run(capsys, monkeypatch, *more):
    command = ["detect", "--null", "null.csv", "--test", "test.csv", "--scorer", "logistic"]
    return invoke(capsys, monkeypatch, *command, "--log-file", "run.log", *more)


def test_stages_and_findings_of_the_library_are_records(caplog):
    with caplog.at_level(logging.INFO, logger="conovel"):
        cn.AdaDetect("logistic").detect(*with_row_numbers())
    assert ("conovel.runs.detector", logging.INFO, "checking rows") in caplog.record_tuples
    assert [r.levelname for r in caplog.records if "row number or an id" in r.getMessage()] == [
        "WARNING"
    ]


def test_a_network_and_a_kept_detector_say_what_they_do(caplog):
    with caplog.at_level(logging.INFO, logger="conovel"):
        agents = [cn.Agent(name, NULL, TEST) for name in ("north", "south")]
        cn.Network(agents, scorer="logistic").run()
        cn.AdaDetect("isolation-forest").keep(NULL).detect(TEST)
    names = {record.name for record in caplog.records}
    assert {"conovel.runs.network", "conovel.runs.detector", "conovel.runs.kept"} <= names


def test_nobody_who_does_not_listen_hears_anything(capsys):
    cn.AdaDetect("logistic").detect(*with_row_numbers())
    assert capsys.readouterr() == ("", "")


def test_a_log_file_has_stages_findings_and_the_outcome(folder, capsys, monkeypatch):
    assert run(capsys, monkeypatch).code == 0
    lines = (folder / "run.log").read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d [\d:,]+ [A-Z]+ conovel[\w.]*: ", line) for line in lines)
    text = "\n".join(lines)
    for words in (
        "INFO conovel: conovel",
        "INFO conovel.rows.storage: read 'null.csv': 200 rows, 2 columns",
        "INFO conovel.cli: fitting the score model",
        "WARNING conovel.cli: column 'a' has 1 value beyond",
        "of 50 rows flagged; on average",
    ):
        assert words in text
    assert (folder / "run.log").stat().st_mode & 0o777 == 0o600


def test_errors_are_logged_and_the_level_can_be_raised(folder, capsys, monkeypatch):
    monkeypatch.setenv("CONOVEL_LOG_LEVEL", "warning")
    assert run(capsys, monkeypatch, "--columns", "a,nothing").code == 2
    (line,) = (folder / "run.log").read_text().splitlines()
    assert "ERROR conovel.cli: null.csv has no column 'nothing'" in line
    monkeypatch.setenv("CONOVEL_LOG_LEVEL", "loud")
    refused = run(capsys, monkeypatch)
    assert (refused.code, "CONOVEL_LOG_LEVEL must be one of" in refused.err) == (2, True)


def test_a_log_file_that_cannot_be_written_is_named(folder, capsys, monkeypatch):
    refused = run(capsys, monkeypatch, "--log-file", "nowhere/run.log")
    assert (refused.code, "nowhere/run.log cannot be written" in refused.err) == (2, True)


def test_the_library_prints_nothing():
    """Commands and the demonstration print; everything else has loggers."""
    package = ROOT / "src" / "conovel"
    prints = []
    for path in package.rglob("*.py"):
        if path.relative_to(package).parts[0] in ("cli", "demo.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
            streams = isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr")
            if called or (streams and getattr(node.value, "id", "") == "sys"):
                prints.append(f"{path.name}:{node.lineno}")
    assert prints == []
