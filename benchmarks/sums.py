"""What the sums of agents that learn together give away about single rows, to whom.

    python -m benchmarks sums [--rows 100] [--trials 4] [--references 100] [--repeat 10] [--out F]
        [--privacy 4] [--shared 20 100]

Rows are those of the paper's Gaussian design at shift 2. An agent has `rows` known normals, of
which half train, and a third as many tests, a tenth of them novel. The first agent is attacked
(benchmarks._sums, benchmarks._listening). The attacker hears the sums of one agent
of three (a coordinator without masks, or a peer of one other), of two of three (a peer that
subtracts its own), of all three, or of all ten (totals).

The first table: AUC for rows that train, normal tests and novelties (means over trials, the
strongest of four parts of what is heard); the share of outlying rows that are detected at 1 %
false alarms; and how often the secret first column of a row that trains is told among eight
values. The second table: the share of values that are told to 0.01 standard deviations; what two
runs tell about a row that only the second has; in how many of `repeat` networks a lying agent
tells that a person is there, and by mistake that an absent one is. `--out` gets all as JSON. With
`--privacy 4` the first table is about sums with that much noise, shared if several are heard.

With `--shared 20 100` there is one table only, about so many known novelties of an agent, of the
first one alone or of each: AUC against novelties and against normal rows that nobody has, outlying
known novelties that are detected, and how often the secret first column of one is told.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _listening as listening
from benchmarks._listening import KINDS, KNOWN_KINDS, Trial
from benchmarks._sums_rows import Design
from conovel.experiments.attacks import area, detected_at
from conovel.spec.settings import Privacy, as_privacy

VIEWS = {3: (1, 2, 3), 10: (10,)}  # agents, and of how many the sums are heard
# Agents, how many of them share known novelties, and of how many the sums are heard.
KNOWN_VIEWS = ((3, 1, (1, 3)), (10, 1, (10,)), (3, 3, (1, 2, 3)), (10, 10, (10,)))
FALSE_ALARMS = 0.01


def mean_and_error(values: Any) -> tuple[float, float]:
    found = np.asarray(values, dtype=float)
    return float(found.mean()), float(found.std(ddof=1) / len(found) ** 0.5)


def parts_of(trials: list[Trial]) -> list[str]:
    return sorted({part for _, part, _ in trials[0].members})


def strongest(trials: list[Trial], heard: int, kind: str) -> tuple[float, float, str]:
    """Return the largest AUC over the parts of what is heard, its error, and which part it is."""
    found = []
    for part in parts_of(trials):
        key = heard, part, kind
        areas = [area(one.others[key], one.members[key]) for one in trials]
        found.append((*mean_and_error(areas), part))
    return max(found)


def detected(trials: list[Trial], heard: int, kind: str) -> tuple[float, float]:
    """Return the largest share of planted rows that are found, and its error."""
    found = []
    for part in parts_of(trials):
        key = heard, part, kind
        members = np.concatenate([one.members[key] for one in trials])
        others = np.concatenate([one.others[key] for one in trials])
        share = detected_at(others, members, FALSE_ALARMS)
        found.append((share, (share * (1 - share) / members.size) ** 0.5))
    return max(found)


def membership(
    n_rows: int, n_trials: int, n_references: int, privacy: Privacy | None
) -> Iterator[dict[str, Any]]:
    for n_agents, views in VIEWS.items():
        design = Design(n_rows, n_agents)
        trials = [
            listening.trial(design, views, seed, n_references, privacy=privacy)
            for seed in range(n_trials)
        ]
        for heard in views:
            line: dict[str, Any] = {"rows": n_rows, "agents": n_agents, "heard": heard}
            line |= {kind: strongest(trials, heard, kind) for kind in KINDS[:3]}
            line |= {kind: detected(trials, heard, kind) for kind in KINDS[3:]}
            line["secret"] = mean_and_error([one.secrets[heard] for one in trials])
            yield line


def known_membership(
    n_rows: int, n_shared: int, n_trials: int, n_references: int
) -> Iterator[dict[str, Any]]:
    for n_agents, n_sharing, views in KNOWN_VIEWS:
        design = Design(n_rows, n_agents, n_shared=n_shared, n_sharing=n_sharing)
        trials = [
            listening.known_trial(design, views, seed, n_references) for seed in range(n_trials)
        ]
        for heard in views:
            line: dict[str, Any] = {"rows": n_rows, "shared": n_shared, "sharing": n_sharing}
            line |= {"agents": n_agents, "heard": heard}
            line |= {kind: strongest(trials, heard, kind) for kind in KNOWN_KINDS[:2]}
            line[KNOWN_KINDS[2]] = detected(trials, heard, KNOWN_KINDS[2])
            line["secret"] = mean_and_error([one.secrets[heard] for one in trials])
            yield line


def print_known(options: argparse.Namespace) -> list[dict[str, Any]]:
    print("| rows | known | at agents | agents | heard |", " | ".join(KNOWN_KINDS), "| secret |")
    print("|" + "---:|" * (len(KNOWN_KINDS) + 6))
    kept = []
    for n_rows in options.rows:
        for n_shared in options.shared:
            sizes = n_rows, n_shared, options.trials, options.references
            for line in known_membership(*sizes):
                heads = [line[k] for k in ("rows", "shared", "sharing", "agents", "heard")]
                cells = [f"{line[k][0]:.3f} ± {line[k][1]:.3f}" for k in (*KNOWN_KINDS, "secret")]
                print("|", " | ".join([*map(str, heads), *cells]), "|", flush=True)
                kept.append(line)
    return kept


def values(n_rows: int, n_agents: int, repeat: int) -> dict[str, Any]:
    design = Design(n_rows, n_agents)
    known, width, again, guess = [], [], [], []
    for seed in range(repeat):
        rng = np.random.default_rng(seed)
        agents = [design.agent(j, rng) for j in range(n_agents)]
        widths = listening.brackets(listening.publish(agents), agents[0].values)
        known.append((widths < 0.01).mean())
        same, row = listening.one_row_more(design, seed, is_split_again=False)
        width.append(np.median(same.widths))
        guess.append(np.median(np.abs(same.guess - row)))
        other, row = listening.one_row_more(design, seed, is_split_again=True)
        again.append(np.median(np.abs(other.guess - row)))
    n_columns = len(design.normals_centre(0))
    present, absent = (
        [listening.steered(design, seed, is_there=is_there) for seed in range(repeat)]
        for is_there in (True, False)
    )
    return {
        "rows": n_rows,
        "agents": n_agents,
        "known": mean_and_error(known),
        "width": mean_and_error(width),
        "guess": mean_and_error(guess),
        "guess, other split": mean_and_error(again),
        "found": sum(hits == n_columns for hits in present),
        "by mistake": sum(hits == n_columns for hits in absent),
        "repeat": repeat,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks sums", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100])
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--references", type=int, default=100, help="rows of each kind and agent")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--privacy", help="ε: attack sums with noise")
    parser.add_argument("--shared", type=int, nargs="+", help="known novelties of an agent")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    kept = print_known(options) if options.shared else print_tables(options)
    if options.out:
        options.out.write_text(json.dumps(kept, indent=1) + "\n")


def print_tables(options: argparse.Namespace) -> list[dict[str, Any]]:
    privacy = as_privacy(options.privacy)
    kept: list[dict[str, Any]] = []
    if options.trials > 1:
        print("| rows | agents | heard |", " | ".join(KINDS), "| secret |")
        print("|" + "---:|" * (len(KINDS) + 4))
    for n_rows in options.rows if options.trials > 1 else []:
        for line in membership(n_rows, options.trials, options.references, privacy):
            cells = [f"{line[k][0]:.2f} ± {line[k][1]:.2f}" for k in (*KINDS, "secret")]
            print(
                f"| {n_rows} | {line['agents']} | {line['heard']} |",
                " | ".join(cells),
                "|",
                flush=True,
            )
            kept.append(line)
    if options.repeat > 1:
        print("| rows | agents | known | width | guess | other split | found | by mistake |")
        print("|" + "---:|" * 8)
    for n_rows in options.rows if options.repeat > 1 else []:
        for n_agents in VIEWS:
            line = values(n_rows, n_agents, options.repeat)
            names = ("known", "width", "guess", "guess, other split")
            cells = [f"{line[k][0]:.2g} ± {line[k][1]:.1g}" for k in names]
            ends = f"{line['found']} of {options.repeat} | {line['by mistake']}"
            print(f"| {n_rows} | {n_agents} |", " | ".join(cells), f"| {ends} |", flush=True)
            kept.append(line)
    return kept


if __name__ == "__main__":
    main()
