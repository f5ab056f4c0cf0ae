"""Few known normals: the default, each single scorer and nonconform on small real tables.

    CONOVEL_DATA=FOLDER python -m benchmarks few [--data FOLDER] [--trials 20] [--out FILE]
        [--sets NAME ...] [--procedures NAME ...] [--known N --tests M]

FOLDER has one npz file for each table, with rows `X` and labels `y`. A trial tests all novelties,
at most 200, and three times as many normals; the other normals are known. With ``--known`` and
``--tests`` a trial has so many of either, a quarter of the tests novel. α = 0.1. "all rows" is
``train_fraction=0``. nonconform is left out where it is not installed. Each trial is a line of
JSON in FILE; what was broken off goes on from there, in another environment too, and
``--trials 0`` only prints.
"""

from __future__ import annotations

import argparse
import logging
import os
import warnings
from collections import defaultdict
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import conovel as cn
from benchmarks import _real_sets
from benchmarks._trials import Row, complete
from benchmarks.peers import nonconform

LEVEL = 0.1
NOVEL_SHARE = 4  # one test in so many is novel
MOST_NOVEL = 200
SCORERS = (
    "extra-trees",
    "random-forest",
    "compiled-forest",
    "boosting",
    "logistic",
    "mlp",
    "refined-trees",
    "refined-linear",
    "isolation-forest",
    "knn",
)
DEFAULT, PEER = "default", "nonconform, k-NN, CV+"
# By name: the arguments of AdaDetect.
PROCEDURES: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    **{name: {"scorer": name} for name in SCORERS},
    "default, all rows": {"train_fraction": 0},
    "isolation-forest, all rows": {"scorer": "isolation-forest", "train_fraction": 0},
    "knn, all rows": {"scorer": "knn", "train_fraction": 0},
}
SHARES = {f"default, {share} trains": {"train_fraction": share} for share in (".4", ".5", ".6")}


def draw(file: Path, trial: int, known: int | None, tests: int | None) -> _real_sets.Site:
    """Draw the rows of a trial; the same ones for every procedure."""
    data = _real_sets.load(file)
    rng = np.random.default_rng([trial, len(data.X)])
    nulls, novel = (rng.permutation(np.flatnonzero(of)) for of in (~data.is_novel, data.is_novel))
    wanted = MOST_NOVEL if tests is None else tests // NOVEL_SHARE
    novel = novel[: min(wanted, novel.size)]
    n_tested = (NOVEL_SHARE - 1) * novel.size
    tested, others = np.concatenate([nulls[:n_tested], novel]), nulls[n_tested:][:known]
    return _real_sets.Site(data.X[others], data.X[tested], data.is_novel[tested])


def measure(row: Row, files: dict[str, Path], sizes: tuple[int | None, int | None]) -> Row:
    """Return power and false discovery proportion of one trial."""
    site = draw(files[row["set"]], row["trial"], *sizes)
    if row["procedure"] == PEER:
        detect = nonconform("k-NN", "CV+")
        rejected = detect(site.X_null, site.X_test, LEVEL, row["trial"])
    else:
        arguments = (PROCEDURES | SHARES)[row["procedure"]]
        detector = cn.AdaDetect(level=LEVEL, random_state=row["trial"], **arguments)
        rejected = detector.detect(site.X_null, site.X_test, check=False).rejected
    false = np.count_nonzero(rejected & ~site.is_novel)
    return {
        "power": float(rejected[site.is_novel].mean()),
        "fdp": false / max(np.count_nonzero(rejected), 1),
    }


def table(rows: Sequence[Row], what: str) -> list[str]:
    """Return Markdown: a line for each procedure, a column for each set, and the mean of sets."""
    by_procedure: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_procedure[row["procedure"]][row["set"]].append(row[what])
    sets = list(dict.fromkeys(row["set"] for row in rows))
    lines = [
        f"| {what} | " + " | ".join(sets) + " | mean |",
        "|---" + "|---:" * (len(sets) + 1) + "|",
    ]
    for procedure, by_set in by_procedure.items():
        if any(len(by_set[name]) < 2 for name in sets):
            continue
        numbers = [np.array(by_set[name]) for name in sets]
        means = np.array([one.mean() for one in numbers])
        errors = np.array([one.std(ddof=1) / one.size**0.5 for one in numbers])
        cells = [f"{mean:.3f} ± {error:.3f}" for mean, error in zip(means, errors, strict=True)]
        total = f"{means.mean():.3f} ± {(errors**2).sum() ** 0.5 / len(sets):.3f}"
        lines.append(f"| {procedure} | " + " | ".join([*cells, total]) + " |")
    return lines


def main() -> None:
    """Measure, keep the trials and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks few", description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("CONOVEL_DATA"))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--known", type=int)
    parser.add_argument("--tests", type=int)
    parser.add_argument("--sets", nargs="+")
    every = [*PROCEDURES, *SHARES, PEER]
    parser.add_argument("--procedures", nargs="+", choices=every, default=[*PROCEDURES, PEER])
    parser.add_argument("--out", type=Path, default=Path("few.jsonl"))
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data or CONOVEL_DATA names the folder of the tables")
    files = _real_sets.files(Path(options.data))
    names = [name for name in options.procedures if name != PEER or find_spec("nonconform")]
    warnings.simplefilter("ignore")
    logging.getLogger("nonconform").setLevel(logging.ERROR)
    todo = [
        {"set": name, "procedure": procedure, "trial": trial}
        for name in options.sets or files
        for procedure in names
        for trial in range(options.trials)
    ]
    sizes = options.known, options.tests
    done = complete(
        options.out, ("set", "procedure"), todo, lambda row: measure(row, files, sizes)
    )
    for what in ("power", "fdp"):
        print("\n" + "\n".join(table(done, what)), flush=True)


if __name__ == "__main__":
    main()
