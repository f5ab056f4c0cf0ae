"""The rows of agents on one common scale, as integer histograms: what the regime `joint` counts.

All agents' mixture rows are compared on one common scale, cut into cells (ascending). Agent j
has ℓ_j calibration rows, m_j test rows and a floor, a cell: only its rows at or above the floor
take part. The rule that decides is in :mod:`conovel.stats.grouped`. It needs a weight w of at
least m_j/(ℓ_j+1), and an x of at least κ_j/(ℓ_j+1), for every agent j of a group, where κ_j
counts all its mixture rows at or above its floor (Theorem 10 of docs/theory.md). Floors, x and
w must not depend on which mixture rows are calibration rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from numpy.typing import ArrayLike

from conovel.errors import InputError, SampleError
from conovel.stats.arguments import as_array, as_whole
from conovel.stats.levels import Level, as_level


@dataclass(frozen=True)
class PooledBlock:
    """The rows of one agent: how many there are, and how many in each cell above its floor.

    Attributes
    ----------
    n_test : int
        All test rows m_j, those below the floor included.
    n_calibration : int
        All calibration rows ℓ_j, those below the floor included.
    test_counts : sequence of int
        Test rows in each cell of the common scale, the lowest cell first; zero below the floor.
    calibration_counts : sequence of int
        Calibration rows in each cell, in the same form.

    Examples
    --------
    >>> PooledBlock(3, 20, [0, 0, 2], [0, 1, 0]).n_above
    3
    """

    n_test: int
    n_calibration: int
    test_counts: tuple[int, ...]
    calibration_counts: tuple[int, ...]

    def __post_init__(self) -> None:
        for kind in ("test", "calibration"):
            total = as_whole(getattr(self, f"n_{kind}"), f"n_{kind}")
            counts = _as_counts(getattr(self, f"{kind}_counts"), f"{kind}_counts")
            if sum(counts) > total:
                raise InputError(
                    f"{kind}_counts add up to {sum(counts)}, and n_{kind} is only {total}"
                )
            object.__setattr__(self, f"n_{kind}", total)
            object.__setattr__(self, f"{kind}_counts", counts)
        cells = len(self.test_counts), len(self.calibration_counts)
        if cells[0] != cells[1]:
            raise SampleError(
                "test_counts and calibration_counts must have the same cells, not"
                f" {cells[0]} and {cells[1]}"
            )

    @property
    def n_above(self) -> int:
        """The number κ_j of all mixture rows at or above the floor."""
        return sum(self.test_counts) + sum(self.calibration_counts)

    @property
    def takes_part(self) -> bool:
        """Whether the agent has tests, and rows above its floor."""
        return self.n_test > 0 and self.n_above > 0


def common_weight(blocks: Sequence[PooledBlock]) -> Fraction:
    """Return the smallest weight w that the theorem allows: the largest m_j/(ℓ_j + 1).

    An agent without rows above its floor rejects nothing and does not count. Zero if there is
    no other agent.

    Examples
    --------
    >>> common_weight([PooledBlock(3, 20, [2], [1]), PooledBlock(5, 9, [1], [0])])
    Fraction(1, 2)
    """
    sizes = [(b.n_test, b.n_calibration + 1) for b in blocks if b.takes_part]
    return max((Fraction(*size) for size in sizes), default=Fraction(0))


def floor_cell(mixture_counts: ArrayLike, n_calibration: int, x: Level) -> int:
    """Return the lowest cell with at most x(ℓ + 1) mixture rows at or above it.

    The counts are those of *all* mixture rows of the agent, calibration rows and test rows
    together, so the floor does not depend on which of them are calibration rows. A cell is
    above the floor as a whole or not at all.

    Parameters
    ----------
    mixture_counts : int array
        Mixture rows in each cell of the common scale, the lowest cell first.
    n_calibration : int
        Calibration rows ℓ of the agent.
    x : float, str or Fraction
        Between 0 and 1, the same for all agents.

    Returns
    -------
    int
        A cell; the number of cells if even the highest cell has too many rows.

    Examples
    --------
    >>> floor_cell([50, 20, 4, 3, 1], n_calibration=70, x=0.1)
    3
    >>> floor_cell([50, 20], n_calibration=70, x=0.1)
    2
    """
    counts = _as_counts(mixture_counts, "mixture_counts")
    size = as_whole(n_calibration, "n_calibration")
    most = most_above(size, as_level(x, "x"))
    above = 0
    for cell in reversed(range(len(counts))):
        above += counts[cell]
        if above > most:
            return cell + 1
    return 0


def fixed_threshold_evidence(blocks: Sequence[PooledBlock]) -> Fraction:
    """Return the e-value m/D of every test row at or above its agent's fixed threshold.

    D is max_j w_j + Σ_j w_j C_j with w_j = m_j/ℓ_j and C_j the calibration rows of agent j at or
    above its threshold. The rows below their threshold have e-value zero. The thresholds must
    not depend on which mixture rows are calibration rows. No x and no common weight is needed.
    E-values from several sets of thresholds may be averaged with fixed weights.

    Parameters
    ----------
    blocks : sequence of PooledBlock
        One per agent, with the threshold in place of the floor: counts are zero below it.

    Returns
    -------
    Fraction
        Zero if no agent with tests has a row at or above its threshold.

    Examples
    --------
    >>> fixed_threshold_evidence([PooledBlock(4, 40, [3], [1]), PooledBlock(6, 30, [2], [2])])
    Fraction(100, 7)
    """
    check_blocks(blocks)
    m = sum(block.n_test for block in blocks)
    weights = []
    for place, block in enumerate(blocks):
        if block.takes_part and block.n_calibration == 0:
            raise SampleError(
                f"block {place} has tests above its threshold and no calibration rows: set its"
                " counts to zero, or give it known normals"
            )
        weights.append(
            Fraction(block.n_test, block.n_calibration) if block.takes_part else Fraction(0)
        )
    known = [sum(block.calibration_counts) for block in blocks]
    total = max(weights) + sum(w * n for w, n in zip(weights, known, strict=True))
    return m / total if total else Fraction(0)


def most_above(n_calibration: int, x: Fraction) -> int:
    """Return the largest number of mixture rows that may be above a floor, floor(x(ℓ + 1))."""
    return x.numerator * (n_calibration + 1) // x.denominator


def _as_counts(counts: Any, name: str) -> tuple[int, ...]:
    array = as_array(counts, name)
    if array.ndim != 1 or array.size == 0:
        raise SampleError(f"{name} must be one count for each cell, not shape {array.shape}")
    if array.dtype.kind not in "iu" or array.min() < 0:
        raise InputError(f"{name} must be whole numbers from 0 on, one for each cell")
    return tuple(array.tolist())


def check_blocks(blocks: Sequence[PooledBlock]) -> None:
    """Refuse blocks on different cells, and blocks without any test."""
    if not blocks or not all(isinstance(block, PooledBlock) for block in blocks):
        raise InputError("blocks must be a list of PooledBlock, one for each agent")
    cells = {len(block.test_counts) for block in blocks}
    if len(cells) > 1:
        raise SampleError(f"all blocks must have the same cells, not {sorted(cells)} cells")
    if not any(block.n_test for block in blocks):
        raise SampleError("there is nothing to test: every block is empty")
