"""What novelties among the known normals cost, and what looking at the suspicious ones gives back.

    CONOVEL_DATA=FOLDER python -m benchmarks clean [--data FOLDER] [--trials 3] [--out FILE]
        [--only NAME ...] [--seconds 280] [--findings]

One site has 1500 known normals, of which 0, 1, 3 or 5 % are novelties, and 500 tests with 50
novelties of the same kind. *before*: nothing is done. *50*: fifty rows are looked at, ten at a
time, without the tests. *50 with tests*, *100 with tests*: tests help to choose. *and known*: the
removed rows are known novelties besides. *dropped*: the 50 most suspicious rows are removed and
nobody looks. `gaussian` is the design of ``conovel reproduce`` with one agent. Results are
appended to FILE, a line each; what was broken off goes on from there. With --findings it counts
how often the finding `strange_normals` appears, over all tables and Gaussian rows.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import conovel as cn
from benchmarks._real_sets import draw, files, large
from benchmarks.real import FOLDER
from conovel.experiments.gaussian import DIMENSION, gaussian_design, novelty_centre
from conovel.site.checks.rows import strange_finding

N, STEP = 1500, 10
SHARES = (0.0, 0.01, 0.03, 0.05)
WAYS = ("before", "50", "50 with tests", "100 with tests", "and known", "dropped")
TABLES = (
    "gaussian",
    "annthyroid",
    "cardio",
    "donors",
    "gasdrift",
    "mnist",
    "PageBlocks",
    "satellite",
    "shuttle",
    "skin",
    "Wilt",
)


def drawn(name: str, folder: Path, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    """Return known normals, tests, which are novel, and novelties that nobody tests."""
    if name == "gaussian":
        rng = np.random.default_rng([number, 38])
        site = gaussian_design(0.0, rng, n_agents=1, n_null=N, n_test=500)[0]
        others = novelty_centre() + rng.normal(size=(500, DIMENSION))
        return site.X_null, site.X_test, site.is_novel, others
    trial = draw(files(folder)[name], "one site", N, number)
    return *trial.sites[0], trial.labelled


def looked(
    X: np.ndarray, is_bad: np.ndarray, tests: np.ndarray | None, budget: int
) -> list[dict[int, str]]:
    """Look at rows, ten at a time; return all verdicts after each ten."""
    verdicts: dict[int, str] = {}
    after = []
    while len(verdicts) < budget:
        rows = cn.suspicious_normals(X, STEP, tests, verdicts=verdicts).rows
        verdicts = verdicts | {int(i): "novel" if is_bad[i] else "normal" for i in rows}
        after.append(verdicts)
    return after


def measure(name: str, folder: Path, number: int, share: float) -> dict[str, Any]:
    """Run one trial of every way."""
    X, tests, is_novel, others = drawn(name, folder, number)
    X, n_bad = X.copy(), round(share * len(X))
    places = np.random.default_rng([number, 7]).permutation(len(X))[:n_bad]
    X[places] = others[:n_bad]
    is_bad = np.isin(np.arange(len(X)), places)
    detector, values = cn.AdaDetect(random_state=number), {}

    def note(way: str, normals: np.ndarray, n_found: int, known_rows: Any = None) -> None:
        result = detector.detect(normals, tests, known_rows, check=False)
        right = int((result.rejected & is_novel).sum())
        false = result.n_rejected - right
        fdp = false / max(result.n_rejected, 1)
        values[way] = {"power": right / int(is_novel.sum()), "fdp": fdp, "found": n_found}

    note("before", X, 0)
    first = cn.suspicious_normals(X, 50).rows
    note("dropped", np.delete(X, first, axis=0), int(is_bad[first].sum()))
    if n_bad:
        alone = cn.clean_normals(X, looked(X, is_bad, None, 50)[-1])
        note("50", alone.X_null, alone.n_novel)
        path = looked(X, is_bad, tests, 100)
        for way, verdicts in (("50 with tests", path[4]), ("100 with tests", path[-1])):
            cleaned = cn.clean_normals(X, verdicts)
            note(way, cleaned.X_null, cleaned.n_novel)
        note("and known", cleaned.X_null, cleaned.n_novel, cleaned.X_known)
    return {"n_bad": n_bad, "ways": values}


def table(rows: list[dict[str, Any]], what: str) -> list[str]:
    """Return a line for each table of data and share, and means over tables with errors."""
    cells: dict[tuple[float, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for way, values in row["ways"].items():
            cells[row["share"], row["set"]][way].append(values[what])
    lines = [
        "| novelties | set | " + " | ".join(WAYS) + " |",
        "|---|---" + "|---:" * len(WAYS) + "|",
    ]
    for share in SHARES:
        held = {name: cells[key] for key in cells for name in [key[1]] if key[0] == share}
        for name, ways in held.items():
            texts = (f"{np.mean(ways[way]):.2f}" if way in ways else "–" for way in WAYS)
            lines.append(f"| {share:.0%} | {name} | " + " | ".join(texts) + " |")
        means = {way: [np.mean(w[way]) for w in held.values() if way in w] for way in WAYS}
        texts = (_error(means[way]) if means[way] else "–" for way in WAYS)
        lines.append(f"| {share:.0%} | **mean** of {len(held)} | " + " | ".join(texts) + " |")
    return lines


def _error(means: list[Any]) -> str:
    """Return the mean over tables of data and its standard error over them."""
    error = np.std(means, ddof=1) / len(means) ** 0.5 if len(means) > 1 else 0.0
    return f"{np.mean(means):.3f} ± {error:.3f}"


def count_findings(folder: Path, trials: int) -> None:
    """Print in how many trials the finding appears, for each share of novelties."""
    for name in ["gaussian", *large(folder)]:
        counts = []
        for share in SHARES:
            n_seen = n_run = 0
            for number in range(trials):
                X, _, _, others = drawn(name, folder, number)
                n_bad = round(share * len(X))
                if n_bad <= len(others):
                    X = np.concatenate([others[:n_bad], X[n_bad:]])
                    n_run += 1
                    n_seen += strange_finding(X, len(X)) is not None
            counts.append(f"{n_seen} of {n_run}")
        print(f"| {name} | " + " | ".join(counts) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get(FOLDER))
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="tables of data")
    parser.add_argument("--out", type=Path, default=Path("clean.jsonl"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--findings", action="store_true", help="how often there is a finding")
    options = parser.parse_args()
    if options.findings:
        count_findings(Path(options.data or "."), options.trials)
        return
    names = options.only or TABLES
    if options.data is None and set(names) != {"gaussian"}:
        parser.error(f"name the folder of the tables by --data or {FOLDER}")
    warnings.simplefilter("ignore")
    lines = options.out.read_text("utf-8").splitlines() if options.out.exists() else []
    done = {(row["set"], row["share"], row["trial"]): row for row in map(json.loads, lines)}
    start = time.monotonic()
    for number in range(options.trials):
        for name in names:
            for share in SHARES:
                key = (name, share, number)
                if key in done or time.monotonic() - start > options.seconds:
                    continue
                row = {"set": name, "share": share, "trial": number}
                done[key] = row | measure(name, Path(options.data or "."), number, share)
                with options.out.open("a", encoding="utf-8") as out:
                    print(json.dumps(done[key]), file=out, flush=True)
    rows = [row for row in done.values() if row["set"] in names]
    for what in ("power", "fdp", "found"):
        print(f"\n{what}\n")
        print("\n".join(table(rows, what)), flush=True)


if __name__ == "__main__":
    main()
