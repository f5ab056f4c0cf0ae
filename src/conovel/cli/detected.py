"""What ``conovel detect`` prints about a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conovel.cli.show import (
    facts_table,
    print_findings,
    print_fitted,
    say,
    spelled_range,
    styled,
    text_table,
    times_in_words,
)
from conovel.cli.tables import add_known_rows, add_read_rows
from conovel.stats.words import counted

if TYPE_CHECKING:
    from conovel.cli.detect import DetectFiles
    from conovel.runs.detection import Detection
    from conovel.runs.file_detection import FileDetection
    from conovel.site.explain.reasons import Reasons

_PATTERNS = 5  # that are printed
_STRATA = 12  # that are printed
_FIRST_ROWS = 10  # flagged rows that are listed without --out


def _by_stratum(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the name, the tests and the flagged rows of each stratum, the first ones of many."""
    strata = [one for one in summary.get("strata", {}).get("strata", ()) if one["n_test"]]
    rows = [
        (
            one["stratum"],
            f"{counted(one['n_test'], 'row')}" + ("" if one["tested"] else ", not tested"),
            f"{one['n_rejected']:,}",
        )
        for one in strata[:_STRATA]
    ]
    return rows


def print_summary(
    result: Detection | FileDetection,
    files: DetectFiles,
    read_as: dict[str, str],
    why: Reasons | None,
) -> None:
    """Print what was decided, what holds, and where it was written."""
    from conovel.cli.ledger import add_ledger_rows  # noqa: PLC0415
    from conovel.rows.storage import beside  # noqa: PLC0415
    from conovel.runs.site_results import SiteResult  # noqa: PLC0415

    summary, out, ledger = result.summary(), files.out, files.ledger
    print_findings(result.warnings, result.headline)
    table = facts_table()
    add_read_rows(table, read_as)
    table.add_row(
        "known normals", f"{result.n_train:,} train + {result.n_calibration:,} calibrate"
    )
    add_known_rows(table, result, files.known_path)
    table.add_row("rows tested", f"{summary['n_test']:,}")
    table.add_row("rows flagged", styled((f"{result.n_rejected:,}", "bold")))
    for pattern in why.patterns()[:_PATTERNS] if why else ():
        table.add_row("", f"{counted(len(pattern.members), 'row')}: {pattern.text}")
    for name, tested, flagged in _by_stratum(summary):
        table.add_row("", f"{name}: {flagged} of {tested}")
    table.add_row("level", f"{float(result.level):g}")
    table.add_row("scorer", result.scorer)
    _add_ways(table, result, summary)
    if isinstance(result, SiteResult) and "verdicts" in result.parts:
        from conovel.cli.verdicts import add_verdict_rows  # noqa: PLC0415

        add_verdict_rows(table, result.parts["verdicts"], out)
    update = result.ledger if isinstance(result, SiteResult) else None
    if update is not None and ledger is not None:
        add_ledger_rows(table, update, ledger)
    elif summary["resolution"] not in {finding.message for finding in result.warnings}:
        table.add_row("resolution", summary["resolution"])
    holds = not any(finding.breaks_promise for finding in result.warnings)
    table.add_row("guaranteed" if holds else "presumed", result.guarantee.statement)
    for assumption in result.guarantee.assumptions:
        table.add_row("", styled(("needs:", "dim"), f" {assumption}"))
    if out is not None:
        table.add_row("written", f"{out} and {beside(out).name}")
        table.add_row("a page", f"conovel report {beside(out)}")
        table.add_row("once more", f"conovel repeat {beside(out)}")
    print_fitted(table)
    if out is None and why is not None and len(why):
        _print_first_rows(why, result.n_rejected)


def _add_ways(table: Any, result: Detection | FileDetection, summary: dict[str, Any]) -> None:
    """Add what several runs, weights, and an estimated share of normals say."""
    from conovel.runs.site_results import SiteResult  # noqa: PLC0415

    if isinstance(result, SiteResult) and result.repeated is not None:
        sizes = spelled_range(result.repeated.n_rejected)
        table.add_row("runs", f"{result.repeats}, which flag {sizes} rows each")
        table.add_row("times flagged", f"{times_in_words(result)}, where a row is flagged")
    if "weights" in summary:
        part = summary["weights"]
        worth = f"{part['effective_calibration_rows']:,.0f} calibration rows of equal weight"
        table.add_row("weights", f"{part['source']}; worth {worth}")
    if summary.get("pi0") is not None:
        table.add_row("share of normals", f"{summary['pi0']:.3f} (estimated)")


def _print_first_rows(why: Reasons, n_flagged: int) -> None:
    """List the most novel of the flagged rows, where they are not written into a file."""
    order = range(len(why)) if why.novelty is None else why.novelty.tolist()
    first = list(order)[:_FIRST_ROWS]
    names = why.rows if why.ids is None else why.ids
    texts = why.texts()
    table = text_table(box=None, pad_edge=False)
    table.add_column("row" if why.ids is None else "id", no_wrap=True)
    table.add_column("why flagged", overflow="fold")
    for i in first:
        table.add_row(str(names[i]), texts[i][0])
    say("")
    print_fitted(table)
    what = "all flagged rows" if n_flagged > len(first) else "these rows"
    say(f"Write {what} with ranks, p-values and reasons: --out flagged.csv")
