"""Processor time of the default detect against the reference AdaDetect.

    python -m benchmarks cost [--repeats 5]

The reference is AdaDetect with scikit-learn's random forest of 100 trees and depth 10, fitted once
on the same split. 30 columns; normals are Gaussian, for which the default fits its blend, or
log-normal, for which it fits forests. Thin agents have 100 known normals and 33 tests each; a
network of thirty of them is compared with thirty reference forests. In `counts` each agent fits
its score; in `joint` it also fits what is imitated, on clipped rows, and makes and reads models;
in `together` all learn one score from sums. Ratios of medians.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier

import conovel as cn

DIMENSION = 30
SIZES = {
    "5000 and 1000": (5000, 1000, 1, ""),
    "1500 and 500": (1500, 500, 1, ""),
    "30 agents, counts": (100, 33, 30, "counts"),
    "30 agents, joint": (100, 33, 30, "joint"),
    "30 agents, together": (100, 33, 30, "together"),
}


def rows(shape: str, n: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw normals, and tests of which a tenth are novel."""
    rng = np.random.default_rng(seed)
    X_null, X_test = rng.normal(size=(n, DIMENSION)), rng.normal(size=(m, DIMENSION))
    X_test[-(m // 10) :, :5] += 2.4
    return (X_null, X_test) if shape == "Gaussian" else (np.exp(X_null), np.exp(X_test))


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def tasks(shape: str, n: int, m: int, n_agents: int, regime: str) -> list[Callable[[], object]]:
    """Return the reference and the default on the same rows."""
    drawn = [rows(shape, n, m, seed) for seed in range(n_agents)]

    def reference() -> None:
        forest = RandomForestClassifier(100, max_depth=10)
        for X_null, X_test in drawn:
            cn.AdaDetect(forest, train_fraction=0.5).detect(X_null, X_test)

    if n_agents == 1:
        return [reference, partial(cn.AdaDetect(train_fraction=0.5).detect, *drawn[0])]
    agents = [cn.Agent(f"site-{j}", *one) for j, one in enumerate(drawn)]
    return [reference, cn.Network(agents, regime=regime).run]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    table = Table(title="processor time of the default, 30 columns")
    for head in ("rows", "normals", "reference, s", "default, s", "ratio"):
        table.add_column(head, justify="right")
    for name, size in SIZES.items():
        for shape in ("Gaussian", "log-normal"):
            work = tasks(shape, *size)
            for one in work:
                one()  # compiled loops are read from their cache
            times = [[seconds(one) for one in work] for _ in range(repeats)]
            plain, ours = (median(column) for column in zip(*times, strict=True))
            table.add_row(name, shape, f"{plain:.2f}", f"{ours:.2f}", f"{ours / plain:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
