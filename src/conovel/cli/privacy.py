"""``conovel privacy``: what the models that a site would send give away about its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from conovel.cli.show import (
    bars,
    print_fitted,
    print_json,
    print_numbers,
    require_there,
    split_names,
)
from conovel.cli.simulate import read_bits
from conovel.cli.tables import FileOptions, named_samples, with_options
from conovel.errors import InputError

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
    """
    require_there(null, test, options.schema)
    from conovel.experiments.privacy import attack_all, draw_shadows, read_bytes  # noqa: PLC0415
    from conovel.rows.storage import write_json  # noqa: PLC0415

    if (null is None) != (test is None):
        raise InputError("give both --null and --test, or none of them for the paper's design")
    exchanges = _exchanges(bits, epsilon, split_names(scorer))
    pool = _pool(null, test, options, seed)
    with bars() as show:
        drawn = draw_shadows(
            pool, exchanges, shadows, seed, lambda n: show("drawing agents", n, shadows)
        )
    measured, named = attack_all(pool, drawn, exchanges), read_bytes(pool, drawn, exchanges)
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
    heads = ["what is attacked", "attack", "AUC", "±", "found at 1 % alarms", "±"]
    for one in named:
        own = [m for m in measured if m.exchange == one.exchange]
        rows = [[m.target, m.attack, *map(_number, _numbers(m.leakage))] for m in own]
        print_numbers(f"{one.exchange}: {own[0].n_bytes:,} bytes a model", heads, rows)
    for one in named:
        print_fitted(f"{one.exchange}: {one.in_words}")
    print_fitted(
        "AUC: chance that a row behind the model looks more like one than another row; 0.5 is a"
        " guess. Found: share of such rows that are found where 1 % of the others are taken for"
        " one. Outliers: rows six standard deviations away.",
    )
    if out is not None:
        print_fitted(f"written to {out}")


def _numbers(leakage: Leakage) -> tuple[float, ...]:
    return leakage.auc, leakage.auc_error, leakage.detected[0], leakage.detected_error[0]


def _number(value: float) -> str:
    return "" if value != value else f"{value:.2f}"  # noqa: PLR0124 - NaN is not equal to itself
