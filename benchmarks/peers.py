"""Power, false discoveries and time of conovel and its peers on the same rows.

    CONOVEL_DATA=FOLDER python -m benchmarks peers [--data FOLDER] [--adadetect FOLDER]
        [--trials 10] [--out FILE] [--sets NAME ...]

One site: 2500 known normals and 500 tests with 50 novelties, of the real tables below FOLDER, and
the Gaussian design. Several sites: the paper's Gaussian design with shift 2, and real tables with
up to 1500 known normals and 500 tests a site. There a peer runs at each site alone, at level α/K
and at level α, and once on the rows of all sites, which needs the raw data in one place. α = 0.1.

Every peer has the settings of its own documentation; none is tuned. AdaDetect's code is no
package: ``--adadetect`` or ADADETECT names a folder with a clone of its authors' repository. What
is not installed is left out. Each trial is a line of JSON in FILE; what was broken off goes on
from there, and ``--trials 0`` only prints. Times are processor times divided by that of conovel
on the same rows.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import conovel as cn
from benchmarks import _real_sets
from benchmarks._trials import Labelled, Row, complete
from conovel.experiments.gaussian import gaussian_design

LEVEL, SHIFT = 0.1, 2.0
# Tables that the default was not developed on, with at least 2950 normals and a supervised ceiling
# above 0.2 (docs/results/real-tables.md); and gas drift, which it was developed on.
ONE_SITE = ("shuttle", "mammography", "thyroid", "skin", "Wilt", "Waveform", "gasdrift")
THREE_SITES = ("gasdrift",)
GAUSSIAN = {"Gaussian, K = 1": 1, "Gaussian, K = 3": 3, "Gaussian, K = 9": 9}
N_ONE, N_THREE = 2500, 1500  # known normals of a site: 2500 is 5 times the tests, as AdaDetect has
DESIGN = ("set", "procedure")

Mask = np.ndarray
Detect = Callable[[np.ndarray, np.ndarray, float, int], Mask]


def conovel(X_null: np.ndarray, X_test: np.ndarray, level: float, seed: int) -> Mask:
    """conovel's default at one site."""
    return cn.AdaDetect(level=level, random_state=seed).detect(X_null, X_test).rejected


def adadetect(split_size: float) -> Detect:
    """The forest of the README of AdaDetect's authors; `split_size` is the share that trains."""

    def detect(X_null: np.ndarray, X_test: np.ndarray, level: float, seed: int) -> Mask:
        from sklearn.ensemble import RandomForestClassifier

        erm = importlib.import_module("procedure").AdaDetectERM
        forest = RandomForestClassifier(max_depth=10, random_state=seed)
        return _mask(erm(forest, split_size).apply(X_test, level, X_null), len(X_test))

    return detect


def nonconform(detector: str, strategy: str) -> Detect:
    """A detector of scikit-learn or PyOD, calibrated by nonconform, and its `select`."""

    def detect(X_null: np.ndarray, X_test: np.ndarray, level: float, seed: int) -> Mask:
        from nonconform import ConformalDetector, CrossValidation, Split
        from pyod.models.knn import KNN
        from pyod.models.lof import LOF
        from sklearn.ensemble import IsolationForest

        # Split(0.3) and CrossValidation(5, "plus") are the values of its user guide.
        forest = IsolationForest(random_state=seed)
        models = {"isolation forest": forest, "k-NN": KNN(), "LOF": LOF()}
        ways = {"split": Split(n_calib=0.3), "CV+": CrossValidation(k=5, mode="plus")}
        way = ConformalDetector(detector=models[detector], strategy=ways[strategy], seed=seed)
        return np.asarray(way.fit(X_null).select(X_test, alpha=level))

    return detect


def pyod_and_crepes(X_null: np.ndarray, X_test: np.ndarray, level: float, seed: int) -> Mask:
    """PyOD's k-NN, p-values of crepes, and scipy's Benjamini–Hochberg."""
    from crepes.base import p_values_batch
    from pyod.models.knn import KNN
    from scipy.stats import false_discovery_control

    rows = np.random.default_rng(seed).permutation(len(X_null))
    n_cal = int(0.3 * len(rows))
    model = KNN().fit(X_null[rows[n_cal:]])
    cal, test = (model.decision_function(X) for X in (X_null[rows[:n_cal]], X_test))
    return false_discovery_control(p_values_batch(cal, test, smoothing=False)) <= level


def fcnd(learner: str) -> Detect:
    """Full conformal detection with e-BH, as in the README of fcnd."""

    def detect(X_null: np.ndarray, X_test: np.ndarray, level: float, seed: int) -> Mask:
        from fcnd import FCND, BaseLearner, IsoForestLearner
        from sklearn.neighbors import LocalOutlierFactor

        class LOFLearner(BaseLearner):
            def reset(self):
                self.model = LocalOutlierFactor(n_neighbors=20, novelty=True)
                return self

            def fit(self, X, **_):
                self.model.fit(X)
                return self

            def score(self, X):
                return -self.model.score_samples(X)

        forest = IsoForestLearner(random_state=seed, n_estimators=100)
        chosen = FCND(forest if learner == "isolation forest" else LOFLearner())
        return _mask(chosen.detect(X_null, X_test, alpha=level).rejections, len(X_test))

    return detect


def _mask(found: Any, n: int) -> Mask:
    mask = np.zeros(n, dtype=bool)
    mask[np.asarray(found, dtype=int)] = True
    return mask


SPLIT_IN_HALVES = "AdaDetect's code, split 0.5"
# By name: the packages that are needed, and the procedure.
PEERS: dict[str, tuple[tuple[str, ...], Detect]] = {
    "AdaDetect's code": (("procedure",), adadetect(4000 / 5000)),  # as in its README
    SPLIT_IN_HALVES: (("procedure",), adadetect(0.5)),  # the default of its class
    "nonconform, isolation forest, split": (
        ("nonconform", "pyod"),
        nonconform("isolation forest", "split"),
    ),
    "nonconform, LOF, split": (("nonconform", "pyod"), nonconform("LOF", "split")),
    "nonconform, LOF, CV+": (("nonconform", "pyod"), nonconform("LOF", "CV+")),
    "nonconform, k-NN, CV+": (("nonconform", "pyod"), nonconform("k-NN", "CV+")),
    "PyOD k-NN, crepes, BH": (("pyod", "crepes"), pyod_and_crepes),
    "fcnd, isolation forest": (("fcnd",), fcnd("isolation forest")),
    "fcnd, LOF": (("fcnd",), fcnd("LOF")),
}
# Several sites: few procedures, as every one runs in three ways. A share of 4/5 that trains leaves
# a small site too few calibration rows for level α/K.
AT_SITES = ("AdaDetect's code", SPLIT_IN_HALVES, "nonconform, k-NN, CV+", "fcnd, LOF")
WAYS = ("alone at α/K", "alone at α", "rows pooled")
REGIMES = ("together", "joint", "full")


def run(sites: Sequence[Labelled], procedure: str, seed: int) -> Mask:
    """Return which tests of all sites are rejected, one site after the other."""
    if procedure == "conovel":
        return conovel(sites[0].X_null, sites[0].X_test, LEVEL, seed)
    if procedure.removeprefix("conovel ") in REGIMES:
        agents = [cn.Agent(f"a{i:02d}", one.X_null, one.X_test) for i, one in enumerate(sites)]
        regime = procedure.removeprefix("conovel ")
        found = cn.Network(agents, regime=regime, level=LEVEL, random_state=seed).run()
        return np.concatenate([found[agent.name].rejected for agent in agents])
    name, _, way = procedure.partition("; ")
    detect = PEERS[name][1]
    if way == "rows pooled":
        X_null = np.concatenate([site.X_null for site in sites])
        X_test = np.concatenate([site.X_test for site in sites])
        rows = np.random.default_rng(seed).permutation(len(X_null))  # AdaDetect splits by place
        return detect(X_null[rows], X_test, LEVEL, seed)
    level = LEVEL / len(sites) if way == "alone at α/K" else LEVEL
    return np.concatenate([detect(one.X_null, one.X_test, level, seed) for one in sites])


@lru_cache(maxsize=1)
def draw(name: str, trial: int, folder: Path) -> list[Labelled]:
    """Draw the rows of a trial; the same ones for every procedure."""
    if name in GAUSSIAN:
        rng = np.random.default_rng([trial, GAUSSIAN[name]])
        return list(gaussian_design(SHIFT, rng, n_agents=GAUSSIAN[name]))
    table, _, layout = name.partition(", ")
    layout, n = ("three sites", N_THREE) if layout else ("one site", N_ONE)
    return list(_real_sets.draw(_real_sets.files(folder)[table], layout, n, trial).sites)


def measure(row: Row, folder: Path) -> Row:
    """Return power, false discovery proportion and processor seconds of one trial."""
    sites = draw(row["set"], row["trial"], folder)
    start = time.process_time()
    rejected = run(sites, row["procedure"], row["trial"])
    seconds = time.process_time() - start
    is_novel = np.concatenate([site.is_novel for site in sites])
    false = np.count_nonzero(rejected & ~is_novel)
    return {
        "power": float(rejected[is_novel].mean()),
        "fdp": false / max(np.count_nonzero(rejected), 1),
        "seconds": seconds,
    }


def wanted(sets: Sequence[str], trials: int) -> list[Row]:
    """Return the trials that are asked for, all trials of a set before the next set."""
    there = [name for name, (needed, _) in PEERS.items() if all(map(find_spec, needed))]
    alone = ["conovel", *(name for name in there if name != SPLIT_IN_HALVES)]
    several = [f"conovel {regime}" for regime in REGIMES]
    several += [f"{name}; {way}" for name in AT_SITES if name in there for way in WAYS]
    return [
        {"set": name, "procedure": procedure, "trial": trial}
        for name in sets
        for trial in range(trials)
        for procedure in (alone if is_one_site(name) else several)
    ]


def is_one_site(name: str) -> bool:
    """Tell whether the rows of a set are at one site."""
    return GAUSSIAN.get(name) == 1 or name in ONE_SITE


def table(rows: Sequence[Row], what: str) -> list[str]:
    """Return Markdown: a line for each procedure, and a column for each set."""
    found: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        found[row["procedure"]][row["set"]][row["trial"]] = row[what]
    sets = list(dict.fromkeys(row["set"] for row in rows))
    first = found[rows[0]["procedure"]]
    titles = [f"{name} ({len(first[name])})" for name in sets]  # trials in brackets
    lines = [f"| {what} | " + " | ".join(titles) + " |", "|---" + "|---:" * len(sets) + "|"]
    for procedure, by_set in found.items():
        cells = [_cell(by_set[name], first[name] if what == "seconds" else None) for name in sets]
        lines.append(f"| {procedure} | " + " | ".join(cells) + " |")
    return lines


def _cell(values: dict[int, float], first: dict[int, float] | None) -> str:
    """Return mean ± standard error, or the median ratio to the first procedure of each trial."""
    if first is not None:
        ratios = [values[trial] / first[trial] for trial in values if trial in first]
        return f"{np.median(ratios):.2g}" if ratios else "–"
    numbers = np.array(list(values.values()))
    if numbers.size < 2:
        return "–"
    return f"{numbers.mean():.3f} ± {numbers.std(ddof=1) / numbers.size**0.5:.3f}"


def _versions() -> str:
    names = ("conovel", "nonconform", "pyod", "crepes", "fcnd", "scikit-learn", "numpy", "numba")
    known = []
    for name in names:
        try:
            known.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            known.append(f"{name} not installed")
    return f"Python {sys.version.split()[0]}, " + ", ".join(known)


def main() -> None:
    """Measure, keep the trials and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("CONOVEL_DATA"))
    parser.add_argument("--adadetect", default=os.environ.get("ADADETECT"))
    parser.add_argument("--trials", type=int, default=10)
    real = [*ONE_SITE, *(f"{name}, 3 sites" for name in THREE_SITES)]
    parser.add_argument("--sets", nargs="+", choices=[*GAUSSIAN, *real])
    parser.add_argument("--out", type=Path, default=Path("peers.jsonl"))
    options = parser.parse_args()
    sets = options.sets or [*GAUSSIAN, *(real if options.data else [])]
    folder = Path(options.data or ".")
    if options.adadetect:
        sys.path.append(options.adadetect)
    warnings.simplefilter("ignore")
    logging.getLogger("nonconform").setLevel(logging.ERROR)
    print(_versions(), flush=True)
    todo = wanted(sets, options.trials)
    for procedure in dict.fromkeys(row["procedure"] for row in todo):  # compiles, is not timed
        rows = gaussian_design(SHIFT, 0, n_agents=3, n_null=300, n_test=90)
        run(rows, procedure, 0)
    done = complete(options.out, DESIGN, todo, lambda row: measure(row, folder))
    for alone in (True, False):
        rows = [row for row in done if is_one_site(row["set"]) == alone]
        # Seconds are shown as ratios to the first procedure.
        for what in ("power", "fdp", "seconds") if rows else ():
            print("\n" + "\n".join(table(rows, what)), flush=True)


if __name__ == "__main__":
    main()
