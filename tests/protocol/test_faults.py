"""Faults of agents and of the coordinator: named, blamed, and never followed by a decision."""

from __future__ import annotations

import copy
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_link import (
    HIGH,
    LEVEL,
    LOW,
    NAMES,
    RUN_ID,
    SCHEMA,
    THIRD,
    FakeSite,
    Link,
    block,
    forge,
    sites_for,
)

from conovel import errors
from conovel.deciding.asking import Below, Count, CountCheck, Step, limit_of
from conovel.deciding.cells import Histogram, block_of
from conovel.deciding.committed import Commit, Commitments, Reveal, Reveals
from conovel.learning.base import State
from conovel.learning.exchange import FitModels
from conovel.protocol.agent import Agent
from conovel.protocol.messages import decode
from conovel.protocol.states import TRANSITIONS
from conovel.runs.network_run import perform
from conovel.spec.bodies import (
    COORDINATOR,
    Hello,
    Kind,
    Left,
    Model,
    Outcome,
    Ready,
    Roster,
    Start,
)
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import N_CELLS
from conovel.stats.ranks import as_block
from conovel.stats.stepup import RankHistogram

# Faults: whatever the state, the run ends, everybody hears of it, and nothing is decided

SAMPLES = {
    Kind.HELLO: Hello(29, 5, 3, SCHEMA, "1.0", 1, RunSpec.of(level=LEVEL, pi0="storey:1/2")),
    Kind.ROSTER: Roster(("agent000", "agent001", "agent002"), 90, 11),
    Kind.MODEL: Model(b"bytes"),
    Kind.READY: Ready(5, 19),
    Kind.LEFT: Left("agent002"),
    Kind.START: Start(("agent000", "agent001", "agent002"), 11),
    Kind.BELOW: Below(Fraction(1, 2)),
    Kind.STEP: Step(11, LEVEL / 11),
    Kind.COUNT: Count(1),
    Kind.COMMIT: Commit(bytes(32)),
    Kind.COMMITMENTS: Commitments(("agent000",), (bytes(32),)),
    Kind.REVEAL: Reveal(bytes(32), 5, 19, 0, (), (), ()),
    Kind.REVEALS: Reveals((), ()),
    Kind.OUTCOME: Outcome(1, 11, LEVEL / 11, 1, ("agent000",), (), ()),
}
COMMITTED = {"pi0": None, "counting": "committed", "reveal_to": "members"}


def at_every_state(target, **options):
    """A link stopped where `target` enters each of its states, and in its later rounds."""
    options = {"regime": "full", "level": LEVEL, "pi0": "storey", **options}
    link = Link(sites_for([LOW, HIGH, THIRD]), **options)
    seen = set()
    while True:
        machine = link.machines[target]
        questions = getattr(machine, "_questions", ())
        where = (machine.state, getattr(machine, "_round", len(questions)))
        if where not in seen:
            seen.add(where)
            yield link
        if not link.step():
            break
    assert {state for state, _ in seen} >= {State.DONE}


def injections(link, target):
    """(what, data, peer, error) for every fault that can be made here."""
    senders = [n for n in (COORDINATOR, *NAMES) if n != target]
    state = link.machines[target].state
    peer = senders[0]
    good = forge(peer, target, SAMPLES[Kind.COUNT], 1)
    yield "garbage", b"not a message", peer, errors.MalformedMessageError
    yield "damage", good[:-1] + b"?", peer, errors.MalformedMessageError
    yield "nothing", b"", "", errors.MalformedMessageError
    yield "version", good[:4] + b"\x07" + good[5:], peer, errors.VersionMismatchError
    for kind, body in SAMPLES.items():
        replay = forge(peer, target, body, run_id=bytes(16))
        yield f"replayed {kind.name}", replay, peer, errors.ReplayedMessageError
    yield "misrouted", forge(peer, "somebody", Count(1), 1), peer, errors.MisroutedMessageError
    yield "forged", good, senders[1], errors.ForgedSenderError
    yield "echo", forge(target, target, Count(1), 1), "", errors.UnknownSenderError
    stranger = forge("stranger", target, SAMPLES[Kind.MODEL])
    yield "stranger", stranger, "stranger", errors.UnknownSenderError
    for sender, receiver, data in link.delivered:
        if receiver == target:
            yield "duplicate", data, sender, errors.DuplicateMessageError
    heard = {(s, decode(d).body.kind) for s, r, d in link.delivered if r == target}
    for kind, body in SAMPLES.items():
        for sender in senders:
            if (state, kind) not in TRANSITIONS and (sender, kind) not in heard:
                early = forge(sender, target, body)
                yield f"{kind.name} while {state}", early, sender, errors.UnexpectedMessageError
    if target == COORDINATOR:
        yield "round", forge(peer, target, Count(1), 99), peer, errors.UnexpectedMessageError
        return
    for kind in SAMPLES.keys() - {Kind.MODEL}:
        imposed = forge(senders[1], target, SAMPLES[kind])
        yield f"{kind.name} from a peer", imposed, senders[1], errors.UnexpectedMessageError


@pytest.mark.parametrize(
    ("target", "options"),
    [
        (COORDINATOR, {}),
        ("agent000", {}),
        ("agent002", {}),
        (COORDINATOR, COMMITTED),
        pytest.param("agent001", COMMITTED, marks=pytest.mark.slow),
    ],
)
def test_every_fault_in_every_state_ends_the_run_without_an_outcome(target, options):
    tried = 0
    for stopped in at_every_state(target, **options):
        for what, data, peer, error in injections(stopped, target):
            link = copy.deepcopy(stopped)
            machine = link.machines[target]
            link.post(target, machine.receive(data, peer))
            if what != "stranger" or machine.state is not State.JOINING:  # settled by the roster
                assert machine.state is State.ABORTED, what
            link.run()
            assert isinstance(machine.error, error), (what, machine.error)
            assert machine.error.culprit in ("", peer, "stranger", target), what
            for other in link.machines.values():
                assert other.state is State.ABORTED, what
                with pytest.raises(errors.ProtocolError):
                    _ = other.outcome
                if isinstance(other, Agent):
                    with pytest.raises(errors.ProtocolError):
                        _ = other.limit
            assert machine.receive(data, peer) == []
            tried += 1
    assert tried > 100


def test_a_broken_run_is_explained_to_everybody():
    link = Link(sites_for([LOW, HIGH, THIRD]), regime="full", level=LEVEL)
    for _ in range(10):
        link.step()
    link.post("agent001", link.agents["agent001"].receive(b"noise", "agent002"))
    link.run()
    assert link.agents["agent001"].error.culprit == "agent002"
    for name in (COORDINATOR, "agent000", "agent002"):
        error = link.machines[name].error
        assert isinstance(error, errors.RunAbortedError)
        assert error.culprit == "agent002"
        assert "agent001 broke the run off" in str(error)
        assert "(MalformedMessageError, CN-511)" in str(error)


def test_nothing_is_published_before_the_end():
    for stopped in at_every_state(COORDINATOR):
        for machine in stopped.machines.values():
            if machine.state is not State.DONE:
                with pytest.raises(errors.LocalProtocolError, match="no outcome yet"):
                    _ = machine.outcome


def run_with(sites, **options):
    options = {"regime": "full", "level": LEVEL, **options}
    return Link(sites, **options).run()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"regime": "counts"}, errors.SpecMismatchError),
        ({"level": Fraction(1, 10)}, errors.SpecMismatchError),
        ({"pi0": "storey"}, errors.SpecMismatchError),
        ({"bits": 4}, errors.SpecMismatchError),
        ({"seed": 1}, errors.SpecMismatchError),
        ({"wire_version": 2}, errors.VersionMismatchError),
        ({"run_id": bytes(16)}, errors.ReplayedMessageError),
    ],
)
def test_an_agent_that_came_for_something_else_is_named(change, error):
    link = Link(sites_for([LOW, HIGH, THIRD]), regime="full", level=LEVEL)
    link.channels["agent001", COORDINATOR].clear()
    options = {"regime": "full", "level": LEVEL, "run_id": RUN_ID, "wire_version": 1} | change
    own = {name: options.pop(name) for name in ("run_id", "wire_version")}
    agent = Agent("agent001", spec=RunSpec.of(**options), **own)
    link.agents["agent001"] = agent
    for sent in agent.join(link.sites["agent001"].facts):
        link.channels["agent001", COORDINATOR].append(sent.data)
    link.run()
    assert isinstance(link.coordinator.error, error)
    assert link.coordinator.error.culprit == "agent001"
    assert all(machine.state is State.ABORTED for machine in link.machines.values())


@pytest.mark.parametrize("odd", NAMES)
def test_other_columns_than_most_have_are_named(odd):
    sites = sites_for([LOW, HIGH, THIRD])
    sites[odd] = FakeSite(odd, *LOW, schema=b"\x01" * 32)
    link = run_with(sites)
    assert isinstance(link.coordinator.error, errors.SchemaMismatchError)
    assert link.coordinator.error.culprit == odd


class Liar(Agent):
    """An agent that changes what it sends."""

    def __init__(self, *args, lie, **kwargs):
        super().__init__(*args, **kwargs)
        self.lie = lie

    def _send(self, receivers, body, round_=0):
        return super()._send(receivers, self.lie(body, round_), round_)


def with_liar(lie, blocks=(LOW, HIGH, THIRD), **options):
    options = {"regime": "full", "level": LEVEL, **options}
    sites = sites_for(blocks, options["regime"])
    link = Link(sites, **options)
    spec = RunSpec.of(**{key: options.get(key) for key in ("regime", "level", "pi0")})
    liar = Liar("agent001", spec=spec, run_id=RUN_ID, wire_version=1, lie=lie)
    link.channels["agent001", COORDINATOR].clear()
    link.agents["agent001"] = liar
    for sent in liar.join(sites["agent001"].facts):
        link.channels["agent001", COORDINATOR].append(sent.data)
    return link.run()


def change_counts(change):
    return lambda body, round_: Count(change(body.count, round_)) if type(body) is Count else body


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        (change_counts(lambda n, _: 5), errors.CountOutOfRangeError),
        (change_counts(lambda n, round_: min(round_, 4)), errors.CountRisingError),
        (lambda b, _: Ready(5, 39) if type(b) is Ready else b, errors.CountOutOfRangeError),
        (lambda b, _: Ready(3, 39) if type(b) is Ready else b, errors.CountOutOfRangeError),
        (lambda b, _: Ready(4, 50) if type(b) is Ready else b, errors.CountOutOfRangeError),
        (lambda b, _: Ready(4, 0) if type(b) is Ready else b, errors.CountOutOfRangeError),
    ],
)
def test_counts_that_cannot_be_true_are_named(lie, error):
    link = with_liar(lie)
    assert isinstance(link.coordinator.error, error)
    assert link.coordinator.error.culprit == "agent001"
    assert all(machine.state is State.ABORTED for machine in link.machines.values())


@given(block(), st.lists(st.fractions(0, 2, max_denominator=20), max_size=8))
def test_true_counts_are_never_refused(block, points):
    ranks, size = block
    histogram = RankHistogram(np.asarray(ranks, dtype=np.int64), size)
    tally = CountCheck("north", len(ranks), size)
    for point in points:
        tally.add(Below(point), histogram.below(point))


@given(block(), st.lists(st.tuples(st.fractions(0, 1, max_denominator=20), st.integers(0, 9))))
def test_accepted_counts_are_those_of_some_ranks(block, claims):
    _, size = block
    tally = CountCheck("north", 6, size)
    accepted = {}
    for point, count in claims:
        try:
            tally.add(Below(point), count)
        except errors.RemoteProtocolError:
            continue
        accepted[max(limit_of(Below(point), size), 0)] = count
    # The smallest ranks that give every accepted count; rank size + 1 fills up.
    at = sorted(accepted.items())
    ranks = [min([r for r, n in at if n > i], default=size + 1) for i in range(6)]
    assert all(1 <= rank <= size + 1 for rank in ranks)
    assert all(sum(rank <= r for rank in ranks) == n for r, n in at)


def test_a_site_that_fails_does_not_say_why_to_others():
    class Broken(FakeSite):
        def ranks(self, models):
            raise ValueError("row 17 of Alice is 3.14")

    link = run_with(sites_for([LOW, HIGH]) | {"broken": Broken("broken", *LOW)})
    error = link.agents["broken"].error
    assert isinstance(error, errors.SiteFailedError)
    assert "Alice" in str(error.__cause__)
    assert link.coordinator.error.culprit == "broken"
    assert not any(b"Alice" in data for *_, data in link.delivered)


@pytest.mark.parametrize("models", [{}, {"agent000": b""}, {"agent000": b"", "zorro": b""}])
def test_a_site_must_make_one_model_for_every_peer(models):
    class Lazy(FakeSite):
        def models(self, index, names, weight):
            return models

    link = run_with(sites_for([LOW, HIGH]) | {"lazy": Lazy("lazy", *LOW)})
    assert isinstance(link.agents["lazy"].error, errors.SiteFailedError)


@pytest.mark.parametrize("ranks", [([1, 2], 9), ([1], 999), ([0], 9), ([1.0], 9), ([11], 9)])
def test_a_site_must_rank_what_it_said_it_has(ranks):
    class Odd(FakeSite):
        def ranks(self, models):
            return RankHistogram(*as_block(*ranks))

    link = run_with(sites_for([LOW, HIGH]) | {"odd": Odd("odd", [1], 9)})
    assert isinstance(link.agents["odd"].error, errors.SiteFailedError)
    assert isinstance(link.agents["odd"].error.__cause__, errors.InputError)


def test_an_abort_fits_into_a_message_whatever_it_says():
    link = Link(sites_for([LOW, HIGH]), regime="full", level=LEVEL)
    error = errors.SiteVanishedError("a\nlong story, " * 100, "ü" * 40)
    link.post(COORDINATOR, link.coordinator.abort(error))
    link.run()
    assert link.coordinator.error is error
    assert {agent.error.culprit for agent in link.agents.values()} == {"ü" * 32}


def test_a_model_that_cannot_be_decoded_is_its_makers_fault():
    class Picky(FakeSite):
        def ranks(self, models):
            raise errors.ModelRefusedError("agent000 sent no model", "agent000")

    link = run_with(sites_for([LOW, HIGH]) | {"picky": Picky("picky", *LOW)})
    assert isinstance(link.agents["picky"].error, errors.ModelRefusedError)
    assert link.coordinator.error.culprit == "agent000"


# An agent holds its coordinator to what it said before


def lead(*bodies, pi0=None, regime="full"):
    """Play a coordinator to one agent: what it makes of these messages."""
    site = FakeSite("agent000", *LOW, regime=regime)
    agent = Agent("agent000", spec=RunSpec.of(regime=regime, level=LEVEL, pi0=pi0), run_id=RUN_ID)
    agent.join(site.facts)
    for sender, round_, body in bodies:
        perform(agent, site, agent.receive(forge(sender, "agent000", body, round_)))
    return agent


PAIR = ("agent000", "agent001")
ROSTER = (COORDINATOR, 0, Roster(PAIR, 60, 10))
MODEL = ("agent001", 0, Model(b"agent001 for agent000"))
START = (COORDINATOR, 0, Start(PAIR, 10))
SLOPE = LEVEL / 10


@pytest.mark.parametrize(
    ("bodies", "error"),
    [
        ([(0, Roster(("agent001",), 60, 10))], errors.OutcomeMismatchError),
        ([(0, Start(("agent000",), 10))], errors.OutcomeMismatchError),
        ([(0, Start(PAIR, 4))], errors.OutcomeMismatchError),
        ([(0, Left("stranger"))], errors.OutcomeMismatchError),
        ([(0, Left("agent000"))], errors.OutcomeMismatchError),
        ([START[1:], (1, Step(9, SLOPE))], errors.OutcomeMismatchError),
        ([START[1:], (1, Step(10, SLOPE * 2))], errors.OutcomeMismatchError),
        ([START[1:], (2, Step(10, SLOPE))], errors.UnexpectedMessageError),
        ([START[1:], (1, Step(10, SLOPE)), (2, Step(10, SLOPE))], errors.OutcomeMismatchError),
        ([START[1:], (1, Step(10, SLOPE)), (2, Step(1, SLOPE))], errors.OutcomeMismatchError),
        ([START[1:], (1, Step(10, SLOPE)), (2, Step(5, SLOPE / 2))], errors.OutcomeMismatchError),
        ([START[1:], (1, Below(Fraction(1, 2)))], errors.OutcomeMismatchError),
        ([START[1:], (0, Outcome(3, 10, SLOPE, 1, PAIR, (), ()))], errors.OutcomeMismatchError),
        (
            [START[1:], (1, Step(10, SLOPE)), (1, Outcome(9, 10, SLOPE, 1, PAIR, (), ()))],
            errors.OutcomeMismatchError,
        ),
        (
            [START[1:], (1, Step(10, SLOPE)), (1, Outcome(10, 10, SLOPE * 2, 1, PAIR, (), ()))],
            errors.OutcomeMismatchError,
        ),
        (
            [START[1:], (1, Step(10, SLOPE)), (1, Outcome(10, 9, SLOPE, 1, PAIR, (), ()))],
            errors.OutcomeMismatchError,
        ),
        (
            [START[1:], (1, Step(10, SLOPE)), (1, Outcome(10, 10, SLOPE, 1, PAIR[1:], (), ()))],
            errors.OutcomeMismatchError,
        ),
        ([(0, Outcome(0, 10, Fraction(0), 0, PAIR, (), ()))], errors.OutcomeMismatchError),
        ([(0, Outcome(0, 0, Fraction(0), 0, PAIR, (), ()))], errors.OutcomeMismatchError),
    ],
)
def test_a_coordinator_that_contradicts_itself_is_found_out(bodies, error):
    steps = [(COORDINATOR, *body) for body in bodies]
    agent = lead(*([] if isinstance(bodies[0][1], Roster) else [ROSTER, MODEL]), *steps)
    assert isinstance(agent.error, error)
    assert agent.error.culprit == COORDINATOR


JOINT = (COORDINATOR, 0, Roster(PAIR, 60, 10, (Fraction(1, 2),) * 2))
ALONE = (COORDINATOR, 0, Roster(PAIR, 60, 10, (Fraction(0),) * 2))
X = Fraction(1, 10)


@pytest.mark.parametrize(
    ("roster", "bodies"),
    [
        (ROSTER, []),
        ((COORDINATOR, 0, Roster(PAIR, 60, 10, (Fraction(1, 2),))), []),
        (JOINT, [(0, Start(PAIR, 10))]),
        (JOINT, [(0, Start(PAIR, 10, (X,)))]),
        (JOINT, [(0, Start(PAIR, 10, (Fraction(1, 7),) * 2))]),
        (JOINT, [(0, Start(PAIR, 10, (X, 2 * X)))]),
        (ALONE, [(0, Start(PAIR, 10, (X, Fraction(0))))]),
        (JOINT, [(0, Start(PAIR, 10, (X, X))), (1, Outcome(9, 10, 0 * X, 1, PAIR, (), ()))]),
        (
            JOINT,
            [(0, Start(PAIR, 10, (X, X))), (1, Outcome(9, 10, 0 * X, 1, PAIR, (), (), (3, 4)))],
        ),
        (
            JOINT,
            [
                (0, Start(PAIR, 10, (X, X))),
                (1, Outcome(9, 10, 0 * X, 1, PAIR, (), (), (999,) * 2)),
            ],
        ),
        (
            JOINT,
            [(0, Start(PAIR, 10, (X, X))), (1, Outcome(0, 10, 0 * X, 1, PAIR, (), (), (0, 0)))],
        ),
    ],
)
def test_weights_x_and_cells_must_fit_together(roster, bodies):
    steps = [(COORDINATOR, *body) for body in bodies]
    agent = lead(roster, MODEL, *steps, regime="joint")
    assert isinstance(agent.error, errors.OutcomeMismatchError)


@pytest.mark.parametrize(("roster", "x"), [(JOINT, X), (ALONE, 0 * X)])
def test_an_agent_sends_what_its_group_needs(roster, x):
    outcome = Outcome(5, 10, 0 * X, 1, PAIR, (), (), (100, 100))
    steps = [(COORDINATOR, 0, Start(PAIR, 10, (x, x))), (COORDINATOR, 1, outcome)]
    agent = lead(roster, MODEL, *steps, regime="joint")
    assert agent.error is None
    # 19 calibration rows in the cells from 126 down. With x two rows are above the floor: two
    # tests in cell 127. Without a floor three calibration rows are above, α(ℓ + 1) - 1.
    assert agent.floor == (127 if x else 124)


@pytest.mark.parametrize(("x", "n", "most"), [(Fraction(0), 4, 3), (X, 3, 2)])
def test_a_histogram_may_not_count_more_than_its_group_needs(x, n, most):
    counts = Histogram((0,) * (N_CELLS - 1) + (n,), (0,) * N_CELLS)
    with pytest.raises(errors.CountOutOfRangeError, match=f"x = {x} allows {most}") as raised:
        block_of("agent000", Ready(5, 19), counts, x, LEVEL)
    assert raised.value.culprit == "agent000"
    fewer = Histogram((0,) * (N_CELLS - 1) + (most,), (0,) * N_CELLS)
    assert block_of("agent000", Ready(5, 19), fewer, x, LEVEL).n_above == most


def test_the_steps_begin_at_all_tests_also_with_an_estimator():
    steps = [(COORDINATOR, 1, Step(9, SLOPE)), (COORDINATOR, 1, Step(10, SLOPE * 2))]
    error = lead(ROSTER, MODEL, START, steps[0], pi0="storey").error
    assert isinstance(error, errors.OutcomeMismatchError)
    assert lead(ROSTER, MODEL, START, steps[1], pi0="storey").error is None


def test_a_move_that_is_not_in_the_table_is_not_made(monkeypatch):
    def jump(self, roster):
        self.state = State.DONE
        return [FitModels(0, roster.agents)]

    monkeypatch.setattr(Agent, "_on_roster", jump)
    agent = lead(ROSTER)
    assert isinstance(agent.error, errors.LocalProtocolError)
    assert agent.state is State.ABORTED


def test_a_coordinator_may_not_pry():
    questions = [(COORDINATOR, i, Below(Fraction(i, 1000))) for i in range(1, 100)]
    agent = lead(ROSTER, MODEL, START, *questions, pi0="quantile")
    assert isinstance(agent.error, errors.OutcomeMismatchError)
    assert len(agent.deciding._questions) == 64


def test_no_counts_where_everybody_decides_alone():
    agent = lead(ROSTER, START, regime="isolated")
    assert isinstance(agent.error, errors.OutcomeMismatchError)
    agent = lead(ROSTER, MODEL, regime="isolated")
    assert isinstance(agent.error, errors.UnexpectedMessageError)
    agent = lead(MODEL, regime="counts")
    assert isinstance(agent.error, errors.UnexpectedMessageError)


def test_an_agent_that_has_not_joined_answers_nobody():
    site = FakeSite("agent000", *LOW)
    agent = Agent("agent000", spec=RunSpec.of(level=LEVEL), run_id=RUN_ID)
    agent.receive(forge(COORDINATOR, "agent000", ROSTER[2]))
    assert isinstance(agent.error, errors.UnexpectedMessageError)
    with pytest.raises(errors.LocalProtocolError, match="joined already"):
        agent.join(site.facts)
