"""Rows that are novel to everybody: the rule of the regime `consensus`, in integers.

A row is null if it is normal at some agent, wherever it is tested. One score for all agents
compares the test rows with the calibration rows of every agent. With C_k(t) the calibration rows
of agent k in cell t or above, and ℓ_k all of them,

    p(t)  =  max_k (1 + C_k(t))/(ℓ_k + 1)

is the worst case over agents. The test rows from the lowest cell T on are rejected for which
p(T) ≤ α R(T)/m, where R(t) of the m test rows are in cell t or above. That is the step-up of
Benjamini and Hochberg on the p-values of all rows (docs/theory.md, Theorem 16).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from conovel.errors import InputError, SampleError
from conovel.stats.levels import Level, as_level


@dataclass(frozen=True)
class SharedHistogram:
    """The rows of one agent in each cell of a score that all agents share, the lowest cell first.

    From the cell `conforms` on, by the distance from the agent's normals, a row does not conform
    to them.
    """

    calibration: tuple[int, ...]
    tests: tuple[int, ...]
    conforms: int

    @property
    def size(self) -> int:
        """The number of test rows."""
        return sum(self.tests)

    @property
    def n_calibration(self) -> int:
        """The number of calibration rows."""
        return sum(self.calibration)

    def n_rejected(self, cell: int) -> int:
        """Count the test rows from this cell on."""
        return sum(self.tests[cell:])


@dataclass(frozen=True)
class Calibration:
    """The calibration rows of one agent: all, and how many in each cell.

    Rows that lie below all cells may be left out of `counts`.
    """

    size: int
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_counts(self.counts, self.size)


@dataclass(frozen=True)
class Consensus:
    """What was decided: the lowest rejected cell, its rows, and its p-value.

    Where no row is rejected, the cell is the number of cells.
    """

    cell: int
    n_rejected: int
    p_value: Fraction | None


def worst_p_values(types: Sequence[Calibration], n_cells: int) -> tuple[Fraction, ...]:
    """Return the p-value of a row in each cell; 1 where no agent has calibration rows.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).

    Examples
    --------
    >>> [str(p) for p in worst_p_values([Calibration(3, (3, 0)), Calibration(9, (5, 4))], 2)]
    ['1', '1/2']
    """
    each = [
        [Fraction(1 + above, one.size + 1) for above in count_above(one.counts)] for one in types
    ]
    return tuple(map(max, zip(*each, strict=True))) if each else (Fraction(1),) * n_cells


def decide_worst_case(
    n_test: int, tests: Sequence[int], types: Sequence[Calibration], level: Level
) -> Consensus:
    """Decide about the test rows of all agents: so many in each cell, `n_test` in all.

    Rows that lie below all cells may be left out of `tests`.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).

    Examples
    --------
    >>> decide_worst_case(10, (6, 4), [Calibration(19, (19, 0))], "1/5").n_rejected
    4
    """
    alpha = as_level(level)
    if n_test == 0:
        raise SampleError("there is nothing to test")
    _check_counts(tests, n_test)
    cells = {len(tests), *(len(one.counts) for one in types)}
    if len(cells) > 1:
        raise SampleError(f"all counts must have the same cells, not {sorted(cells)}")
    rejected = count_above(tests)
    for cell, p_value in enumerate(worst_p_values(types, len(tests))):
        if rejected[cell] and p_value * n_test <= alpha * rejected[cell]:
            return Consensus(cell, rejected[cell], p_value)
    return Consensus(len(tests), 0, None)


def conforming_limit(calibration: Sequence[int], level: Level) -> int:
    """Return the lowest cell, by an agent's distances, in which a row has a p-value of at most α.

    Rows below conform to the calibration rows. Without calibration rows no row conforms, and the
    limit is zero.
    """
    size, alpha = sum(calibration), as_level(level)
    if size == 0:
        return 0
    return sum(1 for above in count_above(calibration) if 1 + above > alpha * (size + 1))


def count_above(counts: Sequence[int]) -> list[int]:
    """Return how many are in each cell or above it."""
    return list(accumulate(reversed(counts)))[::-1]


def _check_counts(counts: Sequence[int], total: int) -> None:
    if not counts or min(counts) < 0 or sum(counts) > total:
        raise InputError(
            f"counts must be whole numbers from 0 on that add up to at most {total}, not"
            f" {sum(counts)}"
        )
