"""The picture of docs/contest.md: what is found, and how much of it is false, by method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

CELL, PROMISE = "20 one", 0.1
OURS, OTHERS = "#0b6e4f", "#5a5a5a"
# Where the name of a point stands, in points from it.
PLACES = {
    "conovel together": (0, -15, "center"),
    "conovel alone": (0, 9, "center"),
    "conovel alone, α/K": (8, -4, "left"),
    "AdaDetect, pooled": (9, -4, "left"),
    "federated XGBoost": (0, 9, "center"),
    "isolation forest, nonconform": (9, 2, "left"),
    "k-NN, nonconform": (9, 0, "left"),
    "ECOD": (-9, -4, "right"),
    "averaged autoencoder": (0, 10, "center"),
}
NOTES = {
    "AdaDetect, pooled": "AdaDetect on pooled rows\n(not allowed in practice)",
    "federated XGBoost": "federated XGBoost",
    "isolation forest, nonconform": "isolation forest, each site",
    "k-NN, nonconform": "k-NN, each site",
    "ECOD": "ECOD, each site",
    "averaged autoencoder": "federated autoencoder",
}


def mean_over_sets(rows: Sequence[dict[str, Any]], what: str) -> tuple[float, float]:
    """Return the mean over sets, and its standard error over draws."""
    errors = [row[f"{what}, error"] for row in rows]
    return float(np.mean([row[what] for row in rows])), float(np.linalg.norm(errors) / len(rows))


def draw_picture(table: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw each method by its own rule, with 20 known novelties at one site."""
    fig, ax = plt.subplots(figsize=(7.6, 4.6), layout="constrained")
    ax.axhspan(0, PROMISE, color=OURS, alpha=0.08, lw=0)
    ax.axhline(PROMISE, color=OURS, lw=1.2, ls="--")
    ax.text(0.995, PROMISE + 0.012, "promise: at most 10 % false", color=OURS, ha="right", size=9)
    for name, (dx, dy, side) in PLACES.items():
        rows = [r for r in table if r["contestant"] == name and r["known"] == CELL]
        if not rows or "found, own rule" not in rows[0]:
            continue
        (x, x_error), (y, y_error) = (
            mean_over_sets(rows, what) for what in ("found, own rule", "false share, own rule")
        )
        colour, mark = (OURS, "o") if name.startswith("conovel") else (OTHERS, "s")
        ax.errorbar(x, y, y_error, x_error, color=colour, fmt=mark, ms=7, elinewidth=1)
        weight = "bold" if name == "conovel together" else "normal"
        text = NOTES.get(name, name)
        ax.annotate(
            text, (x, y), (dx, dy), textcoords="offset points",
            ha=side, color=colour, size=9, weight=weight,
        )  # fmt: skip
    ax.set(xlim=(-0.02, 1), ylim=(-0.05, 0.8))
    ax.set_xlabel("novelties found")
    ax.set_ylabel("alerts that are false")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.spines[["top", "right"]].set_visible(False)
    for suffix in (".svg", ".png"):
        fig.savefig(
            file.with_suffix(suffix),
            dpi=150,
            metadata={"Date": None} if suffix == ".svg" else None,
        )
    plt.close(fig)
