"""The rows of one agent in cells, stratum by stratum: each stratum has a floor of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from conovel.stats.cells import CellHistogram

# The cell of a row below the floor of its stratum, or that is not tested: below all cells.
NO_CELL = -1


@dataclass(frozen=True, eq=False)
class StrataHistogram(CellHistogram):
    """Rows in each cell, of all strata together, and of each stratum by itself.

    All strata have tests.
    """

    strata: tuple[CellHistogram, ...] = ()

    @classmethod
    def together(cls, strata: Sequence[CellHistogram]) -> StrataHistogram:
        """Add up the rows of all strata; there is at least one."""
        calibration = sum((one.calibration for one in strata[1:]), strata[0].calibration)
        tests = sum((one.tests for one in strata[1:]), strata[0].tests)
        return cls(calibration, tests, 0, tuple(strata))

    @property
    def n_likely(self) -> int:
        """The likely novelties of all strata, by the cells of each."""
        return sum(one.n_likely for one in self.strata)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Tests, calibration rows and likely novelties of each stratum, one after the other."""
        return tuple(n for one in self.strata for n in (one.size, one.n_calibration, one.n_likely))

    def floors(self, room: Fraction) -> tuple[int, ...]:
        """Return the floor of each stratum, from its rows of both kinds together.

        Proof: Theorem 22 (docs/theory.md#thm-strata), Theorem 10 (docs/theory.md#thm-joint).
        """
        return tuple(one.floor(room) for one in self.strata)

    def above_floors(self, floors: Sequence[int]) -> CellHistogram:
        """Add up the rows of all strata that are above the floor of their stratum.

        Proof: Theorem 22 (docs/theory.md#thm-strata), Corollary 5
        (docs/theory.md#cor-joint-totals).
        """
        above = [one.above(floor) for one, floor in zip(self.strata, floors, strict=True)]
        total = StrataHistogram.together(above)
        return CellHistogram(total.calibration, total.tests)
