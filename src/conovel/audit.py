"""Deriving the outcome of a run again from its transcript, and from the ranks if given.

What is checked is that the record is consistent: the outcome follows from the counts, the
counts from the ranks, the decisions from the outcome. That the counts are true cannot be seen
from the outside (docs/revealed.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

import numpy as np

from conovel.counting import Counting, Tally, decide_alone, limit_of
from conovel.errors import ConovelError
from conovel.levels import as_level
from conovel.messages import Outcome
from conovel.pi0 import as_estimator
from conovel.regimes import as_deployable
from conovel.stepup import RankHistogram, as_block, rank_limit
from conovel.transcript import Transcript


def verify(run: Mapping[str, Any]) -> list[str]:
    """Check a finished run; an empty list says that it holds.

    Parameters
    ----------
    run : mapping
        ``transcript`` as of :meth:`Transcript.to_dict`, and optionally ``decisions``: for
        every agent ``ranks`` (one per row of its test sample, 0 where it was not tested) and
        ``rejected``.

    Returns
    -------
    list of str
        What does not hold, one sentence each.

    Examples
    --------
    >>> verify({"transcript": {"format": 1}})
    ["this is not a transcript: ValueError('its format is 1')"]
    """
    try:
        transcript = Transcript.from_dict(run["transcript"])
        return list(_Audit(transcript, run).findings())
    except (ConovelError, LookupError, TypeError, ValueError) as error:
        return [str(error)]


class _Audit:
    """One run under audit."""

    def __init__(self, transcript: Transcript, run: Mapping[str, Any]) -> None:
        self.run = run
        self.transcript = transcript
        self.regime = as_deployable(transcript.regime)
        self.level = as_level(transcript.level)
        self.estimator = as_estimator(transcript.pi0 or None)
        self.roster = transcript.roster
        # Whoever was still there when everybody was ready.
        self.began = [name for name in self.roster if transcript.left.get(name) != 0]
        self.sizes = {name: transcript.agents[name] for name in self.began}
        self.n_tests = sum(sizes.n_tested for sizes in self.sizes.values())

    def findings(self) -> Iterator[str]:
        outcome, decisions = self.transcript.outcome, self.run.get("decisions")
        if outcome is None or self.transcript.abort is not None:
            yield "the run was broken off: it has no outcome"
            if decisions:
                yield "there are decisions of a run that was broken off"
            return
        yield from self.messages()
        yield from self.agents()
        yield from self.outcome(outcome)
        if decisions is not None:
            yield from self.decisions(outcome, decisions)

    def messages(self) -> Iterator[str]:
        """Check that the list of messages is complete and added up correctly."""
        transcript = self.transcript
        if transcript.totals() != self.run["transcript"].get("totals"):
            yield "the totals are not the sums of the messages"
        if any(transcript.charged(entry) != entry for entry in transcript.entries):
            yield "a message is not charged by the paper's formula"
        models = Counter((e.sender, e.receiver) for e in transcript.entries if e.kind == "MODEL")
        pairs = set(permutations(self.roster, 2)) if self.regime.exchanges_models else set()
        if any(n > 1 for n in models.values()) or not models.keys() <= pairs:
            yield "a model was sent twice, or where none is sent"
        for sender, receiver in sorted(pairs - models.keys()):
            if sender in self.sizes and receiver in self.sizes:
                yield f"the model of {sender} for {receiver} is missing"
        counts = Counter((e.round, e.sender) for e in transcript.entries if e.kind == "COUNT")
        if counts != Counter(
            (r, name) for r, at in transcript.rounds.items() for name in at.counts
        ):
            yield "the counts are not those of the messages"

    def agents(self) -> Iterator[str]:
        """Check that every agent tested the rows it had to."""
        for name, sizes in self.sizes.items():
            n = self.regime.n_tested(sizes.n_test, self.roster.index(name), len(self.roster))
            if sizes.n_tested != n:
                yield f"{name} tested {sizes.n_tested} rows and should have tested {n}"
            if not 1 <= sizes.n_calibration <= sizes.n_null:
                yield f"{name} cannot calibrate on {sizes.n_calibration} of {sizes.n_null} rows"

    def outcome(self, outcome: Outcome) -> Iterator[str]:
        """Check that the outcome follows from the counts."""
        left = self.transcript.left
        if set(outcome.participants) != set(self.sizes) - left.keys():
            yield "the outcome names other participants than took part to the end"
        if set(outcome.dropped) != set(self.sizes) & left.keys():
            yield "the outcome does not say who was lost during the counts"
        known = set(self.transcript.agents)  # whoever said hello; nothing is known of others
        if set(outcome.left_out) & known != known - set(self.sizes):
            yield "the outcome does not say who was left out"
        if outcome.n_tests != self.n_tests:
            yield f"the outcome is about {outcome.n_tests} tests, and there were {self.n_tests}"
        if not self.regime.uses_counts:
            if self.transcript.rounds or outcome.n_rejected or outcome.rounds:
                yield f"{self.regime.name} has no counts, and here are some"
            return
        try:
            yield from self.counts(outcome)
        except ConovelError as error:  # a count out of bounds, or an estimator without answer
            yield str(error)

    def counts(self, outcome: Outcome) -> Iterator[str]:
        """Ask every question again and compare."""
        transcript = self.transcript
        if transcript.n_tests != self.n_tests:
            yield f"the counts began with {transcript.n_tests} tests, not {self.n_tests}"
        tallies = [Tally(name, s.n_tested, s.n_calibration) for name, s in self.sizes.items()]
        counting = Counting(self.level, tallies, self.estimator)
        for number, round_ in sorted(transcript.rounds.items()):
            if counting.question is None or counting.question != round_.question:
                yield f"round {number} asks {round_.question}, instead of {counting.question}"
                return
            there = [t for t in tallies if transcript.left.get(t.agent, number + 1) > number]
            for tally in there:
                if tally.agent not in round_.counts:
                    yield f"the count of {tally.agent} is missing in round {number}"
                    return
                tally.add(counting.question, round_.counts[tally.agent])
            counting.answer([round_.counts[t.agent] if t in there else 0 for t in tallies])
        if counting.question is not None:
            yield f"the fixed point was not reached: {counting.question} was never asked"
        if outcome.n_rejected != counting.k:
            yield f"the outcome has {outcome.n_rejected} rejections, the counts {counting.k}"
        if outcome.slope != counting.slope:
            yield f"the outcome has the slope {outcome.slope}, the counts {counting.slope}"
        if outcome.rounds != counting.steps:
            yield f"the outcome has {outcome.rounds} rounds, the counts {counting.steps}"

    def decisions(self, outcome: Outcome, decisions: Mapping[str, Any]) -> Iterator[str]:
        """Check that the counts follow from the ranks, and the decisions from the outcome."""
        if set(decisions) != set(outcome.participants):
            yield "there are decisions of others than took part to the end"
        total = 0
        for name in sorted(self.sizes.keys() & decisions.keys()):
            sizes, given = self.sizes[name], np.asarray(decisions[name]["ranks"])
            rejected = np.asarray(decisions[name]["rejected"])
            ranks, _ = as_block(given[given != 0], sizes.n_calibration)
            if given.size != sizes.n_test or ranks.size != sizes.n_tested:
                yield f"{name} has {ranks.size} ranks for {given.size} rows"
            histogram = RankHistogram(ranks, sizes.n_calibration)
            for number, round_ in self.transcript.rounds.items():
                count = histogram.at_most(limit_of(round_.question, sizes.n_calibration))
                if round_.counts.get(name) != count:
                    yield f"{name} has {count} ranks within the limit of round {number}"
            limit = rank_limit(outcome.slope, outcome.n_rejected, sizes.n_calibration)
            if self.regime.divides_level:
                level = self.regime.test_level(self.level, len(self.roster))
                limit = decide_alone(histogram, level, self.estimator)
            expected = (given > 0) & (given <= limit)
            if rejected.dtype != np.bool_ or not np.array_equal(rejected, expected):
                yield f"{name} did not reject exactly its ranks up to {limit}"
            total += int(np.count_nonzero(rejected))  # whatever it holds
        if self.regime.uses_counts and total != outcome.n_rejected:
            yield f"{total} rows are rejected, and the outcome says {outcome.n_rejected}"
