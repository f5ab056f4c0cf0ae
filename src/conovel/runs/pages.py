"""What results draw: a page for a file, and a plot for a notebook."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.errors import MissingExtraError

_BINS = 30


def write_report(self: Any, path: str | Path) -> Path:  # the method `report` of every result
    """Write the HTML page about the result, with the reasons of up to 10,000 rejected rows.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Path
        Where the page is.
    """
    # The page is drawn by a layer above this one, which is loaded when it is asked for.
    page: str = import_module("conovel.report").page_of(self)
    where = Path(path)
    import_module("conovel.rows.storage").write_text(where, page)
    return where


def axes_or_new(ax: Any) -> Any:
    """Return matplotlib axes: those given, or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("matplotlib", "plots") from None
    return plt.subplots()[1]


def plot_scores(
    ax: Any,
    scores: NDArray[np.float64],
    rejected: NDArray[np.bool_],
    calibration: NDArray[np.float64] | None = None,
) -> Any:
    """Draw how the scores are distributed: test rows, rejected ones, calibration rows."""
    ax = axes_or_new(ax)
    every = scores if calibration is None else np.concatenate([scores, calibration])
    finite = every[np.isfinite(every)]
    edges = np.histogram_bin_edges(finite if finite.size else np.zeros(1), _BINS)
    ax.hist([scores[rejected], scores[~rejected]], edges, stacked=True, label=["flagged", "other"])
    if calibration is not None and calibration.size:
        scaled = {
            "weights": np.full(calibration.size, scores.size / calibration.size),
            "label": "calibration rows (scaled)",
        }
        ax.hist(calibration, edges, histtype="step", color="black", **scaled)
    ax.set_xlabel("score, higher is more novel")
    ax.set_ylabel("test rows")
    ax.legend()
    return ax
