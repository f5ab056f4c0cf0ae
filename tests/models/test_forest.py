"""The flat forest: what it accepts, how it scores, and that nothing can change it."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.errors import ColumnError, ModelError, SampleError
from conovel.models.forest import Forest
from conovel.models.trees import Tree, join_trees, round_down

STUMP = dict(
    feature=[0, -1, -1],
    threshold=[0.5, 0, 0],
    left=[1, 1, 2],
    value=[0, 0.1, 0.8],
    roots=[0],
    n_features=2,
)


@st.composite
def forests(draw):
    """Forests of scattered node order whose thresholds come from a few numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d = draw(st.integers(1, 3))
    thresholds = rng.normal(size=draw(st.integers(1, 4)))
    trees = []
    for n_splits in draw(st.lists(st.integers(0, 90), min_size=1, max_size=4)):
        n = 2 * n_splits + 1
        left, right = np.full(n, -1), np.full(n, -1)
        places, leaves = list(1 + rng.permutation(n - 1)), [0]
        for _ in range(n_splits):
            node = leaves.pop(rng.integers(len(leaves)))
            left[node], right[node] = places.pop(), places.pop()
            leaves += [left[node], right[node]]
        feature, threshold = rng.integers(d, size=n), rng.choice(thresholds, size=n)
        trees.append(Tree(feature, threshold, left, right, rng.random(n)))
    link = draw(st.sampled_from(["mean", "logistic"]))
    base = float(rng.normal()) if link == "logistic" else 0.0
    return trees, join_trees(trees, d, link, base, single=draw(st.booleans()))


def rows_around(rng, forest, n=12):
    """Rows on the thresholds, one float next to them in either precision, and elsewhere."""
    t = np.append(rng.normal(size=3), np.concatenate(forest.edges))
    s = t.astype(np.float32)
    near = [t, np.nextafter(t, np.inf), np.nextafter(t, -np.inf)]
    near += [s, np.nextafter(s, np.float32(np.inf)), np.nextafter(s, np.float32(-np.inf))]
    return rng.choice(np.concatenate(near).astype(np.float64), size=(n, forest.n_features))


def score_by_hand(trees, forest, row):
    row = row.astype(np.float32).astype(np.float64) if forest.single else row
    total = forest.base
    for tree in trees:
        node = 0
        while tree.left[node] >= 0:
            left = row[tree.feature[node]] <= tree.threshold[node]
            node = (tree.left if left else tree.right)[node]
        total += tree.value[node]
    return total / len(trees) if forest.link == "mean" else 1 / (1 + np.exp(-total))


class TestScore:
    @given(forests(), st.integers(0, 2**32 - 1))
    def test_is_that_of_walking_the_trees(self, drawn, seed):
        trees, forest = drawn
        X = rows_around(np.random.default_rng(seed), forest)
        expected = [score_by_hand(trees, forest, row) for row in X]
        if forest.link == "mean":
            assert forest.score(X).tolist() == expected
        else:
            assert forest.score(X) == pytest.approx(expected, rel=1e-15, abs=0)

    @given(forests(), st.integers(0, 2**32 - 1))
    def test_of_a_row_does_not_depend_on_the_others(self, drawn, seed):
        _, forest = drawn
        rng = np.random.default_rng(seed)
        X = rows_around(rng, forest)
        order = rng.permutation(len(X))
        scores = forest.score(X)
        assert np.array_equal(forest.score(X[order]), scores[order])
        assert [forest.score(row[np.newaxis])[0] for row in X] == scores.tolist()
        assert np.all((scores >= 0) & (scores <= 1))

    def test_rounds_to_single_precision_only_where_it_should(self):
        x = [[np.nextafter(0.5, 1), 0.0]]
        assert Forest(**STUMP).score(x) == [0.1]
        assert Forest(**STUMP, single=False).score(x) == [0.8]

    def test_is_defined_beyond_single_precision(self):
        assert Forest(**STUMP).score([[1e300, 0], [-1e300, 0]]).tolist() == [0.8, 0.1]

    def test_of_no_rows_is_empty(self):
        assert Forest(**STUMP).score(np.empty((0, 2))).shape == (0,)

    @pytest.mark.parametrize("X", [[[1.0]], [1.0, 2.0], [[1.0, 2.0, 3.0]], [[[1.0, 2.0]]]])
    def test_needs_the_right_shape(self, X):
        with pytest.raises(SampleError, match="2 columns"):
            Forest(**STUMP).score(X)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_needs_finite_rows(self, bad):
        with pytest.raises(ColumnError, match=r"row 1 has .* in column 0"):
            Forest(**STUMP).score([[0.0, 0.0], [bad, 0.0]])

    def test_needs_numbers(self):
        with pytest.raises(ColumnError, match="numbers only"):
            Forest(**STUMP).score([["a", "b"]])


class TestArrays:
    def test_cannot_be_changed(self):
        mine = np.array(STUMP["threshold"])
        forest = Forest(**{**STUMP, "threshold": mine})
        mine[0] = 9.0
        assert forest.threshold[0] == 0.5
        arrays = [getattr(forest, name) for name in ("feature", "threshold", "left", "value")]
        for array in (*arrays, forest.roots, forest.depths, forest.threshold_code, *forest.edges):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        with pytest.raises(dataclasses.FrozenInstanceError):
            forest.base = 1.0

    def test_have_their_types(self):
        forest = Forest(**STUMP)
        assert forest.feature.dtype == forest.left.dtype == forest.roots.dtype == np.int32
        assert forest.threshold.dtype == forest.value.dtype == np.float64
        assert forest.n_trees == 1
        assert forest.depths.tolist() == [1]

    @given(forests())
    def test_codes_stand_for_the_thresholds(self, drawn):
        _, forest = drawn
        for f, t, c in zip(forest.feature, forest.threshold, forest.threshold_code, strict=True):
            if f >= 0:
                assert forest.edges[f][c] == t
        assert all(np.all(np.diff(edges) > 0) for edges in forest.edges)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (dict(threshold=[np.nan, 0, 0]), "threshold must be finite"),
            (dict(value=[0, np.inf, 0]), "value must be finite"),
            (dict(feature=[0.5, -1, -1]), "feature must be whole"),
            (dict(left=[1, 1, 2 + 2**32]), "left must be whole"),
            (dict(feature=["0", "-1", "-1"]), "feature must be finite numbers"),
            (dict(threshold=[0.5, 0]), "one entry per node"),
            (dict(value=[[0, 0.1, 0.8]]), "one entry per node"),
            (dict(roots=[]), "first node"),
            (dict(threshold=[0.5, 1, 0]), "leaves must have threshold 0"),
            (dict(value=[0.5, 0.1, 0.8]), "inner nodes value 0"),
            (dict(value=[0, -0.1, 0.8]), "from 0 to 1"),
            (dict(value=[0, 0.1, 1.1]), "from 0 to 1"),
            (dict(base=1.0), "base 0"),
            (dict(link="sum"), "'mean' or 'logistic'"),
            (dict(link="logistic", base=np.nan), "base must be finite"),
            (dict(n_features=1, feature=[1, -1, -1]), "from 0 to 0"),
            (dict(n_features=0), "at least one feature"),
        ],
    )
    def test_must_make_sense(self, change, message):
        with pytest.raises(ModelError, match=message):
            Forest(**{**STUMP, **change})

    def test_come_from_trees_only(self):
        with pytest.raises(ModelError, match="at least one tree"):
            join_trees([], 1)
        loop = Tree(*map(np.array, ([0, -1], [0.0, 0], [0, -1], [1, -1], [0.0, 1])))
        with pytest.raises(ModelError, match="its own descendant"):
            join_trees([loop], 1)


class TestRoundDown:
    @given(st.floats(-1e38, 1e38))
    def test_keeps_every_decision_about_float32(self, t):
        rounded = round_down(np.array([t]))[0]
        assert rounded == np.float32(rounded)
        x = np.float32(rounded)
        for near in (x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))):
            assert (float(near) <= t) == (float(near) <= rounded)

    def test_differs_from_rounding_to_the_nearest(self):
        t = np.array([0.1])
        assert round_down(t) < t < np.float32(0.1)
