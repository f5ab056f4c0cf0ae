"""The loops that score trees, against counting and walking one row at a time."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.errors import ModelError
from conovel.models.forest import Prepared, check_trees, tree_depths
from conovel.models.loops import bin_loop, jit

STUMP = tuple(map(np.array, ([0, -1, -1], [0, 0, 0], [1, 1, 2], [0, 3, 5], [0])))


def codes_of(X, edges, single=False):
    """Count, for every value, the edges of its feature that lie strictly below it."""
    prepared = Prepared.of(edges, *STUMP)
    columns = np.empty(X.shape[::-1], prepared.trees.bound.dtype)
    bin_loop(np.ascontiguousarray(X), single, prepared.buckets, columns)
    return columns.T


def sums_of(codes, n_codes, feature, code, left, leaf, roots, start=0):
    """Add up leaf values for rows whose values are codes: one edge lies above each code."""
    edges = [np.arange(n_codes) + 0.5] * codes.shape[1]
    prepared = Prepared.of(edges, feature, code, left, leaf, roots)
    return prepared.sums(codes.astype(float), start)


def random_trees(rng, sizes, n_features, n_codes):
    """Grow trees of the given numbers of splits, a random leaf at a time."""
    feature, code, left, roots = [], [], [], []
    for n_splits in sizes:
        root = len(left)
        roots.append(root)
        feature.append(-1)
        left.append(root)
        code.append(0)
        leaves = [root]
        for _ in range(n_splits):
            node = leaves.pop(rng.integers(len(leaves)))
            feature[node] = rng.integers(n_features)
            code[node] = rng.integers(n_codes)
            left[node] = len(left)
            for _ in range(2):
                leaves.append(len(left))
                feature.append(-1)
                code.append(0)
                left.append(len(left))
    return tuple(np.array(part, dtype=np.int32) for part in (feature, code, left, roots))


def sums_by_hand(codes, feature, code, left, leaf, roots, start):
    sums = []
    for row in codes:
        total = start
        for root in roots:
            node = root
            while feature[node] >= 0:
                node = left[node] + (row[feature[node]] > code[node])
            total = total + leaf[node]
        sums.append(total)
    return np.array(sums, dtype=leaf.dtype)


class TestBinning:
    @pytest.mark.parametrize(
        ("n_edges", "dtype"),
        [(0, "uint8"), (1, "uint8"), (255, "uint8"), (256, "uint16"), (70_000, "uint32")],
    )
    def test_counts_the_edges_below(self, n_edges, dtype):
        rng = np.random.default_rng(n_edges)
        edges = np.unique(rng.normal(size=n_edges))
        around = np.concatenate(
            [edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf), [-np.inf, np.inf]]
        )
        X = np.stack([around, rng.permutation(around)], axis=1)
        codes = codes_of(X, [edges, edges[:1]])
        assert codes.dtype == dtype
        assert np.array_equal(codes[:, 0], np.searchsorted(np.sort(edges), X[:, 0]))
        if n_edges:
            assert np.array_equal(codes[:, 1], (X[:, 1] > edges[0]).astype(int))
            c = len(edges) // 2
            assert np.array_equal(X[:, 0] <= edges[c], codes[:, 0] <= c)

    @given(
        st.lists(st.floats(-4, 4), max_size=40, unique=True),
        st.lists(st.floats(-5, 5), max_size=40),
    )
    def test_is_the_plain_count(self, edges, values):
        edges = np.unique(np.array(edges))
        codes = codes_of(np.reshape(values, (-1, 1)), [edges])
        assert codes[:, 0].tolist() == [sum(edge < value for edge in edges) for value in values]

    @given(st.data())
    def test_is_the_plain_count_however_the_edges_lie(self, data):
        """Clusters, gaps of all sizes and infinities; values next to the edges."""
        wild = st.floats(allow_nan=False) | st.integers(-20, 20).map(lambda k: 1 + k * 2.0**-52)
        edges = np.unique(data.draw(st.lists(wild, max_size=60)))
        more = np.array(data.draw(st.lists(wild, max_size=20)))
        with np.errstate(over="ignore"):
            near = [np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)]
        values = np.concatenate([edges, *near, more, [-np.inf, np.inf, 0.0]])
        codes = codes_of(values[:, None], [edges])
        assert np.array_equal(codes[:, 0], np.searchsorted(edges, values, side="left"))

    def test_many_rows_and_any_layout(self):
        X = np.random.default_rng(0).normal(size=(1300, 3))
        edges = [np.array([-1.0, 0.0]), np.empty(0), np.array([0.5])]
        expected = np.stack([(X[:, [f]] > edges[f]).sum(axis=1) for f in range(3)], axis=1)
        for layout in (X, np.asfortranarray(X), X[::-1][::-1]):
            assert np.array_equal(codes_of(layout, edges), expected)

    def test_rounds_to_single_precision_where_asked(self):
        edge = float(np.float32(0.1))
        X = np.array([[edge], [np.nextafter(edge, 1)], [0.1], [np.nextafter(edge, -1)], [1e300]])
        edges = [np.array([np.nextafter(np.float32(0.1), np.float32(-1)), edge], dtype=float)]
        assert codes_of(X, edges)[:, 0].tolist() == [1, 2, 1, 1, 2]
        assert codes_of(X, edges, single=True)[:, 0].tolist() == [1, 1, 1, 1, 2]


class TestSums:
    @pytest.mark.parametrize("n_codes", [200, 300, 70_000])
    @pytest.mark.parametrize("leaf_type", [np.int64, np.float64])
    @pytest.mark.parametrize(
        "sizes",
        [[0], [1], [3] * 20, [63, 63], [64, 64], [200], [3, 0, 90, 63, 64, 2, 300, 1]],
        ids=str,
    )
    def test_are_those_of_walking_by_hand(self, n_codes, leaf_type, sizes):
        rng = np.random.default_rng(sum(sizes))
        feature, code, left, roots = random_trees(rng, sizes, 4, n_codes)
        leaf = rng.normal(scale=1e3, size=len(left)).astype(leaf_type)
        codes = rng.integers(n_codes + 1, size=(700, 4))
        start = leaf_type(7)
        sums = sums_of(codes, n_codes, feature, code, left, leaf, roots, start)
        assert sums.dtype == leaf_type
        assert np.array_equal(sums, sums_by_hand(codes, feature, code, left, leaf, roots, start))

    def test_reach_the_largest_code(self):
        feature, _, left, leaf, roots = STUMP
        codes, cuts = np.array([[254], [255]]), np.array([254, 0, 0])
        assert sums_of(codes, 255, feature, cuts, left, leaf, roots).tolist() == [3, 5]

    def test_accept_read_only_arrays(self):
        rng = np.random.default_rng(0)
        codes = rng.integers(9, size=(50, 2))
        arrays = random_trees(rng, [5, 5], 2, 8)
        leaf = rng.integers(9, size=len(arrays[0]))
        for array in (codes, *arrays, leaf):
            array.flags.writeable = False
        feature, code, left, roots = arrays
        sums = sums_of(codes, 9, feature, code, left, leaf, roots)
        assert np.array_equal(sums, sums_by_hand(codes, feature, code, left, leaf, roots, 0))


class TestTrees:
    @given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
    def test_depths_are_those_of_the_longest_path(self, sizes, seed):
        feature, _, left, roots = random_trees(np.random.default_rng(seed), sizes, 2, 4)
        check_trees(feature, left, roots, n_features=2)

        def depth(node):
            if feature[node] < 0:
                return 0
            return 1 + max(depth(left[node]), depth(left[node] + 1))

        assert tree_depths(left, roots).tolist() == [depth(root) for root in roots]

    @pytest.mark.parametrize(
        ("feature", "left", "roots", "message"),
        [
            ([-1], [0], [], "first node"),
            ([-1, -1], [0, 1], [1], "first node"),
            ([-1], [0, 1], [0], "first node"),
            ([-1, -1], [0, 1], [0, 0], "increase"),
            ([-1, -1], [0, 1], [0, 2], "among the nodes"),
            ([2, -1, -1], [1, 1, 2], [0], "from 0 to 1"),
            ([-2, -1, -1], [1, 1, 2], [0], "leaves have -1"),
            ([-1, -1, -1], [1, 1, 2], [0], "inner nodes need"),
            ([0, 0, -1], [1, 1, 2], [0], "leaves have -1"),
            ([0, 0, -1], [1, 0, 2], [0], "follow their parent"),
            ([0, -1, -1], [2, 1, 2], [0], "follow their parent"),
            ([0, -1, -1], [1, 1, 2], [0, 2], "inside the same tree"),
            ([0, -1, -1], [-1, 1, 2], [0], "follow their parent"),
            ([-1, -1], [0, 1], [0], "exactly one"),
            ([0, 0, -1, -1], [1, 2, 2, 3], [0], "exactly one"),
        ],
    )
    def test_any_other_arrangement_is_refused(self, feature, left, roots, message):
        with pytest.raises(ModelError, match=message):
            check_trees(*(np.array(part, dtype=int) for part in (feature, left, roots)), 2)


class TestNumba:
    def test_is_not_loaded_before_rows_are_scored(self):
        program = (
            "import sys; import conovel; from conovel.models.forest import Forest;"
            "Forest([0, -1, -1], [0, 0, 0], [1, 1, 2], [0, 0, 1], [0], 1);"
            "sys.exit('numba' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

    def test_may_have_nowhere_to_cache(self, monkeypatch):
        def njit(source, cache=False, **options):
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return source

        monkeypatch.setattr("numba.njit", njit)
        assert jit(codes_of) is codes_of
