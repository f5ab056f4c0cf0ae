"""The page of an evaluation: what would have been found in a labelled table."""

from __future__ import annotations

from conovel.report.checked import Checked
from conovel.report.picture_content import shortened
from conovel.report.sections import settings_section
from conovel.report.view import Section, Story, Table
from conovel.spec.findings import percent
from conovel.stats.words import counted

_MOST_TRIALS = 200
_COUNTS = ("n_null", "n_test", "n_novel", "n_flagged")
_COLUMNS = ("trial", "known normals", "tested", "novel", "flagged", "false alarms", "found")


def evaluation_story(run: Checked) -> Story:
    """Describe an evaluation, as ``conovel evaluate`` wrote it."""
    trials = run.objects("trials")[:_MOST_TRIALS]
    fdp, power, errors = run.number("fdp"), run.number("power", None), run.object("standard_error")
    rows = [
        [
            str(i + 1),
            *(f"{trial.integer(key):,}" for key in _COUNTS),
            percent(round(trial.number("fdp"), 3)),
            _share(trial.number("power", None)),
        ]
        for i, trial in enumerate(trials)
    ]
    how = "in their order" if run.flag("by_order") else "dealt at random"
    table = Table("The trials", _COLUMNS, rows, shown=20)
    return Story(
        kind="Past data with labels",
        headline=f"{percent(round(fdp, 3))} of the flagged rows were false alarms",
        lead=f"{_share(power)} of the novelties were found, on average over"
        f" {counted(len(trials), 'trial')} with rows {how}.",
        facts=[
            ("false alarms, promised at most on average", shortened(run.text("level"))),
            ("false alarms, realised", _with_error(fdp, errors.number("fdp", None))),
            ("novelties found", _with_error(power, errors.number("power", None))),
            ("trials", f"{len(trials):,}"),
        ],
        sections=[
            Section(table.caption, tables=[table]),
            settings_section(
                [
                    ("rows", run.text("data", "")),
                    ("label", run.text("label", "")),
                    ("label of normal rows", run.text("normal")),
                ]
            ),
        ],
    )


def _share(share: float | None) -> str:
    return "–" if share is None else percent(round(share, 3))


def _with_error(share: float | None, error: float | None) -> str:
    return _share(share) if error is None else f"{_share(share)} ± {percent(round(error, 3))}"
