"""The look of figures: a regime has the same marker, line and colour in all of them.

The colours of Okabe and Ito can be distinguished with any colour vision; markers and line styles
without colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from conovel.errors import MissingExtraError

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
