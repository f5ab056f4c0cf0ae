"""A person's answer, given on the page of a site, in a run of real processes."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("uvicorn")

from support.desk import Visitor, served

from conovel.federation.answers import waiting_runs
from conovel.federation.processes import wait_for
from conovel.federation.run_records import RunRecords
from conovel.federation.settings import read_site


@pytest.fixture
def asks(loopback):
    """Let one site ask a person; its settings are read again for every run."""
    path = loopback.settings("west")
    before = path.read_text()
    path.write_text(before + "ask_seconds = 100\n")
    yield path
    path.write_text(before)


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["agree", "refuse"])
def test_a_run_waits_for_a_person(submit, asks, answer):
    file = read_site(asks)
    records = RunRecords(file.state)
    with ThreadPoolExecutor(1) as pool, served(asks) as where:
        ends = pool.submit(submit, regime="counts")
        assert wait_for(lambda: waiting_runs(records.runs(), file.state), 100)
        (run,) = waiting_runs(records.runs(), file.state)
        visitor = Visitor(*where)
        visitor.enter()
        base = f"/{visitor.keys.folder}/consent"
        page = visitor.get(base).text
        question = re.search(r'name="question" value="(\w+)"', page)[1]
        form = {"form": visitor.keys.form, "question": question, "answer": answer, "who": "Ana"}
        assert visitor.post(f"{base}/{run['run_id']}", form).status == 303
        account = ends.result(120)
    entries = [e for e in file.audit_log.read().entries if e.get("run") == run["run_id"]]
    kinds = [entry["entry"] for entry in entries if entry["entry"] != "received"]
    (consent,) = [entry for entry in entries if entry["entry"] == "consent"]
    assert (consent["agrees"], consent["who"]) == (answer == "agree", "Ana")
    if answer == "agree":
        assert account["state"] == "done"
        assert kinds[:4] == ["begin", "asked", "consent", "data"]
    else:
        assert "west refuses: a person at the site did not agree" in account["message"]
        assert "data" not in kinds
        assert [e["kind"] for e in entries if e["entry"] == "sent"] == ["ABORT"]
