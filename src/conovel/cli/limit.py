"""``conovel limit``: the best power that is possible on the Gaussian design."""

from __future__ import annotations

from typing import Annotated

import typer

from conovel.cli.show import print_json, say, split_names


def limit(
    shifts: Annotated[
        str, typer.Option(help="Shifts δ between the agents' normals, separated by commas.")
    ] = "0,0.5,1,2,3,4",
    level: Annotated[str, typer.Option(help="Level of the step-up.")] = "0.1",
    null_share: Annotated[
        float, typer.Option(help="Share of normals among the tests.", min=0, max=1)
    ] = 0.9,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Print the largest power on the paper's Gaussian design when all densities are known.

    One column has a common p-value threshold, as step-up procedures do. The other ranks rows
    across agents by likelihood ratio.

    Example: `conovel limit --shifts 2,3,4 --level 0.05`
    """
    from conovel.experiments.limit import limit_table  # noqa: PLC0415

    rows = limit_table(read_shifts(shifts), level, null_share)
    if json:
        print_json([{"shift": shift, **found._asdict()} for shift, found in rows])
        return
    say(f"{'shift':>6}  {'common threshold':>16}  {'likelihood ratio':>16}")
    for shift, found in rows:
        say(f"{shift:>6g}  {found.common:>16.4f}  {found.ratio:>16.4f}")


def read_shifts(text: str) -> list[float]:
    """Read shifts from the command line.

    Examples
    --------
    >>> read_shifts("0,0.5")
    [0.0, 0.5]
    """
    from conovel.errors import InputError  # noqa: PLC0415

    try:
        return [float(word) for word in split_names(text)]
    except ValueError:
        raise InputError(
            f"--shifts {text}: write numbers separated by commas, as in 0,1,2"
        ) from None
