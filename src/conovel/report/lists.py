"""Lists that a reader may choose: rows read, the most novel first, against how many are novel.

The page holds the numbers of all lists. Its script only shows those of the list that is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conovel.errors import ConovelError, InputError
from conovel.protocol.certificates import sizes_of
from conovel.report.flagged import in_html, with_policy
from conovel.report.list_numbers import ROUND, by_cell, by_rank, refuse_many
from conovel.report.picture import shortened
from conovel.report.plots import Key, Plot, Scale, ticks, trace, x_scale, y_scale
from conovel.report.view import Checked, Section, Table
from conovel.runs.certificates import CONFIDENCE
from conovel.spec.findings import percent
from conovel.stats.certified import site_bounds
from conovel.stats.levels import as_level
from conovel.stats.stepup import RankHistogram
from conovel.stats.words import counted

if TYPE_CHECKING:
    from conovel.protocol.transcript import Transcript

_MOST_LISTS = 300  # in a file
_MOST_AGENTS = 6  # with curves of their own
_OWN_RANKS = ("joint", "together", "counts", "full", "isolated", "conservative")


@dataclass(frozen=True)
class Lists:
    """Lists of the most novel rows of a site, or of a network, by length."""

    whose: str  # a site of a network; empty for one site, and for all sites
    confidence: Fraction
    n_test: int
    n_flagged: int
    rows: Sequence[int]
    least: Sequence[int]
    expected: Sequence[int]
    flagged: Sequence[int]
    rank: Sequence[int] = ()
    up_to: Sequence[int] = ()
    cell: Sequence[int] = ()
    n_listed: int = 0  # rows of the page's table of the most novel rows, where they are these
    beside: Sequence[Lists] = field(default=(), repr=False)  # lists that have the same axes

    @property
    def title(self) -> str:
        """Whose rows they are."""
        if self.whose:
            return f"Rows of {self.whose}"
        return "Rows of all sites" if self.cell else "Rows read, most novel first"

    @property
    def start(self) -> int:
        """The list that is shown first: the flagged rows, or the shortest that proves most."""
        if self.n_flagged:
            return max((i for i, k in enumerate(self.rows) if k <= self.n_flagged), default=0)
        return self.least.index(max(self.least)) if max(self.least) else 0

    @property
    def sure(self) -> str:
        """The confidence for people."""
        return percent(self.confidence)

    def statement(self, i: int) -> str:
        """Say what holds for the i-th list; the script says the same."""
        return (
            f"Of the {counted(self.rows[i], 'most novel row')} at least {self.least[i]:,} are"
            f" novel, with {self.sure} confidence; expected {self.expected[i]:,}."
        )

    def which(self, i: int) -> str:
        """Say which rows the i-th list has; the script says the same."""
        k, flagged = self.rows[i], self.flagged[i]
        if self.cell:
            which = f"All rows in cell {self.cell[i]:,} or above."
        elif self.up_to[i] == k:
            which = f"All rows with rank up to {self.rank[i]:,}."
        else:
            which = (
                f"{k:,} of the {self.up_to[i]:,} rows with rank up to {self.rank[i]:,}; of equal"
                " ranks the highest scores."
            )
        which += f" {flagged:,} of them are flagged." if flagged < k else " All are flagged."
        if k <= self.n_listed:
            which += f" They are the first {k:,} in the table of the most novel rows."
        return which

    @property
    def data(self) -> str:
        """What the script reads, as JSON that may stand inside HTML."""
        plot = self.plot
        numbers = {name: list(getattr(self, name)) for name in _NUMBERS}
        box = [plot.left, plot.right, plot.top, plot.bottom]
        most = {"most": self._most, "listed": self.n_listed}
        return in_html({**numbers, **most, "box": box, "sure": self.sure})

    @property
    def _most(self) -> int:
        return max(one.rows[-1] for one in (self, *self.beside))

    @cached_property
    def plot(self) -> Plot:
        """The curves, and a mark at the list that is chosen."""
        i, drawn = self.start, (self, *self.beside)
        highest = max(one.expected[-1] for one in drawn)
        x, y = x_scale(0, self._most), y_scale(0, 1.05 * max(highest, 1))
        end = min(self.rows[-1], y.high)
        curves = [
            trace([(x(0), y(0)), (x(end), y(end))], "line thin"),
            trace(_stairs(x, y, self.rows, self.expected), "line bound"),
            trace(_stairs(x, y, self.rows, self.least), "line thick"),
        ]
        at = x(self.rows[i])
        return Plot(
            title=self.title,
            description=f"{self.statement(i)} Further lists are in the table.",
            x_label="rows read",
            y_label="novel rows",
            x_ticks=ticks(x, whole=True),
            y_ticks=ticks(y, whole=True),
            marks=[*curves, trace([(at, y.stop), (at, y.start)], "line limit chosen")],
            keys=[
                Key("line thick", f"at least ({self.sure})"),
                Key("line bound", "expected"),
                Key("line thin", "if all were novel"),
                Key("line limit", "chosen list"),
            ],
        )

    @property
    def table(self) -> Table:
        """Some lists, for readers without the script."""
        ends = [next((i for i, k in enumerate(self.rows) if k >= n), -1) for n in ROUND]
        chosen = sorted({i for i in ends if i >= 0} | {self.start})
        return Table(
            f"Some lists: {self.title[0].lower()}{self.title[1:]}",
            ["rows read", f"novel at least ({self.sure})", "novel, expected", "flagged"],
            [
                [f"{n[i]:,}" for n in (self.rows, self.least, self.expected, self.flagged)]
                for i in chosen
            ],
        )


def _stairs(
    x: Scale, y: Scale, rows: Sequence[int], values: Sequence[int]
) -> list[tuple[float, float]]:
    """Join lists by steps: a number holds until the next longer list that can be chosen."""
    points, height = [(x(0), y(0))], y(0)
    for k, value in zip(rows, values, strict=True):
        points += [(x(k), height), (x(k), y(value))]
        height = y(value)
    return points


_NUMBERS = ("rows", "least", "expected", "flagged", "rank", "up_to", "cell")


def read_lists(part: Checked, whose: str = "", n_listed: int = 0) -> Lists:
    """Check lists from a file."""
    try:
        confidence = as_level(part.text("confidence"), "confidence")
    except InputError:
        part.refuse("confidence", "is not a probability between 0 and 1")
    by_cell = "cell" in part
    names = [*_NUMBERS[:4], *(["cell"] if by_cell else ["rank", "up_to"])]
    numbers: dict[str, Any] = {name: part.integers(name) for name in names}
    rows = numbers["rows"]
    if not 1 <= len(rows) <= _MOST_LISTS:
        part.refuse("rows", f"is not 1 to {_MOST_LISTS} numbers")
    if rows[0] < 1 or rows != sorted(set(rows)):
        part.refuse("rows", "does not ascend from 1 on")
    for name, values in numbers.items():
        if len(values) != len(rows):
            part.refuse(name, "is not one number for each list")
        if name in _NUMBERS[1:4] and any(n > k for n, k in zip(values, rows, strict=True)):
            part.refuse(name, "has more rows than its list")
    n_test, n_flagged = part.integer("n_test"), part.integer("n_flagged")
    return Lists(shortened(whose, 30), confidence, n_test, n_flagged, **numbers, n_listed=n_listed)


_WORDS = (
    "Read the rows from the most novel one on, and stop where you like. The thick line says how"
    " many of the rows read are novel at least. It holds for all lists at once, so also for a list"
    " that you choose after looking at it.",
    "The dashed line is an estimate, and no promise: the rows read, less the share of false alarms"
    " that the smallest level allows at which all of them would be flagged.",
)


def choice_section(lists: Sequence[Lists], *words: str) -> list[Section]:
    """Let the reader choose a list; no section without lists."""
    return [Section("Choose a list", [*_WORDS, *words], lists=lists)] if lists else []


def lists_section(picture: Checked, n_listed: int) -> tuple[list[Section], list[str]]:
    """Return the section of one site, or the sentence that says why there is none.

    Files of earlier versions have neither.
    """
    if "lists" not in picture:
        return [], []
    part = picture.object("lists")
    if "why" in part:
        return [], [none_because(part.text("why"))]
    return choice_section([read_lists(own, "", n_listed) for own in part.objects("of")[:1]]), []


def none_because(why: str) -> str:
    """Say why no list can be chosen."""
    words = shortened(why, 400).rstrip(".")
    return f"No list can be chosen here with a certificate of its own: {words}."


def network_lists(run: Checked, transcript: Transcript) -> tuple[list[Section], list[str]]:
    """Return the section of a network and its agents, or why there is none.

    The numbers follow from the counts in the record, and from the ranks of each agent.
    """
    if transcript.abort or (transcript.outcome is None and transcript.entries):
        return [], []
    sure = _confidence(run)
    lists, words = [], []
    try:
        _refuse_many_of(transcript)
        whole = by_cell(transcript, sure)
        lists.append(read_lists(Checked(whole)))
    except ConovelError as error:
        words.append(none_because(str(error)))
    except (LookupError, ValueError, ArithmeticError):  # the record contradicts itself
        words.append(none_because("the counts in this record do not fit together"))
    own = list(_of_agents(run, transcript, sure))
    if own and words:
        words = [words[0].replace("here", "over all sites", 1)]
    if len(own) > _MOST_AGENTS:
        words.append(f"{len(own) - _MOST_AGENTS:,} further sites are not drawn.")
    shown = own[:_MOST_AGENTS]
    lists += [replace(one, beside=shown) for one in shown]
    if lists and transcript.settings.liars and lists[0].cell:
        words.append("Over all sites the numbers are about the rows of sites that do not lie.")
    return (choice_section(lists, *words), []) if lists else ([], words[:1])


def _refuse_many_of(transcript: Transcript) -> None:
    agents = [agent for agent in sizes_of(transcript).values() if agent.n_tested]
    refuse_many(sum(agent.n_calibration for agent in agents), 0)
    for agent in agents:
        refuse_many(agent.n_calibration, agent.n_tested)


def _confidence(run: Checked) -> Fraction:
    for name in ("certificate", "certified"):
        if name in run:
            return as_level(run.object(name).text("confidence"), "confidence")
    return as_level(CONFIDENCE)


def _of_agents(run: Checked, transcript: Transcript, sure: Fraction) -> Iterator[Lists]:
    """Return the lists of each agent by its own ranks, where one sample ranks all its rows."""
    if transcript.settings.regime.name not in _OWN_RANKS or transcript.settings.repeats > 1:
        return
    decisions = run.object("decisions") if "decisions" in run else Checked({})
    for name in decisions:
        site = decisions.object(name)
        ranks = np.array(site.integers("ranks"), dtype=np.int64)
        size, flagged = site.integer("n_calibration"), sum(site.flags("rejected"))
        if not ranks.size or ranks.min() < 1 or ranks.max() > size + 1 or flagged > ranks.size:
            continue  # the page says elsewhere what does not hold
        try:
            refuse_many(size, ranks.size)
        except InputError:
            continue
        bounds = site_bounds(RankHistogram(ranks, size), sure)
        content = by_rank(bounds, ranks.size, flagged, sure)
        yield read_lists(Checked(content), name)


@cache
def lists_script() -> Mapping[str, str]:
    """Return the script that moves the mark, and its digest for the content security policy."""
    path = Path(__file__).parent / "templates" / "lists.js"
    return with_policy(path.read_text(encoding="utf-8"))
