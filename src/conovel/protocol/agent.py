"""An agent's machine: says hello, trades models, answers counts.

It moves bytes and small integers. Work on rows is asked of the driver by events
(:mod:`conovel.protocol.events`), and its results are handed back. The counts are in
:mod:`conovel.protocol.agent_counting`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from conovel.deciding.counts import decide_alone
from conovel.errors import (
    ConovelError,
    InputError,
    LocalProtocolError,
    ModelRefusedError,
    SampleError,
    SiteFailedError,
    UnexpectedMessageError,
    UnknownSenderError,
)
from conovel.learning.consensus import (
    FIRST_ROUND,
    OPENING_ROUND,
    SECOND_ROUNDS,
    check_opened,
    model_rounds,
    opening_of,
    score_digest,
    seal_of,
)
from conovel.learning.model_box import ModelBox
from conovel.protocol.agent_counting import Counted, CountingAgent
from conovel.protocol.events import (
    CompareRows,
    Event,
    FitModels,
    Outbox,
    RankRows,
    RefitModels,
)
from conovel.protocol.messages import as_name
from conovel.protocol.states import Cue, State
from conovel.spec.bodies import (
    COORDINATOR,
    Hello,
    Kind,
    Left,
    Message,
    Model,
    Ready,
    Roster,
    Seal,
    Sealed,
)
from conovel.spec.facts import Facts
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import CellHistogram
from conovel.stats.consensus import FoldHistograms
from conovel.stats.stepup import RankHistogram


class Agent(CountingAgent):
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
    ) -> None:
        super().__init__(as_name(name), spec, run_id, nonce)
        self._versions = (software, wire_version)
        self._models = ModelBox()
        self._seal = b""  # on the second models of the regime `consensus`
        self._seals: dict[str, bytes] = {}  # of all agents

    @property
    def awaited(self) -> list[str]:
        """The peers whose models have not come."""
        return sorted({sender for sender, _ in tuple(self._models.awaited)})

    def join(self, facts: Facts) -> Sequence[Event]:
        """Say hello, with the row numbers and columns of the site: the first thing to call."""
        if self.state is not State.NEW:
            raise LocalProtocolError(f"{self.name} has joined already")
        self._facts = facts
        return self._advance(Cue.JOIN, self._say_hello, self.name)

    def models_ready(self, models: Mapping[str, bytes]) -> Sequence[Event]:
        """Take the models that :class:`FitModels` asked for: one for every peer."""
        return self._hand_in(Cue.MODELS_READY, lambda: self._send_models(models))

    def refit_ready(self, models: Sequence[bytes]) -> Sequence[Event]:
        """Take the models that :class:`RefitModels` asked for: one for each fold."""
        return self._hand_in(Cue.REFIT_READY, lambda: self._send_second(models))

    def ranks_ready(self, histogram: Counted) -> Sequence[Event]:
        """Take the ranks that :class:`RankRows` asked for, as counts; in `joint` the cells."""
        return self._hand_in(Cue.RANKS_READY, lambda: self._send_ready(histogram))

    def site_failed(self, error: Exception) -> Sequence[Event]:
        """Break off because the site could not do what was asked.

        Only the exception's class name is sent to the other parties, unless it is a refused
        model, which is its sender's fault.
        """
        if isinstance(error, ModelRefusedError):
            return self.abort(error)
        failure = SiteFailedError(f"{self.name} could not go on ({type(error).__name__})")
        failure.__cause__ = error
        return self.abort(failure)

    def _hand_in(self, cue: Cue, action: Callable[[], Sequence[Event]]) -> Sequence[Event]:
        if self.state is State.ABORTED:
            return []
        try:
            return self._advance(cue, action, self.name)
        except ConovelError as error:
            return self.abort(error)

    def _say_hello(self) -> Outbox:
        software, wire_version = self._versions
        hello = Hello(*self._facts, software, wire_version, self.spec.told)
        outbox = self._send([COORDINATOR], hello)
        self.state = State.JOINING
        return outbox

    def _others(self) -> set[str]:
        return {COORDINATOR, *self._peers()}

    def _knows(self, sender: str) -> bool:
        # Before the roster anybody may be a peer; _on_roster settles who was.
        strangers_allowed = not self._agents or sender == COORDINATOR
        return sender != self.name and (strangers_allowed or sender in self._agents)

    def _react(self, message: Message) -> Sequence[Event]:
        body, sender = message.body, message.sender
        if (sender == COORDINATOR) is (body.kind is Kind.MODEL):
            raise UnexpectedMessageError(f"{sender} may not send {body.kind.name}", sender)
        match body:
            case Roster():
                return self._on_roster(body)
            case Model():
                return self._on_model(sender, body.blob, message.round)
            case Sealed():
                return self._on_sealed(body.digests)
            case Left():
                return self._on_left(body.agent)
        return self._on_counting(body, message.round)

    def _on_roster(self, roster: Roster) -> Sequence[Event]:
        agents = roster.agents
        self._insist(self.name in agents, "the roster leaves this agent out")
        for sender in sorted(self._models.senders - set(agents)):
            raise UnknownSenderError(f"{sender} sent a model and is not on the roster", sender)
        self._agents = agents
        self._weights = self._by_agent(agents, roster.weights, "weights", folds=True)
        if not self.regime.exchanges_models:
            return self._ask_for_ranks()
        self.state = State.FITTING
        weight = self._weights.get(self.name, Fraction(0))
        return [FitModels(agents.index(self.name), agents, weight)]

    def _send_models(self, models: Mapping[str, bytes]) -> Sequence[Event]:
        if set(models) != set(self._agents) - {self.name}:
            raise SiteFailedError("the site did not make one model for every peer")
        events: list[Event] = []
        round_ = model_rounds(self.regime)[0]
        for peer in sorted(self._peers()):
            events += self._send([peer], Model(models[peer]), round_)
        return [*events, *self._await_models((round_,))]

    def _send_second(self, models: Sequence[bytes]) -> Sequence[Event]:
        if len(models) != len(SECOND_ROUNDS):
            raise SiteFailedError("the site did not make one model for every fold")
        for round_, blob in zip(SECOND_ROUNDS, models, strict=True):
            self._models.add(self.name, round_, blob)
        self._seal = seal_of(self.run_id, self.name, self._nonce, models)
        self.state = State.SEALING
        return self._send([COORDINATOR], Seal(self._seal))

    def _on_sealed(self, digests: Sequence[bytes]) -> Sequence[Event]:
        """Send the second models, now that nobody's can depend on them."""
        self._insist(len(digests) == len(self._agents), "it does not tell one seal of each agent")
        self._seals = dict(zip(self._agents, digests, strict=True))
        self._insist(self._seals[self.name] == self._seal, "it tells another seal of this agent")
        self._models.add(self.name, OPENING_ROUND, opening_of(self._nonce, self._seals))
        events: list[Event] = []
        rounds = (*SECOND_ROUNDS, OPENING_ROUND)
        for round_ in rounds:
            own = self._models.of_round(round_)[self.name]
            events += self._send(self._peers(), Model(own), round_)
        return [*events, *self._await_models(rounds)]

    def _await_models(self, rounds: Sequence[int]) -> Sequence[Event]:
        """Wait for the models of all peers in these rounds."""
        self._models.wait_for(self._peers(), rounds)
        self.state = State.EXCHANGING
        return self._rank_when_complete()

    def _on_model(self, sender: str, blob: bytes, round_: int) -> Sequence[Event]:
        if not self.regime.exchanges_models:
            raise UnexpectedMessageError(f"{sender} sent a model: none are exchanged", sender)
        if round_ not in model_rounds(self.regime):
            raise UnexpectedMessageError(f"{sender} sent a model of round {round_}", sender)
        if self.regime.composite_null and round_ != FIRST_ROUND and not self._seal:
            raise UnexpectedMessageError(
                f"{sender} sent a second model before all were sealed", sender
            )
        self._models.add(sender, round_, blob)
        return self._rank_when_complete()

    def _on_left(self, agent: str) -> Sequence[Event]:
        self._insist(agent in self._peers(), f"{agent} left, who is not here")
        self._gone.add(agent)
        self._models.give_up(agent)
        return self._rank_when_complete()

    def _rank_when_complete(self) -> Sequence[Event]:
        """Ask for ranks as soon as every peer that is still there has sent its model."""
        if self.state is not State.EXCHANGING or self._models.awaited:
            return []
        if self.regime.composite_null:
            return self._refit_or_compare()
        return self._ask_for_ranks()

    def _refit_or_compare(self) -> Sequence[Event]:
        """Ask for second models, or for the counts once these have come."""
        if not self._models.has(self.name):
            self.state = State.REFITTING
            return [RefitModels(self._models.of_round(FIRST_ROUND))]
        second = [self._models.of_round(round_) for round_ in SECOND_ROUNDS]
        models = {name: tuple(one[name] for one in second) for name in self._agents}
        check_opened(self.run_id, self._seals, self._models.of_round(OPENING_ROUND), models)
        self._models.clear()
        self._score = score_digest(models)
        self.state = State.RANKING
        return [CompareRows(models)]

    def _ask_for_ranks(self) -> Sequence[Event]:
        self.state = State.RANKING
        models = self._models.of_round(0)
        self._models.clear()  # their bytes are not needed any more
        return [RankRows(models)]

    def _send_ready(self, histogram: Counted) -> Sequence[Event]:
        n_calibration = histogram.n_calibration
        n_agents, index = len(self._agents), self._agents.index(self.name)
        n_tested = self.regime.n_tested(self._facts.n_test, index, n_agents)
        if histogram.size != n_tested or n_calibration > self._facts.n_null:
            error = SampleError(f"{histogram.size} ranks among {n_calibration}, not {n_tested}")
            return self.site_failed(error)
        self._histogram = histogram
        kinds = RankHistogram, CellHistogram, FoldHistograms
        by_regime = self.regime.pools_calibration + 2 * self.regime.composite_null
        if not isinstance(histogram, kinds[by_regime]):
            return self.site_failed(InputError("the site counted for another regime"))
        wanted = histogram.n_likely if isinstance(histogram, CellHistogram) else 0
        if isinstance(histogram, RankHistogram) and self.regime.divides_level:
            level = self.spec.test_level(n_agents)
            self._limit = decide_alone(histogram, level, self.spec.pi0)
        self.state = State.READY
        self._told = Ready(histogram.size, n_calibration, wanted)
        return self._send([COORDINATOR], self._told)
