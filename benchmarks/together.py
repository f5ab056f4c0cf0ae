"""What agents find that learn one score together, beside other regimes on the same draws.

    python -m benchmarks together [--draws 6] [--only WORD ...] [--regimes ...] [--data FOLDER]

Designs: the paper's Gaussian one over 3, 30 and 100 agents; the same over three agents with 2 %
and with 40 % novelties; and, with FOLDER, tables: thin agents (100 known normals, 33 tests with 3
novelties), and tables with sites of their own (600 known normals, 200 tests with at most 20
novelties). Powers are means over draws with standard errors. The last column is the processor time
of a run, divided by that of one plain random forest of 100 trees for each agent.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier

import conovel as cn
from benchmarks._real_sets import Site, files, load
from conovel.experiments.gaussian import gaussian_design

Draw = Callable[[int], list[Site]]


def gaussian(n_agents: int, shift: float) -> Draw:
    """Return the paper's design."""

    def draw(seed: int) -> list[Site]:
        agents = gaussian_design(shift, seed, n_agents=n_agents)
        return [Site(one.X_null, one.X_test, one.is_novel) for one in agents]

    return draw


def with_share(share: float, shift: float) -> Draw:
    """Return three agents of the paper's design with another share of novelties."""

    def draw(seed: int) -> list[Site]:
        sites = []
        for X_null, X_test, is_novel in gaussian(3, shift)(seed):
            normal, novel = X_test[~is_novel], X_test[is_novel]
            n_novel = min(round(share * len(X_test)), len(novel))
            n_normal = min(len(normal), int(n_novel * (1 - share) / share))
            if share < 0.1:
                n_normal = len(normal)
            rows = np.vstack([normal[:n_normal], novel[:n_novel]])
            sites.append(Site(X_null, rows, np.arange(len(rows)) >= n_normal))
        return sites

    return draw


def thin(path: Path, n_agents: int) -> Draw:
    """Return agents with 100 known normals of a table, and 33 tests with 3 novelties."""

    def draw(seed: int) -> list[Site]:
        data, rng = load(path), np.random.default_rng([7, seed])
        normal, novel = (
            data.X[rng.permutation(np.flatnonzero(m))] for m in (~data.is_novel, data.is_novel)
        )
        sites = []
        for j in range(n_agents):
            own = normal[130 * j : 130 * (j + 1)]
            rows = np.vstack([own[100:], novel[(np.arange(3) + 3 * j) % len(novel)]])
            order = rng.permutation(33)
            sites.append(Site(own[:100], rows[order], order >= 30))
        return sites

    return draw


def by_site(path: Path) -> Draw:
    """Return the sites of a table: 600 known normals, 200 tests with at most 20 novelties."""

    def draw(seed: int) -> list[Site]:
        data, rng = load(path), np.random.default_rng([11, seed])
        sites = []
        for site in np.unique(data.site):
            parts = (data.X[(data.site == site) & m] for m in (~data.is_novel, data.is_novel))
            normal, novel = (part[rng.permutation(len(part))] for part in parts)
            n_novel = min(20, len(novel))
            n_null = min(600, len(normal) - (200 - n_novel))
            rows = np.vstack([normal[n_null : n_null + 200 - n_novel], novel[:n_novel]])
            order = rng.permutation(len(rows))
            sites.append(Site(normal[:n_null], rows[order], order >= 200 - n_novel))
        return sites

    return draw


def designs(folder: Path | None) -> dict[str, Draw]:
    """Name all designs that can be drawn."""
    named: dict[str, Draw] = {
        f"gaussian, {k} agents, shift {shift}": gaussian(k, float(shift))
        for k in (3, 30, 100)
        for shift in (0, 2, 4)
    }
    named |= {f"2 % novel, shift {shift}": with_share(0.02, float(shift)) for shift in (0, 2)}
    named["40 % novel, shift 2"] = with_share(0.4, 2.0)
    paths = files(folder) if folder else {}
    for name in ("shuttle", "thyroid"):
        if name in paths:
            named |= {f"{name}, {k} thin agents": thin(paths[name], k) for k in (9, 20)}
    for name in ("netflow", "beijing_air", "gas_turbine", "gusto"):
        if name in paths:
            named[f"{name}, its sites"] = by_site(paths[name])
    return named


def measure(sites: list[Site], regime: str, seed: int) -> tuple[float, float, float]:
    """Return power, false share and processor seconds of one run."""
    agents = [cn.Agent(f"{i:03d}", one.X_null, one.X_test) for i, one in enumerate(sites)]
    start = time.process_time()
    run = cn.Network(agents, regime=regime, random_state=seed).run(check=False)
    seconds = time.process_time() - start
    flags = [(run[f"{i:03d}"].rejected, one.is_novel) for i, one in enumerate(sites)]
    true = sum(int((flag & novel).sum()) for flag, novel in flags)
    n_novel = sum(int(novel.sum()) for _, novel in flags)
    return true / n_novel, (run.n_rejected - true) / max(run.n_rejected, 1), seconds


def forests(sites: list[Site]) -> float:
    """Return the processor seconds of one plain forest for each agent."""
    start = time.process_time()
    for one in sites:
        half = len(one.X_null) // 2
        rows = np.vstack([one.X_null, one.X_test])
        RandomForestClassifier(100, random_state=0).fit(rows, np.arange(len(rows)) >= half)
    return time.process_time() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--regimes", nargs="+", default=["together", "joint"])
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", cn.ConovelWarning)
    for name, draw in designs(options.data).items():
        if options.only and not any(word in name for word in options.only):
            continue
        for regime in options.regimes:
            runs = []
            for seed in range(200, 200 + options.draws):
                sites = draw(seed)
                power, false, seconds = measure(sites, regime, seed - 200)
                runs.append((power, false, seconds / forests(sites)))
            means, errors = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1) / len(runs) ** 0.5
            cells = [
                f"{mean:.3f} ± {error:.3f}" for mean, error in zip(means, errors, strict=True)
            ]
            print(f"| {name} | {regime} | {cells[0]} | {cells[1]} | {means[2]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
