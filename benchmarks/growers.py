"""Processor time of compiled trees and linear folds against scikit-learn's.

    python -m benchmarks growers [--repeats 5] [--rows 500 1500 5000] [--columns 30]

Both fit the same rows in turn, in one process and one thread. Ratios of medians of processor time;
bins are computed anew for each fit, and for the four folds of a cross-fit once. The last
column is the area under the ROC curve on fresh rows, ours less scikit-learn's.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn import config_context
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from conovel.scorers.binned_forest import BinnedForest, Bins
from conovel.scorers.blend import shrunken_logistic
from conovel.scorers.cross_fit import fit_folds

N_FOLDS, N_LINEAR_FOLDS = 4, 16
Score = Callable[[np.ndarray], np.ndarray]


def rows(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes; a third of the second is shifted to one side or the other."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), (rng.random(n) < 0.4).astype(int)
    novel = np.flatnonzero(y)[::3]
    X[novel, :5] += 2.0 * rng.choice([-1.0, 1.0], (novel.size, 1)) + 0.5
    return X, y


def tasks(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, Callable, Callable]]:
    """Name, our fit and scikit-learn's; each returns a score or None."""

    def forest(scorer: BinnedForest) -> Score:
        return scorer.grow(Bins.of(X), y).forest.score

    def plain(model) -> Score:
        model.fit(X, y)
        return lambda fresh: model.predict_proba(fresh)[:, 1]

    def linear(weights: np.ndarray) -> None:
        for weight in weights:
            used = weight > 0
            step = {"logisticregression__sample_weight": weight[used]}
            shrunken_logistic().fit(X[used], y[used], **step)

    def folds(scorer: BinnedForest) -> None:
        bins = Bins.of(X)
        for weight in folds_left_out(N_FOLDS):
            scorer.grow(bins, y, weight)

    def plain_folds(model) -> None:
        for weight in folds_left_out(N_FOLDS):
            model.fit(X[weight > 0], y[weight > 0])
            model.predict_proba(X[weight == 0])

    def folds_left_out(n_folds: int) -> np.ndarray:
        fold = np.arange(len(X)) // 2 % n_folds
        return (fold != np.arange(n_folds)[:, None]).astype(float)

    extra = BinnedForest(100, min_rows_per_leaf=3, splitter="random", random_state=0)
    theirs = ExtraTreesClassifier(100, min_samples_leaf=3, random_state=0)
    yield "extra-trees, 3 rows a leaf", lambda: forest(extra), lambda: plain(theirs)
    yield "the same, 4 folds", lambda: folds(extra), lambda: plain_folds(theirs)
    for least, depth in ((3, None), (1, 10)):
        ours = BinnedForest(100, depth, min_rows_per_leaf=least, random_state=0)
        other = RandomForestClassifier(
            100, max_depth=depth, min_samples_leaf=least, random_state=0
        )
        name = "3 rows a leaf" if depth is None else f"depth {depth}"
        yield f"random forest, {name}", lambda o=ours: forest(o), lambda o=other: plain(o)
    weights = folds_left_out(N_LINEAR_FOLDS)
    yield "logistic, 16 folds", lambda: fit_folds(X, y, weights), lambda: linear(weights)


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 1500, 5000])
    parser.add_argument("--columns", type=int, default=30)
    options = parser.parse_args()
    table = Table(title="processor time, as a multiple of scikit-learn's")
    for head in ("fit", "rows", "ratio", "AUC, difference"):
        table.add_column(head, justify="left" if head == "fit" else "right")
    with (
        threadpool_limits(1),
        config_context(assume_finite=True, skip_parameter_validation=True),
    ):
        for n in options.rows:
            X, y = rows(n, options.columns, 0)
            fresh, truth = rows(20_000, options.columns, 1)
            for name, ours, theirs in tasks(X, y):
                scores = [fit() for fit in (ours, theirs)]  # compiled, and warm
                apart = ""
                if callable(scores[0]):
                    areas = [roc_auc_score(truth, score(fresh)) for score in scores]
                    apart = f"{areas[0] - areas[1]:+.3f}"
                times = [[seconds(fit) for fit in (ours, theirs)] for _ in range(options.repeats)]
                mine, plain = (median(column) for column in zip(*times, strict=True))
                table.add_row(name, str(n), f"{mine / plain:.2f}", apart)
    Console().print(table)


if __name__ == "__main__":
    main()
