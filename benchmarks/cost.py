"""Time of the default detect against the reference AdaDetect, and of a choice against one fit.

    python -m benchmarks cost [--repeats 5]

5000 known normals, 1000 tests, 30 columns. The reference is AdaDetect with scikit-learn's random
forest of 100 trees and depth 10, fitted once on the same split. The last columns compare the whole
choice with one refined fit, of a linear model or of trees. Ratios of medians, one process.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier

import conovel as cn
from conovel.scorers.automatic import Automatic
from conovel.scorers.base import Mixture, TrainingSet
from conovel.scorers.classifier import as_scorer

N_NULL, N_TEST, N_NOVEL, DIMENSION = 5000, 1000, 100, 30


def rows(shape: str) -> tuple[np.ndarray, np.ndarray]:
    """Normals, and tests with novelties that a linear score sees, or only trees do."""
    rng = np.random.default_rng(0)
    X_null, X_test = rng.normal(size=(N_NULL, DIMENSION)), rng.normal(size=(N_TEST, DIMENSION))
    sides = np.ones(N_NOVEL) if shape == "one side" else rng.choice([-1.0, 1.0], N_NOVEL)
    X_test[-N_NOVEL:, :5] += 2.4 * sides[:, None]
    return X_null, X_test


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    table = Table(title="time, as a multiple of the reference AdaDetect")
    for head in ("novelties", "default detect", "chosen", "choice / linear", "choice / trees"):
        table.add_column(head, justify="right")
    for shape in ("one side", "both sides"):
        X_null, X_test = rows(shape)
        reference = cn.AdaDetect(RandomForestClassifier(100, max_depth=10), train_fraction=0.5)
        default = cn.AdaDetect(train_fraction=0.5)
        chosen = default.detect(X_null, X_test).selection.winner
        train = X_null[: N_NULL // 2]
        automatic = Automatic(random_state=0)
        mixture = Mixture.of(np.concatenate([X_null[N_NULL // 2 :], X_test]))
        fits = [automatic, *(automatic.candidates()[name] for name in ("linear", "trees"))]
        tasks = [
            partial(reference.detect, X_null, X_test),
            partial(default.detect, X_null, X_test),
            *(partial(as_scorer(scorer).fit, TrainingSet(train, mixture)) for scorer in fits),
        ]
        times = [[seconds(task) for task in tasks] for _ in range(repeats)]
        plain, ours, choice, *single = (median(column) for column in zip(*times, strict=True))
        ratios = [f"{choice / one:.2f}" for one in single]
        table.add_row(shape, f"{ours / plain:.2f}", chosen, *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()
