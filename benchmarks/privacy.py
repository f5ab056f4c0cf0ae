"""What models give away about the rows behind them, against bytes and power.

    python -m benchmarks privacy [--shadows 240] [--trials 10] [--shift 2] [--only NAME ...]
        [--out FILE] [--means FILE] [--shared 20]

Rows are those of the paper's Gaussian design; an agent has 1000 known normals and 333 tests, 33 of
them novel. The attacks are those of `conovel privacy` (conovel.experiments.attacks). Power is that
of three agents in the regime `full` at level 0.1 that score and send with the scorer of the line.
``--out`` gets all numbers as JSON. ``--means`` writes the table of all lines in it as CSV, from
which docs/figures.py draws. ``--only`` without names only prints the table. With ``--shared`` an
agent also has about so many known novelties, which are attacked, too.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import conovel as cn
from conovel.experiments.gaussian import gaussian_design
from conovel.experiments.privacy import (
    KNOWN,
    Measured,
    attack_all,
    design_pool,
    draw_shadows,
    read_bytes,
)
from conovel.experiments.shadows import Exchange
from conovel.spec.settings import as_privacy

LINEAR = LogisticRegression(max_iter=1000)
SHALLOW = RandomForestClassifier(100, max_depth=5, random_state=0)
DEEP = RandomForestClassifier(100, random_state=0)
EPSILONS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Line:
    """A line of the table: how models are sent, and whether its power is measured."""

    exchange: Exchange
    with_power: bool = True


def lines() -> list[Line]:
    found = [
        Line(Exchange("compact (default)")),
        Line(Exchange("compact, seed known", known_seed=True), with_power=False),
        Line(Exchange("compact, 8 runs", n_runs=8), with_power=False),
        Line(Exchange("compact:1000", bits="compact:1000")),
        Line(Exchange("compact:100", bits="compact:100")),
        Line(Exchange("linear", LINEAR)),
        Line(Exchange("stand-in, 4 bits", bits=4)),
        Line(Exchange("forest of depth 5, 4 bits", SHALLOW, 4)),
        Line(Exchange("forest of depth 5, float64", SHALLOW, None)),
        Line(Exchange("forest of full depth, 4 bits", DEEP, 4)),
        Line(Exchange("forest of full depth, float64", DEEP, None)),
    ]
    return found + [
        Line(Exchange(f"ε = {epsilon}", privacy=as_privacy(epsilon))) for epsilon in EPSILONS
    ]


def power_of(exchange: Exchange, shift: float, trials: int) -> tuple[float, float]:
    """Return mean and standard error of the power of three agents that send so."""
    found = []
    for trial in range(trials):
        drawn = gaussian_design(shift, np.random.default_rng([trial, 3]))
        agents = [cn.Agent(str(i), a.X_null, a.X_test) for i, a in enumerate(drawn)]
        run = cn.Network(
            agents,
            regime="full",
            scorer=exchange.scorer,
            bits=exchange.bits,
            privacy=exchange.privacy,
            random_state=trial,
        ).run()
        rejected = np.concatenate([run[agent.name].rejected for agent in agents])
        is_novel = np.concatenate([a.is_novel for a in drawn])
        found.append((rejected & is_novel).sum() / is_novel.sum())
    error = np.std(found, ddof=1) / math.sqrt(trials) if trials > 1 else math.nan
    return float(np.mean(found)), float(error)


def strongest(found: list[Measured], target: str, at: str) -> str:
    """Write the largest number over the attacks on a target, with its standard error."""
    own = [one.leakage for one in found if one.target.startswith(target)]
    if at == "auc":
        best = max(own, key=lambda one: one.auc)
        return f"{best.auc:.2f} ± {best.auc_error:.2f}"
    pairs = [(one.detected[0], one.detected_error[0]) for one in own]
    known = [pair for pair in pairs if not math.isnan(pair[0])]
    if not known:
        return ""
    share, error = max(known)
    return f"{share:.2f} ± {error:.2f}"


def row_of(line: Line, found: list[Measured], power: Any, named: Any) -> list[str]:
    """Return the cells of a line."""
    targets: tuple[str, ...] = ("rows that train", "normal test rows", "novelties")
    if any(one.target == KNOWN for one in found):
        targets += (KNOWN,)
    outliers = [
        strongest(found, f"outlier in {n} column{'s' * (n > 1)} that {role}", "detected")
        for role in ("trains", "is tested")
        for n in (1, 5)
    ]
    return [
        line.exchange.name,
        f"{found[0].n_bytes:,}",
        "" if power is None else f"{power[0]:.3f} ± {power[1]:.3f}",
        *(strongest(found, target, "auc") for target in targets),
        *outliers,
        f"{named.extremes:.2f}",
        "" if math.isnan(named.midpoints) else f"{named.midpoints:.2f}",
    ]


def write_means(file: Path, heads: list[str], rows: list[list[str]]) -> None:
    """Write means and standard errors in columns of their own."""
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(name for head in heads for name in (head, f"{head} error"))
        for row in rows:
            pairs = [(*cell.replace(",", "").split(" ± "), "")[:2] for cell in row]
            writer.writerow(number for pair in pairs for number in pair)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks privacy", description=__doc__)
    parser.add_argument("--shadows", type=int, default=240)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--shift", type=float, default=2.0)
    parser.add_argument("--known", type=int, default=1000, help="known normals of an agent")
    parser.add_argument("--tests", type=int, default=333, help="tests of an agent")
    parser.add_argument("--shared", type=int, default=0, help="known novelties of an agent")
    parser.add_argument("--only", nargs="*", help="names of lines")
    parser.add_argument("--means", type=Path, help="write the table to this CSV file")
    parser.add_argument("--out", type=Path, default=Path("privacy.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    wanted = options.only
    chosen = [one for one in lines() if wanted is None or one.exchange.name in wanted]
    pool = design_pool(options.shift, 1, options.known, options.tests, options.shared)
    heads = "sent|bytes|power|trains|normal test|novelty" + "|known" * (options.shared > 0)
    heads += "|1 col. trains|5 col. trains"
    heads += "|1 col. tested|5 col. tested|extremes|midpoints"
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    for line in track(chosen, "exchanges", transient=True):
        exchange = line.exchange
        # Several runs take several times as long.
        n = max(options.shadows // exchange.n_runs, 64)
        shadows = draw_shadows(pool, [exchange], n)
        found = attack_all(pool, shadows, [exchange])
        named = read_bytes(pool, shadows, [exchange])[0]
        with_power = line.with_power and options.trials > 0
        power = power_of(exchange, options.shift, options.trials) if with_power else None
        cells = row_of(line, found, power, named)
        kept[exchange.name] = {
            "cells": cells,
            "power": power,
            "attacks": [one.to_dict() for one in found],
            "reading": named.to_dict(),
        }
        options.out.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"|{heads}|\n|---|" + "---:|" * heads.count("|"))
    ordered = [one.exchange.name for one in lines() if one.exchange.name in kept]
    for name in ordered:
        print("|", " | ".join(kept[name]["cells"]), "|")
    if options.means is not None:
        write_means(options.means, heads.split("|"), [kept[name]["cells"] for name in ordered])


if __name__ == "__main__":
    main()
