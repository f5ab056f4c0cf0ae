"""What `repeats` brings and costs: spread over seeds, power and FDP with one, 5 and 10 runs.

A trial draws rows, and four master seeds decide about them with B runs each. The seeds of 5 runs
are the first of those of 10. Two rules decide on the same ranks: m/(βR) with e-BH and β = 2α/5,
and (ℓ+1)/L with closed e-BH and β = α/2 or 3α/5 (e-BH and β = 2α/5 in a network).
``--levels`` compares levels β of the runs as well.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np

import conovel as cn
from benchmarks._real_sets import Site, draw, files
from benchmarks.choices import drawn
from conovel.experiments.gaussian import gaussian_design
from conovel.spec.run_spec import repeat_seeds
from conovel.stats.evidence import Evidence, averaged, closed_e_bh, e_bh
from conovel.stats.ranks import conformal_ranks
from conovel.stats.repeats import COUNTED, PLAIN, Averaging, averaging_alone
from conovel.stats.stepup import step_up

LEVEL = Fraction(1, 10)
REPEATS = (5, 10)
MASTER_SEEDS = (1, 2, 3, 4)
SHARES = ("3/10", "2/5", "1/2", "3/5", "7/10", "4/5")  # β/α of the runs
REAL = {"thyroid": 1500, "mammography": 1500, "annthyroid": 900, "PageBlocks": 900}
LINEAR = ("Gaussian", "PageBlocks", "magic.gamma")  # 900 known normals, 60 of 300 tests novel
# Calibration rows, tests, novelties, their shift, and how much of a score all runs have in common.
SIMULATED = (
    (100, 100, 20, 4.0, 0.95),
    (450, 300, 30, 3.0, 0.95),
    (450, 300, 30, 3.5, 0.9),
    (450, 300, 120, 2.5, 0.9),
    (2000, 300, 30, 3.0, 0.9),
)

# From a level and a seed to the ranks of one run at each agent, and its calibration rows.
Ranked = Callable[[int], list[tuple[np.ndarray, int]]]
Run = Callable[[Fraction, int, bool], Evidence]


def from_ranks(ranked: Ranked) -> Run:
    """Return a run that ranks once for each seed and gives evidence at any level."""
    held: dict[int, list[tuple[np.ndarray, int]]] = {}

    def run(level: Fraction, seed: int, by_limit: bool) -> Evidence:
        if seed not in held:
            held[seed] = ranked(seed)
        blocks = held[seed]
        decided = step_up(blocks, level)
        if not by_limit:
            mask, k = np.concatenate(decided.rejected), decided.n_rejected
            return Evidence((Fraction(0), mask.size / (level * max(k, 1))), mask.astype(np.int64))
        values = [Fraction(0)] + [
            Fraction(size + 1, max(limit, 1))
            for (_, size), limit in zip(blocks, decided.limits, strict=True)
        ]
        codes = [mask * (j + 1) for j, mask in enumerate(decided.rejected)]
        return Evidence(tuple(values), np.concatenate(codes).astype(np.int64))

    return run


def one_site(site: object, scorer: str | None) -> Run:
    """Run AdaDetect."""

    def ranked(seed: int) -> list[tuple[np.ndarray, int]]:
        detector = cn.AdaDetect(scorer, level=LEVEL / 2, random_state=seed)
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

    return from_ranks(ranked)


def simulated(design: tuple[int, int, int, float, float], trial: int) -> Run:
    """Simulate scores: a part of the row that all runs see, and a part of each run."""
    size, m, n_novel, shift, share = design
    rng = np.random.default_rng([trial, size, m])
    seen = rng.normal(size=2 * size + m)
    seen[2 * size : 2 * size + n_novel] += shift

    def ranked(seed: int) -> list[tuple[np.ndarray, int]]:
        of_run = np.random.default_rng([trial, seed])
        scores = share * seen + (1 - share**2) ** 0.5 * of_run.normal(size=seen.size)
        calibration = scores[of_run.permutation(2 * size)[:size]]
        return [(conformal_ranks(calibration, scores[2 * size :]), size)]

    return from_ranks(ranked)


def designs(folder: Path, trial: int) -> dict[str, tuple[Callable[[], Run], np.ndarray]]:
    """Draw the rows of a trial: how to run each design, and which rows are novel."""
    gauss = gaussian_design(0.0, trial, n_agents=1, n_null=1000, n_test=334)[0]
    found = {"Gaussian": (lambda: one_site(gauss, "extra-trees"), gauss.is_novel)}
    tables = files(folder)
    for name, n in REAL.items():
        if name in tables:
            site = draw(tables[name], "one site", n, trial).sites[0]
            found[name] = (lambda site=site: one_site(site, None), site.is_novel)
    for name in LINEAR:
        if name == "Gaussian" or name in tables:
            X_null, X_test, novel = drawn(name, 0.2, trial, folder)
            site = Site(X_null, X_test, novel)
            found[f"{name}, linear"] = (lambda site=site: one_site(site, "logistic"), novel)
    for design in SIMULATED:
        novel = np.arange(design[1]) < design[2]
        make = partial(simulated, design, trial)
        found[f"simulated {design}"] = (make, novel)
    sites = gaussian_design(1.0, [7, trial])
    is_novel = np.concatenate([site.is_novel for site in sites])
    found["three agents, full"] = (lambda: network(sites, "full"), is_novel)
    return found


def decided(run: Run, master: int, repeats: int, rule: Averaging, share: Fraction) -> np.ndarray:
    """Decide with B runs at a level β."""
    if repeats == 1:
        return run(LEVEL, master, False).codes > 0
    seeds = repeat_seeds(master, repeats)
    evidence = averaged([run(LEVEL * share, seed, rule.by_limit) for seed in seeds])
    return closed_e_bh(evidence, LEVEL) if rule.closed else e_bh(evidence, LEVEL)


def measured(masks: Sequence[np.ndarray], is_novel: np.ndarray) -> list[float]:
    """Measure the decisions of all seeds: Jaccard index of pairs, spread, power, FDP, any flag."""
    overlaps = [
        np.count_nonzero(one & two) / max(np.count_nonzero(one | two), 1)
        if (one | two).any()
        else 1.0
        for one, two in combinations(masks, 2)
    ]
    powers = [np.count_nonzero(m & is_novel) / is_novel.sum() for m in masks]
    fdp = np.mean([np.count_nonzero(m & ~is_novel) / max(m.sum(), 1) for m in masks])
    spread, any_flag = np.std(powers, ddof=1), np.mean([m.any() for m in masks])
    return [*map(float, (np.mean(overlaps), spread, np.mean(powers), fdp, any_flag))]


Line = tuple[str, int, Averaging, Fraction]


def rows_of(name: str, levels: bool) -> list[Line]:
    """List the lines of a design: a label, B, the rule and the share β/α."""
    n_null = 200 if name.startswith("simulated (100,") else 900  # or more
    alone = averaging_alone(LEVEL, n_null, estimates_nulls=False)
    new = COUNTED if "agents" in name else alone
    rows: list[Line] = [("one run", 1, PLAIN, PLAIN.share)]
    for b in REPEATS:
        rows.append((f"B = {b}, m/(βR), e-BH", b, PLAIN, PLAIN.share))
        rows.append((f"B = {b}, (ℓ+1)/L, {new.name}", b, new, new.share))
    for text in SHARES if levels else ():
        rows += [(f"B = {b}, {new.name}, β/α = {text}", b, new, Fraction(text)) for b in REPEATS]
    return rows


def main() -> None:
    """Print a table for each design."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks repeats", description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("CONOVEL_DATA", "."))
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--levels", action="store_true", help="compare levels β of the runs")
    parser.add_argument("--only", default="", help="designs whose names begin so")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[tuple[str, str], list[list[float]]] = {}
    for trial in range(options.first, options.first + options.trials):
        for name, (make, is_novel) in designs(options.data, trial).items():
            if not name.startswith(options.only):
                continue
            run = make()
            for label, *how in rows_of(name, options.levels):
                masks = [decided(run, master, *how) for master in MASTER_SEEDS]
                found.setdefault((name, label), []).append(measured(masks, is_novel))
    print("| design | runs | Jaccard index | spread of power | power | FDP | flags any row |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for (name, label), values in found.items():
        mean, error = np.mean(values, axis=0), np.std(values, axis=0, ddof=1) / len(values) ** 0.5
        cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)]
        print(f"| {name} | {label} | {' | '.join(cells)} |")
