"""``conovel explain``: what the number of an error or a warning means, and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import typer

from conovel.cli.show import facts_table, print_fitted, say
from conovel.cli.tables import with_options
from conovel.errors import InputError

Records = Mapping[str, Mapping[str, Any]]


@with_options(
    about=typer.Argument(
        help="A number such as CN-101, a class such as LevelError, or a message, in quotes. If not"
        " given, all numbers are listed."
    )
)
def explain(*, about: str = "") -> None:
    """Say what an error or a warning means, why it comes, and what to do.

    Example: `conovel explain CN-101`

    Nothing is read but a file that comes with conovel.
    """
    records = read_records()
    if not about:
        table = facts_table()
        for code, record in records.items():
            table.add_row(code, record["means"])
        print_fitted(table)
        return
    for code, cases in meant(records, about).items():
        say(f"{code} {records[code].get('class', '')}".strip())
        print_fitted(records[code]["means"])
        for case in cases:
            table = facts_table()
            for word in filter(case.get, ("message", "cause", "fix", "see")):
                table.add_row(word, case[word])
            say("")
            print_fitted(table)


def read_records() -> Records:
    """Read what conovel knows of each number."""
    import tomllib  # noqa: PLC0415

    return tomllib.loads(files("conovel").joinpath("errors.toml").read_text(encoding="utf-8"))


def meant(records: Records, about: str) -> dict[str, list[Mapping[str, str]]]:
    """Return the cases of the number or class that is meant; of a message, those most like it."""
    number = re.search(r"\bCN-?(\d{3})\b|^\s*(\d{3})\s*$", about, re.IGNORECASE)
    code = f"CN-{number[1] or number[2]}" if number else ""
    every = {key: one["cases"] for key, one in records.items()}
    named = {key: every[key] for key in every if about.strip() == records[key].get("class")}
    named |= {code: every[code]} if code in every else {}
    like = [
        (len(case["message"].replace("…", "")), key, case)
        for key, cases in (named or every).items()
        for case in cases
        if is_like(case["message"], about)
    ]
    if like:
        longest = max(size for size, _, _ in like)
        return {key: [case] for size, key, case in like if size == longest}
    if not named:
        raise InputError(f"{about!r} is no number, class or message: `conovel explain` lists them")
    return named


def is_like(message: str, about: str) -> bool:
    """Tell whether a text has a message of a record in it, where … stands for anything."""
    return bool(re.search(".*".join(map(re.escape, message.split("…"))), about))
