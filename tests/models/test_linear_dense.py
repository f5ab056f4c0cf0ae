"""Flat regressions and networks: the formula, row by row, and nothing that can change."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.errors import ColumnError, ModelError, SampleError
from conovel.models.linear import Dense, Linear

ACTIVATIONS = {
    "relu": lambda z: np.maximum(z, 0),
    "tanh": np.tanh,
    "logistic": lambda z: 1 / (1 + np.exp(-z)),
    "identity": lambda z: z,
}


def random_scaler(rng, d):
    centre, scale = rng.normal(size=d), rng.uniform(0.1, 9, size=d)
    return (centre if rng.random() < 0.7 else None), (scale if rng.random() < 0.7 else None)


def random_linear(rng):
    d = rng.integers(1, 30)
    return Linear(rng.normal(size=d), rng.normal(), *random_scaler(rng, d))


def random_dense(rng):
    widths = [*rng.integers(1, 20, size=rng.integers(1, 4)), 1]
    shapes = list(pairwise(widths))
    weights = tuple(rng.normal(size=shape) for shape in shapes)
    biases = tuple(rng.normal(size=out) for _, out in shapes)
    return Dense(weights, biases, rng.choice(list(ACTIVATIONS)), *random_scaler(rng, widths[0]))


def probability(model, X):
    z = X if model.centre is None else X - model.centre
    z = z if model.scale is None else z / model.scale
    if isinstance(model, Linear):
        return 1 / (1 + np.exp(-(z @ model.coef + model.intercept)))
    *hidden, (weight, bias) = zip(model.weights, model.biases, strict=True)
    for w, b in hidden:
        z = ACTIVATIONS[model.activation](z @ w + b)
    return 1 / (1 + np.exp(-(z @ weight + bias)[:, 0]))


models = st.builds(
    lambda make, seed: make(np.random.default_rng(seed)),
    st.sampled_from([random_linear, random_dense]),
    st.integers(0, 2**32 - 1),
)


class TestScore:
    @given(models, st.integers(0, 2**32 - 1))
    def test_is_the_formula(self, model, seed):
        X = np.random.default_rng(seed).normal(size=(7, model.n_features))
        assert model.score(X) == pytest.approx(probability(model, X), rel=1e-9, abs=1e-300)

    @given(models, st.integers(0, 2**32 - 1), st.integers(1, 40))
    def test_of_a_row_does_not_depend_on_the_others(self, model, seed, n):
        rng = np.random.default_rng(seed)
        X = rng.normal(scale=3, size=(n, model.n_features))
        order = rng.permutation(n)
        scores = model.score(X)
        assert np.array_equal(model.score(X[order]), scores[order])
        assert np.array_equal(model.score(np.asfortranarray(X)), scores)
        assert [model.score(row[np.newaxis])[0] for row in X] == scores.tolist()
        assert np.all((scores >= 0) & (scores <= 1))

    @given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=4))
    def test_stays_in_range_when_products_overflow(self, numbers):
        a, b, c, x = numbers
        scale = [1e-300, 1e-300]
        for model in (
            Linear([a, b], c, None, scale),
            *(Dense(([[a, b], [b, c]], [[a], [c]]), ([a, b], [c]), name) for name in ACTIVATIONS),
        ):
            scores = model.score([[x, x], [x, -x]])
            assert np.all((scores >= 0) & (scores <= 1))

    def test_of_a_sum_that_says_nothing_is_one_half(self):
        model = Linear([1e308, 1e308], 0.0)
        assert model.score([[1e10, -1e10]]).tolist() == [0.5]
        assert model.score([[1e10, 0.0], [-1e10, 0.0]]).tolist() == [1.0, 0.0]

    @pytest.mark.parametrize("model", [Linear([1, 2], 0), Dense(([[1], [2]],), ([0],), "relu")])
    def test_needs_checked_rows(self, model):
        with pytest.raises(SampleError, match="2 columns"):
            model.score([[1.0]])
        with pytest.raises(ColumnError, match="nan in column 1"):
            model.score([[1.0, np.nan]])


class TestArrays:
    @given(models)
    def test_cannot_be_changed(self, model):
        arrays = [model.coef] if isinstance(model, Linear) else [*model.weights, *model.biases]
        arrays += [part for part in (model.centre, model.scale) if part is not None]
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        with pytest.raises(dataclasses.FrozenInstanceError):
            model.centre = None

    def test_are_copies(self):
        coef = np.ones(2)
        model = Linear(coef, 0.0)
        coef[0] = 9
        assert model.coef.tolist() == [1, 1]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (dict(coef=[]), "coef must be"),
            (dict(coef=[[1.0, 2.0]]), "coef must be"),
            (dict(coef=[1.0, np.nan]), "coef must be finite"),
            (dict(intercept=np.inf), "intercept must be finite"),
            (dict(centre=[1.0]), "needs 2 numbers"),
            (dict(scale=[1.0, 0.0]), "scale must be positive"),
            (dict(scale=[1.0, 1.0, 1.0]), "needs 2 numbers"),
        ],
    )
    def test_of_a_regression_must_make_sense(self, change, message):
        with pytest.raises(ModelError, match=message):
            Linear(**{**dict(coef=[1.0, 2.0], intercept=0.0), **change})

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (dict(weights=(), biases=()), "at least one layer"),
            (dict(weights=([1.0],), biases=([0.0],)), "matrix of weights"),
            (dict(weights=([[1.0, 1.0]], [[1.0]]), biases=([0, 0], [0])), "as many inputs"),
            (dict(weights=([[1.0, 1.0]],), biases=([0, 0],)), "one output"),
            (dict(biases=([0.0, 0.0],)), "one bias per output"),
            (dict(biases=()), "one bias per output"),
            (dict(weights=([[np.inf]],)), "weights must be finite"),
            (dict(activation="softmax"), "one of relu, tanh, logistic, identity"),
            (dict(scale=[-1.0]), "scale must be positive"),
        ],
    )
    def test_of_a_network_must_make_sense(self, change, message):
        whole = dict(weights=([[1.0]],), biases=([0.0],), activation="relu")
        with pytest.raises(ModelError, match=message):
            Dense(**{**whole, **change})
