"""One scale for an agent's own score and its peers' models: the probability of the mixture.

Classifiers and surrogates give that probability, log-odds go through the logistic function, and a
one-class score becomes the share of null_train below it. Each model has its sender's own class
sizes.
"""

from __future__ import annotations

import numpy as np

from conovel.models.linear import expit
from conovel.scorers.base import FittedScorer, Matrix, Vector


def as_probability(local: FittedScorer, null_train: Matrix, rows: Matrix) -> Vector:
    """Bring a local score to the scale of the surrogates."""
    scores = local.score(rows)
    if local.scale == "probability":
        return scores
    if local.scale == "log-odds":
        return expit(scores)
    below = np.searchsorted(np.sort(local.score(null_train)), scores, side="left")
    return (1 + below) / (len(null_train) + 1)
