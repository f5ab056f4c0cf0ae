"""Scikit-learn classifiers as scorers: null_train is class 0, the mixture is class 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from sklearn.base import clone, is_classifier

from conovel.errors import ScorerError
from conovel.scorers.base import FittedScorer, Scorer, TrainingSet, Vector
from conovel.scorers.reading import ProbabilityReader

# What users pass: a Scorer, or a scikit-learn classifier or a pipeline that ends in one.
ScorerLike: TypeAlias = Any


@dataclass(frozen=True, eq=False)
class ClassifierScorer(Scorer):
    """A classifier as a scorer; a clone of it is fitted."""

    classifier: Any

    @property
    def label(self) -> str:
        """The names of the classifier and of the steps before it."""
        return name_of(self.classifier)

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Fit null_train (0) against the mixture (1)."""
        model = clone(self.classifier).fit(*training.labelled())
        return classifier_score(model, self)

    def with_seed(self, seed: int) -> Scorer:
        """Fix every random state that the classifier leaves open, nested ones too."""
        return ClassifierScorer(with_seed(self.classifier, seed))


def as_scorer(scorer: ScorerLike) -> Scorer:
    """Return a scorer as it is, and a classifier as a scorer.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> as_scorer(LogisticRegression()).label
    'LogisticRegression'
    """
    if isinstance(scorer, Scorer):
        return scorer
    require_classifier(scorer)
    return ClassifierScorer(scorer)


def classifier_score(model: Any, scorer: Scorer, weights: Vector | None = None) -> FittedScorer:
    """Return the score of a fitted classifier: its probabilities, else its decision function."""
    if hasattr(model, "predict_proba"):
        read = ProbabilityReader(model)
        return FittedScorer(scorer, read, "probability", model, weights)
    return FittedScorer(scorer, model.decision_function, "log-odds", model, weights)


def with_seed(scorer: ScorerLike, seed: int) -> ScorerLike:
    """Clone a scorer or an estimator with every random state fixed that it leaves open.

    An open random state would make two runs on the same rows differ.
    """
    if isinstance(scorer, Scorer):
        return scorer.with_seed(seed)
    if isinstance(scorer, list | tuple):
        return [with_seed(part, seed) for part in scorer]
    if not hasattr(scorer, "get_params"):
        return scorer
    scorer = clone(scorer)
    open_states = [
        name
        for name, value in scorer.get_params(deep=True).items()
        if value is None and name.rpartition("__")[2] == "random_state"
    ]
    return scorer.set_params(**dict.fromkeys(open_states, seed))


def require_probabilities(scorer: ScorerLike) -> None:
    """Check that a scorer is a classifier whose scores are probabilities."""
    require_classifier(scorer)
    if not hasattr(scorer, "predict_proba"):
        raise ScorerError(f"{name_of(scorer)} has no predict_proba, which this needs")


def require_classifier(scorer: ScorerLike) -> None:
    """Check that something is a scikit-learn classifier."""
    if hasattr(scorer, "__sklearn_tags__") and is_classifier(scorer):
        return
    if hasattr(scorer, "decision_function") or hasattr(scorer, "score_samples"):
        raise ScorerError(
            f"{name_of(scorer)} is not a classifier. If it is a one-class model, say which way its"
            " score points: OneClass(model, higher='normal') or OneClass(model, higher='novel')"
        )
    raise ScorerError(
        f"{name_of(scorer)} is not a scikit-learn classifier with predict_proba or"
        " decision_function"
    )


def name_of(scorer: ScorerLike) -> str:
    """Name a scorer or an estimator in a word or two, for reports."""
    if isinstance(scorer, Scorer):
        return scorer.label
    if hasattr(scorer, "decode"):  # a FrameEstimator
        return name_of(scorer.model)
    steps = getattr(scorer, "steps", None)
    return " + ".join(name_of(step) for _, step in steps) if steps else type(scorer).__name__
