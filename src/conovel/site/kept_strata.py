"""The strata of a kept detector, and those of the batches that it tests.

Its score is fixed. How many rows of each stratum a batch has decides which strata are tested, and
which calibration rows are used; cells follow from the scores of both kinds of rows together
(docs/theory.md#thm-strata).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.errors import SavedFileError
from conovel.rows.strata import MOST_STRATA, NO_STRATUM, find_strata, places_of
from conovel.rows.tables import Rows
from conovel.scorers.base import Matrix, Vector
from conovel.site.common_scale import scale_of
from conovel.site.strata import PlannedStrata, StrataRows, StrataScale
from conovel.spec.grouping import Planned
from conovel.spec.strata import StratumPlan, plan_batch
from conovel.spec.training import Numbers
from conovel.stats.resolution import rank_limit


@dataclass(frozen=True, eq=False)
class KeptStrata:
    """The strata of a kept detector: of its calibration rows, and of the rows that trained it."""

    columns: tuple[str, ...]
    keys: Matrix  # of shape (k, p); the features that make each stratum
    # Calibration scores in an order that does not depend on them, and rows that trained, each with
    # its stratum
    scores: Vector
    calibration: NDArray[np.int32]
    train_scores: Vector
    train: NDArray[np.int32]

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """What a file holds besides the columns."""
        return self.keys, self.scores, self.calibration, self.train_scores, self.train

    def check(self, empty: Rows) -> None:
        """Refuse what no fit makes; `empty` has the columns of the detector."""
        k, width = len(self.keys), len(places_of(empty, self.columns))
        pairs = (self.scores, self.calibration), (self.train_scores, self.train)
        fits = self.keys.shape == (k, width) and 0 < k <= MOST_STRATA and self.train.size
        fits = fits and len(np.unique(self.keys, axis=0)) == k
        if not fits or not all(_are_pairs(*one, k) for one in pairs):
            raise SavedFileError("its strata contradict each other")

    def margins(self, rows: Rows, scores: Vector, level: Fraction) -> Vector:
        """Give a number below zero where the p-value within the stratum is at most the level."""
        strata, margins = self.in_batch(rows, level).strata, np.full(len(rows), np.inf)
        for s in range(len(strata.labels)):
            own = np.sort(self.scores[strata.null[self.calibration] == s])
            if limit := rank_limit(level, 1, own.size):
                here = strata.test == s
                margins[here] = own[-limit] - scores[here]
        return margins

    def in_batch(self, rows: Rows, level: Fraction) -> BatchStrata:
        """Find the strata of a batch, and say which of them are tested."""
        known = np.zeros((len(self.keys), rows.width))
        known[:, list(places_of(rows, self.columns))] = self.keys
        strata = find_strata(replace(rows, values=known), rows, self.columns)
        return BatchStrata(strata, self, level)


def _are_pairs(scores: NDArray[Any], codes: NDArray[Any], k: int) -> bool:
    return (
        scores.ndim == 1
        and scores.shape == codes.shape
        and bool(((codes >= 0) & (codes < k)).all())
    )


@dataclass(frozen=True, eq=False)
class BatchStrata(PlannedStrata):
    """The strata of a batch that a kept detector tests; those of its keys are in `strata.null`."""

    kept: KeptStrata
    level: Fraction

    def _counts(self, codes: NDArray[np.int32]) -> list[int]:
        own = self.strata.null[codes]
        counts = np.bincount(own[own != NO_STRATUM], minlength=len(self.strata.labels))
        return [int(n) for n in counts]

    @cached_property
    def sizes(self) -> list[Numbers]:
        """Known normals and tests of each stratum."""
        both = zip(self._counts(self.kept.calibration), self.trains, strict=True)
        tests = (n for _, n in self.strata.sizes())
        return [Numbers(n + k, m) for (n, k), m in zip(both, tests, strict=True)]

    @cached_property
    def trains(self) -> list[int]:
        """Of each stratum, the rows that trained."""
        return self._counts(self.kept.train)

    def plan(self, weight: Fraction = Fraction(0)) -> list[StratumPlan]:
        """Say how many rows of each stratum calibrate."""
        del weight  # the site is in no network
        some = zip(self.sizes, self.trains, strict=True)
        plan = plan_batch([Planned(m, n - k) for (n, m), k in some], self.level)
        return [one._replace(n_train=k) for one, k in zip(plan, self.trains, strict=True)]

    def calibration(self) -> NDArray[np.intp]:
        """Return the places of the calibration rows that are used: the first ones of a stratum.

        Proof: Theorem 22 (docs/theory.md#thm-strata).
        """
        codes, plan = self.strata.null[self.kept.calibration], self.plan()
        used = [np.flatnonzero(codes == s)[: plan[s].n_calibration] for s in self.tested]
        return np.sort(np.concatenate(used))

    def scale(self, rows: StrataRows, calibration: Vector, tests: Vector) -> StrataScale:
        """Learn the cells of each stratum from the scores of its mixture and of its normals.

        Proof: Theorem 22 (docs/theory.md#thm-strata), Theorem 10 (docs/theory.md#thm-joint).
        """
        scales, trained = {}, self.strata.null[self.kept.train]
        for s in rows.tested:
            own = calibration[rows.calibration == s], tests[rows.tests == s]
            normals = self.kept.train_scores[trained == s]
            normals = normals if normals.size else self.kept.train_scores
            scales[s] = scale_of(np.concatenate(own), normals)
        return StrataScale(scales, rows)
