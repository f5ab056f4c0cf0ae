"""What a network decided, agent by agent, and the record that it follows from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.protocol.transcript import Transcript
from conovel.scorers.selection import Selection
from conovel.site.storage import write_json
from conovel.site.tables import Rows, give_back, with_ids


@dataclass(frozen=True, eq=False)
class SiteResult:
    """One agent's decisions, one entry per row of its ``X_test``.

    Rows that the regime does not test have `tested` False, rank 0, score and p-value NaN,
    and are never rejected. `choices` says how its scorer and its composite were chosen, where
    there was a choice.

    See Also
    --------
    conovel.NetworkRun : The results of all agents.
    conovel.Detection : The same for one site alone.
    """

    name: str
    rejected: NDArray[np.bool_]
    ranks: NDArray[np.int64]
    scores: NDArray[np.float64]
    tested: NDArray[np.bool_]
    n_calibration: int
    test_rows: Rows
    ids: NDArray[Any] | None = None
    choices: Mapping[str, Selection] = field(default_factory=dict)

    @property
    def n_rejected(self) -> int:
        """Number of rows declared novelties."""
        return int(self.rejected.sum())

    @property
    def p_values(self) -> NDArray[np.float64]:
        """Conformal p-values; NaN where a row was not tested."""
        return np.where(self.tested, self.ranks / (self.n_calibration + 1), np.nan)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Per-row results by column name."""
        return with_ids(
            self.ids,
            score=self.scores,
            rank=self.ranks,
            p_value=self.p_values,
            tested=self.tested,
            rejected=self.rejected,
        )

    def to_frame(self) -> Any:
        """Per-row results as the kind of frame ``X_test`` was."""
        return give_back(self.test_rows, self.columns())


@dataclass(frozen=True, eq=False)
class NetworkRun(Mapping[str, SiteResult]):
    """What a network decided: a mapping from agent names to their results.

    Attributes
    ----------
    sites : dict of SiteResult
        By name, also those that dropped out (nothing rejected there).
    transcript : Transcript
        Every message and every count.
    guarantee : str
        What holds for this very run, and what it rests on.
    settings : dict
        Regime, composite, bits, level and seed.
    n_null : dict of int
        Known normals of each agent.
    lost : tuple of str
        Agents that did not stay to the end.

    See Also
    --------
    conovel.Network : Makes it.
    conovel.SiteResult : One agent's part.
    conovel.Transcript : The messages and counts behind it.
    """

    sites: Mapping[str, SiteResult]
    transcript: Transcript
    guarantee: str
    settings: Mapping[str, Any]
    n_null: Mapping[str, int]
    lost: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> SiteResult:
        return self.sites[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)

    @property
    def n_rejected(self) -> int:
        """Rejections over all agents."""
        return sum(site.n_rejected for site in self.sites.values())

    @property
    def rounds(self) -> int:
        """Rounds of counts."""
        return len(self.transcript.rounds)

    @cached_property
    def n_bytes(self) -> int:
        """Bytes on the wire, over all messages."""
        return sum(entry.n_bytes for entry in self.transcript.entries)

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain JSON types; ``conovel verify`` reads it back."""
        return {
            "command": "network",
            "settings": dict(self.settings),
            "guarantee": self.guarantee,
            "n_rejected": self.n_rejected,
            "transcript": self.transcript.to_dict(),
            "decisions": {
                name: {
                    "n_calibration": site.n_calibration,
                    "choices": {what: c.to_dict() for what, c in site.choices.items()},
                    "ranks": site.ranks.tolist(),
                    "tested": site.tested.tolist(),
                    "rejected": site.rejected.tolist(),
                }
                for name, site in self.sites.items()
                if name not in self.lost
            },
        }

    def save(self, path: str | Path) -> None:
        """Write :meth:`to_dict` as JSON."""
        write_json(Path(path), self.to_dict())
