"""Power and FDP against the number of agents: `joint` against other regimes.

    python -m benchmarks joint [--agents 3 9 30 100] [--shifts 0 2 4] [--trials 30]
        [--regimes joint full] [--real NAME ...] [--data FOLDER] [--out FILE] [--means FILE]

Rows are those of the paper's Gaussian design: 3000 known normals and 1000 tests, divided among the
agents. With ``--real``, rows of the named tables below FOLDER are dealt to the agents at random
instead: each has 100 known normals and 33 tests, 3 of them novel. All regimes see the same draws
and have default settings; ``joint:mean`` is `joint` with the composite `mean`. Each trial is a
line of JSON in FILE; what was broken off goes on from there. The tables are about all lines of
FILE, so ``--trials 0`` only prints. ``--means`` writes them as CSV, from which docs/figures.py
draws.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import numpy as np

from benchmarks._real_sets import Rows, Site, files, load
from benchmarks._trials import Row, complete, means, measure, show, write_means
from conovel.experiments.gaussian import Labelled, gaussian_design

GAUSSIAN = "gaussian"
N_NULL, N_TEST, N_NOVEL = 100, 33, 3  # of an agent with rows of a real table
DESIGN = ("set", "shift", "agents", "regime")  # what a mean is about


def deal(data: Rows, n_agents: int, rng: np.random.Generator) -> list[Site]:
    """Deal rows to agents at random; no row is dealt twice."""
    n_null = N_NULL + N_TEST - N_NOVEL
    nulls, novel = (rng.permutation(np.flatnonzero(of)) for of in (~data.is_novel, data.is_novel))
    if nulls.size < n_null * n_agents or novel.size < N_NOVEL * n_agents:
        raise SystemExit(
            f"{nulls.size} normals and {novel.size} novelties are too few for {n_agents} agents:"
            f" each needs {n_null} and {N_NOVEL}; take fewer agents or another table"
        )
    sites = []
    for j in range(n_agents):
        own = nulls[j * n_null : (j + 1) * n_null]
        tests = np.concatenate([own[N_NULL:], novel[j * N_NOVEL : (j + 1) * N_NOVEL]])
        sites.append(Site(data.X[own[:N_NULL]], data.X[tests], data.is_novel[tests]))
    return sites


def draw(row: Row, tables: dict[str, Path]) -> list[Labelled] | list[Site]:
    """Draw the rows of a trial; the same ones for every regime."""
    rng = np.random.default_rng([row["trial"], row["agents"]])
    if row["set"] == GAUSSIAN:
        return gaussian_design(row["shift"], rng, n_agents=row["agents"])
    return deal(load(tables[row["set"]]), row["agents"], rng)


def wanted(options: argparse.Namespace) -> list[Row]:
    """Return the trials that are asked for."""
    sets: list[tuple[str, float | None]] = [(name, None) for name in options.real]
    sets = sets or [(GAUSSIAN, shift) for shift in options.shifts]
    return [
        {"set": name, "shift": shift, "agents": n_agents, "regime": regime, "trial": trial}
        for trial in range(options.trials)
        for n_agents in options.agents
        for name, shift in sets
        for regime in options.regimes
    ]


def main() -> None:
    """Measure, keep the trials and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks joint", description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[3, 9, 30, 100])
    parser.add_argument("--shifts", type=float, nargs="+", default=[0.0, 2.0, 4.0])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--regimes", nargs="+", default=["joint", "full"])
    parser.add_argument("--real", nargs="+", default=[], metavar="NAME", help="tables in FOLDER")
    parser.add_argument("--data", type=Path, default=os.environ.get("CONOVEL_DATA", "."))
    parser.add_argument("--out", type=Path, default=Path("joint.jsonl"))
    parser.add_argument("--means", type=Path, help="write the means to this CSV file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tables = files(options.data) if options.real else {}
    if unknown := [name for name in options.real if name not in tables]:
        raise SystemExit(f"no table {', '.join(unknown)} below {options.data}: see --data")

    def run(row: Row) -> Row:
        return measure(draw(row, tables), row["regime"])

    rows = complete(options.out, DESIGN, wanted(options), run)
    table = means(rows, DESIGN, "joint", ("set", "agents", "shift"))
    show(table, [("set", "set"), ("agents", "K"), ("shift", "shift"), ("regime", "regime")])
    write_means(options.means, table)


if __name__ == "__main__":
    main()
