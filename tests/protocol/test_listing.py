"""The list so far of a network: messages in any order, and faults that are named."""

from collections import deque
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel import errors
from conovel.deciding.asking import Count
from conovel.learning.base import State
from conovel.protocol.listing import ListingAgent, ListingCoordinator, history_of
from conovel.protocol.messages import encode
from conovel.spec.bodies import COORDINATOR, Listed, Listing, Message
from conovel.stats.batches import rejections_reach
from conovel.stats.evidence import e_bh

RUN, LEVEL = bytes(range(16)), Fraction(1, 10)


def counter(own, history):
    """From k to the rows of one agent with E ≥ M/(αk)."""
    total = sum(n_tests for n_tests, _ in history)
    return lambda k: sum(
        n
        for n, (n_tests, n_rejected) in zip(own, history, strict=True)
        if rejections_reach(k, n_tests, n_rejected, total)
    )


def parties(rejected, sizes, histories=None):
    """Make the machines of agents with so many rejected rows in each batch."""
    names = [f"agent{i}" for i in range(len(rejected))]
    history = [(sum(m), sum(r)) for m, r in zip(zip(*sizes), zip(*rejected))]  # noqa: B905
    agents = {
        name: ListingAgent(name, RUN, counter(own, history))
        for name, own in zip(names, rejected, strict=True)
    }
    told = histories or [history] * len(names)
    sent = [a.tell(history_of(h, LEVEL)) for a, h in zip(agents.values(), told, strict=True)]
    return ListingCoordinator(names, RUN), agents, [one for part in sent for one in part], history


def carry(coordinator, agents, queue, rng=None):
    queue = deque(queue)
    while queue:
        if rng is not None:
            queue.rotate(int(rng.integers(len(queue))))
        sent = queue.popleft()
        machine = coordinator if sent.receiver == COORDINATOR else agents[sent.receiver]
        queue.extend(machine.receive(sent.data, sent.message.sender))


@st.composite
def networks(draw):
    n_agents, n_batches = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    rows = st.integers(1, 30)
    sizes = [[draw(rows) for _ in range(n_batches)] for _ in range(n_agents)]
    rejected = [[draw(st.integers(0, n)) for n in own] for own in sizes]
    return sizes, rejected, draw(st.integers(0, 2**32))


@given(networks())
def test_counts_decide_what_e_bh_decides(drawn):
    sizes, rejected, seed = drawn
    coordinator, agents, queue, history = parties(rejected, sizes)
    carry(coordinator, agents, queue, np.random.default_rng(seed))
    e_values = []
    for own_sizes, own in zip(sizes, rejected, strict=True):
        for n, k, (m, r) in zip(own_sizes, own, history, strict=True):
            e_value = m / (LEVEL / 2 * r) if r else Fraction(0)
            e_values += [e_value] * k + [Fraction(0)] * (n - k)
    expected = int(e_bh(e_values, LEVEL).sum())
    assert {agent.n_listed for agent in agents.values()} == {expected}
    assert coordinator.state is State.DONE
    asked = [k for k, _ in coordinator.rounds]
    assert asked == sorted(set(asked), reverse=True)


def test_ledgers_of_other_batches_are_found():
    coordinator, agents, queue, history = parties([[3], [2]], [[20], [30]], [[(50, 5)], [(50, 6)]])
    carry(coordinator, agents, queue)
    assert isinstance(coordinator.error, errors.SpecMismatchError)
    assert "all agents need the ledgers of the same batches" in str(coordinator.error)
    for agent in agents.values():
        with pytest.raises(errors.RunAbortedError):
            _ = agent.n_listed
    assert history == [(50, 5)]


def send(machine, body, sender, round_=1):
    machine.receive(encode(Message(RUN, sender, machine.name, round_, body)), sender)
    return machine.error


def test_a_coordinator_that_contradicts_itself_is_found():
    def agent():
        machine = ListingAgent("north", RUN, lambda k: 4 if k > 10 else 0)
        machine.tell(history_of([(50, 4)], LEVEL))
        return machine

    north = agent()
    assert "k must begin at the number of rows" in str(send(north, Listing(49), COORDINATOR))
    north = agent()
    assert send(north, Listing(50), COORDINATOR) is None
    assert "k must fall" in str(send(north, Listing(3), COORDINATOR, 2))
    north = agent()
    send(north, Listing(50), COORDINATOR)
    assert "not the fixed point" in str(send(north, Listed(7), COORDINATOR))
    north = agent()
    send(north, Listing(50), COORDINATOR)
    assert "fewer rows than at this agent" in str(send(north, Listed(0), COORDINATOR))
    north = agent()
    assert isinstance(send(north, Listing(50), "south"), errors.UnknownSenderError)
    with pytest.raises(errors.LocalProtocolError, match="no list yet"):
        _ = agent().n_listed


def test_counts_that_cannot_be_are_found():
    def asking():
        coordinator, _, queue, _ = parties([[3], [2]], [[20], [30]])
        for one in queue:
            coordinator.receive(one.data, one.message.sender)
        return coordinator

    assert isinstance(send(asking(), Count(51), "agent0"), errors.CountOutOfRangeError)
    coordinator = asking()
    assert isinstance(send(coordinator, Count(3), "agent0", 2), errors.UnexpectedMessageError)
    coordinator = asking()
    send(coordinator, Count(3), "agent0")
    assert isinstance(send(coordinator, Count(3), "agent0"), errors.DuplicateMessageError)
    coordinator = asking()
    send(coordinator, Count(3), "agent0")
    send(coordinator, Count(2), "agent1")
    assert coordinator.rounds[-1][0] == 5
    assert isinstance(send(coordinator, Count(4), "agent0", 2), errors.CountRisingError)
    coordinator = asking()
    assert coordinator.drop("agent1")
    assert isinstance(coordinator.error, errors.SiteVanishedError)
    assert coordinator.drop("agent1") == []
    with pytest.raises(errors.InputError, match="different names"):
        ListingCoordinator(["a", "a"], RUN)
