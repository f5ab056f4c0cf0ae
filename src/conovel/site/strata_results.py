"""What became of each stratum of a site."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.rows.strata import NO_STRATUM
from conovel.site.strata import PlannedStrata
from conovel.stats.resolution import Resolution


@dataclass(frozen=True, eq=False)
class StrataResult:
    """What became of each stratum of a site: the part of a result that strata add.

    Attributes
    ----------
    columns : tuple of str
        The columns whose values make strata.
    labels : tuple of str
        One for each stratum.
    codes : int array of shape (m,)
        The stratum of each test row; -1 where it is in none.
    n_train, n_calibration, n_test : int arrays, one number for each stratum
    tested : bool array
        Which strata are tested.
    """

    columns: tuple[str, ...]
    labels: tuple[str, ...]
    codes: NDArray[np.int16]
    n_train: NDArray[np.int64]
    n_calibration: NDArray[np.int64]
    n_test: NDArray[np.int64]
    tested: NDArray[np.bool_]

    @classmethod
    def of(cls, own: PlannedStrata, weight: Fraction = Fraction(0)) -> StrataResult:
        """Count the rows of each stratum."""
        strata, plan = own.strata, own.plan(weight)
        return cls(
            strata.columns,
            strata.labels,
            strata.test,
            np.array([one.n_train for one in plan], dtype=np.int64),
            np.array([one.n_calibration for one in plan], dtype=np.int64),
            np.array([size.n_test for size in own.sizes], dtype=np.int64),
            np.array([one.is_tested for one in plan], dtype=np.bool_),
        )

    @property
    def n_calibration_of_rows(self) -> NDArray[np.int64]:
        """How many calibration rows each test row is ranked among."""
        return np.append(self.n_calibration, 0)[self.codes]

    @property
    def label_of_rows(self) -> NDArray[np.object_]:
        """The name of each test row's stratum."""
        return np.array([*self.labels, "(none)"], dtype=object)[self.codes]

    @property
    def name(self) -> str:
        """The columns in words."""
        return ", ".join(self.columns)

    def resolution(self, level: Fraction) -> Resolution:
        """How few rows could have been rejected together: w <= α k at best."""
        sizes = list(zip(self.n_test.tolist(), self.n_calibration.tolist(), strict=True))
        w = max((Fraction(m, n + 1) for m, n in sizes if n), default=Fraction(0))
        n_tests, fewest = sum(m for m, n in sizes if n), math.ceil(w / level)
        rows = max(math.ceil(n_tests / level) - 1, 0)
        return Resolution(max(fewest, 1), math.ceil(1 / level) - 1, rows)

    def n_rejected(self, rejected: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count the rejected rows of each stratum."""
        return np.bincount(self.codes[rejected], minlength=len(self.labels))

    def table(self, n_rejected: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Give one entry for each stratum, by column."""
        return {
            "stratum": np.array(self.labels, dtype=object),
            "n_train": self.n_train,
            "n_calibration": self.n_calibration,
            "n_test": self.n_test,
            "tested": self.tested,
            "n_rejected": n_rejected,
        }

    def to_dict(self, n_rejected: NDArray[np.int64]) -> dict[str, Any]:
        """Give it as JSON types, without the rows."""
        columns = {name: values.tolist() for name, values in self.table(n_rejected).items()}
        rows = [
            dict(zip(columns, one, strict=True)) for one in zip(*columns.values(), strict=True)
        ]
        n_none = int(np.count_nonzero(self.codes == NO_STRATUM))
        return {"columns": list(self.columns), "strata": rows, "n_in_no_stratum": n_none}
