"""Power of the defaults against each of their scorers, plain AdaDetect and the limit.

    python -m benchmarks power [--trials 100] [--only NAME ...] [--data FOLDER] [--out FOLDER]

Designs: the paper's Gaussian one with 3 agents at shifts 0, 2, 3 and 4, the same data over 9
and 30 agents, novelties on both sides of the normals, novelties on a circle, π0 = 0.98, and
real data. Results are kept in FOLDER, one file a trial; what was broken off goes on from
there. Every number is a mean over trials with its standard error.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from scipy.special import ive

from conovel.experiments.gaussian import (
    DIMENSION,
    Labelled,
    centres,
    gaussian_design,
    novelty_centre,
)
from conovel.experiments.limit import gaussian_limit
from conovel.experiments.realdata import real_sources
from conovel.experiments.reproduce import run_tasks
from conovel.experiments.tasks import Cell, Learner, Row, Task
from conovel.scorers.automatic import Automatic

RADIUS = 5.0  # of the circle that curved novelties lie on
COMPOSITES = ("auto", "stacked", "mean", "max", "min")
CANDIDATES = tuple(Automatic().candidates())


@dataclass(frozen=True)
class Design:
    """Gaussian normals, and novelties of some shape."""

    shape: str = "shifted"
    shift: float = 0.0
    n_agents: int = 3
    null_share: float = 0.9

    def draw(self, seed: list[int]) -> list[Labelled]:
        rng = np.random.default_rng(seed)
        agents = gaussian_design(
            self.shift, rng, n_agents=self.n_agents, null_share=self.null_share
        )
        if self.shape == "shifted":
            return agents
        return [
            Labelled(
                agent.X_null,
                np.where(
                    agent.is_novel[:, None], self.novelties(len(agent.X_test), rng), agent.X_test
                ),
                agent.is_novel,
            )
            for agent in agents
        ]

    def novelties(self, n: int, rng: np.random.Generator) -> np.ndarray:
        noise = rng.normal(size=(n, DIMENSION))
        if self.shape == "symmetric":
            return noise + rng.choice([-1.0, 1.0], size=(n, 1)) * novelty_centre()
        angle = rng.uniform(0, 2 * np.pi, n)
        noise[:, 0] += RADIUS * np.cos(angle)
        noise[:, 1] += RADIUS * np.sin(angle)
        return noise

    def limit(self, n: int = 400_000) -> float:
        """The best power with one p-value threshold for all; by simulation where need be."""
        if self.shape == "shifted":
            return gaussian_limit(self.shift, null_share=self.null_share).common
        rng = np.random.default_rng(0)
        true = []
        novel = self.novelties(n, rng)
        for centre in centres(self.shift):
            null = self.log_ratio(rng.normal(size=(n, DIMENSION)) + centre, centre)
            null.sort()
            above = n - np.searchsorted(null, self.log_ratio(novel, centre))
            true.append(np.sort((above + 1) / (n + 1)))
        p = np.sort(np.concatenate(true))
        power = np.arange(1, p.size + 1) / p.size
        share = self.null_share
        keeps = p * (1 - 0.1 * share) <= 0.1 * (1 - share) * power  # F = α (π0 F + (1 - π0) T)
        return float(power[keeps].max(initial=0))

    def log_ratio(self, X: np.ndarray, centre: np.ndarray) -> np.ndarray:
        null = -((X - centre) ** 2).sum(axis=1) / 2
        if self.shape == "symmetric":
            both = [-((X - s * novelty_centre()) ** 2).sum(axis=1) / 2 for s in (-1, 1)]
            return np.logaddexp(*both) - null
        radius = RADIUS * np.hypot(X[:, 0], X[:, 1])
        return -(X**2).sum(axis=1) / 2 + np.log(ive(0, radius)) + radius - null

    def columns(self) -> Row:
        name = self.shape if self.null_share == 0.9 else f"{self.shape}, π0 {self.null_share}"
        return {"data": name, "shift": self.shift, "agents": self.n_agents}

    def identity(self) -> dict[str, Any]:
        return {"design": repr(self), "revision": 1}


@dataclass(frozen=True, eq=False)
class Only(Automatic):
    """One candidate of the automatic choice, with the random numbers that it has there."""

    name: str = "blend"

    def fit(self, training: Any) -> Any:
        return self.candidates()[self.name].fit(training)


@dataclass(frozen=True)
class Candidate(Learner):
    """One candidate by itself, with the default's split."""

    @property
    def share(self) -> None:
        return None

    def columns(self) -> Row:
        return {"scorer": self.name, "trees": 0, "depth": 0, "train_fraction": ""}

    def scorer(self) -> Any:
        return Only(name=self.name)


DESIGNS = {
    "gaussian": [Design(shift=delta) for delta in (0.0, 2.0, 3.0, 4.0)],
    "thin": [Design(shift=delta, n_agents=k) for k in (9, 30) for delta in (0.0, 2.0, 4.0)],
    "symmetric": [Design("symmetric", delta) for delta in (0.0, 2.0)],
    "curved": [Design("curved", delta) for delta in (0.0, 2.0)],
    "rare": [Design(shift=delta, null_share=0.98) for delta in (0.0, 2.0)],
}


def tasks(
    sources: Sequence[Any], trials: int, seed: int, composites: Sequence[str], candidates: bool
) -> list[Task]:
    """Trial after trial: the defaults, plain AdaDetect, and each candidate by itself."""
    full = tuple(Cell("full", composite, "compact") for composite in composites)
    plans = [
        (Learner("default"), (Cell("joint", "auto", "compact"),)),
        (Learner("default"), (*full, Cell("counts"))),
        # The reference AdaDetect's forest.
        (Learner("forest", 100, 10), (Cell("counts"), Cell("pooled"))),
    ]
    if candidates:
        plans += [(Candidate(name), (Cell("counts"),)) for name in CANDIDATES]
    return [
        Task(source, learner, cells, "1/10", seed, trial)
        for trial in range(trials)
        for source in sources
        for learner, cells in plans
    ]


def summary(rows: Sequence[Row]) -> dict[tuple[Any, ...], dict[str, tuple[float, ...]]]:
    """Mean and standard error of power and FDP, by design and way to decide."""
    found = defaultdict(lambda: defaultdict(list))
    for row in rows:
        what = f"{row['regime']} {row['composite']}".strip()
        who = {"default": "", "forest": "forest "}.get(row["scorer"], f"{row['scorer']} ")
        found[row["data"], row["shift"], row["agents"]][who + what].append(
            (row["power"], row["fdp"])
        )
    return {
        design: {
            name: (*np.mean(v, axis=0), *(np.std(v, axis=0, ddof=1) / len(v) ** 0.5), len(v))
            for name, v in ways.items()
        }
        for design, ways in found.items()
    }


def wide(
    tables: dict[tuple[Any, ...], dict[str, tuple[float, ...]]],
    limits: dict[tuple[Any, ...], float],
    what: int,
) -> list[str]:
    """One line for each design, one column for each way to decide; `what` is 0 or 1."""
    ways = list(dict.fromkeys(way for table in tables.values() for way in table))
    lines = [
        "| design | shift | agents | trials | limit | " + " | ".join(ways) + " |",
        "|---" * (len(ways) + 5) + "|",
    ]
    for design, table in tables.items():
        data, shift, agents = design
        limit = f"{limits[design]:.4f}" if design in limits else ""
        cells = [
            f"{table[way][what]:.3f} ± {table[way][what + 2]:.3f}" if way in table else ""
            for way in ways
        ]
        trials = max(v[-1] for v in table.values())
        head = [data, "" if shift is None else f"{shift:g}", str(agents), str(trials)]
        lines.append("| " + " | ".join([*head, limit if what == 0 else "", *cells]) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=[*DESIGNS, "real"], default=[*DESIGNS])
    parser.add_argument("--shift", type=float, help="only this shift")
    parser.add_argument("--agents", type=int, help="only this number of agents")
    parser.add_argument("--data", type=Path, help="folder of real data, for --only real")
    parser.add_argument("--composites", nargs="+", choices=COMPOSITES, default=["auto"])
    parser.add_argument("--candidates", action="store_true", help="each candidate by itself too")
    parser.add_argument("--out", type=Path, default=Path("power"))
    options = parser.parse_args()
    sources = [design for name in options.only for design in DESIGNS.get(name, ())]
    sources = [
        source
        for source in sources
        if options.shift in (None, source.shift) and options.agents in (None, source.n_agents)
    ]
    limits = {tuple(source.columns().values()): source.limit() for source in sources}
    if "real" in options.only:
        sources += real_sources(options.data)
    planned = tasks(sources, options.trials, options.seed, options.composites, options.candidates)
    rows = [
        row
        for task in track(planned, "trials", transient=True)
        for row in run_tasks([task], options.out)
    ]
    tables = summary(rows)
    for what, title in enumerate(("Power", "False discovery rate (at most 0.1)")):
        print(f"\n{title}, mean ± standard error over the trials\n")
        print("\n".join(wide(tables, limits, what)))


if __name__ == "__main__":
    main()
