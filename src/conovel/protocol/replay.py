"""Checking a finished run: its messages are replayed, and what it published is compared.

The coordinator, fed with the messages that the agents sent, must say again what is published:
questions, outcome, every message. Agents, fed with their ranks, must give the same counts and
reject the same rows. Whatever stands beside the messages (settings, guarantee, numbers) must
follow from them. What cannot be replayed is named by
:func:`conovel.protocol.not_checked.not_checked`. That the counts are true cannot be seen from
the outside (docs/revealed.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.deciding.asking import limit_of
from conovel.deciding.committed import commitment
from conovel.deciding.counts import step_of
from conovel.deciding.ways import guarantee
from conovel.errors import ConovelError
from conovel.protocol.certificates import certified_findings
from conovel.protocol.group_records import group_findings, groups_of, total_findings
from conovel.protocol.not_checked import FORMATS, kind_of
from conovel.protocol.recompute import (
    differences,
    list_findings,
    one_site_findings,
    repeated_findings,
    repeated_site_findings,
)
from conovel.protocol.recompute_strata import strata_findings
from conovel.protocol.replay_messages import (
    AgentReplay,
    invited_to,
    kinds_in,
    message_findings,
    replay_coordinator,
    replay_site,
)
from conovel.protocol.transcript import Transcript
from conovel.protocol.weighted import weighted_site_findings
from conovel.spec.bodies import Outcome
from conovel.spec.regimes import as_deployable
from conovel.spec.run_spec import RunSpec, run_id_of, run_id_of_terms
from conovel.stats.cells import N_CELLS, reaches
from conovel.stats.ranks import as_block
from conovel.stats.stepup import RankHistogram, step_up, within_limit
from conovel.stats.strata import NO_CELL
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
    findings: list[str] = []
    try:
        findings.extend(_findings(json.loads(json.dumps(run))))
    except KeyError as error:
        findings.append(f"it has no {error}")
    except (ConovelError, LookupError, TypeError, ValueError, AttributeError) as error:
        findings.append(str(error) or type(error).__name__)
    return findings


def _findings(run: Mapping[str, Any]) -> Iterator[str]:
    if kind_of(run) == "detect":
        yield from _one_site_findings(run)
    elif "runs" in run:
        yield from repeated_findings(run, verify)
    elif "transcript" not in run:
        yield "this is no result of a run: it has no transcript"
    else:
        transcript = Transcript.from_dict(run["transcript"])
        yield from _Finished(transcript, run).findings()
        yield from list_findings(run, transcript.settings)


def _one_site_findings(run: Mapping[str, Any]) -> Iterator[str]:
    if "weights" in run:
        return weighted_site_findings(run)
    if "strata" in run:
        return strata_findings(run)
    return repeated_site_findings(run) if "repeats" in run else one_site_findings(run)


class _Finished:
    """One finished run, of a network, of a coordinator, or of one site."""

    def __init__(self, transcript: Transcript, run: Mapping[str, Any]) -> None:
        self.run = run
        self.transcript = transcript
        self.spec = transcript.settings
        self.decisions: Mapping[str, Any] | None = run.get("decisions")
        self.has_counts = "START" in kinds_in(transcript)
        # A site's own record holds its own hello and counts, not those of the others.
        self.site = next(iter(transcript.agents), "") if run.get("command") == "agent" else None
        began = [name for name in transcript.roster if transcript.left.get(name) != 0]
        here = began if self.site is None else [self.site]
        self.sizes = {name: transcript.agents[name] for name in here}
        self.limits: dict[str, int] = {}  # the largest rejected ranks, where ranks decide

    def findings(self) -> Iterator[str]:
        transcript, outcome = self.transcript, self.transcript.outcome
        yield from differences(self.run["transcript"], transcript.to_dict(), "transcript")
        if self.spec.repeats != 1:
            yield f"this is one run, and its settings have repeats={self.spec.repeats}"
        if not transcript.entries:
            yield from self.pooled(self.decisions or {})
            return
        if outcome is None or transcript.abort is not None:
            yield "the run was broken off: it has no outcome"
            if self.decisions:
                yield "there are decisions of a run that was broken off"
            return
        try:
            yield from self.of_site(outcome) if self.site is not None else self.of_coordinator()
        except ConovelError as error:
            yield f"the coordinator would have broken off: {error}"
        if self.decisions is not None:
            yield from self.decided(outcome, self.decisions)
        yield from certified_findings(self.run, transcript)
        yield from self.settings()
        yield from self.published(outcome)

    def of_coordinator(self) -> Iterator[str]:
        """Compare the record with what the coordinator says to its messages."""
        replayed = replay_coordinator(self.transcript)
        published, follows = (
            {key: value for key, value in plain.items() if key not in ("messages", "totals")}
            for plain in (self.run["transcript"], replayed.to_dict())
        )
        if replayed.outcome is None:
            yield "no outcome follows from the messages: the coordinator waits for more"
        yield from differences(published, follows)
        unsettled = self.run.get("unpublished", ())
        yield from message_findings(self.transcript, replayed, None, unsettled)

    def of_site(self, outcome: Outcome) -> Iterator[str]:
        """Compare the messages of one site with the values that its record has of them."""
        transcript, name = self.transcript, self.site or ""
        roster, sizes = transcript.roster, transcript.agents[name]
        if set(roster) != {*outcome.participants, *transcript.left}:
            yield "the roster names others than took part"
        replayed = replay_site(transcript, name)
        yield from message_findings(transcript, replayed, name, ())
        n_tested = self.spec.regime.n_tested(sizes.n_test, roster.index(name), len(roster))
        if sizes.n_tested != n_tested:
            yield f"{name} tested {sizes.n_tested} rows and should have tested {n_tested}"
        if sizes.n_calibration > sizes.n_null:
            yield f"{name} cannot calibrate on {sizes.n_calibration} of {sizes.n_null} rows"
        if outcome.k and (transcript.rooms or not transcript.reveals):
            yield "the outcome has a k of its own, which only committed counts of ranks have"
        if self.has_counts and outcome.n_tests != transcript.n_tests:
            yield f"the counts began with {transcript.n_tests} tests, not {outcome.n_tests}"
        for agent, reveal in transcript.reveals.items():
            digest = commitment(bytes.fromhex(transcript.run_id), agent, reveal)
            if digest != transcript.commitments.get(agent):
                yield f"{agent} reveals other counts than it committed to"
        if transcript.all_ready:
            yield from total_findings(transcript, name, outcome)

    def decided(self, outcome: Outcome, decisions: Mapping[str, Any]) -> Iterator[str]:
        """Check that the counts follow from ranks or cells, and the decisions from the outcome."""
        members = {self.site} if self.site is not None else set(outcome.participants)
        if set(decisions) != members:
            yield "there are decisions of others than took part to the end"
        total = 0
        for name in sorted(self.sizes.keys() & decisions.keys()):
            sizes, own = self.sizes[name], decisions[name]
            given, rejected = np.asarray(own["ranks"]), np.asarray(own["rejected"])
            ranks, _ = as_block(given[given != 0], sizes.n_calibration)
            n_rows = given.size if self.spec.strata else sizes.n_test  # some are in no stratum
            if given.size != n_rows or ranks.size != sizes.n_tested:
                yield f"{name} has {ranks.size} ranks for {given.size} rows"
            expected = {"n_calibration": sizes.n_calibration, "tested": (given != 0).tolist()}
            yield from _differences_in(own, expected)
            total += int(np.count_nonzero(rejected))  # whatever it holds
            if rejected.dtype != np.bool_:
                yield f"the decisions of {name} are not true or false"
            elif "normal_at" in own:
                yield from _type_findings(self.transcript, outcome, name, own)
            elif "cells" in own:
                yield from _cell_findings(self.transcript, outcome, name, own)
            else:
                yield from self.by_ranks(name, given, rejected)
        if self.transcript.all_ready:
            yield from group_findings(self.transcript, decisions)
        if self.has_counts and self.site is None and total != outcome.n_rejected:
            yield f"{counted(total, 'row')} rejected, and the outcome says {outcome.n_rejected}"

    def by_ranks(
        self, name: str, given: NDArray[np.int64], rejected: NDArray[np.bool_]
    ) -> Iterator[str]:
        """Check that an agent with these ranks sends the same counts and rejects the same rows."""
        histogram = RankHistogram(given[given != 0], self.sizes[name].n_calibration)
        try:
            agent = AgentReplay(self.transcript, name, histogram)
            yield from agent.findings()
            self.limits[name] = limit = agent.machine.limit
        except ConovelError as error:
            yield f"the ranks of {name} do not fit: {error}"
            return
        if not np.array_equal(rejected, within_limit(given, limit)):
            yield f"{name} did not reject exactly its ranks up to {limit}"

    def published(self, outcome: Outcome) -> Iterator[str]:
        """Check what stands beside the transcript: guarantee, outcome, groups, numbers."""
        run, transcript = self.run, self.transcript
        lost = {"left_out": outcome.left_out, "dropped": outcome.dropped}
        floors = {name: own.get("floor", 0) for name, own in (self.decisions or {}).items()}
        expected: dict[str, Any] = {"state": "done", "fault": "", "code": "", "culprit": ""}
        expected["guarantee"] = str(guarantee(self.spec, **lost, uncovered=transcript.uncovered))
        expected["outcome"] = run["transcript"]["outcome"]
        if "groups" in run:
            expected["groups"] = [one.to_dict() for one in groups_of(transcript, floors)]
        if (total := self.n_rejected(outcome)) is not None:
            expected["n_rejected"] = total
        if self.site is not None:
            expected["n_calibration"] = size = self.sizes[self.site].n_calibration
            if self.has_counts and not outcome.cells:
                self.limits.setdefault(self.site, limit_of(step_of(outcome), size))
            if self.site in self.limits:
                expected["limit"] = self.limits[self.site]
        if run.get("format") != FORMATS.get(kind_of(run)):
            yield f"its format is {run.get('format')!r}"
        yield from _differences_in(run, expected)

    def settings(self) -> Iterator[str]:
        """Check that the terms are those of the messages, and that the run has its id."""
        run, transcript = self.run, self.transcript
        if "terms" in run:
            terms = run["terms"]
            for difference in self.spec.differences(RunSpec.from_dict(terms["spec"])):
                yield f"the terms are not those of the hellos: {difference}"
            yield from differences(terms.get("run_id"), transcript.run_id, "terms.run_id")
            yield from differences(terms.get("agents"), invited_to(transcript), "terms.agents")
            if terms.get("nonce") and terms.get("run_id") != run_id_of_terms(terms):
                yield "the run id does not follow from the terms"
        if any(sizes.n_wanted for sizes in self.sizes.values()) and not transcript.rooms:
            yield "an agent asks for room above a floor, and there are no floors"
        is_network = "command" in run and kind_of(run) == "network"
        if is_network and run_id_of(self.spec, invited_to(transcript)).hex() != transcript.run_id:
            yield "the run id is not that of these settings and agents"

    def n_rejected(self, outcome: Outcome) -> int | None:
        """Add up the rejections in a record, as far as it has them."""
        if self.decisions is not None:
            return sum(sum(map(bool, own["rejected"])) for own in self.decisions.values())
        if self.site is None:
            return outcome.n_rejected if self.has_counts else None
        rounds = self.transcript.rounds
        return sum(rounds[max(rounds)].counts.values()) if rounds else None

    def pooled(self, decisions: Mapping[str, Any]) -> Iterator[str]:
        """Check a simulation in which all rows were pooled: one step-up over all ranks."""
        names = sorted(decisions)
        if _is_deployable(self.spec) or self.transcript != Transcript(spec=self.spec):
            yield "a run has messages, and a simulation with pooled rows has none"
            return
        sizes = {decisions[name]["n_calibration"] for name in names}
        if len(sizes) != 1 or len(names) < 2:
            yield "pooled agents share one calibration sample, and these do not"
            return
        ranks = np.concatenate([np.asarray(decisions[name]["ranks"]) for name in names])
        outcome = step_up([(ranks, sizes.pop())], self.spec.level, self.spec.pi0)
        rejected, tested = (
            [flag for name in names for flag in decisions[name][key]]
            for key in ("rejected", "tested")
        )
        yield from differences(rejected, outcome.rejected[0].tolist(), "decisions.rejected")
        yield from differences(tested, [True] * ranks.size, "decisions.tested")
        promise, total = str(guarantee(self.spec)), outcome.n_rejected
        yield from _differences_in(self.run, {"n_rejected": total, "guarantee": promise})


def _differences_in(run: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    """Compare those values that a record has."""
    for key in sorted(expected.keys() & run.keys()):
        yield from differences(run[key], expected[key], key)


def _is_deployable(spec: RunSpec) -> bool:
    try:
        as_deployable(spec.regime)
    except ConovelError:
        return False
    return True


def _are_cells(cells: NDArray[Any]) -> bool:
    if cells.dtype.kind not in "iu" or cells.ndim != 1:
        return not cells.size
    return not cells.size or 0 <= cells.min() <= cells.max() < N_CELLS


def _cell_findings(
    transcript: Transcript, outcome: Outcome, name: str, own: Mapping[str, Any]
) -> Iterator[str]:
    """Check that an agent's histogram and decisions follow from the cells of its rows."""
    cells, floor = np.asarray(own["cells"]), own["floor"]
    # With strata, rows that are not tested or below the floor of their stratum are in no cell.
    inside = cells[cells != NO_CELL] if transcript.settings.strata else cells
    if not _are_cells(inside) or type(floor) is not int or floor < 0:
        yield f"a row of {name} is in a cell that does not exist"
        return
    counts = np.bincount(cells[cells >= floor].astype(np.int64), minlength=N_CELLS)
    histogram = transcript.cell_counts.get(name)
    if transcript.all_ready:
        pass  # only totals are in the record: see group_findings
    elif histogram is None or counts.tolist() != list(histogram.tests):
        yield f"the histogram of {name} is not that of its rows above cell {floor}"
    elif any(histogram.calibration[:floor]):
        yield f"the histogram of {name} counts calibration rows below its floor"
    lowest = max(outcome.cell_of(name), floor)
    if not np.array_equal(np.asarray(own["rejected"]), reaches(cells, lowest)):
        yield f"{name} did not reject exactly its rows from cell {lowest} on"


def _type_findings(
    transcript: Transcript, outcome: Outcome, name: str, own: Mapping[str, Any]
) -> Iterator[str]:
    """Check that an agent's counts and decisions follow from the cells of its rows."""
    cells = np.asarray(own["cells"])
    if not _are_cells(cells):
        yield f"a row of {name} is in a cell that does not exist"
        return
    tests = np.bincount(cells.astype(np.int64), minlength=N_CELLS)
    counts = transcript.shared.get(name)
    if counts is None or tests.tolist() != list(counts.tests):
        yield f"the counts of {name} are not those of its rows"
    lowest = outcome.cells[0]
    if not np.array_equal(np.asarray(own["rejected"]), reaches(cells, lowest)):
        yield f"{name} did not reject exactly its rows from cell {lowest} on"
    if not all(set(names) <= {*outcome.participants} for names in own["normal_at"]):
        yield f"a row of {name} conforms to an agent that did not take part"
