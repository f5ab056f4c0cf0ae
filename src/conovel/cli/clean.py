"""``conovel clean``: look at suspicious known normals, and remove those that are novelties."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from conovel.cli.show import (
    facts_table,
    print_fitted,
    print_json,
    require_there,
    say,
    stages,
    styled,
)
from conovel.cli.tables import FileOptions, named_samples, with_options
from conovel.errors import FileError, InputError
from conovel.stats.words import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from conovel.runs.clean import Cleaned
    from conovel.runs.clean_list import Listed


@with_options(
    null=typer.Argument(help="Known normals, of which some may be novelties: a file or folder."),
    look=typer.Option(
        "--list",
        help="The rows to look at (.csv), with a column `verdict` to fill in: novel, normal or"
        " unclear. It grows by --step rows at a time.",
    ),
    budget=typer.Option(min=1, help="How many rows somebody will look at, at most."),
    step=typer.Option(
        min=1, help="How many rows are listed at a time; the next ones follow from the verdicts."
    ),
    test="Rows to test: known normals that look like them are listed first. This finds novelties"
    " sooner.",
    out="Where to write the known normals without those judged novel (.csv or .parquet).",
    known_out="Where to write the rows that were judged novel, for `conovel detect --known`.",
    level="The level of later detections, to say what is promised.",
)
def clean(
    *,
    null: Path,
    look: Path = Path("look.csv"),
    budget: int = 50,
    step: int = 10,
    test: Path | None = None,
    options: FileOptions,
    out: Path | None = None,
    known_out: Path | None = None,
    level: str = "0.1",
    seed: int = 0,
    json: bool = False,
) -> None:
    """Find novelties among known normals, with a small budget of verdicts.

    Example: `conovel clean normal.csv --budget 50 --list look.csv`

    Example: `conovel clean normal.csv --list look.csv --out clean.csv --known-out novel.csv`

    One novelty in a hundred known normals can hide all novelties among the tests. Run the first
    command: it lists ten rows. Look at them, write novel, normal or unclear into the column
    `verdict` of the list, and run the same command again: rows like those that were novel come
    next. When the budget is used, or nothing new comes, run the second command.

    Only rows that were judged novel are removed. Do not remove rows because they look strange:
    strange normal rows are needed, and without them more false alarms are raised than promised.
    """
    require_there(null, test, options.schema)
    from conovel.rows.storage import are_large, require_writable  # noqa: PLC0415
    from conovel.runs.clean_list import Listed, read_list, write_cleaned  # noqa: PLC0415
    from conovel.stats.levels import as_level  # noqa: PLC0415

    as_level(level)
    for path in (look, out, known_out):
        if path is not None:
            require_writable(path)
    if look.suffix.lower() != ".csv":
        raise InputError(f"{look}: name the list .csv")
    if are_large(*(path for path in (null, test) if path is not None)):
        raise FileError(
            f"{null} and its tests are too large to be cleaned in one go: clean a part of the"
            " known normals, and detect with that part"
        )
    table, n, separator = _originals(null, options)
    with named_samples(options.reading, null, test):
        listed = read_list(look, table, n) if look.exists() else Listed(())
        if out is None and known_out is None:
            listed = _more(listed, null, test, options, (budget, step, seed), look, table)
            _show(listed, look, budget, json)
            return
        if not listed.verdicts:
            raise InputError(f"{look} has no verdicts: write novel, normal or unclear into it")
        cleaned = write_cleaned(listed, table, out, known_out, separator)
    _show_cleaned(cleaned, listed, (out, known_out), level, json)


def _originals(null: Path, options: FileOptions) -> tuple[dict[str, pa.ChunkedArray], int, str]:
    """Read the known normals as they are in their file, to copy them."""
    import pyarrow as pa  # noqa: PLC0415

    from conovel.rows.datafiles import open_files, original_types  # noqa: PLC0415

    files = open_files(null, options.reading)
    types = original_types(files)
    table = pa.concat_tables([file.read(types) for file in files])
    separator = files[0].dialect.separator if files[0].format == "csv" else ","
    return {name: table[name] for name in table.column_names}, table.num_rows, separator


def _more(
    listed: Listed,
    null: Path,
    test: Path | None,
    options: FileOptions,
    numbers: tuple[int, int, int],
    look: Path,
    table: dict[str, pa.ChunkedArray],
) -> Listed:
    """List further rows, unless some wait for a verdict or the budget is used."""
    from conovel.rows.storage import pick_features, read_features  # noqa: PLC0415
    from conovel.runs.clean import suspicious_normals  # noqa: PLC0415
    from conovel.runs.clean_list import extended, write_list  # noqa: PLC0415

    budget, step, seed = numbers
    left = min(step, budget - len(listed.entries))
    if listed.waiting or left < 1:
        return listed
    with stages() as show:
        show.stage("reading rows")
        reading = options.reading
        types = pick_features(null, test or null, options.features, options.id_column, reading)
        samples = [read_features(path, types, None, reading) for path in (null, test) if path]
        show.stage("looking for suspicious rows")
        more = suspicious_normals(
            samples[0].features,
            left,
            samples[1].features if test else None,
            verdicts=listed.verdicts,
            schema=options.agreed_schema(),
            random_state=seed,
        )
    listed = extended(listed, more)
    write_list(look, listed, table)
    return listed


def _show(listed: Listed, look: Path, budget: int, json: bool) -> None:
    words = list(listed.verdicts.values())
    numbers = {"listed": len(listed.entries), "waiting": listed.waiting, "budget": budget}
    numbers |= {word: words.count(word) for word in ("novel", "normal", "unclear")}
    if json:
        print_json({"command": "clean", "list": str(look), **numbers})
        return
    table = facts_table()
    table.add_row("list", str(look))
    judged = f"{counted(len(words), 'row')} judged: {numbers['novel']:,} novel"
    table.add_row("verdicts", judged)
    table.add_row("budget", f"{len(listed.entries):,} of {budget:,} listed")
    if listed.waiting:
        what = (
            f"{counted(listed.waiting, 'row')} to look at: write novel, normal or unclear into the"
            " column verdict, and run this command again"
        )
    else:
        what = "the budget is used; write the cleaned file with --out"
        if "novel" in words[-5:]:
            what += ", or give a larger --budget: the last rows had novelties, there may be more"
    table.add_row("next", styled((what, "bold")))
    print_fitted(table)


def _show_cleaned(
    cleaned: Cleaned, listed: Listed, paths: tuple[Any, Any], level: str, json: bool
) -> None:
    done, promise = cleaned.words(level)
    if json:
        print_json(
            {
                "command": "clean",
                "n_judged": cleaned.n_judged,
                "n_novel": cleaned.n_novel,
                "n_left": cleaned.n_left,
                "waiting": listed.waiting,
                "promise": promise,
            }
        )
        return
    print_fitted(done)
    print_fitted(promise)
    out, known_out = paths
    if out is not None:
        say(f"known normals: {out}")
    if known_out is not None:
        where = known_out if cleaned.n_novel else "none was judged novel, nothing is written"
        say(f"known novelties: {where}")
