"""``conovel detect --verdicts``, ``conovel verdicts`` and ``conovel verdicts add``."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import conovel as cn
from conovel.cli import app
from conovel.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


def table(seed, n=100, n_novel=15):
    rows = np.random.default_rng(seed).normal(size=(n, 3))
    rows[:n_novel] += 5
    return pd.DataFrame(rows, columns=list("abc")).assign(txn=[f"{seed}-{i}" for i in range(n)])


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output or result.exception
    assert max(map(len, result.output.splitlines())) <= 80 or "--json" in arguments
    return result.output


def detect(test, out, null="normal.csv", *more):
    files = ["--null", null, "--test", test, "--id", "txn", "--out", out]
    return run("detect", *files, "--scorer", "logistic", "--verdicts", "s.verdicts", *more)


def judge(flagged, to="judged.csv", n_novel=15):
    """Write verdicts as an analyst does: the first rows of a day are novel."""
    decided = pd.read_csv(flagged)
    decided = decided[decided["rejected"]]
    novel = decided["id"].str.split("-").str[1].astype(int) < n_novel
    words = np.where(novel, "novel", "normal")
    decided[["id"]].assign(verdict=words, kind="mule", note="").to_csv(to, index=False)
    return len(decided)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(0, 600, 0).drop(columns="txn").to_csv("normal.csv", index=False)
    more = pd.concat([table(0, 600, 0), table(9, 400, 0)]).drop(columns="txn")
    more.to_csv("more.csv", index=False)
    for day in (2, 3):
        table(day).to_csv(f"day{day}.csv", index=False)
    return tmp_path


def test_two_days_with_verdicts_between(here):
    first = detect("day2.csv", "flagged2.csv")
    assert first.exit_code == 0, first.output
    assert "this batch is day2.csv" in first.output
    n_flagged = judge("flagged2.csv")
    added = done("verdicts", "add", "flagged2.csv", "judged.csv", "--who", "ana")
    assert f"{n_flagged} verdicts added to s.verdicts, on day2.csv" in added
    second = detect("day3.csv", "flagged3.csv", "more.csv")
    assert second.exit_code == 0, second.output
    assert f"{n_flagged} rows with a verdict trained the score" in second.output
    assert "600 known normals are spent, 400 are left" in second.output
    summary = json.loads(Path("flagged3.csv.json").read_text())
    assert summary["verdicts"]["batches"] == ["day2.csv"]
    assert summary["verdicts"]["n_left"] == 400
    assert run("verify", "flagged3.csv.json").exit_code == 0
    assert run("report", "flagged3.csv.json").exit_code == 0
    book = cn.Verdicts("s.verdicts")
    assert {one.who for one in book.history} == {"ana"}
    assert {one.kind for one in book.history} == {"mule"}


def test_shares_are_shown_beside_the_promise(here):
    detect("day2.csv", "flagged2.csv")
    n_flagged = judge("flagged2.csv", n_novel=10)  # so many normal ones break the promise
    done("verdicts", "add", "flagged2.csv", "judged.csv")
    shown = done("verdicts", "--verdicts", "s.verdicts", "--picture", "shares.svg")
    [line] = [line for line in shown.splitlines() if "day2.csv" in line]
    n_false = n_flagged - 10
    assert line.split()[1:5] == [
        str(n_flagged),
        str(n_flagged),
        str(n_false),
        f"{n_false / n_flagged:.3f}",
    ]
    assert re.search(r"0\.\d{3}–0\.\d{3}\s+≤ 0.1", line)
    assert "more false alarms than promised" in shown
    root = ET.parse("shares.svg").getroot()
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"day2.csv", "all batches", "promise"} <= set(texts)
    told = json.loads(done("verdicts", "--verdicts", "s.verdicts", "--json"))
    assert told["batches"][0]["n_normal"] == n_false
    assert "name the picture .svg" in str(
        run("verdicts", "--verdicts", "s.verdicts", "--picture", "x.png").exception
    )


def test_decisions_of_a_network_are_batches_with_an_agent(here):
    agents = [cn.Agent(n, table(k, 300, 0)[list("abc")], table(k + 5)[list("abc")])
              for k, n in enumerate(("north", "south"))]  # fmt: skip
    outcome = cn.Network(agents, scorer="logistic", regime="counts").run()
    outcome.to_frame().to_csv("flagged.csv", index=False)
    rows = [
        f"{i},novel,{name}"
        for name, site in outcome.items()
        for i in np.flatnonzero(site.rejected)
    ]
    Path("judged.csv").write_text("\n".join(["row,verdict,site", *rows]))
    refused = run("verdicts", "add", "flagged.csv", "judged.csv")
    assert "give it with --level" in str(refused.exception)
    assert not Path("site.verdicts").exists() or not cn.Verdicts("site.verdicts").batches
    done("verdicts", "add", "flagged.csv", "judged.csv", "--level", "0.1")
    told = cn.Verdicts("site.verdicts").summary()
    assert [one["agent"] for one in told["agents"]] == ["north", "south"]
    assert [one["n_flagged"] for one in told["agents"]] == [s.n_rejected for s in outcome.values()]
    assert told["n_known"] == 0  # what decided is not in the file: they train no score
    shown = done("verdicts")
    assert "north:" in shown
    done("verdicts", "add", "flagged.csv", "judged.csv")  # the same batches again
    assert len(cn.Verdicts("site.verdicts").batches) == 2


def test_the_record_of_simulate_is_enough(here):
    table(1, 300, 0).drop(columns="txn").to_csv("null.csv", index=False)
    options = ["--agent", "north=null.csv,day2.csv", "--agent", "south=normal.csv,day3.csv"]
    fast = ["--scorer", "logistic", "--regime", "counts", "--id", "txn", "--out", "run.json"]
    assert run("simulate", *options, *fast).exit_code == 0
    named = json.loads(Path("run.json").read_text())["reasons"]["south"]["rows"][0]["row"]
    Path("judged.csv").write_text(f"id,verdict,agent\n{named},normal,south\n")
    done("verdicts", "add", "run.json", "judged.csv")
    [own] = [one for one in cn.Verdicts("site.verdicts").batches if one.agent == "south"]
    assert named in own.ids
    assert own.level == "1/10"


def test_the_folder_of_a_run_between_organisations_is_enough(here):
    folder = Path("results", "ab" * 16)
    folder.mkdir(parents=True)
    columns = {"id": [f"r{i}" for i in range(9)], "tested": [True] * 8 + [False]}
    table_of_run = pd.DataFrame(columns).assign(rejected=[True, True, *[False] * 7])
    table_of_run.to_parquet(folder / "decisions.parquet")
    record = {"command": "agent", "site": "north", "transcript": {"spec": {"level": "1/5"}}}
    (folder / "run.json").write_text(json.dumps(record))
    Path("judged.csv").write_text("id,verdict\nr1,normal\nr0,unclear\n")
    done("verdicts", "add", folder / "decisions.parquet", "judged.csv")
    [own] = cn.Verdicts("site.verdicts").summary()["batches"]
    assert (own["agent"], own["name"], own["level"]) == ("north", "ab" * 16, "1/5")
    assert (own["n_tests"], own["n_flagged"], own["n_normal"], own["n_unclear"]) == (8, 2, 1, 1)


def test_ids_may_be_spelled_as_spreadsheets_do(here):
    frame = table(2).assign(txn=["=A1", "-2", *(f"{i:03d}" for i in range(2, 100))])
    frame.to_csv("odd.csv", index=False)
    detect("odd.csv", "flagged.csv")
    flagged = pd.read_csv("flagged.csv", dtype=str)
    flagged = flagged[flagged["rejected"] == "true"][["id"]].assign(verdict="Novel ")
    flagged.to_csv("judged.csv", index=False, sep=";")
    done("verdicts", "add", "flagged.csv", "judged.csv")
    book = cn.Verdicts("s.verdicts")
    assert {one.id for one in book.history} == set(book.batches[0].ids)
    assert {"=A1", "-2"} & set(book.batches[0].ids)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--learn"], "name their file with --verdicts"),
        (["--verdicts", "s.verdicts", "--memory", "1GB"], "do not work with"),
        (["--verdicts", "s.verdicts", "--detector", "normal.csv"], "cannot learn"),
    ],
)
def test_options_that_do_not_fit_are_named(here, options, message):
    null = [] if "--detector" in options else ["--null", "normal.csv"]
    refused = run("detect", *null, "--test", "day2.csv", "--id", "txn", *options)
    assert isinstance(refused.exception, InputError)
    assert message in str(refused.exception)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,word\n1,novel\n", "no column 'verdict'"),
        ("", "no column 'id'"),
        ("id,verdict\n2-0,fraud\n", "write novel, normal or unclear"),
        ("id,verdict\n2-99,novel\n", "was not flagged"),
        ("id,verdict,agent\n2-0,novel,north\n", "is of agent 'north'"),
        ("id,verdict\n\xff\n", "not in UTF-8"),
    ],
)
def test_files_of_verdicts_that_cannot_be_used_are_named(here, text, message):
    detect("day2.csv", "flagged2.csv")
    Path("judged.csv").write_bytes(text.encode("latin-1"))
    refused = run("verdicts", "add", "flagged2.csv", "judged.csv")
    assert message in str(refused.exception)
    assert cn.Verdicts("s.verdicts").history == ()
