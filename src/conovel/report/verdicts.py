"""The picture of verdicts: the share of false alarms of each batch, beside the promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conovel.report.page import environment
from conovel.report.picture import shortened
from conovel.report.plots import Dot, Key, Mark, Plot, Scale, Tick, Words, ticks, trace
from conovel.stats.levels import as_level
from conovel.stats.words import counted

_WIDTH, _LEFT, _RIGHT, _TOP, _STEP = 640, 190, 620, 34, 26
_MOST_BATCHES = 40  # the latest ones are drawn
_LETTERS = 26  # of a name


def picture_of(summary: Mapping[str, Any]) -> str:
    """Draw what :meth:`conovel.Verdicts.summary` gives, as a whole SVG file."""
    return environment().get_template("verdicts.svg").render(plot=share_plot(summary))


def share_plot(summary: Mapping[str, Any]) -> Plot:
    """Draw a dot and an interval for each batch and agent, and a dashed mark at the promise."""
    lines = [(_named(one), one, [one["level"]]) for one in summary["batches"][-_MOST_BATCHES:]]
    lines += [(one["agent"] or "all batches", one, one["levels"]) for one in summary["agents"]]
    levels = [float(as_level(level)) for _, _, own in lines for level in own]
    drawn = [one["high"] for _, one, _ in lines if one["n_judged"]]
    x = Scale(0, min(1.0, 1.1 * max([*drawn, *levels, 0.1])), _LEFT, _RIGHT)
    bottom = _TOP + _STEP * max(len(lines), 1)
    marks: list[Mark] = []
    places = []
    for number, (name, one, own) in enumerate(lines):
        at = _TOP + _STEP * (number + 0.5)
        places.append(Tick(at, shortened(name, _LETTERS)))
        for level in own:
            edge = x(float(as_level(level)))
            marks.append(trace([(edge, at - _STEP / 2), (edge, at + _STEP / 2)], "line limit"))
        if not one["n_judged"]:
            marks.append(Words(x(0) + 6, at + 4, "no verdicts yet"))
            continue
        marks.append(trace([(x(one["low"]), at), (x(one["high"]), at)], "line thin"))
        marks.append(Dot(x(one["share"]), at, "full", 4.5))
    return Plot(
        title="False alarms among rows with a verdict",
        description="; ".join(_in_words(name, one) for name, one, _ in lines) or "No batches yet.",
        x_label="share judged normal, of rows judged novel or normal",
        y_label="",
        x_ticks=ticks(x),
        y_ticks=places,
        marks=marks,
        keys=[
            Key("dot full", "share"),
            Key("line thin", "95 % interval"),
            Key("line limit", "promise"),
        ],
        width=_WIDTH,
        height=bottom + 70,
        left=_LEFT,
        right=_RIGHT,
        top=_TOP,
        bottom=bottom,
    )


def _named(one: Mapping[str, Any]) -> str:
    return f"{one['agent']}: {one['name']}" if one["agent"] else str(one["name"])


def _in_words(name: str, one: Mapping[str, Any]) -> str:
    if not one["n_judged"]:
        return f"{name}: no verdicts yet"
    judged = counted(one["n_judged"], "row")
    return f"{name}: {one['n_normal']:,} of {judged} judged normal"
