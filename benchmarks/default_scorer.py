"""Power of candidate default scorers on the Gaussian design and on data sets in a folder.

    python -m benchmarks default_scorer [--trials 20] [--data FOLDER]

The Gaussian design is one agent's third of the paper's data (1000 nulls, 333 tests of
which a tenth are novelties, d = 20); the real sets are read from ``*.npz`` files in FOLDER.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import conovel as cn
from conovel.experiments.gaussian import gaussian_design

Trial = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray, np.ndarray]]

CANDIDATES = {
    "RF full depth": lambda: RandomForestClassifier(100),
    "RF depth 10": lambda: RandomForestClassifier(100, max_depth=10),
    "RF depth 5": lambda: RandomForestClassifier(100, max_depth=5),
    "ET 300 depth 5": lambda: ExtraTreesClassifier(300, max_depth=5, min_samples_leaf=2),
    "ET 300 depth 8": lambda: ExtraTreesClassifier(300, max_depth=8, min_samples_leaf=2),
    "ET 300 depth 8 leaf 5": lambda: ExtraTreesClassifier(300, max_depth=8, min_samples_leaf=5),
    "ET 300 depth 12 leaf 5": lambda: ExtraTreesClassifier(300, max_depth=12, min_samples_leaf=5),
    "ET 300 d8 l5 half feat": lambda: ExtraTreesClassifier(
        300, max_depth=8, min_samples_leaf=5, max_features=0.5
    ),
    "boosted, 8 leaves": lambda: HistGradientBoostingClassifier(
        max_iter=100, learning_rate=0.05, max_leaf_nodes=8
    ),
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "MLP 32": lambda: make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=100)),
}


def gaussian(delta: float) -> Trial:
    """One of the three agents of the paper's design at shift delta, drawn for each trial."""

    def trial(rng):
        agent = gaussian_design(delta, rng)[rng.integers(3)]
        return agent.X_null, agent.X_test, agent.is_novel

    return trial


def real(file: Path) -> Trial:
    """Draw 5000 nulls and 1000 tests with 100 novelties from one data set."""
    data = np.load(file)
    X = data["X"].astype(float)
    y = data["y"] == 1 if "y" in data else np.isin(data["gas"], _novel_gases(data))

    def trial(rng):
        normal, novel = rng.permutation(np.flatnonzero(~y)), rng.permutation(np.flatnonzero(y))
        n = min(5000, normal.size - 900)
        test = np.concatenate([normal[n : n + 900], novel[:100]])
        return X[normal[:n]], X[test], np.arange(1000) >= 900

    return trial


def _novel_gases(data) -> list:
    names = [str(name) for name in data["gas_names"]]
    codes = np.unique(data["gas"])
    return [
        code for code, name in zip(codes, names, strict=True) if name in ("Ammonia", "Toluene")
    ]


def designs(folder: Path | None) -> Iterator[tuple[str, Trial]]:
    for delta in (0, 2, 4):
        yield f"δ={delta}", gaussian(delta)
    for file in sorted(folder.glob("*.npz")) if folder else []:
        yield file.stem, real(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--data", type=Path)
    args, _ = parser.parse_known_args()
    warnings.simplefilter("ignore")
    columns = list(designs(args.data))
    table = Table(title=f"power (FDR), {args.trials} trials (real data: a third), α = 0.1")
    table.add_column("scorer")
    for name, _ in columns:
        table.add_column(name, justify="right")
    for label, make in track(CANDIDATES.items(), description="scorers"):
        cells = []
        for name, draw in columns:
            power, fdp = [], []
            trials = args.trials if name.startswith("δ") else args.trials // 3
            for t in range(trials):
                X_null, X_test, y = draw(np.random.default_rng(t))
                rejected = cn.AdaDetect(make(), random_state=t).detect(X_null, X_test).rejected
                power.append(rejected[y].mean())
                fdp.append(rejected[~y].sum() / max(rejected.sum(), 1))
            se = np.std(power, ddof=1) / trials**0.5
            cells.append(f"{np.mean(power):.3f}±{se:.3f} ({np.mean(fdp):.3f})")
        table.add_row(label, *cells)
        print(label, cells, flush=True)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
