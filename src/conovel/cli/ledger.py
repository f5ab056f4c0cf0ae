"""``conovel ledger``: show the list so far, or write it to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conovel.cli.show import facts_table, print_fitted, print_json, require_there, styled
from conovel.stats.words import counted


def ledger(
    path: Annotated[Path, typer.Argument(help="The file of a ledger, such as month.json.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the flagged rows of all batches (.csv or .parquet)."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the batches and the list as JSON.")
    ] = False,
) -> None:
    """Check a ledger, and show what is on the list of all batches so far.

    Example: `conovel ledger month.json --out list.csv`
    """
    require_there(path)
    from conovel.rows.storage import require_writable, write_table  # noqa: PLC0415
    from conovel.runs.ledger import Ledger  # noqa: PLC0415
    from conovel.runs.ledger_file import list_columns, read_prepared  # noqa: PLC0415
    from conovel.spec.guarantee import over_time  # noqa: PLC0415

    if out is not None:
        require_writable(out)
    found = Ledger.load(path)
    if out is not None:
        write_table(out, list_columns(found))
    masks = zip(found.entries, found.decisions(), strict=True)
    batches = [
        {"name": entry.name, "n_tests": entry.batch.n_tests, "n_listed": int(mask.sum())}
        for entry, mask in masks
    ]
    score = "kept" if found.facts is None else found.facts.score
    promise = over_time(found.level, score, final=found.final)
    if json:
        listed = [row._asdict() for row in found.listed()]
        content = {"level": str(found.level), "final": found.final, "score": score}
        print_json({**content, "batches": batches, "list": listed})
        return
    table = facts_table()
    table.add_row("batches", f"{len(batches):,}, {score} scores")
    table.add_row(
        "list so far", f"{found.n_listed:,} of {counted(found.n_tests, 'row')} in all batches"
    )
    for batch in batches:
        table.add_row("", f"{batch['n_listed']:,} of {batch['n_tests']:,} in {batch['name']}")
    if batches and (needs := found.needs(int(str(batches[-1]["n_tests"])))) is not None:
        table.add_row("next", str(needs))
    table.add_row("level", f"{float(found.level):g}{', final decisions' if found.final else ''}")
    table.add_row("guaranteed", promise.statement)
    for assumption in promise.assumptions:
        table.add_row("", styled(("needs:", "dim"), f" {assumption}"))
    if (waiting := read_prepared(path, found)) is not None:
        entry = waiting.ledger.entries[-1]
        table.add_row(
            "prepared",
            f"{entry.batch.n_tests:,} more rows, of a run that was broken off while the sites"
            " wrote their ledgers. The next run of the list takes them or gives them up",
        )
    if out is not None:
        table.add_row("written", str(out))
    print_fitted(table)
