"""``conovel simulate``, ``verify`` and ``inspect``, as a user calls them."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

import conovel as cn

SMALL = ("--nulls", 900, "--tests", 150, "--scorer", "logistic")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents")
    rng = np.random.default_rng(0)
    for name in ("north", "south"):
        null = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
        null.to_parquet(folder / f"{name}-null.parquet")
        test = np.vstack([rng.normal(size=(40, 3)), rng.normal(5, 1, size=(10, 3))])
        test = pd.DataFrame(test, columns=list("abc"))
        test.insert(0, "txn", range(50))
        test.to_csv(folder / f"{name}-test.csv", index=False)
    return folder


def test_regimes_side_by_side_on_the_gaussian_design(conovel):
    run = conovel("simulate", *SMALL, "--regime", "isolated,counts,full", "--bits", 4)
    assert run.returncode == 0, run.stderr
    for words in (
        "isolated",
        "counts",
        "full, auto of 4-bit models",
        "composite chosen: ",
        "rounds of counts",
        "agent-3",
    ):
        assert words in run.stdout
    assert "novelties found" in run.stdout


def test_counts_as_between_organisations(conovel, tmp_path):
    asked = ["simulate", "--regime", "joint", "--scorer", "logistic", "--nulls", "600"]
    smallest = {}
    for options in ((), ("--as-deployed",)):
        path = tmp_path / f"run{len(options)}.json"
        run = conovel(*asked, "--tests", "150", *options, "--out", str(path))
        assert run.returncode == 0, run.stderr
        told = json.loads(path.read_text())["transcript"]["histograms"]
        rows = [
            sum(cell)
            for one in told.values()
            for cell in zip(one["calibration"], one["tests"], strict=True)
        ]
        smallest[options] = min(n for n in rows if n)
    assert list(smallest.values()) == [1, 3]


def test_models_with_differential_privacy(conovel, tmp_path):
    asked = "simulate", *SMALL, "--regime", "full"
    run = conovel(*asked, "--privacy", "4", "--out", "run.json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "compact models with ε = 4, δ = 1/1000000" in run.stdout
    assert conovel("verify", "run.json", cwd=tmp_path).returncode == 0
    refused = conovel(*asked, "--privacy", "4,1/100")
    assert refused.returncode == 2
    assert "choose a smaller δ" in " ".join(refused.stderr.split())


def test_files_in_a_run_out_and_verified(conovel, files, few_trees):
    agents = [
        word
        for name in ("north", "south")
        for word in ("--agent", f"{name}={name}-null.parquet,{name}-test.csv")
    ]
    run = conovel("simulate", *agents, "--id", "txn", "--out", "run.json", cwd=files)
    assert run.returncode == 0, run.stderr
    assert "conovel verify run.json" in run.stdout
    assert "novelties found" not in run.stdout  # nobody knows the truth here
    held = conovel("verify", "run.json", cwd=files)
    assert (held.returncode, "follows from the transcript" in held.stdout) == (0, True)

    content = json.loads((files / "run.json").read_text())
    decisions = content["decisions"]["north"]
    flip = decisions["rejected"].index(True)
    decisions["rejected"][flip] = False
    (files / "tampered.json").write_text(json.dumps(content))
    broken = conovel("verify", "tampered.json", cwd=files)
    assert broken.returncode == 3
    assert "does not hold: north" in broken.stdout


def test_json_for_scripts(conovel):
    run = conovel("simulate", *SMALL, "--regime", "counts", "--pi0", "storey", "--json")
    (only,) = json.loads(run.stdout)
    assert only["transcript"]["spec"]["regime"] == "counts"
    assert only["transcript"]["spec"]["level"] == "1/10"


def test_dropouts(conovel):
    run = conovel("simulate", *SMALL, "--regime", "counts", "--drop", "agent-2=models")
    assert "Left out before the counts: agent-2" in " ".join(run.stdout.split())
    run = conovel("simulate", *SMALL, "--regime", "counts", "--drop", "agent-2=counts")
    assert (run.returncode, "vanished during the counts" in run.stderr) == (2, True)


def test_every_regime_has_a_file_of_its_own(conovel, tmp_path):
    out = tmp_path / "run.json"
    run = conovel("simulate", *SMALL, "--regime", "isolated,counts", "--out", out)
    assert run.returncode == 0, run.stderr
    assert not out.exists()
    for regime in ("isolated", "counts"):
        written = tmp_path / f"run.{regime}.json"
        assert json.loads(written.read_text())["transcript"]["spec"]["regime"] == regime
        assert str(written) in run.stdout.replace("\n", "")
        assert conovel("verify", written).returncode == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--regime", "fuller"], "regime must be one of"),
        (["--bits", "tiny"], "bits must be"),
        (["--bits", "40"], "16"),
        (["--composite", "sum"], "composite must be one of"),
        (["--agent", "north"], "write NAME=NULL,TEST"),
        (["--agent", "a=x.csv,y.csv"], "x.csv does not exist"),
        (["--drop", "agent-1=never"], "write NAME=hello, NAME=models or NAME=counts"),
        (["--drop", "nobody=hello"], "no agent called nobody"),
        (["--nulls", "1"], "are too few for 3 agents"),
        (["--on-dropout", "panic"], "on_dropout must be"),
    ],
)
def test_bad_options_are_one_clear_line(conovel, words, complaint):
    run = conovel("simulate", *SMALL, *words)
    assert run.returncode == 2
    assert complaint in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_inspect_prints_what_a_model_is_made_of(conovel, tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 3))
    model = RandomForestClassifier(5, max_depth=3, random_state=0).fit(X, X[:, 0] > 0)
    (tmp_path / "model.bin").write_bytes(cn.encode(model, bits=4))
    run = conovel("inspect", tmp_path / "model.bin")
    assert run.returncode == 0, run.stderr
    for words in ("trees", "bits per node", "paper bytes"):
        assert words in run.stdout
    facts = json.loads(conovel("inspect", tmp_path / "model.bin", "--json").stdout)
    assert facts["trees"] == 5


def test_inspect_and_verify_refuse_what_they_cannot_read(conovel, tmp_path):
    (tmp_path / "junk").write_bytes(b"not a model at all, and long enough for a header")
    run = conovel("inspect", tmp_path / "junk")
    assert (run.returncode, len(run.stderr.strip().splitlines())) == (2, 1)
    assert conovel("inspect", tmp_path / "missing").returncode == 2
    assert conovel("verify", tmp_path / "junk").returncode == 2
    (tmp_path / "list.json").write_text("[]")
    assert conovel("verify", tmp_path / "list.json").returncode == 2
