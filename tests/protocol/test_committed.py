"""Committed counting: the same decisions as in rounds, and nothing that can be changed late."""

from __future__ import annotations

import copy
import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_link import (
    HIGH,
    LEVEL,
    LOW,
    NAMES,
    RUN_ID,
    THIRD,
    Link,
    block,
    forge,
    nonce_of,
    quietly,
    sites_for,
    table_of,
)

from conovel import errors
from conovel.deciding.committed import (
    Commit,
    Commitments,
    CommittedCounts,
    Committing,
    Reveal,
    Reveals,
    commitment,
)
from conovel.deciding.counts import claim_of, reveal_ranks
from conovel.learning.base import Out, State
from conovel.protocol.agent import Agent
from conovel.protocol.messages import decode, encode
from conovel.spec.bodies import COORDINATOR, Kind, Message, Ready
from conovel.spec.fields import MAX_STEPS
from conovel.spec.run_spec import RunSpec
from conovel.spec.settings import REVEAL_TO
from conovel.stats.ranks import as_block
from conovel.stats.stepup import RankHistogram, fast_lsu

networks = st.lists(block(), min_size=2, max_size=5).filter(lambda b: any(r for r, _ in b))
levels = st.sampled_from([Fraction(1, 10), Fraction(1, 5), Fraction(1, 2), Fraction(7, 9)])
MEMBERS = {"counting": "committed", "reveal_to": "members"}


def committed(blocks, regime="full", **options):
    return Link(sites_for(blocks, regime), regime=regime, counting="committed", **options)


# What is decided ----------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    networks,
    levels,
    st.sampled_from(["counts", "split", "full"]),
    st.sampled_from(["coordinator", "members"]),
    st.integers(0, 3),
    st.integers(0, 2**32),
)
def test_the_decisions_are_those_of_the_step_up(blocks, level, regime, reveal_to, liars, seed):
    liars = min(liars, len(blocks) - 1)
    options = {"level": level, "liars": liars, "reveal_to": reveal_to, "seed": seed}
    link = committed(blocks, regime, **options).run()
    expected = quietly(fast_lsu, blocks, level, liars=liars)
    outcome = link.coordinator.outcome
    assert (outcome.n_rejected, outcome.rounds) == (expected.n_rejected, 1)
    for agent, limit in zip(link.agents.values(), expected.limits, strict=True):
        assert agent.limit == limit
        assert agent.outcome == outcome
    for mask, wanted in zip(link.masks().values(), expected.rejected, strict=True):
        assert np.array_equal(mask, wanted)


@settings(max_examples=12)
@given(networks, levels, st.integers(0, 2**32))
def test_joint_decides_the_same_from_histograms_and_from_reveals(blocks, level, seed):
    plain = Link(sites_for(blocks, "joint"), regime="joint", level=level, seed=seed).run()
    told = committed(blocks, "joint", level=level, reveal_to="members", seed=seed).run()
    assert told.coordinator.outcome == plain.coordinator.outcome
    for name, agent in told.agents.items():
        assert (agent.limit, agent.floor) == (plain.agents[name].limit, plain.agents[name].floor)


@pytest.mark.parametrize("regime", ["full", "joint"])
def test_a_tolerated_liar_does_not_move_the_others(regime):
    """The liar claims rank 1 for all its rows; the others decide as if it claimed nothing more."""
    honest = [([1, 1, 2, 4, 30] * 2, 199)] * 4
    liar, silent = ([1] * 300, 199), ([200] * 300, 199)
    limits = {}
    for liars in (0, 1):
        for last in (liar, silent):
            link = committed([*honest, last], regime, level=LEVEL, liars=liars).run()
            limits[liars, last is liar] = link.agents["agent000"].limit
    worse = max if regime == "full" else min  # of ranks a larger limit, of cells a smaller one
    assert limits[0, True] == worse(limits.values()) != limits[1, True]


def test_one_exchange_more_than_models_and_no_rounds():
    link = committed([LOW, HIGH, THIRD], level=LEVEL, reveal_to="members").run()
    kinds = [decode(data).body.kind for *_, data in link.delivered]
    for kind in (Kind.COMMIT, Kind.COMMITMENTS, Kind.REVEAL, Kind.REVEALS):
        assert kinds.count(kind) == 3
    assert not {Kind.STEP, Kind.COUNT, Kind.HISTOGRAM} & set(kinds)
    quiet = committed([LOW, HIGH, THIRD], level=LEVEL).run()
    assert Kind.REVEALS not in {decode(data).body.kind for *_, data in quiet.delivered}


def test_nothing_is_revealed_before_everybody_has_committed():
    link = committed([LOW, HIGH, THIRD], level=LEVEL, seed=3)
    while link.step():
        kinds = [decode(data).body.kind for *_, data in link.delivered]
        if Kind.REVEAL in kinds:
            assert kinds.index(Kind.REVEAL) > max(
                i for i, kind in enumerate(kinds) if kind is Kind.COMMIT
            )


# Commitments --------------------------------------------------------------------------------


def test_a_commitment_binds_run_name_nonce_and_every_count():
    reveal = Reveal(bytes(32), 5, 19, 0, (2, 3), (), (2, 1))
    known = commitment(RUN_ID, "north", reveal)
    others = [
        commitment(bytes(16), "north", reveal),
        commitment(RUN_ID, "south", reveal),
        commitment(RUN_ID, "north", dataclasses.replace(reveal, nonce=b"\1" * 32)),
    ]
    for part in ("n_tested", "n_calibration", "n_wanted"):
        others.append(commitment(RUN_ID, "north", dataclasses.replace(reveal, **{part: 7})))
    for part in ("steps", "calibration", "tests"):
        others.append(commitment(RUN_ID, "north", dataclasses.replace(reveal, **{part: (9,)})))
    assert len({known, *others}) == len(others) + 1


@pytest.mark.parametrize("nonce", [b"", bytes(31), bytes(33), "x" * 32, None])
def test_an_agent_needs_a_nonce(nonce):
    spec = RunSpec.of(regime="full", counting="committed")
    with pytest.raises(errors.InputError, match="a secret nonce of 32 bytes"):
        Agent("north", spec=spec, run_id=RUN_ID, nonce=nonce)


def wrong_claims():
    good = reveal_ranks(bytes(32), RankHistogram(*as_block(*LOW)), LEVEL, 11)
    yield "more rows than it has", dataclasses.replace(good, tests=(*good.tests[:-1], 9))
    yield "two steps at once", dataclasses.replace(good, steps=(good.steps[0],) * len(good.steps))
    yield "descending", dataclasses.replace(good, steps=good.steps[::-1])
    yield "none", dataclasses.replace(good, tests=(0,) * len(good.tests))
    yield "another number", dataclasses.replace(good, tests=good.tests[:-1])
    yield "above m", dataclasses.replace(good, steps=(*good.steps[:-1], 12))
    yield "no rank joins at 1", dataclasses.replace(good, steps=(1, *good.steps[1:]))
    yield "at zero", dataclasses.replace(good, steps=(0, *good.steps[1:]))
    yield "cells", dataclasses.replace(good, calibration=(1,))


@pytest.mark.parametrize("reveal", dict(wrong_claims()).values(), ids=dict(wrong_claims()))
def test_counts_that_no_ranks_have_are_refused(reveal):
    with pytest.raises(errors.CountOutOfRangeError) as caught:
        claim_of("north", reveal, LEVEL, 11)
    assert caught.value.culprit == "north"


def test_too_many_steps_have_no_byte_form():
    big = Reveal(bytes(32), 1, 1, 0, tuple(range(MAX_STEPS + 1)), (), ())
    with pytest.raises(errors.LocalProtocolError):
        encode(Message(RUN_ID, "a", "b", 1, big))


@settings(max_examples=30)
@given(block(), levels, st.integers(1, 300), st.data())
def test_a_reveal_says_nothing_about_ranks_above_the_level(own, level, others, data):
    """Only p-values up to α are counted, each by the k at which it joins."""
    ranks, size = own
    m = len(ranks) + others
    most = int(level * (size + 1))
    told = reveal_ranks(bytes(32), RankHistogram(*as_block(ranks, size)), level, m)
    assert sum(told.tests) == sum(rank <= most for rank in ranks)
    anywhere = st.integers(most + 1, size + 1)
    moved = [rank if rank <= most else data.draw(anywhere) for rank in ranks]
    assert told == reveal_ranks(bytes(32), RankHistogram(*as_block(moved, size)), level, m)


def test_the_page_says_who_sees_reveals():
    header = ("`reveal_to`", "the coordinator learns", "the other agents learn")
    named = [row[0].split("`")[1].strip('"') for row in table_of("revealed.md", *header)]
    assert named == list(REVEAL_TO)


# Faults -------------------------------------------------------------------------------------


def stopped_before(kind, sender, **options):
    """A link in which the next message of this kind and sender is about to be delivered."""
    link = committed([LOW, HIGH, THIRD], **{"level": LEVEL, **options})
    while True:
        for (source, receiver), waiting in link.channels.items():
            is_next = waiting and decode(waiting[0]).body.kind is kind
            if is_next and source == sender:
                return link, (source, receiver)
        assert link.step()


def changed(link, channel, change):
    """Deliver the next message of a channel with another body."""
    message = decode(link.channels[channel].popleft())
    body = change(message.body)
    link.channels[channel].appendleft(forge(*channel, body, message.round))
    return link.run()


def assert_ended(link, error, culprit, found_by=COORDINATOR):
    machine = link.machines[found_by]
    assert isinstance(machine.error, error), machine.error
    assert machine.error.culprit == culprit
    for one in link.machines.values():
        assert one.state is State.ABORTED
        with pytest.raises(errors.ProtocolError):
            _ = one.outcome


LIAR = "agent001"


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (Kind.COMMIT, lambda commit: Commit(bytes(32))),
        (Kind.REVEAL, lambda reveal: dataclasses.replace(reveal, nonce=bytes(32))),
        (Kind.REVEAL, lambda reveal: dataclasses.replace(reveal, tests=(9, *reveal.tests[1:]))),
        (Kind.REVEAL, lambda reveal: dataclasses.replace(reveal, steps=(), tests=())),
        (Kind.REVEAL, lambda reveal: dataclasses.replace(reveal, n_calibration=40)),
    ],
    ids=["commitment replaced", "another nonce", "other counts", "no counts", "another number"],
)
@pytest.mark.parametrize("reveal_to", ["coordinator", "members"])
def test_what_is_revealed_must_be_what_was_committed_to(kind, change, reveal_to):
    link, channel = stopped_before(kind, LIAR, reveal_to=reveal_to)
    link = changed(link, channel, change)
    if kind is Kind.COMMIT:  # the agent itself sees that its commitment was replaced on the way
        assert_ended(link, errors.OutcomeMismatchError, COORDINATOR, found_by=LIAR)
    else:
        assert_ended(link, errors.CommitmentError, LIAR)


def test_the_commitment_of_another_agent_is_worth_nothing():
    """It is copied, and later opened with what the other agent revealed."""
    link, channel = stopped_before(Kind.COMMIT, LIAR)
    liar, known = link.agents[LIAR], link.agents["agent000"].deciding.own
    copied = Commit(commitment(RUN_ID, "agent000", known))
    link.channels[channel].popleft()
    link.channels[channel].appendleft(forge(*channel, copied, 1))
    liar.deciding.open = lambda told: (Committing.REVEALED, [Out([COORDINATOR], known, 1)])
    assert_ended(link.run(), errors.CommitmentError, LIAR)


def test_a_commitment_to_false_numbers_is_refused():
    """The hash matches, but not READY: with another ℓ ranks would join at a smaller k."""
    link, channel = stopped_before(Kind.COMMIT, LIAR)
    agent = link.agents[LIAR].deciding
    agent.own = dataclasses.replace(agent.own, n_calibration=9999)
    link.channels[channel].popleft()
    own = Commit(commitment(RUN_ID, LIAR, agent.own))
    link.channels[channel].appendleft(forge(*channel, own, 1))
    assert_ended(link.run(), errors.CountOutOfRangeError, LIAR)


def test_a_reveal_before_all_commitments_and_a_second_commitment_end_the_run():
    link, channel = stopped_before(Kind.COMMIT, LIAR)
    early = copy.deepcopy(link)
    reveal = forge(LIAR, COORDINATOR, early.agents[LIAR].deciding.own, 1)
    early.post(COORDINATOR, early.coordinator.receive(reveal, LIAR))
    assert_ended(early.run(), errors.UnexpectedMessageError, LIAR)
    commit = link.channels[channel][0]
    link.post(COORDINATOR, link.coordinator.receive(commit, LIAR))
    assert_ended(link.run(), errors.DuplicateMessageError, LIAR)


def test_messages_of_another_round_end_the_run():
    link, channel = stopped_before(Kind.COMMIT, LIAR)
    message = decode(link.channels[channel].popleft())
    link.channels[channel].appendleft(forge(*channel, message.body, 2))
    assert_ended(link.run(), errors.UnexpectedMessageError, LIAR)


@pytest.mark.parametrize("kind", [Kind.COMMIT, Kind.REVEAL])
@pytest.mark.parametrize("liars", [0, 1])
def test_a_commitment_that_is_not_opened_ends_the_run(kind, liars):
    """Also where liars are tolerated: nothing is put in its place."""
    link, _ = stopped_before(kind, LIAR, liars=liars)
    link.channels[LIAR, COORDINATOR].clear()
    link.queue = type(link.queue)(pair for pair in link.queue if pair != (LIAR, COORDINATOR))
    while link.step():
        pass
    assert link.coordinator.state in (Committing.COMMITTING, Committing.REVEALING)
    link.kill(LIAR)
    link.run()
    assert isinstance(link.coordinator.error, errors.SiteVanishedError)
    assert "agent001 vanished and did not reveal its counts" in str(link.coordinator.error)
    assert all(agent.state is State.ABORTED for n, agent in link.agents.items() if n != LIAR)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (Kind.COMMITMENTS, lambda b: Commitments(b.agents, (bytes(32), *b.digests[1:]))),
        (Kind.COMMITMENTS, lambda b: Commitments(b.agents[:2], b.digests[:2])),
        (Kind.COMMITMENTS, lambda b: Commitments(b.agents, b.digests[:2])),
        (Kind.REVEALS, lambda b: Reveals(b.agents, (b.reveals[0], b.reveals[0], b.reveals[2]))),
        (Kind.REVEALS, lambda b: Reveals(b.agents, b.reveals[:2])),
        (Kind.REVEALS, lambda b: Reveals(b.agents[1:], b.reveals[1:])),
        (Kind.OUTCOME, lambda b: dataclasses.replace(b, k=b.k + 1)),
        (Kind.OUTCOME, lambda b: dataclasses.replace(b, n_rejected=b.n_rejected + 1)),
        (Kind.OUTCOME, lambda b: dataclasses.replace(b, slope=b.slope * 2)),
        (Kind.OUTCOME, lambda b: dataclasses.replace(b, n_tests=b.n_tests + 1)),
        (Kind.OUTCOME, lambda b: dataclasses.replace(b, rounds=2)),
    ],
)
def test_members_find_what_their_coordinator_changes(kind, change):
    link, channel = stopped_before(kind, COORDINATOR, reveal_to="members")
    found_by = channel[1]
    link = changed(link, channel, change)
    assert_ended(link, errors.OutcomeMismatchError, COORDINATOR, found_by)


@pytest.mark.parametrize(
    "change",
    [
        lambda b: dataclasses.replace(b, slope=b.slope * 2),
        lambda b: dataclasses.replace(b, n_tests=b.n_tests + 1),
        lambda b: dataclasses.replace(b, k=b.n_rejected + 1),
    ],
)
def test_an_agent_that_sees_no_reveals_checks_what_it_can(change):
    link, channel = stopped_before(Kind.OUTCOME, COORDINATOR)
    found_by = channel[1]
    link = changed(link, channel, change)
    assert_ended(link, errors.OutcomeMismatchError, COORDINATOR, found_by)


def test_reveals_that_nobody_agreed_to_and_an_outcome_without_them_are_refused():
    link, channel = stopped_before(Kind.OUTCOME, COORDINATOR)
    agent = link.agents[channel[1]]
    reveals = Reveals(NAMES, tuple(link.agents[name].deciding.own for name in NAMES))
    agent.receive(forge(COORDINATOR, agent.name, reveals, 1), COORDINATOR)
    assert isinstance(agent.error, errors.OutcomeMismatchError)
    link, channel = stopped_before(Kind.REVEALS, COORDINATOR, reveal_to="members")
    agent = link.agents[channel[1]]
    agent.receive(forge(COORDINATOR, agent.name, link.coordinator.outcome, 1), COORDINATOR)
    assert isinstance(agent.error, errors.OutcomeMismatchError)


def test_as_many_liars_as_agents_are_refused_also_when_some_have_left():
    with pytest.raises(errors.InputError, match="liars must be smaller"):
        committed([LOW, HIGH], level=LEVEL, liars=2)
    link = committed([LOW, HIGH, THIRD], level=LEVEL, liars=1)
    link.kill("agent002")
    link.kill("agent001")
    link.run()
    assert isinstance(link.coordinator.error, errors.InputError)


def test_numbers_that_are_not_those_of_ready_are_named():
    reveal = reveal_ranks(nonce_of("a"), RankHistogram(*as_block(*LOW)), LEVEL, 5)
    counts = CommittedCounts(RUN_ID, ("a",), {"a": commitment(RUN_ID, "a", reveal)})
    with pytest.raises(errors.CountOutOfRangeError, match="other numbers than in its READY"):
        counts.add("a", reveal, Ready(5, 20))
    counts.add("a", reveal, Ready(5, 19))
    assert counts.is_revealed
