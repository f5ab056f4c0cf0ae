"""What each column of a row contributes to its score, for every kind of score.

Linear models and trees: exact Shapley values over a background of known normals
(:mod:`conovel.models.shares`), also where each fold has a model of its own. Anything else, such as
blends, composites, pipelines and one-class models: the mean of what a column changes first and
last. First: the column of the row is put into a known normal. Last: the column of the known
normal is put into the row. The known normals are those nearest to the row. That mean is the
Shapley value wherever at most two columns interact at a time (docs/decisions).

Nothing here decides. A row is explained after its decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.models.forest import Forest
from conovel.models.linear import Linear
from conovel.models.shares import column_shares
from conovel.scorers.base import (
    Matrix,
    ProbabilityReader,
    ScoreModel,
    Vector,
    content_folds,
    log_odds,
)
from conovel.scorers.cross_fit import CrossFit

# Features of each column of the table.
Columns: TypeAlias = Sequence[NDArray[np.intp]]
# Scores hybrids of rows; the second argument says which row each of them is made from.
HybridScore: TypeAlias = Callable[[Matrix, NDArray[np.intp]], Vector]

_HYBRIDS = 128  # for each row; at least two for each column that is tried
# Of many columns, blocks are tried first, and then each column of the blocks that change most.
_BLOCK, _EXPANDED = 8, 4
_CHUNK = 1 << 21  # numbers of hybrids that are scored at a time
_CLOSEST = 1e-6  # to 0 or 1, so that the log-odds of a probability are finite


def exact_parts(
    model: ScoreModel, X: Matrix
) -> list[tuple[NDArray[np.intp], Forest | Linear]] | None:
    """Return which linear model or forest scores which rows; None if other models score.

    A model with folds scores each row by the model that has not seen rows of its content.
    """
    scoring = getattr(model, "read", model)
    scoring = getattr(scoring, "__self__", scoring)  # `forest.score` belongs to a forest
    if isinstance(scoring, ProbabilityReader):
        scoring = scoring.flat
    if isinstance(scoring, Forest | Linear):
        return [(np.arange(len(X)), scoring)]
    if type(scoring) is not CrossFit:
        return None
    folds = content_folds(X, len(scoring.models))
    parts = []
    for fold in np.unique(folds).tolist():
        rows = np.flatnonzero(folds == fold)
        part = exact_parts(scoring.models[fold], X[rows])
        if part is None:
            return None
        parts.append((rows, part[0][1]))
    return parts


def contributions(
    model: ScoreModel,
    X: Matrix,
    background: Matrix,
    nearest: NDArray[np.float64],
    columns: Columns,
) -> Matrix:
    """Return what each column adds to the score of each row."""
    parts = exact_parts(model, X)
    if parts is None:
        return _first_and_last(hybrid_score(model, X), X, nearest, columns)
    by_feature = np.zeros(X.shape)
    for rows, flat in parts:
        by_feature[rows] = column_shares(flat, X[rows], background)
    return np.stack([by_feature[:, features].sum(axis=1) for features in columns], axis=1)


def hybrid_score(model: ScoreModel, X: Matrix) -> HybridScore:
    """Return a function that scores hybrids of the rows X, on the scale of log-odds if it can.

    A hybrid is scored by the folds of the row it is made from: its content is nobody's.
    """
    inner = getattr(getattr(model, "read", None), "__self__", None)
    if isinstance(inner, CrossFit):
        folds = content_folds(X, len(inner.models))

        def score(hybrids: Matrix, owner: NDArray[np.intp]) -> Vector:
            return inner.score(hybrids, folds[owner])
    else:

        def score(hybrids: Matrix, owner: NDArray[np.intp]) -> Vector:
            return model.score(hybrids)

    if getattr(model, "scale", "") != "probability":
        return score
    return lambda hybrids, owner: log_odds(score(hybrids, owner), _CLOSEST)


def _first_and_last(
    score: HybridScore, X: Matrix, nearest: NDArray[np.float64], columns: Columns
) -> Matrix:
    """Let each column be the first and the last to change; of many columns, screen blocks."""
    masks = np.zeros((len(columns), X.shape[1]), dtype=np.bool_)
    for mask, features in zip(masks, columns, strict=True):
        mask[features] = True
    starts = np.arange(0, len(columns), _BLOCK)
    most = _BLOCK * _EXPANDED
    n_tried = len(columns) if len(columns) <= most else len(starts) + most
    nearest = nearest[:, : max(1, _HYBRIDS // (2 * n_tried))]
    if len(columns) <= most:
        return _changes(score, X, nearest, masks, _all_of(len(columns), X))
    blocks = np.logical_or.reduceat(masks, starts, axis=0)
    of_blocks = _changes(score, X, nearest, blocks, _all_of(len(blocks), X))
    moved = np.repeat(of_blocks, _BLOCK, axis=1)[:, : len(columns)] / _BLOCK
    best = np.argsort(-of_blocks, axis=1, kind="stable")[:, :_EXPANDED]
    expanded = (best[..., np.newaxis] * _BLOCK + np.arange(_BLOCK)).reshape(len(X), -1)
    expanded = np.minimum(expanded, len(columns) - 1)  # the last block may be shorter
    changes = _changes(score, X, nearest, masks, expanded)
    np.put_along_axis(moved, expanded, changes, axis=1)
    return moved


def _changes(
    score: HybridScore,
    X: Matrix,
    nearest: NDArray[np.float64],
    masks: NDArray[np.bool_],
    which: NDArray[np.intp],
) -> Matrix:
    """Return what some sets of features change as the first and as the last, on average."""
    n, k = which.shape
    n_normals = nearest.shape[1]
    changed = np.zeros((n, k))
    for rows in _chunks(n, k * X.shape[1]):
        owner = np.repeat(rows, k)
        mask = masks[which[rows]]
        row = X[rows, np.newaxis]
        own = score(X[rows], rows)[:, np.newaxis]
        for normals in np.moveaxis(nearest[rows], 1, 0):
            normal = normals[:, np.newaxis]
            of_normals = score(normals, rows)[:, np.newaxis]
            last, first = (
                score(hybrids.reshape(-1, X.shape[1]), owner).reshape(-1, k)
                for hybrids in (np.where(mask, normal, row), np.where(mask, row, normal))
            )
            changed[rows] += (own - last + first - of_normals) / (2 * n_normals)
    return changed


def _all_of(n: int, X: Matrix) -> NDArray[np.intp]:
    return np.tile(np.arange(n), (len(X), 1))


def _chunks(n: int, numbers_each: int) -> Iterator[NDArray[np.intp]]:
    size = max(1, _CHUNK // max(numbers_each, 1))
    for start in range(0, n, size):
        yield np.arange(start, min(start + size, n))
