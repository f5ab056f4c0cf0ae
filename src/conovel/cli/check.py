"""``conovel check``: a rehearsal that shows whether known normals are exchangeable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from conovel.cli.show import (
    facts_table,
    print_findings,
    print_fitted,
    print_json,
    require_there,
    split_names,
    stages,
    styled,
)
from conovel.cli.tables import FileOptions, named_samples, with_options
from conovel.spec.exits import NO
from conovel.spec.findings import verdict_of
from conovel.stats.words import counted

if TYPE_CHECKING:
    from conovel.runs.check_order import Check


@with_options(
    "id_column",
    null=typer.Argument(help="Known normals: a file or a folder."),
    order="Column that orders the rows, such as a time; file order if not given.",
    level="Level of the rehearsal.",
    scorer="Scorer of the rehearsal; as in `conovel detect`.",
    out="Where to write the result (.json); `conovel report` makes a page.",
    plot="Where to draw the drifting columns (.png, .svg or .pdf).",
)
def check(
    *,
    null: Path,
    order: str | None = None,
    options: FileOptions,
    level: str = "0.1",
    scorer: str = "automatic",
    seed: int = 0,
    out: Path | None = None,
    plot: Path | None = None,
    json: bool = False,
) -> None:
    """Rehearse on known normals: compare the latest ones with those before.

    Example: `conovel check normal.csv --order time`

    The latest fifth is tested against the rest as if it were new; all flags are then false alarms.
    And every column is compared along the order. If the rows are exchangeable, the p-value is at
    most t with probability at most t. Exit code 3 if it is at most 0.01, and 0 if not.
    """
    require_there(null, options.schema)
    from conovel.rows.storage import read_table, write_json  # noqa: PLC0415
    from conovel.runs.check_order import check as rehearse  # noqa: PLC0415

    reading = options.reading
    with stages() as show, named_samples(reading, null, null):
        show.stage("reading rows")
        rows = read_table(null, reading, options.features_with(order))
        show.stage("testing the latest known normals against the earlier ones")
        result = rehearse(
            rows,
            order,
            level=level,
            scorer=split_names(scorer),
            random_state=seed,
            schema=options.agreed_schema(),
        )
    if out is not None:
        write_json(out, result.to_dict())
    if plot is not None:
        result.plot().figure.savefig(plot)
    if json:
        print_json(result.to_dict())
    else:
        _print(result, out)
    if not result.exchangeable:
        raise typer.Exit(NO)


def _print(result: Check, out: Path | None) -> None:
    print_findings(result.warnings)
    table = facts_table()
    table.add_row("known normals", f"{result.n_rows:,}")
    table.add_row(
        "rehearsal",
        styled(
            (f"{result.n_flagged:,}", "bold"),
            f" of the latest {result.n_latest:,} flagged",
            ", all falsely" if result.n_flagged else "",
        ),
    )
    table.add_row("p-value", f"{result.p_value:.2g}")
    for one in result.columns[:10]:
        table.add_row(
            "drifts",
            f"{one.column}: {one.before:.4g} before row {one.since:,}, {one.after:.4g} after",
        )
    if len(result.columns) > 10:
        table.add_row("", f"and {counted(len(result.columns) - 10, 'more column')}")
    verdict = verdict_of(result.exchangeable, result.warnings)
    if result.exchangeable:
        table.add_row("so", verdict[:1].lower() + verdict[1:])
    else:
        table.add_row(
            "so",
            styled(
                ("the promise does not apply to rows that come later", "bold"),
                ": take known normals from the same time as the rows to test, or leave the"
                " drifting columns out",
            ),
        )
    if out is not None:
        table.add_row("written", f"{out}; a page: conovel report {out}")
    print_fitted(table)
