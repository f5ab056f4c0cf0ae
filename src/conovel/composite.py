"""Composite scores: one's own model and the peers' surrogates, together.

Any combination that is fixed given the agents' (null_train, mixture) is valid
(docs/theory.md). All scores are first brought to one scale, the probability that a row
belongs to the mixture rather than to the known normals: classifiers and surrogates give it,
a score without bounds goes through the logistic function, and a one-class score becomes the
share of null_train below it. Each model speaks under its sender's own class sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from conovel.elementary import expit
from conovel.errors import InputError
from conovel.scoring import (
    FittedScorer,
    Matrix,
    Mixture,
    ScoreModel,
    Vector,
    fit_scorer,
)

_COMBINE: Mapping[str, Callable[[Matrix], Vector]] = {
    "max": lambda scores: scores.max(axis=0),
    "mean": lambda scores: scores.mean(axis=0),
    "min": lambda scores: scores.min(axis=0),
}
COMPOSITES = (*_COMBINE, "stacked")


def as_composite(name: str) -> str:
    """Check the name of a composite."""
    if name not in COMPOSITES:
        raise InputError(f"composite must be one of {', '.join(COMPOSITES)}, not {name!r}")
    return name


def composite_scores(
    composite: str,
    local: FittedScorer,
    surrogates: Sequence[ScoreModel],
    null_train: Matrix,
    mixture: Mixture,
) -> Vector:
    """Score the rows of the mixture, in their original order.

    Parameters
    ----------
    composite : {"max", "mean", "min", "stacked"}
        "max" is the paper's. "stacked" fits the local scorer again, on the features and what every
        surrogate says of the row.
    local : FittedScorer
        The agent's own model, at full precision.
    surrogates : sequence of ScoreModel
        The peers' models; without any, the composite is the local score itself.
    null_train : array of shape (k, d)
    mixture : Mixture
    """
    if not surrogates:
        return mixture.score(local)
    if composite == "stacked":

        def widened(rows: Matrix) -> Matrix:
            return np.column_stack([rows, *(model.score(rows) for model in surrogates)])

        wide = Mixture(widened(mixture.distinct), mixture.position)
        return wide.score(fit_scorer(local.scorer, widened(null_train), wide))
    rows = mixture.distinct
    scores = [probability(local, null_train, rows), *(model.score(rows) for model in surrogates)]
    return _COMBINE[composite](np.stack(scores))[mixture.position]


def probability(local: FittedScorer, null_train: Matrix, rows: Matrix) -> Vector:
    """Bring a local score to the scale of the surrogates."""
    scores = local.score(rows)
    if local.scale == "probability":
        return scores
    if local.scale == "log-odds":
        return expit(scores)
    below = np.searchsorted(np.sort(local.score(null_train)), scores, side="left")
    return (1 + below) / (len(null_train) + 1)
