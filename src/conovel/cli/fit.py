"""``conovel fit``: fit a detector once, and keep it in a file."""

from __future__ import annotations

from pathlib import Path

import typer

from conovel.cli.show import (
    facts_table,
    print_fitted,
    print_json,
    require_there,
    split_names,
    stages,
)
from conovel.cli.tables import FileOptions, named_samples, with_options
from conovel.errors import FileError


@with_options(
    null="Known normals: a CSV or Parquet file, or a folder of them.",
    out="Where to write the detector.",
    unlabelled="Rows like those to be tested, novelties among them, that are never tested"
    " themselves, such as last month's. Without them the score learns from known normals alone,"
    " and finds less.",
    novelties=typer.Option(
        "--known",
        help="Known novelties, confirmed cases: a file with the same columns, and if you like a"
        " column `kind`. The score learns from them; they are never tested.",
    ),
    confidence="With this probability, such as 0.95, the long-run rate of this very detector is at"
    " most the level. Without it the guarantee is an average over calibration samples.",
    scorer="A scorer as in `conovel detect`. Without unlabelled rows and known novelties:"
    " automatic or isolation-forest.",
    max_train_rows=typer.Option(
        min=2,
        help="Largest number of known normals, and of unlabelled rows, that the scorer learns"
        " from; further known normals calibrate.",
    ),
    strata="Columns, with commas, within whose values rows are compared: a branch, a month. The"
    " shares of strata may then differ between known normals and tests.",
    explain="Keep up to 2,000 known normals in the file, so that flagged rows can be explained.",
)
def fit(
    *,
    null: Path,
    out: Path,
    unlabelled: Path | None = None,
    novelties: Path | None = None,
    level: str = "0.1",
    confidence: str | None = None,
    options: FileOptions,
    scorer: str = "automatic",
    train_fraction: str | None = None,
    seed: int = 0,
    max_train_rows: int = 100_000,
    strata: str | None = None,
    explain: bool = False,
    json: bool = False,
) -> None:
    """Fit a detector once, to test later batches in milliseconds.

    Example: `conovel fit --null normal.csv --unlabelled march.csv --out detector.conovel`, then
    `conovel detect --detector detector.conovel --test today.csv`

    The file holds numbers only: the model, the scores of the calibration rows, the columns and
    the settings. Nothing in it is executed, and without --explain it holds no rows. The guarantee
    of a batch is that of `conovel detect`, provided none of its rows was among the unlabelled
    ones.
    """
    require_there(null, unlabelled, novelties, options.schema)
    from conovel.rows.known_files import KnownFile  # noqa: PLC0415
    from conovel.rows.schemas import columns_read  # noqa: PLC0415
    from conovel.rows.storage import pick_columns, read_features  # noqa: PLC0415
    from conovel.runs.detector import AdaDetect  # noqa: PLC0415

    if not out.parent.is_dir():
        raise FileError(f"{out}: the folder {out.parent} does not exist")
    detector = AdaDetect(
        split_names(scorer),
        level,
        train_fraction,
        random_state=seed,
        max_train_rows=max_train_rows,
        schema=options.agreed_schema(),
        strata=split_names(strata) if strata else None,
    )
    reading, names = columns_read(detector.schema, options.reading, options.features)
    with stages() as show, named_samples(reading, null, unlabelled):
        show.stage("reading files")
        types = pick_columns(null, unlabelled or null, names, options.id_column, reading)
        normals = read_features(null, types, None, reading).features
        others = None
        if unlabelled is not None:
            others = read_features(unlabelled, types, None, reading).features
        cases = None
        if novelties is not None:
            cases = KnownFile(novelties).read(types, None, reading, picked=True).frame()
        samples, tell = (normals, others, cases), show.stage
        kept = detector.keep(*samples, explain=explain, confidence=confidence, on_stage=tell)
    kept.save(out)
    summary = {
        "command": "fit",
        "detector": str(out),
        "digest": kept.digest,
        "level": str(kept.level),
        "scorer": kept.scorer,
        "imitated": kept.imitated,
        "n_train": kept.n_train,
        "n_unlabelled": kept.n_unlabelled,
        "n_known": kept.n_known,
        "n_calibration": kept.n_calibration,
        "confidence": None if kept.confidence is None else str(kept.confidence),
        "long_run": kept.long_run and kept.long_run._asdict(),
        "columns": list(kept.columns or ()),
        "strata": list(kept.strata.columns) if kept.strata else [],
    }
    if json:
        print_json(summary)
        return
    table = facts_table()
    table.add_row("known normals", f"{kept.n_train:,} train + {kept.n_calibration:,} calibrate")
    table.add_row("unlabelled rows", f"{kept.n_unlabelled:,} train")
    if kept.n_known:
        table.add_row("known novelties", f"{kept.n_known:,} train")
    table.add_row("scorer", kept.scorer + (", imitated by a forest" if kept.imitated else ""))
    table.add_row("level", f"{float(kept.level):g}")
    table.add_row("strata" if kept.strata else "in the long run", kept.in_the_long_run)
    table.add_row("written", f"{out}, {out.stat().st_size:,} bytes")
    table.add_row("use it", f"conovel detect --detector {out} --test today.csv")
    print_fitted(table)
