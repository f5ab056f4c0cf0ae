"""conovel and what users would pick instead, on the same rows of tables with sites of their own.

    python -m benchmarks contest --data FOLDER [--draws 6] [--sets NAME ...] [--out FILE]
        [--nonconform PYTHON] [--picture FILE] [--csv FILE] [--nvflare]

Each site has up to 600 known normals, and up to 200 tests of which a tenth is novel. The network
knows 0, 20 or 100 more novelties, at one site or dealt out to all. All contestants are compared at
the number of alerts that conovel together has (the number of novelties where it has none), then
each by its own rule. nonconform needs Python 3.12: ``--nonconform`` names an interpreter that has
it. What is not installed is named and left out. Each line of FILE is about a contestant on a draw;
what was broken off goes on from there, and ``--draws 0`` only prints. Without FOLDER, one draw of
the Gaussian design shows that all of it works. ``--nvflare`` runs NVFlare's recipe of XGBoost in
its simulator on one draw of each set, and compares its scores with those that are measured.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks._contest_draws import CELLS, Draw, designs, gaussian
from benchmarks._contestants import Answer, Contestant, contestants

LAST = "conovel together"
Row = dict[str, Any]
WHAT = (
    "found, equal alerts",
    "false share, equal alerts",
    "found, own rule",
    "false share, own rule",
    "seconds",
    "bytes",
)
WORDS = {"none": "none known", "one": "known at one site", "all": "known, dealt out to all"}


def found_among(answer: Answer, is_novel: np.ndarray, n_alerts: int) -> float:
    """Return how many novelties are among the first rows; of equal ones, a random choice."""
    keys = np.column_stack([np.asarray(key, dtype=np.float64) for key in answer.keys])
    groups = np.unique(-keys, axis=0, return_inverse=True)[1].ravel()
    sizes, novel = np.bincount(groups), np.bincount(groups, weights=is_novel)
    taken = np.clip(n_alerts - np.concatenate([[0], np.cumsum(sizes)[:-1]]), 0, sizes)
    return float((novel * taken / sizes).sum())


def run_draw(
    draw: Draw, fields: Sequence[Contestant], seed: int, cells: Sequence[tuple[int, str]]
) -> list[Row]:
    """Let all contestants answer about one draw; who takes no known rows answers once."""
    blind, rows = {}, []
    for n_known, where in cells:
        held = draw.known_rows(n_known, where)
        answers = {}
        for one in fields:
            if one.takes_known or one.name not in blind:
                answer = one.run(draw, held, seed)
                if not one.takes_known:
                    blind[one.name] = answer
            else:
                answer = blind[one.name]
            answers[one.name] = answer
        n_novel = int(draw.is_novel.sum())
        n_alerts = int(answers[LAST].flags.sum()) or n_novel
        for name, answer in answers.items():
            row: Row = {"n_known": sum(map(len, held)), "cell": f"{n_known} {where}"}
            row |= {"contestant": name, "n_novel": n_novel, "n_alerts": n_alerts}
            if answer is not None:
                row |= {
                    "found_equal": found_among(answer, draw.is_novel, n_alerts),
                    "n_flagged": int(answer.flags.sum()),
                    "found_own": int((answer.flags & draw.is_novel).sum()),
                    "seconds": round(answer.seconds, 3),
                    "n_bytes": round(answer.n_bytes),
                }
            rows.append(row)
    return rows


def measure(options: argparse.Namespace, fields: Sequence[Contestant]) -> list[Row]:
    """Run the draws that are not in the file yet, and return all of its lines."""
    lines = options.out.read_text("utf-8").splitlines() if options.out else []
    rows = [json.loads(line) for line in lines]
    done = {(row["set"], row["trial"], row["contestant"]) for row in rows}
    named = designs(options.data)
    names = [name for name in named if not options.sets or name in options.sets]
    cells = CELLS if options.data else CELLS[:3]
    wanted = [(name, trial) for trial in range(options.draws) for name in names]
    warm_up(fields)
    for name, trial in track(wanted, "draws", transient=True):
        # All contestants of a draw are compared with conovel together, which is run again.
        left = [one for one in fields if (name, trial, one.name) not in done]
        if not left:
            continue
        last = [one for one in fields if one.name == LAST and one not in left]
        new = run_draw(named[name](200 + trial), [*left, *last], trial, cells)
        new = [{"set": name, "trial": trial, **row} for row in new]
        new = [row for row in new if (name, trial, row["contestant"]) not in done]
        rows += new
        if options.out:
            with options.out.open("a", encoding="utf-8") as out:
                out.writelines(f"{json.dumps(row)}\n" for row in new)
    return [row for row in rows if not options.sets or row["set"] in options.sets]


def warm_up(fields: Sequence[Contestant]) -> None:
    """Import and compile what is needed, so that it is in nobody's seconds."""
    draw = gaussian(0)
    for one in fields:
        if not one.in_a_process:
            one.run(draw, draw.known_rows(9, "all"), 0)


def numbers(row: Row) -> dict[str, float]:
    """Return what is averaged."""
    found, n = row["found_equal"], row["n_alerts"]
    false = row["n_flagged"] - row["found_own"]
    return {
        "found, equal alerts": found / row["n_novel"],
        "false share, equal alerts": (n - found) / n,
        "found, own rule": row["found_own"] / row["n_novel"],
        "false share, own rule": false / max(row["n_flagged"], 1),
        "seconds": row["seconds"],
        "bytes": row["n_bytes"],
    }


def means(rows: Sequence[Row]) -> list[Row]:
    """Average over draws, with standard errors."""
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["cell"], row["contestant"], row["set"]].append(row)
    table = []
    for (cell, name, table_name), of in groups.items():
        line: Row = {"known": cell, "contestant": name, "set": table_name, "draws": len(of)}
        if "n_flagged" in of[0]:
            values = [numbers(row) for row in of]
            for what in values[0]:
                each = np.array([value[what] for value in values])
                error = each.std(ddof=1) / len(each) ** 0.5 if len(each) > 1 else 0.0
                line |= {what: round(each.mean(), 4), f"{what}, error": round(error, 4)}
        table.append(line)
    return table


def _cell(line: Row | None, what: str) -> str:
    if line is None:
        return "–"
    if what not in line:
        return "not its job"
    if what in ("seconds", "bytes"):
        return f"{line[what]:.1f}" if what == "seconds" else f"{line[what] / 1e6:.2f}"
    return f"{line[what]:.2f} ± {line[what + ', error']:.2f}".replace("0.", ".")


def show(table: Sequence[Row], what: str, cell: str, names: Sequence[str]) -> None:
    """Print one table: contestants by sets."""
    here = {(row["contestant"], row["set"]): row for row in table if row["known"] == cell}
    sets = list(dict.fromkeys(row["set"] for row in table))
    if not here:
        return
    n_known, where = cell.split()
    print(f"\n{what}; {n_known if where != 'none' else ''} {WORDS[where]}\n".replace("  ", " "))
    print("| contestant |", " | ".join(sets), "|")
    print("|---" + "|---:" * len(sets) + "|")
    for name in names:
        if any(one == name for one, _ in here):
            texts = [_cell(here.get((name, one)), what) for one in sets]
            print(f"| {name} |", " | ".join(texts), "|", flush=True)


def compare_nvflare(options: argparse.Namespace) -> None:
    """Train with NVFlare's own recipe, and compare with the same histograms of pooled rows."""
    from benchmarks import _contest_nvflare

    for name, draw_of in designs(options.data).items():
        if options.sets and name not in options.sets:
            continue
        draw = draw_of(200)
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name}: {_contest_nvflare.compare(draw, Path(folder))}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--draws", type=int)
    parser.add_argument("--sets", nargs="+", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--csv", type=Path, help="write the means")
    parser.add_argument("--picture", type=Path, help="draw docs/contest.md's picture")
    parser.add_argument("--nonconform", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--nvflare", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.draws is None:
        options.draws = 6 if options.data else 1
    if options.out:
        options.out.touch()
    if options.nvflare:
        compare_nvflare(options)
        return
    fields = []
    for one in contestants(options.nonconform):
        if one.missing:
            print(f"{one.name}: not installed: pip install {' '.join(one.missing)}", flush=True)
        else:
            fields.append(one)
    table = means(measure(options, fields))
    names = [one.name for one in contestants()]
    for what in WHAT:
        for n_known, where in CELLS:
            if what not in ("seconds", "bytes") or where in ("none", "one"):
                show(table, what, f"{n_known} {where}", names)
    if options.csv:
        with options.csv.open("w", encoding="utf-8", newline="") as out:
            titles = max(table, key=len)
            writer = csv.DictWriter(out, titles, lineterminator="\n", restval="not its job")
            writer.writeheader()
            writer.writerows(table)
    if options.picture:
        from benchmarks._contest_picture import draw_picture

        draw_picture(table, options.picture)


if __name__ == "__main__":
    main()
