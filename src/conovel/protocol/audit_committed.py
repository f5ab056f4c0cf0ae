"""Deriving again what a run with committed counting decided, from commitments and reveals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conovel.deciding.committed import ROUND, CommittedCounts, Decided, decide, reveal_ranks
from conovel.errors import ConovelError
from conovel.protocol.transcript import Sizes, Transcript
from conovel.spec.bodies import COORDINATOR, Kind, Outcome
from conovel.spec.settings import TO_MEMBERS
from conovel.stats.stepup import RankHistogram


def message_findings(transcript: Transcript, outcome: Outcome) -> Iterator[str]:
    """Check that each member sent and got what belongs to committed counting, and no other did."""
    spec = transcript.settings
    here = [name for name in outcome.participants if name in transcript.agents]
    here = here if spec.is_committed else []
    to_all = [(ROUND, COORDINATOR, name) for name in here]
    from_all = [(ROUND, name, COORDINATOR) for name in here]
    due = {
        Kind.COMMIT: from_all,
        Kind.COMMITMENTS: to_all,
        Kind.REVEAL: from_all,
        Kind.REVEALS: to_all if spec.reveal_to == TO_MEMBERS else [],
    }
    for kind, expected in due.items():
        sent = [(e.round, e.sender, e.receiver) for e in transcript.entries if e.kind == kind.name]
        if sorted(sent) != expected:
            yield f"the messages {kind.name} are not those of the members"
    if not spec.is_committed and (transcript.commitments or transcript.reveals):
        yield "counts in rounds have no commitments, and here are some"
    if outcome.k and (not spec.is_committed or spec.regime.decides_by_cells):
        yield "the outcome has a k of its own, which only committed counts of ranks have"


def reveal_findings(
    transcript: Transcript, sizes: Mapping[str, Sizes], outcome: Outcome
) -> Iterator[str]:
    """Check commitments and reveals, as far as they are known, and the outcome if all are.

    A site knows its own counts, and those of others if they are revealed to members.
    """
    try:
        if transcript.settings.is_committed:
            yield from _reveal_findings(transcript, sizes, outcome)
    except ConovelError as error:  # a reveal that does not match, or cannot be true
        yield str(error)


def _reveal_findings(
    transcript: Transcript, sizes: Mapping[str, Sizes], outcome: Outcome
) -> Iterator[str]:
    known, members = set(transcript.reveals), set(outcome.participants)
    if set(transcript.commitments) != members:
        yield "the commitments are not those of the members"
        return
    if not set(sizes) - set(transcript.left) <= known <= members:
        yield "the reveals are not those of the members"
        return
    names, run_id = outcome.participants, bytes.fromhex(transcript.run_id)
    counts = CommittedCounts(run_id, names, transcript.commitments)
    for name, reveal in transcript.reveals.items():
        counts.add(name, reveal, sizes[name].ready if name in sizes else None)
    if outcome.n_tests != transcript.n_tests:
        yield f"the counts began with {transcript.n_tests} tests, not {outcome.n_tests}"
    if transcript.rounds or transcript.histograms or any(transcript.left.values()):
        yield "committed counting has no other counts, and loses no agent during them"
    if known == members and not transcript.settings.regime.pools_calibration:
        yield from _outcome_findings(transcript, outcome)


def _outcome_findings(transcript: Transcript, outcome: Outcome) -> Iterator[str]:
    spec, reveals = transcript.settings, transcript.reveals
    n_tests = sum(reveal.n_tested for reveal in reveals.values())
    if n_tests != outcome.n_tests:
        yield f"the outcome is about {outcome.n_tests} tests, and there were {n_tests}"
    found = decide(spec, reveals, n_tests)
    if not found.matches(outcome):
        told = Decided(outcome.n_rejected, outcome.k, outcome.slope, outcome.cells)
        yield f"the outcome says {told}, and what follows from the counts is {found}"


def rank_findings(transcript: Transcript, name: str, histogram: RankHistogram) -> Iterator[str]:
    """Check that what an agent revealed follows from its ranks."""
    told: Any = transcript.reveals.get(name)
    level, n_tests = transcript.settings.level, transcript.n_tests
    if told is None or told != reveal_ranks(told.nonce, histogram, level, n_tests):
        yield f"{name} revealed other counts than those of its ranks"
