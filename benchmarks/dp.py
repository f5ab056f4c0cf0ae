"""Power and FDP with differential privacy: what ε costs, beside `counts` and beside no privacy.

    python -m benchmarks dp [--agents 3 9] [--shifts 2 0] [--trials 10] [--out FILE] [--means FILE]
    python -m benchmarks dp --tables shuttle thyroid --data FOLDER --agents 9 20

Rows are those of the paper's Gaussian design: 3000 known normals and 1000 tests, divided among the
agents. All cells see the same rows; the noise is secret and differs. ``joint ε=1/100`` sends
models that say nothing: its distance from `counts` is what the common calibration gains. ``known``
has a schema that says that all columns lie from -4 to 4, so that no ε is spent on their units.
``together ε=4 masks`` has the noise of a run with masks, of which half of the agents are honest;
without masks each agent adds all of it. With ``--tables``, agents have 100 known normals of a
table and 33 tests, 3 of them novel.
Each trial is a line of JSON in FILE; what was broken off goes on from there, and ``--trials 0``
only prints.
"""

from __future__ import annotations

import argparse
import hashlib
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import conovel as cn
from benchmarks._real_sets import files
from benchmarks._trials import Labelled, Row, complete, means, show, write_means
from benchmarks.together import thin
from conovel.experiments.gaussian import DIMENSION, gaussian_design
from conovel.learning.together import private_site
from conovel.learning.together.private import honest_of
from conovel.scorers.automatic import Automatic
from conovel.scorers.base import FittedScorer, TrainingSet

EPSILONS = ("1", "2", "4", "8")
CELLS = (
    "counts",
    *(f"{regime} ε={epsilon}" for epsilon in EPSILONS for regime in ("full", "joint")),
    "full ε=4 known",
    "joint ε=4 known",
    "joint ε=1/100",
    *(f"together ε={epsilon}{masks}" for epsilon in EPSILONS for masks in ("", " masks")),
    "together",
    "full",
    "joint",
)
DESIGN = ("shift", "agents", "regime")  # what a mean is about
NAMES = [f"x{j}" for j in range(DIMENSION)]
KNOWN = cn.Schema(tuple(cn.Column(name, "number", low=-4, high=4) for name in NAMES))


def remember_fits() -> None:
    """Fit once where cells of a trial learn from the same rows: they differ in what is sent."""
    fit, known = Automatic.fit, {}

    def remembered(scorer: Automatic, training: TrainingSet) -> FittedScorer:
        mixture = training.mixture
        parts = training.null_train, mixture.distinct, np.bincount(mixture.position)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(part) for part in parts)).digest()
        key = repr(scorer), scorer.random_state, digest
        if key not in known:
            if len(known) > 100:
                known.clear()
            known[key] = fit(scorer, training)
        return known[key]

    Automatic.fit = remembered  # type: ignore[method-assign]


def sites_of(row: Row, folder: Path | None) -> Sequence[Labelled]:
    """Draw the rows of a trial, of a table where `shift` is the name of one."""
    if folder is not None:
        return thin(files(folder)[row["shift"]], row["agents"])(row["trial"])
    rng = np.random.default_rng([row["trial"], row["agents"]])
    return gaussian_design(row["shift"], rng, n_agents=row["agents"])


def run(row: Row, folder: Path | None = None) -> Row:
    """Run one cell on the rows of one trial."""
    sites = sites_of(row, folder)
    regime, _, asked = row["regime"].partition(" ε=")
    epsilon, _, how = asked.partition(" ")
    known = how == "known"
    # How many agents share the noise, as masks would let them.
    shared = honest_of(row["agents"]) if how == "masks" else 1
    private_site.sharing_noise = lambda _: shared
    options = {"schema": KNOWN} if known else {}
    agents = []
    for i, site in enumerate(sites):
        samples = [site.X_null, site.X_test]
        if known:
            samples = [pa.table(dict(zip(NAMES, X.T, strict=True))) for X in samples]
        agents.append(cn.Agent(f"a{i:03d}", *samples))
    result = cn.Network(agents, regime=regime, privacy=epsilon or None, **options).run(check=False)
    rejected = np.concatenate([result[agent.name].rejected for agent in agents])
    is_novel = np.concatenate([site.is_novel for site in sites])
    found, n_rejected = np.count_nonzero(rejected & is_novel), np.count_nonzero(rejected)
    models = result.transcript.totals()["by_kind"].get("MODEL", {})
    return {
        "power": found / np.count_nonzero(is_novel),
        "fdp": (n_rejected - found) / max(n_rejected, 1),
        "models": models,
    }


def main() -> None:
    """Measure, keep the trials and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks dp", description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[9, 3])
    parser.add_argument("--shifts", type=float, nargs="+", default=[2.0, 0.0])
    parser.add_argument("--tables", nargs="+", help="in the place of shifts")
    parser.add_argument("--data", type=Path, help="the folder of the tables")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--cells", nargs="+", default=CELLS)
    parser.add_argument("--out", type=Path, default=Path("dp.jsonl"))
    parser.add_argument("--means", type=Path, help="write the means to this CSV file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    remember_fits()
    wanted: list[Row] = [
        {"shift": shift, "agents": n_agents, "regime": cell, "trial": trial}
        for shift in options.tables or options.shifts
        for trial in range(options.trials)
        for n_agents in options.agents
        for cell in options.cells
    ]
    folder = options.data if options.tables else None
    trials = complete(options.out, DESIGN, wanted, partial(run, folder=folder))
    table = means(trials, DESIGN, "counts")
    show(table, [("shift", "shift"), ("agents", "K"), ("regime", "regime")])
    write_means(options.means, table)


if __name__ == "__main__":
    main()
