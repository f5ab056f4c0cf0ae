"""A plain `pip install .` is enough for the README and the first page of the documentation."""

import os
import re
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import numpy as np
import pytest
from support.paths import ROOT

import conovel as cn
from conovel.errors import FileError

RUN_PAGES = [str(ROOT / "packaging" / "run_pages.py")]
SAID = [
    "rows are false alarms",
    "of 20 novelties found",
    "of 100 novelties",
    "FDR over all",
    "of the 30 nov",
    "together: ",
]
PAGES = [str(ROOT / "README.md"), str(ROOT / "docs" / "start.md")]


# Modules of the standard library that only POSIX systems have. Without fcntl there are no ledgers.
OF_POSIX = {"grp", "pty", "pwd", "resource", "syslog", "termios"}


def named(requirement):
    """The name of a distribution, as they are compared."""
    name = re.match(r"[\w.-]+", requirement)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def brought():
    """The distributions that a plain installation brings, and what these need in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found, asked = set(), [named(one) for one in project["dependencies"]]
    while asked:
        name = asked.pop()
        if name in found:
            continue
        try:
            needed = requires(name) or []
        except PackageNotFoundError:  # for another platform
            continue
        found.add(name)
        asked += [named(one) for one in needed if "extra ==" not in one]
    return found


def missing():
    """The modules that are installed here and that a plain installation does not bring."""
    plain = brought() | {"conovel"}
    return {
        module
        for module, distributions in packages_distributions().items()
        if not plain & {named(one) for one in distributions}
    }


def run(command, folder, env):
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_examples_and_commands_run_with_what_a_plain_installation_brings(tmp_path):
    # Loops that are not compiled give the same bits, and take too long for a default test.
    names = (missing() | OF_POSIX) - {"numba", "llvmlite"}
    assert {"polars", "matplotlib", "opendp", "pytest"} <= names
    assert not {"numpy", "sklearn", "pyarrow", "conovel"} & names
    here = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    bare = ROOT / "tests" / "support" / "bare.py"
    printed = run([sys.executable, bare, ",".join(names), *PAGES], tmp_path, here)
    assert [words for words in SAID if words not in printed] == []
    assert printed.count("$ conovel ") > 10


def test_without_locks_of_posix_a_ledger_in_a_file_is_refused(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows: an import of it fails
    rows = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(FileError, match=r"a\.json cannot be locked: this system has no POSIX"):
        cn.AdaDetect("logistic").detect(rows[:40], rows[40:], ledger=tmp_path / "a.json")
    assert not (tmp_path / "a.json").exists()


@pytest.mark.slow
def test_examples_and_commands_run_in_a_new_environment(tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    folder = tmp_path / "work"
    folder.mkdir()
    plain = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    install = ["-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run([python, *install, "-c", ROOT / "constraints.txt", ROOT], folder, plain)
    printed = run([python, *RUN_PAGES, *PAGES], folder, plain)
    assert [words for words in SAID if words not in printed] == []
    forms_without_extras(python, folder, plain)


def forms_without_extras(python, folder, env):
    """Read and write what needs no extra, and name the extra of what does."""
    detect = [python, "-m", "conovel", "detect", "--scorer", "logistic"]
    for name in ("normal", "march"):
        lines = (folder / f"{name}.csv").read_text().splitlines(keepends=True)
        (folder / f"{name}.data").write_text("".join(lines[1:]))
    files = ["--null", "normal.data", "--test", "march.data", "--no-header"]
    run([*detect, *files, "--out", "flagged.jsonl", "--log-file", "run.log"], folder, env)
    assert len((folder / "flagged.jsonl").read_text().splitlines()) == 120
    assert "read march.data: 120 rows" in (folder / "run.log").read_text()
    piped = [*detect, "--null", "normal.csv", "--test", "-", "--json"]
    content = (folder / "march.csv").read_text()
    done = subprocess.run(
        piped, cwd=folder, env=env, input=content, capture_output=True, text=True, check=False
    )
    assert '"n_test": 120' in done.stdout, done.stderr
    for more, extra in ((["--out", "f.xlsx"], "excel"), (["--test", "sftp://h/a.csv"], "remote")):
        done = subprocess.run(
            [*detect, *files, *more],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, f"conovel[{extra}]" in done.stderr) == (2, True)
        assert "[conovel explain CN-301]" in done.stderr
