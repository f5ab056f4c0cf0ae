"""Random flat models for the tests of quantizers and bytes, and a slow, plain scorer."""

import dataclasses
import random
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from conovel.models.forest import Forest
from conovel.models.linear import Dense, Linear


def random_forest(seed, n_trees=5, max_depth=4, n_features=3, split=0.8, distinct=None):
    """Return a forest with random shapes; `distinct` numbers are drawn again and again."""
    rng = random.Random(seed)
    link = rng.choice(["mean", "logistic"])
    counts = rng.random() < 0.5  # leaf values that are shares of rows, as in a random forest
    pool = [rng.gauss(0, 1) for _ in range(distinct)] if distinct else None

    def number():
        return rng.choice(pool) if pool else rng.gauss(0, 1)

    def leaf_value():
        if link == "logistic":
            return number()
        if counts:
            n = rng.randrange(1, 400)
            return rng.randrange(n + 1) / n
        return abs(number()) % 1

    feature, threshold, left, value, roots = [], [], [], [], []
    for _ in range(n_trees):
        roots.append(len(feature))
        places = [(len(feature), 0)]
        for array in (feature, threshold, left, value):
            array.append(0)
        while places:
            place, depth = places.pop(rng.randrange(len(places)))
            if depth < max_depth and rng.random() < split:
                feature[place], threshold[place] = rng.randrange(n_features), number()
                left[place] = len(feature)
                places += [(len(feature), depth + 1), (len(feature) + 1, depth + 1)]
                for array in (feature, threshold, left, value):
                    array += [0, 0]
            else:
                feature[place], left[place], value[place] = -1, place, leaf_value()
    return Forest(
        feature=np.array(feature, dtype=np.int32),
        threshold=np.array(threshold, dtype=np.float64),
        left=np.array(left, dtype=np.int32),
        value=np.array(value, dtype=np.float64),
        roots=np.array(roots, dtype=np.int32),
        n_features=n_features,
        link=link,
        base=rng.gauss(0, 1) if link == "logistic" else 0.0,
        single=rng.random() < 0.5,
    )


def forests():
    return st.builds(
        random_forest,
        seed=st.integers(0, 2**32),
        n_trees=st.integers(1, 8),
        max_depth=st.integers(0, 6),
        n_features=st.integers(1, 6),
        split=st.floats(0.3, 1.0),
        distinct=st.sampled_from([None, 2, 5]),
    )


def reordered(model, order):
    """Return a forest with its trees in another order."""
    ends = [*model.roots[1:].tolist(), len(model.feature)]
    parts = [np.arange(model.roots[t], ends[t]) for t in order]
    nodes = np.concatenate(parts)
    place = np.empty(len(nodes), dtype=np.int32)
    place[nodes] = np.arange(len(nodes))
    starts = np.cumsum([0, *map(len, parts[:-1])])
    return dataclasses.replace(
        model,
        feature=model.feature[nodes],
        threshold=model.threshold[nodes],
        left=place[model.left[nodes]],
        value=model.value[nodes],
        roots=starts.astype(np.int32),
    )


def random_network(seed, n_features=4, hidden=(), activation="relu", scaler=True):
    """Return a linear model, or a network with the given hidden layers."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=n_features) if scaler and rng.random() < 0.8 else None
    scale = np.exp(3 * rng.normal(size=n_features)) if scaler and rng.random() < 0.8 else None
    if not hidden:
        return Linear(rng.normal(size=n_features), rng.normal(), centre, scale)
    sizes = list(pairwise((n_features, *hidden, 1)))
    weights = tuple(rng.normal(size=shape) for shape in sizes)
    biases = tuple(rng.normal(size=n_out) for _, n_out in sizes)
    return Dense(weights, biases, activation, centre, scale)


def networks():
    return st.builds(
        random_network,
        seed=st.integers(0, 2**32),
        n_features=st.integers(1, 6),
        hidden=st.lists(st.integers(1, 5), max_size=3).map(tuple),
        activation=st.sampled_from(["identity", "relu", "logistic", "tanh"]),
        scaler=st.booleans(),
    )


def leaf_of(model, number, row):
    """Return the leaf of tree `number` that a row falls into, step by step."""
    node = int(model.roots[number])
    while model.feature[node] >= 0:
        x = row[model.feature[node]]
        x = np.float32(x) if model.single else x
        node = int(model.left[node]) + int(not x <= model.threshold[node])
    return node


def plain_sums(model, X):
    """Return the sums of leaf values, added tree after tree."""
    sums = []
    for row in X:
        total = 0.0
        for number in range(len(model.roots)):
            total += float(model.value[leaf_of(model, number, row)])
        sums.append(total)
    return np.array(sums)


def rows_for(model, seed=0, count=40):
    """Return rows around the thresholds of a forest, some of them exactly on one."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, model.n_features))
    inner = model.feature >= 0
    for f in range(model.n_features):
        own = model.threshold[inner & (model.feature == f)]
        if len(own):
            X[::3, f] = rng.choice(own, size=len(X[::3]))
    return X
