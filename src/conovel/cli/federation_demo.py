"""``conovel federation demo``: a coordinator, three sites and an operator on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conovel.cli.show import say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from conovel.federation.loopback import Loopback

SITES = ("north", "south", "west")


def demo(
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder to make and keep; a temporary one if not given."),
    ] = None,
    regime: Annotated[str, typer.Option(help="As in `conovel run`.")] = "auto",
) -> None:
    """Set up a federation on this machine, run it, show the result, and stop everything.

    Three sites with their own data, processes and certificates: what the pages on deployment
    do step by step.
    """
    with tempfile.TemporaryDirectory() as temporary:
        code = _demo(folder or Path(temporary) / "hospitals", regime)
    if folder is None:
        _print_line(
            "`conovel federation demo --folder hospitals` keeps all files, including the reports"
        )
    raise typer.Exit(code)


def _demo(folder: Path, regime: str) -> int:
    from conovel.experiments.gaussian import gaussian_design  # noqa: PLC0415
    from conovel.federation.loopback import OPERATOR, Loopback  # noqa: PLC0415
    from conovel.spec.regimes import REGIMES  # noqa: PLC0415

    drawn = dict(
        zip(SITES, gaussian_design(2.0, 0, n_agents=3, n_null=3000, n_test=1000), strict=True)
    )
    sites = " ".join(f"--site {name}" for name in SITES)
    _print_line(f"$ conovel federation init hospitals {sites} --operator {OPERATOR}")
    federation = Loopback(
        folder,
        {name: (_columns(a.X_null), _columns(a.X_test)) for name, a in drawn.items()},
        consent=f"regimes = {[name for name, r in REGIMES.items() if r.deployable]}",
    )
    try:
        _print_line("$ conovel coordinate coordinator/federation.toml")
        for name in SITES:
            _print_line(f"$ conovel agent {name}/site.toml")
        federation.bring_up()
        out = folder / OPERATOR / "outcome.json"
        arguments = ("--level", "0.1", "--regime", regime, "--out")
        _print_line(
            f"$ conovel run --federation federation.toml {' '.join(arguments)} outcome.json\n"
        )
        settings = str(federation.settings(OPERATOR))
        ended = federation.run("run", "--federation", settings, *arguments, str(out), shown=True)
        if ended.returncode == 0:
            _print_line("\n$ conovel verify outcome.json")
            federation.run("verify", str(out), shown=True)
            federation.wait_for_reports()
            _print_sites(federation, {name: a.is_novel for name, a in drawn.items()})
        return ended.returncode
    finally:
        federation.stop()
        _print_line("\nall parties are stopped")


def _print_line(text: str) -> None:
    """Print at once, before the output of the next process."""
    for line in text.split("\n"):
        say(line)


def _columns(values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    return {f"x{j}": values[:, j] for j in range(values.shape[1])}


def _print_sites(federation: Loopback, truth: dict[str, NDArray[np.bool_]]) -> None:
    """Show the decisions of each site, which in a deployment only the site can read."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    _print_line("\nwhat each site finds in its own results, which no other party can read:")
    for name, is_novel in truth.items():
        for path in sorted(federation.folder.glob(f"{name}/results/*/decisions.parquet")):
            flagged = pq.read_table(path)["rejected"].to_numpy()
            _print_line(
                f"  {name:<6} {flagged.sum():>4} flagged; {(flagged & is_novel).sum()} of its"
                f" {is_novel.sum()} novel rows are among them"
            )
