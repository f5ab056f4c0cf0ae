"""The names of the composites: how an agent's own score and its peers' models go together."""

from __future__ import annotations

from typing import Any

from conovel.errors import InputError
from conovel.stats.words import briefly

AUTO = "auto"
STACKED = "stacked"
COMPOSITES = (AUTO, "mean", "max", "min", STACKED)


def as_composite(name: Any) -> str:
    """Check the name of a composite."""
    if not isinstance(name, str) or name not in COMPOSITES:
        raise InputError(f"composite must be one of {', '.join(COMPOSITES)}, not {briefly(name)}")
    return name
