"""What a network decided, agent by agent, and the record that it follows from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from conovel.protocol.group_records import AgentGroup, groups_of
from conovel.protocol.transcript import Transcript
from conovel.site.results import SiteResult
from conovel.site.storage import write_json
from conovel.spec.run_spec import RunSpec
from conovel.stats.repeats import EvidenceRound


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
    spec : RunSpec
        The settings of the run.
    n_null : dict of int
        Known normals of each agent.
    lost : tuple of str
        Agents that did not stay to the end.
    runs : tuple of NetworkRun
        With `repeats`, the B runs, each a whole result with a transcript of its own. `transcript`
        is then that of the first run.
    evidence_rounds : tuple of EvidenceRound
        With `repeats`, the counts by which e-BH decided on the averaged evidence; none where each
        agent decides for itself.

    See Also
    --------
    conovel.Network : Makes it.
    conovel.SiteResult : One agent's part.
    conovel.Transcript : The messages and counts behind it.
    """

    sites: Mapping[str, SiteResult]
    transcript: Transcript
    guarantee: str
    spec: RunSpec
    n_null: Mapping[str, int]
    lost: tuple[str, ...] = ()
    runs: tuple[NetworkRun, ...] = ()
    evidence_rounds: tuple[EvidenceRound, ...] = ()

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
        """Rounds of counts, in all runs and about the evidence."""
        return sum(t.n_rounds for t in self.transcripts) + len(self.evidence_rounds)

    @property
    def transcripts(self) -> tuple[Transcript, ...]:
        """The transcript of every run."""
        return tuple(run.transcript for run in self.runs) or (self.transcript,)

    @cached_property
    def groups(self) -> tuple[AgentGroup, ...]:
        """Which agents calibrated together in the regime `joint`, and what became of them.

        Empty in other regimes. Groups whose agents need few calibration rows for a test come
        first.
        """
        return groups_of(self.transcript, {name: site.floor for name, site in self.sites.items()})

    @cached_property
    def n_bytes(self) -> int:
        """Bytes on the wire, over all messages of all runs."""
        return sum(entry.n_bytes for t in self.transcripts for entry in t.entries)

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain JSON types; ``conovel verify`` reads it back."""
        if self.runs:
            return self._repeated_as_plain()
        told = {"groups": [group.to_dict() for group in self.groups]} if self.groups else {}
        return told | {
            "command": "network",
            "guarantee": self.guarantee,
            "n_rejected": self.n_rejected,
            "transcript": self.transcript.to_dict(),
            "decisions": {
                name: {
                    "n_calibration": site.n_calibration,
                    "choices": {what: c.to_dict() for what, c in site.choices.items()},
                    "ranks": site.ranks.tolist(),
                    "tested": site.tested.tolist(),
                    **site.cells_as_plain(),
                    "rejected": site.rejected.tolist(),
                }
                for name, site in self.sites.items()
                if name not in self.lost
            },
        }

    def _repeated_as_plain(self) -> dict[str, Any]:
        return {
            "command": "network",
            "guarantee": self.guarantee,
            "n_rejected": self.n_rejected,
            "spec": self.spec.to_dict(),
            "runs": [run.to_dict() for run in self.runs],
            "evidence_rounds": [round_._asdict() for round_ in self.evidence_rounds],
            "decisions": {
                name: {
                    "times_flagged": site.times_flagged.tolist(),
                    "rejected": site.rejected.tolist(),
                }
                for name, site in self.sites.items()
            },
        }

    def save(self, path: str | Path) -> None:
        """Write :meth:`to_dict` as JSON."""
        write_json(Path(path), self.to_dict())
