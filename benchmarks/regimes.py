"""Power and false discoveries of every regime and composite on the Gaussian design.

    python -m benchmarks regimes [--trials 20] [--shifts 0 2 4]

Default scorer, compact models, the same seeds in every row.
"""

import argparse

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import conovel as cn
from conovel.experiments.gaussian import gaussian_design

ROWS = [
    ("isolated", "mean"),
    ("counts", "mean"),
    ("split", "max"),
    ("conservative", "max"),
    ("conservative", "mean"),
    ("full", "max"),
    ("full", "mean"),
    ("full", "min"),
    ("full", "stacked"),
    ("pooled", "mean"),
]


def measure(delta: float, trial: int, regime: str, composite: str) -> tuple[float, float]:
    """Return the share of tested novelties found and the share of false alarms."""
    drawn = dict(zip("abc", gaussian_design(delta, trial), strict=True))
    agents = [cn.Agent(name, rows.X_null, rows.X_test) for name, rows in drawn.items()]
    run = cn.Network(agents, regime=regime, composite=composite, random_state=trial).run()
    found = novel = 0
    for name, rows in drawn.items():
        found += (run[name].rejected & rows.is_novel).sum()
        novel += (run[name].tested & rows.is_novel).sum()
    return found / novel, (run.n_rejected - found) / max(run.n_rejected, 1)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--shifts", type=float, nargs="+", default=[0, 2, 4])
    args = parser.parse_args()
    console = Console(width=110)
    table = Table(title=f"power ± standard error (FDR), {args.trials} trials, K = 3, α = 0.1")
    table.add_column("regime")
    table.add_column("composite")
    for delta in args.shifts:
        table.add_column(f"δ = {delta:g}", justify="right")
    for regime, composite in track(ROWS, description="regimes", console=console, transient=True):
        cells = []
        for delta in args.shifts:
            results = [measure(delta, t, regime, composite) for t in range(args.trials)]
            power, false = np.mean(results, axis=0)
            error = np.std([p for p, _ in results], ddof=1) / args.trials**0.5
            cells.append(f"{power:.3f} ± {error:.3f} ({false:.3f})")
        exchanges = regime in ("split", "conservative", "full")
        table.add_row(regime, composite if exchanges else "", *cells)
        print(regime, composite, cells, flush=True)
    console.print(table)


if __name__ == "__main__":
    main()
