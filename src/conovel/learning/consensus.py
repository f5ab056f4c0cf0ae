"""All agents learn one score in two rounds of models, the second under seals.

Each agent learns twice: a first model of its own normals, and with everybody's first models a
second one for each fold of the test rows. All second models together are the score of a fold.

The second model of a fold has learnt from the rows of the other fold. A peer that saw the second
models of both folds before it made its own could make the score of a fold depend on the rows that
are tested in it, and the guarantee would be lost. So every agent first sends a seal, SHA-256 over
the run, its name, a nonce and both models. Second models are sent only when all seals are told.
With them goes what opens the seal: the nonce, and a digest of all seals as the sender was told
them, so that a coordinator cannot tell different seals to different agents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, cast

from conovel.errors import (
    CommitmentError,
    LocalProtocolError,
    OutcomeMismatchError,
    SiteFailedError,
    SiteVanishedError,
    UnexpectedMessageError,
)
from conovel.learning.base import Cue, Learning, Next, Out, Party, State, Step, Work, insist
from conovel.learning.exchange import TRANSITIONS, Exchange, ExchangeAgent, FitModels
from conovel.spec.bodies import COORDINATOR, Body, Kind, Message, Model
from conovel.spec.consensus import N_FOLDS, fewest_learnt
from conovel.spec.fields import DIGEST, DIGESTS, NONCE_BYTES

FIRST_ROUND = 1  # in which the first models are sent
SECOND_ROUNDS = tuple(range(2, 2 + N_FOLDS))  # in which second models are sent, one for each fold
OPENING_ROUND = 2 + N_FOLDS  # in which agents send what opens their seals


def opens_seal(message: Message) -> bool:
    """Tell whether a MODEL holds no model, but what opens the seal of its sender."""
    return isinstance(message.body, Model) and message.round == OPENING_ROUND


def score_digest(models: Mapping[str, Sequence[bytes]]) -> bytes:
    """Return a digest of all second models, in the order of the agents' names.

    Agents that have the same digest have the same score.
    """
    return digest_of(part for name in sorted(models) for part in (name.encode(), *models[name]))


def digest_of(parts: Iterable[bytes]) -> bytes:
    """Return SHA-256 over parts, each behind its length: other parts have other bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def seal_of(run_id: bytes, agent: str, nonce: bytes, models: Sequence[bytes]) -> bytes:
    """Return the seal on an agent's second models, one for each fold.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).

    Raises
    ------
    LocalProtocolError
        If the nonce, which a driver has to draw, does not have 32 bytes.

    Examples
    --------
    >>> seal = seal_of(bytes(16), "north", bytes(32), [b"one", b"two"])
    >>> seal == seal_of(bytes(16), "north", bytes(32), [b"onet", b"wo"])
    False
    """
    if len(nonce) != NONCE_BYTES:
        raise LocalProtocolError(f"a seal needs a secret nonce of {NONCE_BYTES} bytes")
    return digest_of([b"second models", run_id, agent.encode(), nonce, *models])


def opening_of(nonce: bytes, seals: Mapping[str, bytes]) -> bytes:
    """Return what opens a seal: the nonce, and a digest of all seals."""
    return nonce + digest_of(
        part for name in sorted(seals) for part in (name.encode(), seals[name])
    )


def check_opened(
    run_id: bytes,
    seals: Mapping[str, bytes],
    openings: Mapping[str, bytes],
    models: Mapping[str, Sequence[bytes]],
) -> None:
    """Check that everybody's second models are those that were sealed.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).

    Raises
    ------
    CommitmentError
        If an agent sent other models than it had sealed; it is the culprit.
    OutcomeMismatchError
        If an agent was told other seals: the coordinator is the culprit.
    """
    for name in sorted(seals):
        nonce, digest = openings[name][:NONCE_BYTES], openings[name][NONCE_BYTES:]
        if len(nonce) < NONCE_BYTES or seal_of(run_id, name, nonce, models[name]) != seals[name]:
            raise CommitmentError(f"{name} sent other second models than it had sealed", name)
        if nonce + digest != opening_of(nonce, seals):
            raise OutcomeMismatchError(
                f"the coordinator is wrong: it told {name} other seals than this agent",
                COORDINATOR,
            )


class Sealing(Enum):
    """States of an agent that seals its second models."""

    REFITTING = "refitting"  # waits for its site to fit second models
    SEALING = "sealing"  # sealed its second models, waits for the seals of all


@dataclass(frozen=True)
class Seal(Body):
    """Agent to coordinator: a commitment to its second models."""

    kind = Kind.SEAL
    digest: Annotated[bytes, DIGEST]


@dataclass(frozen=True)
class Sealed(Body):
    """Coordinator to agents: the seals of all agents, in the order of the roster."""

    kind = Kind.SEALED
    digests: Annotated[tuple[bytes, ...], DIGESTS]


@dataclass(frozen=True)
class DescribeNormals(FitModels):
    """Describe the own normals, for every peer."""

    def at(self, site: Any) -> Mapping[str, bytes]:
        """Return a first model for every peer, by name."""
        models: Mapping[str, bytes] = site.describe(self.index, self.agents)
        return models


@dataclass(frozen=True)
class RefitModels(Work):
    """Learn again with the first models of the peers; one model for each fold."""

    models: Mapping[str, bytes]

    def at(self, site: Any) -> Sequence[bytes]:
        """Return a second model for each fold."""
        models: Sequence[bytes] = site.refit(self.models)
        return models


@dataclass(frozen=True)
class CompareRows(Work):
    """Count rows by the score that these models make: of each agent, one for each fold."""

    phase = "score"
    models: Mapping[str, tuple[bytes, ...]]

    def at(self, site: Any) -> Any:
        """Return the counts of both folds."""
        return site.compare(self.models)


class ConsensusAgent(ExchangeAgent):
    """An agent's side: first models, seals, second models, and what opens the seals."""

    rounds = (FIRST_ROUND, *SECOND_ROUNDS, OPENING_ROUND)

    def __init__(self, party: Party) -> None:
        super().__init__(party)
        self._own_seal = b""
        self._seals: dict[str, bytes] = {}  # of all agents

    fitting = DescribeNormals

    def take(self, sender: str, body: Body, round_: int, state: Enum) -> Next:
        """Take a model, or the seals of all agents."""
        if isinstance(body, Sealed):
            return self._send_second(body.digests)
        if round_ in self.rounds[1:] and not self._own_seal:
            raise UnexpectedMessageError(
                f"{sender} sent a second model before all were sealed", sender
            )
        return super().take(sender, body, round_, state)

    def work_done(self, result: Any) -> Next:
        """Send the first models, or seal the second ones."""
        return super().work_done(result) if isinstance(result, Mapping) else self._seal(result)

    def lost(self, state: Enum) -> Next:
        """Refuse to go on: the score is made of the models of all agents."""
        insist(False, "it goes on without an agent, and consensus needs every one")
        return state, []

    def complete(self) -> Next:
        """Ask for second models, or for the counts once these have come."""
        name, box = self.party.name, self.box
        if name not in box.senders:
            return Sealing.REFITTING, [RefitModels(box.of_round(FIRST_ROUND))]
        second = [box.of_round(round_) for round_ in SECOND_ROUNDS]
        models = {name: tuple(one[name] for one in second) for name in self.party.agents}
        check_opened(self.party.run_id, self._seals, box.of_round(OPENING_ROUND), models)
        box.clear()
        self.score = score_digest(models)
        return State.RANKING, [CompareRows(models)]

    def _seal(self, models: Sequence[bytes]) -> Next:
        party = self.party
        if len(models) != len(SECOND_ROUNDS):
            raise SiteFailedError("the site did not make one model for every fold")
        for round_, blob in zip(SECOND_ROUNDS, models, strict=True):
            self.box.add(party.name, round_, blob)
        self._own_seal = seal_of(party.run_id, party.name, party.nonce, models)
        return Sealing.SEALING, [Out([COORDINATOR], Seal(self._own_seal))]

    def _send_second(self, digests: Sequence[bytes]) -> Next:
        """Send the second models, now that nobody's can depend on them."""
        party = self.party
        insist(len(digests) == len(party.agents), "it does not tell one seal of each agent")
        self._seals = dict(zip(party.agents, digests, strict=True))
        insist(self._seals[party.name] == self._own_seal, "it tells another seal of this agent")
        self.box.add(party.name, OPENING_ROUND, opening_of(party.nonce, self._seals))
        steps: list[Step] = [
            Out(party.peers, Model(self.box.of_round(round_)[party.name]), round_)
            for round_ in self.rounds[1:]
        ]
        return self.after(steps, self.rounds[1:])


class SealCollector:
    """The coordinator's side: it tells all seals in one message once the last is in."""

    def __init__(self) -> None:
        self._roster: tuple[str, ...] = ()
        self._seals: dict[str, bytes] = {}

    def begin(self, roster: Sequence[str]) -> None:
        """Begin, with everybody on the roster."""
        self._roster = tuple(roster)

    def take(self, sender: str, body: Body, round_: int) -> Sequence[Out]:
        """Take a seal; until the last is in, nobody sends a second model."""
        self._seals[sender] = cast(Seal, body).digest
        if len(self._seals) < len(self._roster):
            return []
        return [Out(self._roster, Sealed(tuple(self._seals[name] for name in self._roster)))]

    def require_learnt(self, sender: str) -> None:
        """Refuse a READY before all models are sealed."""
        if len(self._seals) < len(self._roster):
            raise UnexpectedMessageError(f"{sender} is ready before all models are sealed", sender)

    def lost(self, name: str) -> None:
        """Break the run off: the score, and the worst case, are over all agents.

        Proof: Theorem 16 (docs/theory.md#thm-consensus).
        """
        raise SiteVanishedError(f"{name} vanished, and consensus needs every agent", name)


_AFTER_FIRST = frozenset({Exchange.EXCHANGING, Sealing.REFITTING, State.RANKING})
CONSENSUS = Learning(
    name="consensus",
    at_agent=ConsensusAgent,
    at_coordinator=SealCollector,
    transitions={
        **TRANSITIONS,
        (Exchange.FITTING, Cue.WORK_DONE): frozenset({Exchange.EXCHANGING, Sealing.REFITTING}),
        (Exchange.EXCHANGING, Kind.MODEL): _AFTER_FIRST,
        (Sealing.REFITTING, Cue.WORK_DONE): frozenset({Sealing.SEALING}),
        (Sealing.SEALING, Kind.MODEL): frozenset({Sealing.SEALING}),  # a peer had them sooner
        (Sealing.SEALING, Kind.SEALED): frozenset({Exchange.EXCHANGING, State.RANKING}),
        (State.WAITING, Kind.SEAL): frozenset({State.WAITING}),
    },
    model_rounds=ConsensusAgent.rounds,
    models_in_words="three models per agent",
    scores_compared=True,
    on_grids=True,
    learnt_from=lambda n_calibration, n_test: fewest_learnt(n_test),
)
