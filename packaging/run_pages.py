"""Run every Python example and every command of pages, as a reader of them would.

Called with the pages, in an empty folder and with the Python of an environment in which conovel is
installed. Files that commands name and nobody made before are made here. The exit code is 1 if
anything fails.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

PROGRAM = Path(sys.executable).with_name("conovel")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```|^((?: {4}[^\n]*\n)+)", re.DOTALL | re.MULTILINE)
# What is done by whoever calls this, and what a page names for developers.
LEFT_OUT = ("pip install", "make ", "git clone", "cd ")
# As a page has it, and so that it ends soon.
SHORTER = {"make demo": "python -m conovel.demo", "--trials 100": "--trials 1"}


def make_files() -> None:
    """Make the files that the README's commands name: normals, later rows and labelled rows."""
    rng = np.random.default_rng(0)

    def rows(n: int, n_novel: int = 0, **further: object) -> pa.Table:
        values = rng.normal(size=(n, 3))
        values[:n_novel] += 4.0
        names = ("amount", "hour", "time")
        return pa.table({**further, **dict(zip(names, values.T, strict=True))})

    for name in ("normal", "n0", "s0"):
        pa_parquet.write_table(rows(400), f"{name}.parquet")
    pa_csv.write_csv(rows(400), "normal.csv")
    for name in ("today", "march", "n1", "s1"):
        pa_csv.write_csv(rows(120, 30), f"{name}.csv")
    pa_csv.write_csv(rows(600, 60, fraud=[int(i < 60) for i in range(600)]), "past.csv")
    pa_csv.write_csv(rows(20, 20), "frauds.csv")


def name_rows(command: list[str]) -> None:
    """Give the rows of a CSV file names, if a command says in which column they are."""
    if "--id" not in command:
        return
    file, column = (command[command.index(flag) + 1] for flag in ("--test", "--id"))
    if file.endswith(".csv") and column not in (table := pa_csv.read_csv(file)).column_names:
        names = [f"row {i}" for i in range(table.num_rows)]
        pa_csv.write_csv(table.append_column(column, [names]), file)


def commands_of(text: str) -> list[list[str]]:
    """Return the commands of some lines, without comments."""
    found = []
    for line in text.splitlines():
        for one in re.sub(r"\s# .*", "", line).removeprefix("$").split("&&"):
            command = one.strip()
            for told, run in SHORTER.items():
                command = command.replace(told, run)
            if command and not command.startswith(LEFT_OUT):
                found.append(shlex.split(command))
    return found


def run_command(command: list[str]) -> None:
    """Run one command; what it prints is shown where it fails."""
    program, *arguments = command
    programs = {"conovel": [str(PROGRAM)], "python": [sys.executable]}
    done = subprocess.run(
        [*programs[program], *arguments], capture_output=True, text=True, check=False
    )
    print("$", shlex.join(command), flush=True)
    if done.returncode:
        sys.exit(
            f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )


def run_page(page: Path, run: Callable[[list[str]], None]) -> None:
    """Run the blocks of a page one after the other."""
    names: dict[str, object] = {}
    for language, block, indented in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(block, page.name, "exec"), names)
        elif not language or language in ("bash", "console"):
            for command in commands_of(block or indented):
                name_rows(command)
                run(command)


def run_pages(pages: Sequence[str], run: Callable[[list[str]], None] = run_command) -> None:
    """Run the pages one after the other."""
    make_files()
    for page in pages:
        print(f"{page}:", flush=True)
        run_page(Path(page), run)


if __name__ == "__main__":
    run_pages(sys.argv[1:])
