"""The command line. Commands import modules when they run, so that help is fast."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from conovel.cli import (
    agent,
    audit,
    check,
    clean,
    desk,
    detect,
    evaluate,
    explain,
    federation,
    fit,
    ledger,
    privacy,
    repeat,
    reproduce,
    results,
    run,
    schema,
    simulate,
    verdicts,
    watch,
)
from conovel.cli.made import WORDS
from conovel.cli.show import forget_notes, say, warn
from conovel.errors import UNFORESEEN, ConovelError, ConovelWarning, with_number
from conovel.spec.exits import ERROR, FAILED
from conovel.spec.shown import printable

_log = logging.getLogger("conovel.cli")
CRASHED = (
    "this was not foreseen. Please report it: send the lines above without values, names and paths"
    " of yours, the command and what `conovel --version` prints, but no file and no row"
)
ONE_SITE = "One site"
EVERY_DAY = "Batch after batch"
NETWORKS = "Networks in one process"
FEDERATIONS = "Between organisations"
RESULTS = "Results"

_MANY = 12  # from so many options on, a command has several panels
PANELS: Mapping[str, tuple[str, ...]] = {
    "Columns": ("columns", "id_column", "exclude", "keep", "kind", "kind_column", "schema"),
    "How CSV files are read": ("separator", "decimal", "encoding", "na", "no_header"),
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
    EVERY_DAY: ("detector", "ledger", "final", "batches", "list_name", "verdicts", "learn"),
    "Large files": ("memory", "engine", "scheduler"),
    "What is checked and shown": (
        "reasons",
        "keep_columns",
        "explain",
        "check",
        "plot",
        "json",
        "log_file",
    ),
}
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


class PanelCommand(TyperCommand):
    """A command whose many options are shown in panels; few options stay together."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for param in self.params if len(self.params) >= _MANY else ():
            if not param.required:
                param.rich_help_panel = _PANEL_OF.get(str(param.name))  # type: ignore[attr-defined]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words of the command, which results say they were made by."""
        WORDS.set((str(ctx.info_name), *args))
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Give the options as the help shows them."""
        return _without_types(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """Commands with a common name, and their options as the help shows them."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Give the options as the help shows them."""
        return _without_types(super().get_params(ctx))


def _without_types(params: list[Any]) -> list[Any]:
    """Show no type where it teaches nothing: an option that takes no value, or that repeats."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
        elif getattr(param, "multiple", False) and param.metavar is None:
            param.metavar = "<str>"
    return params


app = typer.Typer(
    name="conovel",
    cls=PlainGroup,
    help="Find novelties with a guaranteed false discovery rate, at one site or across many.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Exit codes: 0, the work is done and the answer is yes; 2, the input cannot be used;"
    " 3, the work is done and the answer is no; 1, conovel failed, which is a fault of its own."
    " An error ends with its number: conovel explain says what it means.",
)
for panel, commands in {
    ONE_SITE: (detect.detect, check.check, clean.clean, evaluate.evaluate, schema.schema),
    EVERY_DAY: (fit.fit, watch.watch, ledger.ledger),
    NETWORKS: (simulate.simulate, reproduce.reproduce, reproduce.limit),
    FEDERATIONS: (
        privacy.privacy,
        agent.coordinate,
        agent.agent,
        run.run,
        run.status,
        run.stop,
        audit.audit,
        desk.desk,
    ),
    RESULTS: (results.report, results.verify, repeat.repeat, results.inspect, explain.explain),
}.items():
    for command in commands:
        app.command(command.__name__, cls=PanelCommand, rich_help_panel=panel)(command)
for group, panel in ((federation.federation, FEDERATIONS), (verdicts.verdicts, EVERY_DAY)):
    for part in group.registered_commands:
        part.cls = PanelCommand
    name = "federation" if group is federation.federation else "verdicts"
    app.add_typer(group, name=name, cls=PlainGroup, rich_help_panel=panel)


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    forget_notes()
    if version:
        from conovel.spec.version import __version__  # noqa: PLC0415

        say(f"conovel {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line: exit code 2 and one clear line for an error, no traceback."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.simplefilter("always", ConovelWarning)
        try:
            app(prog_name="conovel")  # also where it runs as python -m conovel
        except ConovelError as error:
            _log.error(printable(error.numbered()))
            say(f"conovel: {error.numbered()}", err=True)
            sys.exit(ERROR)
        except Exception as error:  # typer replaces sys.excepthook
            _show_crash(error)
            sys.exit(FAILED)


def _show_warning(
    message: Warning | str, category: type[Warning], *_: object, **__: object
) -> None:
    if issubclass(category, ConovelWarning):
        text = with_number(str(message), category.code)
        _log.warning(printable(text))
        warn(text)


def _show_crash(error: Exception) -> None:
    _log.critical("conovel failed", exc_info=error)
    for line in "".join(traceback.format_exception(error)).splitlines():
        say(line, err=True)
    say(with_number(f"conovel: {CRASHED}", UNFORESEEN), err=True)
