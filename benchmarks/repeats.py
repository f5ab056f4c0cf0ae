"""What `repeats` brings and costs: Jaccard index of two seeds, power and FDP with B = 1, 5, 20.

A trial draws rows, and two master seeds decide about them with B runs each. The seeds of 5 runs
are the first of those of 20, so one set of 20 runs gives the rows that every B flags.
``--levels`` compares levels β of the runs as well, from the same ranks.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

import conovel as cn
from benchmarks._real_sets import draw, files
from conovel.experiments.gaussian import gaussian_design
from conovel.spec.run_spec import repeat_seeds
from conovel.stats.evidence import averaged, e_bh, rejection_evidence
from conovel.stats.repeats import run_level
from conovel.stats.stepup import step_up

LEVEL = Fraction(1, 10)
REPEATS = (1, 5, 20)
MASTER_SEEDS = (1, 2)
# β/α of the runs; a pair is a mixture with half of the weight on each.
SHARES = ("3/10", "2/5", "1/2", "3/5", "7/10", "9/10", "3/10 1/2", "3/10 7/10", "1/10 1/2")
REAL = ("thyroid", "mammography")

# From a level and a seed to the rows that one run flags, all agents one after the other.
Run = Callable[[Fraction, int], np.ndarray]


def from_ranks(ranked: Callable[[int], list[tuple[np.ndarray, int]]]) -> Run:
    """Return a run that ranks once for each seed and decides at any level."""
    known: dict[int, list[tuple[np.ndarray, int]]] = {}

    def run(level: Fraction, seed: int) -> np.ndarray:
        if seed not in known:
            known[seed] = ranked(seed)
        return np.concatenate(step_up(known[seed], level).rejected)

    return run


def one_site(site: object, scorer: str | None) -> Run:
    """Run AdaDetect."""

    def ranked(seed: int) -> list[tuple[np.ndarray, int]]:
        detector = cn.AdaDetect(scorer, level=run_level(LEVEL), random_state=seed)
        found = detector.detect(site.X_null, site.X_test)
        return [(found.ranks, found.n_calibration)]

    return from_ranks(ranked)


def network(sites: Sequence[object], regime: str) -> Run:
    """Run a network of linear models."""
    agents = [cn.Agent(name, s.X_null, s.X_test) for name, s in zip("abc", sites, strict=True)]

    def made(level: Fraction, seed: int) -> cn.NetworkRun:
        options = {"regime": regime, "composite": "mean", "bits": None, "scorer": "logistic"}
        return cn.Network(agents, level=level, random_state=seed, **options).run()

    def ranked(seed: int) -> list[tuple[np.ndarray, int]]:
        return [(s.ranks, s.n_calibration) for s in made(LEVEL, seed).values()]

    def joint(level: Fraction, seed: int) -> np.ndarray:
        return np.concatenate([site.rejected for site in made(level, seed).values()])

    return joint if regime == "joint" else from_ranks(ranked)


def designs(folder: Path, trial: int) -> dict[str, tuple[Callable[[], Run], np.ndarray]]:
    """Draw the rows of a trial: how to run each design, and which rows are novel."""
    gauss = gaussian_design(0.0, trial, n_agents=1, n_null=1000, n_test=334)[0]
    found = {"Gaussian": (lambda: one_site(gauss, "extra-trees"), gauss.is_novel)}
    tables = files(folder)
    for name in REAL:
        if name in tables:
            site = draw(tables[name], "one site", 1500, trial).sites[0]
            found[name] = (lambda site=site: one_site(site, None), site.is_novel)
    sites = gaussian_design(1.0, [7, trial])
    is_novel = np.concatenate([site.is_novel for site in sites])
    for regime in ("full", "joint"):
        found[f"three agents, {regime}"] = (lambda r=regime: network(sites, r), is_novel)
    return found


def decided(run: Run, master: int, repeats: int, shares: Sequence[Fraction]) -> np.ndarray:
    """Decide with B runs at each of some levels β."""
    if repeats == 1:
        return run(LEVEL, master)
    evidence = [
        rejection_evidence(run(LEVEL * share, seed), LEVEL * share)
        for share in shares
        for seed in repeat_seeds(master, repeats)
    ]
    return e_bh(averaged(evidence), LEVEL)


def measured(masks: Sequence[np.ndarray], is_novel: np.ndarray) -> list[float]:
    """Measure two decisions: Jaccard index (1 if both are empty), power, FDP, any flag."""
    first, second = masks
    either = np.count_nonzero(first | second)
    jaccard = np.count_nonzero(first & second) / either if either else 1.0
    power = np.mean([np.count_nonzero(m & is_novel) / is_novel.sum() for m in masks])
    fdp = np.mean([np.count_nonzero(m & ~is_novel) / max(m.sum(), 1) for m in masks])
    return [jaccard, float(power), float(fdp), float(np.mean([m.any() for m in masks]))]


def rows_of(options: argparse.Namespace) -> list[tuple[str, int, list[Fraction]]]:
    """List the lines of the table: a label, B and the shares β/α."""
    half = run_level(Fraction(1))
    rows = [(f"B = {b}", b, [half]) for b in REPEATS]
    for text in SHARES if options.levels else ():
        most, shares = REPEATS[-1], [Fraction(share) for share in text.split()]
        rows.append((f"B = {most}, β/α = {text}", most, shares))
    return rows


def main() -> None:
    """Print a table for each design."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks repeats", description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("CONOVEL_DATA", "."))
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--levels", action="store_true", help="compare levels β of the runs")
    parser.add_argument("--only", default="", help="designs whose names contain this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = rows_of(options)
    found: dict[tuple[str, str], list[list[float]]] = {}
    for trial in range(options.first, options.first + options.trials):
        for name, (make, is_novel) in designs(options.data, trial).items():
            if options.only not in name:
                continue
            run = make()
            for label, repeats, shares in lines:
                masks = [decided(run, master, repeats, shares) for master in MASTER_SEEDS]
                found.setdefault((name, label), []).append(measured(masks, is_novel))
    print("| design | runs | Jaccard index | power | FDP | flags any row |")
    print("|---|---|---:|---:|---:|---:|")
    for (name, label), values in found.items():
        mean, error = np.mean(values, axis=0), np.std(values, axis=0, ddof=1) / len(values) ** 0.5
        cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)]
        print(f"| {name} | {label} | {' | '.join(cells)} |")
