"""``conovel detect``: read two files, write decisions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from conovel.cli.show import (
    bars,
    facts_table,
    is_dask,
    print_json,
    spelled_range,
    split_names,
    stages,
    times_in_words,
)

if TYPE_CHECKING:
    from conovel.site.detector import AdaDetect
    from conovel.site.files import Engine, FileDetection
    from conovel.site.results import Detection


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
            help="automatic, extra-trees, random-forest, compiled-forest, boosting, logistic, mlp,"
            " refined-trees, refined-linear or isolation-forest; several with commas: the best is"
            " chosen without loss of the guarantee."
        ),
    ] = "automatic",
    train_fraction: Annotated[
        str | None,
        typer.Option(
            help="Share of the known normals used for training; chosen by the numbers of rows"
            " if not given."
        ),
    ] = None,
    pi0: Annotated[
        str | None,
        typer.Option(
            help="Adapt to the share of normal rows: storey or quantile; plain BH if not given."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the scorer.", min=0)] = 0,
    max_train_rows: Annotated[
        int,
        typer.Option(
            help="Largest number of known normals, and of other rows, that the scorer learns"
            " from; further known normals calibrate.",
            min=2,
        ),
    ] = 100_000,
    repeats: Annotated[
        int,
        typer.Option(
            help="Number of runs with random splits of their own, 1 to 100, whose evidence is"
            " averaged. With 20 the answer depends less on --seed, where one run finds clearly"
            " more than nothing; it takes 20 times as long. For rows in memory only.",
        ),
    ] = 1,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Read the files in pieces and use at most this much memory, such as 1GB; large"
            " files are always read in pieces. The results are the same, and an interrupted run"
            " can be continued."
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="Where rows are scored: local, or dask for the machines of a cluster."),
    ] = "local",
    scheduler: Annotated[
        str | None, typer.Option(help="Address of the Dask scheduler, such as tcp://host:8786.")
    ] = None,
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
    from conovel.site.detector import AdaDetect  # noqa: PLC0415
    from conovel.site.files.memory import DEFAULT_MEMORY  # noqa: PLC0415
    from conovel.site.storage import require_writable, write_json  # noqa: PLC0415

    if out is not None:
        require_writable(out)
    settings = split_names(scorer), level, train_fraction, pi0, seed, max_train_rows, repeats
    detector = AdaDetect(*settings)
    features = split_names(columns) if columns else None
    files = _Files(null, test, out, features, id_column)
    scoring = _engine(engine, scheduler)
    result, picture = (
        _in_pieces(detector, files, memory or DEFAULT_MEMORY, scoring)
        if _wants_pieces(files, memory, engine)
        else _in_memory(detector, files)
    )
    summary = {"command": "detect", "null": str(null), "test": str(test), **result.summary()}
    if out is not None:
        content = {**summary, "table": out.name, "picture": picture}
        write_json(out.with_suffix(".json"), content)
    if json:
        print_json(summary)
    else:
        _print_summary(result, out)


def _wants_pieces(files: _Files, memory: str | None, engine: str) -> bool:
    """Return whether the files are read in pieces; the results are the same."""
    from conovel.errors import InputError  # noqa: PLC0415
    from conovel.site.files.memory import are_large  # noqa: PLC0415

    wanted = memory is not None or engine != "local"
    if wanted and files.out is None:
        raise InputError(
            "--memory and --engine need --out, because decisions are written piece by piece"
        )
    return wanted or (files.out is not None and are_large(files.null, files.test))


def _engine(name: str, scheduler: str | None) -> Engine | None:
    if not is_dask(name, scheduler):
        return None
    from conovel.site.files.dask_engine import DaskEngine  # noqa: PLC0415

    return DaskEngine(str(scheduler))


class _Files(NamedTuple):
    """The files to read, and the file for the decisions."""

    null: Path
    test: Path
    out: Path | None
    columns: list[str] | None
    id_column: str | None


def _in_memory(detector: AdaDetect, files: _Files) -> tuple[Detection, dict[str, Any]]:
    from conovel.report import of_detection  # noqa: PLC0415
    from conovel.site.storage import read_pair_of_files, write_table  # noqa: PLC0415

    with stages() as show_stage:
        show_stage("reading files")
        known, rows = read_pair_of_files(files.null, files.test, files.columns, files.id_column)
        result = detector.detect(known.features, rows.features, ids=rows.ids, on_stage=show_stage)
    if files.out is not None:
        write_table(files.out, result.columns())
    return result, of_detection(result)


def _in_pieces(
    detector: AdaDetect, files: _Files, memory: str | int, engine: Engine | None
) -> tuple[FileDetection, dict[str, Any]]:
    from conovel.report import of_files  # noqa: PLC0415
    from conovel.site.files import detect_files  # noqa: PLC0415

    assert files.out is not None  # noqa: S101  (_wants_pieces has checked it)
    with bars() as show_progress:
        result = detect_files(
            detector,
            files.null,
            files.test,
            files.out,
            columns=files.columns,
            id_column=files.id_column,
            memory=memory,
            engine=engine,
            on_progress=show_progress,
        )
    return result, of_files(result)


def _print_summary(result: Detection | FileDetection, out: Path | None) -> None:
    from rich.console import Console  # noqa: PLC0415

    from conovel.site.results import SiteResult  # noqa: PLC0415

    summary = result.summary()
    table = facts_table()
    table.add_row(
        "known normals", f"{result.n_train:,} train + {result.n_calibration:,} calibrate"
    )
    table.add_row("rows tested", f"{summary['n_test']:,}")
    table.add_row("rows flagged", f"[bold]{result.n_rejected:,}[/bold]")
    table.add_row("level", f"{float(result.level):g}")
    table.add_row("scorer", result.scorer)
    if isinstance(result, SiteResult) and result.repeated is not None:
        sizes = spelled_range(result.repeated.n_rejected)
        table.add_row("runs", f"{result.repeats}, which flag {sizes} rows each")
        table.add_row("times flagged", f"{times_in_words(result)}, where a row is flagged")
    if summary.get("pi0") is not None:
        table.add_row("share of normals", f"{summary['pi0']:.3f} (estimated)")
    table.add_row("resolution", f"could flag {result.resolution.fewest:,} rows or more together")
    table.add_row("guaranteed", result.guarantee.statement)
    for assumption in result.guarantee.assumptions:
        table.add_row("", f"[dim]needs:[/dim] {assumption}")
    if out is not None:
        table.add_row("written", f"{out} and {out.with_suffix('.json').name}")
        table.add_row("a page", f"conovel report {out.with_suffix('.json')}")
    Console().print(table)
