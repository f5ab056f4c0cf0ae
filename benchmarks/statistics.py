"""From scores to decisions: ranks + BH and `reject` against numpy, scipy and other packages.

    python -m benchmarks statistics [--repeat 7]

Every procedure turns ℓ = 10^4 calibration scores and m = 10^6 test scores into a mask of
rejections. Repetitions are interleaved, a cell is the median over repetitions of the ratio
to the baseline of the same repetition, and no absolute time is shown.
"""

import argparse
import importlib.util
from collections.abc import Callable
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import cauchy, false_discovery_control, norm

import conovel as cn

N_CALIBRATION, N_TESTS, N_NOVEL, LEVEL = 10**4, 10**6, 5 * 10**4, 0.1

Scores = np.ndarray
Decide = Callable[[Scores, Scores], np.ndarray]


def baseline(calibration: Scores, tests: Scores) -> np.ndarray:
    """Decide with plain numpy: sort, searchsorted, and BH in floats on the grid of p-values."""
    n_calibration = calibration.size
    ranks = n_calibration + 1 - np.searchsorted(np.sort(calibration), tests)
    count = np.cumsum(np.bincount(ranks, minlength=n_calibration + 2))
    grid = np.arange(n_calibration + 2) / (n_calibration + 1)
    return ranks <= np.flatnonzero(grid <= LEVEL * count / tests.size)[-1]


def numpy_pvalues(calibration: Scores, tests: Scores) -> np.ndarray:
    """Conformal p-values by sort and searchsorted."""
    below = np.searchsorted(np.sort(calibration), tests)
    return (calibration.size + 1 - below) / (calibration.size + 1)


def ranks_and_bh(calibration: Scores, tests: Scores) -> np.ndarray:
    ranks = cn.conformal_ranks(calibration, tests)
    return cn.benjamini_hochberg(ranks, calibration.size, LEVEL)


def reject(calibration: Scores, tests: Scores) -> np.ndarray:
    return cn.reject(calibration, tests, LEVEL)


def scipy_bh(calibration: Scores, tests: Scores) -> np.ndarray:
    return false_discovery_control(numpy_pvalues(calibration, tests)) <= LEVEL


def statsmodels_bh(calibration: Scores, tests: Scores) -> np.ndarray:
    from statsmodels.stats.multitest import multipletests

    return multipletests(numpy_pvalues(calibration, tests), LEVEL, method="fdr_bh")[0]


def nonconform(calibration: Scores, tests: Scores) -> np.ndarray:
    """Its empirical p-values, and scipy's BH, which its own examples use."""
    from nonconform import Empirical

    return false_discovery_control(Empirical().compute_p_values(tests, calibration)) <= LEVEL


def crepes(calibration: Scores, tests: Scores) -> np.ndarray:
    """Its p-values without smoothing, one comparison per pair of scores, and scipy's BH."""
    from crepes.base import p_values_batch

    return false_discovery_control(p_values_batch(calibration, tests, smoothing=False)) <= LEVEL


def adadetect_reference(calibration: Scores, tests: Scores) -> np.ndarray:
    """Sweep all scores once from the lowest, until few enough of the rest are calibration's.

    Algorithm 1 of Mary and Roquain (2022, "Semi-supervised multiple testing"), by which the
    code of AdaDetect's authors decides instead of BH on p-values: same rejections.
    """
    n_calibration, n_tests = calibration.size, tests.size
    # Tests first where scores are equal, so that ties count against them.
    order = np.argsort(np.concatenate([tests, calibration]), kind="stable")
    false, found = n_calibration, n_tests
    for is_test in (order < n_tests).tolist():
        if (false + 1) * n_tests <= LEVEL * found * (n_calibration + 1):
            break
        found -= is_test
        false -= not is_test
    kept = order[n_calibration + n_tests - false - found :]
    rejected = np.zeros(n_tests, dtype=np.bool_)
    rejected[kept[kept < n_tests]] = True
    return rejected


# name: (procedure, package it needs, target ratio, how many repetitions at most)
PROCEDURES: dict[str, tuple[Decide, str, str, int]] = {
    "numpy sort + searchsorted + grid BH": (baseline, "numpy", "", 99),
    "conovel ranks + BH": (ranks_and_bh, "conovel", "≤ 0.5", 99),
    "conovel reject": (reject, "conovel", "≤ 0.12", 99),
    "numpy p-values + scipy BH": (scipy_bh, "scipy", "", 99),
    "numpy p-values + statsmodels BH": (statsmodels_bh, "statsmodels", "", 99),
    "nonconform p-values + scipy BH": (nonconform, "nonconform", "", 99),
    "AdaDetect's reference, one sweep": (adadetect_reference, "numpy", "", 99),
    "crepes p-values + scipy BH": (crepes, "crepes", "", 1),
}

KINDS: dict[str, Callable[[Scores], Scores]] = {
    "normal": lambda z: z,
    "uniform": norm.cdf,
    "heavy-tailed": lambda z: cauchy.isf(norm.sf(z)),
    "tied": lambda z: np.round(z, 2),
}


def draw(kind: str) -> tuple[Scores, Scores]:
    """Scores of one kind: all are monotone images of normals, novelties shifted by 4."""
    rng = np.random.default_rng(0)
    tests = rng.standard_normal(N_TESTS)
    tests[rng.choice(N_TESTS, N_NOVEL, replace=False)] += 4
    return KINDS[kind](rng.standard_normal(N_CALIBRATION)), KINDS[kind](tests)


def measure(kind: str, procedures: dict[str, tuple[Decide, int]], repeat: int) -> dict[str, float]:
    """Time every procedure on the same scores, in turn, and divide by the first."""
    calibration, tests = draw(kind)
    expected = baseline(calibration, tests)
    ratios: dict[str, list[float]] = {name: [] for name in procedures}
    for repetition in range(repeat):
        reference = 0.0
        for name, (decide, at_most) in procedures.items():
            if repetition >= at_most:
                continue
            start = perf_counter()
            rejected = decide(calibration, tests)
            seconds = perf_counter() - start
            if np.mean(rejected != expected) > 1e-3:
                raise AssertionError(f"{name} decides otherwise on {kind} scores")
            reference = reference or seconds
            ratios[name].append(seconds / reference)
    return {name: float(np.median(values)) for name, values in ratios.items()}


def two_digits(ratio: float) -> str:
    """Show a ratio with two significant digits."""
    return np.format_float_positional(ratio, precision=2, fractional=False, trim="-")


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    repeat = parser.parse_args().repeat
    present = {
        name: (decide, at_most)
        for name, (decide, package, _, at_most) in PROCEDURES.items()
        if importlib.util.find_spec(package) is not None
    }
    console = Console(width=100)
    columns = {}
    for kind in track(KINDS, description="kinds of score", console=console, transient=True):
        columns[kind] = measure(kind, present, repeat)
    table = Table(title="time as a multiple of the first row; ℓ = 10^4, m = 10^6")
    table.add_column("procedure", no_wrap=True)
    for kind in KINDS:
        table.add_column(kind, justify="right")
    table.add_column("target", justify="right")
    for name, (_, package, target, _) in PROCEDURES.items():
        if name in present:
            table.add_row(name, *(two_digits(columns[kind][name]) for kind in KINDS), target)
        else:
            console.print(f"{name}: skipped, {package} is not installed")
    console.print(table)


if __name__ == "__main__":
    main()
