"""Composite scores: an agent's own model and the peers' surrogates, together.

Any combination that is fixed given the agents' training sets is valid (docs/theory.md), and so is
a choice between combinations that looks at nothing else. All scores are first brought to one scale
(:mod:`conovel.site.stacking`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Scale,
    ScoreModel,
    Selection,
    TrainingSet,
    Vector,
    is_by_row,
    mean_of,
)
from conovel.scorers.selection import CAUTIOUS, HoldOut
from conovel.site.stacking import as_probability, stack
from conovel.spec.settings import AUTO, STACKED

_COMBINE: Mapping[str, Callable[[Matrix], Vector]] = {
    "mean": mean_of,
    "local": lambda scores: scores[0],
    "min": lambda scores: scores.min(axis=0),
    "max": lambda scores: scores.max(axis=0),
}
_CHOICE = (STACKED, *_COMBINE)  # in order of preference
# Half of null_train is held out for a choice. With fewer rows, hardly any agent of the paper's
# design left the preferred composite, and trying them took two fifths of the time.
_CAN_CHOOSE = 60


@dataclass(frozen=True, eq=False)
class Composite:
    """The score that an agent ranks its rows by, and how its composite was chosen."""

    model: ScoreModel
    selection: Selection | None = None


@dataclass(frozen=True, eq=False)
class Combined:
    """The scores of all models as one number: their mean, largest or smallest, or the own one."""

    composite: str
    local: FittedScorer
    surrogates: tuple[ScoreModel, ...]
    null_train: Matrix
    scale: Scale = "probability"

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score in any batch."""
        return all(map(is_by_row, (self.local, *self.surrogates)))

    def score(self, rows: Matrix) -> Vector:
        """Score each row."""
        scores = all_scores(self.local, self.surrogates, self.null_train, rows)
        return _COMBINE[self.composite](scores)


def fit_composite(
    composite: str,
    local: FittedScorer,
    surrogates: Sequence[ScoreModel],
    training: TrainingSet,
) -> Composite:
    """Fit what a composite needs.

    Proof: Lemma 6 (docs/theory.md#lem-exchangeable).
    """
    if not surrogates:
        return Composite(local)
    selection = None
    if composite == AUTO and len(training.null_train) < _CAN_CHOOSE:
        composite = STACKED
    elif composite == AUTO:
        selection = choose_composite(local, surrogates, training)
        composite = selection.winner
    if composite == STACKED:
        return Composite(stack(local, surrogates, training), selection)
    model = Combined(composite, local, tuple(surrogates), training.null_train)
    return Composite(model, selection)


def all_scores(
    local: FittedScorer, surrogates: Sequence[ScoreModel], null_train: Matrix, rows: Matrix
) -> Matrix:
    """Score the rows by all models, the agent's own first."""
    own = as_probability(local, null_train, rows)
    return np.stack([own, *(model.score(rows) for model in surrogates)])


def choose_composite(
    local: FittedScorer, surrogates: Sequence[ScoreModel], training: TrainingSet
) -> Selection:
    """Choose a composite, or the local score alone; see `conovel.scorers.selection`."""
    hold_out = HoldOut.of(training)
    tried = local.scorer.fit(hold_out.training)
    null_train, mixture = hold_out.training.null_train, hold_out.training.mixture
    scores = all_scores(tried, surrogates, null_train, mixture.distinct)
    combined = [combine(scores)[mixture.position] for combine in _COMBINE.values()]
    stacked = mixture.score(stack(tried, surrogates, hold_out.training))
    # The stacked score has the others among its features, so it is preferred. And a hold-out is
    # unfair to it: it learns from half of null_train there, while the peers' models are whole.
    return hold_out.select(_CHOICE, [stacked, *combined], CAUTIOUS)
