"""Certificates: how often they fail, how long certified lists are, and what is proven of no list.

    python -m benchmarks certificates [--part coverage|others|gaussian|real|speed ...]
        [--repeats 4000] [--draws 10] [--data FOLDER] [--only NAME ...]

coverage: simulated networks of null rows, all orders equally likely; the share in which some list
has more false rows than its bound. others: one site whose score learns from null_train alone, with
bounds by other authors on the same draws. gaussian: the paper's design at shift 2, in `together`.
real: one site with tables below FOLDER, with 50 novelties among 500 tests and with none. speed:
the bound of 100,000 rows against a plain loop over all its states.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

import conovel as cn
from benchmarks._real_sets import draw as draw_trial
from benchmarks._real_sets import large
from conovel.experiments.gaussian import gaussian_design
from conovel.stats.certificate import Block, false_bound
from conovel.stats.certified import ListBounds
from conovel.stats.levels import as_level
from conovel.stats.stepup import RankHistogram

DELTA, LEVEL = 0.05, 0.1
PARTS = ("coverage", "others", "gaussian", "real", "speed")


def mean_and_error(values: Sequence[float]) -> str:
    """Write a mean with its standard error."""
    array = np.asarray(values, dtype=float)
    if array.size < 2:
        return "–"
    return f"{array.mean():.3f} ± {array.std(ddof=1) / math.sqrt(array.size):.3f}"


# How often a bound fails --------------------------------------------------------------------

EQUAL = {1: [Block(333, 500)], 3: [Block(333, 500, 200)] * 3, 30: [Block(33, 70, 10)] * 30}
UNEQUAL = {
    3: [Block(250, 500, 150), Block(333, 500, 150), Block(300, 500, 150)],
    30: [Block(24 + j % 3 * 4, 70, 10) for j in range(30)],
}
FAR = {3: [Block(100, 300, 90), Block(333, 500, 150), Block(50, 900, 270)]}


def fails(blocks: Sequence[Block], bound: np.ndarray, rng: np.random.Generator, **how: float):
    """Draw the rows of a network; tell whether some list has more false rows than its bound."""
    keys, tests = [], []
    first = max(block.n_test / block.n_calibration for block in blocks)
    for block in blocks:
        n_null = block.n_test - round(how.get("novel", 0) * block.n_test)
        labels = rng.permutation(np.arange(block.n_calibration + n_null) < n_null)
        rows = np.sort(rng.random(labels.size))[: block.n_part]
        if ties := how.get("ties"):
            rows = np.floor(rows * ties)
        if how.get("in_turn") and block.n_test / block.n_calibration < first:
            rows = rows + 1  # rows of the agent with most tests come first
        keys.append(rows)
        tests.append(labels[: rows.size])
    key, test = np.concatenate(keys), np.concatenate(tests)
    order = np.argsort(key, kind="stable")
    false, calibration = np.cumsum(test[order]), np.cumsum(~test[order])
    last_of_ties = np.append(np.diff(key[order]) > 0, True)
    return bool((false > bound[calibration])[last_of_ties].any())


def coverage(repeats: int) -> None:
    """Print the share of networks in which a bound fails."""
    designs: list[tuple[str, Sequence[Block], dict[str, float]]] = []
    for k, blocks in EQUAL.items():
        designs += [(f"{k} agents, all null", blocks, {})]
        designs += [(f"{k} agents, 3 % novelties", blocks, {"novel": 0.03})]
        designs += [(f"{k} agents, 10 % novelties", blocks, {"novel": 0.1})]
        designs += [(f"{k} agents, 128 scores", blocks, {"ties": 128})]
    designs += [(f"{k} agents, unequal", blocks, {}) for k, blocks in UNEQUAL.items()]
    designs += [(f"{k} agents, far from equal", blocks, {}) for k, blocks in FAR.items()]
    print("design | fails at δ = .1 | fails at δ = .05")
    for number, (name, blocks, how) in enumerate(designs):
        shares = []
        for delta in (0.1, 0.05):
            rng, bound = np.random.default_rng([number, 0]), false_bound(blocks, 1 - delta)
            shares.append([fails(blocks, bound, rng, **how) for _ in range(repeats)])
        print(" | ".join([name, *map(mean_and_error, shares)]), flush=True)


# Other bounds for one site ------------------------------------------------------------------


def simulated_counts(m: int, size: int, repeats: int = 10_000) -> np.ndarray:
    """Null tests before each calibration row, all orders equally likely."""
    rng, counts = np.random.default_rng(99), np.empty((repeats, size + 1), dtype=np.int64)
    for row in counts:
        labels = rng.permutation(np.arange(m + size) < m)
        places = np.flatnonzero(~labels)
        row[:size], row[size] = places - np.arange(size), m
    return counts


def uniform_width(m: int, size: int, counts: np.ndarray) -> np.ndarray:
    """m(c + 1)/(ℓ + 1) + λ, the form of Gazin and others, with the smallest λ by simulation."""
    means = m * (np.arange(size + 1) + 1) / (size + 1)
    width = np.quantile((counts - means).max(axis=1), 1 - DELTA, method="higher")
    return np.minimum(np.floor(means + width), m).astype(np.int64)


def envelope(counts: np.ndarray) -> np.ndarray:
    """One quantile at every c, the largest that covers by simulation: as Song and others."""
    ordered = np.sort(counts, axis=0)
    low, high = 0, len(counts) - 1
    while low < high:
        middle = (low + high) // 2
        covered = (counts <= ordered[middle]).all(axis=1).mean()
        low, high = (low, middle) if covered >= 1 - DELTA else (middle + 1, high)
    return np.asarray(ordered[low])


def split_score(seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Ranks at one site by the distance from the middle of null_train; which rows are novel."""
    [agent] = gaussian_design(0.0, seed, n_agents=1, n_null=2000, n_test=1000)
    train, known = agent.X_null[:1000], agent.X_null[1000:]
    centre, scale = train.mean(axis=0), train.std(axis=0)
    scores = [(((rows - centre) / scale) ** 2).sum(axis=1) for rows in (known, agent.X_test)]
    return cn.conformal_ranks(*scores), agent.is_novel, len(known)


def others(draws: int) -> None:
    """Print bounds and certified lists on the same draws of one site."""
    ranks, _, size = split_score(0)
    counts = simulated_counts(ranks.size, size)
    bounds = {
        "Theorem 21": false_bound([Block(ranks.size, size)], 1 - DELTA),
        "uniform width": uniform_width(ranks.size, size, counts),
        "envelope": envelope(counts),
    }
    print("bound | b(0) | b(5) | b(20) | b(100) | b(250) | false of the BH list at most")
    print("| power of the list with at most 10 % false | 30 % false | novelties proven")
    for name, bound in bounds.items():
        found: list[list[float]] = [[], [], [], []]
        for seed in range(draws):
            ranks, novel, size = split_score(seed)
            totals = RankHistogram(ranks, size).totals()
            lists = ListBounds(totals, np.arange(size + 1), bound)
            flagged = cn.benjamini_hochberg(ranks, size, 0.2)
            found[0].append(lists.max_false(ranks[flagged] - 1) / max(flagged.sum(), 1))
            for place, share in ((1, "0.1"), (2, "0.3")):
                chosen = ranks - 1 <= lists.last_place(as_level(share))
                found[place].append(chosen[novel].mean())
            found[3].append(lists.min_novelties / novel.sum())
        at = [str(bound[c]) for c in (0, 5, 20, 100, 250)]
        print(" | ".join([name, *at, *map(mean_and_error, found)]), flush=True)


# Lists of networks and of real tables -------------------------------------------------------


def gaussian(draws: int) -> None:
    """Print what certificates say of the paper's design at shift 2."""
    print("agents | false of the flagged at most | power on average | FDP")
    print("| power of the list with at most 10 % false | its FDP above 10 % | its FDP")
    for n_agents in (1, 3, 30):
        found: list[list[float]] = [[] for _ in range(6)]
        for seed in range(draws):
            sites = gaussian_design(2.0, seed, n_agents=n_agents)
            novel = np.concatenate([site.is_novel for site in sites])
            result, certificate, chosen = run_of(sites)
            flagged = np.concatenate(result)
            listed = np.concatenate(chosen)
            fdp = (listed & ~novel).sum() / max(listed.sum(), 1)
            found[0].append(certificate.max_false / max(flagged.sum(), 1))
            found[1].append(flagged[novel].mean())
            found[2].append((flagged & ~novel).sum() / max(flagged.sum(), 1))
            found[3].append(listed[novel].mean())
            found[4].append(float(fdp > LEVEL))
            found[5].append(fdp)
        print(" | ".join([str(n_agents), *map(mean_and_error, found)]), flush=True)


def run_of(sites):
    """Run one site or a network; give flags, the certificate and the certified list."""
    if len(sites) == 1:
        result = cn.AdaDetect().detect(sites[0].X_null, sites[0].X_test, check=False)
        certificate = result.certificate(1 - DELTA)
        return [result.rejected], certificate, [certificate.list(LEVEL)]
    agents = [cn.Agent(f"a{j:02d}", one.X_null, one.X_test) for j, one in enumerate(sites)]
    run = cn.Network(agents).run(check=False)
    certificate = run.certificate(1 - DELTA)
    flags = [site.rejected for site in run.values()]
    return flags, certificate, list(certificate.list(LEVEL).values())


def real(folder: Path, only: Sequence[str], draws: int) -> None:
    """Print for each table what a certificate proves, with novelties and without."""
    print("table | empty | of these proven | proven of normals only | power on average")
    print("| power of the list with at most 30 % false | false of the flagged at most")
    for name, path in large(folder).items():
        if only and name not in only:
            continue
        columns = np.array([trial_of(path, number) for number in range(draws)]).T
        empty = columns[0] == 1
        cells = [name, f"{empty.sum()} of {draws}", f"{columns[1][empty].sum():.0f}"]
        cells += [f"{columns[2].sum():.0f}"]
        cells += [f"{column.mean():.3f}" for column in columns[3:5]]
        cells += ["–" if empty.all() else f"{np.nanmean(columns[5]):.3f}"]
        print(" | ".join(cells), flush=True)


def trial_of(path: Path, number: int) -> tuple[float, ...]:
    """Test one draw of a table, and its normals alone."""
    [site] = draw_trial(path, "one site", 1500, number).sites
    result = cn.AdaDetect().detect(site.X_null, site.X_test, check=False)
    certificate = result.certificate(1 - DELTA)
    normals = cn.AdaDetect().detect(site.X_null, site.X_test[~site.is_novel], check=False)
    listed = certificate.list("0.3")
    return (
        result.n_rejected == 0,
        certificate.min_novelties > 0,
        normals.certificate(1 - DELTA).min_novelties > 0,
        float(result.rejected[site.is_novel].mean()),
        float(listed[site.is_novel].mean()),
        certificate.max_false / result.n_rejected if result.n_rejected else math.nan,
    )


# Speed --------------------------------------------------------------------------------------


def plain_walk(m: int, size: int, bound: np.ndarray, last: int) -> float:
    """Return the chance that draws with replacement exceed a bound, by a plain loop."""
    q, missed, alive = m / (m + size), 0.0, [1.0]
    for c in range(last + 1):
        reached, before = [], 0.0
        for v in range(int(bound[c]) + 1):
            before = (alive[v] if v < len(alive) else 0.0) + q * before
            reached.append(before)
        missed += q * before
        alive = [(1 - q) * chance for chance in reached]
    return missed


def speed() -> None:
    """Print how much longer a plain loop over all states takes than the bound."""
    m, size = 33_000, 67_000
    best = math.inf
    for _ in range(5):
        start = perf_counter()
        bound = false_bound([Block(m, size)], 1 - DELTA)
        best = min(best, perf_counter() - start)
    start = perf_counter()
    missed = plain_walk(m, size, bound, size // 4)
    loop = perf_counter() - start
    print(f"100,000 rows: a plain loop over the states takes {loop / best:,.0f} times as long")
    print(f"(one pass; it finds a chance of {missed:.4f} with replacement)")


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--repeats", type=int, default=4000)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", nargs="*", default=())
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    run: dict[str, Callable[[], None]] = {
        "coverage": lambda: coverage(chosen.repeats),
        "others": lambda: others(chosen.draws),
        "gaussian": lambda: gaussian(chosen.draws),
        "speed": speed,
    }
    if chosen.data is not None:
        run["real"] = lambda: real(chosen.data, chosen.only, chosen.draws)
    for part in chosen.part:
        if part in run:
            print(f"\n{part}")
            run[part]()


if __name__ == "__main__":
    main()
