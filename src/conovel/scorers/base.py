"""What learns a score, what it learns from, and what comes out.

A score is valid when the score of every mixture row is a fixed function of the row,
null_train and the mixture as an unordered multiset (docs/theory.md, "What makes a score
valid"). Two things here ensure it for any scikit-learn model:

* the mixture is put in canonical order before anything random or order-dependent touches
  it, so a seeded bootstrap draws the same rows whatever order they arrived in;
* each distinct row is scored once, so that equal rows have equal scores even where a
  numerical library rounds differently at different positions of a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ModelError, ScorerError
from conovel.scorers.content import content_hash
from conovel.scorers.from_sklearn import Flat, to_flat
from conovel.spec.shown import Shown

if TYPE_CHECKING:
    from conovel.scorers.likeness import Likeness

Matrix: TypeAlias = NDArray[np.float64]
Vector: TypeAlias = NDArray[np.float64]

# From this many rows on, the fast loops of flat models make up for the conversion of trees.
_MANY_ROWS = 1 << 12


class ProbabilityReader:
    """Reads the probability of class 1 from the flat form of a classifier, if it has one.

    Flat models score a row alike in any batch, while results of BLAS depend on the batch. Trees
    give the same bits either way (`from_sklearn`), so that few rows need no conversion.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    @cached_property
    def flat(self) -> Flat | None:
        """The classifier as numbers, if it has such a form."""
        return flat_or_none(self.model)

    @property
    def by_row(self) -> bool:
        """Whether a row has the same probability in any batch; then the flat form scores.

        Two ways that give the same bits in every test may still differ for some row.
        """
        return is_by_row(self.model) or self.flat is not None

    def __call__(self, X: Matrix) -> Vector:
        """Read the probability of each row."""
        if is_by_row(self.model):
            flat = getattr(self.model, "flat_", None)  # where a learner here fits a flat model
        else:
            is_converted = "flat" in vars(self)
            few = len(X) < _MANY_ROWS and not is_converted and _adds_trees_in_order(self.model)
            flat = None if few else self.flat
        if flat is not None:
            return flat.score(X)  # type: ignore[no-any-return]
        probabilities: Vector = self.model.predict_proba(X)[:, 1]
        return probabilities


def flat_or_none(model: Any) -> Flat | None:
    """Return a fitted model as numbers, if it has such a form."""
    try:
        return to_flat(model)
    except ModelError:
        return None


def last_step(model: Any) -> Any:
    """Return what learns at the end of a pipeline, or the model itself."""
    steps = getattr(model, "steps", None)
    return steps[-1][1] if steps else model


def _adds_trees_in_order(fitted: Any) -> bool:
    """Tell whether a model adds its trees one after the other; several threads do not."""
    model = last_step(fitted)
    one_thread = getattr(model, "n_jobs", None) in (None, 1)
    return one_thread and any(
        hasattr(model, name) for name in ("estimators_", "_predictors", "tree_")
    )


Scale: TypeAlias = Literal["probability", "log-odds", "ordinal"]


class ScoreModel(Protocol):
    """Anything that scores rows; higher is more novel."""

    def score(self, X: Matrix) -> Vector:
        """Score each row."""


def is_by_row(model: Any) -> bool:
    """Tell whether a row has the same score, to the last bit, in any batch.

    True only where a model says so of itself: it has an attribute `by_row`, and its code handles
    each row by itself, with sums in a fixed order. All others may depend on the batch, as products
    of BLAS do.
    """
    return bool(getattr(model, "by_row", False))


@dataclass(frozen=True, eq=False, repr=False)
class Mixture(Shown):
    """The mixture null_cal ∪ X_test as a multiset in canonical order.

    See Also
    --------
    conovel.TrainingSet : Holds it.
    """

    distinct: Matrix  # (u, d): the distinct rows in lexicographic order
    position: NDArray[np.intp]  # (n,): where in `distinct` each original row stands

    def _shown(self) -> dict[str, str]:
        return {"rows": f"{self.position.size:,}", "columns": f"{self.distinct.shape[1]:,}"}

    @classmethod
    def of(cls, rows: Matrix) -> Mixture:
        """Sort the rows by value; rows that are equal become one.

        Proof: Theorem 1 (docs/theory.md#thm-valid).
        """
        rows = rows + 0.0  # equal rows have equal bytes: -0.0 becomes 0.0
        order = np.lexsort(rows.T[::-1])
        ordered = rows[order]
        new = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
        position = np.empty(order.size, dtype=np.intp)
        position[order] = np.cumsum(new) - 1
        return cls(ordered[new], position)

    @property
    def rows(self) -> Matrix:
        """All rows in canonical order, each as often as it occurs."""
        return np.repeat(self.distinct, np.bincount(self.position), axis=0)

    def score(self, model: ScoreModel) -> Vector:
        """Score the original rows, each distinct one once.

        Proof: Theorem 1 (docs/theory.md#thm-valid).
        """
        return model.score(self.distinct)[self.position]


@dataclass(frozen=True, eq=False, repr=False)
class TrainingSet(Shown):
    """What a scorer learns from.

    Attributes
    ----------
    null_train : array of shape (k, d)
        Known normals set aside for training, in a fixed order.
    mixture : Mixture
        Calibration and test rows together, or a sample of them by content.
    known_rows : array of shape (k, d) or None
        Known novelties. They are neither tested nor calibration rows.

    See Also
    --------
    conovel.Scorer : Learns from it.
    """

    null_train: Matrix
    mixture: Mixture
    known_rows: Matrix | None = None

    def _shown(self) -> dict[str, str]:
        n, d = self.null_train.shape
        mixture = f"{self.mixture.position.size:,}"
        shown = {"null_train": f"{n:,}", "mixture": mixture, "columns": f"{d:,}"}
        return {**shown, "known": f"{self.n_known:,}"} if self.n_known else shown

    @property
    def n_known(self) -> int:
        """How many novelties are known."""
        return 0 if self.known_rows is None else len(self.known_rows)

    def labelled(self) -> tuple[Matrix, NDArray[np.int64]]:
        """Return all rows, null_train (label 0) before the mixture (label 1).

        Proof: Theorem 1 (docs/theory.md#thm-valid).
        """
        unlabelled = self.mixture.rows
        labels = np.repeat([0, 1], [len(self.null_train), len(unlabelled)])
        return np.concatenate([self.null_train, unlabelled]), labels


class Scorer(ABC):
    """What learns a score; scikit-learn classifiers become one by `as_scorer`.

    A scorer is a description, not an estimator: `fit` leaves it as it is and returns what was
    learnt.

    See Also
    --------
    conovel.OneClass : A one-class model as a scorer.
    conovel.TrainingSet : What a scorer learns from.
    conovel.FittedScorer : What it returns.
    """

    learns = True  # False where known normals that train would teach nothing
    assumption = ""  # what a guarantee needs beside the usual, where this scorer is used

    @property
    @abstractmethod
    def label(self) -> str:
        """The scorer in a word or two, for reports."""

    @abstractmethod
    def fit(self, training: TrainingSet) -> FittedScorer:
        """Learn a score; the scorer itself stays as it is."""

    def fit_known(self, training: TrainingSet, likeness: Likeness) -> FittedScorer:
        """Learn a score from known novelties, too; a scorer that cannot learns without them."""
        return self.fit(training)

    @abstractmethod
    def with_seed(self, seed: int) -> Scorer:
        """Return this scorer with every random state fixed that it leaves open."""


@dataclass(frozen=True)
class Selection:
    """Which candidate was chosen, and what each of them achieved.

    See Also
    --------
    conovel.Automatic : Chooses between scorers.
    conovel.Detection : Names the choice that was made.
    """

    names: tuple[str, ...]  # the candidates
    # What the choice was made by. Enrichment of each: how much of the mixture lies in the far tail
    # of hidden nulls, as a multiple of what nulls alone would put there. 1 is nothing. Or the
    # number of columns whose shape suits each, or of rows that each sets apart.
    values: tuple[float, ...]
    # The position of the one that was taken: by enrichment the first that none of the later ones
    # clearly beats, by columns what `rule` says.
    chosen: int
    criterion: str = "enrichment"  # or "columns", "apart": what the values are
    rule: str = ""  # how the choice followed, in words

    @property
    def winner(self) -> str:
        """Name of the winner."""
        return self.names[self.chosen]

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON types."""
        plain = {
            "chosen": self.winner,
            "candidates": list(self.names),
            self.criterion: [round(value, 6) for value in self.values],
        }
        return {**plain, "rule": self.rule} if self.rule else plain


@dataclass(frozen=True, eq=False, repr=False)
class FittedScorer(Shown):
    """A score that was learnt.

    Attributes
    ----------
    scorer : Scorer
        What learnt it, for learning again from other columns.
    read : callable
        Scores each row of a matrix.
    scale : {"probability", "log-odds", "ordinal"}
        What the scores are: the probability of the mixture, log-odds of it, or just larger
        for more novel rows.
    estimator : fitted model or None
        The one model that scores like this; None where several models score together.
    weights : array or None
        What each row of ``Mixture.rows`` counted for, if not 1.
    selection : Selection or None
        How it was chosen, where there were several candidates.
    by_known : Selection or None
        How far known novelties counted, where there were any.

    See Also
    --------
    conovel.Scorer : Makes it.
    """

    scorer: Scorer
    read: Callable[[Matrix], Vector]
    scale: Scale
    estimator: Any = None
    weights: Vector | None = None
    selection: Selection | None = None
    by_known: Selection | None = None

    @property
    def choices(self) -> dict[str, Selection]:
        """All choices that were made, by what was chosen."""
        made = {"scorer": self.selection, "known": self.by_known}
        return {what: choice for what, choice in made.items() if choice is not None}

    def _shown(self) -> dict[str, str]:
        return {"scorer": self.name, "scale": self.scale}

    @property
    def name(self) -> str:
        """The model in a word, for reports."""
        return self.scorer.label

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score, to the last bit, in any batch."""
        return is_by_row(getattr(self.read, "__self__", self.read))

    @cached_property
    def flat(self) -> Flat | None:
        """The whole model as numbers, if it has such a form."""
        if isinstance(self.read, ProbabilityReader):
            return self.read.flat if self.estimator is not None else None
        return flat_or_none(self.estimator)

    def score(self, X: Matrix) -> Vector:
        """Score each row; NaN or a wrong shape is an error, never a small p-value.

        The model reads the rows in one memory layout: numpy adds the numbers of a row in another
        order where they are stored by columns.
        """
        X = np.ascontiguousarray(X)
        return checked_scores(self.read(X), X, self.name)


def checked_scores(scores: Vector, X: Matrix, name: str) -> Vector:
    """Return the scores that the scorer of this name gives rows, or say that they are none."""
    scores = np.asarray(scores, dtype=np.float64)
    if scores.shape != (X.shape[0],) or np.isnan(scores).any():
        raise ScorerError(f"{name} gave NaN or {scores.shape} scores for {X.shape[0]} rows")
    return scores


def classifier_score(model: Any, scorer: Scorer, weights: Vector | None = None) -> FittedScorer:
    """Return the score of a fitted classifier: its probabilities, else its decision function."""
    if hasattr(model, "predict_proba"):
        read = ProbabilityReader(model)
        return FittedScorer(scorer, read, "probability", model, weights)
    return FittedScorer(scorer, model.decision_function, "log-odds", model, weights)


def fit_best(candidates: Sequence[Scorer], training: TrainingSet) -> FittedScorer:
    """Fit the only candidate, or the one that :mod:`conovel.scorers.selection` chooses."""
    if training.n_known:
        from conovel.scorers.known import fit_with_known  # noqa: PLC0415  (imports this module)

        return fit_with_known(candidates, training)
    if len(candidates) == 1:
        return candidates[0].fit(training)
    from conovel.scorers.selection import select_scorer  # noqa: PLC0415  (imports this module)

    selection = select_scorer(candidates, training)
    return replace(candidates[selection.chosen].fit(training), selection=selection)


def fit_and_score(
    candidates: Sequence[Scorer],
    training: TrainingSet,
    mixture: Mixture,
    tell: Callable[[str], None],
) -> tuple[FittedScorer, Vector]:
    """Fit the best candidate, and score with it the rows of the whole mixture."""
    fitted = fit_best(candidates, training)
    tell("scoring")
    return fitted, mixture.score(fitted)


def add_up(parts: Iterable[Vector]) -> Vector:
    """Add vectors one after the other, the first one first.

    numpy's own sum of 8 or more vectors adds them in another order where each has one entry,
    or where the numbers are stored the other way round. A row would then score differently
    in another batch.
    """
    first, *others = parts
    total = np.array(first, dtype=np.float64)
    for part in others:
        total += part
    return total


def mean_of(parts: Sequence[Vector] | Matrix) -> Vector:
    """Return the mean of several vectors, added as :func:`add_up` does."""
    return np.asarray(add_up(parts) / len(parts))


def log_odds(probabilities: Vector, closest: float = 1e-3) -> Vector:
    """Return log-odds of probabilities that are first clipped to [closest, 1 - closest]."""
    p = np.clip(probabilities, closest, 1 - closest)
    return np.asarray(np.log(p) - np.log1p(-p))


def as_log_odds(scale: Scale, scores: Vector, closest: float = 1e-3) -> Vector:
    """Bring scores to the scale of log-odds, where scores of several models are added up."""
    return log_odds(scores, closest) if scale == "probability" else scores


def content_folds(rows: Matrix, n_folds: int) -> NDArray[np.int64]:
    """Assign rows to folds by their bytes alone, the same on every machine.

    Proof: Theorem 1 (docs/theory.md#thm-valid).

    Examples
    --------
    >>> content_folds(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]), 5).tolist()
    [4, 1, 4]
    """
    return ((content_hash(rows) >> np.uint64(33)) % np.uint64(n_folds)).astype(np.int64)
