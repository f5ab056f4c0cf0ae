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
import csv
import json
import os
import warnings
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

import conovel as cn
from benchmarks._real_sets import Rows, Site, files, load
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


def draw(row: dict[str, Any], tables: dict[str, Path]) -> list[Labelled] | list[Site]:
    """Draw the rows of a trial; the same ones for every regime."""
    rng = np.random.default_rng([row["trial"], row["agents"]])
    if row["set"] == GAUSSIAN:
        return gaussian_design(row["shift"], rng, n_agents=row["agents"])
    return deal(load(tables[row["set"]]), row["agents"], rng)


def measure(rows: list[Labelled] | list[Site], regime: str) -> dict[str, float]:
    """Return the share of novelties that are found, and of what is found that is false."""
    agents = [cn.Agent(f"a{i:03d}", site.X_null, site.X_test) for i, site in enumerate(rows)]
    name, _, composite = regime.partition(":")
    options = {"composite": composite} if composite else {}
    run = cn.Network(agents, regime=name, **options).run()
    rejected = np.concatenate([run[agent.name].rejected for agent in agents])
    is_novel = np.concatenate([site.is_novel for site in rows])
    found = np.count_nonzero(rejected & is_novel)
    n_rejected = np.count_nonzero(rejected)
    return {
        "power": found / np.count_nonzero(is_novel),
        "fdp": (n_rejected - found) / max(n_rejected, 1),
    }


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*DESIGN, "trial"))


def complete(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run what is not in the file yet, and return all of its lines."""
    lines = options.out.read_text("utf-8").splitlines() if options.out.exists() else []
    done = {key(row): row for row in map(json.loads, lines)}
    tables = files(options.data) if options.real else {}
    unknown = [name for name in options.real if name not in tables]
    if unknown:
        raise SystemExit(f"no table {', '.join(unknown)} below {options.data}: see --data")
    sets = [(name, None) for name in options.real]
    sets = sets or [(GAUSSIAN, shift) for shift in options.shifts]
    wanted = [
        {"set": name, "shift": shift, "agents": n_agents, "regime": regime, "trial": trial}
        for trial in range(options.trials)
        for n_agents in options.agents
        for name, shift in sets
        for regime in options.regimes
    ]
    with options.out.open("a", encoding="utf-8") as out:
        for row in track(wanted, "trials", transient=True):
            if key(row) not in done:
                done[key(row)] = row | measure(draw(row, tables), row["regime"])
                print(json.dumps(done[key(row)]), file=out, flush=True)
    return list(done.values())


def means(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean and the standard error of power and FDP of each design."""
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in DESIGN)].append((row["power"], row["fdp"]))
    table = []
    for design in sorted(found, key=lambda d: (d[0], d[2], d[1] or 0, d[3] != "joint", d[3])):
        values = np.array(found[design])
        n = len(values)
        error = values.std(axis=0, ddof=1) / n**0.5 if n > 1 else np.full(2, np.nan)
        mean = values.mean(axis=0)
        names = (*DESIGN, "trials", "power", "power_error", "fdp", "fdp_error", "least_power")
        numbers = (mean[0], error[0], mean[1], error[1], values[:, 0].min())
        rounded = (round(float(number), 4) for number in numbers)
        table.append(dict(zip(names, (*design, n, *rounded), strict=True)))
    return table


def show(table: list[dict[str, Any]]) -> None:
    """Print the means in at most 80 columns, as Markdown."""
    print("| set | K | shift | regime | trials | power | FDP | least power |")
    print("|---|---:|---:|---|---:|---:|---:|---:|")
    for row in table:
        shift = "" if row["shift"] is None else f"{row['shift']:g}"
        power, fdp = (f"{row[x]:.3f} ± {row[f'{x}_error']:.3f}" for x in ("power", "fdp"))
        cells = (row["set"], row["agents"], shift, row["regime"], row["trials"], power, fdp)
        print("|", *(f"{cell} |" for cell in cells), f"{row['least_power']:.2f} |")


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
    table = means(complete(options))
    show(table)
    if options.means and table:
        with options.means.open("w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, table[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)


if __name__ == "__main__":
    main()
