"""What known novelties say about the mixture, as a scorer learns from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conovel.scorers.base import Matrix, TrainingSet, Vector


@dataclass(frozen=True, eq=False)
class Likeness:
    """Known novelties, and what they say about the mixture (:mod:`conovel.scorers.known`)."""

    rows: Matrix  # of shape (k, d): the known novelties
    weight: float  # what each of them counts for beside a mixture row that is surely novel
    likely: Vector  # of shape (n,): how likely each row of ``Mixture.rows`` is novel
    share: float  # of the score by likeness alone in the whole score, below 1

    def labelled(
        self, training: TrainingSet, of_all: float
    ) -> tuple[Matrix, NDArray[np.int64], Vector]:
        """Return all rows, their labels and weights, known novelties last and with label 1.

        `of_all` is the weight of a mixture row that nothing points to.
        """
        rows, labels = training.labelled()
        of_null = np.ones(len(training.null_train))
        of_known = np.full(len(self.rows), self.weight)
        return (
            np.concatenate([rows, self.rows]),
            np.concatenate([labels, np.ones(len(self.rows), dtype=np.int64)]),
            np.concatenate([of_null, of_all + self.likely, of_known]),
        )
