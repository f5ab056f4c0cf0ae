"""What ``conovel detect`` writes and prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from conovel.cli.show import (
    facts_table,
    print_findings,
    print_fitted,
    spelled_range,
    styled,
    times_in_words,
)
from conovel.cli.tables import add_read_rows
from conovel.stats.words import counted

if TYPE_CHECKING:
    from conovel.rows.dialects import Reading
    from conovel.runs.file_detection import FileDetection
    from conovel.runs.site_results import Detection
    from conovel.site.explain.reasons import Reasons

_PATTERNS = 5  # that are printed


class DetectFiles(NamedTuple):
    """The files to read, the file for the decisions, and what is done besides."""

    null: Path | None
    test: Path
    out: Path | None
    columns: list[str] | None
    id_column: str | None
    ledger: Path | None
    reading: Reading
    check: bool
    most_reasons: int
    keep_columns: bool

    @property
    def both(self) -> tuple[Path, Path]:
        """Known normals, which are there, and rows to test."""
        assert self.null is not None  # noqa: S101  (_with_normals has checked it)
        return self.null, self.test


def write_decisions(result: Detection, why: Reasons | None, files: DetectFiles) -> None:
    """Write the file of decisions, if one was asked for."""
    from conovel.rows.storage import read_originals, write_table  # noqa: PLC0415
    from conovel.site.output import free_name  # noqa: PLC0415

    if files.out is None:
        return
    columns: dict[str, Any] = dict(result.columns())
    if why is not None:
        columns |= why.file_columns(0, result.rejected.size)
    if files.keep_columns:
        for name, values in read_originals(files.test, files.reading).items():
            columns[free_name(name, columns)] = values
    write_table(files.out, columns)


def print_summary(
    result: Detection | FileDetection,
    files: DetectFiles,
    read_as: dict[str, str],
    why: Reasons | None,
) -> None:
    """Print what was decided, what holds, and where it was written."""
    from conovel.cli.kept import add_ledger_rows  # noqa: PLC0415
    from conovel.rows.storage import beside  # noqa: PLC0415
    from conovel.runs.site_results import SiteResult  # noqa: PLC0415

    summary, out, ledger = result.summary(), files.out, files.ledger
    print_findings(result.warnings, result.headline)
    table = facts_table()
    add_read_rows(table, read_as)
    table.add_row(
        "known normals", f"{result.n_train:,} train + {result.n_calibration:,} calibrate"
    )
    table.add_row("rows tested", f"{summary['n_test']:,}")
    table.add_row("rows flagged", styled((f"{result.n_rejected:,}", "bold")))
    for pattern in why.patterns()[:_PATTERNS] if why else ():
        table.add_row("", f"{counted(len(pattern.members), 'row')}: {pattern.text}")
    table.add_row("level", f"{float(result.level):g}")
    table.add_row("scorer", result.scorer)
    if isinstance(result, SiteResult) and result.repeated is not None:
        sizes = spelled_range(result.repeated.n_rejected)
        table.add_row("runs", f"{result.repeats}, which flag {sizes} rows each")
        table.add_row("times flagged", f"{times_in_words(result)}, where a row is flagged")
    if summary.get("pi0") is not None:
        table.add_row("share of normals", f"{summary['pi0']:.3f} (estimated)")
    update = result.ledger if isinstance(result, SiteResult) else None
    if update is not None and ledger is not None:
        add_ledger_rows(table, update, ledger)
    else:
        fewest = result.resolution.fewest
        table.add_row("resolution", f"could flag {counted(fewest, 'row')} or more together")
    holds = not any(finding.breaks_promise for finding in result.warnings)
    table.add_row("guaranteed" if holds else "presumed", result.guarantee.statement)
    for assumption in result.guarantee.assumptions:
        table.add_row("", styled(("needs:", "dim"), f" {assumption}"))
    if out is not None:
        table.add_row("written", f"{out} and {beside(out).name}")
        table.add_row("a page", f"conovel report {beside(out)}")
    print_fitted(table)
