"""Write the corpus: one small model of each family, for the fuzzer to start from.

Run ``python -m fuzz.seeds`` from the root of the repository. Small models keep a run short,
and a change of one byte then matters.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from conovel.models.forest import Forest
from conovel.models.linear import Dense, Linear
from conovel.models.quantized.forest import per_feature, uniform
from conovel.models.wire import encode

CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    """Write every seed."""
    stumps = Forest(
        feature=[0, -1, -1, 1, -1, -1],
        threshold=[0.5, 0, 0, -1.25, 0, 0],
        left=[1, 1, 2, 4, 4, 5],
        value=[0, 0.1, 0.8, 0, 0.9, 0.3],
        roots=[0, 3],
        n_features=2,
    )
    tree = Forest(
        feature=[0, 1, 0, -1, -1, -1, 2, -1, -1],
        threshold=[0.5, 0.1, 1.5, 0, 0, 0, -1, 0, 0],
        left=[1, 3, 5, 3, 4, 5, 7, 7, 8],
        value=[0, 0, 0, -1.5, 0.25, 2, 0, -0.5, 1],
        roots=[0],
        n_features=3,
        link="logistic",
        base=0.125,
        single=False,
    )
    leaves = Forest([-1, -1], [0, 0], [0, 1], [0.25, 0.75], [0, 1], n_features=1)
    linear = Linear([1.0, -0.3], 0.1, centre=[0.5, 2.0], scale=[1.0, 8.0])
    dense = Dense(
        (np.array([[1.0, -1.0], [0.5, 0.25]]), np.array([[1.0], [-2.0]])),
        (np.array([0.0, 1.0]), np.array([0.5])),
        "tanh",
        centre=np.array([0.5, 2.0]),
    )
    flat = {"stumps": stumps, "tree": tree, "leaves": leaves, "linear": linear, "dense": dense}
    for name, model in flat.items():
        (CORPUS / f"{name}-exact.cnv").write_bytes(encode(model))
        for bits in (1, 4, 12):
            (CORPUS / f"{name}-{bits}.cnv").write_bytes(encode(uniform(model, bits)))
    for name in ("stumps", "tree", "leaves"):
        (CORPUS / f"{name}-compact.cnv").write_bytes(encode(per_feature(flat[name], 4, 3)))


if __name__ == "__main__":
    main()
