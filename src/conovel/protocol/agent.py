"""An agent's machine: says hello, learns, tells that it is ready, and decides with the others.

It moves bytes and small integers. What it learns and how it decides is said by the two ways of its
regime (:mod:`conovel.learning`, :mod:`conovel.deciding`). Work on rows is asked of the driver by
events, and results are handed back. It believes its coordinator no further than it must: every
question and the outcome have to follow from what it was told before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from conovel.deciding.ways import ways_of
from conovel.errors import (
    ConovelError,
    InputError,
    LocalProtocolError,
    ModelRefusedError,
    OutcomeMismatchError,
    SampleError,
    SiteFailedError,
    UnexpectedMessageError,
)
from conovel.learning.base import Cue, Next, Party, RankRows, State, insist
from conovel.protocol.messages import as_name
from conovel.protocol.states import SHARED, Event, Machine, Outbox, joined
from conovel.spec.bodies import (
    AMONG_AGENTS,
    COORDINATOR,
    Hello,
    Left,
    Message,
    Outcome,
    Ready,
    Roster,
    Start,
)
from conovel.spec.facts import Facts
from conovel.spec.regimes import as_deployable
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers


class Agent(Machine):
    """One agent of a run.

    Parameters
    ----------
    name : str
        Its name, unique in the run.
    spec : RunSpec
        What all agents of the run agree on.
    run_id : bytes
        16 bytes that all parties agreed on and no other run has.
    software : str
        Version of this software, for the record.
    wire_version : int
        Version of the model format; all agents must have the same.
    nonce : bytes
        32 bytes that nobody else knows, for committed counting and for seals. A driver draws them.
    secret : bytes
        32 bytes that nobody else ever knows, for masks. A driver draws them for this run alone.

    Attributes
    ----------
    limit : int
        The largest rejected rank, once the run is done; in `joint` the lowest rejected cell.
    n_rejected : int
        How many of its rows that rejects.
    """

    def __init__(
        self,
        name: str,
        *,
        spec: RunSpec,
        run_id: bytes,
        software: str = "",
        wire_version: int = 0,
        nonce: bytes = b"",
        secret: bytes = b"",
    ) -> None:
        super().__init__(as_name(name), run_id, State.NEW)
        self.spec, self.regime = spec, as_deployable(spec.regime)
        self._versions = (software, wire_version)
        self.party = Party(name, spec, self.run_id, nonce, gone=self._gone, secret=secret)
        self._ways = ways_of(self.regime)
        self.learning = self._ways.learning.at_agent(self.party)
        self.deciding = self._ways.deciding.at_agent(self.party)
        tables = self._ways.learning.transitions, self._ways.deciding.transitions
        self.transitions = joined(SHARED, *tables)
        self._ready: Ready | None = None  # what it told when its rows were ranked

    @property
    def awaited(self) -> list[str]:
        """The peers whose models have not come."""
        return self.learning.awaited

    @property
    def limit(self) -> int:
        """The largest rejected rank or lowest rejected cell; raises the error of a broken run."""
        _ = self.outcome
        return self.deciding.limit

    @property
    def floor(self) -> int:
        """The lowest cell whose rows take part; zero where there are no floors."""
        return self.deciding.floor

    @property
    def floors(self) -> tuple[int, ...]:
        """With strata, the lowest cell of each of them whose rows take part."""
        floors: tuple[int, ...] = getattr(self.deciding, "floors", ())
        return floors

    @property
    def n_rejected(self) -> int:
        """How many rows of this agent are rejected; raises the error of a broken run."""
        return self.deciding.n_rejected(self.outcome)

    def join(self, facts: Facts) -> Sequence[Event]:
        """Say hello, with the row numbers and columns of the site: the first thing to call."""
        if self.state is not State.NEW:
            raise LocalProtocolError(f"{self.name} has joined already")
        self._facts, self.party.own = facts, Numbers(facts.n_null, facts.n_test)
        return self._advance(Cue.JOIN, self._say_hello, self.name)

    def work_done(self, result: Any) -> Sequence[Event]:
        """Take the result of the work that the last event asked for."""
        if self.state is State.ABORTED:
            return []
        try:
            return self._advance(Cue.WORK_DONE, lambda: self._after_work(result), self.name)
        except ConovelError as error:
            return self.abort(error)

    def site_failed(self, error: Exception) -> Sequence[Event]:
        """Break off because the site could not do what was asked.

        Only the exception's class name is sent to the other parties, unless it is the fault of
        another: a refused model, or totals that no rows can have.
        """
        if isinstance(error, ModelRefusedError | OutcomeMismatchError):
            return self.abort(error)
        failure = SiteFailedError(f"{self.name} could not go on ({type(error).__name__})")
        failure.__cause__ = error
        return self.abort(failure)

    def _say_hello(self) -> Outbox:
        software, wire_version = self._versions
        hello = Hello(*self._facts, software, wire_version, self.spec.told)
        self.state = State.JOINING
        return self._send([COORDINATOR], hello)

    def _others(self) -> set[str]:
        return {COORDINATOR, *self.party.peers}

    def _knows(self, sender: str) -> bool:
        # Before the roster anybody may be a peer; the way of learning settles who was.
        strangers_allowed = not self.party.agents or sender == COORDINATOR
        return sender != self.name and (strangers_allowed or sender in self.party.agents)

    def _go(self, following: Next) -> Sequence[Event]:
        """Take the next state and give the steps their envelopes."""
        self.state, steps = following
        count = self._ways.deciding.count
        if count is not None:
            steps = [replace(s, count=count) if isinstance(s, RankRows) else s for s in steps]
        return self._events(steps)

    def _react(self, message: Message) -> Sequence[Event]:
        body, sender = message.body, message.sender
        if (sender == COORDINATOR) is (body.kind in AMONG_AGENTS):
            raise UnexpectedMessageError(f"{sender} may not send {body.kind.name}", sender)
        match body:
            case Roster():
                return self._on_roster(body)
            case Left():
                return self._on_left(body.agent)
            case Start():
                return self._on_start(body)
            case Outcome():
                return self._on_outcome(body)
        if self._ready is None:
            return self._go(self.learning.take(sender, body, message.round, self.state))
        return self._go(self.deciding.take(body, message.round))

    def _on_roster(self, roster: Roster) -> Sequence[Event]:
        insist(self.name in roster.agents, "the roster leaves this agent out")
        self.party.agents = roster.agents
        return self._go(self.learning.begin(self.deciding.plan(roster.weights)))

    def _on_left(self, agent: str) -> Sequence[Event]:
        insist(agent in self.party.peers, f"{agent} left, who is not here")
        self._gone.add(agent)
        return self._go(self.learning.lost(self.state))

    def _after_work(self, result: Any) -> Sequence[Event]:
        if self.state is State.RANKING:
            return self._send_ready(result)
        return self._go(self.learning.work_done(result))

    def _send_ready(self, counts: Any) -> Sequence[Event]:
        """Tell the coordinator how many rows are ranked, if they are the rows of the hello."""
        if not isinstance(counts, self._ways.deciding.counts_type):
            return self.site_failed(InputError("the site counted for another regime"))
        n_agents, facts = len(self.party.agents), self._facts
        n_tested = self.regime.n_tested(facts.n_test, self.party.index, n_agents)
        if counts.size != n_tested or counts.n_calibration > facts.n_null:
            wrong = f"{counts.size} ranks among {counts.n_calibration}, not {n_tested}"
            return self.site_failed(SampleError(wrong))
        self.state = State.READY
        self._ready = self.deciding.ready(counts, self.learning.score)
        return self._send([COORDINATOR], self._ready)

    def _on_start(self, start: Start) -> Sequence[Event]:
        insist(set(start.participants) == self.party.here, "the counts start with others")
        own = self._ready.n_tested if self._ready else 0
        insist(start.n_tests >= own, "the counts start without this agent")
        return self._go(self.deciding.start(start))

    def _on_outcome(self, outcome: Outcome) -> Sequence[Event]:
        insist(set(outcome.participants) == self.party.here, "the outcome is about others")
        self.deciding.finish(outcome, is_ready=self.state is State.READY)
        self._outcome, self.state = outcome, State.DONE
        return []
