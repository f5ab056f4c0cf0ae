"""``conovel repeat``: make a result again from its own file, and compare."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any

import typer

from conovel.cli.made import described
from conovel.cli.show import require_there, say
from conovel.cli.tables import with_options
from conovel.errors import InputError, RunFileError
from conovel.spec.exits import NO

_COMMANDS = "detect", "simulate"
# What keeps a state that a second run would change, or runs elsewhere.
_REFUSED = "--ledger", "--verdicts", "--engine", "--scheduler"
_MOST_WORDS, _MOST_LETTERS = 1_000, 10_000
_MOST_LINES = 10  # differences that are printed
# Parts of a result file that say how or where, not what.
_NOT_COMPARED = "made", "table"


@with_options(run=typer.Argument(help="What `detect` or `simulate` wrote with `--out` (.json)."))
def repeat(*, run: Path) -> None:
    """Run the command of a result again, on the same files, and compare.

    Example: `conovel repeat flagged.csv.json`

    The files must be those of then: sizes and digests are compared first. Nothing is written.
    Decisions, ranks, scores and reasons are compared row by row. Exit code 0 if all are equal, 3
    if something differs.
    """
    require_there(run)
    run = run.resolve()
    from conovel.rows.storage import read_json  # noqa: PLC0415

    content = read_json(run)
    made = content.get("made")
    if not isinstance(made, Mapping) or not made.get("command"):
        raise InputError(
            f"{run} does not say how it was made: it is of an earlier version, or was not written"
            " by the command line; run its command again yourself"
        )
    words = _words(made, run)
    folder = run.parent.joinpath(str(made.get("folder", "."))).resolve()
    say(f"conovel {' '.join(words)}")
    with _inside(folder), tempfile.TemporaryDirectory() as temporary:
        _require_same_files(made)
        out = Path(temporary) / _out_name(words)
        _run(_with_out(words, out))
        again = Path(temporary) / run.name if (Path(temporary) / run.name).exists() else out
        differences = [
            *_different(content, read_json(again)),
            *_different_rows(content, run, again),
        ]
    if made.get("conovel") != version("conovel"):
        say(f"then conovel {made.get('conovel')}, now {version('conovel')}")
    for line in differences[:_MOST_LINES]:
        say(f"differs: {line}")
    if len(differences) > _MOST_LINES:
        say(f"and {len(differences) - _MOST_LINES} more")
    if differences:
        raise typer.Exit(NO)
    say(f"{run.name}: the same again")


def _words(made: Mapping[str, Any], run: Path) -> list[str]:
    """Return the words of the command; a file that somebody sent may hold anything."""
    words = made["command"]
    if (
        not isinstance(words, list)
        or len(words) > _MOST_WORDS
        or not all(isinstance(word, str) and len(word) <= _MOST_LETTERS for word in words)
    ):
        raise RunFileError(f"{run}: the command is not a list of words")
    if words[0] not in _COMMANDS:
        raise InputError(f"{words[0]} cannot be repeated: {' and '.join(_COMMANDS)} can")
    for word in words:
        if word.partition("=")[0] in _REFUSED:
            raise InputError(
                f"a run with {word.partition('=')[0]} cannot be repeated: it depends on more than"
                " its files"
            )
    return words


def _places(words: Sequence[str]) -> list[int]:
    """Return where --out stands, its value after it or in the same word."""
    return [i for i, word in enumerate(words) if word in ("-o", "--out") or word[:6] == "--out="]


def _out_name(words: Sequence[str]) -> str:
    places = _places(words)
    if not places:
        raise InputError("the command has no --out: there is nothing to compare")
    word = words[places[-1]]
    given = word[6:] if word[:6] == "--out=" else "".join(words[places[-1] + 1 :][:1])
    return Path(given).name or "again"


def _with_out(words: Sequence[str], out: Path) -> list[str]:
    """Return the command with another file to write, and without JSON on the screen."""
    dropped = {i for i, word in enumerate(words) if word == "--json"}
    for i in _places(words):
        dropped |= {i} if words[i][:6] == "--out=" else {i, i + 1}
    return [*(word for i, word in enumerate(words) if i not in dropped), "--out", str(out)]


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in another folder, where the names of files are those of the command."""
    before = Path.cwd()
    try:
        os.chdir(folder)
    except OSError:
        raise InputError(
            f"{folder}, where the command was given, is not there: put the result and its files"
            " as they were to one another"
        ) from None
    try:
        yield
    finally:
        os.chdir(before)


def _require_same_files(made: Mapping[str, Any]) -> None:
    """Compare sizes and digests of the files with those of then."""
    files = made.get("files")
    for name, then in files.items() if isinstance(files, Mapping) else ():
        path = Path(name)
        require_there(path)
        now = described(path)
        if now != then:
            raise InputError(
                f"{path} is not the file of then: {now['bytes']:,} bytes, and its content differs;"
                " a result can only be repeated on the same rows"
            )


def _run(words: list[str]) -> None:
    from conovel.cli import app  # noqa: PLC0415

    with redirect_stdout(StringIO()):
        app(words, standalone_mode=False)


def _different(then: Any, now: Any, path: str = "") -> Iterator[str]:
    """Name the parts of two results that differ."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in sorted({*then, *now} - ({*_NOT_COMPARED} if not path else set())):
            yield from _different(then.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif then != now:
        yield f"{path}: {_short(then)} then, {_short(now)} now"


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _different_rows(content: Mapping[str, Any], run: Path, again: Path) -> Iterator[str]:
    """Name the columns of the files of decisions that differ, and in how many rows."""
    from conovel.rows.datafiles import column_names, open_files  # noqa: PLC0415
    from conovel.rows.storage import read_columns  # noqa: PLC0415

    name = content.get("table")
    if not isinstance(name, str) or Path(name).name != name:
        return
    tables = run.with_name(name), again.with_name(name)
    require_there(tables[0])
    if tables[0].read_bytes() == tables[1].read_bytes():
        return
    then, now = (read_columns(path, column_names(open_files(path))) for path in tables)
    for column in sorted({*then, *now}):
        if column not in then or column not in now:
            yield f"{name}: column {column} is only in one of the two"
            continue
        if len(then[column]) != len(now[column]):
            yield f"{name}: {len(then[column]):,} rows then, {len(now[column]):,} now"
            return
        pairs = zip(map(str, then[column]), map(str, now[column]), strict=True)  # NaN is equal
        if n := sum(a != b for a, b in pairs):
            yield f"{name}: {n:,} of {len(then[column]):,} rows in column {column}"
