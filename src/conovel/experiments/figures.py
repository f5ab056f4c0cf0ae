"""Figures of the experiments; they can be read without colour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from conovel.errors import MissingExtraError
from conovel.experiments.limit import QUANTIZATION, QUANTIZED_AT, SHIFT, gaussian_limit
from conovel.experiments.tables import estimate, where
from conovel.experiments.tasks import Row

WIDTH = 7.0  # inches, for two panels
SETTINGS: Mapping[str, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "savefig.dpi": 200,
    "svg.hashsalt": "conovel",
}
BLACK, GREY = "#000000", "#777777"


class Look(NamedTuple):
    """Colour, marker and line of one regime."""

    colour: str
    marker: str
    line: str


LOOKS: Mapping[str, Look] = {
    "isolated": Look("#777777", "v", ":"),
    "counts": Look("#0072b2", "s", "--"),
    "pooled": Look("#009e73", "D", "-."),
    "split": Look("#cc79a7", "^", (0, (5, 1, 1, 1, 1, 1))),  # type: ignore[arg-type]
    "conservative": Look("#e69f00", "P", (0, (3, 1))),  # type: ignore[arg-type]
    "full": Look("#d55e00", "o", "-"),
    "joint": Look("#000000", "*", "-"),
}


@contextmanager
def figure(n_panels: int, height: float = 3.4, width: float = WIDTH) -> Iterator[tuple[Any, Any]]:
    """Open a figure of panels side by side, with `SETTINGS`."""
    try:
        import matplotlib as mpl  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("matplotlib", "plots") from None
    settings: Any = dict(SETTINGS)
    with mpl.rc_context(settings):
        drawing = Figure(figsize=(width, height), layout="constrained")
        yield drawing, drawing.subplots(1, n_panels, squeeze=False)[0]


def save(drawing: Any, folder: Path, name: str) -> str:
    """Write a figure as SVG and PNG, the same bytes for the same data; return the SVG's name."""
    drawing.savefig(folder / f"{name}.svg", metadata={"Date": None})
    drawing.savefig(folder / f"{name}.png", metadata={"Software": None})
    return f"{name}.svg"


_LABELS = {
    "isolated": "B2, isolated (α/K)",
    "counts": "B3, counts",
    "pooled": "B1, pooled",
    "split": "ME, split",
    "conservative": "conservative ME (α/K)",
    "full": "full (ours)",
    "joint": "joint (ours)",
}
_SCORERS = {"forest": "the paper's kind of forest", "default": "conovel's defaults"}
# The composite that a curve shows when there are several: the paper's for its own regimes.
_PREFERRED = {"split": "max", "conservative": "max", "full": "mean"}


def figures(name: str, rows: Sequence[Row], folder: Path) -> list[str]:
    """Draw the figures of an experiment and return the names of their SVG files."""
    files: list[str] = []
    for draw in _FIGURES.get(name, ()):
        for scorer in [None] if draw is against_agents else _scorers(rows):
            mine = rows if scorer is None else where(rows, scorer=scorer)
            suffix = "" if scorer in (None, "forest") else f"-{scorer}"
            made = draw(mine, folder, f"{name}{suffix}")
            files += [made] if made else []
    return files


def _scorers(rows: Sequence[Row]) -> list[Any]:
    return list(dict.fromkeys(row["scorer"] for row in rows))


def against_shift(rows: Sequence[Row], folder: Path, name: str) -> str | None:
    """Draw power and FDR against δ with bands of two standard errors, the limit and the paper."""
    shifts = sorted({row["shift"] for row in rows})
    if len(shifts) < 2:
        return None
    with figure(2) as (drawing, (left, right)):
        fine = np.linspace(shifts[0], shifts[-1], 81)
        limit = [gaussian_limit(delta).common for delta in fine]
        left.plot(fine, limit, color=BLACK, linewidth=1, label="limit, densities known")
        for regime, composite in _curves(rows):
            mine = where(rows, regime=regime, composite=composite)
            label = _label(regime, composite)
            _curve(left, mine, "shift", "power", regime, label)
            _curve(right, mine, "shift", "fdp", regime, None)
            published = SHIFT.get(regime, {})
            for axes, part in ((left, "power"), (right, "fdr")):
                points = [getattr(published[s], part)[0] for s in shifts if s in published]
                if points:
                    axes.plot(shifts, points, **_hollow(regime))
        left.plot([], [], "o", color=GREY, markerfacecolor="white", label="published")
        right.axhline(0.1, color=BLACK, linewidth=1)
        right.annotate("level α", (shifts[-1], 0.1), ha="right", va="bottom", fontsize=8)
        left.set(xlabel="shift δ between agents", ylabel="power", ylim=(-0.02, 1.04))
        right.set(xlabel="shift δ between agents", ylabel="false discovery rate", ylim=(0, 0.13))
        drawing.legend(loc="outside lower center", ncols=4, fontsize=8)
        return save(drawing, folder, f"{name}-sweep")


def rounds(rows: Sequence[Row], folder: Path, name: str) -> str | None:
    """Draw the counts of FastLSU by round, and the number of rounds until they stay."""
    regimes = [r for r in ("counts", "split", "full") if where(rows, regime=r)]
    shifts = sorted({row["shift"] for row in rows if row["shift"] is not None})
    if not regimes or not shifts:
        return None
    with figure(2, 3.2) as (drawing, (left, right)):
        middle = QUANTIZED_AT if QUANTIZED_AT in shifts else shifts[0]
        for regime in regimes:
            composite = _composite(rows, regime)
            mine = where(rows, regime=regime, composite=composite)
            here = [row for row in where(mine, shift=middle) if row["totals"]]
            if not here:
                continue
            paths = _padded([[row["tested"], *row["totals"]] for row in here])
            look, label = LOOKS[regime], _label(regime, composite)
            steps = np.arange(paths.shape[1])
            style = {"color": look.colour, "marker": look.marker, "linestyle": look.line}
            left.plot(steps, np.median(paths, axis=0), label=label, **style)
            low, high = np.quantile(paths, [0.1, 0.9], axis=0)
            left.fill_between(steps, low, high, color=look.colour, alpha=0.15, linewidth=0)
            lengths = [{**row, "rounds": len(row["totals"])} for row in mine if row["totals"]]
            _curve(right, lengths, "shift", "rounds", regime, None)
        left.set(
            xlabel="round of counts",
            ylabel="rows still in question",
            yscale="symlog",
            title=f"δ = {middle:g}: median, 10 % to 90 %",
        )
        right.set(xlabel="shift δ between agents", ylabel="rounds until it stays")
        right.set_ylim(bottom=0)
        drawing.legend(loc="outside lower center", ncols=3, fontsize=8)
        return save(drawing, folder, f"{name}-rounds")


def against_bytes(rows: Sequence[Row], folder: Path, name: str) -> str | None:
    """Draw power against kilobits by the paper's formula, with the paper's points."""
    with figure(1, 3.8, 5.4) as (drawing, (axes,)):
        for regime, composite in _curves(rows):
            mine = where(rows, regime=regime, composite=composite)
            if regime in ("isolated", "counts", "pooled"):
                power = estimate(row["power"] for row in mine).mean
                look = LOOKS[regime]
                axes.axhline(power, color=look.colour, linestyle=look.line, linewidth=1)
                axes.annotate(
                    _LABELS[regime],
                    (0.2, power),  # between the compact models and the quantized ones
                    xycoords=("axes fraction", "data"),
                    ha="left",
                    va="bottom",
                    fontsize=7,
                    color=look.colour,
                )
                continue
            _by_precision(axes, mine, regime, _label(regime, composite))
            published = [p for p in QUANTIZATION.get(regime, {}).values() if p.kilobits]
            if published:
                axes.plot(
                    [p.kilobits[0] for p in published if p.kilobits],
                    [p.power[0] for p in published],
                    **{**_hollow(regime), "label": f"{_LABELS[regime]}, published"},
                )
        limit = gaussian_limit(QUANTIZED_AT).common
        axes.axhline(limit, color=BLACK, linewidth=1)
        axes.set(
            xscale="log",
            xlabel="kilobits for three agents, by the paper's formula",
            ylabel="power",
            ylim=(-0.06, 1.05),
            title="δ = 2; top line: the limit with densities known",
        )
        drawing.legend(loc="outside lower center", ncols=2, fontsize=8)
        return save(drawing, folder, f"{name}-bytes")


def against_agents(rows: Sequence[Row], folder: Path, name: str) -> str | None:
    """Draw power against the number of agents, by scorer and shift; the total data is the same."""
    shifts = sorted({row["shift"] for row in rows})
    views = [(scorer, shift) for scorer in _scorers(rows) for shift in shifts]
    labelled: set[str] = set()
    with figure(len(views), 3.4) as (drawing, panels):
        for axes, (scorer, shift) in zip(panels, views, strict=True):
            here = where(rows, scorer=scorer, shift=shift)
            for regime, composite in _curves(here):
                mine = where(here, regime=regime, composite=composite)
                label = _label(regime, composite)
                _curve(axes, mine, "agents", "power", regime, _once(label, labelled))
            limit = _once("limit, densities known", labelled)
            axes.axhline(gaussian_limit(shift).common, color=BLACK, linewidth=1, label=limit)
            counts = sorted({row["agents"] for row in rows})
            title = f"{_SCORERS.get(scorer, scorer)}, δ = {shift:g}"
            axes.set(xscale="log", xlabel="agents K", ylim=(-0.03, 1.03), title=title)
            axes.set_xticks(counts, [str(k) for k in counts])
            axes.minorticks_off()
        panels[0].set_ylabel("power, same total data")
        drawing.legend(loc="outside lower center", ncols=3, fontsize=8)
        return save(drawing, folder, f"{name}-power")


def _once(label: str, labelled: set[str]) -> str | None:
    """Return a label for the legend when it occurs for the first time, else None."""
    if label in labelled:
        return None
    labelled.add(label)
    return label


def by_data(rows: Sequence[Row], folder: Path, name: str) -> str | None:
    """Draw power and FDR of every regime on each real data set."""
    sets = list(dict.fromkeys(row["data"] for row in rows))
    with figure(2, 1.0 + 0.8 * len(sets)) as (drawing, (left, right)):
        curves = _curves(rows)
        for index, (regime, composite) in enumerate(curves):
            look = LOOKS[regime]
            for axes, what in ((left, "power"), (right, "fdp")):
                for place, data in enumerate(sets):
                    mine = where(rows, data=data, regime=regime, composite=composite)
                    mean, error = estimate(row[what] for row in mine)
                    axes.errorbar(
                        mean,
                        place + 0.12 * (index - (len(curves) - 1) / 2),
                        xerr=2 * error,
                        color=look.colour,
                        marker=look.marker,
                        linestyle="none",
                        elinewidth=1,
                        label=_label(regime, composite) if axes is left and not place else None,
                    )
        left.set(xlabel="power", xlim=(-0.02, 1.02))
        right.set(xlabel="false discovery rate", xlim=(-0.003, 0.14))
        right.set_xticks([0, 0.05, 0.1])
        right.axvline(0.1, color=BLACK, linewidth=1)
        for axes in (left, right):
            axes.set_yticks(range(len(sets)), sets)
            axes.set_ylim(len(sets) - 0.5, -0.5)
        drawing.legend(loc="outside lower center", ncols=3, fontsize=8)
        return save(drawing, folder, f"{name}-data")


_FIGURES: Mapping[str, Sequence[Callable[[Sequence[Row], Path, str], str | None]]] = {
    "shift": (against_shift, rounds),
    "conservative-shift": (against_shift,),
    "quantization": (against_bytes,),
    "conservative-quantization": (against_bytes,),
    "agents": (against_agents,),
    "real": (by_data,),
}


def _curve(
    axes: Any, rows: Sequence[Row], by: str, what: str, regime: str, label: str | None
) -> None:
    """Draw means against a column, with a band of two standard errors."""
    places = sorted({row[by] for row in rows})
    points = [estimate(row[what] for row in where(rows, **{by: place})) for place in places]
    mean, error = np.array(points).T if points else (np.empty(0), np.empty(0))
    look = LOOKS[regime]
    style = {"color": look.colour, "marker": look.marker, "linestyle": look.line}
    axes.plot(places, mean, label=label, **style)
    error = np.nan_to_num(error)
    axes.fill_between(
        places, mean - 2 * error, mean + 2 * error, color=look.colour, alpha=0.18, linewidth=0
    )


def _by_precision(axes: Any, rows: Sequence[Row], regime: str, label: str) -> None:
    look = LOOKS[regime]
    precisions = list(dict.fromkeys(row["precision"] for row in rows))
    cells = {p: where(rows, precision=p) for p in precisions}
    x = [estimate(row["paper_bits"] for row in cell).mean / 1000 for cell in cells.values()]
    y = [estimate(row["power"] for row in cell) for cell in cells.values()]
    axes.errorbar(
        x,
        [e.mean for e in y],
        [2 * e.error for e in y],
        color=look.colour,
        marker=look.marker,
        linestyle="none",
        elinewidth=1,
        capsize=2,
        label=label,
    )
    for place, value, precision in zip(x, y, precisions, strict=True):
        text = precision if precision == "compact" else precision.replace("float", "")
        axes.annotate(
            text,
            (place, value.mean),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )


def _curves(rows: Sequence[Row]) -> list[tuple[str, str]]:
    present = dict.fromkeys(row["regime"] for row in rows)
    return [(regime, _composite(rows, regime)) for regime in LOOKS if regime in present]


def _composite(rows: Sequence[Row], regime: str) -> str:
    present = list(dict.fromkeys(row["composite"] for row in rows if row["regime"] == regime))
    preferred = _PREFERRED.get(regime, "")
    return preferred if preferred in present else present[0]


def _label(regime: str, composite: str) -> str:
    return f"{_LABELS[regime]}, {composite}" if composite else _LABELS[regime]


def _hollow(regime: str) -> dict[str, Any]:
    look = LOOKS[regime]
    return {
        "color": look.colour,
        "marker": look.marker,
        "linestyle": "none",
        "markerfacecolor": "white",
    }


def _padded(paths: list[list[int]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Extend every path to the longest length by repeating its last count."""
    longest = max(map(len, paths))
    return np.array([[*path, *[path[-1]] * (longest - len(path))] for path in paths], dtype=float)
