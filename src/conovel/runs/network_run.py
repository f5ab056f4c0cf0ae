"""One run of a network in one process: the real protocol, real bytes, no transport.

Every agent is a :class:`~conovel.protocol.agent.Agent` over its own rows. What it carries from one
machine to the next is written down.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from conovel.deciding.ways import guarantee, ways_of
from conovel.errors import ConovelError, InputError, RunAbortedError, SiteFailedError, WireError
from conovel.learning.base import Work
from conovel.learning.together.masks import SECRET_BYTES
from conovel.models.wire import paper_bits
from conovel.models.wire.header import VERSION as WIRE_VERSION
from conovel.protocol import agent as protocol
from conovel.protocol.coordinator import Coordinator
from conovel.protocol.states import Event, Outbox, Send, messages_of
from conovel.protocol.transcript import Transcript
from conovel.rows.pairs import join_known
from conovel.rows.tables import as_ids, pool_pairs
from conovel.runs.agents import Agent, AgentRows, open_sites
from conovel.runs.results import NetworkRun
from conovel.runs.site_results import decide, with_part
from conovel.site.blocks import Ranked
from conovel.site.checks.known import known_findings
from conovel.site.checks.rows import CheckedRows, check_rows, with_findings
from conovel.site.site import Site
from conovel.site.strata import checked_within
from conovel.spec.bodies import COORDINATOR, Body, Kind, Model, Start
from conovel.spec.findings import Finding
from conovel.spec.guarantee import Guarantee, with_needs
from conovel.spec.run_spec import RunSpec, nonce_of, run_id_of
from conovel.spec.training import NOTHING_FLAGGED, THIN, Numbers
from conovel.spec.version import __version__
from conovel.stats.cells import N_CELLS
from conovel.stats.stepup import step_up


def run_network(
    spec: RunSpec,
    members: Mapping[str, AgentRows],
    vanishing: Mapping[str, Phase] = MappingProxyType({}),
    tell: Callable[[str], None] = lambda _: None,
) -> NetworkRun:
    """Run once on rows that are read: agents and coordinator exchange messages to the end.

    Parameters
    ----------
    spec : RunSpec
        What all agents agree on; `repeats` is 1.
    members : mapping of AgentRows
        The agents by name, see :func:`conovel.runs.agents.read_agents`.
    vanishing : mapping of {"hello", "models", "counts"}
        Agents that vanish, and when.
    tell : callable
        Called with what is going on.
    """
    sites = open_sites(spec, members)
    warn_thin(spec, sites)
    ways = ways_of(spec.regime)
    if ways.learning.simulated:
        return _run_pooled(spec, members, sites, tell)
    run_id = run_id_of(spec, sites)
    coordinator = Coordinator(list(sites), spec=spec, run_id=run_id)
    machines = {
        name: protocol.Agent(
            name,
            spec=spec,
            run_id=run_id,
            software=__version__,
            wire_version=WIRE_VERSION,
            nonce=nonce_of(run_id, name),
            secret=secrets.token_bytes(SECRET_BYTES),
        )
        for name in sites
    }
    transcript = carry(coordinator, machines, sites, dict(vanishing), tell)
    raise_first_fault(machines)
    outcome = coordinator.outcome
    lost = tuple(name for name in sites if name not in outcome.participants)
    none = N_CELLS if ways.deciding.by_cells else 0  # rejects no row
    limits = {name: none if name in lost else machines[name].limit for name in sites}
    losses = {"left_out": outcome.left_out, "dropped": outcome.dropped}
    promise = guarantee(spec, **losses, uncovered=transcript.uncovered)
    candidates = (one for site in sites.values() for one in site.work.candidates)
    promise = with_needs(promise, (one.assumption for one in candidates))
    floors = {name: (machine.floor, machine.floors) for name, machine in machines.items()}
    conforming = outcome.conforming if outcome.conforms else {}
    return _result(spec, members, sites, limits, transcript, promise, lost, floors, conforming)


def _run_pooled(
    spec: RunSpec,
    members: Mapping[str, AgentRows],
    sites: Mapping[str, Site],
    tell: Callable[[str], None],
) -> NetworkRun:
    """Pool all rows and run AdaDetect once (Baseline 1); in simulations only."""
    tell("pooling all rows")
    first = next(iter(sites.values()))
    # All rows are compared with all: one representation for everybody's.
    null, test = pool_pairs(
        [(site.null.in_memory(), site.test.in_memory()) for site in sites.values()]
    )
    known_rows = join_known(
        [
            one.known_rows and one.known_rows.like(one.null.in_memory(), null)
            for one in sites.values()
        ]
    )
    pool = Site(null, test, replace(first.work, n_agents=1), known_rows=known_rows)
    pool.ranks({})
    outcome = step_up([(pool.test_ranks, pool.n_calibration)], spec.level, spec.pi0)
    stops = np.cumsum([len(site.test) for site in sites.values()])[:-1]
    shares = zip(np.split(pool.scores, stops), np.split(pool.test_ranks, stops), strict=True)
    for site, (scores, ranks) in zip(sites.values(), shares, strict=True):
        tested = np.ones(ranks.size, dtype=np.bool_)
        site.ranked = Ranked.of(tested, pool.calibration_scores, scores, ranks)
        site.choices, site.explainer = pool.choices, pool.explainer
    limits = dict.fromkeys(sites, outcome.limits[0])
    run = _result(spec, members, sites, limits, Transcript(spec=spec), guarantee(spec))
    why = "rows were pooled, and are not exchangeable with all calibration rows"
    pooled = {name: with_part(site, "uncertified", why) for name, site in run.items()}
    return replace(run, sites=pooled)


def _result(
    spec: RunSpec,
    members: Mapping[str, AgentRows],
    sites: Mapping[str, Site],
    limits: Mapping[str, int],
    transcript: Transcript,
    promise: Guarantee,
    lost: tuple[str, ...] = (),
    floors: Mapping[str, tuple[int, tuple[int, ...]]] = MappingProxyType({}),
    conforming: Mapping[str, int] = MappingProxyType({}),
) -> NetworkRun:
    results = {
        name: decide(
            site,
            limits[name],
            members[name].ids,
            name,
            floors.get(name, (0, ()))[0],
            {} if name in lost else conforming,
            floors.get(name, (0, ()))[1],
        )
        for name, site in sites.items()
    }
    n_null = {name: len(site.null) for name, site in sites.items()}
    return NetworkRun(results, transcript, promise, spec, n_null, lost)


# Takes the time of a phase of work.
Timing: TypeAlias = Callable[[str], AbstractContextManager[object]]


def perform(
    agent: protocol.Agent, site: Any, events: Iterable[Event], timing: Timing = nullcontext
) -> Outbox:
    """Do the work that events ask for, and what follows from it; return the messages to send."""
    outbox: Outbox = []
    waiting = deque(events)
    while waiting:
        event = waiting.popleft()
        if isinstance(event, Send):
            outbox.append(event)
        else:
            waiting.extend(_work(agent, site, event, timing))
    return outbox


def _work(agent: protocol.Agent, site: Any, event: Work, timing: Timing) -> Sequence[Event]:
    try:
        with timing(event.phase):
            result = event.at(site)
        return agent.work_done(result)
    except Exception as error:  # whatever goes wrong at a site ends the run
        return agent.site_failed(error)


def note_sent(transcript: Transcript, sent: Send) -> None:
    """Take a message down, and for a model what the paper charges for it."""
    body, price = sent.message.body, None
    if isinstance(body, Model):
        with suppress(WireError):  # its receiver will refuse it
            price = paper_bits(body.blob)
    transcript.note(sent.message, len(sent.data), price)


Phase: TypeAlias = Literal["hello", "models", "counts"]
_LAST_WORD = {"models": {Kind.ROSTER}, "counts": {Kind.BELOW, Kind.STEP, Kind.COMMITMENTS}}


def as_dropouts(dropouts: Any, agents: Sequence[Agent]) -> dict[str, Phase]:
    """Check which agents should vanish, and when; see :meth:`conovel.Network.run`."""
    if dropouts is None:
        return {}
    phases = ("hello", "models", "counts")
    if not isinstance(dropouts, Mapping) or not all(
        isinstance(phase, str) and phase in phases for phase in dropouts.values()
    ):
        raise InputError(
            f"dropouts must map names of agents to 'hello', 'models' or 'counts', not {dropouts!r}"
        )
    present = {agent.name for agent in agents}
    if unknown := [str(name) for name in dropouts if name not in present]:
        raise InputError(f"there is no agent called {', '.join(unknown)} to drop out")
    return dict(dropouts)


def carry(
    coordinator: Coordinator,
    machines: Mapping[str, protocol.Agent],
    sites: Mapping[str, Site],
    dropouts: dict[str, Phase],
    tell: Callable[[str], None],
) -> Transcript:
    """Carry messages in the order they were sent until no message is left."""
    transcript = Transcript()
    queue: deque[Send] = deque()
    gone: set[str] = set()

    def vanish(name: str) -> None:
        gone.add(name)
        queue.extend(coordinator.drop(name))

    for name, machine in machines.items():
        if dropouts.get(name) == "hello":
            vanish(name)
        else:
            queue.extend(messages_of(machine.join(sites[name].facts)))
    while queue:
        sent = queue.popleft()
        receiver, sender, body = sent.receiver, sent.message.sender, sent.message.body
        note_sent(transcript, sent)
        if receiver in gone or sender in gone:
            continue
        if receiver == COORDINATOR:
            queue.extend(messages_of(coordinator.receive(sent.data, sender)))
        elif _is_last_word(body, dropouts.get(receiver, "")):
            vanish(receiver)
        else:
            tell(f"{receiver}: {body.kind.name.lower()} from {sender}")
            machine = machines[receiver]
            events = machine.receive(sent.data, sender)
            queue.extend(perform(machine, sites[receiver], events))
    return transcript


def _is_last_word(body: Body, phase: str) -> bool:
    """Tell whether this is the message that an agent vanishes after; see `Network.run`."""
    if isinstance(body, Start) and body.rooms:  # joint: the histogram is the answer to it
        return phase == "counts"
    return body.kind in _LAST_WORD.get(phase, ())


def raise_first_fault(machines: Mapping[str, protocol.Agent]) -> None:
    """Raise what an agent itself found wrong, not what the others were told of it."""
    for name, machine in machines.items():
        error = machine.error
        if error is None or isinstance(error, RunAbortedError):
            continue
        cause = error.__cause__
        if not isinstance(error, SiteFailedError) or cause is None:
            raise error
        if isinstance(cause, ConovelError):
            raise type(cause)(f"agent {name}: {cause}") from cause
        raise cause


def check_sites(
    spec: RunSpec,
    agents: Sequence[Agent],
    sites: Mapping[str, Site],
    note: Callable[[Finding], None],
) -> dict[str, list[Finding]]:
    """Let every agent look at its rows before anything is learnt; give findings by agent."""
    thin, findings = _thin(spec, sites), {}
    for agent in agents:
        site = sites[agent.name]
        checked = CheckedRows.of(site.null, site.test)
        compared, of_strata = checked, list[Finding]()
        if site.strata is not None:
            compared, of_strata = checked_within(checked, site.strata)
        findings[agent.name] = check_rows(
            compared,
            checked.entries_of(as_ids(agent.ids, len(site.test))),
            partial(_note_of, note, agent.name),
            thin.get(agent.name),
            *(known_findings(site.known_rows, site.null, site.test) if site.known_rows else ()),
            *of_strata,
            n_agents=len(sites),
        )
    return findings


def with_checks(
    run: NetworkRun, sites: Mapping[str, Site], findings: Mapping[str, Sequence[Finding]]
) -> NetworkRun:
    """Give the results of a run the findings of before, and those about their decisions."""
    after = _nothing_flagged(run, sites, findings)
    results = {
        name: with_findings(
            result,
            [*findings[name], *after.get(name, ())],
            CheckedRows.of(sites[name].null, sites[name].test),
        )
        for name, result in run.sites.items()
    }
    return replace(run, sites=results)


def _nothing_flagged(
    run: NetworkRun, sites: Mapping[str, Site], findings: Mapping[str, Sequence[Finding]]
) -> dict[str, list[Finding]]:
    """Say, where nothing is flagged, how few rows could have been: of the agent with the fewest.

    Lists over time and lists by confidence are made in other ways.
    """
    decided_otherwise = run.confidence is not None or any(s.ledger for s in run.sites.values())
    if run.n_rejected or run.spec.repeats > 1 or decided_otherwise:
        return {}
    if any(one.kind == "thin_calibration" for some in findings.values() for one in some):
        return {}
    few = _thin(run.spec, sites, NOTHING_FLAGGED)
    if len(few) < sum(site.tested.any() for site in run.sites.values()):
        return {}  # a single row of some agent could have been flagged
    best = min(few, key=lambda name: few[name].numbers["fewest"])
    return {best: [few[best]]}


def warn_thin(spec: RunSpec, sites: Mapping[str, Site]) -> None:
    """Warn, before any work, when no row of any agent can be rejected."""
    deciding = ways_of(spec.regime).deciding
    deciding.warn_thin(spec, _numbers(sites), _planned(spec, sites))


def _thin(spec: RunSpec, sites: Mapping[str, Site], share: Fraction = THIN) -> dict[str, Finding]:
    deciding = ways_of(spec.regime).deciding
    return deciding.thin(spec, _numbers(sites), _planned(spec, sites), share)


def _numbers(sites: Mapping[str, Site]) -> dict[str, Numbers]:
    return {name: Numbers(*site.facts[:2]) for name, site in sites.items()}


def _planned(spec: RunSpec, sites: Mapping[str, Site]) -> dict[str, tuple[int, int]]:
    """Return the tests and the calibration rows that each agent will have."""
    n = len(sites)
    return {
        name: (spec.regime.n_tested(len(site.test), i, n), site.n_calibration_planned(n))
        for i, (name, site) in enumerate(sites.items())
    }


def _note_of(note: Callable[[Finding], None], name: str, finding: Finding) -> None:
    note(finding.of_agent(name))
