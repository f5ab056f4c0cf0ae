"""What known novelties are worth on real tables: of the tested kind, and of another.

    CONOVEL_DATA=FOLDER python -m benchmarks known [--data FOLDER] [--trials 4] [--out FILE]
        [--only NAME ...] [--sites]

Tables are those of ``python -m benchmarks real``. One site has 1500 known normals, and 500 tests
with 50 novelties, fewer where there are fewer. It knows 0, 5, 20 or 100 novelties that are not
tested. *Same kind*: tested and known novelties are drawn alike. *Another kind*: all tested
novelties are of one kind and all known ones of the other, gases, attacks or else two clusters; in
every other trial the kinds change places. Results are appended to FILE, a line each; what was
broken off goes on from there. With --sites three sites learn together, 500 known normals each, and
only the first one knows novelties, 0, 20 or 100: power of the two others.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

import conovel as cn
from benchmarks._real_sets import DEVELOPED_ON, Trial, draw, files, of_another_kind
from benchmarks.real import FOLDER, _cell

N = 1500
NUMBERS = (0, 5, 20, 100)
SAME, OTHER = "same kind", "another kind"
# Supervised ceilings of at least .4 on docs/results/real-tables.md
WITH_CEILING = (
    "annthyroid",
    "cardio",
    "donors",
    "gasdrift",
    "landsat",
    "mnist",
    "PageBlocks",
    "satellite",
    "toniot_flows",
    "InternetAds",
    "mammography",
    "shuttle",
    "skin",
    "thyroid",
    "Wilt",
)
OTHERS = ("ai4i2020", "ALOI", "campaign", "fault", "letter", "magic.gamma", "vowels", "Waveform")


def run(trial: Trial, n_known: int, number: int) -> tuple[float, float]:
    """Return the share of novelties that are found, and of what is found that is false."""
    site, known_rows = trial.sites[0], trial.labelled[:n_known]
    detector = cn.AdaDetect(random_state=number)
    result = detector.detect(
        site.X_null, site.X_test, known_rows if len(known_rows) else None, check=False
    )
    right = int((result.rejected & site.is_novel).sum())
    return right / int(site.is_novel.sum()), 1 - right / result.n_rejected if right else (
        float(result.n_rejected > 0)
    )


def _trial(file: Path, kind: str, number: int) -> Trial:
    if kind == SAME:
        return draw(file, "one site", N, number)
    return of_another_kind(file, N, number)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run what is not in the file yet, and return all rows that were asked for."""
    lines = options.out.read_text("utf-8").splitlines() if options.out.exists() else []
    done = {_key(row): row for row in map(json.loads, lines)}
    tables = files(options.data)
    names = options.only or [name for name in (*WITH_CEILING, *OTHERS) if name in tables]
    wanted = [
        {"set": name, "kind": kind, "trial": trial, "n_known": n}
        for trial in range(options.trials)
        for name in names
        for kind in (SAME, OTHER)
        for n in NUMBERS
    ]
    with options.out.open("a", encoding="utf-8") as out:
        for row in track(wanted, "trials", transient=True):
            if _key(row) in done:
                continue
            file, number, n = tables[row["set"]], row["trial"], row["n_known"]
            fewest = min(len(_trial(file, row["kind"], trial).labelled) for trial in (0, 1))
            if n and fewest <= NUMBERS[NUMBERS.index(n) - 1]:
                continue  # no more are known than in the column before
            trial = _trial(file, row["kind"], number)
            power, fdp = run(trial, n, number)
            row |= {"power": power, "fdp": fdp}
            done[_key(row)] = row
            print(json.dumps(row), file=out, flush=True)
    return [done[_key(row)] for row in wanted if _key(row) in done]


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("set", "kind", "trial", "n_known"))


def table(rows: Sequence[dict[str, Any]], what: str) -> list[str]:
    """Return a line for each table of data, and the means over tables that have all numbers."""
    cells: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cells[row["set"]][row["n_known"]].append(row[what])
    titles = [f"{n} known" for n in NUMBERS]
    lines = ["| set | " + " | ".join(titles) + " |", "|---" + "|---:" * len(NUMBERS) + "|"]
    for name, held in cells.items():
        texts = [_cell(held[n]) if n in held else "–" for n in NUMBERS]
        lines.append(f"| {name} | " + " | ".join(texts) + " |")
    whole = [name for name in cells if all(n in cells[name] for n in NUMBERS)]
    high = [name for name in whole if name in WITH_CEILING]
    for title, names in (
        ("mean, ceiling of at least .4", high),
        ("the same, not developed on", [name for name in high if name not in DEVELOPED_ON]),
        ("mean of all", whole),
    ):
        if names:
            texts = [_mean([cells[name][n] for name in names]) for n in NUMBERS]
            lines.append(f"| **{title}** ({len(names)}) | " + " | ".join(texts) + " |")
    return lines


def _mean(values: Sequence[Sequence[float]]) -> str:
    """Return the mean over tables, and its standard error over trials."""
    means = [np.mean(one) for one in values]
    errors = [np.var(one, ddof=1) / len(one) if len(one) > 1 else 0.0 for one in values]
    return f"{np.mean(means):.3f} ± {np.sum(errors) ** 0.5 / len(means):.3f}"


def worst(rows: Sequence[dict[str, Any]]) -> str:
    """Say where power falls most below what is found without known novelties."""
    powers: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        powers[row["set"], row["n_known"]].append(row["power"])
    falls = {
        (name, n): float(np.mean(values) - np.mean(powers[name, 0]))
        for (name, n), values in powers.items()
        if n
    }
    listed = sorted(falls.items(), key=lambda item: item[1])[:4]
    losses = ", ".join(f"{name} with {n} known {fall:+.3f}" for (name, n), fall in listed)
    return f"the largest changes downward: {losses}"


SITES = ("cardio", "gasdrift", "toniot_flows", "mnist", "Wilt", "skin", "PageBlocks", "landsat")


def measure_sites(options: argparse.Namespace) -> None:
    """Let one of three sites know some novelties; print what the two others find."""
    tables, numbers = files(options.data), (0, 20, 100)
    lines, means = [], defaultdict(list)
    for name in track([one for one in options.only or SITES if one in tables], transient=True):
        cells = []
        for n in numbers:
            powers = [_of_others(tables[name], number, n) for number in range(options.trials)]
            means[n].append(powers)
            cells.append(_cell(powers))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    print("| set | " + " | ".join(f"{n} known" for n in numbers) + " |\n|---" + "|---:" * 3 + "|")
    print("\n".join(lines))
    print("| **mean** | " + " | ".join(_mean(means[n]) for n in numbers) + " |")


def _of_others(file: Path, number: int, n_known: int) -> float:
    trial = draw(file, "three sites", 500, number)
    agents = [cn.Agent(f"site-{j}", s.X_null, s.X_test) for j, s in enumerate(trial.sites)]
    if n_known:
        order = np.random.default_rng([number, 5]).permutation(len(trial.labelled))
        agents[0] = replace(agents[0], X_known=trial.labelled[order[:n_known]])
    run = cn.Network(agents, random_state=number).run(check=False)
    pairs = list(zip(run.values(), trial.sites, strict=True))[1:]
    return float(np.mean([one.rejected[site.is_novel].mean() for one, site in pairs]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get(FOLDER))
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--only", nargs="+", help="tables of data")
    parser.add_argument("--out", type=Path, default=Path("known.jsonl"))
    parser.add_argument("--sites", action="store_true", help="three sites, one of which knows")
    options = parser.parse_args()
    if options.data is None:
        parser.error(f"name the folder of the tables by --data or {FOLDER}")
    options.data = Path(options.data)
    warnings.simplefilter("ignore")
    if options.sites:
        measure_sites(options)
        return
    rows = measure(options)
    for kind in (SAME, OTHER):
        here = [row for row in rows if row["kind"] == kind]
        for what in ("power", "fdp"):
            print(f"\n{kind}: {what}\n")
            print("\n".join(table(here, what)), flush=True)
        print(f"\n{worst(here)}", flush=True)


if __name__ == "__main__":
    main()
