"""The strata of a kept detector, and those of the batches that it tests.

Its score is fixed. How many rows of each stratum a batch has decides which strata are tested, and
which calibration rows are used; cells follow from the scores of both kinds of rows together
(docs/theory.md#thm-strata).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from conovel.errors import SavedFileError
from conovel.rows.strata import MOST_STRATA, find_strata, places_of
from conovel.rows.tables import Rows
from conovel.scorers.base import Matrix, Vector
from conovel.site.common_scale import scale_of
from conovel.site.strata import SiteStrata, StrataRows, StrataScale, StrataSplit
from conovel.spec.run_spec import RunSpec
from conovel.spec.strata import StratumPlan, plan_batch
from conovel.stats.resolution import rank_limit


@dataclass(frozen=True, eq=False)
class KeptStrata:
    """The strata of the known normals of a kept detector."""

    columns: tuple[str, ...]
    n_train: int
    keys: Matrix  # of shape (k, p); the features that make each stratum
    # Of shape (n,): the rows that train, then the calibration rows in an order that does not
    # depend on their values
    scores: Vector
    codes: NDArray[np.int32]  # the stratum of each, by its place in `keys`

    def check(self, empty: Rows) -> None:
        """Refuse what no fit makes; `empty` has the columns of the detector."""
        k, n = len(self.keys), self.scores.size
        shapes = (k, len(places_of(empty, self.columns))), (n,), (n,)
        fits = (self.keys.shape, self.scores.shape, self.codes.shape) == shapes
        fits = fits and 0 < k <= MOST_STRATA and len(np.unique(self.keys, axis=0)) == k
        if not fits or not 0 < self.n_train < n or self.codes.min() < 0 or self.codes.max() >= k:
            raise SavedFileError("its strata contradict each other")

    def margins(self, rows: Rows, scores: Vector, level: Fraction) -> Vector:
        """Give a number below zero where the p-value within the stratum is at most the level."""
        strata, margins = self.in_batch(rows, level).strata, np.full(len(rows), np.inf)
        for s in range(len(strata.labels)):
            own = np.sort(self.scores[self.n_train :][strata.null[self.n_train :] == s])
            if limit := rank_limit(level, 1, own.size):
                margins[strata.test == s] = own[-limit] - scores[strata.test == s]
        return margins

    def in_batch(self, rows: Rows, level: Fraction) -> BatchStrata:
        """Find the strata of a batch, and say which of them are tested."""
        of_keys = np.zeros((len(self.keys), rows.width))
        of_keys[:, places_of(rows, self.columns)] = self.keys
        strata = find_strata(replace(rows, values=of_keys), rows, self.columns)
        strata = replace(strata, null=strata.null[self.codes])
        spec = RunSpec.of(regime="joint", level=level, strata=self.columns)
        return BatchStrata(strata, spec, 1, self.n_train, self)


@dataclass(frozen=True, eq=False)
class BatchStrata(SiteStrata):
    """The strata of a batch that a kept detector tests, and of the detector's known normals."""

    kept: KeptStrata

    def plan(self, weight: Fraction = Fraction(0)) -> list[StratumPlan]:
        """Say how many rows of each stratum calibrate; which ones train was decided before."""
        trained = self.strata.null[: self.kept.n_train]
        trains = [int((trained == s).sum()) for s in range(len(self.strata.labels))]
        return plan_batch(self.sizes, trains, self.spec.level)

    def ordered(self, places: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
        """Leave known normals as they are kept: those that train come first."""
        return places

    def scale(self, split: StrataSplit, rows: StrataRows, tests: Vector) -> StrataScale:
        """Learn the cells of each stratum from the scores of its mixture and of its normals.

        Proof: Theorem 22 (docs/theory.md#thm-strata), Theorem 10 (docs/theory.md#thm-joint).
        """
        scores, scales = self.kept.scores, {}
        calibration, normals = scores[split.calibration], scores[split.train]
        for s in rows.tested:
            own = calibration[rows.calibration == s], tests[rows.tests == s]
            here = self.strata.null[split.train] == s
            scales[s] = scale_of(np.concatenate(own), normals[here] if here.any() else normals)
        return StrataScale(scales, rows)
