"""One scale for the rows of all agents, in the regime `joint`.

Rows of different agents are compared with each other there. An agent's score only orders its own
rows. So each agent puts its scores on a common scale: log-odds of the score, minus their median
in the mixture, in units of their median distance from it. Nearly all rows of a mixture are
normal, so normal rows have about the same distribution on this scale at every agent.

The scale is cut into cells. Cells are what agents count, and cells decide: rows of one cell are
rejected together or not at all. A cell is a range of scores. So the order of an agent's own rows
stays, and where a row is scored its score is only compared with the edges of the cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conovel.models.portable_math import expit
from conovel.scorers.base import ScoreModel, TrainingSet, Vector
from conovel.spec.joint import N_CELLS

# Cells have equal widths on the log scale: 16 in an octave, from 1 to 256 median distances.
_PER_OCTAVE = 16
_CLOSEST = 1e-12  # probabilities stay this far from 0 and 1 before their log-odds are taken


@dataclass(frozen=True, eq=False)
class CommonScale:
    """The cells of an agent's scores.

    Attributes
    ----------
    edges : array of shape (N_CELLS - 1,)
        The lowest score of each cell but the first, ascending.
    """

    edges: Vector

    def cells(self, scores: Vector) -> NDArray[np.int64]:
        """Return the cell of each score, from 0 to N_CELLS - 1."""
        return np.searchsorted(self.edges, scores, side="right").astype(np.int64)


def fit_scale(model: ScoreModel, training: TrainingSet) -> CommonScale:
    """Learn the cells of a score from the mixture, whichever of its rows are calibration rows.

    Parameters
    ----------
    model : ScoreModel
        The score that ranks the rows.
    training : TrainingSet

    Examples
    --------
    >>> from conovel.scorers.base import Mixture
    >>> from conovel.site.stacking import FunctionScore
    >>> rows = np.arange(-50.0, 51.0)[:, np.newaxis]  # median distance 25
    >>> training = TrainingSet(rows[:1], Mixture.of(rows))
    >>> scale = fit_scale(FunctionScore(lambda X: X[:, 0]), training)
    >>> scale.cells(np.array([0.0, 25.0, 50.0, 100.0])).tolist()
    [0, 1, 17, 33]
    """
    scores = np.sort(training.mixture.score(model))
    is_probability = bool(scores[0] >= 0 and scores[-1] <= 1)
    if is_probability:
        p = np.clip(scores, _CLOSEST, 1 - _CLOSEST)
        scores = np.log(p) - np.log1p(-p)
    centre = float(np.median(scores))
    distance = float(np.median(np.abs(scores - centre))) or float(scores.std()) or 1.0
    edges = centre + distance * np.exp2(np.arange(N_CELLS - 1) / _PER_OCTAVE)
    return CommonScale(np.maximum.accumulate(expit(edges) if is_probability else edges))
