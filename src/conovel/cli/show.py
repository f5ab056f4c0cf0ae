"""What the commands share: progress for people, small readers of options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """Show the current stage and the time spent, on standard error and only to a person."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        "{task.description}",
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda stage: progress.update(task, description=stage)


def split_names(text: str) -> list[str]:
    """Read names separated by commas.

    Examples
    --------
    >>> split_names("amount, hour")
    ['amount', 'hour']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def print_json(content: Any) -> None:
    """Print JSON for a script to read."""
    import json  # noqa: PLC0415

    print(json.dumps(content, ensure_ascii=False))
