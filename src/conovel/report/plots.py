"""The plots of a report, as geometry."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from conovel.report.view import Curve, Histogram
from conovel.stats.words import counted

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
    """A finished drawing."""

    title: str
    description: str  # what can be seen in it, for readers who cannot see it
    x_label: str
    y_label: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    marks: Sequence[Mark]  # in the order of painting
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


_FEW = 130  # up to so many p-values are drawn as single dots
_SHARES = (0.01, 0.1, 0.4)


def step_up_plot(curve: Curve, title: str, beside: Sequence[Curve] = ()) -> Plot:
    """Draw the sorted p-values and the line that they are compared with.

    It has the axes of the curves that stand beside it.
    """
    last, drawn = curve.k[-1], (curve, *beside)
    x = x_scale(0, max(one.k[-1] for one in drawn))
    y = y_scale(0, max(map(_p_value_height, drawn)))
    seen = [(k, p) for k, p in zip(curve.k, curve.p_value, strict=True) if p <= y.high]
    marks: list[Mark] = []
    if curve.whole:
        end = min(last, y.high / curve.slope)
        marks.append(trace([(x(0), y(0)), (x(end), y(curve.slope * end))], "line bound"))
    if curve.n_rejected:
        level = y(curve.threshold)
        marks.append(trace([(LEFT, level), (RIGHT, level)], "line limit"))
    flagged = [(x(k), y(p)) for k, p in seen if k <= curve.n_rejected_here]
    others = [(x(k), y(p)) for k, p in seen if k > curve.n_rejected_here]
    if len(seen) <= _FEW:
        marks += [Dot(*place, "open") for place in others]
        marks += [Dot(*place, "full") for place in flagged]
    else:
        marks += [trace(others, "line thin"), trace(flagged, "line thick")]
    if curve.n_rejected_here:
        at = x(curve.n_rejected_here)
        marks.append(trace([(at, y(curve.threshold)), (at, BOTTOM)], "line drop"))
        words = f"k = {curve.n_rejected_here:,}"
        side = "end" if at > (LEFT + RIGHT) / 2 else "start"
        marks.append(Words(at + (-6 if side == "end" else 6), BOTTOM - 8, words, side, "strong"))
    compared = "rising line" if curve.whole else "threshold"
    return Plot(
        title=title,
        description=(
            f"The {curve.n_tests:,} p-values in order, the {last:,} smallest drawn."
            f" {curve.n_rejected_here:,} lie at or below the threshold"
            f" {spelled(curve.threshold)} that the {compared} gives."
        ),
        x_label="rows, most novel first (k)",
        y_label="p-value",
        x_ticks=ticks(x, whole=True),
        y_ticks=ticks(y, 4),
        marks=marks,
        keys=[
            Key("dot full" if len(seen) <= _FEW else "line thick", "flagged"),
            Key("dot open" if len(seen) <= _FEW else "line thin", "not flagged"),
            *([Key("line bound", "step-up line")] if curve.whole else []),
            *([Key("line limit", f"threshold {curve.threshold:.3g}")] if curve.n_rejected else []),
        ],
    )


def _p_value_height(curve: Curve) -> float:
    """Choose the highest p-value drawn, so that the crossing is in the middle of the plot."""
    places = zip(curve.k, curve.p_value, strict=True)
    above = next((p for k, p in places if k > curve.n_rejected_here), 0.0)
    if curve.n_rejected:
        above = min(above, 3 * curve.threshold)
    line = curve.slope * curve.k[-1] if curve.whole else 0.0
    return min(1.12 * max(line, 1.6 * curve.threshold, above), 1.0) or 1.0


def p_value_plot(histogram: Histogram, title: str) -> Plot:
    """Draw the histogram of p-values, and the height that normal rows alone would have."""
    n = sum(histogram.tests)
    bins = len(histogram.tests)
    fair = n / bins
    x, y = x_scale(0, 1), y_scale(0, 1.1 * max([*histogram.tests, fair, 1]))
    marks: list[Mark] = []
    for i, (tests, rejected) in enumerate(zip(histogram.tests, histogram.rejected, strict=True)):
        start, stop = x(histogram.edges[i]), x(histogram.edges[i + 1])
        marks += _column(start, stop, y(0), y(rejected), "flagged")
        marks += _column(start, stop, y(rejected), y(tests), "tests")
    marks.append(trace([(LEFT, y(fair)), (RIGHT, y(fair))], "line bound"))
    low = histogram.tests[0]
    return Plot(
        title=title,
        description=(
            f"{n:,} p-values in {bins} equal bins. Normal rows spread evenly, about {fair:,.0f}"
            f" in a bin; the first bin, up to {histogram.edges[1]:g}, holds {low:,}."
        ),
        x_label="p-value",
        y_label="rows",
        x_ticks=ticks(x),
        y_ticks=ticks(y, whole=True),
        marks=marks,
        keys=[
            Key("bar flagged", "flagged"),
            Key("bar tests", "not flagged"),
            Key("line bound", "if every row were normal"),
        ],
    )


def score_plot(
    scores: Histogram,
    lowest_flagged: float | None,
    title: str,
    beside: Sequence[Histogram] = (),
    common: bool = False,
) -> Plot:
    """Draw test scores upwards and known normals downwards, as shares of their samples.

    Heights are square roots, because novel rows are few and spread out: beside the many normal
    rows they would be invisible. The plots that stand beside it have the same heights and, if all
    scores have a `common` scale, the same scores.
    """
    edges = scores.edges
    m, n_normals = sum(scores.tests), sum(scores.calibration)
    ranged = [scores, *(beside if common else ())]
    low, high = min(one.edges[0] for one in ranged), max(one.edges[-1] for one in ranged)
    span = high - low if common else None
    tests, rejected, normals = _densities(scores, span)
    drawn = [values for one in (scores, *beside) for values in _densities(one, span)]
    top = max(*map(max, drawn), 1e-9)
    x, root = x_scale(low, high), y_scale(-1.04 * top**0.5, 1.04 * top**0.5)

    def y(share: float) -> float:
        return root(math.copysign(abs(share) ** 0.5, share))

    marks: list[Mark] = []
    for i, (left, right) in enumerate(pairwise(edges)):
        start, stop = x(left), x(right)
        marks += _column(start, stop, y(0), y(rejected[i]), "flagged")
        marks += _column(start, stop, y(rejected[i]), y(tests[i]), "tests")
        marks += _column(start, stop, y(-normals[i]), y(0), "normals")
    marks.append(trace([(LEFT, y(0)), (RIGHT, y(0))], "line axis"))
    if lowest_flagged is not None:
        at = x(lowest_flagged)
        marks.append(trace([(at, TOP), (at, BOTTOM)], "line limit"))
        words = "flagged from here"
        fits = at + 6 + LETTER * len(words) < RIGHT
        marks.append(
            Words(at + 6, TOP + 9, f"{words} →")
            if fits
            else Words(at - 6, TOP + 9, f"{words} →", "end")
        )
    return Plot(
        title=title,
        description=(
            f"Upwards {counted(m, 'tested row')}, {sum(scores.rejected):,} of them flagged;"
            f" downwards {counted(n_normals, 'known normal')} they were compared with."
        ),
        x_label="score (higher is more novel)",
        y_label="share of rows, root scale",
        x_ticks=ticks(x),
        y_ticks=_mirrored(y, top),
        marks=marks,
        keys=[
            Key("bar flagged", "tested, flagged"),
            Key("bar tests", "tested, not flagged"),
            Key("bar normals", "known normals"),
        ],
    )


def rounds_plot(levels: Sequence[int], title: str) -> Plot:
    """Draw the number of rows still in question after each round."""
    rounds = len(levels) - 1
    # The last number is written to the right of its dot.
    x = Scale(0, rounds, LEFT + 14, RIGHT - 34)
    y = y_scale(0, 1.12 * max(levels) or 1)
    places = [(x(i), y(level)) for i, level in enumerate(levels)]
    steps = [places[0]]
    for (_, before), (right, now) in pairwise(places):
        steps += [(right, before), (right, now)]
    marks: list[Mark] = [trace(steps, "line thick")]
    few = len(levels) <= 14
    for i, (place, level) in enumerate(zip(places, levels, strict=True)):
        if few or i in (0, rounds):
            marks.append(Dot(*place, "full", 3.8))
            marks.append(Words(place[0] + 7, place[1] - 7, f"{level:,}", "start", "strong"))
    return Plot(
        title=title,
        description=(
            f"The count begins with {counted(levels[0], 'tested row')} and, after"
            f" {counted(rounds, 'round')},"
            f" stays at {levels[-1]:,}: " + ", ".join(f"{level:,}" for level in levels) + "."
        )
        if few
        else f"From {levels[0]:,} to {counted(levels[-1], 'row')} in {counted(rounds, 'round')}.",
        x_label="round of counts",
        y_label="rows",
        x_ticks=[
            Tick(x(i), "start" if i == 0 else str(i))
            for i in range(len(levels))
            if i % (1 + len(levels) // 12) == 0
        ],
        y_ticks=ticks(y, whole=True),
        marks=marks,
    )


def _mirrored(y: Callable[[float], float], top: float) -> list[Tick]:
    """Mark shares above and below the middle, if their labels do not touch."""
    marked = [Tick(y(0), "0%")]
    for share in _SHARES:
        if share <= top and abs(y(share) - marked[-1].at) > 14:
            marked += [Tick(y(-share), f"{share:.0%}"), Tick(y(share), f"{share:.0%}")]
    return marked


def _densities(scores: Histogram, span: float | None = None) -> list[list[float]]:
    """Return shares of tests, flagged rows and normals by width, so that areas can be compared."""
    edges = scores.edges
    even = ((edges[-1] - edges[0]) if span is None else span) / len(scores.tests)
    return [
        [
            c / max(sum(total), 1) * even / (b - a)
            for c, (a, b) in zip(counts, pairwise(edges), strict=True)
        ]
        for counts, total in (
            (scores.tests, scores.tests),
            (scores.rejected, scores.tests),
            (scores.calibration, scores.calibration),
        )
    ]


def _column(start: float, stop: float, y_from: float, y_to: float, look: str) -> list[Mark]:
    upper, lower = min(y_from, y_to), max(y_from, y_to)
    if lower - upper < 0.01:
        return []
    width = round(max(stop - start - 1, 0.5), 2)
    return [Bar(start, upper, width, round(lower - upper, 2), look)]
