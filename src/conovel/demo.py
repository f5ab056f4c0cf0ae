"""``make demo``: AdaDetect on a data set that comes with scikit-learn.

Benign breast tumours are the known normals; malignant ones among the test rows are the
novelties. The labels are used only to show how well the decisions did.
"""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer

from conovel.detector import AdaDetect


def main() -> None:
    """Run the demonstration and print what was found."""
    data = load_breast_cancer()
    malignant = data.target == 0
    rng = np.random.default_rng(0)
    benign_rows = rng.permutation(np.flatnonzero(~malignant))
    malignant_rows = rng.permutation(np.flatnonzero(malignant))
    test = np.concatenate([benign_rows[257:], malignant_rows[:30]])
    truth = malignant[test]
    X_null, X_test = data.data[benign_rows[:257]], data.data[test]

    console = Console()
    console.print(
        "\n[bold]conovel[/bold] · tumours that do not look benign\n"
        f"{len(X_null)} known benign tumours, {len(X_test)} unlabelled ones,"
        f" {data.data.shape[1]} measurements each\n"
    )
    table = Table(title="What was flagged, and how it compares with the labels nobody used")
    for heading in ("level α", "flagged", "false alarms", "share", "found", "of novelties"):
        table.add_column(heading, justify="right")
    for level in (0.05, 0.1, 0.2):
        result = AdaDetect(level=level).detect(X_null, X_test)
        false = int((result.rejected & ~truth).sum())
        found = int((result.rejected & truth).sum())
        table.add_row(
            f"{level:g}",
            str(result.n_rejected),
            str(false),
            f"{false / max(result.n_rejected, 1):.2f}",
            str(found),
            f"{found / truth.sum():.0%}",
        )
    console.print(table)
    console.print(f"\n[bold]Guaranteed at each level:[/bold] {result.guarantee.statement}")
    for assumption in result.guarantee.assumptions:
        console.print(f"  [dim]needs:[/dim] {assumption}")


if __name__ == "__main__":
    main()
