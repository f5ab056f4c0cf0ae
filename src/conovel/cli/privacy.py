"""``conovel privacy``: what the models that a site would send give away about its rows."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from conovel.cli.show import (
    bars,
    print_fitted,
    print_json,
    print_numbers,
    require_there,
    say,
    split_names,
)
from conovel.cli.simulate import read_bits
from conovel.cli.tables import FileOptions, named_samples, with_options
from conovel.errors import InputError
from conovel.stats.words import counted

if TYPE_CHECKING:
    from conovel.experiments.attacks import Leakage
    from conovel.experiments.privacy import Measured, Reading
    from conovel.experiments.shadows import Exchange, Pool


@with_options(
    null="Known normals: a file or a folder; without it, the paper's Gaussian design.",
    test="Rows to test: a file or a folder.",
    bits="Ways to send a model, separated by commas: compact, compact:BYTES, 1 to 16, or none for"
    " float64.",
    epsilon=typer.Option(
        "--privacy", help="Also models with differential privacy: values of ε, such as 1,4."
    ),
    shadows=typer.Option(min=16, help="Agents to draw; more of them make errors smaller."),
    out="Where to write the result (.json).",
)
def privacy(
    *,
    null: Path | None = None,
    test: Path | None = None,
    bits: str = "compact",
    epsilon: str | None = None,
    scorer: str = "automatic",
    shadows: int = 200,
    options: FileOptions,
    seed: int = 0,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Attack the models that a site would send, before it takes part in a run.

    Example: `conovel privacy --null normal.csv --test new.csv`

    Example: `conovel privacy --bits compact,4,none --privacy 4`

    Agents are drawn that have each row with chance one half. From the bytes of a model an attacker
    guesses which rows are behind it. AUC 0.5 is a guess. The agents have half of the rows, so
    their models say more about a row than the site's own would. Nothing leaves this machine.
    The command says first how long it will take.
    """
    require_there(null, test, options.schema)
    from conovel.experiments.privacy import (  # noqa: PLC0415
        attack_all,
        draw_shadows,
        read_bytes,
        seconds_to_draw,
    )
    from conovel.rows.storage import write_json  # noqa: PLC0415

    if (null is None) != (test is None):
        raise InputError("give both --null and --test, or none of them for the paper's design")
    exchanges = _exchanges(bits, epsilon, split_names(scorer))
    pool = _pool(null, test, options, seed)
    seconds = seconds_to_draw(pool, exchanges, shadows, seed)
    faster = "; with fewer --shadows it is faster, and errors are larger" if seconds > 60 else ""
    say(f"conovel: this takes {in_minutes(seconds)}{faster}", err=True)
    with bars() as show:

        def tell(n: int) -> None:
            show("drawing agents", n, shadows)
            if n % -(-shadows // 4) == 0 and not sys.stderr.isatty():  # a log has no bar
                say(f"conovel: {n} of {shadows} agents drawn", err=True)

        drawn = draw_shadows(pool, exchanges, shadows, seed, tell)
        measured = attack_all(
            pool, drawn, exchanges, lambda n: show("attacking models", n, len(exchanges))
        )
        named = read_bytes(pool, drawn, exchanges)
    content = {
        "command": "privacy",
        "rows": [len(pool.normals), len(pool.tests)],
        "shadows": shadows,
        "attacks": [one.to_dict() for one in measured],
        "readings": [one.to_dict() for one in named],
    }
    if out is not None:
        write_json(out, content)
    if json:
        print_json(content)
    else:
        _print(measured, named, out)


def in_minutes(seconds: float) -> str:
    """Say about how long something takes.

    Examples
    --------
    >>> in_minutes(12.3), in_minutes(59), in_minutes(700), in_minutes(7300)
    ('less than a minute', 'less than a minute', 'about 12 minutes', 'about 2.0 hours')
    """
    if seconds < 60:
        return "less than a minute"
    if seconds > 5400:
        return f"about {seconds / 3600:.1f} hours"
    return f"about {counted(max(1, round(seconds / 60)), 'minute')}"


def _exchanges(bits: str, epsilon: str | None, scorer: list[str]) -> list[Exchange]:
    from conovel.experiments.shadows import Exchange  # noqa: PLC0415
    from conovel.spec.settings import as_privacy  # noqa: PLC0415

    exchanges = []
    for text in split_names(bits):
        name = "float64" if text == "none" else text
        exchanges.append(Exchange(name, scorer, read_bits(text)))
    for text in split_names(epsilon or ""):
        exchanges.append(Exchange(f"ε = {text}", scorer, privacy=as_privacy(text)))
    return exchanges


def _pool(null: Path | None, test: Path | None, options: FileOptions, seed: int) -> Pool:
    """Read the rows, or draw those of the paper's design."""
    from conovel.experiments.privacy import design_pool, pool_of  # noqa: PLC0415
    from conovel.rows.schemas import columns_read  # noqa: PLC0415
    from conovel.rows.storage import read_pair_of_files  # noqa: PLC0415

    schema: Any = options.agreed_schema()
    if null is None or test is None:
        return design_pool(2.0, seed)
    reading, names = columns_read(schema, options.reading, options.features)
    with named_samples(reading, null, test):
        normals, tests = read_pair_of_files(null, test, names, options.id_column, reading)
        return pool_of(normals.features, tests.features, schema, seed)


def _print(measured: list[Measured], named: list[Reading], out: Path | None) -> None:
    heads = ["attacked", "attack", "AUC", "found at 1 %"]
    for one in named:
        own = [m for m in measured if m.exchange == one.exchange]
        rows = [[m.target, m.attack, *_numbers(m.leakage)] for m in own]
        print_numbers(f"{one.exchange}: {own[0].n_bytes:,} bytes a model", heads, rows)
    for one in named:
        print_fitted(f"{one.exchange}: {one.in_words}")
    print_fitted(
        "AUC: chance that a row behind the model looks more like one than another row; 0.5 is a"
        " guess. Found: share of such rows that are found where 1 % of the others are taken for"
        " one. Outliers: rows six standard deviations away."
    )
    if out is not None:
        print_fitted(f"written to {out}")


def _numbers(leakage: Leakage) -> tuple[str, str]:
    shares = leakage.detected[0], leakage.detected_error[0]
    return _number(leakage.auc, leakage.auc_error), _number(*shares)


def _number(value: float, error: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f} ± {error:.2f}"
