"""Breiman's random forest, grown by compiled loops straight into a flat model.

Every feature is sorted once for all trees; a node then only scans lists that are in order
already and parts them. On a few hundred rows, where scikit-learn spends most of its time around
the trees rather than in them, a forest of 100 trees takes milliseconds; on many, a sixth of
scikit-learn's time. The trees are those of its CART (Gini, midpoints, features drawn for each
node, bootstrap, leaves that hold the share of class 1): where nothing is drawn, they are equal
(tests/scorers/test_compiled_forest.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from conovel.models.forest import Forest
from conovel.models.trees import round_down
from conovel.scorers.base import FittedScorer, Matrix, Scorer, TrainingSet

_NO_LIMIT = 1 << 20


@dataclass(frozen=True, eq=False)
class CompiledForest(Scorer):
    """A random forest as a scorer."""

    n_trees: int = 100
    max_depth: int | None = None
    # Features tried at each node; None is the square root of their number
    max_features: int | None = None
    bootstrap: bool = True
    random_state: int | None = None
    # Threads, -1 for one on each core. Then every tree has random numbers of its own, and the
    # forest is the same for any number of threads. None draws for one tree after another.
    n_jobs: int | None = None

    label = "CompiledForest"

    def with_seed(self, seed: int) -> Scorer:
        """Fix the random state, unless it is fixed already."""
        return self if self.random_state is not None else replace(self, random_state=seed)

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Fit null_train (0) against the mixture (1)."""
        forest = self.grow(*training.labelled())
        return FittedScorer(self, forest.score, "probability", forest)

    def grow(self, X: Matrix, y: NDArray[np.integer]) -> Forest:
        """Grow the forest on rows of two classes."""
        d, is_novel = X.shape[1], y.astype(np.uint8)
        columns = np.ascontiguousarray(X.T, dtype=np.float32)
        order = np.argsort(columns, axis=1, kind="stable").astype(np.int32)
        from conovel.scorers.compiled_forest_loops import grow  # noqa: PLC0415

        def trees(n_trees: int, seed: np.uint64) -> tuple[Any, ...]:
            return grow(  # type: ignore[no-any-return]
                columns,
                order,
                is_novel,
                n_trees,
                _NO_LIMIT if self.max_depth is None else self.max_depth,
                max(int(d**0.5), 1) if self.max_features is None else self.max_features,
                self.bootstrap,
                seed,
            )

        source = np.random.SeedSequence(self.random_state)
        if self.n_jobs is None:
            parts = [trees(self.n_trees, source.generate_state(1, np.uint64)[0])]
        else:
            threads = Parallel(self.n_jobs, require="sharedmem")
            seeds = source.generate_state(self.n_trees, np.uint64)
            parts = threads(delayed(trees)(1, seed) for seed in seeds)
        return _join(parts, d)


def _join(parts: Sequence[tuple[Any, ...]], d: int) -> Forest:
    """Put trees that count their nodes from 0 one behind the other."""
    sizes = [len(part[0]) for part in parts]
    before = np.concatenate([[0], np.cumsum(sizes[:-1])]).astype(np.int64)
    feature, threshold, left, value, roots = map(np.concatenate, zip(*parts, strict=True))
    n_roots = [len(part[-1]) for part in parts]
    return Forest(
        feature,
        round_down(threshold),
        left + np.repeat(before, sizes),
        value,
        roots + np.repeat(before, n_roots),
        d,
    )
