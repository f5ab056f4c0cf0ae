"""Write the golden files of a new version of the format.

Run ``python tests/golden/make.py`` from the root of the repository. Files of a version that
has been released are never written again: readers out there depend on them.
"""

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from random_models import random_forest  # noqa: E402

from conovel.quantize import per_feature, uniform  # noqa: E402
from conovel.wire import encode  # noqa: E402


def models():
    """Return one model of each kind that version 1 knows, by name."""
    small = random_forest(1, n_trees=20, max_depth=3, n_features=6)
    deep = random_forest(2, n_trees=5, max_depth=12, n_features=4, split=0.9)
    leaves = random_forest(3, n_trees=4, max_depth=0, n_features=2)
    repeated = random_forest(4, n_trees=12, max_depth=5, n_features=3, distinct=5)
    return {
        "forest-exact": small,
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


def rows(n_features):
    """Return rows on a coarse grid, without a random generator that might change."""
    return [[((7 * i + 3 * j * j) % 25 - 12) / 5 for j in range(n_features)] for i in range(12)]


def main():
    """Write every model and its scores."""
    for name, model in models().items():
        (HERE / f"{name}.cnv").write_bytes(encode(model))
        X = rows(model.n_features)
        scores = [float.hex(s) for s in model.score(np.array(X)).tolist()]
        text = json.dumps({"rows": X, "scores": scores}, indent=1) + "\n"
        (HERE / f"{name}.json").write_text(text)


if __name__ == "__main__":
    main()
