"""A reproduced experiment: its tables, and its figures as images that cannot run code."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from conovel.report.picture import shortened
from conovel.report.plots import spelled
from conovel.report.sections import settings_section
from conovel.report.view import Checked, Figure, Section, Story, Table
from conovel.rows.storage import read_bytes
from conovel.spec.findings import percent
from conovel.stats.words import counted

MOST_FIGURE_BYTES = 600_000  # of all figures together, so that the page stays below 1 MB
MOST_CELLS = 8_000


def experiment_story(run: Checked, folder: Path | None) -> Story:
    """Describe the results of an experiment."""
    name = shortened(run.text("experiment"))
    settings = run.object("settings") if "settings" in run else Checked({})
    tables = [_table(table) for table in run.objects("tables")]
    if sum(len(table.rows) * len(table.columns) for table in tables) > MOST_CELLS:
        run.refuse("tables", f"have more than {MOST_CELLS:,} cells")
    figures, left_out = _figures(run, folder)
    chosen = settings_section(settings.value.items())
    sections = []
    if figures:
        sections.append(Section("Figures", figures=figures))
    sections += [Section(table.caption, tables=[table]) for table in tables]
    return Story(
        kind="Experiment",
        headline=f"Experiment “{name}”",
        lead=f"{len(tables)} tables" + (f" and {len(figures)} figures." if figures else "."),
        facts=chosen.points[:6],
        warnings=left_out,
        sections=[*sections, chosen],
    )


def _table(content: Checked) -> Table:
    columns = content.texts("columns")
    rows = content.rows("rows")
    for i, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(columns):
            content.refuse(f"rows[{i}]", f"does not have {len(columns)} cells")
    cells = [[_cell(value) for value in row] for row in rows]
    text = frozenset(j for j in range(len(columns)) if any(_is_words(row[j]) for row in cells))
    return Table(shortened(content.text("title"), 200), columns, cells, text=text)


def _is_words(cell: str) -> bool:
    return bool(cell) and cell[0] not in "0123456789.-−+±≤<"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return spelled(value) if abs(value) < 1e300 else str(value)
    return shortened(str(value))


def _figures(run: Checked, folder: Path | None) -> tuple[list[Figure], list[str]]:
    figures: list[Figure] = []
    left_out: list[str] = []
    room = MOST_FIGURE_BYTES
    for name in run.texts("figures", ()):
        image = _image(run, name, folder)
        if len(image) > room:
            left_out.append(f"figure {shortened(name)} is too large for this page")
            continue
        room -= len(image)
        # As the source of an <img>, a drawing can neither run scripts nor load anything.
        address = "data:image/svg+xml;base64," + base64.b64encode(image).decode("ascii")
        figures.append(Figure(shortened(Path(name).stem).replace("-", " "), address))
    return figures, left_out


def _image(run: Checked, name: str, folder: Path | None) -> bytes:
    """Read a drawing from the folder of the file, and from no other place."""
    path = Path(name)
    if folder is None or path.name != name or path.suffix != ".svg":
        run.refuse(
            "figures", f"names {shortened(name)!r}, which is not an .svg file beside this one"
        )
    if (folder / path).is_symlink():
        run.refuse("figures", f"names {shortened(name)!r}, which is a symbolic link")
    return read_bytes(folder / path, MOST_FIGURE_BYTES)


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
            *_by_known(run),
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


def _by_known(run: Checked) -> list[Section]:
    """Say what known novelties are worth, where some were set aside."""
    if "by_known" not in run:
        return []
    rows = []
    for one in run.objects("by_known")[:_MOST_TRIALS]:
        errors = one.object("standard_error")
        shares = (
            _with_error(one.number(what, None), errors.number(what, None))
            for what in ("fdp", "power")
        )
        rows.append([f"{one.integer('n_known'):,}", *shares])
    columns = ("known novelties", "false alarms", "found")
    table = Table("What known novelties are worth", columns, rows)
    return [Section(table.caption, tables=[table])]


def _share(share: float | None) -> str:
    return "–" if share is None else percent(round(share, 3))


def _with_error(share: float | None, error: float | None) -> str:
    return _share(share) if error is None else f"{_share(share)} ± {percent(round(error, 3))}"
