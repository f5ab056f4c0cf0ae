"""Which known novelties a flagged row is like: those that are unusual in the same way.

It is said after the decision, from the explanation alone, and changes nothing. A known novelty is
like a row if it has the row's reasons. In each column that counts for the row's pattern, its value
is unusual to the same side and at least as much; it is the same where the column holds no numbers,
and near where the row's value is usual. Distances in all columns would not do: in columns without
a reason, some of many known normals is always nearer than the few known novelties. Where more than
one in twenty known normals has the same reasons too, likeness says nothing, and the row is like
none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.rows.pairs import KnownRows
from conovel.scorers.base import Matrix
from conovel.site.explain.explainer import COMMON, IN_RANGE, POOL, Explainer

_MOST_NORMALS = 0.05  # a larger share of known normals with the same reasons is too much


class Alike(NamedTuple):
    """How many known novelties a row is like."""

    n_rows: int
    kind: str = ""  # the commonest kind of them, of several the first by name
    n_of_kind: int = 0

    @classmethod
    def of(cls, kinds: Sequence[str]) -> Alike:
        """Count known novelties by their kinds; an empty text is no kind.

        Examples
        --------
        >>> str(Alike.of(["mule account", "mule account", ""]))
        'like 3 known rows, 2 of them of kind `mule account`'
        """
        counts = sorted(Counter(filter(None, kinds)).items(), key=lambda item: (-item[1], item[0]))
        return cls(len(kinds), *(counts[0] if counts else ()))

    def __str__(self) -> str:
        if not self.n_rows:
            return ""
        of_all = "like 1 known row" if self.n_rows == 1 else f"like {self.n_rows:,} known rows"
        if not self.kind:
            return of_all
        if self.n_of_kind == self.n_rows:
            return f"{of_all} of kind `{self.kind}`"
        return f"{of_all}, {self.n_of_kind:,} of them of kind `{self.kind}`"


def alike(
    explainer: Explainer,
    cases: KnownRows,
    X: Matrix,
    how: NDArray[Any],
    columns: Sequence[Sequence[int]],
) -> list[Alike]:
    """Say which known novelties each row of `X` is like.

    `how` has the words of its columns, and `columns` those that count for each row. At most 2,000
    known novelties, `cases`, are compared.
    """
    kinds = cases.kinds or ("",) * len(cases)
    novelties = _Compared.of(explainer, cases.values[:POOL])
    normals = _Compared.of(explainer, explainer.null_train[:POOL])
    rows = _Compared(explainer, explainer.places(X), how)
    counted = []
    for i, counting in enumerate(columns):
        has_reasons = bool(counting) and normals.like(rows, i, counting).mean() <= _MOST_NORMALS
        same = np.flatnonzero(novelties.like(rows, i, counting)) if has_reasons else ()
        counted.append(Alike.of([kinds[j] for j in same]))
    return counted


@dataclass(frozen=True, eq=False)
class _Compared:
    """Rows by their places among the known normals, and by the words of their columns."""

    explainer: Explainer
    places: Matrix
    how: NDArray[Any]

    @classmethod
    def of(cls, explainer: Explainer, values: Matrix) -> _Compared:
        return cls(explainer, explainer.places(values), explainer.how(values))

    def like(self, rows: _Compared, i: int, columns: Sequence[int]) -> NDArray[np.bool_]:
        """Tell which of these have the reasons of the i-th row in some columns."""
        same = np.ones(len(self.places), dtype=np.bool_)
        for j in columns:
            view, word = self.explainer.views[j], str(rows.how[i, j])
            is_date = view.column is not None and view.column.kind == "date"
            if word in (IN_RANGE, COMMON) or not (view.is_number or is_date):
                same &= self.explainer.is_near(rows.places[i], view, self.places)
            else:  # what is high is at least rather high
                same &= np.isin(self.how[:, j], [word, word.replace("rather ", "")])
        return same
