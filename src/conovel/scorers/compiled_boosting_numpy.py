"""What :mod:`conovel.scorers.compiled_boosting_loops` does, by numpy, with the same bits.

It takes about as long as scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.models.portable_math import expit
from conovel.scorers.base import Matrix, Vector
from conovel.scorers.bins import Bins

_LOSS_UNIT = float(2**30)


def boost(
    bins: Bins,
    weights: Vector,
    y: NDArray[np.uint8],
    watched: NDArray[np.intp],
    limits: tuple[int, int, float, float],
    patience: int,
    raw: Vector,
    stages: Matrix,
    n_trees: int,
) -> tuple[NDArray[Any], ...]:
    """Return feature, cut, left, value and roots; `raw` and `stages` are written."""
    starts = np.cumsum([0, *(len(edges) + 1 for edges in bins.edges)])
    codes = bins.columns.astype(np.int64) + starts[:-1, np.newaxis]
    used, unused = np.flatnonzero(weights > 0), np.flatnonzero(weights == 0)
    nodes: list[tuple[NDArray[Any], ...]] = []
    roots: list[int] = []
    kept, best_loss, size = 0, -1, 0
    kept_raw = raw.copy()
    chance = expit(raw)
    for tree in range(n_trees):
        slopes = np.rint((chance - y) * weights)
        curves = np.maximum(np.rint(chance * (1.0 - chance) * weights), 1.0)
        grower = _Grower(bins, codes, starts, slopes, curves, limits)
        feature, cut, left, value = grower.grow(used)
        for node, rows in grower.leaves.items():
            raw[rows] += value[node]
        at = np.zeros(unused.size, np.int64)
        while (feature[at] >= 0).any():  # a leaf leads to itself
            goes_right = bins.columns[feature[at], unused] > cut[at]
            at = left[at] + ((feature[at] >= 0) & goes_right)
        raw[unused] += value[at]
        chance = expit(raw)
        nodes.append((feature, cut, left + size, value))
        roots.append(size)
        size += feature.size
        if len(stages):
            stages[tree] = raw
        away = chance[watched] - y[watched]
        loss = int(np.rint(away * away * _LOSS_UNIT).astype(np.int64).sum())
        if watched.size == 0 or best_loss < 0 or loss < best_loss:
            kept, best_loss = tree + 1, loss
            kept_raw[:] = raw
        elif tree + 1 - kept >= patience:
            break
    raw[:] = kept_raw
    joined = [np.concatenate(arrays) for arrays in zip(*nodes[:kept], strict=True)]
    return *joined, np.array(roots[:kept], np.int32)


@dataclass
class _Leaf:
    """A node that may still be split: its rows and what it gains."""

    rows: NDArray[np.intp]
    slope: float
    curve: float
    sums: Matrix = field(
        default_factory=lambda: np.empty((3, 0))
    )  # by bins: slopes, curvatures, rows
    gain: float = 0.0
    feature: int = -1
    cut: int = 0


class _Grower:
    """Grows one tree, the leaf that gains most split first."""

    def __init__(
        self,
        bins: Bins,
        codes: NDArray[np.int64],
        starts: NDArray[np.int64],
        slopes: Vector,
        curves: Vector,
        limits: tuple[int, int, float, float],
    ) -> None:
        self.columns, self.codes, self.starts = bins.columns, codes, starts
        self.slopes, self.curves = slopes, curves
        self.max_leaves, self.least, self.l2, self.rate = limits
        self.owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        self.leaves: dict[int, NDArray[np.intp]] = {}

    def grow(self, rows: NDArray[np.intp]) -> tuple[NDArray[Any], ...]:
        """Return feature, cut, left and value."""
        root = self._leaf(rows)
        if self.max_leaves > 1 and rows.size >= 2 * self.least:
            root.sums = self._sums(rows)
            self._find(root)
        nodes, left = [root], {}
        for n_leaves in range(2, self.max_leaves + 1):
            gains = [0.0 if k in left else node.gain for k, node in enumerate(nodes)]
            best = int(np.argmax(gains))
            if gains[best] <= 0:
                break
            left[best] = len(nodes)
            nodes.extend(self._split(nodes[best], last=n_leaves == self.max_leaves))
        self.leaves = {k: node.rows for k, node in enumerate(nodes) if k not in left}
        feature = [nodes[k].feature if k in left else -1 for k in range(len(nodes))]
        cut = [nodes[k].cut if k in left else 0 for k in range(len(nodes))]
        value = [
            0.0 if k in left else -self.rate * node.slope / (node.curve + self.l2)
            for k, node in enumerate(nodes)
        ]
        children = [left.get(k, k) for k in range(len(nodes))]
        return np.array(feature), np.array(cut), np.array(children), np.array(value)

    def _leaf(self, rows: NDArray[np.intp]) -> _Leaf:
        return _Leaf(rows, float(self.slopes[rows].sum()), float(self.curves[rows].sum()))

    def _split(self, node: _Leaf, *, last: bool) -> tuple[_Leaf, _Leaf]:
        goes_left = self.columns[node.feature, node.rows] <= node.cut
        children = self._leaf(node.rows[goes_left]), self._leaf(node.rows[~goes_left])
        small, large = sorted(children, key=lambda leaf: leaf.rows.size)
        if not last and large.rows.size >= 2 * self.least:
            small.sums = self._sums(small.rows)
            large.sums = node.sums - small.sums
            for child in children:
                if child.rows.size >= 2 * self.least:
                    self._find(child)
        return children

    def _sums(self, rows: NDArray[np.intp]) -> Matrix:
        """Add up by bins; all sums are whole numbers below 2^53, hence exact."""
        codes, d = self.codes[:, rows].ravel(), len(self.starts) - 1
        parts = (
            np.bincount(codes, np.tile(values[rows], d), self.starts[-1])
            for values in (self.slopes, self.curves, np.ones_like(self.slopes))
        )
        return np.stack(list(parts))

    def _find(self, node: _Leaf) -> None:
        """Set the feature and the bin of the best split, and what it gains."""
        before = np.cumsum(node.sums, axis=1) - node.sums
        left = (before - before[:, self.starts[self.owner]])[:, 1:]  # below each bin
        slope, curve, n_left = left
        curve_left, curve_right = curve + self.l2, (node.curve - curve) + self.l2
        slope_right = node.slope - slope
        allowed = (n_left >= self.least) & (node.rows.size - n_left >= self.least)
        allowed &= self.owner[1:] == self.owner[:-1]
        both = slope * slope * curve_right + slope_right * slope_right * curve_left
        gain = np.where(allowed, both / np.where(allowed, curve_left * curve_right, 1.0), -1.0)
        alone = node.slope * node.slope / (node.curve + self.l2)
        best = int(np.argmax(gain)) if gain.size else 0
        if gain.size and gain[best] > alone:
            node.gain = float(gain[best] - alone)
            filled = np.flatnonzero(node.sums[2])
            there = np.searchsorted(filled, best, side="right")
            node.feature = int(self.owner[best])
            start = self.starts[node.feature]
            node.cut = int((filled[there - 1] + filled[there] - 2 * start - 1) // 2)
