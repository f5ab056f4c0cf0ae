"""Rows that are novel to everybody: the rule of the regime `consensus`, in integers.

A row is null if it is normal at some agent, wherever it is tested. The test rows are divided into
two folds. One score for all agents, which learnt nothing from the rows of a fold, compares these
with the calibration rows of every agent. With C_k(t) the calibration rows of agent k in cell t or
above, and ℓ_k all of them,

    p(t)  =  max_k (1 + C_k(t))/(ℓ_k + 1)

is the worst case over agents. A fold stops at the lowest cell T with p(T) ≤ β A(T), where A(t) is
the share of test rows at or above t, by the score of this fold: the share of all test rows, but
at most 11/10 of the share of this fold. Its rows at or above T have the e-value 1/p(T), the
others zero. Two values of β are mixed with fixed weights, and e-BH over both folds decides
(docs/theory.md, Theorem 16).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from conovel.errors import InputError, SampleError
from conovel.stats.evidence import accepted_values
from conovel.stats.levels import Level, as_level

# Weight and β/α. Where one fold has most of the rejections, the larger β is too large for it. The
# smaller one then still rejects. docs/results/consensus.md has power against both.
MIXED = ((Fraction(19, 20), Fraction(3, 4)), (Fraction(1, 20), Fraction(3, 8)))
# A score that has learnt from the other fold by heart takes all its rows for novelties. The share
# of this fold says what can be true.
_AT_MOST = Fraction(11, 10)


@dataclass(frozen=True)
class FoldHistogram:
    """The rows of one agent in each cell, by the score of one fold, the lowest cell first.

    `tests` are of this fold, `others` of the other one. From the cell `conforms` on, by the
    agent's own model, a row does not conform to its normals.
    """

    calibration: tuple[int, ...]
    tests: tuple[int, ...]
    others: tuple[int, ...]
    conforms: int


@dataclass(frozen=True)
class FoldHistograms:
    """The rows of one agent by the scores of all folds."""

    folds: tuple[FoldHistogram, ...]

    @property
    def size(self) -> int:
        """The number of test rows."""
        return sum(sum(fold.tests) for fold in self.folds)

    @property
    def n_calibration(self) -> int:
        """The number of calibration rows."""
        return sum(self.folds[0].calibration)

    def n_rejected(self, cells: Sequence[int]) -> int:
        """Count the rows that are rejected from these cells on, one for each fold."""
        return sum(sum(f.tests[cell:]) for f, cell in zip(self.folds, cells, strict=True))


@dataclass(frozen=True)
class Calibration:
    """The calibration rows of one agent, by the score of one fold: all, and how many in each cell.

    Rows that lie below all cells may be left out of `counts`.
    """

    size: int
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_counts(self.counts, self.size)


@dataclass(frozen=True)
class Fold:
    """One fold of the test rows of all agents, by its own score.

    `tests` and `others` are the rows of this fold and of the other one in each cell. `types`
    are the agents whose normals count.
    """

    n_test: int
    n_other: int
    tests: tuple[int, ...]
    others: tuple[int, ...]
    types: tuple[Calibration, ...]

    def __post_init__(self) -> None:
        _check_counts(self.tests, self.n_test)
        _check_counts(self.others, self.n_other)
        cells = {len(self.tests), len(self.others), *(len(one.counts) for one in self.types)}
        if len(cells) > 1:
            raise SampleError(f"all counts must have the same cells, not {sorted(cells)}")

    @property
    def p_values(self) -> tuple[Fraction, ...]:
        """The p-value of a row in each cell; 1 where no agent has calibration rows.

        Proof: Theorem 16 (docs/theory.md#thm-consensus).
        """
        each = [
            [Fraction(1 + above, one.size + 1) for above in count_above(one.counts)]
            for one in self.types
        ]
        return (
            tuple(map(max, zip(*each, strict=True))) if each else (Fraction(1),) * len(self.tests)
        )

    def stop(self, beta: Fraction) -> Stop | None:
        """Return the lowest cell with p ≤ βA and the evidence there, None if there is none.

        Proof: Theorem 16 (docs/theory.md#thm-consensus).
        """
        tested, other = count_above(self.tests), count_above(self.others)
        n_all = self.n_test + self.n_other
        for cell, p_value in enumerate(self.p_values):
            here, everywhere = tested[cell], tested[cell] + other[cell]
            is_here = p_value * self.n_test <= beta * _AT_MOST * here
            if is_here and p_value * n_all <= beta * everywhere:
                return Stop(cell, p_value, here)
        return None


@dataclass(frozen=True)
class Stop:
    """Where a fold stops: its rows from this cell on have the e-value 1/p_value."""

    cell: int
    p_value: Fraction
    n_rejected: int


@dataclass(frozen=True)
class Consensus:
    """What was decided over both folds: of each the lowest rejected cell, its p-value and rows.

    Where no row is rejected, the cell is the number of cells.
    """

    cells: tuple[int, ...]
    n_rejected: tuple[int, ...]
    p_values: tuple[Fraction | None, ...]


def decide_folds(folds: Sequence[Fold], level: Level) -> Consensus:
    """Decide about all folds together, by e-BH on the evidence of each.

    There is one fold where nothing was learnt from test rows.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    alpha = as_level(level)
    if not folds or not all(isinstance(fold, Fold) for fold in folds):
        raise InputError("folds must be a list of Fold")
    m = sum(fold.n_test for fold in folds)
    if m == 0:
        raise SampleError("there is nothing to test: every fold is empty")
    steps = [_steps(fold, alpha) for fold in folds]  # of each fold, the lowest cell first
    every = [step for own in steps for step in own]
    n_without = m - sum(n for _, _, n in every)
    accepted = accepted_values(
        [Fraction(0), *(evidence for _, evidence, _ in every)],
        [n_without, *(n for _, _, n in every)],
        alpha,
    )
    kept = iter(accepted[1:])
    cells, rejected, p_values = [], [], []
    for fold, own in zip(folds, steps, strict=True):
        taken = [step for step in own if next(kept)]
        lowest = min((cell for cell, _, _ in taken), default=len(fold.tests))
        cells.append(lowest)
        rejected.append(sum(n for _, _, n in taken))
        p_values.append(fold.p_values[lowest] if taken else None)
    return Consensus(tuple(cells), tuple(rejected), tuple(p_values))


def _steps(fold: Fold, alpha: Fraction) -> list[tuple[int, Fraction, int]]:
    """Return from which cell on rows have how much evidence, and how many have just that."""
    stops_of_levels = [(weight, fold.stop(share * alpha)) for weight, share in MIXED]
    stops = [(weight, stop) for weight, stop in stops_of_levels if stop is not None]
    steps = []
    for cell in sorted({stop.cell for _, stop in stops}):
        evidence = sum((w / stop.p_value for w, stop in stops if stop.cell <= cell), Fraction(0))
        n = max(stop.n_rejected for _, stop in stops if stop.cell == cell)
        above = max((stop.n_rejected for _, stop in stops if stop.cell > cell), default=0)
        steps.append((cell, evidence, n - above))
    return steps


def conforming_limit(calibration: Sequence[int], level: Level) -> int:
    """Return the lowest cell in which a row, by its agent's own model, has a p-value of at most α.

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
