"""Grids, pruning and quantized forests."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_models import (
    forests,
    networks,
    plain_sums,
    random_forest,
    random_network,
    reordered,
    rows_for,
)

from conovel.errors import InputError, ModelError
from conovel.models import linear as elementary
from conovel.models.forest import Forest
from conovel.models.linear import Linear
from conovel.models.quantized.dense import Coded, QuantizedDense
from conovel.models.quantized.forest import (
    LEAF,
    depth,
    flatten,
    per_feature,
    prune,
    quantized_forest,
    uniform,
)
from conovel.models.quantized.grids import MAX_INDEX, Lattice, SharedGrids, Uniform

finite = st.floats(-1e6, 1e6, width=32)
numbers = st.lists(finite, min_size=1, max_size=20)
bits = st.integers(1, 16)


@given(numbers, bits)
def test_uniform_takes_the_nearest_of_equally_spaced_numbers(values, width):
    grid = Uniform.over(values, width)
    levels = grid.values()
    assert len(levels) == grid.n_codes in (1, 2**width)
    assert levels[0] == grid.low
    assert levels[-1] == pytest.approx(grid.high, abs=1e-15 * (grid.high - grid.low))
    assert (np.diff(levels) > 0).all()
    assert (grid.codes(levels) == np.arange(grid.n_codes)).all()
    error = np.abs(levels[grid.codes(values)] - values)
    step = (grid.high - grid.low) / max(grid.n_codes - 1, 1)
    assert (error <= step * (0.5 + 1e-9)).all()


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=20), bits)
def test_lattice_takes_the_nearest_multiple_of_a_round_step(values, width):
    lattice = Lattice.over(values, width)
    levels = lattice.values()
    assert len(levels) == 2**width
    assert abs(lattice.first) + 2**width <= MAX_INDEX
    step = math.ldexp(8 + lattice.step % 8, lattice.step // 8 - 131)
    assert (levels == [(lattice.first + c) * step for c in range(2**width)]).all()
    assert (np.diff(levels) > 0).all()
    assert (np.abs(levels[lattice.codes(values)] - values) <= step / 2).all()


@pytest.mark.parametrize("shift", [0.0, 3.0, 1e3, 1e6])
def test_lattice_wastes_little(shift):
    """A step is at most an eighth larger than that of the min-max grid."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        values = shift + rng.normal(size=30)
        lattice = Lattice.over(values, 4)
        step = math.ldexp(8 + lattice.step % 8, lattice.step // 8 - 131)
        assert step <= 9 / 8 * np.ptp(values) / 15


def test_paper_quantizer_in_one_line():
    model = random_forest(3, n_trees=4)
    inner = model.feature >= 0
    for width in (1, 2, 4, 6):
        t = model.threshold[inner]
        steps = 2**width - 1
        paper = t.min() + np.rint((t - t.min()) / np.ptp(t) * steps) * np.ptp(t) / steps
        grid = Uniform.over(t, width)
        np.testing.assert_allclose(grid.values()[grid.codes(t)], paper, atol=1e-6)


def quantized_by_hand(model, quantized):
    """Replace the numbers of a forest by those their codes stand for; prune nothing."""
    threshold, value = model.threshold.copy(), model.value.copy()
    for f in set(model.feature.tolist()) - {LEAF}:
        if f in quantized.feature:
            grid, at = quantized.grids.of(f), model.feature == f
            threshold[at] = grid.values()[grid.codes(model.threshold[at])]
    leaves = quantized.grids.leaves
    value[model.feature == LEAF] = leaves.values()[leaves.codes(value[model.feature == LEAF])]
    changed = {"threshold": threshold, "value": value, "single": False}
    return SimpleNamespace(**{**vars(model), **changed})


@given(forests(), st.sampled_from(["uniform", "per_feature"]), st.integers(1, 8))
def test_score_is_that_of_the_unpruned_forest(model, quantizer, width):
    if quantizer == "uniform":
        quantized = uniform(model, width)
    else:
        quantized = per_feature(model, width, max(width - 1, 1))
    by_hand = quantized_by_hand(model, quantized)
    if not set(by_hand.feature.tolist()) - {LEAF} <= set(quantized.feature.tolist()):
        return  # a feature was pruned away with its grid
    X = rows_for(by_hand)
    sums = plain_sums(by_hand, X)
    if model.link == "mean":
        expected = sums / len(model.roots)
    else:
        expected = 1 / (1 + np.exp(-(model.base + sums)))
    np.testing.assert_allclose(quantized.score(X), expected, rtol=1e-5, atol=1e-6)


@given(forests(), st.integers(1, 3))
def test_quantized_trees_are_pruned(model, width):
    for tree in uniform(model, width).trees:
        places = [{}]
        for i, (feature, code) in enumerate(tree):
            bounds = places.pop()
            if feature == LEAF:
                continue
            low, high = bounds.get(feature, (0, 2**width - 1))
            assert low <= code <= high
            places.append({**bounds, feature: (code + 1, high)})
            places.append({**bounds, feature: (low, code - 1)})
            if tree[i + 1][0] == LEAF and tree[i + 2][0] == LEAF:
                assert tree[i + 1] != tree[i + 2]


@given(forests(), st.integers(1, 6), st.randoms(use_true_random=False))
def test_order_of_trees_does_not_matter(model, width, rng):
    order = list(range(len(model.roots)))
    rng.shuffle(order)
    shuffled = reordered(model, order)
    assert uniform(shuffled, width).trees == uniform(model, width).trees


@given(forests())
def test_arrays_and_trees_are_the_same_thing(model):
    quantized = uniform(model, 4)
    arrays = flatten(quantized.trees)
    for mine, theirs in zip(arrays, (quantized.feature, quantized.code), strict=False):
        assert (mine == theirs).all()
    assert prune(*arrays) == quantized.trees
    assert max(map(depth, quantized.trees)) <= 6


def test_merging_goes_all_the_way_up():
    feature, code, left = [0, 1, -1, -1, -1], [3, 5, 1, 1, 1], [1, 3, 2, 3, 4]
    assert prune(*map(np.array, (feature, code, left, [0]))) == [[(LEAF, 1)]]


def test_deep_trees_do_not_overflow_the_stack():
    n = 5000
    feature = [i % 7 if i % 2 == 0 else -1 for i in range(2 * n)] + [-1]
    left = [i + 1 if f >= 0 else i for i, f in enumerate(feature)]
    # A chain to the right: node 0 splits into 1 (leaf) and 2, which splits again.
    code = [i // 2 if f >= 0 else i for i, f in enumerate(feature)]
    (tree,) = prune(*map(np.array, (feature, code, left, [0])))
    assert depth(tree) == n
    assert len(tree) == 2 * n + 1


def test_given_lattices_are_used():
    model = random_forest(5, n_features=2)
    lattice = Lattice(step=1024, first=-4, bits=3)  # -4, -3, …, 3
    quantized = per_feature(model, 3, 2, grids={0: lattice, 1: lattice})
    assert quantized.grids.of(0) == lattice
    with pytest.raises(InputError, match="feature 1"):
        per_feature(model, 3, 2, grids={0: lattice})
    with pytest.raises(InputError, match="4 bits"):
        per_feature(model, 4, 2, grids={0: lattice, 1: lattice})


@pytest.mark.parametrize("width", [0, 17, -1])
def test_bits_out_of_range(width):
    with pytest.raises(InputError, match="1 to 16"):
        uniform(random_forest(0), width)
    with pytest.raises(InputError, match="1 to 16"):
        per_feature(random_forest(0), 4, width)


def test_numbers_without_a_grid_are_refused():
    with pytest.raises(ModelError, match="single"):
        Uniform.over([0.0, 1e39], 4)
    with pytest.raises(ModelError, match="lattice"):
        Lattice.over([0.0, 1e50], 4)
    assert Lattice.over([0.0, 4e39], 4).values()[-1] == pytest.approx(4e39, rel=0.1)
    small = SharedGrids(Uniform(0.0, 1.0, 1), Uniform(0.0, 2.0, 1))
    with pytest.raises(ModelError, match="averages"):
        quantized_forest([[(LEAF, 1)]], 1, small)
    quantized_forest([[(LEAF, 1)]], 1, small, "logistic")


@given(networks(), st.integers(8, 16))
def test_quantized_networks_score_alike(model, width):
    X = np.random.default_rng(0).normal(size=(30, model.n_features))
    if model.scale is not None:
        X = X * model.scale
    if model.centre is not None:
        X = X + model.centre
    error = np.abs(uniform(model, width).score(X) - model.score(X))
    assert error.max() <= 30 * 2.0**-width


def test_linear_weights_are_the_papers_grid():
    """Without a scaler, a quantized linear model is the min-max grid and nothing else."""
    model = random_network(1, n_features=6, scaler=False)
    quantized = uniform(model, 3)
    step = np.ptp(model.coef) / 7
    grid = model.coef.min() + np.rint((model.coef - model.coef.min()) / step) * step
    np.testing.assert_allclose(quantized.weights[0].numbers()[:, 0], grid, rtol=1e-6)
    assert quantized.biases[0].numbers()[0] == np.float32(model.intercept)
    assert set(quantized.exponents) == set(quantized.shifts) == {0}


def test_features_of_any_unit_share_a_grid():
    """Multiplying a feature by a power of two changes its exponent and nothing else."""
    coef, centre, scale = np.array([1.0, -2.0]), np.array([0.5, 3.0]), np.array([1.1, 0.8])
    unit = np.array([2.0**40, 1.0])
    plain = uniform(Linear(coef, 0.5, centre, scale), 4)
    other = uniform(Linear(coef, 0.5, centre * unit, scale * unit), 4)
    assert [o - p for o, p in zip(other.exponents, plain.exponents, strict=True)] == [40, 0]
    X = np.random.default_rng(0).normal(size=(20, 2))
    assert (plain.score(X) == other.score(X * unit)).all()


def test_hostile_weights_cannot_overflow():
    big = Coded(np.array([[0, 1], [1, 0]]), Uniform(-3e38, 3e38, 1))
    last = Coded(np.array([[0], [1]]), Uniform(-3e38, 3e38, 1))
    bias = Coded(np.array([0, 1]), Uniform(-3e38, 3e38, 1))
    one = Coded(np.array([0]), Uniform(1.0, 1.0, 1))
    X = np.array([[1e308, -1e308], [0.0, 1.0]])
    for activation in ("identity", "relu", "logistic", "tanh"):
        model = QuantizedDense(
            (-128, -128), (0, 0), (big,) * 7 + (last,), (bias,) * 7 + (one,), activation
        )
        with np.errstate(all="raise", under="ignore", over="ignore"):
            assert np.isfinite(model.score(X)).all()


def test_quantized_forests_are_immutable():
    quantized = uniform(random_forest(0), 4)
    with pytest.raises(ValueError, match="read-only"):
        quantized.code[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        quantized.base = 1.0


def test_a_forest_of_leaves():
    model = Forest(
        feature=np.array([-1, -1], dtype=np.int32),
        threshold=np.zeros(2),
        left=np.array([0, 1], dtype=np.int32),
        value=np.array([0.25, 0.75]),
        roots=np.array([0, 1], dtype=np.int32),
        n_features=3,
    )
    for quantized in (uniform(model, 4), per_feature(model, 4, 3)):
        score = quantized.score(np.zeros((2, 3)))
        assert score[0] == score[1] == pytest.approx(0.5, abs=0.04)


@given(st.floats(-1e4, 1e4))
def test_elementary_functions(x):
    logistic = 1 / (1 + math.exp(-x)) if x > -700 else 0.0
    assert elementary.expit(np.array([x]))[0] == pytest.approx(logistic, rel=1e-14, abs=1e-300)
    assert elementary.tanh(np.array([x]))[0] == pytest.approx(math.tanh(x), rel=1e-9, abs=1e-15)


def test_elementary_functions_have_fixed_bits():
    x = np.array([-20.0, -1.5, -1e-3, 0.0, 0.1, 1.0, 3.7, 30.0])
    assert [float.hex(v) for v in elementary.expit(x)] == [
        "0x1.1b4865556b5d4p-29",
        "0x1.759b8355a1bafp-3",
        "0x1.ffbe76c90fd9ap-2",
        "0x1.0000000000000p-1",
        "0x1.0cca12729afb8p-1",
        "0x1.764d4f5d5a2bdp-1",
        "0x1.f3a59f801f582p-1",
        "0x1.ffffffffffcb6p-1",
    ]
    assert [float.hex(v) for v in elementary.tanh(x)] == [
        "-0x1.0000000000000p+0",
        "-0x1.cf6f9786df578p-1",
        "-0x1.0624d77516cc6p-10",
        "0x0.0p+0",
        "0x1.983d7795f413cp-4",
        "0x1.85efab514f394p-1",
        "0x1.ff5fdc948488cp-1",
        "0x1.0000000000000p+0",
    ]
    steps = elementary.expit(np.linspace(-40, 40, 100_001))
    assert (np.diff(steps) >= 0).all()


@given(forests(), st.integers(1, 16))
def test_edges_are_the_thresholds_in_use(model, width):
    """A grid of 16 bits has 65,536 numbers for each feature; scoring needs those in use."""
    quantized = uniform(model, width)
    for f, edges in enumerate(quantized.edges):
        at = quantized.feature == f
        levels = quantized.grids.thresholds.values()
        assert edges.tolist() == levels[np.unique(quantized.code[at])].tolist()
        assert (edges[quantized.threshold_code[at]] == levels[quantized.code[at]]).all()
