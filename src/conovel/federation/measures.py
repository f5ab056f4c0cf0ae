"""What a run measures of itself: messages and bytes by kind, and seconds by phase.

The process of a run notes it in the record of the run when it ends. The supervisor of the party
adds it up (:mod:`conovel.federation.run_totals`). There is nothing about a row in it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, NamedTuple

from conovel.runs.carrying import RowsAtWork
from conovel.stats.cells import CellHistogram
from conovel.stats.consensus import FoldHistograms
from conovel.stats.stepup import RankHistogram

IN, OUT = "in", "out"


class Volume(NamedTuple):
    """Messages of one kind in one direction, and their bytes."""

    messages: int
    n_bytes: int


class Measures:
    """The measures of one run.

    Examples
    --------
    >>> measures = Measures()
    >>> measures.message(OUT, "MODEL", 300)
    >>> measures.message(OUT, "MODEL", 310)
    >>> with measures.timing("fit"):
    ...     pass
    >>> read_measures(measures.to_plain()).messages[OUT, "MODEL"]
    Volume(messages=2, n_bytes=610)
    """

    def __init__(self) -> None:
        self.messages: dict[tuple[str, str], Volume] = {}
        self.seconds: dict[str, float] = {}

    def message(self, direction: str, kind: str, n_bytes: int) -> None:
        """Add a message."""
        before = self.messages.get((direction, kind), Volume(0, 0))
        self.messages[direction, kind] = Volume(before.messages + 1, before.n_bytes + n_bytes)

    @contextmanager
    def timing(self, phase: str) -> Iterator[None]:
        """Add the time of a block to a phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - began

    def to_plain(self) -> dict[str, Any]:
        """Return all of it in JSON types, for the record of the run."""
        rows = list(self.messages.items())  # a copy: a deadline is noted from another thread
        return {
            "messages": [[*of, *volume] for of, volume in rows],
            "seconds": dict(self.seconds),
        }


def read_measures(plain: Any) -> Measures:
    """Read what :meth:`Measures.to_plain` gave; what is not like that is empty.

    The files of runs from before there were measures have none.
    """
    found = Measures()
    try:
        for direction, kind, messages, n_bytes in plain["messages"]:
            found.messages[str(direction), str(kind)] = Volume(int(messages), int(n_bytes))
        found.seconds = {str(phase): float(s) for phase, s in plain["seconds"].items()}
    except (AttributeError, LookupError, TypeError, ValueError):
        return Measures()
    return found


class MeasuredRows:
    """Lets a site do its work on rows, and takes the time."""

    def __init__(self, site: RowsAtWork, measures: Measures) -> None:
        self._site, self._measures = site, measures

    def models(self, index: int, names: Sequence[str], weight: Fraction) -> Mapping[str, bytes]:
        """Make a model for every peer."""
        with self._measures.timing("fit"):
            return self._site.models(index, names, weight)

    def refit(self, models: Mapping[str, bytes]) -> Sequence[bytes]:
        """Learn again with the first models of the peers."""
        with self._measures.timing("fit"):
            return self._site.refit(models)

    def ranks(self, models: Mapping[str, bytes]) -> RankHistogram | CellHistogram:
        """Rank the tested rows with the peers' models."""
        with self._measures.timing("score"):
            return self._site.ranks(models)

    def compare(self, models: Mapping[str, tuple[bytes, ...]]) -> FoldHistograms:
        """Count rows by the score of each fold."""
        with self._measures.timing("score"):
            return self._site.compare(models)
