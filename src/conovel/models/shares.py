"""What each column of a row contributes to its score: Shapley values of flat models, exact.

A player of the game is a column. A coalition takes its columns from the row and all others from a
known normal; its worth is the score of that hybrid, averaged over a background of known normals
(the interventional Shapley value; Lundberg et al. 2020 compute it for trees). The contributions
of a row add up to its score minus the mean score of the background.

Scores are taken where the model adds: log-odds for a linear model and for trees with the logistic
link, the mean of the leaf values for trees that average.
"""

from __future__ import annotations

from math import comb

import numpy as np
from numpy.typing import NDArray

from conovel.models.forest import Forest, check_rows
from conovel.models.linear import Linear


def column_shares(
    model: Forest | Linear, X: NDArray[np.float64], background: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what each column adds to the score of each row, over the mean of the background."""
    X, background = (check_rows(rows, model.n_features) for rows in (X, background))
    if isinstance(model, Linear):
        weights = model.coef if model.scale is None else model.coef / model.scale
        return np.asarray(weights * (X - background.mean(axis=0)))
    if model.single:
        X, background = (rows.astype(np.float32).astype(np.float64) for rows in (X, background))
    from conovel.models.loops import share_loop  # noqa: PLC0415  (loads numba)

    depth = int(model.depths.max())
    nodes = model.feature, model.threshold, model.left, model.value, model.roots
    sums = np.zeros(X.shape)
    share_loop(X, background, nodes, *_weights(min(depth, model.n_features)), depth, sums)
    sums /= len(background)
    return sums / model.n_trees if model.link == "mean" else sums


def _weights(most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Shapley weights of a leaf that needs a columns of the row and lacks b others.

    Of all orders of the a + b columns, the share in which a given one of the `a` comes last among
    the `a` and before all of the `b`: (a-1)! b! / (a+b)!. For one of the `b`, a! (b-1)! / (a+b)!.
    """
    gain, loss = np.zeros((2, most + 1, most + 1))
    for a in range(most + 1):
        for b in range(most + 1 - a):
            if a:
                gain[a, b] = 1 / (a * comb(a + b, a))
            if b:
                loss[a, b] = 1 / (b * comb(a + b, b))
    return gain, loss
