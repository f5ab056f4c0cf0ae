"""What a network decided, agent by agent, and the record that it follows from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from conovel.protocol.group_records import AgentGroup, groups_of
from conovel.protocol.transcript import Transcript
from conovel.rows.frames import frame_like
from conovel.rows.storage import write_json
from conovel.runs.certificates import certificate_of_run, certified_as_plain, proof_of
from conovel.runs.pages import axes_or_new, write_report
from conovel.runs.site_results import SiteResult
from conovel.spec.findings import Finding, headline
from conovel.spec.guarantee import Guarantee
from conovel.spec.run_spec import RunSpec
from conovel.spec.shown import Shown
from conovel.stats.repeats import EvidenceRound


@dataclass(frozen=True, eq=False, repr=False)
class NetworkRun(Shown, Mapping[str, SiteResult]):
    """What a network decided: a mapping from agent names to their results.

    Attributes
    ----------
    sites : dict of SiteResult
        By name, also those that dropped out (nothing rejected there).
    transcript : Transcript
        Every message and every count.
    guarantee : Guarantee
        What holds for this run, and what it needs.
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
    batch : NetworkRun or None
        With a ledger, the run of this batch by itself, at half the level. The sites then say which
        rows of the batch are on the list, and `evidence_rounds` has the counts of the list.
    mean, confidence : NetworkRun or None, Fraction or None
        With `confidence`, the run by the promise on average, and the probability of the promise
        about this list, which the sites then have.

    See Also
    --------
    conovel.Network : Makes it.
    conovel.SiteResult : One agent's part.
    conovel.protocol.transcript.Transcript : The messages and counts behind it.
    """

    sites: Mapping[str, SiteResult]
    transcript: Transcript
    guarantee: Guarantee
    spec: RunSpec
    n_null: Mapping[str, int]
    lost: tuple[str, ...] = ()
    runs: tuple[NetworkRun, ...] = ()
    evidence_rounds: tuple[EvidenceRound, ...] = ()
    batch: NetworkRun | None = None
    mean: NetworkRun | None = None
    confidence: Fraction | None = None

    report = write_report
    certificate = certificate_of_run

    def _shown(self) -> dict[str, str]:
        return {
            "result": self.headline,
            "regime": self.spec.regime.name,
            "agents": f"{len(self.sites):,}",
            "bytes in messages": f"{self.n_bytes:,}",
        }

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
    def warnings(self) -> tuple[Finding, ...]:
        """What speaks against the result, of all agents; each finding names its agent."""
        return tuple(finding for site in self.sites.values() for finding in site.warnings)

    @property
    def headline(self) -> str:
        """What came out, in one sentence; a finding that breaks the promise is named first."""
        tested = sum(int(site.tested.sum()) for site in self.sites.values())
        numbers = self.n_rejected, tested, self.spec.level
        proof = None if self.n_rejected else proof_of(self)
        few = (one.message for one in self.warnings if one.kind == "thin_calibration")
        return headline(*numbers, self.warnings, proof, self.confidence, next(few, ""))

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

    def to_frame(self) -> Any:
        """Give the rows of all agents, one after the other, as the first agent's kind of frame.

        The first columns say the agent, the position of the row in its ``X_test``, and the id if
        any agent has ids. The others are those of :meth:`SiteResult.to_frame`.
        """
        sites = list(self.sites.items())
        parts = [site.columns() for _, site in sites]
        sizes = [site.rejected.size for _, site in sites]
        columns: dict[str, Any] = {
            "agent": np.repeat([name for name, _ in sites], sizes).astype(object),
            "row": np.concatenate([np.arange(size) for size in sizes]),
        }
        if any("id" in part for part in parts):
            ids = [part.pop("id", np.full(n, "")) for part, n in zip(parts, sizes, strict=True)]
            columns["id"] = np.array([str(name) for own in ids for name in own], dtype=object)
        columns |= {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return frame_like(sites[0][1].test_rows, columns)

    def plot(self, ax: Any = None) -> Any:
        """Draw how many rows of each agent were tested and rejected; needs matplotlib.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; new axes if not given.

        Returns
        -------
        matplotlib axes
        """
        ax = axes_or_new(ax)
        names = list(self.sites)
        ax.barh(names, [int(s.tested.sum()) for s in self.sites.values()], label="tested")
        ax.barh(names, [s.n_rejected for s in self.sites.values()], label="flagged")
        ax.set_xlabel("rows")
        ax.invert_yaxis()
        ax.legend()
        return ax

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain JSON types; ``conovel verify`` reads it back."""
        if self.runs:
            return self._repeated_as_plain()
        if self.batch is not None:
            return self.batch.to_dict() | {"ledger": self._list_as_plain()}
        if self.mean is not None and self.confidence is not None:
            certified = certified_as_plain(self, self.confidence)
            findings = [finding.to_dict() for finding in self.warnings]
            return self.mean.to_dict() | {"certified": certified, "warnings": findings}
        proof = None if self.n_rejected else proof_of(self)
        certificate = {} if proof is None else {"certificate": proof}
        of_groups = {"groups": [group.to_dict() for group in self.groups]} if self.groups else {}
        return {
            **certificate,
            **of_groups,
            "command": "network",
            "guarantee": str(self.guarantee),
            "warnings": [finding.to_dict() for finding in self.warnings],
            "n_rejected": self.n_rejected,
            "transcript": self.transcript.to_dict(),
            "decisions": {
                name: {
                    "n_calibration": site.n_calibration,
                    "choices": {what: c.to_dict() for what, c in site.choices.items()},
                    "ranks": site.ranks.tolist(),
                    "tested": site.tested.tolist(),
                    **site.cells_as_plain(),
                    **site.strata_as_plain(),
                    "rejected": site.rejected.tolist(),
                }
                for name, site in self.sites.items()
                if name not in self.lost
            },
        }

    def _list_as_plain(self) -> dict[str, Any]:
        """Give the list so far as JSON types; the rest of the record is the batch's own run."""
        return {
            "level": str(self.spec.level),
            "guarantee": str(self.guarantee),
            "rounds": [round_._asdict() for round_ in self.evidence_rounds],
            "sites": {
                name: site.ledger.summary()
                for name, site in self.sites.items()
                if site.ledger is not None
            },
        }

    def _repeated_as_plain(self) -> dict[str, Any]:
        return {
            "command": "network",
            "guarantee": str(self.guarantee),
            "warnings": [finding.to_dict() for finding in self.warnings],
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
