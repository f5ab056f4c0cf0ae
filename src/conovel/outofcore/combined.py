"""A composite score as a model that scores any rows, not only those of one mixture.

The scores are those of :func:`conovel.composite.composite_scores`, bit for bit; what is fitted
is fitted once, and then scores piece after piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from conovel.composite import STACKED, MeanOfLast, composite_scores, probability
from conovel.scoring import (
    FittedScorer,
    Matrix,
    Mixture,
    OneClass,
    ScoreModel,
    Vector,
    fit_scorer,
    log_odds,
)


@dataclass(frozen=True, eq=False)
class Combined:
    """A score model given by a function."""

    score: Callable[[Matrix], Vector]


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
    composite : {"mean", "max", "min", "stacked", "local"}
    local : FittedScorer
        The agent's own model, at full precision.
    surrogates : sequence of ScoreModel
        The peers' models; without any, the composite is the local score itself.
    null_train : array of shape (k, d)
    sample : Mixture
        What is learnt from, see :mod:`conovel.sampling`.
    """
    if not surrogates:
        return local
    if composite == STACKED:
        return _stacked(local, surrogates, null_train, sample)

    def score(rows: Matrix) -> Vector:
        mixture = Mixture(rows, np.arange(len(rows)))
        return composite_scores(composite, local, surrogates, null_train, mixture)

    return Combined(score)


def _stacked(
    local: FittedScorer, surrogates: Sequence[ScoreModel], null_train: Matrix, sample: Mixture
) -> ScoreModel:
    """Fit the local scorer again with what the models say as further features."""
    restart = getattr(local.scorer, "restart", None)

    def widened(rows: Matrix) -> Matrix:
        said = [model.score(rows) for model in surrogates]
        if restart:
            said.append(probability(local, null_train, rows))
        return np.column_stack([rows, *map(log_odds, said)])

    first = OneClass(MeanOfLast(len(surrogates) + 1), higher="novel", method="score_samples")
    scorer = restart(first) if restart else local.scorer
    learnt = Mixture(widened(sample.distinct), sample.position)
    fitted = fit_scorer(scorer, widened(null_train), learnt)
    return Combined(lambda rows: fitted.score(widened(rows)))
