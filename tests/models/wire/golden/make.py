"""Write the golden files of a new version of the format.

Run ``PYTHONPATH=. python models/wire/golden/make.py`` in the folder of the tests. Files of a
version that has been released are never written again: readers out there depend on them.
"""

import json
from pathlib import Path

import numpy as np
from support.random_models import random_forest, random_network

from conovel.models.quantized.forest import per_feature, uniform
from conovel.models.wire import decode, describe, encode

HERE = Path(__file__).parent


def models():
    """Return one model of each kind that version 1 knows, by name."""
    small = pruned(1, n_trees=20, max_depth=3, n_features=6)
    deep = pruned(3, n_trees=5, max_depth=12, n_features=4, split=0.9)
    leaves = pruned(5, n_trees=4, max_depth=0, n_features=2)
    repeated = pruned(4, n_trees=12, max_depth=5, n_features=3, distinct=5)
    fractions = pruned(8, n_trees=12, max_depth=4, n_features=3)
    linear = random_network(1, n_features=5)
    dense = random_network(2, n_features=5, hidden=(4, 3), activation="tanh")
    return {
        "linear-exact": linear,
        "linear-6-bit": uniform(linear, 6),
        "dense-exact": dense,
        "dense-4-bit": uniform(dense, 4),
        "forest-exact": small,
        "forest-exact-fractions": fractions,
        "forest-exact-deep": deep,
        "forest-exact-repeated": repeated,
        "forest-1-bit": uniform(deep, 1),
        "forest-4-bit": uniform(small, 4),
        "forest-16-bit": uniform(small, 16),
        "forest-compact": per_feature(small, 4, 3),
        "forest-compact-deep": per_feature(deep, 6, 5),
        "forest-leaves": uniform(leaves, 4),
        "forest-leaves-compact": per_feature(leaves, 4, 3),
    }


def pruned(seed, **settings):
    """Return a random forest without branches that no row can reach."""
    return decode(encode(random_forest(seed, **settings)))


def rows(n_features):
    """Return rows on a coarse grid, without a random generator that might change."""
    return [[((7 * i + 3 * j * j) % 25 - 12) / 5 for j in range(n_features)] for i in range(12)]


def main():
    """Write every model and its scores."""
    for name, model in models().items():
        (HERE / f"{name}.cnv").write_bytes(encode(model))
        X = rows(model.n_features)
        scores = [float.hex(s) for s in model.score(np.array(X)).tolist()]
        averages = getattr(model, "link", None) == "mean"
        if describe(model)["bits"] is None and not averages:
            scores = None  # an exact model uses the logistic function of the platform
        text = json.dumps({"rows": X, "scores": scores}, indent=1) + "\n"
        (HERE / f"{name}.json").write_text(text)


if __name__ == "__main__":
    main()
