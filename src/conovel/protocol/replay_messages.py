"""Feeding the messages of a finished run to the machines of the protocol once more.

A transcript holds what the agents sent: numbers of rows, counts, commitments. The coordinator is
deterministic, so that these give back every question, the outcome and all its messages. An agent
is deterministic given its ranks. Models, seals and columns are not in a transcript and have no
part in what the machines answer: empty ones stand for them.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import permutations

from conovel.errors import GuaranteeWarning, InputError
from conovel.learning.consensus import model_rounds
from conovel.protocol.agent import Agent
from conovel.protocol.coordinator import Coordinator
from conovel.protocol.events import Event, FitModels, RankRows, Send, messages_of
from conovel.protocol.messages import encode
from conovel.protocol.transcript import Entry, Transcript
from conovel.spec.bodies import (
    COORDINATOR,
    Body,
    Commit,
    Commitments,
    Count,
    Hello,
    Kind,
    Left,
    Message,
    Model,
    Reveals,
    Roster,
    Seal,
    Sealed,
    Start,
)
from conovel.spec.facts import Facts
from conovel.stats.stepup import RankHistogram

_DIGEST = bytes(32)  # stands for a digest that no record holds
_MODEL = b"model"


def invited_to(transcript: Transcript) -> list[str]:
    """Name everybody who was expected in a run that has an outcome."""
    outcome = transcript.outcome
    parts = (outcome.participants, outcome.left_out, outcome.dropped) if outcome else ()
    return sorted({name for names in parts for name in names})


def kinds_in(transcript: Transcript) -> set[str]:
    """Name the kinds of messages in a record."""
    return {entry.kind for entry in transcript.entries}


class _CoordinatorReplay:
    """A coordinator that gets recorded messages, and the transcript of all that it gets and sends.

    Any fault that the coordinator finds is raised.
    """

    def __init__(self, record: Transcript) -> None:
        self.record = record
        self.transcript = Transcript()
        self.run_id = bytes.fromhex(record.run_id)
        with warnings.catch_warnings():  # the run itself has warned
            warnings.simplefilter("ignore", GuaranteeWarning)
            spec = record.settings
            self.machine = Coordinator(invited_to(record), spec=spec, run_id=self.run_id)

    def run(self) -> Transcript:
        record = self.record
        self.gather()
        for entry in record.entries:
            if entry.kind == Kind.SEAL.name:
                self.hand_in(entry.sender, Seal(_DIGEST))
        self.make_ready()
        for number in sorted(record.rounds):
            self.count(number)
        for name, round_ in sorted(record.left.items()):
            if round_ and round_ not in record.rounds:
                self.drop(name)
        for name, body, round_ in _answers(record):
            self.hand_in(name, body, round_)
        return self.transcript

    def gather(self) -> None:
        """Say all hellos; whoever is not on the roster vanished before it was made."""
        roster = self.record.roster
        hellos = sorted(self.record.agents, key=lambda name: (name in roster, name))
        late = [name for name in hellos if name not in roster]
        for name in late:
            self.say_hello(name)
        for name in set(invited_to(self.record)) - set(roster):
            self.drop(name)
        for name in hellos[len(late) :]:
            self.say_hello(name)

    def say_hello(self, name: str) -> None:
        sizes = self.record.agents[name]
        facts = Facts(sizes.n_null, sizes.n_test, 1, _DIGEST)
        self.hand_in(name, Hello(*facts, "", 0, self.record.settings))

    def make_ready(self) -> None:
        """Send every READY, first those of agents that vanished before the counts."""
        record = self.record
        early = _lost_in(record, 0)
        ready = {entry.sender for entry in record.entries if entry.kind == Kind.READY.name}
        for name in early:
            if name in ready:
                self.hand_in(name, record.agents[name].ready)
            self.drop(name)
        for name in record.roster:
            if name not in early and name in record.agents:
                self.hand_in(name, record.agents[name].ready)

    def count(self, number: int) -> None:
        """Send the counts of one round, first those of agents that vanished in it."""
        counts, lost = self.record.rounds[number].counts, _lost_in(self.record, number)
        asked = {e.receiver for e in self.transcript.entries if e.round == number} - {COORDINATOR}
        if missing := sorted(asked - counts.keys() - set(lost)):
            raise InputError(f"the count of {', '.join(missing)} is missing in round {number}")
        for name in lost:
            if name in counts:
                self.hand_in(name, Count(counts[name]), number)
            self.drop(name)
        for name in sorted(counts.keys() - set(lost)):
            self.hand_in(name, Count(counts[name]), number)

    def hand_in(self, sender: str, body: Body, round_: int = 0) -> None:
        data = encode(message := Message(self.run_id, sender, COORDINATOR, round_, body))
        self.transcript.note(message, len(data))
        self.note(self.machine.receive(data, sender))

    def drop(self, name: str) -> None:
        self.note(self.machine.drop(name))

    def note(self, events: Sequence[Event]) -> None:
        for sent in messages_of(events):
            self.transcript.note(sent.message, len(sent.data))
        if self.machine.error is not None:
            raise self.machine.error


def replay_coordinator(record: Transcript) -> Transcript:
    """Return the transcript of a coordinator that gets the messages of a record.

    Raises
    ------
    ConovelError
        What the coordinator finds wrong in them.
    """
    return _CoordinatorReplay(record).run()


def _lost_in(record: Transcript, round_: int) -> list[str]:
    """Name the agents that vanished in one round, in order.

    Whoever vanished later was still told of those before.
    """
    heard = Counter(
        entry.receiver
        for entry in record.entries
        if entry.kind == Kind.LEFT.name and entry.round == round_
    )
    lost = [name for name, when in record.left.items() if when == round_]
    return sorted(lost, key=lambda name: (heard[name], name))


def _answers(record: Transcript) -> Iterator[tuple[str, Body, int]]:
    """Give what agents sent once the counts began, apart from counts in rounds, in order."""
    for name, histogram in sorted(record.histograms.items()):
        yield name, histogram, 1
    for name, folds in sorted(record.folds.items()):
        yield from ((name, counts, round_) for round_, counts in enumerate(folds, 1))
    for name, digest in sorted(record.commitments.items()):
        yield name, Commit(digest), 1
    for name, reveal in sorted(record.reveals.items()):
        yield name, reveal, 1


def site_messages(record: Transcript, name: str) -> Iterator[Message]:
    """Give the messages between a participant and the coordinator, in order, from a record."""
    run_id = bytes.fromhex(record.run_id)
    for is_sent, body, round_ in (*_until_start(record, name), *_after_start(record, name)):
        parties = (name, COORDINATOR) if is_sent else (COORDINATOR, name)
        yield Message(run_id, *parties, round_, body)


def _until_start(record: Transcript, name: str) -> Iterator[tuple[bool, Body, int]]:
    """Give whether the agent sent it, the body and the round of messages up to START."""
    sizes, kinds = record.agents[name], kinds_in(record)
    facts = Facts(sizes.n_null, sizes.n_test, 1, _DIGEST)
    yield True, Hello(*facts, "", 0, record.settings), 0
    weights = tuple(record.weights[n] for n in record.roster if n in record.weights)
    yield False, Roster(record.roster, 0, 0, weights), 0  # the totals are in no record
    if Kind.SEAL.name in kinds:
        yield True, Seal(_DIGEST), 0
        yield False, Sealed((_DIGEST,) * len(record.roster)), 0
    yield True, sizes.ready, 0
    yield from ((False, Left(lost), 0) for lost in _lost_in(record, 0))
    if Kind.START.name in kinds:
        began = tuple(n for n in record.roster if record.left.get(n) != 0)
        rooms = tuple(record.rooms[n] for n in began if n in record.rooms)
        yield False, Start(began, record.n_tests, rooms), 0


def _after_start(record: Transcript, name: str) -> Iterator[tuple[bool, Body, int]]:
    """Give the same from the first count to the outcome."""
    for number, round_ in sorted(record.rounds.items()):
        yield False, round_.question, number
        if name in round_.counts:
            yield True, Count(round_.counts[name]), number
        yield from ((False, Left(lost), number) for lost in _lost_in(record, number))
    for agent, body, number in _answers(record):
        if agent == name:
            yield True, body, number
        if agent == name and isinstance(body, Commit):
            agents, digests = zip(*sorted(record.commitments.items()), strict=True)
            yield False, Commitments(agents, digests), 1
    if Kind.REVEALS.name in kinds_in(record):
        agents, reveals = zip(*sorted(record.reveals.items()), strict=True)
        yield False, Reveals(agents, reveals), 1
    if record.outcome is not None:
        yield False, record.outcome, max(record.rounds, default=record.n_rounds)


def replay_site(record: Transcript, name: str) -> Transcript:
    """Return the transcript of a site that follows from the values in its record."""
    transcript = Transcript()
    for message in site_messages(record, name):
        transcript.note(message, len(encode(message)))
    return transcript


class AgentReplay:
    """An agent that has these ranks and gets the messages of a record.

    Attributes
    ----------
    machine : Agent
        After its last message.
    sent : list of Message
        What it sends to the coordinator.
    """

    def __init__(self, record: Transcript, name: str, ranks: RankHistogram) -> None:
        self.ranks, self.sent = ranks, list[Message]()
        reveal, sizes, spec = record.reveals.get(name), record.agents[name], record.settings
        nonce = reveal.nonce if reveal else _DIGEST
        run_id = bytes.fromhex(record.run_id)
        self.machine = Agent(name, spec=spec, run_id=run_id, nonce=nonce)
        self.work(self.machine.join(Facts(sizes.n_null, sizes.n_test, 1, _DIGEST)))
        for message in site_messages(record, name):
            if message.receiver == name:
                self.receive(message)
            if isinstance(message.body, Roster):
                peers = [peer for peer in record.roster if peer != name]
                for peer, round_ in ((p, r) for p in peers for r in model_rounds(spec.regime)):
                    self.receive(Message(run_id, peer, name, round_, Model(_MODEL)))

    def receive(self, message: Message) -> None:
        """Hand it a message."""
        self.work(self.machine.receive(encode(message), message.sender))

    def work(self, events: Sequence[Event]) -> None:
        """Answer what the machine asks of a site."""
        if self.machine.error is not None:
            raise self.machine.error
        for event in events:
            match event:
                case Send():
                    if event.receiver == COORDINATOR:
                        self.sent.append(event.message)
                case FitModels():
                    peers = [peer for peer in event.agents if peer != self.machine.name]
                    self.work(self.machine.models_ready(dict.fromkeys(peers, _MODEL)))
                case RankRows():
                    self.work(self.machine.ranks_ready(self.ranks))
                case _:
                    raise InputError("ranks do not decide in this regime")

    def findings(self, record: Transcript) -> Iterator[str]:
        """Name the messages of the record that the agent does not send."""
        name = self.machine.name
        answers = {(m.body.kind, m.round): m.body for m in self.sent}
        for message in site_messages(record, name):
            if message.sender == name and not isinstance(message.body, Hello):
                answer = answers.get((message.body.kind, message.round))
                if answer != message.body:
                    yield f"the ranks of {name} give {answer}, and not {message.body}"


def message_findings(
    record: Transcript, replayed: Transcript, site: str | None, unsettled: Collection[str]
) -> Iterator[str]:
    """Compare the list of messages with that of a replay.

    Parameters
    ----------
    record, replayed : Transcript
    site : str or None
        Whose messages the record has; None for those of all.
    unsettled : collection of str
        Agents that did not tell which models they sent.
    """
    listed, follows = (Counter(_comparable(t.entries)) for t in (record, replayed))
    for entry in sorted((listed - follows).elements(), key=str):
        yield f"a message does not follow: {_in_words(entry)}"
    for entry in sorted((follows - listed).elements(), key=str):
        yield f"a message is missing: {_in_words(entry)}"
    # Whoever was given up for lost is turned away; nobody else hears an ABORT before an outcome.
    turned_away = {COORDINATOR, *record.left, *(set(record.agents) - set(record.roster))}
    for entry in record.entries:
        if entry.kind == Kind.ABORT.name and (entry.round or not {*entry[1:3]} <= turned_away):
            yield f"a message does not follow: {_in_words(entry)}"
    models = Counter(entry[:3] for entry in record.entries if entry.kind == Kind.MODEL.name)
    due = {
        (round_, *pair)
        for round_ in model_rounds(record.settings.regime)
        for pair in permutations(record.roster, 2)
        if site is None or site in pair
    }
    if any(n > 1 for n in models.values()) or not models.keys() <= due:
        yield "a model was sent twice, or where none is sent"
    for _, sender, receiver in sorted(due - models.keys()):
        if not {sender, receiver} & record.left.keys() and sender not in unsettled:
            yield f"the model of {sender} for {receiver} is missing"


def _comparable(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Leave out what no replay gives: models, farewells, and the size of a HELLO."""
    for entry in entries:
        if entry.kind == Kind.HELLO.name:
            yield entry._replace(n_bytes=0)
        elif entry.kind not in (Kind.MODEL.name, Kind.ABORT.name):
            yield entry


def _in_words(entry: Entry) -> str:
    price = "" if entry.paper_bits is None else f", charged {entry.paper_bits:g} bits"
    return (
        f"{entry.kind} of {entry.sender} for {entry.receiver} in round {entry.round},"
        f" {entry.n_bytes} bytes{price}"
    )
