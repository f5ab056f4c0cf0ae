"""What the pages show: what the files of the site say, escaped, and bounded in size."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pandas as pd
import pytest
from support.desk import HOSTILE, Visitor, begin, run_once, served, text_of, write_sites
from support.reports import Page

import conovel as cn
from conovel.desk import site_view
from conovel.desk.batches import CalibrationRows, calibration_rows, rows_of_run
from conovel.desk.guard import Keys
from conovel.desk.serve import as_address
from conovel.desk.site_view import SiteView
from conovel.desk.words import read_terms, terms_in_words
from conovel.errors import InputError
from conovel.federation.answers import question_of
from conovel.federation.processes import wait_for
from conovel.federation.run_records import RunRecords
from conovel.federation.settings import read_site
from conovel.runs.verdicts import Verdicts


class Client(Visitor):
    """A visitor that was let in, at the pages of a site."""

    def __init__(self, *where):
        super().__init__(*where)
        assert self.enter().status == 303

    def page(self, path="", status=200):
        answer = self.get(f"/{self.keys.folder}/{path}")
        assert answer.status == status, answer.text
        return answer.text

    def words(self, path="", status=200):
        return text_of(self.page(path, status))

    def send(self, path, status=200, **fields):
        form = {"form": self.keys.form} | fields
        answer = self.post(f"/{self.keys.folder}/{path}", form, follow=True)
        assert answer.status == status, answer.text
        return text_of(answer.text)


@contextmanager
def at(settings):
    """Serve the pages of a site to a client."""
    with served(settings) as where:
        yield Client(*where)


@pytest.fixture
def client(site):
    with at(site.path) as client:
        yield client


def test_today_says_how_things_stand(client, run_id):
    words = client.words()
    assert "2 runs with flagged rows to judge" in words
    assert "The agent is not connected" in words
    assert re.search(r"All \d+ entries of the audit log hold\.", words)
    assert run_id[:8] in words
    assert "false alarms among judged rows" in words


def test_a_site_without_a_run(tmp_path):
    files = write_sites(tmp_path)
    with at(files["west"].path) as client:
        for path, words in {
            "": "No run has been here yet",
            "runs": "No run has been here yet",
            "consent": "Nobody is asked here",
            "left": "0 models left this site",
            "verdicts": "No verdicts yet",
        }.items():
            assert words in client.words(path)


def test_a_run_says_what_left_and_what_it_asked_for(client, site, run_id):
    words = client.words(f"runs/{run_id}")
    logged = SiteView(site.path).log().run(run_id)
    assert "rows flagged" in words
    for name, size in logged.models.items():
        assert f"a model of {size:,} bytes to {name}" in words
    assert "north, south, west" in words
    assert "no differential privacy" in words
    assert "one model per agent; the total count of each round" in words
    assert "Rows, values, names of rows, scores, and which rows are flagged." in words


def test_what_left_is_what_the_audit_log_says(client, site, run_id):
    words = client.words(f"left?run={run_id}")
    chain = site.audit_log.read()
    sent = [e for e in chain.entries if e["entry"] == "sent" and e["run"] == run_id]
    assert words.count(" sent ") == len(sent) > 5
    assert "a model (MODEL)" in words
    assert chain.last in words
    assert "It is in the log." in client.words(f"left?noted={chain.last}")
    assert "lines were removed" in client.words(f"left?noted={'0' * 64}")


def test_a_changed_audit_log_is_found(client, site):
    path = site.audit_log.path
    lines = path.read_bytes().splitlines(keepends=True)
    lines[7] = lines[7].replace(b'"bytes":', b'"bytes":1')
    path.write_bytes(b"".join(lines))
    assert "The audit log does not hold" in client.words("left")
    assert "does not hold" in client.words("left").split("By run")[0]
    assert "The audit log does not hold" in client.words()


# Verdicts ----------------------------------------------------------------------------------------


def test_verdicts_on_a_run_make_a_batch(client, site, run_id):
    view = SiteView(site.path)
    rows = rows_of_run(view, view.run(run_id), view.result(view.run(run_id)))
    assert len(rows.ids) > 10
    assert all(rows.why[name] for name in rows.ids)
    answers = {"verdict-0": "novel", "verdict-1": "normal", "note-1": "called", "who": "Ana"}
    words = client.send(f"runs/{run_id}", **answers)
    assert "2 verdicts saved." in words
    assert "judged normal by Ana" in words
    batch = Verdicts(site.verdicts).batches[-1]
    assert (batch.name, batch.agent, batch.level) == (run_id, "west", "1/10")
    last = Verdicts(site.verdicts).history[-1]
    assert (last.id, last.verdict, last.note, last.who) == (rows.ids[1], "normal", "called", "Ana")
    # The same form again says nothing new, and a change replaces.
    before = len(Verdicts(site.verdicts).history)
    assert "0 verdicts saved." in client.send(f"runs/{run_id}", **answers)
    assert "1 verdict saved." in client.send(
        f"runs/{run_id}", **(answers | {"verdict-1": "novel"})
    )
    assert len(Verdicts(site.verdicts).history) == before + 1
    assert len(Verdicts(site.verdicts).batches) == 4


@pytest.mark.parametrize("place", ["9999", "-1", "1e3", "", "0x1", "9" * 30])
def test_a_verdict_is_on_a_row_of_the_batch(client, site, run_id, place):
    before = site.verdicts.read_bytes()
    for path in (f"runs/{run_id}", "verdicts/1"):
        words = client.send(path, 409, **{f"verdict-{place}": "novel"})
        assert "not in this batch" in words
    assert client.send("verdicts/1", **{"verdict-0": "maybe"}).count("0 verdicts saved.") == 1
    assert site.verdicts.read_bytes() == before


def test_false_alarms_stand_beside_the_promise(client, site):
    words = client.words("verdicts")
    summary = Verdicts(site.verdicts).summary()
    (all_of_them,) = summary["agents"]
    assert "No sign against the promise" in words
    share = f"({all_of_them['share']:.1%}".replace("%", " %")
    assert f"3 of 45 judged rows {share}; 95 % interval" in words
    assert "at most 10 %" in words
    batch = Verdicts(site.verdicts).batches[0]
    Verdicts(site.verdicts).add(dict.fromkeys(batch.ids, "normal"), batch=batch.name)
    assert "More false alarms than promised" in client.words("verdicts")
    assert "See conovel check" in client.words("verdicts")


def test_known_normals_are_counted_as_a_detection_counts_them(client, site):
    assert calibration_rows(SiteView(site.path)) == CalibrationRows(0, 400, 0, 199)
    null, test = pd.read_parquet(site.null), pd.read_parquet(site.test)
    more = pd.concat([null, null.iloc[:250] + 1e-3], ignore_index=True)
    more.to_parquet(site.null)
    assert calibration_rows(SiteView(site.path)) == CalibrationRows(0, 400, 250, 199)
    result = cn.AdaDetect("logistic").detect(
        more, test.drop(columns="case") + 0.5, verdicts=cn.Verdicts(site.verdicts, learn=True)
    )
    update = result.parts["verdicts"]
    counted = calibration_rows(SiteView(site.path))
    assert (counted.n_spent, counted.n_used, counted.n_fresh) == (400, 250, 0)
    assert (update.n_spent, update.n_left) == (400, 250)
    words = client.words("verdicts")
    assert "spent: they train, and never calibrate again 400" in words
    assert "Collect fresh known normals" in words


def test_known_normals_that_cannot_be_counted_say_why(client, site):
    pd.DataFrame({"other": [1.0, 2.0]}).to_parquet(site.null)
    words = client.words("verdicts")
    assert "They cannot be counted" in words
    site.null.unlink()
    assert "not counted here" in client.words("verdicts")


# Consent -----------------------------------------------------------------------------------------


@pytest.fixture
def waiting(tmp_path):
    """A run that waits for a person at one site."""
    files = write_sites(tmp_path / "sites")
    path = files["west"].path
    path.write_text(path.read_text() + "ask_seconds = 60\n")
    files["west"] = read_site(path)
    fake = begin(files, operator=HOSTILE)
    outcome = {}
    thread = threading.Thread(target=lambda: outcome.update(fake.run()), daemon=True)
    thread.start()
    assert wait_for(lambda: any(map(question_of, RunRecords(files["west"].state).runs())), 20)
    with at(path) as client:
        yield client, fake.run_id, outcome, thread, files["west"]
    if thread.is_alive():
        fake.coordinator.stop("the test is over")
    thread.join(20)


def question_in(client):
    return client.page("consent").partition('name="question" value="')[2][:64]


def test_a_person_agrees_on_the_page(waiting):
    client, run_id, outcome, thread, file = waiting
    assert "1 run waits for your consent" in client.words()
    words = client.words("consent")
    assert "May this run begin?" in words
    assert "Nothing about your rows has left yet." in words
    answer = {"question": question_in(client), "answer": "agree", "who": "Dr. Ünal"}
    assert "you agreed" in client.send(f"consent/{run_id}", **answer)
    thread.join(60)
    assert outcome["state"] == "done"
    (consent,) = [e for e in file.audit_log.read().entries if e["entry"] == "consent"]
    assert (consent["agrees"], consent["who"]) == (True, "Dr. Ünal")
    # The same form again: the run waits no more.
    assert "does not wait" in client.send(f"consent/{run_id}", 409, **answer)
    assert "Dr. Ünal agreed" in client.words("consent")
    assert "Dr. Ünal agreed" in client.words(f"runs/{run_id}")
    assert "agreed: Dr. Ünal" in client.words(f"left?run={run_id}")


def test_a_person_refuses_on_the_page(waiting):
    client, run_id, outcome, thread, _ = waiting
    answer = {"question": question_in(client), "answer": "refuse", "who": "Ana"}
    assert "you refused" in client.send(f"consent/{run_id}", **answer)
    thread.join(60)
    assert "a person at the site did not agree" in outcome["message"]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"question": "0" * 64}, 409, "about another question"),
        ({"question": ""}, 409, "about another question"),
        ({"question": "é"}, 409, "about another question"),
        ({"who": "  "}, 409, "write your name"),
        ({"answer": "yes"}, 409, "agree or refuse"),
    ],
)
def test_an_answer_that_is_none_changes_nothing(waiting, change, status, words):
    client, run_id, _, _, file = waiting
    answer = {"question": question_in(client), "answer": "agree", "who": "Ana"} | change
    assert words in client.send(f"consent/{run_id}", status, **answer)
    assert not list(file.state.glob("*.answer"))
    assert "May this run begin?" in client.words("consent")


def test_an_answer_to_a_run_that_does_not_wait(client, run_id):
    answer = {"question": "0" * 64, "answer": "agree", "who": "Ana"}
    assert "does not wait" in client.send(f"consent/{run_id}", 409, **answer)
    assert "no such run" in client.send(f"consent/{'0' * 32}", 409, **answer)


def test_terms_with_masks_privacy_and_a_list_in_words():
    from support.terms import make_terms

    asks = make_terms(("a", "b", "c", "d"), regime="together", masks=True, privacy="4,1e-9")
    words = dict(terms_in_words(asks, "ana").points)
    assert words["privacy"] == "differential privacy, with ε 4 and δ 1e-09"
    assert "masks hide" in words["masks"]
    asks = make_terms(("a", "b"), regime="counts", level=0.05, list_name="april")
    words = dict(terms_in_words(asks, "ana").points)
    assert "10 % or fewer" in words["what for"]  # the level of the list, not of the run
    assert "april" in words["list"]
    assert words["privacy"] == "nothing that was learnt from rows is sent"
    assert read_terms({"terms": asks.to_log()}).list_name == "april"
    assert read_terms({"terms": {"spec": "x"}}) is read_terms({}) is None


# Hostile content ---------------------------------------------------------------------------------


def inert(page):
    """Tell whether a page holds no script and no handler, and nothing of another address."""
    parsed = Page(page)
    handlers = [name for name in parsed.attributes if name.startswith("on")]
    return not handlers and not {"script", "img", "iframe", "object"} & set(parsed.tags)


def test_hostile_rows_and_names_are_shown_and_do_nothing(tmp_path):
    ids = [f"{HOSTILE}{i}" for i in range(120)]
    files = write_sites(tmp_path, ids=ids)
    run_id = run_once(files, operator=HOSTILE)
    with at(files["west"].path) as client:
        form = {"verdict-0": "novel", "note-0": HOSTILE, "who": HOSTILE}
        client.send(f"runs/{run_id}", **form)
        for path in ("", "runs", f"runs/{run_id}", "left", "verdicts", "verdicts/1", "consent"):
            page = client.page(path)
            assert inert(page), path
            assert "\u202e" not in page
        assert "&lt;script&gt;document.title" in client.page(f"runs/{run_id}")


def test_hostile_terms_are_shown_and_do_nothing(waiting):
    client, _, _, _, file = waiting
    (run,) = RunRecords(file.state).files()
    path, content = run
    path.write_text(json.dumps(content | {"terms": {"spec": {"regime": HOSTILE}}}))
    for page in (client.page("consent"), client.page()):
        assert inert(page)
    assert "cannot be shown in words" in client.words("consent")


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../..",
        "%2e%2e",
        "..%2f..%2fstate%2fseed-secret",
        "a" * 32,
        "A" * 32,
        "%00",
        "x" * 3000,
    ],
)
def test_no_address_leads_out_of_the_results(client, site, name):
    secret = site.state / "seed-secret"
    assert secret.exists()
    for path in (f"runs/{name}", f"runs/{name}/report", f"verdicts/{name}", f"consent/{name}"):
        answer = client.get(f"/{client.keys.folder}/{path}")
        assert answer.status in (200, 403, 404, 405)
        assert secret.read_text().strip() not in answer.text
    for path in ("runs/../../../../etc/passwd", "runs//etc/passwd"):
        assert "root:" not in client.get(f"/{client.keys.folder}/{path}").text


def test_a_record_cannot_name_the_folder_of_its_results(client, site, run_id, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "report.html").write_text("stolen")
    path = site.state / f"{run_id}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"results": str(elsewhere)}))
    assert "stolen" not in client.page(f"runs/{run_id}/report")


def test_large_files_are_not_read(client, site, run_id, monkeypatch):
    monkeypatch.setattr(site_view, "MOST_LOG", 100)
    assert "too much for a page: use conovel audit" in client.words("left", 500)
    assert "too much for a page: use conovel audit" in client.words("")
    folder = site.results / run_id
    with (folder / "report.html").open("ab") as file:
        file.truncate(site_view.MOST_BYTES + 1)
    assert "too much for a page" in client.words(f"runs/{run_id}/report", 500)
    with (folder / "decisions.parquet").open("ab") as file:
        file.truncate(site_view.MOST_BYTES + 1)
    assert "judge them with conovel verdicts add" in client.words(f"runs/{run_id}")
    with (folder / "run.json").open("ab") as file:
        file.truncate(site_view.MOST_BYTES + 1)
    assert "run.json has more than" in client.words(f"runs/{run_id}")


def test_a_fault_of_our_own_is_a_page_too(client, monkeypatch, caplog):
    monkeypatch.setattr(SiteView, "log", None)
    assert "conovel failed (TypeError)" in client.words("left", 500)
    assert "a page failed" in caplog.text


def test_what_is_broken_is_said_in_words(client, site, run_id):
    site.verdicts.write_text("garbage\n")
    words = client.words("verdicts", 500)
    assert "is not a file of verdicts" in words
    shutil.rmtree(site.results)
    assert "There is no report of this run." in client.words(f"runs/{run_id}/report", 404)
    assert "There is no such page." in client.words("nothing", 404)
    assert "is not a file of verdicts" in client.words("")


def test_settings_are_read_again(client, site):
    assert "Nobody is asked here" in client.words("consent")
    site.path.write_text(site.path.read_text() + "ask_seconds = 900\n")
    assert "yes, within 15 minutes" in client.words("consent")


# The command -------------------------------------------------------------------------------------


def test_addresses():
    assert as_address("::1") == ("::1", "")
    address, warning = as_address("192.0.2.7")
    assert address == "192.0.2.7"
    assert "no encryption" in warning
    for wrong in ("0.0.0.0", "::", "example.org", "127.0.0.1:80"):
        with pytest.raises(InputError, match="--address"):
            as_address(wrong)


def test_the_command_says_what_is_wrong(conovel, tmp_path, site, monkeypatch):
    done = conovel("desk", tmp_path / "none.toml")
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    done = conovel("desk", site.path, "--address", "0.0.0.0")
    assert (done.returncode, "would listen everywhere" in done.stderr) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = conovel("desk", site.path, "--port", taken.getsockname()[1])
    assert (done.returncode, "choose another --port" in done.stderr) == (2, True)
    monkeypatch.setattr("conovel.desk.serve.find_spec", lambda name: None)
    done = conovel("desk", site.path)
    assert (done.returncode, "pip install 'conovel[desk]'" in done.stderr) == (2, True)


def test_help_teaches(conovel):
    words = " ".join(conovel("desk", "--help").stdout.split())
    assert "conovel desk site.toml" in words
    assert "ask_seconds = 600" in words


def test_the_command_serves_until_it_is_stopped(site):
    started = "from conovel.cli import main; main()"
    command = [sys.executable, "-c", started, "desk", str(site.path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        try:
            words = page.stdout.readline().split()
            assert words[:4] == ["the", "page", "of", "west:"]
            address, _, token = words[-1].partition("/open/")
            visitor = Visitor(address, Keys(token))
            assert visitor.enter().status == 303
            answer = visitor.get(f"/{visitor.keys.folder}/")
            assert answer.status == 200
            assert "server" not in answer.headers
            page.send_signal(signal.SIGINT)
            assert page.wait(20) == 0
            assert token not in page.stdout.read()  # it is printed once
        finally:
            page.kill()
