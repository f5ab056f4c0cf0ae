"""Composite scores: one's own model and the peers' surrogates, together.

Any combination that is fixed given the agents' (null_train, mixture) is valid
(docs/theory.md), and so is a choice between combinations that looks at nothing else. All
scores are first brought to one scale, the probability that a row belongs to the mixture
rather than to the known normals: classifiers and surrogates give it, a score without bounds
goes through the logistic function, and a one-class score becomes the share of null_train
below it. Each model speaks under its sender's own class sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator

from conovel.errors import InputError
from conovel.models.portable_math import expit
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Mixture,
    OneClass,
    ScoreModel,
    Vector,
    add_up,
    fit_scorer,
    log_odds,
    mean_of,
)
from conovel.scorers.refined import Refined, linear
from conovel.scorers.selection import CAUTIOUS, Selection, Trial

AUTO = "auto"
STACKED = "stacked"
_COMBINE: Mapping[str, Callable[[Matrix], Vector]] = {
    "mean": mean_of,
    "local": lambda scores: scores[0],
    "min": lambda scores: scores.min(axis=0),
    "max": lambda scores: scores.max(axis=0),
}
_CHOICE = (STACKED, *_COMBINE)  # in order of preference
_SHARES = (0.5, 0.25, 0.25)  # of what is learnt, the own score and the mean in what is stacked
COMPOSITES = (AUTO, "mean", "max", "min", STACKED)


def as_composite(name: str) -> str:
    """Check the name of a composite."""
    if not isinstance(name, str) or name not in COMPOSITES:
        raise InputError(f"composite must be one of {', '.join(COMPOSITES)}, not {name!r}")
    return name


def composite_scores(
    composite: str,
    local: FittedScorer,
    surrogates: Sequence[ScoreModel],
    null_train: Matrix,
    mixture: Mixture,
    sample: Mixture | None = None,
) -> Vector:
    """Score the rows of the mixture, in their original order; see :func:`composite_model`.

    What is learnt from is the mixture itself unless there is a smaller sample.
    """
    learnt = mixture if sample is None else sample
    return mixture.score(composite_model(composite, local, surrogates, null_train, learnt))


def composite_model(
    composite: str,
    local: FittedScorer,
    surrogates: Sequence[ScoreModel],
    null_train: Matrix,
    sample: Mixture,
) -> ScoreModel:
    """Fit what a composite needs.

    Parameters
    ----------
    composite : {"auto", "mean", "max", "min", "stacked", "local"}
        "max" is the paper's. "stacked" learns again from the features and what every model
        says of the row; "auto" is what :func:`choose_composite` chooses.
    local : FittedScorer
        The agent's own model, at full precision.
    surrogates : sequence of ScoreModel
        The peers' models; without any, the composite is the local score itself.
    null_train : array of shape (k, d)
    sample : Mixture
        The mixture, or what is learnt from it, see :mod:`conovel.site.sampling`.
    """
    if not surrogates:
        return local
    if composite == AUTO:
        composite = choose_composite(local, surrogates, null_train, sample).winner
    if composite == STACKED:
        return _stacked(local, surrogates, null_train, sample)
    combine = _COMBINE[composite]
    return Composed(lambda rows: combine(_opinions(local, surrogates, null_train, rows)))


def _opinions(
    local: FittedScorer, surrogates: Sequence[ScoreModel], null_train: Matrix, rows: Matrix
) -> Matrix:
    """Ask all models, one's own first."""
    own = probability(local, null_train, rows)
    return np.stack([own, *(model.score(rows) for model in surrogates)])


@dataclass(frozen=True, eq=False)
class Composed:
    """A score model given by a function."""

    score: Callable[[Matrix], Vector]


def choose_composite(
    local: FittedScorer, surrogates: Sequence[ScoreModel], null_train: Matrix, mixture: Mixture
) -> Selection:
    """Choose a composite, or the local score alone; see `conovel.scorers.selection`."""
    trial = Trial.of(null_train, mixture)
    tried = local.trial or fit_scorer(local.scorer, trial.null_train, trial.mixture)
    task = tried, surrogates, trial.null_train
    said = _opinions(*task, trial.mixture.distinct)
    simple = [combine(said)[trial.mixture.position] for combine in _COMBINE.values()]
    scores = [trial.mixture.score(_stacked(*task, trial.mixture)), *simple]
    # What is stacked has the others among its features. And a trial is unfair to it: it learns
    # from half of null_train there, while the peers' models are what they will be.
    return trial.select(_CHOICE, scores, CAUTIOUS)


def _stacked(
    local: FittedScorer, surrogates: Sequence[ScoreModel], null_train: Matrix, sample: Mixture
) -> ScoreModel:
    """Learn again, with what the models say as further features.

    A plain classifier is fitted again as it is. Where the local scorer refines, a linear model
    does, from where its own score and the models' mean point; what is not linear is in its own
    score already. Where agents differ the mean points elsewhere, where they are thin the own
    score does. Half of what is learnt so, a quarter of the own score and a quarter of the mean are
    then added: each errs in its own way.
    """
    refines = hasattr(local.scorer, "stage")

    def widened(rows: Matrix) -> Matrix:
        said = [model.score(rows) for model in surrogates]
        if refines:
            said.append(probability(local, null_train, rows))
        return np.column_stack([rows, *map(log_odds, said)])

    heard = (1, len(surrogates) + 1)
    firsts = [OneClass(MeanOfLast(n), higher="novel", method="score_samples") for n in heard]
    scorer = Refined(firsts, linear(), local.scorer.n_folds, 1) if refines else local.scorer
    wide_train, wide = widened(null_train), widened(sample.distinct)
    fitted = fit_scorer(scorer, wide_train, Mixture(wide, sample.position))
    if not refines:
        return Composed(lambda rows: fitted.score(widened(rows)))

    def opinions(wide: Matrix) -> Matrix:
        learnt = fitted.score(wide)
        if fitted.scale == "probability":  # it is not where nothing stood out
            learnt = log_odds(learnt, sure=1e-6)
        return np.stack([learnt, *(mean_of(wide[:, -n:].T) for n in heard)])

    spread = opinions(wide_train).std(axis=1)
    weights = (np.array(_SHARES) / np.where(spread > 0, spread, 1))[:, np.newaxis]
    return Composed(lambda rows: add_up(weights * opinions(widened(rows))))


class MeanOfLast(BaseEstimator):  # type: ignore[misc]
    """The mean of the last columns, as a one-class model that learns nothing.

    Parameters
    ----------
    n_columns : int
    """

    def __init__(self, n_columns: int) -> None:
        self.n_columns = n_columns

    def fit(self, X: Matrix, y: None = None) -> MeanOfLast:
        """Do nothing."""
        return self

    def score_samples(self, X: Matrix) -> Vector:
        """Return the mean of the last `n_columns` columns."""
        return mean_of(X[:, -self.n_columns :].T)


def probability(local: FittedScorer, null_train: Matrix, rows: Matrix) -> Vector:
    """Bring a local score to the scale of the surrogates."""
    scores = local.score(rows)
    if local.scale == "probability":
        return scores
    if local.scale == "log-odds":
        return expit(scores)
    below = np.searchsorted(np.sort(local.score(null_train)), scores, side="left")
    return (1 + below) / (len(null_train) + 1)
