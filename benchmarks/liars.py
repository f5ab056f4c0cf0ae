"""Honest false discoveries and power with lying agents, and what committed counting sends.

    python -m benchmarks liars [--trials 1000]
    python -m benchmarks liars --price 20

Scores are drawn, and the same draws serve every column. Liars claim the smallest rank for each of
their rows; in `joint`, all rows that their floor allows, in the highest cell.
With --price, whole networks on the paper's design, in which nobody lies, with and without
tolerance for one liar.
"""

import argparse
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

import conovel as cn
from benchmarks._lying_scores import Found, LiarDesign, by_cells, by_ranks, draw
from conovel.experiments.gaussian import gaussian_design

SIZES = [(4, 1), (9, 1), (30, 3)]  # agents, liars
N_CALIBRATION, N_TESTS = 333, 100
SHARES = [0.0, 0.03, 0.1]
RULES: dict[str, Callable[..., Found]] = {"counts, full": by_ranks, "joint": by_cells}
COUNTING = ("START", "BELOW", "STEP", "COUNT", "HISTOGRAM", "OUTCOME")
COMMITTED = ("COMMIT", "COMMITMENTS", "REVEAL", "REVEALS")


def measure(design: LiarDesign, decide: Callable[..., Found], trials: int) -> list[str]:
    """Return FDR and power of the plain and the tolerant rule, without and with lies."""
    cells = []
    drawn = [draw(design, seed) for seed in range(trials)]
    for is_lying in (False, True):
        for tolerated in (0, design.liars):
            found = np.array(
                [decide(a, design, is_lying=is_lying, tolerated=tolerated) for a in drawn]
            )
            false, power = found.mean(axis=0)
            error = found[:, 0].std() / trials**0.5
            cells.append(f"{false:.3f} ± {error:.3f} ({power:.3f})")
    return cells


def rates(console: Console, trials: int) -> None:
    """Print honest false discovery rates and power."""
    table = Table(title=f"honest FDR ± standard error (power), α = 0.1, {trials} trials")
    columns = ["rule", "agents", "liars f", "novel", "honest, plain", "honest, tolerant"]
    for name in [*columns, "lying, plain", "lying, tolerant"]:
        table.add_column(name, justify="left" if name == "rule" else "right")
    for name, decide in RULES.items():
        for n_agents, liars in SIZES:
            for share in SHARES:
                novel = round(share * N_TESTS)
                design = LiarDesign(n_agents, liars, N_CALIBRATION, N_TESTS - novel, novel)
                row = [name, str(n_agents), str(liars), f"{share:.0%}"]
                row += measure(design, decide, trials)
                print(" | ".join(row), flush=True)
                table.add_row(*row)
    console.print(table)


def phase(n_agents: int, regime: str, **options: str) -> tuple[int, int, int]:
    """Return messages, bytes and exchanges of the counting phase of a network in one process."""
    drawn = gaussian_design(2.0, 0, n_agents=n_agents, n_null=3000, n_test=1000)
    agents = [cn.Agent(f"a{i:02d}", d.X_null, d.X_test) for i, d in enumerate(drawn)]
    network = cn.Network(agents, regime=regime, scorer="logistic", **options)
    transcript = network.run(check=False).transcript
    sent = [e for e in transcript.entries if e.kind in (*COUNTING, *COMMITTED)]
    exchanges = 2 if options else transcript.n_rounds
    return len(sent), sum(entry.n_bytes for entry in sent), exchanges


def phases(console: Console) -> None:
    """Print what committed counting sends, relative to rounds."""
    table = Table(title="counting phase, relative to rounds (messages, bytes), and exchanges")
    columns = ["regime", "agents", "to", "messages", "bytes", "exchanges in rounds", "committed"]
    for name in columns:
        table.add_column(name, justify="left" if name == "regime" else "right")
    for regime in ("counts", "joint"):
        for n_agents in (3, 9, 30):
            rounds = phase(n_agents, regime)
            for to in ("coordinator", "members"):
                told = phase(n_agents, regime, counting="committed", reveal_to=to)
                ratios = [f"{told[i] / rounds[i]:.2f}" for i in (0, 1)]
                row = [regime, str(n_agents), to, *ratios, str(rounds[2]), str(told[2])]
                print(" | ".join(row), flush=True)
                table.add_row(*row)
    console.print(table)


def found_by(n_agents: int, regime: str, liars: int, seed: int) -> tuple[float, float]:
    """Return the share of false alarms and the power of a network in which nobody lies."""
    rows = {"n_null": 1000 * n_agents, "n_test": 333 * n_agents}
    drawn = gaussian_design(2.0, seed, n_agents=n_agents, **rows)
    agents = [cn.Agent(f"a{i:02d}", d.X_null, d.X_test) for i, d in enumerate(drawn)]
    options = {"regime": regime, "scorer": "logistic", "counting": "committed"}
    run = cn.Network(agents, liars=liars, random_state=seed, **options).run(check=False)
    flagged = np.concatenate([site.rejected for site in run.values()])
    novel = np.concatenate([one.is_novel for one in drawn])
    false = int((flagged & ~novel).sum()) / max(int(flagged.sum()), 1)
    return false, int((flagged & novel).sum()) / int(novel.sum())


def price(trials: int) -> None:
    """Print what the default between organisations costs where nobody lies."""
    for n_agents in (4, 9, 30):
        n = trials if n_agents < 30 else max(trials // 3, 2)  # thirty agents take long
        for regime in ("joint", "full"):
            cells = []
            for liars in (0, 1):
                found = np.array([found_by(n_agents, regime, liars, i) for i in range(n)])
                errors = found.std(axis=0, ddof=1) / n**0.5
                pairs = zip(found.mean(axis=0), errors, strict=True)
                cells += [f"{mean:.3f} ± {error:.3f}" for mean, error in pairs]
            print(" | ".join([regime, str(n_agents), f"{n} trials", *cells]), flush=True)


def main() -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--price", type=int, help="trials of whole networks, instead of the rest")
    args = parser.parse_args()
    if args.price:
        price(args.price)
        return
    console = Console(width=150)
    phases(console)
    rates(console, args.trials)


if __name__ == "__main__":
    main()
