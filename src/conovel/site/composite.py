"""Composite scores: an agent's own model and the peers' surrogates, together.

Any combination that is fixed given the agents' training sets is valid (docs/theory.md), and so is
a choice between combinations that looks at nothing else. All scores are first brought to one
scale. Stacking learns again, with the scores of all models as further features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from conovel.models.linear import expit
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Mixture,
    Scale,
    ScoreModel,
    Scorer,
    Selection,
    TrainingSet,
    Vector,
    add_up,
    is_by_row,
    log_odds,
    mean_of,
)
from conovel.scorers.blend import Refined
from conovel.scorers.cross_fit import CrossFitScorer, ShrunkenLogistic
from conovel.scorers.estimators import OneClass
from conovel.scorers.selection import CAUTIOUS, HoldOut
from conovel.spec.settings import AUTO, STACKED

_COMBINE: Mapping[str, Callable[[Matrix], Vector]] = {
    "mean": mean_of,
    "local": lambda scores: scores[0],
    "min": lambda scores: scores.min(axis=0),
    "max": lambda scores: scores.max(axis=0),
}
_CHOICE = (STACKED, *_COMBINE)  # in order of preference
# Half of null_train is held out for a choice. With fewer rows, hardly any agent of the paper's
# design left the preferred composite, and trying them took two fifths of the time.
_CAN_CHOOSE = 60


@dataclass(frozen=True, eq=False)
class Composite:
    """The score that an agent ranks its rows by, and how its composite was chosen."""

    model: ScoreModel
    selection: Selection | None = None


@dataclass(frozen=True, eq=False)
class Combined:
    """The scores of all models as one number: their mean, largest or smallest, or the own one."""

    composite: str
    local: FittedScorer
    surrogates: tuple[ScoreModel, ...]
    null_train: Matrix
    scale: Scale = "probability"

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score in any batch."""
        return all(map(is_by_row, (self.local, *self.surrogates)))

    def score(self, rows: Matrix) -> Vector:
        """Score each row."""
        scores = all_scores(self.local, self.surrogates, self.null_train, rows)
        return _COMBINE[self.composite](scores)


def fit_composite(
    composite: str, local: FittedScorer, surrogates: Sequence[ScoreModel], training: TrainingSet
) -> Composite:
    """Fit what a composite needs.

    Proof: Lemma 6 (docs/theory.md#lem-exchangeable).
    """
    # A model that was trained elsewhere can neither be tried nor learn from further columns.
    is_fixed = composite in (AUTO, STACKED) and not local.scorer.learns
    if not surrogates or is_fixed:
        return Composite(local)
    selection = None
    if composite == AUTO and len(training.null_train) < _CAN_CHOOSE:
        composite = STACKED
    elif composite == AUTO:
        selection = choose_composite(local, surrogates, training)
        composite = selection.winner
    if composite == STACKED:
        return Composite(stack(local, surrogates, training), selection)
    model = Combined(composite, local, tuple(surrogates), training.null_train)
    return Composite(model, selection)


def all_scores(
    local: FittedScorer, surrogates: Sequence[ScoreModel], null_train: Matrix, rows: Matrix
) -> Matrix:
    """Score the rows by all models, the agent's own first."""
    own = as_probability(local, null_train, rows)
    return np.stack([own, *(model.score(rows) for model in surrogates)])


def choose_composite(
    local: FittedScorer, surrogates: Sequence[ScoreModel], training: TrainingSet
) -> Selection:
    """Choose a composite, or the local score alone; see `conovel.scorers.selection`."""
    hold_out = HoldOut.of(training)
    tried = local.scorer.fit(hold_out.training)
    null_train, mixture = hold_out.training.null_train, hold_out.training.mixture
    scores = all_scores(tried, surrogates, null_train, mixture.distinct)
    combined = [combine(scores)[mixture.position] for combine in _COMBINE.values()]
    stacked = mixture.score(stack(tried, surrogates, hold_out.training))
    # The stacked score has the others among its features, so it is preferred. And a hold-out is
    # unfair to it: it learns from half of null_train there, while the peers' models are whole.
    return hold_out.select(_CHOICE, [stacked, *combined], CAUTIOUS)


# Shares of the stacked score: what is learnt, the own score, the weighted mean of all models. An
# agent with few likely novelties has learnt little from them, so the models of others count more.
_WITH_FEW, _WITH_MANY = np.array([0.0, 0.0, 1.0]), np.array([0.5, 0.25, 0.25])
_MANY = 20  # likely novelties


@dataclass(frozen=True, eq=False)
class Widened:
    """Rows with the log-odds of the peers' models and of the own score as further columns."""

    local: FittedScorer
    surrogates: tuple[ScoreModel, ...]
    null_train: Matrix

    def __call__(self, rows: Matrix) -> Matrix:
        """Widen rows, the own score last."""
        scores = [model.score(rows) for model in self.surrogates]
        scores.append(as_probability(self.local, self.null_train, rows))
        return np.column_stack([rows, *(log_odds(one) for one in scores)])


@dataclass(frozen=True, eq=False)
class Learnt:
    """What was learnt from the wide rows, all columns or those up to `last`."""

    fitted: FittedScorer
    last: int | None

    def __call__(self, wide_rows: Matrix) -> Vector:
        """Score wide rows."""
        learnt = self.fitted.score(wide_rows[:, : self.last])
        # It is no probability where nothing stood out.
        if self.fitted.scale == "probability":
            return log_odds(learnt, closest=1e-6)
        return learnt


@dataclass(frozen=True, eq=False)
class Stacked:
    """The stacked score: what was learnt and the scores of all models, added by weight."""

    widen: Widened
    learnt: Learnt
    of_learnt: Vector  # one number
    of_models: Vector
    scale: Scale = "ordinal"

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score in any batch."""
        return all(map(is_by_row, (self.learnt.fitted, self.widen.local, *self.widen.surrogates)))

    def score(self, rows: Matrix) -> Vector:
        """Score each row."""
        wide_rows = self.widen(rows)
        parts = self.of_models[:, np.newaxis] * wide_rows[:, -self.of_models.size :].T
        return add_up([self.of_learnt * self.learnt(wide_rows), *parts])


def stack(
    local: FittedScorer, surrogates: Sequence[ScoreModel], training: TrainingSet
) -> ScoreModel:
    """Learn again, and add the own score and the scores of all models by weight.

    Three scores that each err in their own way are added: what is learnt from the features and
    the scores of the models, the own score, and the weighted mean of all models
    (:mod:`conovel.site.composite`).
    """
    widen = Widened(local, tuple(surrogates), training.null_train)
    wide = _widened(training, widen)
    n_models = len(surrogates) + 1
    learn = _learner(local, n_models, wide)
    normals, mixture = (rows[:, -n_models:].T for rows in (wide.null_train, wide.mixture.distinct))
    # A model that does not cross-fit has seen null_train: its scores there are too low.
    models = Standardised.of(normals if _cross_fits(local) else mixture, mixture)
    learnt = learn(wide.mixture.distinct)[np.newaxis]
    # Log-odds as they are: a model that tells no rows apart has a small spread and counts less.
    mean = mean_of(models.mixture * models.spread[:, np.newaxis])[np.newaxis]
    mean /= spread_of(mean)
    many = _are_many(mean[0])
    own_parts = many * learnt[0] / spread_of(learnt), many * models.mixture[-1]
    first = add_up([*own_parts, 2 * mean[0]])
    weights = model_weights(models, first)
    near = add_up(weights[:, np.newaxis] * models.mixture)[np.newaxis]
    many = _are_many(first)
    from_learnt, from_own, from_near = (1 - many) * _WITH_FEW + many * _WITH_MANY
    of_models = from_near / spread_of(near) * weights / models.spread
    of_models[-1] += from_own / models.spread[-1]
    return Stacked(widen, learn, from_learnt / spread_of(learnt), of_models)


def _are_many(first: Vector) -> float:
    """Say how far the likely novelties are from few (0) to many (1)."""
    return min(likely_novelties(first) / _MANY, 1.0)


def _cross_fits(local: FittedScorer) -> bool:
    return isinstance(local.scorer, CrossFitScorer)


def _learner(local: FittedScorer, n_models: int, wide: TrainingSet) -> Learnt:
    """Learn from rows that end with the scores of all models, the own score last.

    A plain scorer is fitted again as it is, without its own score, which has seen these rows.
    Where the local scorer cross-fits, a linear model is refined instead: what is not linear is in
    the own score already. It starts from where the own score and the mean of all models point.
    Where agents differ the mean points elsewhere, where they have few rows the own score does.
    """
    if isinstance(local.scorer, CrossFitScorer):
        firsts = [OneClass(MeanOfLast(n), "novel", "score_samples") for n in (1, n_models)]
        scorer: Scorer = Refined(firsts, ShrunkenLogistic(), local.scorer.n_folds, 1)
        last = None
    else:
        scorer, last = local.scorer, -1
    mixture = Mixture(wide.mixture.distinct[:, :last], wide.mixture.position)
    return Learnt(scorer.fit(TrainingSet(wide.null_train[:, :last], mixture)), last)


def _widened(training: TrainingSet, widen: Callable[[Matrix], Matrix]) -> TrainingSet:
    """Return the same rows with further columns; equal rows stay equal and keep their order."""
    mixture = training.mixture
    wide = Mixture(widen(mixture.distinct), mixture.position)
    return TrainingSet(widen(training.null_train), wide)


class MeanOfLast(BaseEstimator):  # type: ignore[misc]
    """The mean of the last columns, as a one-class model that learns nothing.

    Parameters
    ----------
    n_columns : int
    """

    by_row = True

    def __init__(self, n_columns: int) -> None:
        self.n_columns = n_columns

    def fit(self, X: Matrix, y: None = None) -> MeanOfLast:
        """Do nothing."""
        return self

    def score_samples(self, X: Matrix) -> Vector:
        """Return the mean of the last `n_columns` columns."""
        return mean_of(X[:, -self.n_columns :].T)


_FROM = 2.0  # a row is a likely novelty from this many standard deviations above the median on
_MOST = 6.0  # the largest weight of one row, in standard deviations
_LEAST_SPREAD = 0.3  # added to the spread on null_train, which few rows can make too small
_SD_OF_MAD = 1.4826  # standard deviation of normal numbers in units of their median distance


class Standardised(NamedTuple):
    """Scores of several models on null_train and on the mixture, in units of their spread."""

    null_train: Matrix  # of shape (n_models, n)
    mixture: Matrix  # of shape (n_models, number of different mixture rows)
    # Of shape (n_models,); the unit of each model: the standard deviation on the mixture
    spread: Vector

    @classmethod
    def of(cls, null_train: Matrix, mixture: Matrix) -> Standardised:
        """Centre the scores at their median on the mixture, and divide them by their spread."""
        centre = np.median(mixture, axis=1)[:, np.newaxis]
        spread = spread_of(mixture)[:, np.newaxis]
        return cls((null_train - centre) / spread, (mixture - centre) / spread, spread[:, 0])


def spread_of(scores: Matrix) -> Vector:
    """Return the standard deviation of each row of a matrix; 1 where it is zero."""
    spread = scores.std(axis=1)
    return np.where(spread > 0, spread, 1.0)


def model_weights(scores: Standardised, first: Vector) -> Vector:
    """Return the weight of each model's standardised score; the weights add up to 1."""
    equal = np.full(len(scores.mixture), 1 / len(scores.mixture))
    novelty = _novelty_weights(first)
    if not novelty.any():
        return equal
    shares = (scores.mixture * novelty).sum(axis=1) / novelty.sum()
    spread = scores.null_train.std(axis=1) + _LEAST_SPREAD
    separation = np.maximum((shares - scores.null_train.mean(axis=1)) / spread, 0)
    weights = separation**2 / spread
    return weights / weights.sum() if weights.any() else equal


def likely_novelties(first: Vector) -> float:
    """Say how many mixture rows stand out; a row that only just does counts for a part.

    Examples
    --------
    >>> likely_novelties(np.append(np.linspace(-1, 1, 21), [50.0, 60.0]))
    2.0
    """
    return float(np.minimum(_novelty_weights(first), 1).sum())


def _novelty_weights(first: Vector) -> Vector:
    """Weigh each mixture row by how far it stands out."""
    above = first - np.median(first)
    unit = _SD_OF_MAD * float(np.median(np.abs(above))) or float(above.std()) or 1.0
    return np.clip(above / unit - _FROM, 0, _MOST)


def as_probability(local: FittedScorer, null_train: Matrix, rows: Matrix) -> Vector:
    """Bring a local score to the scale of the surrogates."""
    scores = local.score(rows)
    if local.scale == "probability":
        return scores
    if local.scale == "log-odds":
        return expit(scores)
    below = np.searchsorted(np.sort(local.score(null_train)), scores, side="left")
    return (1 + below) / (len(null_train) + 1)
