"""Several learners that refine together, joined by what each of them is worth.

A linear model finds novelties that lie to one side of the normals, trees those that lie
around them, and which of these a site will meet is not known. So both are refined from the
same first scorers (:mod:`conovel.scorers.refined`), and a logistic regression on what they say
out of
fold learns how much to believe of each. It has a handful of features, so that a handful of
likely novelties is enough; and it is one more fixed function of
(row, null_train, mixture as a multiset).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

from conovel.errors import InputError, ScorerError
from conovel.scorers.base import FittedScorer, Matrix, Mixture, Scorer, Vector, log_odds
from conovel.scorers.refined import Stage, Task, as_list, refine_each

_REFITS = 2  # of the regression


class Blend(BaseEstimator):  # type: ignore[misc]
    """Refinements of the same first scorers, and a regression on what they say.

    Parameters
    ----------
    first : classifier, OneClass, Refined, Blend, or list of these
        What finds the first likely novelties, as for :class:`~conovel.scorers.refined.Refined`.
        The
        last of them is heard by the regression, too.
    members : list of classifiers
        What is refined.
    n_refits : tuple of int
        How often each member is refitted.
    n_folds : int
        Folds of the cross-fit; linear models take four times as many.
    lead : float
        How much more readily the first member is believed than the others: their coefficients
        are shrunk as if they varied so much less.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import ExtraTreesClassifier
    >>> from sklearn.linear_model import LogisticRegression
    >>> import conovel as cn
    >>> rng = np.random.default_rng(0)
    >>> X_null, X_test = rng.normal(size=(900, 9)), rng.normal(size=(300, 9))
    >>> X_test[270:] *= 3  # on all sides: little for a linear model
    >>> trees, linear = ExtraTreesClassifier(40, max_depth=8), LogisticRegression(C=0.03)
    >>> for scorer in (cn.Refined(trees, linear), cn.Blend(trees, [linear, trees])):
    ...     result = cn.AdaDetect(scorer).detect(X_null, X_test)
    ...     print(int(result.rejected[270:].sum()), "of 30")
    8 of 30
    26 of 30
    """

    def __init__(
        self,
        first: Scorer | list[Scorer],
        members: list[Scorer],
        n_refits: tuple[int, ...] = (),
        n_folds: int = 5,
        lead: float = 1.0,
    ) -> None:
        self.first = first
        self.members = members
        self.n_refits = n_refits
        self.n_folds = n_folds
        self.lead = lead

    @property
    def label(self) -> str:
        """The scorer in a word."""
        return "blend"

    def stage(self, task: Task) -> Stage:
        """Refine the members, then learn what each is worth."""
        if not isinstance(self.lead, Real) or not 0 < self.lead < np.inf:
            raise InputError(f"lead must be a positive number, not {self.lead!r}")
        if not isinstance(self.members, list | tuple) or not self.members:
            raise ScorerError(f"members must be a list of classifiers, not {self.members!r}")
        starts = tuple(task.start(first) for first in as_list(self.first))
        n_refits = self.n_refits
        if isinstance(n_refits, tuple) and not n_refits:
            n_refits = (1,) * len(self.members)
        if not isinstance(n_refits, list | tuple) or len(n_refits) != len(self.members):
            raise InputError(
                f"n_refits must be a tuple of {len(self.members)}, one for each member, not"
                f" {self.n_refits!r}"
            )
        members = [
            task.refine(starts, member, n)
            for member, n in zip(self.members, n_refits, strict=True)
        ]
        parts = (*members, starts[-1])
        said = np.column_stack([_said(part, task.scores(part)) for part in parts])
        weights = task.mean_weights(starts)
        spread = said[weights > 0].std(axis=0)
        scale = 1 / np.where(spread > 0, spread, 1)
        scale[1:] /= self.lead
        opinions = replace(task, rows=said * scale, kept={})
        worth = opinions.refit(LogisticRegression(max_iter=1000), weights, _REFITS)
        if worth is None:
            return parts[0]
        return Joined(self, worth.weights, worth.models, parts, scale)

    def fit_on(self, null_train: Matrix, mixture: Mixture) -> FittedScorer:
        """Fit on these rows."""
        return refine_each([self], null_train, mixture)[0]


@dataclass(frozen=True, eq=False)
class Joined(Stage):
    """A cross-fit of the regression, and what it listens to."""

    parts: tuple[Stage, ...]
    scale: Vector  # of what they say

    @property
    def whole(self) -> bool:
        """The regression alone scores nothing."""
        return False

    def in_folds(self, X: Matrix, folds: NDArray[np.int64]) -> Vector:
        """Score each row by the regression of its fold, on what the others of its fold say."""
        said = [_said(part, part.in_folds(X, folds)) for part in self.parts]
        return super().in_folds(np.column_stack(said) * self.scale, folds)


def _said(part: Stage, scores: Vector) -> Vector:
    """Bring scores to the scale of log-odds, where opinions add up."""
    return log_odds(scores) if part.models[0].scale == "probability" else scores
