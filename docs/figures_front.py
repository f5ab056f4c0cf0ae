"""Draw power against bytes from a run of the benchmark.

python -m benchmarks front --out front.jsonl
PYTHONPATH=. python docs/figures_front.py front.jsonl
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from figures import BLUE, GREY, ORANGE, save

from benchmarks.front import N_MODELS, read, summarise
from conovel.experiments.limit import QUANTIZATION

FAMILIES = {  # marker and colour; mean is filled, max is open
    "compact": ("o", ORANGE, "compact"),
    "random forest, depth 5": ("^", BLUE, "random forest of depth 5, 1 bit to float64"),
    "random forest, full depth": ("s", GREY, "random forest of full depth, 1 bit to float64"),
    "the local model": ("D", "black", "the local model itself, float64"),
}
PANELS = {
    "unsplit": ("full", "conservative", "Unsplit: all rows tested"),
    "split": ("split", "split", "Split: a third of the rows tested"),
}


def panel(axes: plt.Axes, lines: list, setting: str) -> None:
    """Draw one setting: each family for both composites, no exchange, published points."""
    regime, published, title = PANELS[setting]
    for composite, fill, style in (("mean", True, "-"), ("max", False, ":")):
        rows = summarise(lines, setting, f"{regime}, {composite}")
        for prefix, (marker, colour, label) in FAMILIES.items():
            points = [row for row in rows if row.name.startswith(prefix)]
            axes.errorbar(
                [row.n_bytes for row in points],
                [row.power for row in points],
                [row.error for row in points],
                marker=marker,
                markersize=5,
                markerfacecolor=colour if fill else "white",
                color=colour,
                linestyle=style,
                linewidth=1,
                capsize=2,
                label=f"{label}, {composite}",
            )
        if composite == "mean":
            (alone,) = (row for row in rows if row.name == "local only")
    axes.axhline(alone.power, color="black", linestyle="--", linewidth=0.8, label="no exchange")
    cells = QUANTIZATION[published].values()
    axes.plot(
        [cell.kilobits[0] * 1000 / 8 / N_MODELS for cell in cells],
        [cell.power[0] for cell in cells],
        linestyle="none",
        marker="x",
        color="black",
        label="published, max (unsplit: at level α/K)",
    )
    axes.set(xscale="log", xlabel="bytes a model", title=title)


def main() -> None:
    """Draw both settings side by side."""
    lines = read(Path(sys.argv[1]))
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 5.2), layout="constrained")
    for ax, setting in zip(axes, PANELS, strict=True):
        panel(ax, lines, setting)
    axes[0].set_ylabel("power (mean ± standard error)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    save(figure, "front")


if __name__ == "__main__":
    main()
