"""Trees as flat arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Forest:
    """An immutable ensemble of binary trees; node arrays are concatenated over the trees.

    A row goes left where ``x[feature] <= threshold``. The right child stands next to the
    left one, and a leaf points to itself.
    """

    feature: NDArray[np.int32]  # (n_nodes,), -1 at a leaf
    threshold: NDArray[np.float64]  # (n_nodes,), 0 at a leaf
    left: NDArray[np.int32]  # (n_nodes,), the right child is left + 1
    value: NDArray[np.float64]  # (n_nodes,), 0 inside
    roots: NDArray[np.int32]  # (n_trees,)
    n_features: int
    link: Literal["mean", "logistic"] = "mean"  # sum / n_trees, or expit(base + sum)
    base: float = 0.0
    single: bool = True  # features are rounded to float32 before they are compared
