"""A peer's model with few levels: no level of its score holds fewer than k rows of this site.

A peer chooses its model freely. Counts of rows by a score that follows it would answer any
question about single rows: a model that is high in a small box and low elsewhere tells whether a
row lies in the box. So a site uses a peer's score F only through G(F), a nondecreasing step
function each of whose steps holds at least k rows of the site's own mixture. A model that sets
fewer rows apart sets nothing apart.

G follows from F and the mixture as a multiset. It does not know which rows are calibration rows,
so G(F) is as valid a score as F (docs/theory.md, Corollary 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.scorers.base import Matrix, Mixture, ScoreModel, Vector, is_by_row


@dataclass(frozen=True, eq=False)
class LevelledModel:
    """A model whose score has only levels that hold enough rows.

    Attributes
    ----------
    model : ScoreModel
    lowest : array of shape (number of levels - 1,), ascending
        The lowest score of each level but the first.
    values : array of shape (number of levels,), ascending
        The score of each level.
    """

    model: ScoreModel
    lowest: Vector
    values: Vector

    @property
    def by_row(self) -> bool:
        """Whether each row is scored by itself: as by the model."""
        return is_by_row(self.model)

    def score(self, X: Matrix) -> Vector:
        """Score each row by its level."""
        levels = np.searchsorted(self.lowest, self.model.score(X), side="right")
        return np.asarray(self.values[levels])


def with_levels(model: ScoreModel, mixture: Mixture, least: int) -> ScoreModel:
    """Let each level of a score hold at least `least` rows of a mixture.

    Examples
    --------
    A model that sets two of ten rows apart, and one that sets five apart:

    >>> from types import SimpleNamespace
    >>> mixture = Mixture.of(np.arange(10.0)[:, np.newaxis])
    >>> for n_apart in (2, 5):
    ...     apart = SimpleNamespace(score=lambda X: 1.0 * (X[:, 0] < n_apart))
    ...     print(with_levels(apart, mixture, least=3).score(mixture.rows))
    [0. 0. 0. 0. 0. 0. 0. 0. 0. 0.]
    [1. 1. 1. 1. 1. 0. 0. 0. 0. 0.]
    """
    if least <= 1:
        return model
    scores = np.sort(mixture.score(model))
    starts = group_starts(scores, least)
    stops = np.append(starts[1:], scores.size)
    return LevelledModel(model, scores[starts[1:]], scores[(starts + stops - 1) // 2])


def group_starts(scores: NDArray[Any], least: int) -> NDArray[np.intp]:
    """Cut ascending scores into groups of at least `least`; return where each begins.

    The groups are made from the highest score down. Equal scores stay together.

    Examples
    --------
    >>> group_starts(np.array([0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0]), least=2)
    array([0, 3, 5])
    """
    starts = [stop := scores.size]
    while stop >= least:
        stop = int(np.searchsorted(scores, scores[stop - least]))
        starts.append(stop)
    starts[-1] = 0  # too few are left for a group: they join the last one
    return np.array(starts[:0:-1] or [0], dtype=np.intp)
