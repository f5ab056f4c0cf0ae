"""False discovery rate and power of each rule for batches over time, after every batch.

python -m benchmarks over_time --trials 600 --out over-time.csv --figure over-time.svg
python -m benchmarks over_time --trials 200 --choices
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from fractions import Fraction
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from conovel.stats.batches import (
    Batch,
    final_by_evidence,
    final_by_ranks,
    largest_listed_rank,
    list_by_evidence,
    list_by_ranks,
)
from conovel.stats.ranks import conformal_ranks

LEVEL = Fraction(1, 10)
RULES = {
    "daily BH, no promise": "BH on each batch by itself",
    "list so far, kept score": "list_by_ranks",
    "list so far, refitted scores": "list_by_evidence",
    "final, kept score": "final_by_ranks",
    "final, refitted scores": "final_by_evidence",
}


class Design(NamedTuple):
    """Calibration rows, rows and novelties of a batch, their shift, batches, an outbreak."""

    n_calibration: int
    n_tests: int
    n_novel: int
    shift: float
    n_batches: int
    outbreak: int = 0  # novelties of the middle batch

    def __str__(self) -> str:
        middle = f", {self.outbreak} in the middle batch" if self.outbreak else ""
        return (
            f"ℓ = {self.n_calibration}, {self.n_batches} × {self.n_tests} rows,"
            f" {self.n_novel} novel{middle}"
        )


DESIGNS = [
    Design(1999, 200, 10, 3.5, 30),
    Design(999, 100, 5, 3.5, 10),
    Design(999, 100, 0, 3.5, 10),
    Design(1999, 200, 10, 4.0, 30, outbreak=120),
]


def trial(design: Design, seed: int) -> dict[str, list[list[np.ndarray]]]:
    """Return the decisions of every rule after every batch, and which rows are novel."""
    rng = np.random.default_rng([seed, 21])
    size, m, n_batches = design.n_calibration, design.n_tests, design.n_batches
    calibration = rng.normal(size=size)
    novel, batches = [], []
    found: dict[str, list[list[np.ndarray]]] = {name: [] for name in RULES}
    daily: list[np.ndarray] = []
    final: dict[str, list[np.ndarray]] = {"kept": [], "refitted": []}
    for t in range(1, n_batches + 1):
        is_outbreak = design.outbreak and t == n_batches // 2
        n_novel = design.outbreak if is_outbreak else rng.binomial(2 * design.n_novel, 0.5)
        scores = rng.normal(size=m)
        scores[:n_novel] += design.shift
        novel.append(np.arange(m) < n_novel)
        ranks = conformal_ranks(calibration, scores)
        whole = Batch.of(ranks, size, size + 1)
        daily.append(whole.mask(list_by_ranks([whole], LEVEL)[0]))
        batches.append(Batch.of(ranks, size, largest_listed_rank(LEVEL, size)))
        for kind, decide in (("kept", final_by_ranks), ("refitted", final_by_evidence)):
            before = sum(int(mask.sum()) for mask in final[kind])
            limit = decide(whole, before, LEVEL, t, n_batches)
            final[kind].append(whole.mask(limit))
        lists = [
            [b.mask(limit) for b, limit in zip(batches, rule(batches, LEVEL), strict=True)]
            for rule in (list_by_ranks, list_by_evidence)
        ]
        states = [list(daily), *lists, list(final["kept"]), list(final["refitted"])]
        for name, state in zip(RULES, states, strict=True):
            found[name].append(state)
    return found | {"novel": [novel]}


def measure(design: Design, trials: int) -> dict[str, np.ndarray]:
    """Return for every rule the false discovery proportion and the power after every batch."""
    found = defaultdict(list)
    for seed in range(trials):
        one = trial(design, seed)
        ((*novel,),) = one.pop("novel")
        for name, states in one.items():
            rows = []
            for state in states:
                is_novel = np.concatenate(novel[: len(state)])
                mask = np.concatenate(state)
                false, hit = int(mask[~is_novel].sum()), int(mask[is_novel].sum())
                share = hit / is_novel.sum() if is_novel.any() else np.nan
                rows.append((false / max(false + hit, 1), share))
            found[name].append(rows)
    return {name: np.array(rows) for name, rows in found.items()}


SEQUENCES = {  # shares of the level, γ_t for t = 1..T
    "(1/t)/(1+…+1/T)": lambda t, last: 1 / t / sum(1 / s for s in range(1, last + 1)),
    "1/T": lambda t, last: 1 / last,
    "t^(-1/2), scaled": lambda t, last: t**-0.5 / sum(s**-0.5 for s in range(1, last + 1)),
    "1/(t(t+1)), any T": lambda t, last: 1 / (t * (t + 1)),
    "2^(-t), any T": lambda t, last: 0.5**t,
}
EVIDENCE = [("1/2", "1/20"), ("1/2", "1"), ("7/10", "1/20"), ("3/10", "1/20"), ("1/2", "1/10")]


def compare_choices(trials: int) -> None:
    """Print the power of other shares of the level and other ends of the evidence."""
    module = "conovel.stats.batches"
    tables = {"final, kept score": [], "list so far, refitted scores": []}
    for name, sequence in SEQUENCES.items():
        exact = lambda t, last, of=sequence: Fraction(str(round(of(t, last), 12)))  # noqa: E731
        with patch(f"{module}.level_share", exact):
            tables["final, kept score"].append((f"γ_t = {name}", powers("final, kept", trials)))
    for share, most in EVIDENCE:
        with patch.multiple(module, LIST_SHARE=Fraction(share), LIST_MOST=Fraction(most)):
            row = f"β = {share} α, at most {most} of the rows", powers("list so far, ref", trials)
            tables["list so far, refitted scores"].append(row)
    designs = [design for design in DESIGNS if design.n_novel]
    for rule, rows in tables.items():
        print(f"\n| {rule} | " + " | ".join(map(str, designs)) + " |")
        print("|---|" + "---:|" * len(designs))
        for name, found in rows:
            print(f"| {name} | " + " | ".join(f"{power:.3f}" for power in found) + " |")


def powers(rule: str, trials: int) -> list[float]:
    """Return the power at the end of a rule, for every design with novelties."""
    found = []
    for design in DESIGNS:
        if design.n_novel:
            measured = measure(design, trials)
            (values,) = (values for name, values in measured.items() if name.startswith(rule))
            found.append(float(np.nanmean(values[:, -1, 1])))
    return found


def draw(found: dict[str, np.ndarray], path: str, title: str) -> None:
    """Draw FDR and power over the batches."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    colours = ["#888888", "#0b6fb8", "#5fb0e5", "#d1600a", "#f0a868"]
    for (name, values), colour in zip(found.items(), colours, strict=True):
        days = np.arange(1, values.shape[1] + 1)
        for axis, mean in zip(axes, np.nanmean(values, axis=0).T, strict=True):
            style = "--" if name.startswith("daily") else "-"
            axis.plot(days, mean, style, color=colour, label=name)
    axes[0].axhline(float(LEVEL), color="black", linewidth=0.8, linestyle=":")
    axes[0].set(xlabel="batches so far", ylabel="false discovery rate", ylim=(0, None))
    axes[1].set(xlabel="batches so far", ylabel="power", ylim=(0, 1))
    axes[1].legend(fontsize=7, loc="lower left")
    figure.suptitle(title, fontsize=9)
    figure.savefig(path)


def main() -> None:
    """Print a table for every design; write all batches of the first, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--out", help="CSV of the first design, one line for a rule and a batch")
    parser.add_argument("--figure", help="drawing of the first design")
    parser.add_argument("--choices", action="store_true", help="compare other shares instead")
    options = parser.parse_args()
    if options.choices:
        compare_choices(options.trials)
        return
    for number, design in enumerate(DESIGNS):
        found = measure(design, options.trials)
        print(f"\n{design}, shift {design.shift}, {options.trials} trials")
        print("| rule | largest FDR at any time | FDR at the end | power at the end |")
        print("|---|---:|---:|---:|")
        for name, values in found.items():
            fdr, power = np.nanmean(values, axis=0).T
            error = np.nanstd(values[:, -1], axis=0) / options.trials**0.5
            end = f"{power[-1]:.3f} ± {error[1]:.3f}" if design.n_novel else "–"
            print(f"| {name} | {fdr.max():.3f} | {fdr[-1]:.3f} ± {error[0]:.3f} | {end} |")
        if number == 0 and options.out:
            with open(options.out, "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["rule", "batch", "fdr", "power"])
                for name, values in found.items():
                    for t, (fdr, power) in enumerate(np.nanmean(values, axis=0), 1):
                        writer.writerow([name, t, f"{fdr:.4f}", f"{power:.4f}"])
        if number == 0 and options.figure:
            draw(found, options.figure, f"{design}, α = {float(LEVEL)}, {options.trials} trials")


if __name__ == "__main__":
    main()
