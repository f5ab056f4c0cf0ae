"""False alarms over composite nulls, and power, where some normal rows are tested elsewhere.

    python -m benchmarks consensus [--shifts 0 2 4] [--shares 0 0.1 0.3] [--trials 50]
        [--regimes consensus full ...] [--agents 3] [--gas FILE] [--out FILE] [--means FILE]

Rows are those of the paper's Gaussian design, with a share of the normal tests drawn from other
agents (`conovel.experiments.roaming`). With ``--gas``, sites are batches of the gas drift table in
FILE: ammonia and toluene are novelties, the other gases normal. A row that is normal at some agent
counts as a false alarm. All regimes see the same draws and have default settings; ``full:min`` is
`full` with the composite `min`, and ``split:max`` is the paper's model exchange. Each trial is a
line of JSON in FILE; what was broken off goes on from there. ``--trials 0`` only prints.
``--means`` writes the means as CSV, from which docs/figures.py draws.
"""

from __future__ import annotations

import argparse
import csv
import json
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

import conovel as cn
from conovel.experiments.roaming import NOVEL, Typed, roaming_design

GAUSSIAN, GAS = "gaussian", "gas drift"
DESIGN = ("set", "agents", "shift", "share", "regime")
NOVEL_GASES = ("Ammonia", "Toluene")
N_NULL, N_NORMAL, N_NOVEL = 600, 100, 30  # of a batch


def gas_design(file: Path, share: float, rng: np.random.Generator) -> list[Typed]:
    """Take batches with enough rows as agents, and let a share of the normal tests roam."""
    table = np.load(file)
    names = [str(name) for name in table["gas_names"]]
    codes = [names.index(name) for name in NOVEL_GASES]
    gas = table["gas"] - table["gas"].min()
    X, batch, is_novel = table["X"].astype(float), table["batch"], np.isin(gas, codes)
    n_roaming = round(share * N_NORMAL)
    pools = {}
    for b in np.unique(batch):
        normal, novel = (
            rng.permutation(np.flatnonzero((batch == b) & of)) for of in (~is_novel, is_novel)
        )
        if normal.size >= N_NULL + 2 * N_NORMAL and novel.size >= N_NOVEL:
            pools[b] = normal, novel[:N_NOVEL]
    agents, used = [], dict.fromkeys(pools, N_NULL + N_NORMAL)  # beyond, rows that roam
    places = {b: j for j, b in enumerate(pools)}
    for b, (normal, novel) in pools.items():
        stay = normal[N_NULL : N_NULL + N_NORMAL - n_roaming]
        away, origin = [], []
        for other in rng.choice([o for o in pools if o != b], size=n_roaming):
            away.append(pools[other][0][used[other] % pools[other][0].size])
            used[other] += 1
            origin.append(places[other])
        rows = np.concatenate([np.array(away, dtype=int), stay, novel])
        origins = np.concatenate(
            [origin, np.full(stay.size, places[b]), np.full(novel.size, NOVEL)]
        )
        agents.append(Typed(X[normal[:N_NULL]], X[rows], origins.astype(np.int64)))
    return agents


def draw(row: dict[str, Any], gas: Path | None) -> list[Typed]:
    """Draw the rows of a trial; the same ones for every regime."""
    rng = np.random.default_rng([row["trial"], row["agents"]])
    if row["set"] == GAS:
        return gas_design(gas, row["share"], rng)
    return roaming_design(row["shift"], row["share"], rng, n_agents=row["agents"])


def measure(rows: list[Typed], regime: str, trial: int) -> dict[str, float]:
    """Return the share of novelties found, and of what is found that is normal somewhere."""
    agents = [cn.Agent(f"a{i:03d}", site.X_null, site.X_test) for i, site in enumerate(rows)]
    name, _, composite = regime.partition(":")
    options = {"composite": composite} if composite else {}
    run = cn.Network(agents, regime=name, random_state=trial, **options).run()
    rejected = np.concatenate([run[agent.name].rejected for agent in agents])
    is_novel = np.concatenate([site.is_novel for site in rows])
    found, n_rejected = np.count_nonzero(rejected & is_novel), np.count_nonzero(rejected)
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
    sets = [(GAS, 0, None)] if options.gas else []
    sets = sets or [(GAUSSIAN, n, shift) for n in options.agents for shift in options.shifts]
    wanted = [
        dict(zip((*DESIGN, "trial"), (*one, share, regime, trial), strict=True))
        for trial in range(options.trials)
        for one in sets
        for share in options.shares
        for regime in options.regimes
    ]
    with options.out.open("a", encoding="utf-8") as out:
        for row in track(wanted, "trials", transient=True):
            if key(row) not in done:
                rows = draw(row, options.gas)
                done[key(row)] = row | measure(rows, row["regime"], row["trial"])
                print(json.dumps(done[key(row)]), file=out, flush=True)
    return list(done.values())


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean and the standard error of power and FDP of each design."""
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in DESIGN)].append((row["power"], row["fdp"]))
    table = []
    for design in sorted(
        found, key=lambda d: (d[0], d[1], d[2] or 0, d[3], d[4] != "consensus", d[4])
    ):
        values = np.array(found[design])
        n = len(values)
        error = values.std(axis=0, ddof=1) / n**0.5 if n > 1 else np.full(2, np.nan)
        numbers = (values[:, 0].mean(), error[0], values[:, 1].mean(), error[1])
        names = (*DESIGN, "trials", "power", "power_error", "fdp", "fdp_error")
        rounded = (round(float(number), 4) for number in numbers)
        table.append(dict(zip(names, (*design, n, *rounded), strict=True)))
    return table


def show(table: list[dict[str, Any]]) -> None:
    """Print the means in at most 80 columns, as Markdown."""
    print("| set | K | shift | share | regime | trials | power | FDP |")
    print("|---|---:|---:|---:|---|---:|---:|---:|")
    for row in table:
        shift = "" if row["shift"] is None else f"{row['shift']:g}"
        power, fdp = (f"{row[x]:.3f} ± {row[f'{x}_error']:.3f}" for x in ("power", "fdp"))
        cells = (row["set"], row["agents"] or "", shift, row["share"], row["regime"])
        print("|", *(f"{cell} |" for cell in (*cells, row["trials"], power, fdp)))


def main() -> None:
    """Measure, keep the trials and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks consensus", description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[3])
    parser.add_argument("--shifts", type=float, nargs="+", default=[0.0, 2.0, 4.0])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--regimes", nargs="+", default=["consensus"])
    parser.add_argument("--gas", type=Path, help="the gas drift table, as .npz")
    parser.add_argument("--out", type=Path, default=Path("consensus.jsonl"))
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
