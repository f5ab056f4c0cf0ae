"""Two choices of the decision at one site: lots for ties, and an estimate of the nulls.

Every rule decides on the scores of the same fits. ``--what ties`` counts ties against a test row,
or orders equal scores by lots. ``--what storey`` compares plain BH, Storey's estimate, and rules
that choose between the two from null_train and the unlabelled mixture alone.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

import conovel as cn
from benchmarks._real_sets import files, load
from conovel.stats.null_proportion import Storey
from conovel.stats.ranks import break_ties, conformal_ranks
from conovel.stats.stepup import step_up

LEVEL = Fraction(1, 10)
N_NULL, N_TEST = 900, 300
SHARES = (0.05, 0.1, 0.2, 0.4)
LEAST_SHARE = 0.2  # of novelties among the tests, from which on a rule takes the estimate


def drawn(
    name: str, share: float, trial: int, folder: Path
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw known normals, tests, and which tests are novel."""
    n_novel = round(N_TEST * share)
    rng = np.random.default_rng([trial, n_novel])
    is_novel = np.arange(N_TEST) < n_novel
    if name in ("Gaussian", "grades", "categories"):
        width = {"Gaussian": 10, "grades": 2, "categories": 4}[name]
        rows = rng.normal(size=(N_NULL + N_TEST, width))
        rows[N_NULL : N_NULL + n_novel, :4] += 2
        if name == "grades":  # whole numbers from 1 to 5
            rows = np.clip(np.round(rows + 2), 1, 5)
        if name == "categories":  # three levels of each column
            rows = np.digitize(rows, [0, 1.5])
        return rows[:N_NULL], rows[N_NULL:], is_novel
    table = load(files(folder)[name])
    normal, novel = (
        rng.permutation(np.flatnonzero(of)) for of in (~table.is_novel, table.is_novel)
    )
    n_null = min(N_NULL, normal.size // 2)
    tests = np.concatenate([novel[:n_novel], normal[n_null : n_null + N_TEST - n_novel]])
    return table.X[normal[:n_null]], table.X[tests], table.is_novel[tests]


def of_ties(found: cn.Detection, trial: int) -> Iterator[tuple[str, np.ndarray]]:
    """Decide with ties against the row and with lots."""
    size = found.n_calibration
    scores = np.concatenate([found.calibration_scores, found.scores])
    for label, order in (("against", scores), ("lots", break_ties(scores, trial))):
        ranks = conformal_ranks(*np.split(order, [size]))
        yield label, step_up([(ranks, size)], LEVEL).rejected[0]


def of_nulls(found: cn.Detection, trial: int) -> Iterator[tuple[str, np.ndarray]]:
    """Decide by BH, with the estimate, and by rules that choose between them role-blindly."""
    blocks, m = [(found.ranks, found.n_calibration)], found.ranks.size
    plain = step_up(blocks, LEVEL).rejected[0]
    yield "BH", plain
    for at in ("1/4", "1/2"):
        estimated = step_up(blocks, LEVEL, Storey(at)).rejected[0]
        yield f"Storey at {at}", estimated
    mixture = np.concatenate([found.calibration_scores, found.scores])
    trained = found.explainer.model.score(found.explainer.null_train)
    for quantile in (0.5, 0.75):
        below = np.mean(mixture < np.quantile(trained, quantile)) / quantile
        stands_out = (1 - below) * mixture.size / m
        rule = f"share above the {quantile}-quantile of null_train"
        yield rule, estimated if stands_out >= LEAST_SHARE else plain
    ranks = conformal_ranks(trained, mixture)
    n_found = step_up([(ranks, trained.size)], LEVEL).n_rejected
    yield "BH of the mixture on null_train", estimated if n_found / m >= LEAST_SHARE else plain


def main() -> None:
    """Print power and FDP of every rule, for shares of novelties."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks choices", description=__doc__)
    parser.add_argument("--what", choices=("ties", "storey"), default="ties")
    parser.add_argument("--data", type=Path, default=os.environ.get("CONOVEL_DATA", "."))
    parser.add_argument("--design", default="Gaussian", help="Gaussian, grades or a table")
    parser.add_argument("--scorer", default="logistic")
    parser.add_argument("--trials", type=int, default=50)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    decide = of_ties if options.what == "ties" else of_nulls
    found: dict[str, dict[float, list[tuple[float, float]]]] = {}
    for share in SHARES:
        for trial in range(options.trials):
            X_null, X_test, is_novel = drawn(options.design, share, trial, options.data)
            detector = cn.AdaDetect(options.scorer, level=LEVEL, random_state=trial)
            result = detector.detect(X_null, X_test, check=False)
            for label, mask in decide(result, trial):
                power = np.count_nonzero(mask & is_novel) / is_novel.sum()
                fdp = np.count_nonzero(mask & ~is_novel) / max(mask.sum(), 1)
                found.setdefault(label, {}).setdefault(share, []).append((power, fdp))
    print(
        f"{options.design}, {options.scorer}, {options.trials} trials: power ± standard error"
        " (FDP)"
    )
    print(f"| rule | {' | '.join(f'{share:.0%}' for share in SHARES)} |")
    for label, of_shares in found.items():
        cells = []
        for values in of_shares.values():
            mean, error = np.mean(values, axis=0), np.std(values, axis=0) / len(values) ** 0.5
            cells.append(f"{mean[0]:.3f} ± {error[0]:.3f} ({mean[1]:.3f})")
        print(f"| {label} | {' | '.join(cells)} |")
