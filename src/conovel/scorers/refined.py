"""Self-training: find the likely novelties out of fold, then learn from those alone.

Plain PU training is starved: most of the mixture is normal, and a novelty is one row among
many that carry the same label. Refining takes three steps, each a fixed function of
(row, null_train, mixture as a multiset) and so as valid as a single fit (docs/theory.md):

1. cross-fit one or several first scorers, with folds by a hash of the row's content, so that
   every row is scored by a model that never saw it, and equal rows share their fold;
2. weigh: rank the mixture among null_train, both out of fold. One minus the BH-adjusted
   p-value estimates how much of the mixture from a row upwards is novel. Which mixture rows
   are calibration rows is not looked at: here null_train plays calibration;
3. refit null_train against the mixture rows of large weight, cross-fitted again; repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

from conovel.errors import ScorerError
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Mixture,
    OneClass,
    Scorer,
    Vector,
    as_probability,
    mean_of,
    name_of,
    require_probabilities,
)
from conovel.scorers.discriminant import Discriminant
from conovel.scorers.hashing import content_folds
from conovel.stats.arguments import as_whole
from conovel.stats.ranks import conformal_ranks
from conovel.stats.stepup import adjusted_pvalues

# Rows count as likely novelties while at most so much of what lies above them is expected to
# be normal; the first of these shares that gives enough rows is taken.
_SHARES = (0.2, 0.35, 0.5, 0.7, 0.9)
_ENOUGH = 5
# Linear models cost next to nothing. In four times as many folds each of them learns from
# more of the novelties, which may be a dozen.
_LINEAR = LogisticRegression, Discriminant
_FINER = 4
_MOST = 100  # folds, or refits: more only take longer


class Refined(BaseEstimator):  # type: ignore[misc]
    """A scorer that refines a first fit, or several, by weighted refits.

    Parameters
    ----------
    first : classifier, OneClass, Refined, Blend, or list of these
        What finds the first likely novelties: a classifier tells null_train from the mixture
        and needs ``predict_proba``, a one-class model sees null_train alone. Of several, the
        weights are averaged.
    second : classifier or None
        Tells null_train from the likely novelties; None takes `first` again.
    n_folds : int
        Folds of the cross-fit; linear models take four times as many.
    n_refits : int
        How often to weigh and refit. Refining stops early where nothing stands out.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import ExtraTreesClassifier
    >>> from sklearn.linear_model import LogisticRegression
    >>> import conovel as cn
    >>> rng = np.random.default_rng(0)
    >>> X_null, X_test = rng.normal(size=(900, 9)), rng.normal(size=(300, 9))
    >>> X_test[270:] += 1.5
    >>> plain = ExtraTreesClassifier(100, max_depth=8, min_samples_leaf=2)
    >>> refined = Refined(plain, LogisticRegression(C=0.03))
    >>> for scorer in (plain, refined):
    ...     result = cn.AdaDetect(scorer, train_fraction=0.5).detect(X_null, X_test)
    ...     print(int(result.rejected[270:].sum()), "of 30")
    27 of 30
    30 of 30
    """

    def __init__(
        self,
        first: Scorer | list[Scorer],
        second: Scorer | None = None,
        n_folds: int = 5,
        n_refits: int = 3,
    ) -> None:
        self.first = first
        self.second = second
        self.n_folds = n_folds
        self.n_refits = n_refits

    @property
    def firsts(self) -> list[Scorer]:
        """The first scorers."""
        return as_list(self.first)

    @property
    def learner(self) -> Scorer:
        """What is refitted."""
        return self.firsts[0] if self.second is None else self.second

    @property
    def label(self) -> str:
        """The scorer in a few words."""
        return f"refined {name_of(self.learner)}"

    def stage(self, task: Task) -> Stage:
        """Refine; the first start stands where nothing stands out."""
        starts = tuple(task.start(first) for first in self.firsts)
        return task.refine(starts, self.learner, self.n_refits)

    def fit_on(self, null_train: Matrix, mixture: Mixture) -> FittedScorer:
        """Refine on these rows; what is fitted on all rows at the end is sent to peers."""
        return refine_each([self], null_train, mixture)[0]


class Staged(Protocol):
    """A scorer that is fitted in stages on the folds of a task."""

    n_folds: int

    def stage(self, task: Task) -> Stage:
        """Return the last stage."""


def refine_each(
    scorers: Sequence[Staged], null_train: Matrix, mixture: Mixture, *, send: bool = True
) -> list[FittedScorer]:
    """Fit several scorers that share their folds; stages they have in common, only once.

    Parameters
    ----------
    scorers : sequence of Refined or Blend
    null_train : array of shape (k, d)
    mixture : Mixture
    send : bool
        Whether peers may get the models, which then are fitted once more on all rows.
    """
    n_folds = as_whole(scorers[0].n_folds, "n_folds", 2, _MOST)
    task = Task.of(null_train, mixture, n_folds)
    return [task.finish(scorer, scorer.stage(task), send) for scorer in scorers]


@dataclass(frozen=True, eq=False)
class Stage:
    """A cross-fit: what was fitted, with which weights, and one model for each fold."""

    learner: Scorer
    weights: Vector  # of null_train and the mixture; rows of weight 0 are left out
    models: tuple[FittedScorer, ...]  # only one: too few rows for folds

    @property
    def whole(self) -> bool:
        """Whether one fit on all rows with these weights stands for the stage."""
        return True

    def score(self, X: Matrix) -> Vector:
        """Score each row by the model that did not see rows of its content."""
        return self.in_folds(X, content_folds(X, len(self.models)))

    def in_folds(self, X: Matrix, folds: NDArray[np.int64]) -> Vector:
        """Score each row by the model of its fold."""
        scores = np.empty(len(X))
        for fold, model in enumerate(self.models):
            members = folds % len(self.models) == fold
            if members.any():
                scores[members] = model.score(X[members])
        return scores


@dataclass(frozen=True, eq=False)
class Task:
    """null_train and the mixture in one matrix, with their folds.

    What was fitted once is kept for those that ask again.
    """

    rows: Matrix
    n_train: int
    folds: NDArray[np.int64]  # of linear models; what is fitted in fewer takes the remainder
    n_folds: int
    kept: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, null_train: Matrix, mixture: Mixture, n_folds: int) -> Task:
        """Put the rows together and assign them to folds."""
        rows = np.concatenate([null_train, mixture.rows])
        return cls(rows, len(null_train), content_folds(rows, _FINER * n_folds), n_folds)

    def once(self, make: Callable[..., Any], *key: Any) -> Any:
        """Make something, or return what was made of the same before."""
        known = make.__name__, *key
        if known not in self.kept:
            self.kept[known] = make(*key)
        return self.kept[known]

    def start(self, first: Scorer) -> Stage:
        """Cross-fit a first scorer on all rows."""
        if not isinstance(first, OneClass) and not hasattr(first, "stage"):
            require_probabilities(first)
        return self.once(self._start, first)  # type: ignore[no-any-return]

    def _start(self, first: Scorer) -> Stage:
        if hasattr(first, "stage"):
            return first.stage(self)  # type: ignore[no-any-return]
        weights = np.ones(len(self.rows))
        return self.cross_fit(first, weights) or Stage(first, weights, (self.fit(first, weights),))

    def refine(self, starts: tuple[Stage, ...], learner: Scorer, n_refits: int) -> Stage:
        """Weigh and refit; the first start stands where nothing stands out."""
        if as_whole(n_refits, "n_refits", most=_MOST):
            require_probabilities(learner)
        return self.once(self._refine, starts, learner, n_refits)  # type: ignore[no-any-return]

    def _refine(self, starts: tuple[Stage, ...], learner: Scorer, n_refits: int) -> Stage:
        if not n_refits or len(starts[0].models) == 1:
            return starts[0]
        return self.refit(learner, self.mean_weights(starts), n_refits) or starts[0]

    def refit(self, learner: Scorer, weights: Vector, n_refits: int) -> Stage | None:
        """Fit with these weights, then with those it finds itself; nothing where none fits."""
        stage = None
        for _ in range(n_refits):
            fitted = self.cross_fit(learner, weights if stage is None else self.weights(stage))
            if fitted is None:
                break
            stage = fitted
        return stage

    def cross_fit(self, learner: Scorer, weights: Vector) -> Stage | None:
        """Fit once for each fold left out; nothing where a fit would lack a class."""
        n_folds = self.n_folds * (_FINER if isinstance(_last_step(learner), _LINEAR) else 1)
        keep = [(self.folds % n_folds != fold) & (weights > 0) for fold in range(n_folds)]
        is_null = np.arange(len(self.rows)) < self.n_train
        if any(min((k & is_null).sum(), (k & ~is_null).sum()) < 2 for k in keep):
            return None
        return Stage(
            learner, weights, tuple(self.fit(learner, np.where(k, weights, 0)) for k in keep)
        )

    def fit(self, learner: Scorer, weights: Vector) -> FittedScorer:
        """Fit null_train (0) against the mixture (1), rows of no weight left out."""
        used = np.flatnonzero(weights > 0)
        is_null = used < self.n_train
        if isinstance(learner, OneClass):
            return learner.fit_nulls(self.rows[used[is_null]])
        labels = (~is_null).astype(int)
        model = fit_weighted(learner, self.rows[used], labels, weights[used])
        return FittedScorer(model, learner, as_probability, "probability")

    def scores(self, stage: Stage) -> Vector:
        """Score all rows, each by the model of its fold."""
        return self.once(self._scores, stage)  # type: ignore[no-any-return]

    def _scores(self, stage: Stage) -> Vector:
        return stage.in_folds(self.rows, self.folds)

    def mean_weights(self, stages: Sequence[Stage]) -> Vector:
        """Average what several stages find."""
        return mean_of([self.weights(stage) for stage in stages])

    def weights(self, stage: Stage) -> Vector:
        """Weigh the mixture by how likely its rows are novel; null_train keeps weight 1."""
        scores = self.scores(stage)
        ranks = conformal_ranks(scores[: self.n_train], scores[self.n_train :])
        share = adjusted_pvalues(ranks, self.n_train)
        enough = [cut for cut in _SHARES if np.count_nonzero(share <= cut) >= _ENOUGH]
        likely = np.where(share <= enough[0], 1 - share, 0) if enough else np.zeros(share.size)
        return np.concatenate([np.ones(self.n_train), likely])

    def finish(self, scorer: Staged, stage: Stage, send: bool) -> FittedScorer:
        """Score by the cross-fit; what peers get is fitted once on all rows."""
        send = send and stage.whole
        whole = self.fit(stage.learner, stage.weights).estimator if send else None
        read: Callable[[Any, Matrix], Vector] = lambda _, X: stage.score(X)  # noqa: E731
        weights = stage.weights[self.n_train :]
        return FittedScorer(whole, scorer, read, stage.models[0].scale, weights, sendable=send)


def linear(C: float = 0.03) -> Any:
    """Logistic regression on standardised features, shrunk for a handful of novelties."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))


def as_list(first: Scorer | list[Scorer]) -> list[Scorer]:
    """Return the first scorers, also where there is only one."""
    if isinstance(first, list | tuple) and not first:
        raise ScorerError("first is an empty list: name at least one scorer")
    return list(first) if isinstance(first, list | tuple) else [first]


def fit_weighted(model: Scorer, X: Matrix, y: NDArray[np.int64], weights: Vector) -> Any:
    """Fit a clone with sample weights, also in a pipeline; without where there are none.

    Histogram boosting goes without: its bins would become weighted quantiles, which take
    twenty times as long as the whole fit.
    """
    model = clone(model)
    last = _last_step(model)
    prefix = "" if last is model else f"{model.steps[-1][0]}__"
    weighted = has_fit_parameter(last, "sample_weight") and (weights != 1).any()
    if weighted and not isinstance(last, HistGradientBoostingClassifier):
        return model.fit(X, y, **{f"{prefix}sample_weight": weights})
    return model.fit(X, y)


def _last_step(model: Scorer) -> Any:
    """Return what learns at the end of a pipeline, or the model itself."""
    steps = getattr(model, "steps", None)
    return steps[-1][1] if steps else model
