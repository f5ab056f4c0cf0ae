"""Power and false discoveries under a covariate shift: weights of conovel, nonconform and fcnd.

    python -m benchmarks weights [--trials 40] [--of conovel ...] [--out FILE] [--pruning]

2500 known normals of five standard normal columns. 500 tests, 50 of them novel; the first column
of all tests is moved by θ, so that w(x) = exp(θ x₁), and the second of the novelties by 4. The
level is 0.1. *Known weights* are w itself, *estimated* ones are those of each library. nonconform
takes known weights by a class of its own for estimators. What is not installed is left out, and
``--of`` names the packages to run. Each trial is a line of JSON in FILE; what was broken off goes
on from there, also with another Python, and ``--trials 0`` only prints.

``--pruning`` compares rules for a given score: Theorem 24, the same without its random
number, and Benjamini–Hochberg on weighted p-values, of which nothing is proven.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Callable
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import conovel as cn
from benchmarks._trials import Row, complete
from benchmarks.peers import _mask, _versions, table
from conovel.stats.weighted import draw_chance, weighted_step_up, whole_weights

LEVEL, N_NULL, N_TEST, N_NOVEL, FAR = 0.1, 2500, 500, 50, 4.0
SHIFTS = {"no shift": 0.0, "θ = 0.7": 0.7, "θ = 1.2": 1.2}
DESIGN = ("set", "procedure")

Matrix = np.ndarray
Weigh = Callable[[Matrix], np.ndarray]
Detect = Callable[[Matrix, Matrix, Weigh, int], np.ndarray]


def draw(tilt: float, trial: int) -> tuple[Matrix, Matrix]:
    """Draw known normals and tests, the novelties last."""
    rng = np.random.default_rng([trial, int(100 * tilt)])
    X_null, X_test = rng.normal(size=(N_NULL, 5)), rng.normal(size=(N_TEST, 5))
    X_test[:, 0] += tilt
    X_test[-N_NOVEL:, 1] += FAR
    return X_null, X_test


def conovel(way: str | None) -> Detect:
    """conovel's default scorer: without weights, with known ones, with estimated ones."""

    def detect(X_null: Matrix, X_test: Matrix, weigh: Weigh, seed: int) -> np.ndarray:
        weights = weigh if way == "known" else way
        detector = cn.AdaDetect(weights=weights, level=LEVEL, random_state=seed)
        return detector.detect(X_null, X_test).rejected

    return detect


def nonconform(detector: str, way: str, pruning: str) -> Detect:
    """A detector of scikit-learn or PyOD with weighted conformalized selection of nonconform."""

    def detect(X_null: Matrix, X_test: Matrix, weigh: Weigh, seed: int) -> np.ndarray:
        from nonconform import ConformalDetector, Split
        from nonconform.enums import Pruning
        from nonconform.weighting import BaseWeightEstimator, logistic_weight_estimator
        from pyod.models.lof import LOF
        from sklearn.ensemble import IsolationForest

        class Known(BaseWeightEstimator):
            """Weights that are known."""

            def fit(self, calibration_samples: Matrix, test_samples: Matrix) -> None:
                self._weights = weigh(calibration_samples), weigh(test_samples)
                self._is_fitted = True

            def _get_stored_weights(self) -> tuple[np.ndarray, np.ndarray]:
                return self._weights

            def _score_new_data(
                self, calibration_samples: Matrix, test_samples: Matrix
            ) -> tuple[np.ndarray, np.ndarray]:
                return weigh(calibration_samples), weigh(test_samples)

        model = LOF() if detector == "LOF" else IsolationForest(random_state=seed)
        way_of = ConformalDetector(
            detector=model,
            strategy=Split(n_calib=0.3),  # of its user guide
            weight_estimator=Known() if way == "known" else logistic_weight_estimator(),
            seed=seed,
        )
        chosen = Pruning[pruning.upper()]
        return np.asarray(way_of.fit(X_null).select(X_test, alpha=LEVEL, pruning=chosen))

    return detect


def fcnd(X_null: Matrix, X_test: Matrix, weigh: Weigh, seed: int) -> np.ndarray:
    """Weighted full conformal detection with e-BH, as in the README of fcnd."""
    from fcnd import FCND, IsoForestLearner

    detector = FCND(IsoForestLearner(random_state=seed, n_estimators=100))
    weights = {"weights_ref": weigh(X_null), "weights_test": weigh(X_test)}
    found = detector.detect(X_null, X_test, alpha=LEVEL, method="ebh", **weights)
    return _mask(found.rejections, len(X_test))


PEERS: dict[str, tuple[str, Detect]] = {
    "conovel, no weights": ("conovel", conovel(None)),
    "conovel, known weights": ("conovel", conovel("known")),
    "conovel, estimated weights": ("conovel", conovel("estimate")),
    **{
        f"nonconform, {detector}, {way} weights, {pruning}": (
            "nonconform",
            nonconform(detector, way, pruning),
        )
        for detector in ("isolation forest", "LOF")
        for way, pruning in (
            ("known", "deterministic"),
            ("known", "homogeneous"),
            ("estimated", "homogeneous"),
        )
    },
    "fcnd, isolation forest, known weights": ("fcnd", fcnd),
}


def measure(row: Row) -> dict[str, float]:
    """Run one procedure on one draw."""
    tilt, trial = SHIFTS[row["set"]], row["trial"]
    X_null, X_test = draw(tilt, trial)

    def weigh(X: Matrix) -> np.ndarray:
        return np.exp(tilt * X[:, 0])

    return rates(PEERS[row["procedure"]][1](X_null, X_test, weigh, trial), N_NOVEL)


def rates(rejected: np.ndarray, n_novel: int) -> dict[str, float]:
    """Return the share of novelties that are found, and of what is found that is none."""
    found = np.count_nonzero(rejected[-n_novel:])
    n_rejected = np.count_nonzero(rejected)
    return {"power": found / n_novel, "fdp": (n_rejected - found) / max(n_rejected, 1)}


def weighted_bh(known: tuple[Any, Any], tests: tuple[Any, Any], level: float) -> np.ndarray:
    """Benjamini–Hochberg on weighted p-values; nothing is proven of it."""
    p_values = weighted_step_up(known, tests, level, Fraction(1)).p_values
    steps = level * np.arange(1, p_values.size + 1) / p_values.size
    enough = np.flatnonzero(np.sort(p_values) <= steps)
    return p_values <= (steps[enough[-1]] if enough.size else 0.0)


def pruning_rows(trials: int) -> list[Row]:
    """Compare rules for the score x₂ + x₁/2 of two columns; a tenth of the tests is novel."""
    rows = []
    for n, m, tilt in ((300, 200, 0.7), (1000, 300, 1.2), (5000, 2000, 0.7)):
        name = f"ℓ = {n}, m = {m}, θ = {tilt}"
        for trial in range(trials):
            rng = np.random.default_rng([trial, n, m])
            known, tests = rng.normal(size=(n, 2)), rng.normal((tilt, 0.0), size=(m, 2))
            tests[-m // 10 :, 1] += 3.5
            scores = [X[:, 1] + X[:, 0] / 2 for X in (known, tests)]
            whole = whole_weights(np.exp(tilt * np.concatenate([known[:, 0], tests[:, 0]])))
            pairs = (scores[0], whole[:n]), (scores[1], whole[n:])
            masks = {
                "Theorem 24": weighted_step_up(*pairs, LEVEL, draw_chance(trial)).rejected,
                "Theorem 24 with U = 1": weighted_step_up(*pairs, LEVEL, Fraction(1)).rejected,
                "BH on weighted p-values, not proven": weighted_bh(*pairs, LEVEL),
                "BH without weights": cn.reject(*scores, LEVEL),
            }
            about = {"set": name, "trial": trial}
            rows += [
                about | {"procedure": rule} | rates(mask, m // 10) for rule, mask in masks.items()
            ]
    return rows


def main() -> None:
    """Measure, keep the trials and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks weights", description=__doc__)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("weights.jsonl"))
    packages = sorted({package for package, _ in PEERS.values()})
    parser.add_argument("--of", nargs="+", choices=packages, default=packages)
    parser.add_argument("--pruning", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("nonconform").setLevel(logging.ERROR)
    if options.pruning:
        done = pruning_rows(options.trials)
    else:
        print(_versions(), flush=True)
        there = [
            name
            for name, (package, _) in PEERS.items()
            if package in options.of and find_spec(package)
        ]
        todo = [
            {"set": name, "procedure": procedure, "trial": trial}
            for trial in range(options.trials)
            for procedure in there
            for name in SHIFTS
        ]
        done = complete(options.out, DESIGN, todo, lambda row: row | measure(row))
    for what in ("power", "fdp"):
        print("\n" + "\n".join(table(done, what)), flush=True)


if __name__ == "__main__":
    main()
