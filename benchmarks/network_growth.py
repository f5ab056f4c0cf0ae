"""How the cost of a network grows with the number of agents, at fixed rows per agent.

    python -m benchmarks network_growth [--agents 3 10 30 100]

Time and bytes per agent, as multiples of the smallest network of the same run. Every model is
encoded once and decoded once per receiver; the counts take a few bytes a round.
"""

import argparse
from time import perf_counter

from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.ensemble import ExtraTreesClassifier

import conovel as cn
from conovel.experiments.gaussian import gaussian_design

N_NULL, N_TEST = 300, 100  # per agent


def measure(n_agents: int, regime: str) -> tuple[float, float, int]:
    """Return seconds per agent, bytes sent per agent, and the rounds of counts."""
    drawn = gaussian_design(
        2.0, 0, n_agents=n_agents, n_null=N_NULL * n_agents, n_test=N_TEST * n_agents
    )
    agents = [cn.Agent(f"{j:03d}", a.X_null, a.X_test) for j, a in enumerate(drawn)]
    network = cn.Network(agents, regime=regime, scorer=ExtraTreesClassifier(50, max_depth=6))
    start = perf_counter()
    run = network.run()
    seconds = perf_counter() - start
    return seconds / n_agents, run.n_bytes / n_agents, run.rounds


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[3, 10, 30, 100])
    sizes = parser.parse_args().agents
    measure(3, "full")  # compile and warm up
    console = Console(width=100)
    table = Table(
        title=f"per agent, as a multiple of K = {sizes[0]} ({N_NULL} nulls, {N_TEST} tests)"
    )
    for head in ("regime", "K", "time", "bytes", "bytes per peer", "rounds"):
        table.add_column(head, justify="left" if head == "regime" else "right")
    for regime in ("counts", "full"):
        found = {
            k: measure(k, regime)
            for k in track(sizes, description=regime, console=console, transient=True)
        }
        time_0, bytes_0, _ = found[sizes[0]]
        for k, (seconds, n_bytes, rounds) in found.items():
            per_peer = (n_bytes / (k - 1)) / (bytes_0 / (sizes[0] - 1))
            table.add_row(
                regime,
                str(k),
                f"{seconds / time_0:.2f}",
                f"{n_bytes / bytes_0:.2f}",
                f"{per_peer:.2f}",
                str(rounds),
            )
    console.print(table)


if __name__ == "__main__":
    main()
