"""Rows and classifiers for tests of scorers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression

from conovel.scorers.base import TrainingSet
from conovel.scorers.estimators import as_scorer
from conovel.site.composite import fit_composite


def samples(seed, n_null=800, n_test=300, n_novel=30, shift=1.2, d=8):
    rng = np.random.default_rng(seed)
    X_null, X_test = rng.normal(size=(n_null, d)), rng.normal(size=(n_test, d))
    X_test[n_test - n_novel :] += shift
    return X_null, X_test


def spying():
    """Return a classifier, and where it notes how many rows it scores that it was fitted on."""
    seen = []

    class Spy(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            self.rows_ = {row.tobytes() for row in X}
            return super().fit(X, y, sample_weight)

        def predict_proba(self, X):
            seen.append(sum(row.tobytes() in self.rows_ for row in X))
            return super().predict_proba(X)

    return Spy, seen


@dataclass(frozen=True, eq=False)
class FunctionScore:
    """A score model given by a function; it does not say that it scores by rows."""

    score: Callable


def fit_scorer(scorer, null_train, mixture):
    """Fit a scorer or a classifier on these rows."""
    return as_scorer(scorer).fit(TrainingSet(null_train, mixture))


def composite_scores(composite, local, surrogates, null_train, mixture):
    """Score the rows of a mixture by a composite."""
    found = fit_composite(composite, local, surrogates, TrainingSet(null_train, mixture))
    return mixture.score(found.model)


def both_sides(seed, n_null=600, n_test=240, n_novel=40, d=6):
    """Novelties on both sides of the normals: a linear score cannot see them."""
    rng = np.random.default_rng(seed)
    X_null, X_test = rng.normal(size=(n_null, d)), rng.normal(size=(n_test, d))
    X_test[n_test - n_novel :] += rng.choice([-2.5, 2.5], size=(n_novel, 1))
    return X_null, X_test
