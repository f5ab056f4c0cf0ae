"""What the benchmarks of regimes share: trials as lines of JSON, their means, and a CSV file.

A row is about one trial of one design: the names of the design, "trial", "power" and "fdp".
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

import conovel as cn

Row = dict[str, Any]


class Labelled(Protocol):
    """The rows of one agent, and which of its tests are novel."""

    @property
    def X_null(self) -> NDArray[np.float64]: ...
    @property
    def X_test(self) -> NDArray[np.float64]: ...
    @property
    def is_novel(self) -> NDArray[np.bool_]: ...


def measure(rows: Sequence[Labelled], regime: str, random_state: int = 0) -> dict[str, float]:
    """Return the share of novelties that are found, and of what is found that is none.

    `regime` may name a composite behind a colon, as in "full:min".
    """
    agents = [cn.Agent(f"a{i:03d}", site.X_null, site.X_test) for i, site in enumerate(rows)]
    name, _, composite = regime.partition(":")
    options = {"composite": composite} if composite else {}
    run = cn.Network(agents, regime=name, random_state=random_state, **options).run()
    rejected = np.concatenate([run[agent.name].rejected for agent in agents])
    is_novel = np.concatenate([site.is_novel for site in rows])
    found, n_rejected = np.count_nonzero(rejected & is_novel), np.count_nonzero(rejected)
    return {
        "power": found / np.count_nonzero(is_novel),
        "fdp": (n_rejected - found) / max(n_rejected, 1),
    }


def complete(
    file: Path, design: Sequence[str], wanted: Iterable[Row], run: Callable[[Row], Row]
) -> list[Row]:
    """Run the wanted trials that are not in the file yet, and return all of its lines."""

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in (*design, "trial"))

    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    done = {key(row): row for row in map(json.loads, lines)}
    with file.open("a", encoding="utf-8") as out:
        for row in track([*wanted], "trials", transient=True):
            if key(row) not in done:
                done[key(row)] = row | run(row)
                print(json.dumps(done[key(row)]), file=out, flush=True)
    return list(done.values())


def means(
    rows: Iterable[Row], design: Sequence[str], first: str, order: Sequence[str] = ()
) -> list[Row]:
    """Return mean and standard error of power and FDP of each design, and the least power.

    Parameters
    ----------
    rows : iterable of Row
    design : sequence of str
        What a mean is about; "regime" comes last.
    first : str
        The regime that comes first in the table.
    order : sequence of str
        The names to sort by before the regime; by default as in `design`.
    """
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in design)].append((row["power"], row["fdp"]))

    def place(values: tuple[Any, ...]) -> tuple[Any, ...]:
        of = dict(zip(design, values, strict=True))
        sizes = (of[name] or 0 for name in order or design[:-1])  # a real table has no shift
        return (*sizes, of["regime"] != first, of["regime"])

    table = []
    for values in sorted(found, key=place):
        trials = np.array(found[values])
        n = len(trials)
        error = trials.std(axis=0, ddof=1) / n**0.5 if n > 1 else np.full(2, np.nan)
        mean = trials.mean(axis=0)
        numbers = (mean[0], error[0], mean[1], error[1], trials[:, 0].min())
        names = (*design, "trials", "power", "power_error", "fdp", "fdp_error", "least_power")
        rounded = (round(float(number), 4) for number in numbers)
        table.append(dict(zip(names, (*values, n, *rounded), strict=True)))
    return table


def show(table: Sequence[Row], columns: Sequence[tuple[str, str]]) -> None:
    """Print the means as Markdown: names and heads of the design, then trials, power and FDP."""
    heads = [head for _, head in columns]
    print("|", " | ".join([*heads, "trials", "power", "FDP", "least power"]), "|")
    print("|", "|".join(["---"] * (len(heads) + 4)), "|", sep="")
    for row in table:
        cells = ["" if row[name] is None else str(row[name]) for name, _ in columns]
        power, fdp = (f"{row[x]:.3f} ± {row[f'{x}_error']:.3f}" for x in ("power", "fdp"))
        print("|", " | ".join([*cells, str(row["trials"]), power, fdp]), end=" | ")
        print(f"{row['least_power']:.2f} |")


def write_means(file: Path | None, table: Sequence[Row]) -> None:
    """Write the means as CSV, from which docs/figures.py draws."""
    if file is None or not table:
        return
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, table[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
