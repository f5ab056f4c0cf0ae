"""Estimators of the proportion of nulls, from counts alone (Marandon et al. 2024).

BH at level α has a false discovery rate of π0·α. Replacing the number of tests m by an
estimate of the number of nulls raises it towards α, and the power with it. Both estimators
need only counts of p-values below a point, so a network can use them too. An estimate may
exceed m. It is not capped at m, because the proofs (docs/theory.md) do not cover that.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from conovel.errors import InputError, SampleError
from conovel.stats.levels import Level, as_level
from conovel.stats.words import briefly

CountsBelow = Callable[[Fraction], Sequence[int]]  # counts of p-values below a point, per block


@dataclass(frozen=True)
class NullProportion(ABC):
    """An estimator of the number of nulls that is nondecreasing in every p-value."""

    # The point where p-values are counted, strictly between 0 and 1; see the subclasses
    at: Level = Fraction(1, 2)
    proven_for_several: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", as_level(self.at, f"{type(self).__name__}(at=...)"))

    @abstractmethod
    def null_count(self, below: CountsBelow, n_calibration: Sequence[int], m: int) -> Fraction:
        """Estimate the number of nulls among m tests from counts of small p-values."""


@dataclass(frozen=True)
class Storey(NullProportion):
    """Storey's estimator: (1 + #{p >= λ}) / (1 - λ), with λ = `at` on each agent's own grid.

    Agents of different ℓ have different grids: λ is rounded up to each, and the largest of
    the rounded values is used in the denominator. Proven for one site and for several.

    Examples
    --------
    >>> Storey(0.5)
    Storey(at=Fraction(1, 2))
    """

    proven_for_several: ClassVar[bool] = True

    def null_count(self, below: CountsBelow, n_calibration: Sequence[int], m: int) -> Fraction:
        """Estimate the number of nulls; one round of counts.

        Proof: Theorem 6 (docs/theory.md#thm-storey).
        """
        lam = as_level(self.at)
        on_grid = max(Fraction(math.ceil(lam * (size + 1)), size + 1) for size in n_calibration)
        if on_grid == 1:
            raise SampleError(
                f"Storey at {lam} needs at least {math.ceil(1 / (1 - lam)) - 1} calibration rows"
                f" at every site, and one has {min(n_calibration)}: add known normals or lower"
                f" {lam}"
            )
        return (1 + m - sum(below(lam))) / (1 - on_grid)


@dataclass(frozen=True)
class Quantile(NullProportion):
    """The quantile estimator: (m - k0 + 1) / (1 - p_(k0)), with k0 = ceil(at · m).

    p_(k0) is found by bisection on the finest grid, with one round of counts for each step.
    Proven for one site.

    Examples
    --------
    >>> Quantile("1/2")
    Quantile(at=Fraction(1, 2))
    """

    def null_count(self, below: CountsBelow, n_calibration: Sequence[int], m: int) -> Fraction:
        """Estimate the number of nulls; log2(ℓ) rounds of counts.

        Proof: Theorem 7 (docs/theory.md#thm-quantile).
        """
        k0 = math.ceil(as_level(self.at) * m)
        grid = max(n_calibration) + 1
        # Smallest j with k0 p-values below j/grid; all of them lie below (grid + 1)/grid.
        low, high = 1, grid + 1
        while low < high:
            middle = (low + high) // 2
            if sum(below(Fraction(middle, grid))) >= k0:
                high = middle
            else:
                low = middle + 1
        # The largest p-value of any agent's grid below that point bounds p_(k0).
        point = Fraction(low, grid)
        kth = max(Fraction(math.ceil(point * (size + 1)) - 1, size + 1) for size in n_calibration)
        if kth >= 1:
            raise SampleError(
                f"the {k0}-th smallest p-value is 1, so Quantile at {self.at} cannot"
                " estimate the nulls: lower it, or use Storey"
            )
        return (m - k0 + 1) / (1 - kth)


def as_estimator(pi0: str | NullProportion | None) -> NullProportion | None:
    """Read ``None``, ``"storey"``, ``"quantile:0.4"`` or an estimator."""
    if pi0 is None or isinstance(pi0, NullProportion):
        return pi0
    kinds = {"storey": Storey, "quantile": Quantile}
    name, _, at = str(pi0).partition(":")
    if name not in kinds:
        raise InputError(f"pi0 must be None, 'storey' or 'quantile', not {briefly(pi0)}")
    return kinds[name](at) if at else kinds[name]()
