"""Bytes of a forest: pickle, joblib, skops, ONNX, treelite and packed arrays against conovel.

    python -m benchmarks model_sizes [--draws 30]

All columns are the same random forests of 100 trees, fitted on the paper's Gaussian design
at shift 2 as an agent would: half of the nulls against the other half and the tests. "Block"
is a third of an agent's rows, which is what the paper's split leaves for one model.
"""

import argparse
import importlib.util
import io
import lzma
import pickle
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier

from conovel.experiments.gaussian import gaussian_design
from conovel.models.forest import Forest
from conovel.models.quantized.forest import LEAF, QuantizedForest, per_feature, uniform
from conovel.models.wire import encode, write
from conovel.models.wire.forests import list_numbers
from conovel.models.wire.range_coder import BitCounter
from conovel.scorers.from_sklearn import to_flat

BITS = (6, 4, 2, 1)
DELTA = 2.0
COMPACT = "4-bit thresholds, 3-bit leaves"


def training_rows(seed: int, agent: int, block: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and labels: known normals 0, the mixture of normals and tests 1."""
    data = gaussian_design(DELTA, seed)[agent]
    null, test = data.X_null, data.X_test
    if block:
        null, test = null[: len(null) // 3], test[::3]
    half = len(null) // 2
    X = np.concatenate([null[:half], null[half:], test])
    return X, (np.arange(len(X)) >= half).astype(int)


def fit(seed: int, agent: int = 0, block: bool = True, **shape: int) -> RandomForestClassifier:
    X, y = training_rows(seed, agent, block)
    return RandomForestClassifier(100, random_state=seed, n_jobs=1, **shape).fit(X, y)


def packed(model: Forest | QuantizedForest) -> bytes:
    """Compress the best plain arrays: preorder, a bit for each node, the narrowest types."""
    if isinstance(model, Forest):
        trees, thresholds, values, _ = list_numbers(model)
        numbers = {**thresholds, LEAF: values}
        columns = [
            np.array([numbers[f][c] for tree in trees for f, c in tree if (f == LEAF) == leaf])
            for leaf in (False, True)
        ]
        columns = [
            c.astype(np.float32) if (c == c.astype(np.float32)).all() else c for c in columns
        ]
    else:
        trees = model.trees
        columns = [
            np.array([c for tree in trees for f, c in tree if (f == LEAF) == leaf], dtype=np.uint8)
            for leaf in (False, True)
        ]
    nodes = np.array([f for tree in trees for f, _ in tree])
    arrays = [np.packbits(nodes == LEAF), nodes[nodes != LEAF].astype(np.uint8), *columns]
    data = b"".join(array.tobytes() for array in arrays)
    return lzma.compress(data, lzma.FORMAT_ALONE, preset=9 | lzma.PRESET_EXTREME)


def joblib_lzma(forest: RandomForestClassifier) -> bytes:
    import joblib

    buffer = io.BytesIO()
    joblib.dump(forest, buffer, compress=("lzma", 9))
    return buffer.getvalue()


def skops(forest: RandomForestClassifier) -> bytes:
    import skops.io

    return skops.io.dumps(forest)


def onnx(forest: RandomForestClassifier) -> bytes:
    from skl2onnx import to_onnx

    rows = np.zeros((1, forest.n_features_in_), dtype=np.float32)
    return to_onnx(forest, rows, options={"zipmap": False}).SerializeToString()


def treelite(forest: RandomForestClassifier) -> bytes:
    import treelite

    return treelite.sklearn.import_model(forest).serialize_bytes()


PEERS: dict[str, tuple[str | None, Callable[[RandomForestClassifier], bytes]]] = {
    "pickle": (None, pickle.dumps),
    "joblib, lzma": ("joblib", joblib_lzma),
    "skops": ("skops", skops),
    "ONNX": ("skl2onnx", onnx),
    "treelite": ("treelite", treelite),
}


def bound(model: Forest | QuantizedForest) -> float:
    """Return the plug-in entropy of the payload in bytes; docs/wire.md defines it."""
    tally = BitCounter()
    write(tally, model)
    return sum(tally.entropy().values()) / 8


def sizes(forest: RandomForestClassifier) -> dict[str, tuple[int, int, float]]:
    """Return our bytes, those of packed arrays and the bound, by precision."""
    flat = to_flat(forest)
    models = {"float64": flat} | {f"{bits}-bit": uniform(flat, bits) for bits in BITS}
    models[COMPACT] = per_feature(flat, 4, 3)
    return {
        name: (len(encode(model)), len(packed(model)), bound(model))
        for name, model in models.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=30, help="compact models of the last line")
    draws = parser.parse_args().draws
    console = Console()
    forests = {
        "full depth": fit(0, block=False),
        "full depth, block": fit(0),
        "4 leaves, block": fit(0, max_leaf_nodes=4),
    }

    table = Table(title="Bytes of the exact model")
    table.add_column("")
    for name, forest in forests.items():
        n_nodes = sum(tree.tree_.node_count for tree in forest.estimators_)
        table.add_column(f"{name}\n{n_nodes:,} nodes", justify="right")
    for name, (package, dump) in PEERS.items():
        if package and importlib.util.find_spec(package) is None:
            console.print(f"skipped, not installed: {package}")
            continue
        table.add_row(name, *(f"{len(dump(forest)):,}" for forest in forests.values()))
    ours = {name: sizes(forest) for name, forest in forests.items()}
    exact = [column["float64"] for column in ours.values()]
    table.add_row("packed arrays, lzma", *(f"{packed:,}" for _, packed, _ in exact))
    table.add_row("[bold]conovel[/]", *(f"[bold]{mine:,}[/]" for mine, _, _ in exact))
    console.print(table)

    for name, column in ours.items():
        table = Table(title=f"Bytes of the quantized model: {name}")
        for heading in ("", "conovel", "packed arrays, lzma", "entropy", "conovel / entropy"):
            table.add_column(heading, justify="left" if not heading else "right")
        for precision, (mine, packing, entropy) in column.items():
            table.add_row(
                precision, f"{mine:,}", f"{packing:,}", f"{entropy:,.0f}", f"{mine / entropy:.3f}"
            )
        console.print(table)

    compact = [
        len(encode(per_feature(to_flat(fit(seed, agent, max_leaf_nodes=4)), 4, 3)))
        for seed, agent in (divmod(draw, 3) for draw in range(draws))
    ]
    console.print(
        f"4 leaves, block, {COMPACT}, {draws} draws: "
        f"mean {np.mean(compact):.0f} bytes, least {min(compact)}, most {max(compact)}"
    )


if __name__ == "__main__":
    main()
