"""The picture of docs/contest.md: what is found, and how much of it is false, by method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

CELL, PROMISE = "20 one", 0.1
LEFT_OUT = "gusto"  # where conovel together flags nothing, so that its number of alerts is no rule
OURS, OTHERS = "#0b6e4f", "#555555"
PANELS = (("each by its own rule", "own rule"), ("all with as many alerts", "equal alerts"))
NAMES = {
    "conovel together": "conovel together",
    "conovel alone": "conovel, each site",
    "conovel alone, α/K": "conovel, each site at α/K",
    "AdaDetect, pooled": "AdaDetect, rows pooled*",
    "federated XGBoost": "federated XGBoost",
    "isolation forest, nonconform": "isolation forest, each site",
    "k-NN, nonconform": "k-NN, each site",
    "ECOD": "ECOD, each site",
    "averaged autoencoder": "federated autoencoder",
}
# Where the text of a point begins, in either panel: found, and false share.
PLACES = {
    "conovel together": ((0.655, 0.03), (0.66, 0.03)),
    "conovel alone": ((0.50, 0.19), (0.60, 0.235)),
    "conovel alone, α/K": ((0.06, -0.045), (0.54, 0.30)),
    "AdaDetect, pooled": ((0.50, -0.03), (0.64, 0.17)),
    "federated XGBoost": ((0.24, 0.01), (0.17, 0.17)),
    "isolation forest, nonconform": ((0.06, 0.20), (0.37, 0.49)),
    "k-NN, nonconform": ((0.13, 0.14), (0.42, 0.43)),
    "ECOD": ((0.12, 0.74), (0.02, 0.70)),
    "averaged autoencoder": ((0.50, 0.66), (0.29, 0.60)),
}


def mean_over_sets(rows: Sequence[dict[str, Any]], what: str) -> tuple[float, float]:
    """Return the mean over sets, and its standard error over draws."""
    errors = [row[f"{what}, error"] for row in rows]
    return float(np.mean([row[what] for row in rows])), float(np.linalg.norm(errors) / len(rows))


def _draw_panel(ax: Any, table: Sequence[dict[str, Any]], rule: str, panel: int) -> None:
    ax.axhspan(0, PROMISE, color=OURS, alpha=0.1, lw=0)
    ax.axhline(PROMISE, color=OURS, lw=1.2, ls="--")
    for name, text in NAMES.items():
        rows = [r for r in table if r["contestant"] == name and f"found, {rule}" in r]
        if not rows:
            continue
        (x, x_error), (y, y_error) = (
            mean_over_sets(rows, what) for what in (f"found, {rule}", f"false share, {rule}")
        )
        colour, mark = (OURS, "o") if name.startswith("conovel") else (OTHERS, "s")
        ax.errorbar(x, y, y_error, x_error, color=colour, fmt=mark, ms=7, elinewidth=1, zorder=3)
        ax.annotate(
            text,
            (x, y),
            PLACES[name][panel],
            color=colour,
            size=9,
            weight="bold" if name == "conovel together" else "normal",
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "shrinkB": 4},
        )


def draw_picture(table: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw each method by its own rule and at equal alerts, 20 novelties known at one site."""
    here = [row for row in table if row["known"] == CELL and row["set"] != LEFT_OUT]
    fig, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True, layout="constrained")
    for panel, (ax, (title, rule)) in enumerate(zip(axes, PANELS, strict=True)):
        _draw_panel(ax, here, rule, panel)
        ax.set_title(title, size=11)
        ax.set(xlim=(-0.02, 1), ylim=(-0.08, 0.8), xlabel="novelties found")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("alerts that are false")
    axes[0].text(0.995, 0.11, "promise: at most 10 %", color=OURS, ha="right", size=9)
    fig.supxlabel("* not allowed in practice", size=8, color=OTHERS, x=0.99, ha="right")
    plt.rcParams["svg.hashsalt"] = "contest"
    fig.savefig(file.with_suffix(".svg"), metadata={"Date": None})
    fig.savefig(file.with_suffix(".png"), dpi=110)
    plt.close(fig)
