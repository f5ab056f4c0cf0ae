"""Scales, ticks and marks: the geometry of a plot, without SVG.

Positions are in units of the drawing: 440 wide, so that letters of 13 units can be read on a
phone of 360 pixels and fill half a desk screen. Marks differ by shape and pattern first; their
``look`` is a class that the style sheet colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

WIDTH = 440
LEFT, RIGHT, TOP, BOTTOM = 46, 428, 22, 230
HEIGHT = 276
LETTER = 6.6  # largest width of a letter, roughly


class Scale(NamedTuple):
    """A straight map from values to positions.

    Examples
    --------
    >>> Scale(0, 10, 46, 428)(5)
    237.0
    """

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        share = (value - self.low) / ((self.high - self.low) or 1)
        return round(self.start + share * (self.stop - self.start), 2)


class Tick(NamedTuple):
    """A position on an axis and its label."""

    at: float
    label: str


class Bar(NamedTuple):
    """A box, from its upper left corner."""

    x: float
    y: float
    width: float
    height: float
    look: str
    kind: str = "bar"


class Trace(NamedTuple):
    """A line through points; closed ones are filled."""

    points: str
    look: str
    kind: str = "trace"


class Dot(NamedTuple):
    """A round mark."""

    x: float
    y: float
    look: str
    radius: float = 3.2
    kind: str = "dot"


class Words(NamedTuple):
    """A few words beside a mark."""

    x: float
    y: float
    text: str
    anchor: str = "start"
    look: str = "note"
    kind: str = "words"


Mark = Bar | Trace | Dot | Words


class Key(NamedTuple):
    """One entry of the legend."""

    look: str
    text: str


@dataclass(frozen=True)
class Plot:
    """A finished drawing.

    Attributes
    ----------
    title, description : str
        What it shows; and what can be seen in it, for readers who cannot see it.
    x_label, y_label : str
    x_ticks, y_ticks : sequence of Tick
    marks : sequence of marks
        In the order of painting.
    keys : sequence of Key
    """

    title: str
    description: str
    x_label: str
    y_label: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    marks: Sequence[Mark]
    keys: Sequence[Key] = field(default=())
    width: int = WIDTH
    height: int = HEIGHT
    left: float = LEFT
    right: float = RIGHT
    top: float = TOP
    bottom: float = BOTTOM


def x_scale(low: float, high: float) -> Scale:
    """Map values to the width of the plot."""
    return Scale(low, high, LEFT, RIGHT)


def y_scale(low: float, high: float) -> Scale:
    """Map values to the height of the plot, upwards."""
    return Scale(low, high, BOTTOM, TOP)


def trace(points: Sequence[tuple[float, float]], look: str) -> Trace:
    """Join points by a line.

    Examples
    --------
    >>> trace([(1, 2.5), (3, 4)], "line").points
    '1,2.5 3,4'
    """
    return Trace(" ".join(f"{x:g},{y:g}" for x, y in points), look)


def round_values(low: float, high: float, most: int = 5) -> list[float]:
    """Choose round values between two others: steps of 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> round_values(0, 1000)
    [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]
    >>> round_values(0, 0.013, 4)
    [0.0, 0.005, 0.01]
    """
    span = high - low
    if not span > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(s for s in (power, 2 * power, 5 * power, 10 * power) if span / s <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, 1 - math.floor(math.log10(step)))
    return [round(i * step, digits) for i in range(first, last + 1)]


def ticks(scale: Scale, most: int = 5, *, whole: bool = False) -> list[Tick]:
    """Mark round values on an axis; `whole` keeps to whole numbers."""
    values = round_values(scale.low, scale.high, most)
    if whole:
        values = [v for v in values if v == int(v)]
    return [Tick(scale(v), spelled(v)) for v in values]


def spelled(value: float) -> str:
    """Write a number shortly, with three digits if it is not whole.

    Examples
    --------
    >>> spelled(1200), spelled(0.05), spelled(0.0000123), spelled(3.0)
    ('1,200', '0.05', '1.23e-05', '3')
    """
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.3g}"
