"""The reasons of flagged rows, for people: values, usual ranges, shares, and patterns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conovel.rows.tables import Rows
from conovel.site.explain.alike import Alike, alike
from conovel.site.explain.explainer import (
    COMMON,
    IN_RANGE,
    MISSING,
    MOST_REASONS,
    Explained,
    Explainer,
    written_values,
)
from conovel.stats.levels import as_whole

TOP = 3  # reasons of a row, unless asked for more
COMBINATION = "combination"
_MOST_PATTERNS = 20
MOST_EXPLAINED = 10_000  # rows whose reasons are written into files
_SAMPLE = 1_000  # explained where reasons say little: most rows are flagged, or drift was found
NONE_STANDS_OUT = "no single column stands out"
_FAR = 1.2  # times as far from known normals as these from one another: less is not said
_LEAST_SHARE = 0.05  # the share from which on a further reason is written
_COUNTS = 0.15  # the share from which on a reason counts for the pattern of a row


class Reason(NamedTuple):
    """One reason of one row: a column, or two that are seldom together."""

    columns: tuple[int, ...]  # which columns
    how: str  # such as "high", "rather low" or "combination"
    share: float  # what part of all that raises the score


class Pattern(NamedTuple):
    """Flagged rows with the same reasons."""

    text: str  # the reasons in words, such as "amount high, hour low"
    members: NDArray[np.intp]  # positions among the explained rows


@dataclass(frozen=True, eq=False, repr=False)
class Reasons:
    """Why some rows were flagged."""

    names: Sequence[str | int]  # the columns; those of an array by position
    rows: NDArray[np.intp]  # of shape (n,); where the explained rows stand in the test sample
    explained: Explained
    how: NDArray[Any]  # of shape (n, number of columns)
    # values, nearest: of shape (n,); for each column the values of the rows, and of their nearest
    # known normals
    values: Sequence[NDArray[Any]]
    nearest: Sequence[NDArray[Any]]
    # For each column the usual range; for one of no numbers the commonest values
    usual: Sequence[tuple[Any, Any]]
    ids: NDArray[Any] | None = None  # of shape (n,)
    # Of shape (n,); the rows in the order of their novelty, the most novel first
    novelty: NDArray[np.intp] | None = None
    # Of length n; which known novelties each row is like, where there are any
    alike: Sequence[Alike] | None = None

    @classmethod
    def of(
        cls,
        explainer: Explainer,
        test: Rows,
        rows: NDArray[np.intp],
        ids: NDArray[Any] | None = None,
    ) -> Reasons:
        """Explain some rows of a test sample; `ids` are those of the whole sample."""
        X, views = test.values[rows], explainer.views
        status = explainer.explain(X)
        nearest = explainer.null_train[status.nearest]
        reasons = cls(
            [view.name for view in views],
            rows,
            status,
            explainer.how(X),
            [written_values(test, view, rows) for view in views],
            [view.values(nearest) for view in views],
            [view.usual(explainer.null_train) for view in views],
            None if ids is None else ids[rows],
        )
        if explainer.known_rows is None:
            return reasons
        columns = [
            [j for reason in reasons.telling(i, TOP) for j in reason.columns]
            for i in range(len(rows))
        ]
        return replace(
            reasons, alike=alike(explainer, explainer.known_rows, X, reasons.how, columns)
        )

    def __len__(self) -> int:
        return len(self.rows)

    def of_row(self, i: int, top: int = TOP) -> list[Reason]:
        """Return the reasons of the i-th explained row; none without a share."""
        order, share = self.explained.order[i].tolist(), self.explained.share[i].tolist()
        reasons = []
        if self.explained.paired[i]:
            reasons.append(Reason(tuple(order[:2]), COMBINATION, sum(share[:2])))
            order, share = order[2:], share[2:]
        reasons += [
            Reason((j,), str(self.how[i, j]), part)
            for j, part in zip(order, share, strict=True)
            if part > 0
        ]
        return reasons[:top]

    def lines(self, top: int = TOP) -> dict[str, NDArray[Any]]:
        """Return a table with one line for each row and reason, and two for a combination."""
        top = as_whole(top, "top", 1, MOST_REASONS)
        texts = [
            (i, place, reason, j)
            for i in range(len(self))
            for place, reason in enumerate(self.of_row(i, top), 1)
            for j in reason.columns
        ]
        at = np.array([i for i, *_ in texts], dtype=np.intp)
        column = np.array([j for *_, j in texts], dtype=np.intp)
        names = np.array([*self.names, ""], dtype=object)
        other = [
            next((k for k in reason.columns if k != j), len(self.names)) for *_, reason, j in texts
        ]
        table: dict[str, NDArray[Any]] = {} if self.ids is None else {"id": self.ids[at]}
        row = {"row": self.rows[at]}
        # A print of 80 letters shows the first columns and the last ones.
        return {
            **(table or row),
            "column": names[column],
            **row,
            "reason": np.array([place for _, place, *_ in texts], dtype=np.int64),
            "with": names[np.array(other, dtype=np.intp)],
            "normal_low": self._column(self.usual[j][0] for *_, j in texts),
            "normal_high": self._column(self.usual[j][1] for *_, j in texts),
            "nearest_normal": self._column(self.nearest[j][i] for i, *_, j in texts),
            "times_as_far": self.explained.far[at],
            **self._known(at),
            "share": np.array([reason.share for *_, reason, _ in texts], dtype=np.float64),
            "how": np.array([reason.how for *_, reason, _ in texts], dtype=object),
            "value": self._column(self.values[j][i] for i, *_, j in texts),
        }

    def _known(self, at: Sequence[int] | NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        """Return how many known novelties some rows are like, and of which kind most are."""
        if self.alike is None:
            return {}
        alike = [self.alike[i] for i in at]
        return {
            "known": np.array([one.n_rows for one in alike], dtype=np.int64),
            "known_kind": np.array([one.kind for one in alike], dtype=object),
        }

    def _column(self, values: Iterable[Any]) -> NDArray[Any]:
        """Return numbers where all columns are numbers, else texts."""
        if all(of_column.dtype.kind == "f" for of_column in self.values):
            return np.array(list(values), dtype=np.float64)
        return np.array([spelled(value) for value in values], dtype=object)

    def counting(self, i: int, top: int = TOP) -> list[Reason]:
        """Return the reasons of a row that are written.

        These are unusual values of at least 5 % of its score. Where no column stands out, these
        are the first and others of at least 5 %.
        """
        reasons = self.of_row(i, top)
        written = reasons[:1] + [r for r in reasons[1:] if r.share >= _LEAST_SHARE]
        if not self.stands_out(i, top):
            return written
        return [reason for reason in written if not _is_usual(reason)]

    def stands_out(self, i: int, top: int = TOP) -> bool:
        """Say whether an unusual column of the i-th row, or two together, count for its score."""
        return any(map(_counts, self.of_row(i, top)))

    def texts(self, top: int = TOP) -> list[list[str]]:
        """Return the reasons of every row in words, without those that hardly count.

        A row that is like known novelties says so last.
        """
        columns = self._column_texts(top)
        if self.alike is None:
            return columns
        return [
            [*own, str(like)] if like.n_rows else own
            for own, like in zip(columns, self.alike, strict=True)
        ]

    def _column_texts(self, top: int) -> list[list[str]]:
        return [
            [self.text(i, r) for r in self.counting(i, top)]
            if self.stands_out(i, top)
            else [f"{none_stands_out(self.explained.far[i])}; most by {self._most(i, top)}"]
            for i in range(len(self))
        ]

    def _most(self, i: int, top: int) -> str:
        """Name the columns that raise the score of a row most, with their shares."""
        return ", ".join(
            f"{self._named(r.columns[0])} ({r.share:.0%})" for r in self.counting(i, top)
        )

    @cached_property
    def _told(self) -> dict[str, list[str]]:
        """For each explained row the texts that a file of decisions has."""
        pattern = np.empty(len(self), dtype=object)
        for one_pattern in self.patterns():
            pattern[one_pattern.members] = one_pattern.text
        texts = self._column_texts(TOP)
        plain = {
            f"reason_{place + 1}": [own[place] if place < len(own) else None for own in texts]
            for place in range(TOP)
        }
        return {**plain, "pattern": pattern.tolist()}

    def file_columns(self, start: int, stop: int) -> dict[str, pa.Array]:
        """Return the columns of a file of decisions for the rows from `start` to `stop`.

        A row that is not explained has no text.
        """
        first, last = np.searchsorted(self.rows, [start, stop])
        at = self.rows[first:last] - start
        columns = {}
        for name, texts in self._told.items():
            held = np.full(stop - start, None, dtype=object)
            held[at] = texts[first:last]
            columns[name] = pa.array(held, pa.string())
        for name, values in self._known(range(first, last)).items():
            held = np.full(stop - start, None, dtype=object)
            held[at] = values
            columns[name] = pa.array(held, pa.int64() if name == "known" else pa.string())
        return columns

    def to_dict(self, n_flagged: int) -> dict[str, Any]:
        """Give the reasons as plain JSON types, for a report."""
        order = np.arange(len(self)) if self.novelty is None else self.novelty
        patterns = self.patterns()
        pattern_of = np.zeros(len(self), dtype=np.intp)
        for place, pattern in enumerate(patterns):
            pattern_of[pattern.members] = place
        return {
            "flagged": n_flagged,
            "columns": [
                {"name": self._named(j), "usual": self._range(j)} for j in range(len(self.names))
            ],
            "patterns": [pattern.text for pattern in patterns],
            "rows": [self._row_as_plain(i, int(pattern_of[i])) for i in order.tolist()],
        }

    def _row_as_plain(self, i: int, pattern: int) -> dict[str, Any]:
        return {
            "row": str(self.rows[i] if self.ids is None else self.ids[i]),
            "pattern": pattern,
            "reasons": [
                {
                    "columns": list(reason.columns),
                    "how": reason.how,
                    "values": [spelled(self.values[j][i]) for j in reason.columns],
                    "nearest": [spelled(self.nearest[j][i]) for j in reason.columns],
                    "share": round(reason.share, 4),
                }
                for reason in self.counting(i)
            ],
            **({} if self.stands_out(i) else {"far": round(float(self.explained.far[i]), 2)}),
            **self._alike_as_plain(i),
        }

    def _alike_as_plain(self, i: int) -> dict[str, Any]:
        if self.alike is None or not self.alike[i].n_rows:
            return {}
        return {"known": self.alike[i]._asdict()}

    def text(self, i: int, reason: Reason) -> str:
        """Write one reason of the i-th row.

        Such as ``amount high: 8120, normally 3 to 950 (61 %)``.
        """
        values = ", ".join(spelled(self.values[j][i]) for j in reason.columns)
        shown = "" if values == MISSING else f": {values}"
        return f"{self.label(reason)}{shown}, {self.usual_text(reason)} ({reason.share:.0%})"

    def usual_text(self, reason: Reason) -> str:
        """Say what is usual in the column of a reason."""
        if reason.how == COMBINATION:
            return "each usual, seldom together"
        (j,) = reason.columns
        return f"normally {self._range(j)}"

    def _range(self, j: int) -> str:
        return " to ".join(spelled(end) for end in self.usual[j] if end != "")

    def _named(self, j: int) -> str:
        name = self.names[j]
        return name if isinstance(name, str) else f"column {name}"

    def label(self, reason: Reason) -> str:
        """Name a reason in a few words."""
        names = " with ".join(map(self._named, reason.columns))
        return names if reason.how == COMBINATION else f"{names} {reason.how}"

    def patterns(self, top: int = TOP) -> list[Pattern]:
        """Group the rows by the reasons that they share, the largest pattern first.

        A row's reasons are those with at least 15 % of its score and an unusual value. Of all sets
        of
        reasons, the one is taken that says most about most rows: 1, 3 or 6 times the number of
        rows for one, two or three reasons. Then the same for the rows that are left, and so on.
        After 20 patterns, the others are one.
        """
        rows_of: dict[tuple[str, ...], set[int]] = defaultdict(set)
        for i in range(len(self)):
            own = self._counted(i, top)
            for size in range(1, len(own) + 1):
                for part in combinations(own, size):
                    rows_of[part].add(i)
        left = set(range(len(self)))
        patterns_found: list[Pattern] = []
        while left and len(patterns_found) < _MOST_PATTERNS:
            best = max(rows_of, key=lambda part: (_weight(len(part)) * len(rows_of[part]), part))
            members = rows_of.pop(best)
            patterns_found.append(_pattern(", ".join(best), members))
            left -= members
            for part in [part for part in rows_of if not rows_of[part].isdisjoint(members)]:
                rows_of[part] -= members
        patterns_found.sort(key=lambda pattern: -len(pattern.members))
        return [*patterns_found, _pattern("other reasons", left)] if left else patterns_found

    def telling(self, i: int, top: int) -> list[Reason]:
        """Return the first reason of a row, and others that count for its pattern."""
        first, *others = self.of_row(i, top) or [Reason((), "unexplained", 0.0)]
        return [first, *filter(_counts, others)]

    def _counted(self, i: int, top: int) -> tuple[str, ...]:
        counted = [reason for reason in self.of_row(i, top) if _counts(reason)]
        if not counted:
            return (NONE_STANDS_OUT,)
        return tuple(sorted(self.label(r._replace(how=_direction(r.how))) for r in counted))


def none_stands_out(far: float) -> str:
    """Say that no column explains a row, and how far it lies from known normals.

    Examples
    --------
    >>> none_stands_out(1.04)
    'no single column stands out'
    >>> none_stands_out(2.31)
    'no single column stands out: 2.3 times as far from a known normal as these from one another'
    """
    if not far >= _FAR:
        return NONE_STANDS_OUT
    return (
        f"{NONE_STANDS_OUT}: {far:.1f} times as far from a known normal as these from one another"
    )


def n_explained(n_flagged: int, n_tests: int, drift: bool, most: int = MOST_EXPLAINED) -> int:
    """Return how many flagged rows are explained: a sample where reasons say little.

    Examples
    --------
    >>> (
    ...     n_explained(400, 10**6, False),
    ...     n_explained(8000, 10_000, False),
    ...     n_explained(8000, 10**6, True),
    ... )
    (400, 1000, 1000)
    """
    if drift or 2 * n_flagged > n_tests:
        most = min(most, _SAMPLE)
    return min(n_flagged, most)


def most_novel(
    rows: NDArray[np.intp], ranks: NDArray[np.int64], scores: NDArray[np.float64], most: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the most novel of some rows by rank, then by score."""
    chosen = rows[np.lexsort((-scores, ranks))[:most]]
    places = np.argsort(chosen)
    return chosen[places], np.argsort(places)


def _pattern(text: str, members: set[int]) -> Pattern:
    return Pattern(text, np.array(sorted(members), dtype=np.intp))


def _weight(n_reasons: int) -> int:
    return n_reasons * (n_reasons + 1) // 2


def _is_usual(reason: Reason) -> bool:
    return reason.how in (IN_RANGE, COMMON)


def _counts(reason: Reason) -> bool:
    return reason.share >= _COUNTS and not _is_usual(reason)


def _direction(how: str) -> str:
    return how.removeprefix("rather ")


def spelled(value: Any) -> str:
    """Write a value with as many digits as a person reads."""
    if not isinstance(value, float):  # as numpy's float64 is
        return str(value)
    if np.isnan(value):
        return MISSING
    if 1e4 <= abs(value) < 1e15 or (float(value).is_integer() and abs(value) < 1e15):
        return f"{value:.0f}"
    return f"{value:.4g}"
