"""The command line. Commands import modules when they run, so that help is fast."""

from __future__ import annotations

import sys
import traceback
import warnings
from types import TracebackType

import typer

from conovel.cli import (
    agent,
    audit,
    check,
    detect,
    evaluate,
    federation,
    fit,
    ledger,
    limit,
    privacy,
    report,
    reproduce,
    run,
    schema,
    show_model,
    simulate,
    verify,
    watch,
)
from conovel.cli.panels import (
    EVERY_DAY,
    FEDERATIONS,
    NETWORKS,
    ONE_SITE,
    RESULTS,
    PanelCommand,
)
from conovel.cli.show import say
from conovel.errors import ConovelError, ConovelWarning
from conovel.spec.exits import ERROR

app = typer.Typer(
    name="conovel",
    help="Find novelties with a guaranteed false discovery rate, at one site or across many.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Exit codes: 0, the work is done and the answer is yes; 2, the input cannot be used;"
    " 3, the work is done and the answer is no; 1, conovel failed, which is a fault of its own.",
)
for panel, commands in {
    ONE_SITE: (detect.detect, check.check, evaluate.evaluate, schema.schema),
    EVERY_DAY: (fit.fit, watch.watch, ledger.ledger),
    NETWORKS: (simulate.simulate, reproduce.reproduce, limit.limit),
    FEDERATIONS: (
        privacy.privacy,
        agent.coordinate,
        agent.agent,
        run.run,
        run.status,
        run.stop,
        audit.audit,
    ),
    RESULTS: (report.report, verify.verify, show_model.inspect),
}.items():
    for command in commands:
        app.command(command.__name__, cls=PanelCommand, rich_help_panel=panel)(command)
app.add_typer(federation.federation, name="federation", rich_help_panel=FEDERATIONS)


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from conovel.spec.version import __version__  # noqa: PLC0415

        say(f"conovel {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line: exit code 2 and one clear line for an error, no traceback."""
    sys.excepthook = _show_crash
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.simplefilter("always", ConovelWarning)
        try:
            app()
        except ConovelError as error:
            say(f"conovel: {error}", err=True)
            sys.exit(ERROR)


def _show_warning(
    message: Warning | str, category: type[Warning], *_: object, **__: object
) -> None:
    if issubclass(category, ConovelWarning):
        say(f"conovel: warning: {message}", err=True)


def _show_crash(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    for line in "".join(traceback.format_exception(kind, error, trace)).splitlines():
        say(line, err=True)
