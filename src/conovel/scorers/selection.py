"""Choosing between scores from (null_train, mixture) alone.

A choice may look at everything but which mixture rows are calibration rows (docs/theory.md).
So half of null_train is put among the unlabelled rows, every candidate is fitted as if these
were part of its mixture, and the score that lifts the mixture furthest above the hidden half
is chosen; where the difference is within its noise, the candidate that was named
first (Breiman et al. 1984 call it the one-standard-error rule). The hidden nulls went through
the very same fit as the mixture's own nulls, so a candidate that merely memorises its
training rows gains nothing (Marandon et al. 2024 choose the hyperparameters of AdaDetect this
way, by the number of rejections).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conovel.errors import InputError
from conovel.scorers.base import Mixture, Scorer, Selection, TrainingSet, Vector
from conovel.stats.ranks import conformal_ranks

# A row at p-value p counts exp(-p / tail): what step-up procedures at the usual levels look at,
# but smooth, because a few hundred hidden nulls cannot resolve a sharp threshold.
_TAIL = 0.01
# And by so many whole rows another candidate must beat the preferred one on top of the standard
# error, which is itself a guess where a handful of rows make the difference.
_ROWS = 2
# What hidden nulls contribute to the error is estimated by leaving out one of so many groups of
# them in turn (the jackknife): the two or three in the far tail decide where it begins.
_GROUPS = 10
CAUTIOUS = 3.0  # standard errors; below, most switches from the preferred candidate were noise


@dataclass(frozen=True, eq=False)
class HoldOut:
    """The training set with half of null_train hidden among the unlabelled rows."""

    # The half of null_train that still trains; the hidden half, then the rows of the mixture
    training: TrainingSet
    n_hidden: int

    @classmethod
    def of(cls, training: TrainingSet) -> HoldOut:
        """Hide every second training null."""
        null_train = training.null_train
        if len(null_train) < 2:
            raise InputError(
                f"choosing between scores needs at least 2 training nulls, not {len(null_train)}:"
                " add known normals, or name a single scorer and composite"
            )
        hidden = null_train[1::2]
        rows = np.concatenate([hidden, training.mixture.rows])
        half = TrainingSet(null_train[::2], Mixture.of(rows), training.known_rows)
        return cls(half, len(hidden))

    def shares(self, scores: Vector) -> Vector:
        """Return how far in the tail of hidden nulls each row lies; nulls have mean 1."""
        return _tail_shares(*np.split(scores, [self.n_hidden]))

    def sums_without(self, scores: Vector) -> Vector:
        """Sum the shares as often as there are groups of hidden nulls, each time without one."""
        hidden, mixed = np.split(scores, [self.n_hidden])
        n_groups = min(_GROUPS, self.n_hidden)
        if n_groups < 2:
            return np.zeros(1)  # of one, nothing can be left out
        group = np.arange(self.n_hidden) % n_groups
        return np.array([_tail_shares(hidden[group != g], mixed).sum() for g in range(n_groups)])

    def select(
        self, names: Sequence[str], scores: Sequence[Vector], caution: float = 1.0
    ) -> Selection:
        """Choose between candidates by the scores they give to the mixture with the hidden nulls.

        The first is chosen that none of the later ones beats: by `caution` standard errors. Scores
        are those of the rows of ``self.training.mixture``, in their original order.
        """
        shares = [self.shares(s) for s in scores]
        without = [self.sums_without(s) for s in scores]
        row = max(share.max() for share in shares)

        def beats(later: int, earlier: int) -> bool:
            gain, jackknifed = shares[later] - shares[earlier], without[later] - without[earlier]
            error = np.sqrt(gain.var() * gain.size + jackknifed.var() * (jackknifed.size - 1))
            return bool(gain.sum() > caution * error + _ROWS * row)

        last = len(shares)
        unbeaten = [i for i in range(last) if not any(beats(j, i) for j in range(i + 1, last))]
        values = tuple(float(share.mean()) for share in shares)
        return Selection(tuple(names), values, unbeaten[0])


def _tail_shares(hidden: Vector, mixed: Vector) -> Vector:
    steps = max(1.0, (hidden.size + 1) * _TAIL)
    share = np.exp(-np.arange(1, hidden.size + 2) / steps)
    return np.asarray(share[conformal_ranks(hidden, mixed) - 1] / share.mean())


def select_scorer(candidates: Sequence[Scorer], training: TrainingSet) -> Selection:
    """Choose a scorer; see :class:`HoldOut`."""
    hold_out = HoldOut.of(training)
    fits = [scorer.fit(hold_out.training) for scorer in candidates]
    scores = [hold_out.training.mixture.score(fit) for fit in fits]
    return hold_out.select([fit.name for fit in fits], scores)
