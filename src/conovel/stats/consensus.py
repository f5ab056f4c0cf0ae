"""Rows that are novel to everybody: the rule of the regime `consensus`, in integers.

A row is null if it is normal at some agent, wherever it is tested. One score for all agents
compares the test rows with the calibration rows of every agent that is a type. C_k(t) calibration
rows of type k, and R(t) test rows, are in cell t or above.

Types whose normals lie apart are in different groups. A group g has a share α_g of the level, and
a region: the rows below a floor that are nearest to the normals of its types. With N_g test rows
and c_k calibration rows of type k in that region, about N_g/c_k · C_k(t) normal rows of type k are
expected in cell t or above. The rows from the lowest cell T on, not below the floor, are rejected
for which

    (1 + N_g)/c_k · (1 + C_k(T))  ≤  α_g R(T)      for every type k of every group g

(docs/theory.md, Theorem 16). With one group this is the worst case over all types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from conovel.errors import InputError, SampleError
from conovel.stats.levels import Level, as_level

# Types are in one group if, of the rows of null_train of one of them, those nearest to the other
# are at least so many for each one nearest to itself.
_TOGETHER = Fraction(1, 4)
_ALIKE = Fraction(1, 2)  # of the level, what groups share equally; the rest goes by their tails


@dataclass(frozen=True)
class SharedHistogram:
    """The rows of one agent, by a score that all agents share.

    Rows are counted in each cell, the lowest first. `near_...` counts those below the cell `floor`
    by the agent whose normals are nearest, in the order of the roster; of null_train, all rows.
    """

    calibration: tuple[int, ...]
    tests: tuple[int, ...]
    floor: int
    near_calibration: tuple[int, ...]
    near_tests: tuple[int, ...]
    near_trained: tuple[int, ...]
    n_tail: int  # rows of null_train with a score as high as few have
    conforms: int  # the lowest cell, by distances, of rows that do not conform to its normals

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
class Group:
    """Types that share a region and a part of the level."""

    level: Fraction
    n_region: int  # test rows in its region
    types: tuple[Calibration, ...]


@dataclass(frozen=True)
class Calibration:
    """The calibration rows of one type: how many in each cell, and in the region of its group."""

    counts: tuple[int, ...]
    n_region: int


@dataclass(frozen=True)
class Consensus:
    """What was decided: the lowest rejected cell, and how many rows it rejects.

    Where no row is rejected, the cell is the number of cells.
    """

    cell: int
    n_rejected: int


def decide_groups(tests: Sequence[int], groups: Sequence[Group], floor: int) -> Consensus:
    """Decide about the test rows of all agents: so many in each cell.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).

    Examples
    --------
    >>> group = Group(Fraction(1, 5), 6, (Calibration((19, 0), 19),))
    >>> decide_groups((6, 4), [group], 1).n_rejected
    4
    """
    if not tests or min(tests) < 0:
        raise InputError("counts must be whole numbers from 0 on")
    cells = {len(tests), *(len(one.counts) for group in groups for one in group.types)}
    if len(cells) > 1:
        raise SampleError(f"all counts must have the same cells, not {sorted(cells)}")
    rejected = count_above(tests)
    types = [(group, one, count_above(one.counts)) for group in groups for one in group.types]
    for cell in range(floor, len(tests)):
        if (
            types
            and rejected[cell]
            and all(
                one.n_region
                and (1 + group.n_region) * (1 + above[cell])
                <= group.level * rejected[cell] * one.n_region
                for group, one, above in types
            )
        ):
            return Consensus(cell, rejected[cell])
    return Consensus(len(tests), 0)


def grouped_types(near_trained: Sequence[Sequence[int]], types: Sequence[int]) -> list[list[int]]:
    """Put types together whose rows of null_train are nearest to one another, or to nobody.

    `near_trained[k]` counts the rows of null_train of agent k by the agent they are nearest to.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).

    Examples
    --------
    >>> grouped_types([[9, 1, 0], [0, 6, 4], [0, 5, 5]], [0, 1, 2])
    [[0], [1, 2]]
    """
    group = {k: k for k in types}
    for k in types:
        for other in types:
            if near_trained[k][other] >= _TOGETHER * near_trained[k][k]:
                first, last = sorted((group[k], group[other]))
                group = {one: first if of == last else of for one, of in group.items()}
    return [[k for k in types if group[k] == of] for of in sorted(set(group.values()))]


def shared_level(tails: Sequence[Fraction], level: Level) -> list[Fraction]:
    """Divide the level among groups: half of it equally, and half by the tails of null_train.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).

    Examples
    --------
    >>> [str(one) for one in shared_level([Fraction(1, 50), Fraction(0)], "1/10")]
    ['3/40', '1/40']
    """
    alpha, total = as_level(level), sum(tails)
    by_tails = [tail / total if total else Fraction(1, len(tails)) for tail in tails]
    return [alpha * (_ALIKE / len(tails) + (1 - _ALIKE) * one) for one in by_tails]


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
