"""Score models: learned from (null_train, mixture), blind to which rows are calibration rows.

A score is valid when the score of every mixture row is a fixed function of the row,
null_train and the mixture as an unordered multiset (docs/theory.md, "What makes a score
valid"). Two things here see to it for any scikit-learn model:

* the mixture is put in canonical order before anything random or order-dependent touches
  it, so a seeded bootstrap draws the same rows whatever order they arrived in;
* each distinct row is scored once, so that equal rows have equal scores even where a
  numerical library rounds differently at different positions of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone, is_classifier

from conovel.errors import InputError, SampleError, ScorerError
from conovel.levels import Level, as_level
from conovel.ranks import conformal_ranks
from conovel.stepup import step_up

Matrix: TypeAlias = NDArray[np.float64]
Vector: TypeAlias = NDArray[np.float64]


class ScoreModel(Protocol):
    """Anything that scores rows; higher is more novel."""

    def score(self, X: Matrix) -> Vector:
        """Score each row."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """The mixture null_cal ∪ X_test as a multiset in canonical order.

    Attributes
    ----------
    distinct : array of shape (u, d)
        The distinct rows in lexicographic order.
    position : int array of shape (n,)
        Where in `distinct` each original row stands.
    """

    distinct: Matrix
    position: NDArray[np.intp]

    @classmethod
    def of(cls, rows: Matrix) -> Mixture:
        """Sort the rows by value; rows that are equal become one."""
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
        """Score the original rows, each distinct one once."""
        return model.score(self.distinct)[self.position]


class OneClass(BaseEstimator):  # type: ignore[misc]
    """A one-class model as a scorer, with its polarity said out loud.

    It is fitted on null_train only and never sees the mixture.

    Parameters
    ----------
    model : estimator
        Anything with ``fit(X)`` and a score method: scikit-learn's isolation forest or
        one-class SVM, a pipeline that ends in one, a PyOD detector.
    higher : {"normal", "novel"}
        What a higher score of the model means. scikit-learn's outlier detectors score
        normal rows higher, PyOD's score novel rows higher.
    method : str
        The score method.

    Examples
    --------
    >>> from sklearn.ensemble import IsolationForest
    >>> OneClass(IsolationForest(random_state=0), higher="normal")
    OneClass(higher='normal', model=IsolationForest(random_state=0))
    """

    def __init__(
        self,
        model: Any,
        higher: Literal["normal", "novel"],
        method: str = "decision_function",
    ) -> None:
        self.model = model
        self.higher = higher
        self.method = method

    def fit_on(self, null_train: Matrix, mixture: Mixture) -> FittedScorer:
        """Fit on null_train alone; the mixture is not looked at."""
        if self.higher not in ("normal", "novel"):
            raise ScorerError(f"OneClass(higher=...) is 'normal' or 'novel', not {self.higher!r}")
        if not hasattr(self.model, "fit"):
            raise ScorerError(f"{_name(self.model)} has no fit method")
        method, sign = self.method, 1.0 if self.higher == "novel" else -1.0
        model = clone(self.model, safe=False).fit(null_train)
        return FittedScorer(
            model, self, lambda fitted, X: sign * getattr(fitted, method)(X), "ordinal"
        )


Scorer: TypeAlias = Any  # a classifier, a pipeline ending in one, or what has fit_on


@dataclass(frozen=True, eq=False)
class FittedScorer:
    """A fitted scikit-learn model seen as a score model.

    `scale` says what its scores are: the probability of the mixture, log-odds of it, or
    just larger for more novel rows.
    """

    estimator: Any
    scorer: Scorer  # what was fitted, for fitting it again on other features
    read: Callable[[Any, Matrix], Vector]
    scale: Literal["probability", "log-odds", "ordinal"]
    weights: Vector | None = None  # what each row of Mixture.rows counted for, if not 1

    @property
    def name(self) -> str:
        """The model in a word, for reports."""
        return _name(self.scorer)

    def score(self, X: Matrix) -> Vector:
        """Score each row; NaN or a wrong shape is an error, never a small p-value."""
        scores = np.asarray(self.read(self.estimator, X), dtype=np.float64)
        if scores.shape != (X.shape[0],) or np.isnan(scores).any():
            raise ScorerError(
                f"{self.name} gave NaN or {scores.shape} scores for {X.shape[0]} rows"
            )
        return scores


@dataclass(frozen=True)
class Selection:
    """Which candidate was chosen, and what each of them achieved."""

    chosen: int
    names: tuple[str, ...]
    rejections: tuple[int, ...]  # of the mixture, ranked among held-out training nulls
    excess: tuple[float, ...]  # breaks ties: most rows above what nulls alone would put on top


def fit_scorer(scorer: Scorer, null_train: Matrix, mixture: Mixture) -> FittedScorer:
    """Fit a scorer: a classifier on null_train (0) against the mixture (1), or a one-class model.

    Parameters
    ----------
    scorer : classifier, pipeline, OneClass or Refined
        Left untouched; a clone is fitted. Anything with ``fit_on(null_train, mixture)``
        says itself how it is fitted.
    null_train : array of shape (k, d)
        Known normals set aside for training, in a fixed order.
    mixture : Mixture
        Calibration and test rows together.
    """
    if hasattr(scorer, "fit_on"):
        fitted: FittedScorer = scorer.fit_on(null_train, mixture)
        return fitted
    _require_classifier(scorer)
    unlabelled = mixture.rows
    labels = np.repeat([0, 1], [len(null_train), len(unlabelled)])
    model = clone(scorer).fit(np.concatenate([null_train, unlabelled]), labels)
    if hasattr(model, "predict_proba"):
        return FittedScorer(
            model, scorer, lambda fitted, X: fitted.predict_proba(X)[:, 1], "probability"
        )
    return FittedScorer(model, scorer, lambda fitted, X: fitted.decision_function(X), "log-odds")


def split_null(
    n: int, train_fraction: Level, seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split n known normals at random into training and calibration positions."""
    fraction = as_level(train_fraction, "train_fraction")
    if n < 2:
        raise SampleError(
            f"X_null has {n} row: at least 2 are needed, one to train and one to calibrate"
        )
    k = min(max(int(fraction * n), 1), n - 1)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:k]), np.sort(order[k:])


def select_scorer(
    candidates: Sequence[Scorer],
    null_train: Matrix,
    mixture: Mixture,
    level: Level,
) -> Selection:
    """Choose a scorer from (null_train, mixture) alone (Marandon et al. 2024, AdaDetect cv).

    Half of null_train plays calibration and the whole mixture plays test: the candidate
    with the most rejections wins; where the held-out nulls are too few to reject anything,
    the one that lifts most rows above the nulls. Which mixture rows are really calibration
    rows is never looked at, so the choice is as invariant as a fit.
    """
    half = len(null_train) // 2
    if half < 1:
        raise InputError(
            f"choosing among {len(candidates)} scorers needs at least 2 training nulls,"
            f" not {len(null_train)}: add known normals or pass a single scorer"
        )
    fit_part, held_out = null_train[:half], null_train[half:]
    unlabelled = np.concatenate([held_out, mixture.rows])
    together = Mixture.of(unlabelled)
    alpha = as_level(level)
    rejections, excess = [], []
    for candidate in candidates:
        scores = together.score(fit_scorer(candidate, fit_part, together))
        ranks = conformal_ranks(scores[: len(held_out)], scores[len(held_out) :])
        rejections.append(step_up([(ranks, len(held_out))], alpha).n_rejected)
        observed = np.cumsum(np.bincount(ranks, minlength=len(held_out) + 2))
        expected = ranks.size * np.arange(observed.size) / (len(held_out) + 1)
        excess.append(float((observed - expected).max()))
    chosen = max(range(len(candidates)), key=lambda i: (rejections[i], excess[i], -i))
    names = tuple(_name(c) for c in candidates)
    return Selection(chosen, names, tuple(rejections), tuple(excess))


def fit_best(
    candidates: Sequence[Scorer], null_train: Matrix, mixture: Mixture, level: Level
) -> tuple[FittedScorer, Selection | None]:
    """Fit the only candidate, or the one that :func:`select_scorer` chooses."""
    if len(candidates) == 1:
        return fit_scorer(candidates[0], null_train, mixture), None
    selection = select_scorer(candidates, null_train, mixture, level)
    return fit_scorer(candidates[selection.chosen], null_train, mixture), selection


def as_candidates(scorer: Scorer | str | list[Scorer | str] | None, seed: int) -> list[Scorer]:
    """Turn the `scorer` argument into seeded candidates."""
    given = scorer if isinstance(scorer, list | tuple) else [scorer]
    if not given:
        raise InputError("scorer is an empty list: name at least one scorer")
    return [
        with_seed(
            default_scorer() if s is None else scorer_by_name(s) if isinstance(s, str) else s, seed
        )
        for s in given
    ]


def with_seed(scorer: Scorer, seed: int) -> Scorer:
    """Clone a scorer and fix every random state it leaves open, nested ones too.

    An open random state would make two runs on the same rows differ.
    """
    if isinstance(scorer, OneClass):
        return OneClass(with_seed(scorer.model, seed), scorer.higher, scorer.method)
    if not hasattr(scorer, "get_params"):
        return scorer
    scorer = clone(scorer)
    open_states = {
        name: seed
        for name, value in scorer.get_params(deep=True).items()
        if (name == "random_state" or name.endswith("__random_state")) and value is None
    }
    return scorer.set_params(**open_states)


def named_scorers() -> Mapping[str, Callable[[], Scorer]]:
    """Scorers that the command line knows by name."""
    from sklearn.ensemble import (  # noqa: PLC0415
        ExtraTreesClassifier,
        HistGradientBoostingClassifier,
        IsolationForest,
        RandomForestClassifier,
    )
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.neural_network import MLPClassifier  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    from conovel.refine import Refined  # noqa: PLC0415

    def extra_trees() -> ExtraTreesClassifier:
        # Chosen by measurement: docs/decisions/0006-default-scorer.md.
        return ExtraTreesClassifier(300, max_depth=12, min_samples_leaf=5)

    def _trees(n_trees: int) -> ExtraTreesClassifier:
        return ExtraTreesClassifier(n_trees, max_depth=8, min_samples_leaf=2)

    return {
        "default": extra_trees,
        "extra-trees": extra_trees,
        # The reference AdaDetect's forest.
        "random-forest": lambda: RandomForestClassifier(100, max_depth=10),
        "boosting": lambda: HistGradientBoostingClassifier(max_iter=100, max_leaf_nodes=8),
        "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "mlp": lambda: make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=300)),
        "refined-trees": lambda: Refined(_trees(100), _trees(100)),
        "refined-linear": lambda: Refined(
            _trees(100), make_pipeline(StandardScaler(), LogisticRegression(C=0.03))
        ),
        "isolation-forest": lambda: OneClass(IsolationForest(n_estimators=200), higher="normal"),
    }


def default_scorer() -> Scorer:
    """Return the scorer used when none is named."""
    return named_scorers()["default"]()


def scorer_by_name(name: str) -> Scorer:
    """Look up a scorer of :func:`named_scorers`."""
    known = named_scorers()
    if name not in known:
        raise ScorerError(f"no scorer is called {name!r}: choose from {', '.join(known)}")
    return known[name]()


def require_probabilities(scorer: Scorer) -> None:
    """Check that a scorer is a classifier whose scores are probabilities."""
    _require_classifier(scorer)
    if not hasattr(scorer, "predict_proba"):
        raise ScorerError(f"{_name(scorer)} has no predict_proba, which this needs")


def _require_classifier(scorer: Scorer) -> None:
    if hasattr(scorer, "__sklearn_tags__") and is_classifier(scorer):
        return
    if hasattr(scorer, "decision_function") or hasattr(scorer, "score_samples"):
        raise ScorerError(
            f"{_name(scorer)} is not a classifier. If it is a one-class model, say which way its"
            " score points: OneClass(model, higher='normal') or OneClass(model, higher='novel')"
        )
    raise ScorerError(
        f"{_name(scorer)} is not a scikit-learn classifier with predict_proba or decision_function"
    )


def _name(estimator: Any) -> str:
    steps = getattr(estimator, "steps", None)
    if steps:
        return " + ".join(_name(step) for _, step in steps)
    if isinstance(estimator, OneClass):
        return _name(estimator.model)
    if hasattr(estimator, "first"):
        return f"Refined {_name(estimator.first)}, {_name(estimator.second or estimator.first)}"
    return type(estimator).__name__
