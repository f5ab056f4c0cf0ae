"""A composite score as a model that scores any rows, not only those of one mixture.

The scores are those of :func:`conovel.composite.composite_scores`, bit for bit; what is fitted
is fitted once, and then scores piece after piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conovel.composite import STACKED, composite_scores, probability
from conovel.scoring import (
    FittedScorer,
    Matrix,
    Mixture,
    ScoreModel,
    Scorer,
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
    """Let the composite be fitted for a single row, and keep what was fitted."""
    scorer = _Kept(local.scorer, [])
    one = Mixture(null_train[:1], np.zeros(1, dtype=np.intp))
    keeping = replace(local, scorer=scorer)
    composite_scores(STACKED, keeping, surrogates, null_train, one, sample)
    fitted = scorer.fits[-1]

    def score(rows: Matrix) -> Vector:
        said = [model.score(rows) for model in surrogates]
        if hasattr(local.scorer, "restart"):
            said.append(probability(local, null_train, rows))
        return fitted.score(np.column_stack([rows, *map(log_odds, said)]))

    return Combined(score)


@dataclass(frozen=True, eq=False)
class _Kept:
    """A scorer that keeps what was fitted."""

    scorer: Scorer
    fits: list[FittedScorer]

    def fit_on(self, null_train: Matrix, mixture: Mixture) -> FittedScorer:
        self.fits.append(fit_scorer(self.scorer, null_train, mixture))
        return self.fits[-1]

    def __getattr__(self, name: str) -> Any:
        """Offer `restart` where the scorer does."""
        if name != "restart":
            raise AttributeError(name)
        restart = self.scorer.restart
        return lambda first: _Kept(restart(first), self.fits)
