"""What a machine of the protocol asks of its driver.

A machine does no work itself. It returns events; the driver carries messages and lets the site
work, and hands results back (``models_ready``, ``refit_ready``, ``ranks_ready``,
``site_failed``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from conovel.spec.bodies import Message


@dataclass(frozen=True)
class Send:
    """Carry these bytes, which are this message, to this party."""

    receiver: str
    data: bytes
    message: Message


@dataclass(frozen=True)
class FitModels:
    """Fit, and make a model for every peer; then call ``models_ready``.

    `agents` are all names in canonical order, `index` is the agent's own place among them. In the
    regime `joint`, `weight` is that of the agent's group, zero if it is in a group with no other.
    """

    index: int
    agents: tuple[str, ...]
    weight: Fraction = Fraction(0)


@dataclass(frozen=True)
class RankRows:
    """Rank the tested rows with these models of the peers; then call ``ranks_ready``."""

    models: Mapping[str, bytes]


@dataclass(frozen=True)
class RefitModels:
    """Learn again with the first models of the peers; then call ``refit_ready``.

    In the regime `consensus` alone.
    """

    models: Mapping[str, bytes]


@dataclass(frozen=True)
class CompareRows:
    """Count rows by the score that these models make together; then call ``ranks_ready``.

    In the regime `consensus` alone. For each agent, its own included, a model for each fold.
    """

    models: Mapping[str, tuple[bytes, ...]]


Work: TypeAlias = FitModels | RankRows | RefitModels | CompareRows
Event: TypeAlias = Send | Work
Outbox: TypeAlias = list[Send]


def messages_of(events: Iterable[Event]) -> Outbox:
    """Return the messages among events."""
    return [event for event in events if isinstance(event, Send)]
