"""The coordinator's machine: gathers the agents, lets them learn and decide, tells the outcome.

It sees names, row numbers and counts, never a row and never a model. It may live at one of
the agents. What it collects while agents learn, and what it asks while they decide, is said by the
two ways of the regime (:mod:`conovel.learning`, :mod:`conovel.deciding`).
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence

from conovel.deciding.base import Present
from conovel.deciding.ways import ways_of
from conovel.errors import (
    ConovelError,
    CountOutOfRangeError,
    GuaranteeWarning,
    InputError,
    RemoteProtocolError,
    SchemaMismatchError,
    SiteVanishedError,
    SpecMismatchError,
    VersionMismatchError,
)
from conovel.learning.base import Cue, Next, State
from conovel.protocol.messages import as_name
from conovel.protocol.states import SHARED, Machine, Outbox, joined, messages_of
from conovel.spec.bodies import COORDINATOR, Hello, Left, Message, Outcome, Ready, Roster
from conovel.spec.fields import MAX_AGENTS
from conovel.spec.regimes import as_deployable
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers
from conovel.stats.levels import as_liars


class Coordinator(Machine):
    """The one party that everybody reports to.

    Parameters
    ----------
    names : sequence of str
        The agents that are expected.
    spec : RunSpec
        What all agents of the run agree on. Its `on_dropout` says what to do when an agent
        vanishes during the counts: abort the run, or go on with its count at zero while its
        rows still count as tested.
    run_id : bytes
        16 bytes that all parties agreed on and no other run has.

    Attributes
    ----------
    outcome : Outcome
        What was announced; raises the error of a broken run.
    """

    _relays_aborts = True

    def __init__(self, names: Sequence[str], *, spec: RunSpec, run_id: bytes) -> None:
        super().__init__(COORDINATOR, run_id, State.GATHERING)
        self.spec, self.regime = spec, as_deployable(spec.regime)
        self._expected = sorted(map(as_name, names))
        if not 2 <= len(set(names)) == len(names) <= MAX_AGENTS:
            raise InputError(f"a run needs 2 to {MAX_AGENTS} agents of different names")
        as_liars(spec.liars, len(names))
        self._ways = ways_of(self.regime)
        self.present = Present(spec, self.run_id, self._gone)
        self.learning = self._ways.learning.at_coordinator()
        self.deciding = self._ways.deciding.at_coordinator(self.present)
        tables = self._ways.learning.transitions, self._ways.deciding.transitions
        self.transitions = joined(SHARED, *tables)
        if self._ways.deciding.shares_counts and spec.pi0 and not spec.pi0.proven_for_several:
            warnings.warn(
                f"{type(spec.pi0).__name__} is proven for one site only: use pi0='storey',"
                " which is proven for several",
                GuaranteeWarning,
                stacklevel=2,
            )
        self._hellos: dict[str, Hello] = {}
        self._roster: tuple[str, ...] = ()
        self._counted: set[str] = set()  # whoever was there when the counts began

    def drop(self, name: str) -> Outbox:
        """Take note that an agent vanished, and give the messages to send.

        Proof: Theorem 8 (docs/theory.md#thm-dropout).
        """
        if name not in self._expected:
            raise InputError(f"{name!r} does not take part in this run")
        if self.state is State.ABORTED or name in self._gone:
            return []
        try:
            return messages_of(self._advance(Cue.DROP, lambda: self._on_drop(name), name))
        except ConovelError as error:
            return self.abort(error)

    def _others(self) -> set[str]:
        return set(self._expected) - self._gone

    def _knows(self, sender: str) -> bool:
        return sender in self._expected

    def _turn_away(self, sender: str) -> Outbox:
        error = SiteVanishedError(f"{sender} was given up for lost", sender)
        return self._send([sender], self._farewell(error))

    def _go(self, following: Next) -> Outbox:
        """Take the next state, send what is to be sent, and the outcome at the end."""
        state, steps = following
        if state is not State.DONE:
            self.state = state
        outbox = messages_of(self._events(steps))
        return outbox + self._finish() if state is State.DONE else outbox

    def _react(self, message: Message) -> Outbox:
        sender, body = message.sender, message.body
        match body:
            case Hello():
                return self._on_hello(sender, body)
            case Ready():
                return self._on_ready(sender, body)
        if self.state is State.WAITING:
            return messages_of(self._events(self.learning.take(sender, body, message.round)))
        return self._go(self.deciding.take(sender, body, message.round))

    def _on_hello(self, sender: str, hello: Hello) -> Outbox:
        if different := self.spec.differences(hello.spec):
            raise SpecMismatchError(f"{sender} has other settings: {'; '.join(different)}", sender)
        self._hellos[sender] = hello
        return self._close_roster()

    def _close_roster(self) -> Outbox:
        if self._others() != set(self._hellos):
            return []
        self._agree(lambda hello: hello.wire_version, VersionMismatchError, "model format")
        self._agree(lambda hello: (hello.n_features, hello.schema), SchemaMismatchError, "columns")
        self._roster = tuple(sorted(self._hellos))
        self.state = State.WAITING
        self.learning.begin(self._roster)
        numbers = {n: Numbers(h.n_null, h.n_test) for n, h in self._hellos.items()}
        n_null, n_test = (sum(n) for n in zip(*numbers.values(), strict=True))
        weights = self.deciding.plan(numbers, len(self._expected), self._roster)
        return self._send(self._roster, Roster(self._roster, n_null, n_test, weights))

    def _agree(
        self, of: Callable[[Hello], object], error: type[RemoteProtocolError], what: str
    ) -> None:
        """Hold everybody to what most agents have; among equals, to the first by name."""
        values = {name: of(self._hellos[name]) for name in sorted(self._hellos)}
        most, _ = Counter(values.values()).most_common(1)[0]
        for name, value in values.items():
            if value != most:
                raise error(f"{name} has another {what} than the others", name)

    def _on_ready(self, sender: str, ready: Ready) -> Outbox:
        self.learning.require_learnt(sender)
        hello, index = self._hellos[sender], self._roster.index(sender)
        n_tested = self.regime.n_tested(hello.n_test, index, len(self._roster))
        least = self._ways.deciding.fewest_calibration
        if ready.n_tested != n_tested or not least <= ready.n_calibration <= hello.n_null:
            raise CountOutOfRangeError(
                f"{sender} tests {ready.n_tested} rows against {ready.n_calibration}, but said it"
                f" had {hello.n_test} (to test {n_tested}) and {hello.n_null}",
                sender,
            )
        self.present.ready[sender] = ready
        return self._begin()

    def _begin(self) -> Outbox:
        """Let the agents decide as soon as everybody who is there is ready."""
        if self._others() != set(self.present.ready):
            return []
        self._counted = set(self.present.ready)
        return self._go(self.deciding.begin())

    def _on_drop(self, name: str) -> Outbox:
        if self.state is State.DONE:
            return []
        self._gone.add(name)
        if not self._others():
            raise SiteVanishedError("nobody is left", name)
        if self.state is State.GATHERING:
            self._hellos.pop(name, None)
            return self._close_roster()
        self.learning.lost(name)
        if self.state is State.WAITING:
            self.present.ready.pop(name, None)
            return self._send(self._others(), Left(name)) + self._begin()
        round_ = self.present.round
        following = self.deciding.lost(name)
        return self._send(self._others(), Left(name), round_) + self._go(following)

    def _finish(self) -> Outbox:
        here, dropped = self._others(), self._gone & self._counted
        decided = self.deciding.decided()
        self._outcome = Outcome(
            n_rejected=decided.n_rejected,
            n_tests=self.present.n_tests,
            slope=decided.slope,
            rounds=decided.rounds,
            participants=tuple(sorted(here)),
            left_out=tuple(sorted(self._gone - dropped)),
            dropped=tuple(sorted(dropped)),
            cells=decided.cells,
            conforms=decided.conforms,
            k=decided.k,
        )
        self.state = State.DONE
        return self._send(here, self._outcome, self.present.round)
