"""Draw the pictures of the docs and the README from real runs: ``python docs/figures.py``.

The picture of many agents is drawn from means that ``python -m benchmarks joint --means`` wrote.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import conovel as cn
from conovel.experiments.gaussian import gaussian_design

FOLDER = Path(__file__).parent / "_static"
PRIVACY = Path(__file__).parent / "results" / "privacy.csv"
MEANS = Path(__file__).parent / "results" / "joint.csv"
# Told apart without colour vision too.
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"

mpl.rcParams.update(
    {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "svg.hashsalt": "conovel",
        "figure.dpi": 150,
    }
)


def detect() -> None:
    """One site: scores against calibration scores, and the step-up that decides."""
    agent = gaussian_design(2.0, 0)[0]
    result = cn.AdaDetect(level=0.1).detect(agent.X_null, agent.X_test)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")

    bins = np.linspace(
        min(result.scores.min(), result.calibration_scores.min()), result.scores.max(), 40
    )
    left.hist(result.calibration_scores, bins, color=GREY, alpha=0.6, label="known normals")
    left.hist(result.scores, bins, histtype="step", color=BLUE, linewidth=1.5, label="test rows")
    threshold = result.scores[result.rejected].min()
    left.axvline(threshold, color=ORANGE, linestyle="--", label="flagged from here on")
    left.set(xlabel="novelty score", ylabel="rows", title="Scores")
    left.legend()

    order = np.argsort(result.p_values)
    m = order.size
    shown = min(m, 2 * result.n_rejected)
    flagged = result.rejected[order][:shown]
    k = np.arange(1, shown + 1)
    p = result.p_values[order][:shown]
    right.plot(k, 0.1 * k / m, color=GREY, label="α k / m")
    right.plot(k[flagged], p[flagged], "o", color=ORANGE, ms=4, label="flagged")
    right.plot(k[~flagged], p[~flagged], "x", color=BLUE, ms=4, label="not flagged")
    right.set(
        xlabel="k", ylabel="k-th smallest p-value", title=f"Step-up: {result.n_rejected} flagged"
    )
    right.legend()
    save(figure, "detect")


def privacy() -> None:
    """What models give away, their power and their bytes: a line for each way to send them."""
    with PRIVACY.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))[::-1]
    places = np.arange(len(rows))
    figure, (leaks, power, size) = plt.subplots(
        1, 3, figsize=(9, 4.2), layout="constrained", sharey=True, width_ratios=(3, 2, 2)
    )
    kinds = {"trains": ("rows that train", BLUE, "o"), "novelty": ("novelties", ORANGE, "s")}
    for column, (label, colour, marker) in kinds.items():
        values, errors = (
            [float(row[name]) for row in rows] for name in (column, f"{column} error")
        )
        leaks.errorbar(values, places, xerr=errors, fmt=marker, color=colour, ms=5, label=label)
    leaks.axvline(0.5, color=GREY, linestyle=":", linewidth=1)
    leaks.set(xlabel="AUC of the strongest attack", yticks=places)
    leaks.set_yticklabels([row["sent"] for row in rows])
    leaks.legend(loc="lower right")
    for place, row in zip(places, rows, strict=True):
        if row["power"]:
            error = float(row["power error"])
            power.errorbar(float(row["power"]), place, xerr=error, fmt="o", color=GREEN, ms=5)
        size.plot(float(row["bytes"]), place, "D", color=GREY, ms=5)
    power.set(xlabel="power, three agents, `full`")
    size.set(xscale="log", xlabel="bytes of a model")
    save(figure, "privacy")


def joint() -> None:
    """Power against the number of agents: alone, with models or sums exchanged, rows pooled."""
    with MEANS.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    gaussian = [row for row in rows if row["set"] == "gaussian"]
    panels = [
        (f"agents' normals shifted by {shift:g}" if shift else "agents with equal normals", some)
        for shift in (0.0, 2.0, 4.0)
        if (some := [row for row in gaussian if float(row["shift"]) == shift])
    ]
    draw_panels(panels, "joint-agents")
    real = sorted({row["set"] for row in rows} - {"gaussian"})
    if real:
        panels = [(name, [row for row in rows if row["set"] == name]) for name in real]
        draw_panels(panels, "joint-real")


def draw_panels(panels: list[tuple[str, list[dict[str, str]]]], name: str) -> None:
    """Draw one panel for each design, with bars of two standard errors."""
    figure, axes = plt.subplots(
        1, len(panels), figsize=(max(7, 3 * len(panels)), 3.2), sharey=True, layout="constrained"
    )
    ticks = sorted({int(row["agents"]) for _, rows in panels for row in rows})
    looks = {
        "pooled": (GREY, "s", "--", "rows pooled (not allowed)"),
        "together": (BLUE, "o", "-", "learnt together from sums"),
        "joint": (GREEN, "D", "-.", "models exchanged"),
        "isolated": (ORANGE, "^", ":", "each alone"),
    }
    for axis, (title, rows) in zip(axes, panels, strict=True):
        points = defaultdict(list)
        for row in rows:
            errors = float(row["power_error"])
            shown = 0.0 if np.isnan(errors) else 2 * errors
            points[row["regime"]].append((int(row["agents"]), float(row["power"]), shown))
        for regime, (colour, marker, line, label) in looks.items():
            if regime in points:
                style = {"color": colour, "marker": marker, "linestyle": line, "ms": 5}
                x, y, bars = zip(*sorted(points[regime]), strict=True)
                axis.errorbar(x, y, bars, label=label, capsize=3, **style)
        axis.set_xscale("log")
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        limits = {"xlim": (ticks[0] / 1.3, ticks[-1] * 1.3), "ylim": (-0.03, 1.04)}
        axis.set(xlabel="agents", title=title, **limits)
        axis.title.set_fontsize(10)
    axes[0].set_ylabel("share of novelties found")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
    )
    save(figure, name)


def consensus() -> None:
    """False alarms over composite nulls, and power beside the limit, with a tenth roaming."""
    sys.path.append(str(Path(__file__).parents[1]))  # where the benchmarks are
    from benchmarks._roaming import composite_limit  # noqa: PLC0415

    with (MEANS.parent / "consensus.csv").open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["set"] == "gaussian"]
    rows = [row for row in rows if float(row["share"]) == 0.1 and int(row["agents"]) == 3]
    figure, axes = plt.subplots(1, 2, figsize=(7.5, 3), layout="constrained")
    looks = {
        "consensus": (BLUE, "o", "-"),
        "full": (ORANGE, "s", "--"),
        "joint": (GREEN, "D", "-."),
        "full:min": (GREY, "^", ":"),
        "split:max": (GREY, "v", "--"),
    }
    for regime, (colour, marker, line) in looks.items():
        points = sorted(
            [float(row[name]) for name in ("shift", "fdp", "fdp_error", "power", "power_error")]
            for row in rows
            if row["regime"] == regime
        )
        if points:
            shift, *columns = zip(*points, strict=True)
            style = {"color": colour, "marker": marker, "linestyle": line, "ms": 5, "capsize": 3}
            for axis, (mean, error) in zip(axes, (columns[:2], columns[2:]), strict=True):
                axis.errorbar(shift, mean, 2 * np.array(error), label=regime, **style)
    axes[0].axhline(0.1, color="black", linewidth=0.8)
    shifts = np.arange(0, 4.5, 0.5)
    limit = [composite_limit(delta) for delta in shifts]
    axes[1].plot(shifts, limit, color="black", linewidth=0.8, label="limit")
    axes[0].set(xlabel="shift", ylabel="false alarms, composite null", ylim=(-0.02, 0.7))
    axes[1].set(xlabel="shift", ylabel="power", ylim=(-0.03, 1.04))
    axes[1].legend(fontsize=8)
    save(figure, "consensus")


def save(figure: plt.Figure, name: str) -> None:
    """Write a figure as SVG and PNG, the same bytes for the same data."""
    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
    figure.savefig(FOLDER / f"{name}.png", metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    detect()
    joint()
    consensus()
    privacy()
