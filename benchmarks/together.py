"""What agents find that learn one score together, beside other regimes on the same draws.

    python -m benchmarks together [--draws 6] [--only WORD ...] [--regimes ...] [--data FOLDER]

Designs: the paper's Gaussian one over 3, 9, 30 and 100 agents; the same over three agents with 2 %
and with 40 % novelties; novelties on both sides of the normals ("symmetric") and on a circle
around them ("curved"); and, with FOLDER, tables: thin agents (100 known normals, 33 tests with 3
novelties); three agents with rows of one source (500 known normals, 200 tests with 20 novelties;
"rare": 1,000 and 330 with 7); three agents that prefer some clusters of the normals; and tables
with sites of their own (600 known normals, 200 tests with at most 20 novelties; "many rows": up to
1,500, and 330 tests with 33). Powers are means over draws with standard errors. The last column is
the processor time of a run, divided by that of one plain random forest of 100 trees for each
agent.
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
from benchmarks._real_sets import draw as draw_trial
from benchmarks._shapes import DESIGNS as SHAPES
from benchmarks._shapes import Design
from conovel.experiments.gaussian import gaussian_design

Draw = Callable[[int], list[Site]]
_ALIKE = ("shuttle", "mammography", "satellite", "PageBlocks", "annthyroid", "mnist", "donors")
_CLUSTERS = (*_ALIKE, "skin", "gasdrift")


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


def of_shape(design: Design) -> Draw:
    """Return three agents of the paper's design with novelties of another shape."""

    def draw(seed: int) -> list[Site]:
        return [Site(one.X_null, one.X_test, one.is_novel) for one in design.draw(seed)]

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


def alike(path: Path, n_null: int, n_test: int, n_novel: int) -> Draw:
    """Return three agents with rows of one source; no row is at two of them."""

    def draw(seed: int) -> list[Site]:
        data, rng = load(path), np.random.default_rng([13, seed])
        normal, novel = (
            data.X[rng.permutation(np.flatnonzero(m))] for m in (~data.is_novel, data.is_novel)
        )
        n_normal = n_null + n_test - n_novel
        if len(normal) < 3 * n_normal or len(novel) < 3 * n_novel:
            raise ValueError(f"{path.name} has too few rows for three agents")
        sites = []
        for j in range(3):
            own = normal[n_normal * j : n_normal * (j + 1)]
            rows = np.vstack([own[n_null:], novel[n_novel * j : n_novel * (j + 1)]])
            order = rng.permutation(n_test)
            sites.append(Site(own[:n_null], rows[order], order >= n_test - n_novel))
        return sites

    return draw


def by_cluster(path: Path) -> Draw:
    """Return three agents, each with more rows of some clusters of the normals."""
    return lambda seed: draw_trial(path, "three sites", 600, seed).sites


def by_site(path: Path, most_null: int = 600, n_test: int = 200, most_novel: int = 20) -> Draw:
    """Return the sites of a table."""

    def draw(seed: int) -> list[Site]:
        data, rng = load(path), np.random.default_rng([11, seed])
        sites = []
        for site in np.unique(data.site):
            parts = (data.X[(data.site == site) & m] for m in (~data.is_novel, data.is_novel))
            normal, novel = (part[rng.permutation(len(part))] for part in parts)
            n_novel = min(most_novel, len(novel))
            n_normal = n_test - n_novel
            n_null = min(most_null, len(normal) - n_normal)
            rows = np.vstack([normal[n_null : n_null + n_normal], novel[:n_novel]])
            order = rng.permutation(len(rows))
            sites.append(Site(normal[:n_null], rows[order], order >= n_normal))
        return sites

    return draw


def designs(folder: Path | None) -> dict[str, Draw]:
    """Name all designs that can be drawn."""
    named: dict[str, Draw] = {
        f"gaussian, {k} agents, shift {shift}": gaussian(k, float(shift))
        for k in (3, 9, 30, 100)
        for shift in (0, 2, 4)
    }
    named |= {f"2 % novel, shift {shift}": with_share(0.02, float(shift)) for shift in (0, 2)}
    named["40 % novel, shift 2"] = with_share(0.4, 2.0)
    named |= {name: of_shape(design) for name, design in SHAPES.items()}
    paths = files(folder) if folder else {}
    for name in ("shuttle", "thyroid"):
        if name in paths:
            named |= {f"{name}, {k} thin agents": thin(paths[name], k) for k in (9, 20)}
    for name in ("netflow", "beijing_air", "gas_turbine", "gusto"):
        if name in paths:
            named[f"{name}, its sites"] = by_site(paths[name])
    if "netflow" in paths:
        named["netflow, its sites, many rows"] = by_site(paths["netflow"], 1500, 330, 33)
    if "shuttle" in paths:
        named["shuttle, three alike, rare"] = alike(paths["shuttle"], 1000, 330, 7)
    for name in _ALIKE:
        if name in paths:
            named[f"{name}, three alike"] = alike(paths[name], 500, 200, 20)
    for name in _CLUSTERS:
        if name in paths:
            named[f"{name}, three by cluster"] = by_cluster(paths[name])
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
    parser.add_argument("--regimes", nargs="+", default=["together", "joint", "full", "counts"])
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
