"""The terms of a run in plain words, for a person who is to agree to it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from conovel.deciding.ways import guarantee, revealed_by, ways_of
from conovel.errors import ConovelError
from conovel.federation.consent import NO_BOUND, Limits
from conovel.federation.exposure import EpsilonSpent, RunsSpent, shown
from conovel.federation.terms import Terms
from conovel.spec.findings import percent
from conovel.spec.settings import Bits
from conovel.stats.words import counted, joined

NEVER_LEAVES = (
    "Rows, values, names of rows, scores, and which rows are flagged. They stay on this machine."
)


_MESSAGES = {
    "HELLO": "numbers of rows and columns",
    "KEY": "a key for masks",
    "MODEL": "a model",
    "SUMS": "sums over rows",
    "READY": "its numbers of calibration and tested rows",
    "COUNT": "a count of rows",
    "ABORT": "the end of the run",
}


def message_in_words(kind: str) -> str:
    """Say what a message holds; the kinds of messages are in docs/protocol.md.

    Examples
    --------
    >>> message_in_words("MODEL"), message_in_words("OTHER")
    ('a model (MODEL)', 'OTHER')
    """
    return f"{_MESSAGES[kind]} ({kind})" if kind in _MESSAGES else kind[:40]


class TermsInWords(NamedTuple):
    """What a run asks for."""

    points: list[tuple[str, str]]  # a term and what it means
    leaves: list[tuple[str, str]]  # who learns what
    promise: str


def read_terms(run: Mapping[str, Any]) -> Terms | None:
    """Read the terms in the record of a run; None if they cannot be read.

    Of a schema the record has the digest alone.
    """
    plain = run.get("terms")
    try:
        spec = dict(plain["spec"]) if isinstance(plain, Mapping) else {}
        return Terms.from_dict({**(plain or {}), "spec": spec | {"schema": None}})
    except (ConovelError, LookupError, TypeError, ValueError):
        return None


def terms_in_words(terms: Terms, operator: str) -> TermsInWords:
    """Say what a run asks for, who learns what, and what it promises."""
    spec, promised = terms.spec, terms.promised
    learning = ways_of(spec.regime).learning
    level = percent(float(promised.level))
    when = datetime.fromtimestamp(terms.asked_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    points = [
        ("who asks", f"{operator or 'an operator'}, on {when}"),
        ("who takes part", joined(list(terms.agents), 20)),
        ("what for", f"to flag rows that are unlike known normals; of these, {level} or fewer are"
         " false alarms on average"),
        ("regime", spec.regime.name),
    ]  # fmt: skip
    if terms.list_name:
        points.append(("list", f"it continues the list {terms.list_name!r} of several batches"))
    if learning.model_rounds:
        points.append(("form of the models", _form(spec.bits)))
    points.append(("privacy", _privacy(terms)))
    if learning.by_sums:
        hidden = "masks hide this site's sums from everybody; the total is seen"
        points.append(("masks", hidden if spec.masks else "none: the coordinator sees the sums"))
    if ways_of(spec.regime).deciding.shares_counts:
        lies = counted(spec.liars, "lying member") if spec.liars else "no lying member"
        points.append(("tolerates", lies))
    points.append(("ends", f"after {_span(terms.run_seconds)} at the latest"))
    peers, coordinator = revealed_by(spec)
    leaves = [
        ("the other sites learn", f"names, total numbers of rows; {peers}"),
        ("the coordinator learns", f"names, numbers of rows; {coordinator or 'nothing more'}"),
        ("never leaves", NEVER_LEAVES),
    ]
    return TermsInWords(points, leaves, str(guarantee(promised)))


def _form(bits: Bits) -> str:
    if isinstance(bits, str):
        return "a small forest of rounded numbers"
    return "with exact numbers" if bits is None else f"with numbers of {counted(bits, 'bit')}"


def _privacy(terms: Terms) -> str:
    spec = terms.spec
    if not ways_of(spec.regime).learning.spends:
        return "nothing that was learnt from rows is sent"
    if spec.privacy is not None:
        privacy = spec.privacy
        delta = f"{float(privacy.delta):g}"
        return f"differential privacy, with ε {shown(privacy.epsilon)} and δ {delta}"
    return "no differential privacy: what is sent is a summary of rows, without noise"


def limits_in_words(
    limits: Limits, runs: RunsSpent | None, spent: EpsilonSpent
) -> list[tuple[str, str]]:
    """Say what a site agrees to, and how much of it is used up."""
    today = f", {runs.last_day:,} so far" if runs else ""
    asks = "no: the limits below decide alone"
    if limits.ask_seconds:
        asks = f"yes, within {_span(limits.ask_seconds)} (ask_seconds)"
    budget = "no bound" if limits.max_epsilon == NO_BOUND else f"ε {limits.max_epsilon} at most"
    return [
        ("a person is asked about each run", asks),
        ("regimes", joined(list(limits.regimes), 20)),
        ("largest level", str(limits.max_level)),
        ("fewest agents", f"{limits.min_agents:,}"),
        ("runs in 24 hours", f"{limits.max_runs_per_day:,} at most{today}"),
        ("runs with the same rows", f"{limits.max_runs_per_data:,} at most"),
        ("privacy budget of these rows", f"{budget}; spent: {spent}"),
        ("learns from known novelties", "yes" if limits.share_known else "no"),
        ("longest run", _span(limits.max_seconds)),
    ]


def _span(seconds: float) -> str:
    """Say how long a time is.

    Examples
    --------
    >>> _span(45), _span(900), _span(3600), _span(86400)
    ('45 seconds', '15 minutes', '1 hour', '24 hours')
    """
    for unit, size in (("hour", 3600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            return counted(int(seconds / size), unit)
    return counted(round(seconds), "second")
