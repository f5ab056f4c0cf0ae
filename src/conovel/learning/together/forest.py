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
from conovel.learning.together.rounds import Settings
from conovel.scorers.base import Vector

# Candidates that are compared: 150 trees of depth 8 stay below the 16 MiB of a message.
_MOST_TRIED = 26
_CLOSEST = 1e-6
_PLAIN_SHRINKAGE = 10.0  # of trees that do not see discriminants
Whole = NDArray[np.int64]


@dataclass(eq=False)
class Forest:
    """Trees as far as they are grown, the same at all parties.

    Parameters
    ----------
    n_bins : sequence of int
        Bins of each column.
    shares : array
        How often each column is drawn, relative to the others; never, if it is zero.
    n_trees, depth, least : int
        `least` is the smallest number of rows of a side of a split.
    seed : int
    shrinkage : float
        As many rows the share of a parent counts for.
    first : int
        The number of the first tree: trees of other numbers are drawn otherwise.
    weight : int
        What a row of the second kind counts for, where its share is concerned.
    more : int
        How many times as many candidates as usual are compared.
    """

    n_bins: tuple[int, ...]
    shares: Vector
    n_trees: int
    depth: int
    least: int
    seed: int
    shrinkage: float = 50.0
    first: int = 0
    weight: int = 1
    more: int = 1
    level: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        n_nodes = 2 ** (self.depth + 1)
        shape = (self.n_trees, n_nodes)
        self.column = np.full(shape, -1, dtype=np.int64)
        self.cut, self.left = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self.value = np.zeros(shape)
        self.counts = np.zeros((*shape, 2), dtype=np.int64)
        self._used = np.ones(self.n_trees, dtype=np.int64)
        self._trees = self._nodes = np.zeros(0, dtype=np.int64)  # that are open, tree by tree
        self._cumulated = np.cumsum(self.shares / self.shares.sum())
        self._lowest = np.zeros((*shape, len(self.n_bins)), dtype=np.int16)
        self._highest = np.zeros_like(self._lowest)
        self._highest[:, 0] = np.array(self.n_bins) - 1
        n_drawn = np.count_nonzero(self.shares)
        self.n_tried = min(max(1, int(np.sqrt(n_drawn)) * self.more), _MOST_TRIED)
        self.candidates: Whole = np.zeros((0, 2 * self.n_tried, 2), dtype=np.int64)

    def begin(self, n_null: int, n_mixture: int) -> None:
        """Open the roots: all rows of all agents."""
        self.counts[:, 0] = n_null, n_mixture
        n_mixture *= self.weight
        self.value[:, 0] = n_mixture / max(n_null + n_mixture, 1)
        self._open_nodes(np.arange(self.n_trees), np.zeros(self.n_trees, dtype=np.int64))

    @property
    def is_grown(self) -> bool:
        """Whether no node is left to split."""
        return self.level == self.depth or self._nodes.size == 0

    @property
    def n_numbers(self) -> int:
        """How many counts an agent sends for this level."""
        return 2 * self.candidates[..., 0].size

    def count(self, codes: Whole, is_mixture: NDArray[np.bool_], nodes: Whole) -> Whole:
        """Count an agent's rows for every candidate of this level."""
        counts = np.zeros((*self.candidates.shape[:2], 2), dtype=np.int64)
        count_left(codes, is_mixture, nodes, self.places(), self.candidates, counts)
        return counts.ravel()

    def places(self) -> Whole:
        """Return the line in `candidates` of each open node of each tree, -1 of all others."""
        places = np.full(self.column.shape, -1, dtype=np.int64)
        places[self._trees, self._nodes] = np.arange(self._nodes.size)
        return places

    def split(self, totals: Whole) -> None:
        """Split the open nodes by the totals of all agents, and open their children."""
        lefts = totals.reshape(*self.candidates.shape[:2], 2)
        parents = self.counts[self._trees, self._nodes]
        if np.any(lefts > parents[:, None]):
            raise ValueError("a side of a split has more rows than its node")
        best = self._best(parents, lefts)
        at = np.flatnonzero(best >= 0)
        trees, nodes, chosen = self._trees[at], self._nodes[at], best[at]
        column, cut = self.candidates[at, chosen].T
        # Nodes are listed tree by tree: the k-th split of a tree gets the k-th pair of places.
        first = np.searchsorted(trees, trees)
        child = self._used[trees] + 2 * (np.arange(at.size) - first)
        np.add.at(self._used, trees, 2)
        self.column[trees, nodes], self.cut[trees, nodes] = column, cut
        self.left[trees, nodes] = child
        parent, left = parents[at], lefts[at, chosen]
        for side, own in enumerate((left, parent - left)):
            self.counts[trees, child + side] = own
            self._lowest[trees, child + side] = self._lowest[trees, nodes]
            self._highest[trees, child + side] = self._highest[trees, nodes]
            # Hierarchical shrinkage: a step counts less where the parent has few rows.
            n_rows = parent.sum(axis=1)
            step = self._share(own) - self._share(parent)
            shrunken = self.value[trees, nodes] + step / (1 + self.shrinkage / n_rows)
            self.value[trees, child + side] = shrunken
        self._highest[trees, child, column] = cut
        self._lowest[trees, child + 1, column] = cut + 1
        self.level += 1
        self._open_nodes(np.repeat(trees, 2), np.stack([child, child + 1], axis=1).ravel())

    def _share(self, counts: Whole) -> Vector:
        """Return the share of rows of the second kind, by their weight."""
        second = counts[:, 1] * self.weight
        share: Vector = second / (counts[:, 0] + second)
        return share

    def move(self, codes: Whole, nodes: Whole) -> None:
        """Move an agent's rows to the nodes that the last level made."""
        move_down(codes, nodes, self.column, self.cut, self.left)

    def score(self, codes: Whole) -> Vector:
        """Return the log-odds of the mean share of mixture rows in the leaves of each row."""
        share = add_leaves(codes, self.column, self.cut, self.left, self.value)
        share = np.clip(share, _CLOSEST, 1 - _CLOSEST)  # where all rows are of one kind
        odds: Vector = np.log(share / (1 - share))
        return odds

    def _open_nodes(self, trees: Whole, nodes: Whole) -> None:
        enough = self.counts[trees, nodes].sum(axis=1) >= 2 * self.least
        enough &= self.level < self.depth
        self._trees, self._nodes = trees[enough], nodes[enough]
        self.candidates = np.zeros((self._nodes.size, 2 * self.n_tried, 2), dtype=np.int64)
        box = (some[self._trees, self._nodes] for some in (self._lowest, self._highest))
        draw(
            np.uint64(self.seed),
            self._trees + self.first,
            self._nodes,
            self._cumulated,
            *box,
            self.candidates,
        )

    def _best(self, parents: Whole, lefts: Whole) -> Whole:
        """Return the best of the first candidates that leave enough rows on both sides, or -1.

        By Gini's criterion: how much the two sides leave of null · mixture / rows. The first of
        equal ones is taken.
        """
        rights = parents[:, None] - lefts
        fewest = np.minimum(lefts.sum(axis=2), rights.sum(axis=2))
        valid = (self.candidates[..., 0] >= 0) & (fewest >= self.least)
        valid &= np.cumsum(valid, axis=1) <= self.n_tried
        left, right = (side * np.array([1.0, self.weight]) for side in (lefts, rights))
        n_left, n_right = left.sum(axis=2), right.sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            rest = left.prod(axis=2) / n_left + right.prod(axis=2) / n_right
        rest[~valid] = np.inf
        return np.where(valid.any(axis=1), rest.argmin(axis=1), -1)


def forests_of(
    n_bins: tuple[int, ...], shares: Vector, size: Settings, seed: int, n_hidden: int
) -> tuple[Forest, ...]:
    """Return a forest that draws all columns, and one without the last ones if any are hidden."""
    fixed = size.depth, size.least, seed
    first = Forest(n_bins, shares, size.n_trees, *fixed)
    if not n_hidden or not size.n_plain_trees:
        return (first,)
    plain = np.append(shares[:-n_hidden], np.zeros(n_hidden))
    return first, Forest(
        n_bins, plain, size.n_plain_trees, *fixed, _PLAIN_SHRINKAGE, first=size.n_trees
    )
