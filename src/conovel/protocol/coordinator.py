"""The coordinator's machine: gathers the agents, asks for counts, announces the outcome.

It sees names, row numbers and counts, never a row and never a model. It may live at one of
the agents.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

from conovel.deciding.cells import block_of, decide_groups, rooms_of, told_cells
from conovel.deciding.committed import ROUND, CommittedCounts, decide
from conovel.deciding.counts import CountCheck, Counting
from conovel.deciding.folds import (
    COUNT_ROUNDS,
    check_counts,
    check_score,
    decide_consensus,
    told_limits,
)
from conovel.errors import (
    ConovelError,
    CountOutOfRangeError,
    GuaranteeWarning,
    InputError,
    RemoteProtocolError,
    SchemaMismatchError,
    SiteVanishedError,
    SpecMismatchError,
    UnexpectedMessageError,
    VersionMismatchError,
)
from conovel.protocol.events import Outbox, messages_of
from conovel.protocol.messages import as_name
from conovel.protocol.states import Cue, Machine, State
from conovel.spec.bodies import (
    COORDINATOR,
    Commit,
    Commitments,
    Count,
    FoldCounts,
    Hello,
    Histogram,
    Left,
    Message,
    Outcome,
    Ready,
    Reveal,
    Reveals,
    Roster,
    Seal,
    Sealed,
    Start,
)
from conovel.spec.consensus import N_FOLDS, told_types, types_of
from conovel.spec.fields import MAX_AGENTS
from conovel.spec.groups import Group, Numbers, divide, told_weights
from conovel.spec.regimes import as_deployable
from conovel.spec.run_spec import RunSpec
from conovel.spec.settings import TO_MEMBERS
from conovel.stats.cells import PooledBlock
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

    def __init__(
        self,
        names: Sequence[str],
        *,
        spec: RunSpec,
        run_id: bytes,
    ) -> None:
        super().__init__(COORDINATOR, run_id, State.GATHERING)
        self.spec = spec
        self.regime = as_deployable(spec.regime)
        self._expected = sorted(map(as_name, names))
        if not 2 <= len(set(names)) == len(names) <= MAX_AGENTS:
            raise InputError(f"a run needs 2 to {MAX_AGENTS} agents of different names")
        as_liars(spec.liars, len(names))
        if self.regime.uses_counts and spec.pi0 and not spec.pi0.proven_for_several:
            warnings.warn(
                f"{type(spec.pi0).__name__} is proven for one site only: use pi0='storey',"
                " which is proven for several",
                GuaranteeWarning,
                stacklevel=2,
            )
        self._hellos: dict[str, Hello] = {}
        self._ready: dict[str, Ready] = {}
        self._roster: tuple[str, ...] = ()
        self._tallies: dict[str, CountCheck] = {}  # whoever was there when the counts began
        self._counts: dict[str, int] = {}  # of this round
        self._pooled: dict[str, PooledBlock] = {}  # histograms of the regime `joint`
        self._groups: tuple[Group, ...] = ()
        self._folds: dict[str, list[FoldCounts]] = {}  # of the regime `consensus`
        self._seals: dict[str, bytes] = {}  # on second models there
        self._types: tuple[str, ...] = ()
        self._rooms: dict[str, Fraction] = {}
        self._committed = CommittedCounts(run_id, ())
        self._round = 0

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

    def _react(self, message: Message) -> Outbox:  # noqa: PLR0911  (a table of message kinds)
        match message.body:
            case Hello() as hello:
                return self._on_hello(message.sender, hello)
            case Ready() as ready:
                return self._on_ready(message.sender, ready)
            case Seal() as seal:
                return self._on_seal(message.sender, seal.digest)
            case Histogram() as histogram:
                return self._on_histogram(message.sender, histogram, message.round)
            case FoldCounts() as counts:
                return self._on_fold(message.sender, counts, message.round)
            case Commit() as commit:
                return self._on_commit(message.sender, commit.digest, message.round)
            case Reveal() as reveal:
                return self._on_reveal(message.sender, reveal, message.round)
            case Count() as count:
                return self._on_count(message.sender, count.count, message.round)
        raise AssertionError(message)  # the table lets nothing else through

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
        hellos = self._hellos.values()
        totals = (sum(h.n_null for h in hellos), sum(h.n_test for h in hellos))
        weights: tuple[Fraction, ...] = ()
        numbers = {n: Numbers(h.n_null, h.n_test) for n, h in self._hellos.items()}
        if self.regime.composite_null:
            self._types = types_of(numbers, self.spec, len(self._expected))
            weights = told_types(self._types, self._roster)
        if self.regime.pools_calibration:
            self._groups = divide(numbers, self.spec, len(self._expected))
            weights = told_weights(self._groups, self._roster)
        return self._send(self._roster, Roster(self._roster, *totals, weights))

    def _agree(
        self, of: Callable[[Hello], object], error: type[RemoteProtocolError], what: str
    ) -> None:
        """Hold everybody to what most agents have; among equals, to the first by name."""
        values = {name: of(self._hellos[name]) for name in sorted(self._hellos)}
        most, _ = Counter(values.values()).most_common(1)[0]
        for name, value in values.items():
            if value != most:
                raise error(f"{name} has another {what} than the others", name)

    def _on_seal(self, sender: str, digest: bytes) -> Outbox:
        """Tell all seals in one message once the last is in: until then nobody sends a model."""
        if not self.regime.composite_null:
            raise UnexpectedMessageError(f"{sender} sent a seal: no models are sealed", sender)
        self._seals[sender] = digest
        if len(self._seals) < len(self._roster):
            return []
        return self._send(self._roster, Sealed(tuple(self._seals[n] for n in self._roster)))

    def _on_ready(self, sender: str, ready: Ready) -> Outbox:
        if self.regime.composite_null and len(self._seals) < len(self._roster):
            raise UnexpectedMessageError(f"{sender} is ready before all models are sealed", sender)
        hello, index = self._hellos[sender], self._roster.index(sender)
        n_tested = self.regime.n_tested(hello.n_test, index, len(self._roster))
        least = 0 if self.regime.composite_null else 1
        if ready.n_tested != n_tested or not least <= ready.n_calibration <= hello.n_null:
            raise CountOutOfRangeError(
                f"{sender} tests {ready.n_tested} rows against {ready.n_calibration}, but said it"
                f" had {hello.n_test} (to test {n_tested}) and {hello.n_null}",
                sender,
            )
        self._ready[sender] = ready
        return self._begin()

    def _begin(self) -> Outbox:
        if self._others() != set(self._ready):
            return []
        if not self.regime.uses_counts:
            return self._finish()
        names = sorted(self._ready)
        for name in names:
            ready = self._ready[name]
            self._tallies[name] = CountCheck(name, ready.n_tested, ready.n_calibration)
        if self.regime.pools_calibration or self.spec.is_committed:
            return self._begin_histograms(names)
        if self.regime.composite_null:
            self._round, self.state = N_FOLDS, State.ASKING
            return self._send(names, Start(tuple(names), self._n_tests()))
        self._counting = Counting(self.spec.level, [*self._tallies.values()], self.spec.pi0)
        self.state = State.ASKING
        return self._send(names, Start(tuple(names), self._n_tests())) + self._ask()

    def _begin_histograms(self, names: Sequence[str]) -> Outbox:
        """Announce x, which follows from what the agents want; all their counts come back."""
        rooms: tuple[Fraction, ...] = ()
        if self.regime.pools_calibration:
            self._rooms = rooms_of(self._groups, self._ready, self.spec.level, self.spec.liars)
            rooms = tuple(self._rooms[name] for name in names)
        self._round = ROUND
        self.state = State.ASKING
        if self.spec.is_committed:
            as_liars(self.spec.liars, len(names))  # some agents may have left
            self._committed = CommittedCounts(self.run_id, tuple(names))
            self.state = State.COMMITTING
        return self._send(names, Start(tuple(names), self._n_tests(), rooms))

    def _on_commit(self, sender: str, digest: bytes, round_: int) -> Outbox:
        self._insist_on_round(sender, round_)
        self._committed.digests[sender] = digest
        if not self._committed.is_committed:
            return []
        self.state = State.REVEALING
        names = self._committed.participants
        digests = tuple(self._committed.digests[name] for name in names)
        return self._send(names, Commitments(names, digests), ROUND)

    def _on_reveal(self, sender: str, reveal: Reveal, round_: int) -> Outbox:
        self._insist_on_round(sender, round_)
        self._committed.add(sender, reveal, self._ready[sender])
        if not self._committed.is_revealed:
            return []
        names, outbox = self._committed.participants, []
        if self.spec.reveal_to == TO_MEMBERS:
            reveals = tuple(self._committed.reveals[name] for name in names)
            outbox = self._send(names, Reveals(names, reveals), ROUND)
        return outbox + self._finish()

    def _insist_on_round(self, sender: str, round_: int) -> None:
        if round_ != self._round:
            raise UnexpectedMessageError(f"{sender} counts for round {round_}", sender)

    def _on_histogram(self, sender: str, histogram: Histogram, round_: int) -> Outbox:
        if not self.regime.pools_calibration or round_ != self._round:
            raise UnexpectedMessageError(
                f"{sender} sent a histogram that is not asked for", sender
            )
        ready, room = self._ready[sender], self._rooms[sender]
        self._pooled[sender] = block_of(sender, ready, histogram, room, self.spec.level)
        return [] if self._others() - set(self._pooled) else self._finish()

    def _on_fold(self, sender: str, counts: FoldCounts, round_: int) -> Outbox:
        got = self._folds.setdefault(sender, [])
        if not self.regime.composite_null or round_ != len(got) + 1:
            raise UnexpectedMessageError(f"{sender} sent counts that are not asked for", sender)
        check_counts(sender, self._ready[sender], counts, len(got))
        got.append(counts)
        complete = [name for name, both in self._folds.items() if len(both) == len(COUNT_ROUNDS)]
        return [] if self._others() - set(complete) else self._finish()

    def _n_tests(self) -> int:
        return sum(ready.n_tested for ready in self._ready.values())

    def _ask(self) -> Outbox:
        if self._counting.question is None:
            return self._finish()
        self._round += 1
        self._counts = {}
        return self._send(self._others(), self._counting.question, self._round)

    def _on_count(self, sender: str, count: int, round_: int) -> Outbox:
        question = None if self.regime.decides_by_cells else self._counting.question
        if question is None or round_ != self._round:
            raise UnexpectedMessageError(
                f"{sender} counts for round {round_} in round {self._round}", sender
            )
        self._tallies[sender].add(question, count)
        self._counts[sender] = count
        return self._close_round()

    def _close_round(self) -> Outbox:
        if self._others() - set(self._counts):
            return []
        self._counting.answer([self._counts.get(name, 0) for name in self._tallies])
        return self._ask()

    def _on_drop(self, name: str) -> Outbox:
        if self.state is State.DONE:
            return []
        self._gone.add(name)
        if not self._others():
            raise SiteVanishedError("nobody is left", name)
        if self.state is State.GATHERING:
            self._hellos.pop(name, None)
            return self._close_roster()
        if self.regime.composite_null:  # the score, and the worst case, are over all agents
            raise SiteVanishedError(f"{name} vanished, and consensus needs every agent", name)
        if self.state in (State.COMMITTING, State.REVEALING):
            raise SiteVanishedError(f"{name} vanished and did not reveal its counts", name)
        outbox = self._send(self._others(), Left(name), self._round)
        if self.state is State.WAITING:
            self._ready.pop(name, None)
            return outbox + self._begin()
        if self.spec.on_dropout == "abort":
            raise SiteVanishedError(f"{name} vanished during the counts", name)
        # Also the count of this round: its rows will not be rejected, so none may be counted.
        self._counts.pop(name, None)
        return outbox + self._close_round()

    def _result(self) -> tuple[int, Fraction, int, tuple[int, ...]]:
        """Return rejections, slope, rounds and the lowest rejected cells, for the outcome."""
        if self.regime.composite_null:
            check_score(self._folds)
            agreed = decide_consensus(self._folds, self._ready, self._types, self.spec.level)
            return sum(agreed.n_rejected), Fraction(0), N_FOLDS, agreed.cells
        if self.regime.pools_calibration:
            found = decide_groups(
                self._groups, self._pooled, self._rooms, self._ready, self.spec.level
            )
            n_rejected = sum(group.found.n_rejected for group in found)
            return n_rejected, Fraction(0), 1, told_cells(found, sorted(self._others()))
        if not self.regime.uses_counts:
            return 0, Fraction(0), 0, ()
        return self._counting.k, self._counting.slope, self._counting.steps, ()

    def _outcome_of_committed(self) -> Outcome:
        reveals, n_tests = self._committed.reveals, self._n_tests()
        found = decide(self.spec, reveals, n_tests, self._groups, self._rooms)
        names, lost = self._committed.participants, tuple(sorted(self._gone))
        told = found.n_rejected, n_tests, found.slope, ROUND, names, lost, ()
        return Outcome(*told, cells=found.cells, k=found.k)

    def _finish(self) -> Outbox:
        if self.spec.is_committed:
            self._outcome = self._outcome_of_committed()
            self.state = State.DONE
            return self._send(self._others(), self._outcome, self._round)
        here, dropped = self._others(), self._gone & set(self._tallies)
        n_rejected, slope, rounds, cells = self._result()
        self._outcome = Outcome(
            n_rejected=n_rejected,
            n_tests=self._n_tests(),
            slope=slope,
            rounds=rounds,
            cells=cells,
            conforms=told_limits(self._folds, sorted(here)) if self._folds else (),
            participants=tuple(sorted(here)),
            left_out=tuple(sorted(self._gone - dropped)),
            dropped=tuple(sorted(dropped)),
        )
        self.state = State.DONE
        return self._send(here, self._outcome, self._round)
