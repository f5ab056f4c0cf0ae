"""Scoring a forest: scikit-learn, treelite and onnxruntime against conovel, one thread.

    python -m benchmarks scoring_speed [--repeat 7]

100 trees score 100,000 rows of 20 features, binning included. Repetitions are interleaved,
a cell is the median over repetitions of the ratio of processor times to conovel's exact
scores in the same repetition, and no absolute time is shown.
"""

import argparse
import importlib.util
from collections.abc import Callable
from time import process_time

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier

from conovel.models.quantized.forest import per_feature
from conovel.scorers.from_sklearn import to_flat

N_ROWS, N_FEATURES, N_TREES, N_TRAIN = 100_000, 20, 100, 4_000
SHAPES = {
    "4 leaves": dict(max_leaf_nodes=4),
    "depth 5": dict(max_depth=5),
    "depth 10": dict(max_depth=10),
}
OURS = "conovel, exact"

Score = Callable[[], np.ndarray]


def ours(forest: RandomForestClassifier, X: np.ndarray) -> dict[str, Score]:
    flat = to_flat(forest)
    small = per_feature(flat, threshold_bits=4, leaf_bits=3)
    return {
        OURS: lambda: flat.score(X),
        "conovel, 4-bit surrogate": lambda: small.score(X),
    }


def treelite(forest: RandomForestClassifier, X: np.ndarray) -> dict[str, Score]:
    import treelite

    model = treelite.sklearn.import_model(forest)
    return {
        "treelite (GTIL)": lambda: treelite.gtil.predict(model, X, nthread=1)[:, 0, 1],
    }


def onnxruntime(forest: RandomForestClassifier, X: np.ndarray) -> dict[str, Score]:
    import onnxruntime
    from skl2onnx import to_onnx

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    graph = to_onnx(forest, X[:1].astype(np.float32), options={"zipmap": False})
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options)
    rows = {session.get_inputs()[0].name: X.astype(np.float32)}
    return {"onnxruntime": lambda: session.run(["probabilities"], rows)[0][:, 1]}


PEERS = {
    ("treelite",): treelite,
    ("onnxruntime", "skl2onnx"): onnxruntime,
}


def missing(packages: tuple[str, ...]) -> list[str]:
    return [name for name in packages if importlib.util.find_spec(name) is None]


def scorers(shape: dict[str, int]) -> dict[str, Score]:
    """Fit one forest and return everything that scores the same rows with it."""
    rng = np.random.default_rng(0)
    train = rng.normal(size=(N_TRAIN, N_FEATURES))
    labels = (train[:, :5].sum(axis=1) + rng.normal(size=N_TRAIN) > 0).astype(int)
    forest = RandomForestClassifier(N_TREES, random_state=0, n_jobs=1, **shape).fit(train, labels)
    # Rows that are float32 already, for the sake of the peers that know no other.
    X = rng.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32).astype(np.float64)
    known: dict[str, Score] = {"scikit-learn": lambda: forest.predict_proba(X)[:, 1]}
    for packages, peer in PEERS.items():
        if not missing(packages):
            known |= peer(forest, X)
    return known | ours(forest, X)


def check(known: dict[str, Score]) -> None:
    """Compile what is compiled at first use, and fail unless everyone scores the same model."""
    expected = known["scikit-learn"]()
    for name, score in known.items():
        found = score()
        if "exact" in name and not np.array_equal(found, expected):
            raise SystemExit(f"{name} does not score like scikit-learn")
        if "conovel" not in name and np.max(np.abs(found - expected)) > 1e-5:
            raise SystemExit(f"{name} scores another model")


def ratios(known: dict[str, Score], repeat: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in known}
    for _ in range(repeat):
        for name, score in known.items():
            start = process_time()
            score()
            times[name].append(process_time() - start)
    unit = np.array(times[OURS])
    return {name: float(np.median(np.array(taken) / unit)) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7, help="interleaved repetitions")
    repeat = parser.parse_args().repeat
    console = Console()
    for packages in PEERS:
        if lacking := missing(packages):
            console.print(f"skipped, not installed: {', '.join(lacking)}")
    if missing(("numba",)):
        console.print("numba is not installed: conovel runs on numpy alone")
    columns = {}
    for shape in track(SHAPES, "scoring", console=console, transient=True):
        known = scorers(SHAPES[shape])
        check(known)
        columns[shape] = ratios(known, repeat)
    table = Table(title=f"time, as a multiple of “{OURS}”")
    table.add_column("scorer")
    for shape in columns:
        table.add_column(shape, justify="right")
    for name in columns["depth 5"]:
        table.add_row(name, *(f"{column[name]:.2g}" for column in columns.values()))
    console.print(table)


if __name__ == "__main__":
    main()
