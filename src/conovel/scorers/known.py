"""Known novelties: what they are like is found among the rows, and learnt from.

Users know some confirmed cases. They are fixed side information: a score may learn from them as it
learns from null_train, and stays valid (Theorem 1, docs/theory.md). Two things are learnt.

1. *Likeness.* Forests, or a discriminant where normals look Gaussian, tell null_train from the
   known novelties alone. They say of each mixture row how much it is like them.
2. *The task as before, with known rows.* The scorer tells null_train from the mixture, and known
   novelties count among the likely novelties of the mixture.

Both scores are added up in standard units of the mixture. How much likeness counts follows from
how many mixture rows it lifts above null_train beyond chance, against what is lifted without it.
Where it lifts none or few, today's novelties are of another kind or there are none, and the score
is the one without known rows, bit for bit. So known rows of another kind cost next to nothing
(docs/results/known.md). Which rows are calibration rows plays no part in any of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from conovel.scorers.automatic import normality
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Mixture,
    Scorer,
    Selection,
    TrainingSet,
    Vector,
    add_up,
    as_log_odds,
    classifier_score,
    fit_best,
    is_by_row,
)
from conovel.scorers.blend import Discriminant
from conovel.scorers.cross_fit import likely_novel, null_shares
from conovel.scorers.estimators import ClassifierScorer
from conovel.scorers.likeness import Likeness
from conovel.scorers.weighted_forests import (
    WeightedForests,
    average,
    axes_of,
    distances,
    grow_joined,
    over_equal_rows,
    vote,
)

_TAILS = (
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
)  # shares of null_train above which mixture rows are counted
_SURE = 2.5  # standard errors by which likeness must lift mixture rows to count
_USUAL = 1.0  # standard errors that are taken off for how much likeness counts
_FEW_NORMAL = 0.2  # the share of normal rows among those that stand out without known rows
_LEAST_RATIO = 0.25  # likeness must lift at least such a part of what stands out without it
_LEAST_ROWS = 5  # and at least so many rows, or half of what stands out if that is less
_MANY = 10  # rows that likeness surely lifts; with fewer it counts in proportion
_MOST_WEIGHT = 2.0  # of a known row, beside a mixture row that is surely novel
_FEW = 10  # known rows with which likeness counts half of what it lifts
_OF_NORMALS, _FEW_ALONE = 5, 25  # see `_share_alone`
_OF_KNOWN = 0.5  # the weight of all known rows together, beside 1 for null_train
_ROWS_PER_LEAF, _SEARCH_ROWS_PER_LEAF = 3, 2
_FIRST_TAIL = 0.02  # of null_train; where likeness points to many rows, only those above it count
_SEED = 0x6B6E6F776E


def lifted(null_train: Vector, mixture: Vector, n_errors: float) -> float:
    """Return how many mixture rows are in the upper tail of null_train beyond chance, at least.

    For each tail: the number of mixture rows there, less what as many nulls would have there and
    `n_errors` standard errors. The largest over all tails, or 0.

    Examples
    --------
    >>> null_train = np.arange(1000.0)
    >>> lifted(null_train, np.arange(0, 1000.0, 5), 2.0)
    0.0
    >>> round(lifted(null_train, np.append(np.arange(0, 1000.0, 5), np.full(30, 999.5)), 2.0))
    27
    """
    ordered, n_train, n_mixed = np.sort(null_train)[::-1], null_train.size, mixture.size
    most = 0.0
    for share in _TAILS:
        lowest = ordered[int(share * n_train)]
        n_nulls, n_above = (int(np.count_nonzero(s > lowest)) for s in (null_train, mixture))
        expected = n_mixed * (n_nulls + 1) / (n_train + 1)
        error = np.sqrt(expected * (1 + n_mixed / n_train))
        most = max(most, n_above - expected - n_errors * float(error))
    return most


def n_standing_out(null_train: Vector, mixture: Vector) -> int:
    """Return how many mixture rows stand out so far that few of them are expected to be normal."""
    return int(np.count_nonzero(null_shares(null_train, mixture) <= _FEW_NORMAL))


def likeness_share(
    null_train: Vector, mixture: Vector, n_known: int, n_usual: float, n_least: float
) -> float:
    """Return how much likeness counts in the whole score, from 0 up to, not including, 1.

    Parameters
    ----------
    null_train, mixture : arrays
        How much rows are like the known novelties, by what has not learnt from them.
    n_known : int
        How many novelties are known.
    n_usual : float
        How many mixture rows stand out without them.
    n_least : float
        How many likeness must lift to count at all.
    """
    n_alike = lifted(null_train, mixture, _SURE)
    if n_alike <= 0 or n_alike < n_least:
        return 0.0
    by_likeness = lifted(null_train, mixture, _USUAL)
    share = by_likeness / (by_likeness + n_usual) * n_known / (n_known + _FEW)
    return share * min(1.0, n_alike / _MANY)


def find_likeness(training: TrainingSet) -> tuple[Likeness, FittedScorer] | None:
    """Say what known novelties tell about the mixture, and the score by likeness alone.

    None where no mixture rows are like them beyond chance, or far fewer than stand out anyway.

    Proof: Theorem 1 (docs/theory.md#thm-valid).
    """
    assert training.known_rows is not None  # noqa: S101  (callers check)
    known_rows = Mixture.of(training.known_rows).rows  # in an order that does not depend on theirs
    n_known, n_train = len(known_rows), len(training.null_train)
    rows, labels = training.labelled()
    n_rows = len(rows)
    rows, labels = (
        np.concatenate([rows, known_rows]),
        np.append(labels, np.ones(n_known, dtype=int)),
    )
    forests, axes = WeightedForests(random_state=_SEED % 2**32), axes_of(rows)
    by_kind = np.repeat(
        [1.0, 0.0, _OF_KNOWN * n_train / n_known], [n_train, n_rows - n_train, n_known]
    )
    alike = vote(forests.searching(rows, _SEARCH_ROWS_PER_LEAF), axes, labels, by_kind)
    alike = over_equal_rows(alike, rows)

    def parts(scores: Vector) -> tuple[Vector, Vector]:
        return scores[:n_train], scores[n_train:n_rows]

    n_alike = lifted(*parts(alike), _SURE)
    if n_alike <= 0:
        return None
    weight = min(_MOST_WEIGHT, n_alike / n_known)
    search = dict(distances(rows[:n_rows], n_train))
    for name, of_known in (("forests", 0.0), ("forests with known rows", weight)):
        weights = np.repeat([1.0, of_known], [n_rows, n_known])
        search[name] = over_equal_rows(vote(forests.searching(rows), axes, labels, weights), rows)
    # Distances lift many rows of wide tables that do not stand out in the end, so of these only
    # rows count that stand out.
    n_usual = max(
        lifted(*parts(search["forests"]), _USUAL),
        *(
            n_standing_out(*parts(scores))
            for name, scores in search.items()
            if "known" not in name
        ),
    )
    n_least = max(_LEAST_RATIO * n_usual, min(_LEAST_ROWS, n_usual / 2))
    share = likeness_share(*parts(alike), n_known, n_usual, n_least)
    if not share:
        return None
    of_likeness = _likely_by_likeness(*parts(alike), n_alike)
    others = average(*(likely_novel(*parts(scores)) for scores in search.values()))
    likely = (1 - share) * others + share * of_likeness
    likeness = Likeness(known_rows, weight, likely, share)
    if normality(training.null_train).is_plausible:
        return likeness, _discriminant(training.null_train, known_rows)
    weights = by_kind.copy()
    weights[n_train:n_rows] = of_likeness
    scoring = forests.scoring(rows, _ROWS_PER_LEAF)
    forest = grow_joined(scoring, axes, labels, weights)
    return likeness, FittedScorer(forests, forest.score, "probability", forest)


def _discriminant(null_train: Matrix, known_rows: Matrix) -> FittedScorer:
    """Return the direction from the normals to the known novelties, where columns are Gaussian."""
    labels = np.repeat([0, 1], [len(null_train), len(known_rows)])
    model = Discriminant().fit(np.concatenate([null_train, known_rows]), labels)
    return classifier_score(model, ClassifierScorer(model))


def _likely_by_likeness(null_train: Vector, mixture: Vector, n_alike: float) -> Vector:
    """Say how likely mixture rows are novel by their likeness with known novelties.

    Many rows may be equally unlike all of them; then only those in the tail count.
    """
    likely = likely_novel(null_train, mixture)
    if likely.sum() <= 2 * max(n_alike, 5):
        return likely
    lowest = np.sort(null_train)[::-1][int(_FIRST_TAIL * null_train.size)]
    return np.where(mixture > lowest, likely, 0.0)


def fit_with_known(candidates: Sequence[Scorer], training: TrainingSet) -> FittedScorer:
    """Fit the best candidate, from known novelties too where the mixture has rows like them."""
    without = replace(training, known_rows=None)
    if not len(training.null_train):
        return _fit_against_all(candidates[0].fit(without), training)
    both = find_likeness(training)
    if both is None:
        return _noted(fit_best(candidates, without), None, training.n_known)
    likeness, alone = both
    chosen = candidates[0]
    if len(candidates) > 1:
        from conovel.scorers.selection import select_scorer  # noqa: PLC0415  (as in `fit_best`)

        chosen = candidates[select_scorer(candidates, without).chosen]
    fitted = chosen.fit_known(without, likeness)
    weights = 1 - likeness.share, likeness.share
    added = AddedScores.of((fitted, alone), weights, training.mixture)
    whole = FittedScorer(fitted.scorer, added.score, "log-odds", None, selection=fitted.selection)
    return _noted(whole, likeness.share, training.n_known)


def _share_alone(n_known: int) -> float:
    """Return the share of likeness where no mixture row says how far it counts.

    0.83 with 5 known novelties, 0.96 with 100. Without a remainder, novelties of other kinds
    would go unseen.
    """
    return 1 - _OF_NORMALS / (n_known + _FEW_ALONE)


def add_likeness(fitted: FittedScorer, null_train: Matrix, novelties: Matrix) -> FittedScorer:
    """Add likeness with known novelties to a score that learnt from known normals alone.

    There are no mixture rows that tell how far likeness counts, so it follows from the number of
    known novelties. Units are those of null_train, by trees that did not see the row.
    """
    n_known, n_train = len(novelties), len(null_train)
    rows, labels = np.concatenate([null_train, novelties]), np.repeat([0, 1], [n_train, n_known])
    weights = np.repeat([1.0, _OF_KNOWN * n_train / n_known], [n_train, n_known])
    forests, axes = WeightedForests(random_state=_SEED % 2**32), axes_of(rows)
    searching = forests.searching(rows, _SEARCH_ROWS_PER_LEAF)
    votes = over_equal_rows(vote(searching, axes, labels, weights), rows)[:n_train]
    scoring = forests.scoring(rows, _ROWS_PER_LEAF)
    forest = grow_joined(scoring, axes, labels, weights)
    alone = FittedScorer(fitted.scorer, forest.score, "probability", forest)
    share = _share_alone(n_known)
    unseen = as_log_odds(alone.scale, votes / len(scoring))
    measured = [as_log_odds(fitted.scale, fitted.score(null_train)), unseen]
    added = AddedScores.measured((fitted, alone), (1 - share, share), measured)
    return _noted(FittedScorer(fitted.scorer, added.score, "log-odds"), share, n_known)


def _fit_against_all(fitted: FittedScorer, training: TrainingSet) -> FittedScorer:
    """Add likeness where no known normals train: known novelties are told from all other rows.

    Proof: Theorem 1 (docs/theory.md#thm-valid).
    """
    assert training.known_rows is not None  # noqa: S101  (callers check)
    known_rows = Mixture.of(training.known_rows).rows
    n_rows, n_known = training.mixture.position.size, len(known_rows)
    rows = np.concatenate([training.mixture.rows, known_rows])
    forests = WeightedForests(random_state=_SEED % 2**32)
    weights = np.repeat([1.0, _OF_KNOWN * n_rows / n_known], [n_rows, n_known])
    labels = np.repeat([0, 1], [n_rows, n_known])
    scoring = forests.scoring(rows, _ROWS_PER_LEAF)
    forest = grow_joined(scoring, axes_of(rows), labels, weights)
    alone = FittedScorer(forests, forest.score, "probability", forest)
    share = n_known / (n_known + _FEW)
    added = AddedScores.of((fitted, alone), (1 - share, share), training.mixture)
    whole = FittedScorer(fitted.scorer, added.score, "log-odds")
    return _noted(whole, share, n_known)


def _noted(fitted: FittedScorer, share: float | None, n_known: int) -> FittedScorer:
    """Note in the selection how far known novelties counted."""
    names = ("without known novelties", "with known novelties")
    rule = f"too few rows are like the {n_known:,} known novelties, so they do not count"
    if share is not None:
        rule = f"likeness with {n_known:,} known novelties has a share of {share:.2f} in the score"
    values = (1 - (share or 0.0), share or 0.0)
    choice = Selection(names, values, int(share is not None), "known", rule)
    return replace(fitted, by_known=choice)


@dataclass(frozen=True, eq=False)
class AddedScores:
    """Several scores in standard units of the mixture, added up with weights."""

    parts: tuple[FittedScorer, ...]
    weights: tuple[float, ...]
    centres: tuple[float, ...]
    units: tuple[float, ...]

    @classmethod
    def of(
        cls, parts: tuple[FittedScorer, ...], weights: tuple[float, ...], mixture: Mixture
    ) -> AddedScores:
        """Measure the scores on the mixture, whichever of its rows are calibration rows.

        Proof: Theorem 1 (docs/theory.md#thm-valid).
        """
        scores = [np.sort(as_log_odds(part.scale, mixture.score(part))) for part in parts]
        return cls.measured(parts, weights, scores)

    @classmethod
    def measured(
        cls,
        parts: tuple[FittedScorer, ...],
        weights: tuple[float, ...],
        measured: Sequence[Vector],
    ) -> AddedScores:
        """Give each score the mean 0 and the standard deviation 1 on rows that were scored."""
        units = (float(scores.std()) for scores in measured)
        centres = tuple(float(scores.mean()) for scores in measured)
        return cls(parts, weights, centres, tuple(unit if unit > 0 else 1.0 for unit in units))

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score in any batch."""
        return all(map(is_by_row, self.parts))

    def score(self, X: Matrix) -> Vector:
        """Score each row."""
        measured = zip(self.parts, self.weights, self.centres, self.units, strict=True)
        return add_up(
            weight * ((as_log_odds(part.scale, part.score(X)) - centre) / unit)
            for part, weight, centre, unit in measured
        )
