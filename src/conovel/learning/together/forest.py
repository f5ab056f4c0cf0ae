"""Trees that agents grow together: one round of counts for one level of all trees.

The trees tell null_train from the mixture. At every node the seed draws candidates, a column and a
bin each; agents count how many of their rows of either kind are at or below it; the totals decide.
A side of a split holds at least `least` rows of all agents together. The value of a node is its
share of mixture rows, shrunken towards that of its parent (Agarwal et al. 2022, "Hierarchical
shrinkage"), so that deep trees do not learn single rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from conovel.learning.together.loops import add_leaves, count_left, draw, move_down
from conovel.scorers.base import Vector

_SHRINKAGE = 50.0  # rows that the parent's share counts for
Whole = NDArray[np.int64]


@dataclass(eq=False)
class Forest:
    """Trees as far as they are grown, the same at all parties.

    Parameters
    ----------
    n_bins : sequence of int
        Bins of each column.
    shares : array
        How often each column is drawn, relative to the others.
    n_trees, depth, least : int
        `least` is the smallest number of rows of a side of a split.
    seed : int
    """

    n_bins: tuple[int, ...]
    shares: Vector
    n_trees: int
    depth: int
    least: int
    seed: int
    level: int = 0
    _open: list[tuple[int, int]] = field(default_factory=list)  # (tree, node) of this level

    def __post_init__(self) -> None:
        n_nodes = 2 ** (self.depth + 1)
        shape = (self.n_trees, n_nodes)
        self.column = np.full(shape, -1, dtype=np.int64)
        self.cut, self.left = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self.value = np.zeros(shape)
        self.counts = np.zeros((*shape, 2), dtype=np.int64)
        self._used = np.ones(self.n_trees, dtype=np.int64)
        self._cumulated = np.cumsum(self.shares / self.shares.sum())
        self._lowest = np.zeros((*shape, len(self.n_bins)), dtype=np.int16)
        self._highest = np.zeros_like(self._lowest)
        self._highest[:, 0] = np.array(self.n_bins) - 1
        self.n_tried = max(1, int(np.sqrt(len(self.n_bins))))
        self.candidates: Whole = np.zeros((0, 2 * self.n_tried, 2), dtype=np.int64)

    def begin(self, n_null: int, n_mixture: int) -> None:
        """Open the roots: all rows of all agents."""
        self.counts[:, 0] = n_null, n_mixture
        self.value[:, 0] = n_mixture / max(n_null + n_mixture, 1)
        self._open_nodes([(tree, 0) for tree in range(self.n_trees)])

    @property
    def is_grown(self) -> bool:
        """Whether no node is left to split."""
        return self.level == self.depth or not self._open

    @property
    def n_numbers(self) -> int:
        """How many counts an agent sends for this level."""
        return 2 * self.candidates[..., 0].size

    def count(self, codes: Whole, is_mixture: NDArray[np.bool_], nodes: Whole) -> Whole:
        """Count an agent's rows for every candidate of this level."""
        places = np.full(self.column.shape, -1, dtype=np.int64)
        for place, (tree, node) in enumerate(self._open):
            places[tree, node] = place
        counts = np.zeros((*self.candidates.shape[:2], 2), dtype=np.int64)
        count_left(codes, is_mixture, nodes, places, self.candidates, counts)
        return counts.ravel()

    def split(self, totals: Whole) -> None:
        """Split the open nodes by the totals of all agents, and open their children."""
        counts = totals.reshape(*self.candidates.shape[:2], 2)
        children: list[tuple[int, int]] = []
        for place, (tree, node) in enumerate(self._open):
            best = self._best(self.counts[tree, node], counts[place], self.candidates[place])
            if best is None:
                continue
            column, cut = (int(n) for n in self.candidates[place, best])
            child = int(self._used[tree])
            self._used[tree] += 2
            self.column[tree, node], self.cut[tree, node] = column, cut
            self.left[tree, node] = child
            parent = self.counts[tree, node]
            for side, own in enumerate((counts[place, best], parent - counts[place, best])):
                self.counts[tree, child + side] = own
                self._lowest[tree, child + side] = self._lowest[tree, node]
                self._highest[tree, child + side] = self._highest[tree, node]
                self.value[tree, child + side] = self._shrunken(tree, node, own)
                children.append((tree, child + side))
            self._highest[tree, child, column] = cut
            self._lowest[tree, child + 1, column] = cut + 1
        self.level += 1
        self._open_nodes(children)

    def move(self, codes: Whole, nodes: Whole) -> None:
        """Move an agent's rows to the nodes that the last level made."""
        move_down(codes, nodes, self.column, self.cut, self.left)

    def score(self, codes: Whole) -> Vector:
        """Return the log-odds of the mean share of mixture rows in the leaves of each row."""
        share = add_leaves(codes, self.column, self.cut, self.left, self.value)
        odds: Vector = np.log(share / (1 - share))
        return odds

    def _open_nodes(self, nodes: list[tuple[int, int]]) -> None:
        self._open = [
            (tree, node)
            for tree, node in nodes
            if self.level < self.depth and self.counts[tree, node].sum() >= 2 * self.least
        ]
        self.candidates = np.zeros((len(self._open), 2 * self.n_tried, 2), dtype=np.int64)
        for place, (tree, node) in enumerate(self._open):
            box = self._lowest[tree, node], self._highest[tree, node]
            draw(np.uint64(self.seed), tree, node, self._cumulated, *box, self.candidates[place])

    def _shrunken(self, tree: int, parent: int, own: Whole) -> float:
        null, mixture = self.counts[tree, parent]
        step = own[1] / own.sum() - mixture / (null + mixture)
        return float(self.value[tree, parent] + step / (1 + _SHRINKAGE / (null + mixture)))

    def _best(self, parent: Whole, lefts: Whole, candidates: Whole) -> int | None:
        """Return the best of the first candidates that leave enough rows on both sides."""
        best, largest, n_valid = None, -1.0, 0
        null, mixture = (float(n) for n in parent)
        for place in range(len(lefts)):
            a, b = (float(n) for n in lefts[place])
            if candidates[place, 0] < 0 or min(a + b, null + mixture - a - b) < self.least:
                continue
            # Gini's criterion: what the two sides leave of null · mixture / rows.
            right = (null - a) * (mixture - b) / (null + mixture - a - b)
            gain = null * mixture / (null + mixture) - a * b / (a + b) - right
            n_valid += 1
            if gain > largest:
                best, largest = place, gain
            if n_valid == self.n_tried:
                break
        return best
