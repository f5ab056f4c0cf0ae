"""Deriving what a run published again, from its transcript and from the ranks if given.

What is checked is that the record is consistent: the outcome follows from the counts, the
counts from the ranks, the decisions from the outcome, and everything else that is published
(settings, guarantee, numbers) from these. What cannot be derived is named by
:func:`not_checked`. That the counts are true cannot be seen from the outside (docs/revealed.md).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import permutations
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.deciding.counts import CountCheck, Counting, decide_alone, limit_of
from conovel.errors import ConovelError
from conovel.learning.consensus import model_rounds
from conovel.protocol import audit_consensus, audit_joint
from conovel.protocol.audit_committed import message_findings, rank_findings, reveal_findings
from conovel.protocol.audit_list import list_findings
from conovel.protocol.audit_one_site import one_site_findings
from conovel.protocol.audit_repeats import network_findings
from conovel.protocol.audit_repeats import one_site_findings as repeated_one_site
from conovel.protocol.group_records import are_groups_of
from conovel.protocol.not_checked import FORMATS, kind_of
from conovel.protocol.transcript import Transcript
from conovel.spec.bodies import COORDINATOR, IN_ROUNDS, Kind, Outcome
from conovel.spec.guarantee import guarantee
from conovel.spec.run_spec import RunSpec
from conovel.spec.seeds import run_id_of, run_id_of_terms
from conovel.stats.ranks import as_block
from conovel.stats.stepup import RankHistogram, step_up, within_limit
from conovel.stats.words import counted


def verify(run: Mapping[str, Any]) -> list[str]:
    """Check a finished run; an empty list says that it holds.

    Parameters
    ----------
    run : mapping
        A result as its command wrote it: ``transcript`` as of :meth:`Transcript.to_dict`, and
        optionally ``decisions``: for every agent ``ranks`` (one per row of its test sample, 0
        where it was not tested) and ``rejected``. Or the result of ``conovel detect``, with
        the columns ``ranks``, ``p_values`` and ``rejected`` of its decisions if they are at hand.
        With `repeats`: ``runs``, each a result by itself, and what they decided together. With a
        ledger: the run of the batch, and under ``ledger`` the list over all batches.

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
        plain = json.loads(json.dumps(run))
        if kind_of(plain) == "detect":
            findings = repeated_one_site if "repeats" in plain else one_site_findings
            return list(findings(plain))
        if "runs" in plain:
            return list(network_findings(plain, verify))
        if "transcript" not in plain:
            return ["this is no result of a run: it has no transcript"]
        transcript = Transcript.from_dict(plain["transcript"])
        found = list(_Audit(transcript, plain).findings())
        return found + list(list_findings(plain, transcript.settings))
    except (ConovelError, LookupError, TypeError, ValueError, AttributeError) as error:
        return [str(error) or type(error).__name__]


class _Audit:
    """One run under audit."""

    def __init__(self, transcript: Transcript, run: Mapping[str, Any]) -> None:
        self.run = run
        self.transcript = transcript
        self.spec = transcript.settings
        self.regime = self.spec.regime
        self.roster = transcript.roster
        # A site's own record holds its own hello and counts, not those of the others.
        self.is_of_one_site = run.get("command") == "agent"
        # Whoever was still there when everybody was ready.
        self.began = [name for name in self.roster if transcript.left.get(name) != 0]
        known = self.transcript.agents if self.is_of_one_site else self.began
        self.sizes = {name: transcript.agents[name] for name in self.began if name in known}
        self.n_tests = sum(sizes.n_tested for sizes in self.sizes.values())

    def findings(self) -> Iterator[str]:
        outcome, decisions = self.transcript.outcome, self.run.get("decisions")
        if self.transcript.to_dict() != self.run["transcript"]:
            yield "the transcript is not written as this software writes it"
        if self.spec.repeats != 1:
            yield f"this is one run, and its settings have repeats={self.spec.repeats}"
        if not self.regime.deployable:
            yield from self.pooled(decisions or {})
            return
        if outcome is None or self.transcript.abort is not None:
            yield "the run was broken off: it has no outcome"
            if decisions:
                yield "there are decisions of a run that was broken off"
            return
        if not self.is_of_one_site:
            yield from self.messages()
            yield from self.outcome(outcome)
        elif set(self.roster) != {*outcome.participants, *self.transcript.left}:
            yield "the roster names others than took part"
        yield from message_findings(self.transcript, outcome)
        yield from reveal_findings(self.transcript, self.sizes, outcome)
        yield from self.places()
        yield from self.agents()
        yield from self.foreign()
        yield from self.published(outcome)
        if decisions is not None:
            yield from self.decisions(outcome, decisions)

    def foreign(self) -> Iterator[str]:
        """Check that the run has nothing that only other regimes have."""
        if self.has_rank_limit:
            yield from audit_joint.foreign_findings(self.transcript)
        if not self.regime.composite_null:
            yield from audit_consensus.foreign_findings(self.transcript)

    def published(self, outcome: Outcome) -> Iterator[str]:
        """Check what is told beside the transcript: settings or terms, guarantee, totals."""
        run = self.run
        yield from self.settings(outcome)
        losses = {"left_out": outcome.left_out, "dropped": outcome.dropped}
        promise = str(guarantee(self.spec, **losses, uncovered=self.transcript.uncovered))
        if run.get("guarantee", promise) != promise:
            yield "the guarantee is not that of this run"
        if run.get("format") != FORMATS.get(kind_of(run)):
            yield f"its format is {run.get('format')!r}"
        if run.get("outcome", run["transcript"]["outcome"]) != run["transcript"]["outcome"]:
            yield "the outcome is not that of the transcript"
        if run.get("state", "done") != "done" or run.get("fault") or run.get("culprit"):
            yield "the run has an outcome, and is told to have failed"
        yield from self.numbers(outcome)

    def settings(self, outcome: Outcome) -> Iterator[str]:
        """Check that the terms are those of the messages, and that the run has its id."""
        run, transcript = self.run, self.transcript
        everybody = [*outcome.participants, *outcome.left_out, *outcome.dropped]
        if "terms" in run:
            terms = run["terms"]
            for difference in self.spec.differences(RunSpec.from_dict(terms["spec"])):
                yield f"the terms are not those of the hellos: {difference}"
            if terms.get("run_id") != transcript.run_id:
                yield "the terms are those of another run"
            if terms.get("nonce") and terms.get("run_id") != run_id_of_terms(terms):
                yield "the run id does not follow from the terms"
            if terms.get("agents") != sorted(everybody):
                yield "the terms name other agents"
        is_network = "command" in run and kind_of(run) == "network"
        if is_network and run_id_of(self.spec, everybody).hex() != transcript.run_id:
            yield "the run id is not that of these settings and agents"

    def numbers(self, outcome: Outcome) -> Iterator[str]:
        """Check the totals that are told beside the transcript."""
        run = self.run
        decisions = run.get("decisions")
        total = self.total(outcome)
        if "n_rejected" in run and total is not None and run["n_rejected"] != total:
            yield f"{run['n_rejected']} rejections are told, and there are {total}"
        if "groups" in run and not are_groups_of(self.transcript, run["groups"], decisions or {}):
            yield "the groups are not those of this run"
        for name, sizes in self.sizes.items():
            if self.is_of_one_site and run.get("n_calibration", sizes.n_calibration) != (
                sizes.n_calibration
            ):
                yield f"{name} had {sizes.n_calibration} calibration rows"
            if "limit" in run and self.has_rank_limit and (self.regime.uses_counts or decisions):
                ranks = np.asarray(decisions[name]["ranks"] if decisions else [])
                limit = self.limit(outcome, name, ranks[ranks != 0])
                if run["limit"] != limit:
                    yield f"the largest rejected rank of {name} is {limit}, not {run['limit']}"

    @property
    def has_rank_limit(self) -> bool:
        """Whether ranks decide, and not the cells of a common scale."""
        return not self.regime.decides_by_cells

    @property
    def _by_cells(self) -> ModuleType:
        """Return what derives the decisions of a regime with cells."""
        return audit_consensus if self.regime.composite_null else audit_joint

    def total(self, outcome: Outcome) -> int | None:
        """Add up the rejections that a record tells of, as far as they are known."""
        decisions = self.run.get("decisions")
        if decisions is not None:
            return sum(sum(map(bool, d["rejected"])) for d in decisions.values())
        if not self.is_of_one_site:
            return outcome.n_rejected if self.regime.uses_counts else None
        counts = [r.counts for _, r in sorted(self.transcript.rounds.items())]
        return sum(counts[-1].values()) if counts else None

    def limit(self, outcome: Outcome, name: str, ranks: NDArray[np.int64]) -> int:
        """Derive the largest rank that an agent rejects."""
        size = self.sizes[name].n_calibration
        if not self.regime.divides_level:
            return limit_of(outcome.step, size)
        level = self.spec.test_level(len(self.roster))
        return decide_alone(RankHistogram(*as_block(ranks, size)), level, self.spec.pi0)

    def pooled(self, decisions: Mapping[str, Any]) -> Iterator[str]:
        """Check a simulation in which all rows were pooled: one step-up over all ranks."""
        run = self.run
        if self.transcript != Transcript(spec=self.spec):
            yield "'pooled' is for simulation only and has no messages, and here are some"
            return
        names = sorted(decisions)
        sizes = {decisions[name]["n_calibration"] for name in names}
        if len(sizes) != 1 or len(names) < 2:
            yield "pooled agents share one calibration sample, and these do not"
            return
        ranks = [np.asarray(decisions[name]["ranks"]) for name in names]
        together = [(np.concatenate(ranks), sizes.pop())]
        outcome = step_up(together, self.spec.level, self.spec.pi0)
        told = [flag for name in names for flag in decisions[name]["rejected"]]
        if told != outcome.rejected[0].tolist():
            yield "the decisions do not follow from the ranks"
        if not all(flag is True for name in names for flag in decisions[name]["tested"]):
            yield "every pooled row is tested"
        if run["n_rejected"] != outcome.n_rejected:
            yield f"{run['n_rejected']} rejections are told, and there are {outcome.n_rejected}"
        if run["guarantee"] != str(guarantee(self.spec)):
            yield "the guarantee is not that of this run"

    def messages(self) -> Iterator[str]:
        """Check that the list of messages is complete and added up correctly."""
        transcript = self.transcript
        if transcript.totals() != self.run["transcript"].get("totals"):
            yield "the totals are not the sums of the messages"
        if any(transcript.charged(entry) != entry for entry in transcript.entries):
            yield "a message is not charged by the paper's formula"
        models = Counter(
            (e.round, e.sender, e.receiver) for e in transcript.entries if e.kind == "MODEL"
        )
        rounds = model_rounds(self.regime)
        peers = permutations(self.roster, 2) if self.regime.exchanges_models else ()
        due = {(round_, *pair) for pair in peers for round_ in rounds}
        if any(n > 1 for n in models.values()) or not models.keys() <= due:
            yield "a model was sent twice, or where none is sent"
        for _, sender, receiver in sorted(due - models.keys()):
            if sender in self.sizes and receiver in self.sizes:
                yield f"the model of {sender} for {receiver} is missing"

    def places(self) -> Iterator[str]:
        """Check that every message stands in the round in which it was sent."""
        transcript = self.transcript
        counts = Counter((e.round, e.sender) for e in transcript.entries if e.kind == "COUNT")
        if counts != Counter(
            (r, name) for r, at in transcript.rounds.items() for name in at.counts
        ):
            yield "the counts are not those of the messages"
        sent = [(e.round, e.sender) for e in transcript.entries if e.kind == Kind.HISTOGRAM.name]
        if sorted(sent) != [(1, name) for name in sorted(transcript.histograms)]:
            yield "the histograms are not those of the messages"
        sent = [(e.round, e.sender) for e in transcript.entries if e.kind == Kind.FOLD.name]
        due = [(r + 1, n) for n, both in transcript.folds.items() for r in range(len(both))]
        if sorted(sent) != sorted(due):
            yield "the counts of folds are not those of the messages"
        asked = Counter((e.round, e.kind) for e in transcript.entries if e.sender == COORDINATOR)
        for number, round_ in transcript.rounds.items():
            there = [n for n in self.sizes if transcript.left.get(n, number + 1) >= number]
            if not len(round_.counts) <= asked[number, round_.question.kind.name] <= len(there):
                yield f"the questions of round {number} are not those of the messages"
        last = max(transcript.rounds, default=transcript.n_rounds)
        for entry in transcript.entries:
            kind = Kind[entry.kind]
            if (
                (entry.round and kind not in IN_ROUNDS)
                or (kind is Kind.OUTCOME and entry.round != last)
                or (kind is Kind.MODEL and entry.round not in model_rounds(self.regime))
            ):
                yield f"a {entry.kind} has no place in round {entry.round}"

    def agents(self) -> Iterator[str]:
        """Check that every agent tested the rows it had to."""
        for name, sizes in self.sizes.items():
            n = self.regime.n_tested(sizes.n_test, self.roster.index(name), len(self.roster))
            if sizes.n_tested != n:
                yield f"{name} tested {sizes.n_tested} rows and should have tested {n}"
            least = 0 if self.regime.composite_null else 1
            if not least <= sizes.n_calibration <= sizes.n_null:
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
            found = outcome.n_rejected, outcome.rounds, outcome.slope, self.transcript.n_tests
            if self.transcript.rounds or any(found):
                yield f"{self.regime.name} has no counts, and here are some"
            return
        try:
            if self.regime.decides_by_cells:
                yield from self._by_cells.outcome_findings(self.transcript, self.sizes, outcome)
            elif not self.spec.is_committed:
                yield from self.counts(outcome)
        except ConovelError as error:  # a count out of bounds, or an estimator without answer
            yield str(error)

    def counts(self, outcome: Outcome) -> Iterator[str]:
        """Ask every question again and compare."""
        transcript = self.transcript
        if transcript.n_tests != self.n_tests:
            yield f"the counts began with {transcript.n_tests} tests, not {self.n_tests}"
        tallies = [CountCheck(name, s.n_tested, s.n_calibration) for name, s in self.sizes.items()]
        counting = Counting(self.spec.level, tallies, self.spec.pi0)
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
        members = set(self.sizes) if self.is_of_one_site else set(outcome.participants)
        if set(decisions) != members:
            yield "there are decisions of others than took part to the end"
        total = 0
        for name in sorted(self.sizes.keys() & decisions.keys()):
            sizes, given = self.sizes[name], np.asarray(decisions[name]["ranks"])
            rejected = np.asarray(decisions[name]["rejected"])
            ranks, _ = as_block(given[given != 0], sizes.n_calibration)
            if given.size != sizes.n_test or ranks.size != sizes.n_tested:
                yield f"{name} has {ranks.size} ranks for {given.size} rows"
            if decisions[name].get("n_calibration", sizes.n_calibration) != sizes.n_calibration:
                yield f"{name} had {sizes.n_calibration} calibration rows"
            if decisions[name].get("tested", (given != 0).tolist()) != (given != 0).tolist():
                yield f"{name} has ranks for other rows than it tested"
            total += int(np.count_nonzero(rejected))  # whatever it holds
            if rejected.dtype != np.bool_:
                yield f"the decisions of {name} are not true or false"
            elif self.has_rank_limit:
                yield from self.rank_decisions(outcome, name, given, rejected)
            else:
                told = self.transcript, outcome, name, decisions[name]
                yield from self._by_cells.decision_findings(*told)
        if self.regime.uses_counts and not self.is_of_one_site and total != outcome.n_rejected:
            yield f"{counted(total, 'row')} rejected, and the outcome says {outcome.n_rejected}"

    def rank_decisions(
        self, outcome: Outcome, name: str, given: NDArray[np.int64], rejected: NDArray[np.bool_]
    ) -> Iterator[str]:
        """Check that an agent's counts and decisions follow from its ranks."""
        size, ranks = self.sizes[name].n_calibration, given[given != 0]
        histogram = RankHistogram(ranks, size)
        for number, round_ in self.transcript.rounds.items():
            count = histogram.at_most(limit_of(round_.question, size))
            if round_.counts.get(name) != count:
                yield f"{name} has {count} ranks within the limit of round {number}"
        if self.spec.is_committed:
            yield from rank_findings(self.transcript, name, histogram)
        limit = self.limit(outcome, name, ranks)
        if not np.array_equal(rejected, within_limit(given, limit)):
            yield f"{name} did not reject exactly its ranks up to {limit}"
