"""Contributions of columns, against Shapley values from their definition."""

from itertools import combinations
from math import factorial

import numpy as np
import pytest
from support.random_models import random_forest

from conovel.models.linear import Linear
from conovel.models.shares import column_shares


def added_score(model, X):
    """Return the score on the scale on which the model adds."""
    score = model.score(X)
    is_mean = getattr(model, "link", "logistic") == "mean"
    return score if is_mean else np.log(score) - np.log1p(-score)


def by_definition(model, x, background):
    d = len(x)

    def worth(coalition):
        hybrids = background.copy()
        hybrids[:, list(coalition)] = x[list(coalition)]
        return added_score(model, hybrids).mean()

    found = np.zeros(d)
    for j in range(d):
        for size in range(d):
            weight = factorial(size) * factorial(d - size - 1) / factorial(d)
            for others in combinations([k for k in range(d) if k != j], size):
                found[j] += weight * (worth((*others, j)) - worth(others))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_contributions_of_a_forest_are_shapley_values(seed):
    rng = np.random.default_rng(seed)
    forest = random_forest(seed, n_features=4, max_depth=6)
    X, background = rng.normal(size=(5, 4)), rng.normal(size=(3, 4))
    wanted = [by_definition(forest, x, background) for x in X]
    np.testing.assert_allclose(column_shares(forest, X, background), wanted, atol=1e-12)


def test_contributions_of_a_linear_model_are_shapley_values():
    rng = np.random.default_rng(0)
    model = Linear(rng.normal(size=4), 0.3, rng.normal(size=4), rng.uniform(1, 2, size=4))
    X, background = rng.normal(size=(5, 4)), rng.normal(size=(3, 4))
    wanted = [by_definition(model, x, background) for x in X]
    np.testing.assert_allclose(column_shares(model, X, background), wanted, atol=1e-12)


def test_deep_paths_of_many_columns():
    """More conditions on a path than a machine word has bits."""
    rng = np.random.default_rng(1)
    depth = 70
    feature, threshold, left, value = [], [], [], []
    for k in range(depth):  # a chain: each split has a leaf to its left
        feature += [k, -1]
        threshold += [0.0, 0.0]
        left += [2 * k + 1, 2 * k + 1]
        value += [0.0, 0.5 / (k + 1)]
    # The layout needs siblings side by side: node 2k has the children 2k + 1 and 2k + 2.
    feature.append(-1)
    threshold.append(0.0)
    left.append(2 * depth)
    value.append(1.0)
    from conovel.models.forest import Forest

    chain = Forest(feature, threshold, left, value, [0], n_features=depth)
    X, background = np.ones((2, depth)), rng.normal(size=(3, depth))
    X[1, 35:] = -1
    found = column_shares(chain, X, background)
    wanted = chain.score(X) - chain.score(background).mean()
    np.testing.assert_allclose(found.sum(axis=1), wanted, atol=1e-12)


def test_agrees_with_shap():
    """The same numbers as the package shap computes."""
    shap = pytest.importorskip("shap")
    from sklearn.ensemble import RandomForestClassifier

    from conovel.scorers.from_sklearn import to_flat

    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 5)).astype(np.float32).astype(np.float64)
    model = RandomForestClassifier(10, max_depth=5, random_state=0).fit(X, X[:, 0] * X[:, 1] > 0)
    theirs = shap.TreeExplainer(model, X[:8], feature_perturbation="interventional")
    wanted = theirs.shap_values(X[8:30], check_additivity=False)[..., 1]
    np.testing.assert_allclose(column_shares(to_flat(model), X[8:30], X[:8]), wanted, atol=1e-6)
