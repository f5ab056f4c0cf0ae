"""What a ledger holds of a batch, what it compares, and what it tells."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.models.wire import schema_digest
from conovel.rows.samples import Table, raw_numbers
from conovel.rows.tables import Rows
from conovel.scorers.base import Matrix
from conovel.spec.guarantee import Guarantee
from conovel.stats.batches import Batch
from conovel.stats.words import counted

Score: TypeAlias = Literal["kept", "refitted", "network"]


class BatchFacts(NamedTuple):
    """What a ledger compares before it takes a batch."""

    # Whether one detector scores all batches, or each batch gets a score of its own, at one site
    # or in a network
    score: Score
    # Digest of the kept detector, or of the known normals; in a network also of its settings
    source: str
    schema: str  # digest of the columns
    content: str  # digest of the rows of the batch, whatever their order
    # Where each batch gets a score of its own, the name and a digest of each setting of it; of a
    # kept score the strata alone
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def strata(self) -> str:
        """Digest of the columns within whose values rows are compared; empty without strata."""
        return dict(self.settings).get("strata", "") if self.score != "network" else ""

    @property
    def by_rank(self) -> bool:
        """Whether ranks among one calibration sample decide, and not evidence."""
        return self.score == "kept" and not self.strata


class ListedRow(NamedTuple):
    """A row by the batch that it came in, and by its position or name there."""

    batch: str
    row: int
    id: str | None

    @property
    def named(self) -> str:
        """Its name, or its position."""
        return f"row {self.row}" if self.id is None else self.id

    def __str__(self) -> str:
        return f"{self.named} of {self.batch}"


class Needs(NamedTuple):
    """What the next batch needs before any row can be flagged, whatever its scores."""

    n_tests: int  # rows of that batch
    fewest: int  # the fewest rows that can be on the list after it
    n_listed: int  # the rows that are on the list now

    def __str__(self) -> str:
        if self.n_listed >= self.fewest:
            return f"a next batch of {counted(self.n_tests, 'row')} can flag a single row"
        return (
            f"after a next batch of {counted(self.n_tests, 'row')} the list holds"
            f" {counted(self.fewest, 'row')} or more, or none; {self.n_listed:,} are on it now"
        )


@dataclass(frozen=True, eq=False)
class Entry:
    """One batch of a ledger."""

    name: str
    content: str  # digest of its rows
    batch: Batch  # the ranks that can still matter
    ids: tuple[str, ...] | None = None  # the names of the rows whose ranks are held
    # In a network, the tests and the rejections of the batch over all agents. The rows that are
    # held are then those that the batch's run rejected, and have rank 1.
    network: tuple[int, int] | None = None

    def listed(self, limit: int) -> list[ListedRow]:
        """Name the rows whose rank is at most the limit."""
        held = np.flatnonzero(self.batch.ranks <= limit).tolist()
        rows = self.batch.rows.tolist()
        return [
            ListedRow(self.name, rows[i], None if self.ids is None else self.ids[i]) for i in held
        ]


@dataclass(frozen=True, eq=False)
class LedgerUpdate:
    """What a batch changed.

    Attributes
    ----------
    number : int
        The number of the batch, from 1.
    name : str
        Its name.
    rejected : bool array of shape (m,)
        Which of its rows are on the list now.
    n_listed, n_tests : int
        Rows on the list, and rows tested, over all batches so far.
    joined, left : tuple of ListedRow
        Rows that came on the list and that went off it, of this batch and of earlier ones.
    needs : Needs or None
        What a next batch of the same size needs; None where it depends on its strata, or on
        other agents, and if the ledger is full.
    guarantee : Guarantee
        What holds for the list.
    is_full : bool
        Whether it takes no further batch.

    See Also
    --------
    conovel.Ledger : Makes it.
    """

    number: int
    name: str
    rejected: NDArray[np.bool_]
    n_listed: int
    n_tests: int
    joined: tuple[ListedRow, ...]
    left: tuple[ListedRow, ...]
    needs: Needs | None
    guarantee: Guarantee
    is_full: bool = False

    def summary(self) -> dict[str, Any]:
        """Give everything but the rows of this batch, ready for JSON."""
        return {
            "batch": self.number,
            "name": self.name,
            "n_listed": self.n_listed,
            "n_tests": self.n_tests,
            "joined": [row._asdict() for row in self.joined],
            "left": [row._asdict() for row in self.left],
            "fewest_listed_after_next": None if self.needs is None else self.needs.fewest,
        }


def content_digest(rows: Matrix) -> str:
    """Return a digest of the rows that does not depend on their order.

    Examples
    --------
    >>> rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> content_digest(rows) == content_digest(rows[::-1])
    True
    """
    rows = np.ascontiguousarray(rows + 0.0, dtype="<f8")
    if rows.shape[1]:
        rows = np.sort(rows.view(f"V{rows.itemsize * rows.shape[1]}"), axis=0)
    return hashlib.sha256(repr(rows.shape).encode() + rows.tobytes()).hexdigest()


def columns_digest(names: Sequence[str] | None, width: int) -> str:
    """Return a digest of the names and the order of columns."""
    return schema_digest(names or map(str, range(width)), 32).hex()


def settings_digests(settings: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return a digest of each setting, by its name; see :mod:`conovel.scorers.argument`."""
    return tuple(
        (name, hashlib.sha256(settings[name].encode()).hexdigest()) for name in sorted(settings)
    )


def refitted_facts(
    null: Rows | Table, test: Rows | Table, settings: Mapping[str, str]
) -> BatchFacts:
    """Return what a ledger compares where each batch gets a score of its own."""
    return BatchFacts(
        "refitted",
        content_digest(raw_numbers(null)),
        columns_digest(null.columns, null.width),
        content_digest(raw_numbers(test)),
        settings_digests(settings),
    )
