"""How ``--help`` is divided: commands by task, options by what they are about.

A panel has columns of its own width, so a long option narrows the texts of its own panel only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

ONE_SITE = "One site"
EVERY_DAY = "Batch after batch"
NETWORKS = "Networks in one process"
FEDERATIONS = "Between organisations"
RESULTS = "Results"

_MANY = 12  # from so many options on, a command has several panels
PANELS: Mapping[str, tuple[str, ...]] = {
    "Columns": ("columns", "id_column", "exclude", "keep", "kind", "schema"),
    "How CSV files are read": ("separator", "decimal", "encoding", "na"),
    "What is learnt": ("scorer", "train_fraction", "max_train_rows", "seed", "repeats", "grower"),
    "Models that are sent": ("composite", "bits", "privacy"),
    "The Gaussian design, without --agent": ("delta", "agents", "nulls", "tests"),
    "Counts, and members who fail or lie": (
        "counting",
        "reveal_to",
        "liars",
        "on_dropout",
        "drop",
        "stage_seconds",
        "run_seconds",
    ),
    EVERY_DAY: ("detector", "ledger", "final", "batches", "list_name"),
    "Large files": ("memory", "engine", "scheduler"),
    "What is checked and shown": ("reasons", "keep_columns", "explain", "check", "plot", "json"),
}
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


class PanelCommand(TyperCommand):
    """A command whose many options are shown in panels; few options stay together."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for param in self.params if len(self.params) >= _MANY else ():
            if not param.required:
                param.rich_help_panel = _PANEL_OF.get(str(param.name))  # type: ignore[attr-defined]
