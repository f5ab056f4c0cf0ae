"""How often findings appear: on exchangeable splits of real tables, and by time.

    python -m benchmarks findings --data FOLDER [--trials 20] [--out FILE] [--only NAME ...]

In a *shuffled* trial the rows come in random order, and in a *dealt* one in the order of the file,
although they were dealt at random: both are exchangeable, so that a finding about the promise is
wrong. In a trial *by file* the known normals are of the first 70 % of the file and all other rows
are tested. With ``--out`` trials that the file has are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier

import conovel as cn
from benchmarks._real_sets import Rows, large, load
from conovel.spec.findings import KINDS

N_NULL, N_TEST, N_NOVEL = 1500, 500, 50
BROKEN = [kind for kind, meaning in KINDS.items() if meaning]


def draw(data: Rows, rng: np.random.Generator, how: str) -> tuple[np.ndarray, np.ndarray]:
    """Give the rows of the known normals and of the tests."""
    if how == "by file":
        stop = 7 * len(data.X) // 10
        return np.flatnonzero(~data.is_novel[:stop]), np.arange(stop, len(data.X))
    nulls, novel = (rng.permutation(np.flatnonzero(of)) for of in (~data.is_novel, data.is_novel))
    n_novel = min(N_NOVEL, novel.size)
    n = min(N_NULL, nulls.size - (N_TEST - n_novel))
    tests = rng.permutation([*nulls[n : n + N_TEST - n_novel], *novel[:n_novel]])
    if how == "dealt":
        return np.sort(nulls[:n]), np.sort(tests)
    return nulls[:n], tests


def measure(data: Rows, how: str, seed: int) -> dict[str, object]:
    """Run one trial."""
    null, test = draw(data, np.random.default_rng([seed, 20]), how)
    scorer = RandomForestClassifier(50, max_depth=10)
    found = cn.AdaDetect(scorer, random_state=seed).detect(data.X[null], data.X[test])
    false = int((found.rejected & ~data.is_novel[test]).sum())
    return {
        "kinds": sorted({one.kind for one in found.warnings}),
        "flagged": found.n_rejected,
        "false": false,
        "tested": len(test),
    }


def main() -> None:
    """Run all trials and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("CONOVEL_DATA", "."))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    done: dict[tuple[str, str, int], dict[str, object]] = {}
    if options.out and options.out.exists():
        for line in options.out.read_text("utf-8").splitlines():
            one = json.loads(line)
            done[one["set"], one["how"], one["seed"]] = one
    tables = {
        n: f for n, f in large(options.data).items() if not options.only or n in options.only
    }
    plan = [(how, seed) for seed in range(options.trials) for how in ("shuffled", "dealt")]
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for name, file in tables.items():
        for how, seed in [*plan, ("by file", 0)]:
            key = name, how, seed
            if key not in done:
                done[key] = {
                    "set": name,
                    "how": how,
                    "seed": seed,
                    **measure(load(file), how, seed),
                }
                if options.out:
                    with options.out.open("a", encoding="utf-8") as out:
                        out.write(json.dumps(done[key]) + "\n")
            kinds = done[key]["kinds"]
            counts[name, how].update(["runs", *kinds, *(["any"] if {*kinds} & {*BROKEN} else [])])
            if how == "by file":
                one = done[key]
                print(f"{name}: {one['flagged']}/{one['tested']}, {one['false']} false, {kinds}")
    for how in ("shuffled", "dealt"):
        total = sum((counts[name, how] for name in tables), Counter())
        print(f"\n{how}: {total['runs']} runs")
        for kind in ("any", *KINDS):
            sets = {name: counts[name, how][kind] for name in tables if counts[name, how][kind]}
            print(f"  {kind:<17} {total[kind]:>4}  {sets or ''}")


if __name__ == "__main__":
    main()
