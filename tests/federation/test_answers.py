"""A run that waits for a person: nothing leaves before the answer, and each answer counts once."""

import json
import os
import threading
from dataclasses import replace

import numpy as np
import pytest
from support.fake_nvflare import FakeNVFlare
from support.federation import SITES
from support.terms import make_terms

from conovel.errors import InputError
from conovel.federation.answers import (
    answer_file,
    question_of,
    waiting_runs,
    write_answer,
)
from conovel.federation.consent import Limits
from conovel.federation.processes import wait_for
from conovel.federation.run_records import RunRecords
from conovel.federation.settings import read_site
from conovel.rows.storage import write_table

ASKS = {"west": Limits(ask_seconds=60)}


@pytest.fixture
def files(tmp_path):
    """Write the settings and a few rows of three sites."""
    made, rng = {}, np.random.default_rng(0)
    for name in SITES:
        folder = tmp_path / name
        folder.mkdir(mode=0o700)
        for part, n in (("null", 200), ("test", 60)):
            write_table(folder / f"{part}.csv", {f"x{j}": rng.normal(size=n) for j in range(3)})
        (folder / "site.toml").write_text(
            f'[site]\nname = "{name}"\nkit = "kit"\n[data]\nnull = "null.csv"\n'
            'test = "test.csv"\n[model]\nscorer = "logistic"\n'
        )
        made[name] = read_site(folder / "site.toml")
    return made


class Running:
    """A run in a thread of its own."""

    def __init__(self, files, limits=None, **more):
        settings = {"regime": "full", "bits": 4, "call_seconds": 5, "stage_seconds": 60} | more
        self.fake = FakeNVFlare(make_terms(SITES, **settings), files, limits or ASKS)
        self.file, self.account = files["west"], {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        self.account = self.fake.run()

    @property
    def record(self):
        (run,) = RunRecords(self.file.state).runs()
        return run

    def wait_for_question(self):
        assert wait_for(lambda: question_of(self.record) is not None, 20)
        return self.record

    def answer(self, **more):
        run = self.wait_for_question()
        given = {"agrees": True, "who": "Ana"} | more
        write_answer(self.file.state, run, run["question"]["digest"], **given)

    def end(self):
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert wait_for(lambda: self.entries("end"), 10)
        return self.account

    def entries(self, kind):
        return [e for e in self.file.audit_log.read().entries if e["entry"] == kind]


def test_nothing_leaves_before_a_person_agrees(files):
    running = Running(files)
    run = running.wait_for_question()
    assert running.entries("sent") == running.entries("data") == []
    assert [one["run_id"] for one in waiting_runs([run], running.file.state)] == [run["run_id"]]
    running.answer()
    assert running.end()["state"] == "done"
    (consent,) = running.entries("consent")
    assert (consent["agrees"], consent["who"]) == (True, "Ana")
    assert consent["question"] == running.entries("asked")[0]["question"]
    assert running.record["consent"]["who"] == "Ana"
    first = running.entries("sent")[0]
    assert consent["line"] < first["line"]
    assert not answer_file(running.file.state, run["run_id"]).exists()


def test_a_person_can_refuse(files):
    running = Running(files)
    running.answer(agrees=False)
    account = running.end()
    assert account["state"] == "failed"
    assert "west refuses: a person at the site did not agree" in account["message"]
    assert "Ana" not in json.dumps(account)  # who it was stays at the site
    assert {entry["kind"] for entry in running.entries("sent")} == {"ABORT"}


def test_without_an_answer_it_refuses_in_time(files):
    running = Running(files, {"west": Limits(ask_seconds=1)})
    assert "west refuses: nobody at the site agreed within 1 s" in running.end()["message"]
    assert running.entries("consent")[0]["agrees"] is False


def test_a_site_answers_before_the_coordinator_gives_it_up(files):
    running = Running(files, {"west": Limits(ask_seconds=3600)}, stage_seconds=3)
    assert "west refuses: nobody at the site agreed within 2.7 s" in running.end()["message"]


def test_a_run_that_is_stopped_does_not_wait(files):
    running = Running(files)
    run = running.wait_for_question()
    running.fake.coordinator.stop("its operator stopped it")
    assert running.end()["state"] == "failed"
    with pytest.raises(InputError, match="does not wait"):
        write_answer(
            running.file.state,
            running.record,
            run["question"]["digest"],
            agrees=True,
            who="Ana",
        )


def test_an_answer_counts_once_and_for_its_question_alone(files):
    running = Running(files)
    run = running.wait_for_question()
    state, digest = running.file.state, run["question"]["digest"]
    with pytest.raises(InputError, match="another question"):
        write_answer(state, run, "0" * 64, agrees=True, who="Ana")
    with pytest.raises(InputError, match="write your name"):
        write_answer(state, run, digest, agrees=True, who=" \n")
    assert running.entries("sent") == []
    write_answer(state, run, digest, agrees=False, who="Ana")
    with pytest.raises(InputError, match=r"already|any more"):
        write_answer(state, running.record, digest, agrees=True, who="Eve")
    assert running.end()["state"] == "failed"
    assert [entry["who"] for entry in running.entries("consent")] == ["Ana"]


@pytest.mark.parametrize("replayed", [True, False], ids=["replayed", "garbage"])
def test_a_file_that_is_no_answer_to_this_question_ends_the_run(files, replayed):
    """An answer to an earlier run, put there again, or a file that is none."""
    running = Running(files)
    run = running.wait_for_question()
    path = answer_file(running.file.state, run["run_id"])
    old = {"question": "ab" * 32, "agrees": True, "who": "Eve", "time": "2026-01-01T00:00:00Z"}
    aside = path.with_name("aside")
    aside.write_text(json.dumps(old) if replayed else '{"agrees": true}' + " " * 10_000)
    os.replace(aside, path)
    words = "is about another question" if replayed else "cannot be read"
    assert words in running.end()["message"]
    assert {entry["kind"] for entry in running.entries("sent")} == {"ABORT"}


def test_two_questions_about_the_same_terms_differ(files):
    running = Running(files)
    first = running.wait_for_question()["question"]["digest"]
    running.answer(agrees=False)
    running.end()
    other = replace(files["west"], path=files["west"].path.with_name("other") / "site.toml")
    other.path.parent.mkdir()
    again = FakeNVFlare(running.fake.terms, {"west": other}, ASKS)
    again.sites["west"].driver.begin()
    (record,) = [RunRecords(other.state)]
    assert wait_for(lambda: any(question_of(run) for run in record.runs()), 20)
    (run,) = record.runs()
    assert run["question"]["digest"] != first
    write_answer(other.state, run, run["question"]["digest"], agrees=False, who="Ana")
    assert wait_for(lambda: next(RunRecords(other.state).runs())["state"] == "failed", 20)


def test_nobody_is_asked_by_default(files):
    running = Running(files, {"west": Limits()})
    assert running.end()["state"] == "done"
    assert running.entries("asked") == []


@pytest.mark.parametrize("name", ["../x", "a" * 31, "A" * 32, "a" * 32 + "/.."])
def test_an_answer_is_a_file_of_a_run(tmp_path, name):
    with pytest.raises(InputError, match="32 hexadecimal digits"):
        answer_file(tmp_path, name)
