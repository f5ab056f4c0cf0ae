"""Scores of rows apart from their batch: a kept detector in scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from conovel.runs.kept import KeptDetector
from conovel.runs.kept_fit import keep, learns_from_normals
from conovel.scorers.automatic import as_candidates
from conovel.stats.levels import as_callback
from conovel.stats.resolution import rank_limit


class RowScores:
    """What :class:`conovel.AdaDetect` does with a score that is fitted once."""

    # What AdaDetect has.
    scorer: Any
    schema: Any
    settings: Callable[[], Any]
    read_fitted: Callable[[Any], Any]
    null_: Any
    _unlabelled: Any

    def keep(
        self,
        X_null: Any,
        X_unlabelled: Any | None = None,
        *,
        explain: bool = False,
        on_stage: Callable[[str], None] | None = None,
    ) -> KeptDetector:
        """Fit a detector once, to be saved and used on batches that come later.

        Parameters
        ----------
        X_null : array or frame of shape (n, d)
            Known normals. Some train, the others calibrate.
        X_unlabelled : array or frame of shape (u, d), optional
            Rows like those that will be tested, novelties among them, but never tested
            themselves: those of last week, say. The score learns to tell them from known
            normals. Without them it learns from known normals alone, and usually finds less.
        explain : bool
            Whether up to 2,000 of the known normals that trained are kept, too, by which
            ``result.explain()`` explains flagged rows. The file then holds rows.
        on_stage : callable, optional
            Told the name of each stage as it begins.
        """
        tell = as_callback(on_stage, "on_stage")
        return keep(self.settings(), X_null, X_unlabelled, self.schema, tell, explain=explain)

    def _can_score(self) -> bool:
        """Tell whether there is a score of a row apart from its batch."""
        has_rows = self.__dict__.get("_unlabelled") is not None
        return has_rows or learns_from_normals(as_candidates(self.scorer, 0))

    @available_if(_can_score)  # type: ignore[untyped-decorator]
    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Score rows by a kept detector; lower is more novel, as in scikit-learn.

        The detector is fitted once, from the rows that `fit` was given; see :meth:`keep`. The
        score of a row does not depend on the other rows, and decides nothing.

        Parameters
        ----------
        X : array or frame of shape (m, d)

        Returns
        -------
        float array of shape (m,)
        """
        rows = self.read_fitted(X)
        return -self._kept().score(rows)

    @available_if(_can_score)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score rows by a kept detector, below zero for rows with a p-value of at most `level`.

        One row in 1/`level` known normals is below zero. :meth:`predict` decides about a batch as
        a whole, so its answers differ.

        Parameters
        ----------
        X : array or frame of shape (m, d)

        Returns
        -------
        float array of shape (m,)
        """
        rows = self.read_fitted(X)
        kept = self._kept()
        scores = kept.score(rows)
        limit = rank_limit(kept.level, 1, kept.n_calibration)  # p ≤ α iff rank ≤ limit
        if not limit:
            return np.full(len(scores), np.inf)
        return np.asarray(kept.calibration_scores[-limit] - scores)

    def _kept(self) -> KeptDetector:
        if not hasattr(self, "kept_"):
            self.kept_ = self.keep(self.null_, self._unlabelled)
        return self.kept_
