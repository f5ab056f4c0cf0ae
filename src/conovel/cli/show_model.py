"""``conovel inspect``: describe a model file; nothing in it is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from conovel.cli.show import print_fitted, print_json, require_there, styled, text_table


def inspect(
    file: Annotated[Path, typer.Argument(help="A model as `conovel.encode` makes it.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Describe an encoded model: its size, its shape, and the bytes of each part."""
    require_there(file)
    from conovel.models.wire import MAX_BYTES, decode, describe  # noqa: PLC0415
    from conovel.rows.storage import read_bytes  # noqa: PLC0415

    facts = describe(decode(read_bytes(file, MAX_BYTES)))
    if json:
        print_json(facts)
        return
    table = text_table(title=styled(str(file)), show_header=False)
    table.add_column(style="dim", overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    for name, value in _flat(facts):
        table.add_row(name, value)
    print_fitted(table)


def _flat(facts: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in facts.items():
        label = f"{prefix}{key.replace('_', ' ')}"
        if isinstance(value, dict):
            rows += _flat(value, f"{label}: ")
        else:
            shown = f"{value:,.2f}" if isinstance(value, float) else value
            rows.append((label, f"{shown:,}" if isinstance(shown, int) else str(shown)))
    return rows
