"""False alarms over composite nulls, and power, where some normal rows are tested elsewhere.

    python -m benchmarks consensus [--shifts 0 2 4] [--shares 0 0.1 0.3] [--trials 50]
        [--regimes consensus full ...] [--agents 3] [--gas FILE] [--flows FILE] [--out FILE]
        [--means FILE]

Rows are those of the paper's Gaussian design, with a share of the normal tests drawn from other
agents (`benchmarks._roaming`). With ``--gas``, sites are batches of the gas drift table in
FILE: ammonia and toluene are novelties, the other gases normal. With ``--flows``, sites are
networks, and attacks are novelties. A row that is normal at some agent counts as a false alarm.
All regimes see the same draws and have default settings; ``full:min`` is `full` with the composite
`min`, ``split:max`` is the paper's model exchange, and ``rows`` is AdaDetect on the pooled rows of
all sites, which needs that normal tests are drawn like the pooled known normals. Each trial is a
line of JSON in FILE; what was broken off goes on from there. ``--trials 0`` only prints.
``--means`` writes the means as CSV, from which docs/figures.py draws.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np

import conovel as cn
from benchmarks._roaming import NOVEL, Typed, roaming_design
from benchmarks._trials import Row, complete, means, measure, show, write_means

GAUSSIAN, GAS, FLOWS, ROWS = "gaussian", "gas drift", "flows", "rows"
DESIGN = ("set", "agents", "shift", "share", "regime")
NOVEL_GASES = ("Ammonia", "Toluene")
N_NULL, N_NORMAL, N_NOVEL = 600, 100, 30  # of a batch
N_FLOWS, N_NORMAL_FLOWS, N_ATTACKS = 600, 180, 20  # of a network


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


def flow_design(file: Path, share: float, rng: np.random.Generator) -> list[Typed]:
    """Take networks as agents: known normals as many as it has, and a share of roaming rows."""
    table = np.load(file)
    X, sites = table["X"], np.unique(table["site"])
    pools = [
        [rng.permutation(np.flatnonzero((table["site"] == s) & (table["y"] == y))) for y in (0, 1)]
        for s in sites
    ]
    n_roaming = round(share * N_NORMAL_FLOWS)
    # At most twice as many rows of a network roam as on average.
    sizes = [min(N_FLOWS, len(normal) - N_NORMAL_FLOWS - n_roaming) for normal, _ in pools]
    used = [size + N_NORMAL_FLOWS - n_roaming for size in sizes]
    agents = []
    for j, (normal, novel) in enumerate(pools):
        origin = rng.choice([k for k in range(len(pools)) if k != j], size=n_roaming).tolist()
        away = []
        for k in origin:
            away.append(pools[k][0][used[k]])
            used[k] += 1
        stay = normal[sizes[j] : sizes[j] + N_NORMAL_FLOWS - n_roaming]
        rows = np.concatenate([np.array(away, dtype=int), stay, novel[:N_ATTACKS]])
        origins = np.concatenate([origin, np.full(stay.size, j), np.full(N_ATTACKS, NOVEL)])
        agents.append(Typed(X[normal[: sizes[j]]], X[rows], origins.astype(np.int64)))
    return agents


def on_pooled_rows(rows: list[Typed], random_state: int) -> dict[str, float]:
    """Return power and false share of AdaDetect on the rows of all sites together."""
    X_null, X_test = (np.vstack([getattr(r, n) for r in rows]) for n in ("X_null", "X_test"))
    is_novel = np.concatenate([site.is_novel for site in rows])
    rejected = cn.AdaDetect(random_state=random_state).detect(X_null, X_test).rejected
    found, n_rejected = np.count_nonzero(rejected & is_novel), np.count_nonzero(rejected)
    return {
        "power": found / np.count_nonzero(is_novel),
        "fdp": (n_rejected - found) / max(n_rejected, 1),
    }


def draw(row: Row, gas: Path | None, flows: Path | None) -> list[Typed]:
    """Draw the rows of a trial; the same ones for every regime."""
    rng = np.random.default_rng([row["trial"], row["agents"]])
    if row["set"] == GAS:
        return gas_design(gas, row["share"], rng)
    if row["set"] == FLOWS:
        return flow_design(flows, row["share"], rng)
    return roaming_design(row["shift"], row["share"], rng, n_agents=row["agents"])


def wanted(options: argparse.Namespace) -> list[Row]:
    """Return the trials that are asked for."""
    sets: list[tuple[str, int, float | None]] = [(GAS, 0, None)] if options.gas else []
    sets += [(FLOWS, 0, None)] if options.flows else []
    sets = sets or [(GAUSSIAN, n, shift) for n in options.agents for shift in options.shifts]
    return [
        dict(zip((*DESIGN, "trial"), (*one, share, regime, trial), strict=True))
        for trial in range(options.trials)
        for one in sets
        for share in options.shares
        for regime in options.regimes
    ]


def main() -> None:
    """Measure, keep the trials and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks consensus", description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[3])
    parser.add_argument("--shifts", type=float, nargs="+", default=[0.0, 2.0, 4.0])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--regimes", nargs="+", default=["consensus"])
    parser.add_argument("--gas", type=Path, help="the gas drift table, as .npz")
    parser.add_argument("--flows", type=Path, help="flows of several networks, as .npz")
    parser.add_argument("--out", type=Path, default=Path("consensus.jsonl"))
    parser.add_argument("--means", type=Path, help="write the means to this CSV file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")

    def run(row: Row) -> Row:
        rows = draw(row, options.gas, options.flows)
        if row["regime"] == ROWS:
            return on_pooled_rows(rows, row["trial"])
        return measure(rows, row["regime"], row["trial"])

    table = means(complete(options.out, DESIGN, wanted(options), run), DESIGN, "consensus")
    show(table, list(zip(DESIGN, ("set", "K", "shift", "share", "regime"), strict=True)))
    write_means(options.means, table)


if __name__ == "__main__":
    main()
