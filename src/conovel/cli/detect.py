"""``conovel detect``: two files in, decisions out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conovel.cli.show import print_json, split_names, stages

if TYPE_CHECKING:
    from conovel.detector import Detection


def detect(
    null: Annotated[
        Path, typer.Option(help="Known normals: a CSV or Parquet file, or a folder of them.")
    ],
    test: Annotated[Path, typer.Option(help="Rows to test: a file or a folder.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the decisions (.parquet or .csv); a .json goes beside."),
    ] = None,
    level: Annotated[
        str, typer.Option(help="Largest tolerated share of false alarms among the flagged rows.")
    ] = "0.1",
    columns: Annotated[
        str | None,
        typer.Option(help="Feature columns, separated by commas; all of them if not given."),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column that names the rows; never a feature.")
    ] = None,
    scorer: Annotated[
        str,
        typer.Option(
            help="default, extra-trees, random-forest, boosting, logistic, mlp or"
            " isolation-forest; several with commas: the best is chosen validly."
        ),
    ] = "default",
    train_fraction: Annotated[
        str, typer.Option(help="Share of the known normals used for training.")
    ] = "0.5",
    pi0: Annotated[
        str | None,
        typer.Option(
            help="Adapt to the share of normal rows: storey or quantile; plain BH if not given."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the scorer.", min=0)] = 0,
    json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON instead of a table.")
    ] = False,
) -> None:
    """Flag the novel rows of one site's test file.

    Example: `conovel detect --null normal.parquet --test today.csv --id txn --out flagged.parquet`

    Columns are matched by name. At most the fraction LEVEL of the flagged rows is expected to
    be false alarms, whatever the model, provided the known normals and the normal test rows
    come from the same source.
    """
    from conovel.detector import AdaDetect  # noqa: PLC0415
    from conovel.files import (  # noqa: PLC0415
        read_pair_of_files,
        require_writable,
        write_json,
        write_table,
    )
    from conovel.report import of_detection  # noqa: PLC0415

    if out is not None:
        require_writable(out)
    detector = AdaDetect(split_names(scorer), level, train_fraction, pi0, seed)
    with stages() as tell:
        tell("reading files")
        features = split_names(columns) if columns else None
        known, rows = read_pair_of_files(null, test, features, id_column)
        result = detector.detect(known.features, rows.features, ids=rows.ids, on_stage=tell)
    summary = {"command": "detect", "null": str(null), "test": str(test), **result.summary()}
    if out is not None:
        write_table(out, result.columns())
        write_json(out.with_suffix(".json"), {**summary, "picture": of_detection(result)})
    if json:
        print_json(summary)
    else:
        _print_summary(result, out)


def _print_summary(result: Detection, out: Path | None) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    summary = result.summary()
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    table.add_row(
        "known normals", f"{result.n_train:,} train + {result.n_calibration:,} calibrate"
    )
    table.add_row("rows tested", f"{summary['n_test']:,}")
    table.add_row("rows flagged", f"[bold]{result.n_rejected:,}[/bold]")
    table.add_row("level", f"{float(result.level):g}")
    table.add_row("scorer", result.scorer)
    if summary["pi0"] is not None:
        table.add_row("share of normals", f"{summary['pi0']:.3f} (estimated)")
    table.add_row("resolution", f"could flag {result.resolution.fewest:,} rows or more together")
    table.add_row("guaranteed", result.guarantee.statement)
    for assumption in result.guarantee.assumptions:
        table.add_row("", f"[dim]needs:[/dim] {assumption}")
    if out is not None:
        table.add_row("written", f"{out} and {out.with_suffix('.json').name}")
        table.add_row("a page", f"conovel report {out.with_suffix('.json')}")
    Console().print(table)
