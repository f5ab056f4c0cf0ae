"""The regime `consensus` over messages: rounds of sums, counts by type, and what is refused."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from support.fake_link import LEVEL, NAMES, Link, forge, quietly, sites_for

from conovel.deciding.types import SharedCounts, check_score, groups_of
from conovel.errors import (
    CountOutOfRangeError,
    OutcomeMismatchError,
    SiteVanishedError,
    UnexpectedMessageError,
)
from conovel.learning.base import State
from conovel.learning.together.way import Totals
from conovel.protocol.messages import decode, encode
from conovel.spec.bodies import COORDINATOR, Kind, Outcome, Ready
from conovel.spec.consensus import types_of
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers
from conovel.stats.cells import N_CELLS

BLOCKS = [([1, 1, 1, 2, 150, 160], 199), ([1, 1, 170, 180], 199), ([1, 120], 199)]


def linked(**options):
    sites = sites_for(BLOCKS, "consensus")
    return quietly(Link, sites, regime="consensus", level=LEVEL, **options)


def kinds(link):
    return [(decode(data).body.kind, decode(data).round) for *_, data in link.delivered]


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_sums_go_round_and_counts_once(seed):
    link = linked(seed=seed).run()
    assert link.coordinator.state is State.DONE
    sent = kinds(link)
    rounds = [round_ for kind, round_ in sent if kind is Kind.SUMS]
    assert max(rounds) > 10
    for round_ in range(1, max(rounds) + 1):
        assert sent.count((Kind.SUMS, round_)) == sent.count((Kind.TOTALS, round_)) == 3
    assert sent.count((Kind.SHARED, 1)) == 3
    assert not any(kind is Kind.MODEL for kind, _ in sent)
    outcome = link.coordinator.outcome
    assert outcome.n_rejected == sum(agent.n_rejected for agent in link.agents.values())
    assert outcome.n_rejected >= 6
    assert len(outcome.cells) == 1
    assert outcome.conforming == dict.fromkeys(NAMES, 0)  # ten rows tell nothing of normals


def tampered(change, kind, link=None, sender=NAMES[0], receiver=None):
    """A run in which one message is changed on its way."""
    link = link or linked()
    post, done = link.post, []

    def changed(source, outbox):
        outbox = list(outbox)
        for place, sent in enumerate(outbox):
            message = sent.message
            is_meant = source == sender and receiver in (None, sent.receiver)
            if not is_meant or message.body.kind is not kind or done:
                continue
            if (body := change(message)) is not None:
                done.append(body)
                message = replace(message, body=body)
                outbox[place] = replace(sent, data=encode(message), message=message)
        post(source, outbox)

    link.post = changed
    link.run()
    assert done
    return link


# Totals --------------------------------------------------------------------------------------


def test_an_agent_that_was_told_other_totals_has_another_score():
    """A coordinator that tells one agent another centre: its score is not that of the others."""

    def other(message):
        numbers = np.frombuffer(message.body.numbers, "<i8").copy()
        if numbers.size != 3 * 4:  # the round of the centres: three agents, three columns
            return None
        numbers[0] += 1
        return Totals(numbers.tobytes())

    link = tampered(other, Kind.TOTALS, sender=COORDINATOR, receiver=NAMES[2])
    assert isinstance(link.coordinator.error, OutcomeMismatchError)
    assert link.coordinator.error.culprit == NAMES[2]


@pytest.mark.parametrize("numbers", [b"", bytes(8), bytes(16)])
def test_a_total_that_cannot_be_is_the_fault_of_the_coordinator(numbers):
    link = tampered(
        lambda m: Totals(numbers) if m.round == 1 else None, Kind.TOTALS, sender=COORDINATOR
    )
    errors = [agent.error for agent in link.agents.values()]
    assert any(isinstance(e, OutcomeMismatchError) and e.culprit == COORDINATOR for e in errors)


# Counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["calibration", "tests"])
def test_counts_of_other_numbers_of_rows_are_refused(part):
    def more(message):
        counts = getattr(message.body, part)
        return replace(message.body, **{part: (counts[0] + 1, *counts[1:])})

    link = tampered(more, Kind.SHARED)
    assert isinstance(link.coordinator.error, CountOutOfRangeError)
    assert link.coordinator.error.culprit == NAMES[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"conforms": N_CELLS + 1},
        {"floor": N_CELLS + 1},
        {"near_tests": (0, 0)},
        {"near_tests": (900, 0, 0)},
        {"near_calibration": (0, 900, 0)},
        {"near_trained": (1,)},
    ],
)
def test_regions_and_limits_that_cannot_be_are_refused(wrong):
    link = tampered(lambda m: replace(m.body, **wrong), Kind.SHARED)
    assert isinstance(link.coordinator.error, CountOutOfRangeError)


def test_an_agent_with_another_floor_is_noticed():
    link = tampered(lambda m: replace(m.body, floor=m.body.floor + 1), Kind.SHARED)
    assert isinstance(link.coordinator.error, OutcomeMismatchError)


def test_the_coordinator_refuses_ranks_before_the_score_is_learnt():
    link = linked()
    while link.coordinator.state is not State.WAITING:
        link.step()
    link.coordinator.receive(forge(NAMES[0], COORDINATOR, Ready(6, 199)), NAMES[0])
    assert isinstance(link.coordinator.error, UnexpectedMessageError)


@pytest.mark.parametrize("steps", [12, 20, 30])
def test_an_agent_that_vanishes_ends_the_run(steps):
    link = linked()
    while len(link.delivered) < steps:
        link.step()
    link.kill(NAMES[1])
    link.run()
    assert isinstance(link.coordinator.error, SiteVanishedError)


def test_an_agent_checks_the_outcome_against_its_own_counts():
    link = linked().run()
    outcome = link.coordinator.outcome
    agent = link.agents[NAMES[0]]
    wrong = [
        replace(outcome, n_rejected=1),
        replace(outcome, cells=(N_CELLS + 1,)),
        replace(outcome, cells=outcome.cells * 2),
        replace(outcome, conforms=outcome.conforms[1:]),
        replace(outcome, conforms=(1, *outcome.conforms[1:])),
        replace(outcome, n_tests=outcome.n_tests + 1),
    ]
    for one in wrong:
        fresh = linked()
        while fresh.agents[NAMES[0]].state is not State.COUNTING:
            fresh.step()
        with pytest.raises(OutcomeMismatchError):
            fresh.agents[NAMES[0]]._on_outcome(one)
    assert isinstance(outcome, Outcome)
    assert agent.n_rejected > 0


def test_agents_with_few_known_normals_are_no_types():
    spec = RunSpec.of(regime="consensus", level=Fraction(1, 10))
    rich, thin = Numbers(2000, 100), Numbers(60, 100)
    assert types_of({"a": rich, "b": thin, "c": rich}, spec, 3) == ("a", "c")
    assert types_of({"a": thin, "b": thin}, spec, 2) == ("a", "b")  # nobody is better
    assert types_of({"a": rich, "b": Numbers(1, 9), "c": Numbers(0, 9)}, spec, 3) == ("a",)


def counts_with(**fields):
    none = (0,) * N_CELLS
    base = SharedCounts(none, none, 0, (0, 0), (0, 0), (0, 0), 0, 0, bytes(32))
    return replace(base, **fields)


def test_agents_with_another_score_are_noticed():
    counts, other = counts_with(), counts_with(score=bytes([1] * 32))
    check_score({"a": counts, "b": counts})
    with pytest.raises(OutcomeMismatchError, match="another score") as caught:
        check_score({"a": counts, "b": other, "c": counts})
    assert caught.value.culprit == "b"


def test_regions_and_levels_follow_from_the_counts_of_all():
    """Two types apart: each has the rows nearest to it, and the level goes by tails."""
    cells = (10, 4, *(0,) * (N_CELLS - 2))
    north = counts_with(
        calibration=cells, tests=cells, floor=1, near_trained=(20, 1), n_tail=1,
        near_tests=(7, 3), near_calibration=(9, 1),
    )  # fmt: skip
    south = counts_with(
        calibration=cells, tests=cells, floor=1, near_trained=(0, 21), n_tail=0,
        near_tests=(2, 8), near_calibration=(0, 10),
    )  # fmt: skip
    first, second = groups_of({"north": north, "south": south}, ["north", "south"], "1/10")
    assert (first.level, second.level) == (Fraction(3, 40), Fraction(1, 40))
    assert (first.n_region, second.n_region) == (9, 11)
    assert [one.n_region for one in (*first.types, *second.types)] == [9, 10]
    # Near one another they are one group, whose region is all rows below the floor.
    south = replace(south, near_trained=(11, 10))
    (group,) = groups_of({"north": north, "south": south}, ["north", "south"], "1/10")
    assert group.level == Fraction(1, 10)
    assert group.n_region == 20
    assert [one.n_region for one in group.types] == [10, 10]
    # An agent that is no type has no group. Its test rows count.
    (group,) = groups_of({"north": north, "south": south}, ["north"], "1/10")
    assert (group.n_region, len(group.types)) == (20, 1)
    assert groups_of({"north": north, "south": south}, [], "1/10") == []
