"""Draw the pictures of the docs and the README from real runs: ``python docs/figures.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import conovel as cn
from conovel.experiments.gaussian import gaussian_design

FOLDER = Path(__file__).parent / "_static"
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"  # told apart without colour vision too

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


def save(figure: plt.Figure, name: str) -> None:
    """Write a figure as SVG and PNG, the same bytes for the same data."""
    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
    figure.savefig(FOLDER / f"{name}.png", metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    detect()
