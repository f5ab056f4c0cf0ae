"""The content of a page as plain records: the picture, tables, sections and the story."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard, TypeVar

from conovel.errors import RunFileError
from conovel.report.picture import BINS, FORMAT, MOST_POINTS, MOST_ROWS, shortened
from conovel.spec.fields import MAX_AGENTS

if TYPE_CHECKING:
    from conovel.report.flagged import FlaggedRows
    from conovel.report.lists import Lists
    from conovel.report.plots import Plot
    from conovel.spec.findings import Finding


MOST_SITES = MAX_AGENTS


@dataclass(frozen=True)
class Histogram:
    """Tested rows by bin, and how many of them were flagged."""

    edges: Sequence[float]
    tests: Sequence[int]
    rejected: Sequence[int]
    calibration: Sequence[int] = ()


@dataclass(frozen=True)
class Curve:
    """Sorted p-values at some places k, and the line ``slope · k`` that they are compared with."""

    sites: Sequence[str]
    n_tests: int
    n_rejected: int
    n_rejected_here: int
    slope: float
    whole: bool
    k: Sequence[int]
    p_value: Sequence[float]

    @property
    def threshold(self) -> float:
        """Largest p-value that is flagged."""
        return self.slope * self.n_rejected


@dataclass(frozen=True)
class SiteView:
    """One site's numbers."""

    n_tested: int
    n_calibration: int
    n_rejected: int
    limit: int  # largest rank that is flagged
    # The fewest rows that could have been flagged together; 0: none could be; None: not known
    fewest: int | None
    lowest_rejected_score: float | None
    scores: Histogram | None


@dataclass(frozen=True)
class Row:
    """One row and what was decided about it."""

    site: str
    row: str
    score: float | None
    rank: int
    p_value: float
    rejected: bool


@dataclass(frozen=True)
class Picture:
    """A picture as :func:`conovel.report.picture.picture` wrote it, checked."""

    step_up: Sequence[Curve]
    p_values: Histogram
    sites: Mapping[str, SiteView]
    most_novel: Sequence[Row]


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows; `text` says which others are not numbers."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    text: frozenset[int] = frozenset()
    shown: int | None = None  # rows that are visible at first; the others unfold
    total: bool = False  # whether the last row is a total


@dataclass(frozen=True)
class Figure:
    """A finished image, as a ``data:`` address."""

    name: str
    address: str


@dataclass(frozen=True)
class Section:
    """One part of the page."""

    title: str
    words: Sequence[str] = ()
    points: Sequence[tuple[str, str]] = ()  # a term and its description
    plots: Sequence[Plot] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    lists: Sequence[Lists] = ()  # to choose one from


@dataclass(frozen=True)
class Story:
    """Everything a page says, from the headline down."""

    kind: str
    headline: str
    lead: str
    facts: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    findings: Sequence[tuple[str, Sequence[Finding]]] = ()  # each part under its title
    finding_plots: Sequence[Plot] = ()
    flagged: FlaggedRows | None = None
    guarantee: str = ""
    assumptions: Sequence[str] = ()
    caveats: Sequence[str] = ()
    sections: Sequence[Section] = field(default=())

    @property
    def has_lists(self) -> bool:
        """Whether a list can be chosen."""
        return any(section.lists for section in self.sections)


def read_picture(content: Checked) -> Picture:
    """Check a picture from a file."""
    if content.text("format") != FORMAT:
        content.refuse("format", f"is not {FORMAT}")
    sites = content.object("sites")
    if len(sites.value) > MOST_SITES:
        content.refuse("sites", f"has more than {MOST_SITES} entries")
    return Picture(
        step_up=[_read_curve(curve) for curve in content.objects("step_up")[:MOST_SITES]],
        p_values=_read_histogram(content.object("p_values")),
        sites={name: _read_site(sites.object(name)) for name in sites},
        most_novel=[_read_row(row) for row in content.objects("most_novel")[:MOST_ROWS]],
    )


def _read_curve(content: Checked) -> Curve:
    k, p_value = content.integers("k"), content.numbers("p_value")
    if not 1 <= len(k) == len(p_value) <= MOST_POINTS + 2:
        content.refuse("k", "is not one place for each p-value")
    slope = content.number("slope")
    if slope <= 0:
        content.refuse("slope", "is not above zero")
    if min(k) < 1 or sorted(k) != k:
        content.refuse("k", "does not ascend from 1 on")
    return Curve(
        sites=content.texts("sites"),
        n_tests=content.integer("n_tests"),
        n_rejected=content.integer("n_rejected"),
        n_rejected_here=content.integer("n_rejected_here"),
        slope=slope,
        whole=content.flag("whole"),
        k=k,
        p_value=p_value,
    )


def _read_histogram(content: Checked) -> Histogram:
    edges = content.numbers("edges")
    if len(edges) < 2 or len(edges) > BINS + 1 or any(a >= b for a, b in pairwise(edges)):
        content.refuse("edges", "are not ascending numbers")
    counts = {"tests": content.integers("tests"), "rejected": content.integers("rejected")}
    if "calibration" in content:
        counts["calibration"] = content.integers("calibration")
    for key, values in counts.items():
        if len(values) != len(edges) - 1:
            content.refuse(key, f"has {len(values)} counts for {len(edges) - 1} bins")
    return Histogram(edges=edges, **counts)


def _read_site(content: Checked) -> SiteView:
    scores = _read_histogram(content.object("scores")) if "scores" in content else None
    if scores is not None and not scores.calibration:
        content.object("scores").integers("calibration")
    return SiteView(
        n_tested=content.integer("n_tested"),
        n_calibration=content.integer("n_calibration"),
        n_rejected=content.integer("n_rejected"),
        limit=content.integer("limit"),
        fewest=content.integer("fewest", None),
        lowest_rejected_score=content.number("lowest_rejected_score", None),
        scores=scores,
    )


def _read_row(content: Checked) -> Row:
    return Row(
        site=shortened(content.text("site")),
        row=shortened(content.text("row")),
        score=content.number("score", None),
        rank=content.integer("rank"),
        p_value=content.number("p_value"),
        rejected=content.flag("rejected"),
    )


T = TypeVar("T")
REQUIRED: Any = object()


class Checked:
    """A JSON object from a file that may hold anything.

    Examples
    --------
    >>> run = Checked({"settings": {"level": "1/10"}})
    >>> run.object("settings").text("level")
    '1/10'
    >>> run.object("settings").integer("seed")
    Traceback (most recent call last):
    ...
    conovel.errors.RunFileError: settings.seed is missing
    >>> run.object("settings").integer("level")
    Traceback (most recent call last):
    ...
    conovel.errors.RunFileError: settings.level is not a whole number
    """

    def __init__(self, value: Any, path: str = "") -> None:
        if not isinstance(value, Mapping):
            raise RunFileError(f"{path or 'the file'} is not an object")
        self.value: Mapping[str, Any] = value
        self.path = path

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.value)

    def text(self, key: str, default: Any = REQUIRED) -> str:
        """Read a text."""
        return self._read(key, default, "a text", _is_text)

    def integer(self, key: str, default: Any = REQUIRED) -> int:
        """Read a whole number that is not negative."""
        return self._read(key, default, "a whole number", _is_integer)

    def number(self, key: str, default: Any = REQUIRED) -> float:
        """Read a finite number."""
        return self._read(key, default, "a number", _is_number)

    def flag(self, key: str, default: Any = REQUIRED) -> bool:
        """Read true or false."""
        return self._read(key, default, "true or false", _is_flag)

    def texts(self, key: str, default: Any = REQUIRED) -> list[str]:
        """Read a list of texts."""
        return self._read(key, default, "a list of texts", _list_of(_is_text))

    def integers(self, key: str) -> list[int]:
        """Read a list of whole numbers."""
        return self._read(key, REQUIRED, "a list of whole numbers", _list_of(_is_integer))

    def numbers(self, key: str) -> list[float]:
        """Read a list of finite numbers."""
        return self._read(key, REQUIRED, "a list of numbers", _list_of(_is_number))

    def flags(self, key: str) -> list[bool]:
        """Read a list of true and false."""
        return self._read(key, REQUIRED, "a list of true and false", _list_of(_is_flag))

    def rows(self, key: str) -> list[Any]:
        """Read a list of anything."""
        return self._read(key, REQUIRED, "a list", _is_list)

    def object(self, key: str) -> Checked:
        """Read an object."""
        if key not in self.value:
            self.refuse(key, "is missing")
        return Checked(self.value[key], self._place(key))

    def objects(self, key: str) -> list[Checked]:
        """Read a list of objects."""
        place = self._place(key)
        return [Checked(item, f"{place}[{i}]") for i, item in enumerate(self.rows(key))]

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raise the error for a field."""
        raise RunFileError(f"{self._place(key)} {why}")

    def _read(self, key: str, default: Any, kind: str, fits: Callable[[Any], TypeGuard[T]]) -> T:
        value = self.value.get(key)
        if value is None and default is not REQUIRED:
            chosen: T = default
            return chosen
        if key not in self.value:
            self.refuse(key, "is missing")
        if not fits(value):
            self.refuse(key, f"is not {kind}")
        return value

    def _place(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)


def _is_flag(value: Any) -> TypeGuard[bool]:
    return isinstance(value, bool)


def _is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_number(value: Any) -> TypeGuard[float]:
    # The comparison is also false for NaN.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _list_of(fits: Callable[[Any], TypeGuard[T]]) -> Callable[[Any], TypeGuard[list[T]]]:
    def fit(value: Any) -> TypeGuard[list[T]]:
        return isinstance(value, list) and all(map(fits, value))

    return fit
