"""What a round of sums is, whose rows it counts, and the settings that all agents agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.learning.together import bins as binning
from conovel.learning.together.moments import Whole
from conovel.scorers.base import Matrix, Vector
from conovel.scorers.content import content_hash


@dataclass(frozen=True)
class Settings:
    """What all agents agree on: how many trees, how deep, and the smallest leaf."""

    n_trees: int = 100
    n_plain_trees: int = 50  # on columns alone, where normals do not look Gaussian
    depth: int = 8
    least: int = 5
    n_known_trees: int = 50  # that tell known novelties, where there are any
    known_depth: int = 6


@dataclass(eq=False)
class AgentRows:
    """The rows of one agent, and what it remembers of them from round to round.

    Parameters
    ----------
    null_train, mixture : matrices
        The mixture in any order: only sums over it are used.
    known_rows : matrix or None
        Known novelties that the agent lets the others learn from.
    """

    null_train: Matrix
    mixture: Matrix
    known_rows: Matrix | None = None
    standard: Whole = field(init=False)  # rows in standard units, null_train first
    centre: Whole = field(default_factory=lambda: np.zeros(0, dtype=np.int64), init=False)
    codes: Whole = field(init=False)
    nodes: list[Whole] = field(default_factory=list, init=False)  # of each forest, by tree
    parts: list[Vector] = field(init=False)  # of the score, as all agents learnt it
    own: Vector | None = field(default=None, init=False)  # the own score, where it counts
    # Of known novelties, after the rows of null_train that they are told from
    known_codes: Whole = field(init=False)
    known_nodes: Whole = field(init=False)

    def __post_init__(self) -> None:
        self.values = np.vstack([self.null_train, self.mixture])
        self.keys = binning.keys_of(self.values)
        self.is_mixture = np.arange(len(self.values)) >= len(self.null_train)
        # Half of null_train, by what rows hold, is not told from known novelties. It says how far
        # rows reach that are none.
        self.is_held = half_of(self.null_train)
        self.n_known = 0 if self.known_rows is None else len(self.known_rows)


def half_of(rows: Matrix) -> NDArray[np.bool_]:
    """Mark half of the rows by what they hold; of equal rows, every second one.

    Examples
    --------
    >>> half_of(np.array([[1.0], [1.0], [1.0], [2.0]])).tolist()
    [False, True, False, True]
    """
    hashes = content_hash(np.ascontiguousarray(rows, dtype=np.float64))
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    occurrence = np.empty(len(rows), dtype=np.uint64)
    occurrence[order] = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
    return ((hashes + occurrence) & np.uint64(1)).astype(np.bool_)


class Round(NamedTuple):
    """One round: how many numbers it has, what an agent sends, and what the totals mean."""

    n_numbers: int
    answer: Callable[[AgentRows], Whole]
    take: Callable[[Whole], None]
    is_counted: bool = True  # whether all its numbers are numbers of rows


def by_kind(cells: Whole, is_mixture: NDArray[np.bool_], n_cells: int) -> Whole:
    """Count the rows of null_train in each cell, then those of the mixture."""
    kinds = (cells[~is_mixture], cells[is_mixture])
    counts = [np.bincount(kind, minlength=n_cells) for kind in kinds]
    return np.concatenate(counts).astype(np.int64)


def require_rows(counts: Whole, n_rows: int) -> None:
    """Check that each of `n_rows` is counted once."""
    if counts.max(initial=0) > n_rows or int(counts.sum()) != n_rows:
        raise ValueError(f"not each of {n_rows} rows is counted once")


def sum_of(answers: Sequence[Whole]) -> Whole:
    """Add up the numbers of all agents; whole numbers, so that no order matters."""
    total: Whole = np.sum(np.stack(answers), axis=0, dtype=np.int64)
    return total
