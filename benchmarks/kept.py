"""Power of a kept detector on real tables: with unlabelled rows, without, and against `detect`.

    CONOVEL_DATA=FOLDER python -m benchmarks kept [--data FOLDER] [--trials 5] [--only NAME ...]
        [--known]

A trial draws up to 2000 known normals, 500 tests and 500 unlabelled rows, each with 50 novelties
or a third of those there are. Every method sees the same draw, at level 0.1. The last line has the
time for a batch, divided by that of the first method. With --known, the methods are detectors with
known novelties, which are neither tests nor unlabelled rows, and with confidence.
"""

from __future__ import annotations

import argparse
import os
import re
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.progress import track
from sklearn.ensemble import IsolationForest

import conovel as cn
from benchmarks._real_sets import N_NOVEL, N_TEST, large, load
from benchmarks.real import FOLDER
from conovel.scorers.automatic import mahalanobis_distance

N_KNOWN = 2000
TABLES = (
    "ai4i2020",
    "annthyroid",
    "cardio",
    "gasdrift",
    "landsat",
    "mammography",
    "PageBlocks",
    "satellite",
    "shuttle",
    "thyroid",
)


class Draw(NamedTuple):
    """Known normals, unlabelled rows, tests, and which tests are novel."""

    known_rows: np.ndarray
    unlabelled: np.ndarray
    tests: np.ndarray
    is_novel: np.ndarray
    cases: np.ndarray  # known novelties, up to 20


def draw(file: Path, trial: int) -> Draw:
    """Draw a trial from a table."""
    data, rng = load(file), np.random.default_rng([trial, 31])
    nulls, novel = (rng.permutation(np.flatnonzero(of)) for of in (~data.is_novel, data.is_novel))
    n_novel = min(N_NOVEL, novel.size // 3)
    n_others = N_TEST - n_novel
    first, second, known_rows = np.split(nulls[: 2 * n_others + N_KNOWN], [n_others, 2 * n_others])
    tests = np.concatenate([first, novel[:n_novel]])
    unlabelled = np.concatenate([second, novel[n_novel : 2 * n_novel]])
    cases = novel[2 * n_novel : 2 * n_novel + 20]
    samples = (data.X[rows] for rows in (known_rows, unlabelled, tests))
    return Draw(*samples, data.is_novel[tests], data.X[cases])


def isolation(trial: int) -> cn.OneClass:
    """Return the isolation forest of the default."""
    return cn.OneClass(IsolationForest(n_estimators=200, random_state=trial), higher="normal")


Method = Callable[[Draw, int], Callable[[], cn.Detection]]
METHODS: dict[str, Method] = {
    "detect: learns from the batch": lambda d, s: (
        lambda: cn.AdaDetect(random_state=s).detect(d.known_rows, d.tests)
    ),
    "kept, unlabelled rows": lambda d, s: _kept(cn.AdaDetect(random_state=s), d, d.unlabelled),
    "kept, normals alone: the default": lambda d, s: _kept(cn.AdaDetect(random_state=s), d, None),
    "kept, normals alone: isolation forest": lambda d, s: _kept(
        cn.AdaDetect(isolation(s), random_state=s), d, None
    ),
    "kept, normals alone: Mahalanobis": lambda d, s: _kept(
        cn.AdaDetect(mahalanobis_distance(), random_state=s), d, None
    ),
}


def of_another_kind(drawn: Draw) -> Draw:
    """Let 20 normals, moved by six standard deviations in a column, be the known novelties."""
    cases = drawn.known_rows[-20:].copy()
    cases[:, 0] += 6 * drawn.known_rows[:, 0].std()
    return drawn._replace(known_rows=drawn.known_rows[:-20], cases=cases)


WITH_KNOWN: dict[str, Method] = {
    "normals alone": lambda d, s: _kept(cn.AdaDetect(random_state=s), d, None),
    "normals, 5 known novelties": lambda d, s: _kept(
        cn.AdaDetect(random_state=s), d, None, d.cases[:5]
    ),
    "normals, 20 known novelties": lambda d, s: _kept(
        cn.AdaDetect(random_state=s), d, None, d.cases
    ),
    "unlabelled rows": lambda d, s: _kept(cn.AdaDetect(random_state=s), d, d.unlabelled),
    "unlabelled rows, 20 known novelties": lambda d, s: _kept(
        cn.AdaDetect(random_state=s), d, d.unlabelled, d.cases
    ),
    "normals, 20 of another kind": lambda d, s: WITH_KNOWN["normals, 20 known novelties"](
        of_another_kind(d), s
    ),
    "unlabelled rows, 20 of another kind": lambda d, s: WITH_KNOWN[
        "unlabelled rows, 20 known novelties"
    ](of_another_kind(d), s),
    "unlabelled rows, confidence 0.95": lambda d, s: _kept(
        cn.AdaDetect(random_state=s), d, d.unlabelled, None, "0.95"
    ),
}


def _kept(
    detector: cn.AdaDetect,
    drawn: Draw,
    unlabelled: np.ndarray | None,
    cases: np.ndarray | None = None,
    confidence: str | None = None,
) -> Callable[[], cn.Detection]:
    made = detector.keep(drawn.known_rows, unlabelled, cases, confidence=confidence)
    kept = cn.KeptDetector.from_bytes(made.to_bytes())
    return lambda: kept.detect(drawn.tests)


def main() -> None:
    """Print a line for every table, and the means of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get(FOLDER))
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=TABLES)
    parser.add_argument("--known", action="store_true")
    options = parser.parse_args()
    methods = WITH_KNOWN if options.known else METHODS
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    by_name = large(options.data)
    names = [
        name
        for name in by_name
        if any(re.fullmatch(rf"(\d+_)?{key}", name) for key in options.only)
    ]
    warnings.simplefilter("ignore")
    for name in track(names, description="tables"):
        for trial in range(options.trials):
            drawn = draw(by_name[name], trial)
            for method, prepare in methods.items():
                test = prepare(drawn, trial)
                start = time.perf_counter()
                rejected = test().rejected
                seconds = time.perf_counter() - start
                hits = int(rejected[drawn.is_novel].sum())
                power = hits / drawn.is_novel.sum()
                false = (rejected.sum() - hits) / max(rejected.sum(), 1)
                found[name, method].append((power, false, seconds))
    print("| table | " + " | ".join(methods) + " |\n|---|" + "---:|" * len(methods))
    for name in names:
        cells = [np.array(found[name, method]) for method in methods]
        errors = [cell[:, 0].std(ddof=1) / len(cell) ** 0.5 for cell in cells]
        texts = [f"{c[:, 0].mean():.3f} ± {e:.3f}" for c, e in zip(cells, errors, strict=True)]
        print(f"| {name} | " + " | ".join(texts) + " |")
    means = [np.array([found[name, m] for name in names]).mean(axis=(0, 1)) for m in methods]
    print("| mean power | " + " | ".join(f"{mean[0]:.3f}" for mean in means) + " |")
    print("| mean FDP | " + " | ".join(f"{mean[1]:.3f}" for mean in means) + " |")
    print("| time | " + " | ".join(f"{mean[2] / means[0][2]:.4f}" for mean in means) + " |")
    print("seconds of detect:", round(float(means[0][2]), 3))


if __name__ == "__main__":
    main()
