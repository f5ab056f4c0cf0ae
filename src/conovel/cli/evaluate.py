"""``conovel evaluate``: what would have been found in a labelled file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from conovel.cli.show import (
    addressed,
    print_findings,
    print_fitted,
    print_json,
    print_numbers,
    require_there,
    say,
    split_names,
    stages,
)
from conovel.cli.tables import FileOptions, read_labelled_known, with_options
from conovel.errors import InputError
from conovel.stats.words import counted

if TYPE_CHECKING:
    from conovel.experiments.evaluation import Evaluation


@with_options(
    "id_column",
    data="Rows with labels: a file, a folder, an address or -.",
    label="Column that tells normal rows from novelties.",
    normal="Label of normal rows; 0, false, normal, benign or similar if not given.",
    order="Test the last rows, by the order of this column, or `file` for the order of the file;"
    " rows are dealt at random if not given.",
    trials=typer.Option(
        min=1,
        help="How often rows are dealt: 10 at random. With --order: into how many consecutive"
        " batches the tested rows are cut, 1 if not given.",
    ),
    repeats=typer.Option(min=1, hidden=True),  # what --trials was called up to version 0.2
    test_share="Share of the rows that is tested.",
    known_share="What are labels worth? Set this share of the novelties aside, such as 0.2, and"
    " detect with 0, 5, 20 and 100 of them known.",
    known_file=typer.Option(
        "--known",
        help="Known novelties from elsewhere, for every trial: a file with the same columns.",
    ),
    plot="With --known-share, where to draw power against known novelties (.png, .svg or .pdf).",
    keep="Columns that look like ids or labels, but are features.",
    out="Where to write the result (.json).",
)
def evaluate(
    *,
    data: Path,
    label: str,
    normal: str | None = None,
    order: str | None = None,
    trials: int | None = None,
    repeats: int | None = None,
    test_share: str = "0.3",
    known_share: str | None = None,
    known_file: Path | None = None,
    plot: Path | None = None,
    keep: str | None = None,
    scorer: str = "automatic",
    level: str = "0.1",
    train_fraction: str | None = None,
    pi0: str | None = None,
    seed: int = 0,
    options: FileOptions,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Measure false alarms and power on past data whose labels are known.

    Example: `conovel evaluate --data past.csv --label fraud --exclude txn`

    Example: `conovel evaluate --data past.csv --label fraud --order time --trials 4`

    Example: `conovel evaluate --data past.csv --label fraud --known-share 0.2 --plot worth.svg`

    A share of the rows is tested with hidden labels. Of the others, the normal ones are the known
    normals. Rows dealt at random show what the promise is worth; by order they show whether it
    applies to rows that come later.
    """
    require_there(data, known_file, options.schema)
    if plot is not None and known_share is None:
        raise InputError("--plot draws power against known novelties: give --known-share, too")
    if repeats is not None:
        say("conovel: note: --repeats is now called --trials, and will be gone", err=True)
        trials = repeats
    from conovel.experiments.evaluation import evaluate as deal  # noqa: PLC0415
    from conovel.rows.storage import read_table, write_json  # noqa: PLC0415

    with stages() as show:
        show.stage("reading rows")
        by = None if order == "file" else order
        rows = read_table(data, options.reading, options.features_with(label, by))
        novel = (
            None
            if known_file is None
            else read_labelled_known(known_file, rows, label, order, options)
        )
        result = deal(
            rows,
            label,
            order=order,
            trials=trials,
            normal=normal,
            test_share=test_share,
            known_share=known_share,
            X_known=novel,
            keep=split_names(keep) if keep else (),
            level=level,
            scorer=split_names(scorer),
            train_fraction=train_fraction,
            pi0=pi0,
            random_state=seed,
            schema=options.agreed_schema(),
            on_stage=show.stage,
            on_finding=show.finding,
        )
    if plot is not None:
        result.plot().figure.savefig(plot)
    if out is not None:
        write_json(out, {**result.to_dict(), "data": addressed(data), "label": label})
    if json:
        print_json(result.to_dict())
    else:
        _print(result, out)


def _by_known(result: Evaluation) -> tuple[list[str], list[list[str]]]:
    rows = []
    for n in result.by_known:
        one = result.with_known(n)
        errors = (one.spread(what)[1] for what in ("fdp", "power"))
        cells = zip((one.fdp, one.power), errors, strict=True)
        rows.append([f"{n:,}", *(f"{mean:.3f} ± {error:.3f}" for mean, error in cells)])
    return ["known novelties", "FDP", "power"], rows


def _print(result: Evaluation, out: Path | None) -> None:
    print_findings(result.warnings, result.headline)
    how = "by order" if result.by_order else "dealt at random"
    rows = []
    for i, one in enumerate(result.trials):
        counts = one.n_null, one.n_test, one.n_novel, one.n_flagged, one.n_false
        shares = f"{one.fdp:.3f}", f"{one.power:.3f}"
        rows.append([str(i + 1), *(f"{n:,}" for n in counts), *shares])
    (fdp_sd, fdp_error), (power_sd, power_error) = result.spread("fdp"), result.spread("power")
    blank = [""] * 5
    totals = [["mean", *blank, f"{result.fdp:.3f}", f"{result.power:.3f}"]]
    if len(result.trials) > 1:
        totals.append(["sd", *blank, f"{fdp_sd:.3f}", f"{power_sd:.3f}"])
        totals.append(["± of mean", *blank, f"{fdp_error:.3f}", f"{power_error:.3f}"])
    heads = ["trial", "normals", "tested", "novel", "flagged", "false", "FDP", "power"]
    print_numbers(f"rows {how}, level {float(result.level):g}", heads, rows, totals)
    if result.by_known:
        print_numbers("what known novelties are worth", *_by_known(result))
    for kind, times in result.n_warned.items():
        print_fitted(f"{kind}: found in {times} of {counted(len(result.trials), 'trial')}")
    print_fitted(
        "FDP: share of false alarms among the flagged rows; promised is at most"
        f" {float(result.level):g} on average. Power: share of the novelties that were flagged."
    )
    if out is not None:
        print_fitted(f"written to {out}; a page: conovel report {out}")
