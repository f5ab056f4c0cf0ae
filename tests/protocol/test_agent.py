"""One agent by itself: what it asks of its driver, what it answers, whom it does not believe.

The other parties are messages that are written here. The example is small enough to do by hand:
α = 1/2 and m = 10, so question k asks for p-values of at most k/20, which are ranks of at most k
among 19 calibration rows.
"""

from fractions import Fraction

import pytest
from support.fake_link import RUN_ID, SCHEMA, forge

from conovel import errors
from conovel.deciding.asking import Count
from conovel.deciding.asking import Step as Question
from conovel.learning.base import RankRows, State
from conovel.learning.exchange import FitModels
from conovel.protocol.agent import Agent
from conovel.spec.bodies import (
    COORDINATOR,
    Abort,
    Hello,
    Left,
    Model,
    Outcome,
    Ready,
    Roster,
    Start,
)
from conovel.spec.facts import Facts
from conovel.spec.run_spec import RunSpec
from conovel.stats.ranks import as_block
from conovel.stats.stepup import RankHistogram

FACTS = Facts(n_null=30, n_test=5, n_features=3, schema=SCHEMA)
AGENTS = ("north", "south")
ROSTER = Roster(AGENTS, 60, 10)
RANKS = [1, 1, 2, 5, 9]
SLOPE = Fraction(1, 20)


def north(regime="counts", **settings):
    spec = RunSpec.of(regime=regime, level=Fraction(1, 2), **settings)
    return Agent("north", spec=spec, run_id=RUN_ID, software="1.0", wire_version=7)


def joined(regime="counts"):
    agent = north(regime)
    agent.join(FACTS)
    return agent


def tell(agent, body, round_=0, sender=COORDINATOR):
    return agent.receive(forge(sender, "north", body, round_), sender)


def counted(ranks=RANKS, n_calibration=19):
    return RankHistogram(*as_block(ranks, n_calibration))


def counting():
    """An agent that has ranked its rows and waits for questions."""
    agent = joined()
    tell(agent, ROSTER)
    agent.work_done(counted())
    tell(agent, Start(AGENTS, 10))
    return agent


def outcome(n_rejected=5, n_tests=10, slope=SLOPE, participants=AGENTS):
    return Outcome(n_rejected, n_tests, slope, 3, participants, (), ())


def test_it_says_hello_with_its_numbers_columns_and_settings():
    agent = north()
    [hello] = agent.join(FACTS)
    assert hello.receiver == COORDINATOR
    assert hello.message.body == Hello(*FACTS, "1.0", 7, agent.spec.told)
    assert agent.state is State.JOINING


def test_it_joins_once():
    agent = joined()
    with pytest.raises(errors.LocalProtocolError, match="north has joined already"):
        agent.join(FACTS)


def test_without_models_the_roster_asks_for_ranks():
    assert tell(joined(), ROSTER) == [RankRows({})]


def test_it_answers_each_question_with_one_number_and_rejects_by_the_last():
    agent = counting()
    for round_, (k, count) in enumerate([(10, 5), (6, 4), (5, 4)], start=1):
        [answer] = tell(agent, Question(k, SLOPE), round_)
        assert (answer.receiver, answer.message.body) == (COORDINATOR, Count(count))
    assert tell(agent, outcome()) == []
    assert agent.state is State.DONE
    assert (agent.limit, agent.n_rejected) == (5, 4)
    assert agent.outcome == outcome()


def test_there_is_no_outcome_before_the_end():
    with pytest.raises(errors.LocalProtocolError, match="north has no outcome yet"):
        _ = counting().limit


@pytest.mark.parametrize(
    ("questions", "message", "words"),
    [
        ([], Question(9, SLOPE), "k must begin at the number of tests"),
        ([], Question(10, 2 * SLOPE), "the slope is not α/m"),
        ([10], Question(10, SLOPE), "k must fall"),
        ([10], Question(4, SLOPE), "to the sum of counts"),  # its own count is 5
        ([10], Question(6, SLOPE / 2), "the slope has changed"),
        ([10, 6, 5], outcome(n_rejected=6), "not the fixed point"),
        ([10, 6, 5], outcome(n_tests=11), "another number of tests"),
        ([10, 6, 5], outcome(participants=("north",)), "the outcome is about others"),
    ],
)
def test_it_holds_the_coordinator_to_the_rule(questions, message, words):
    agent = counting()
    for round_, k in enumerate(questions, start=1):
        tell(agent, Question(k, SLOPE), round_)
    is_question = isinstance(message, Question)
    sent = tell(agent, message, len(questions) + 1 if is_question else 0)
    assert isinstance(agent.error, errors.OutcomeMismatchError)
    assert words in str(agent.error)
    assert {type(one.message.body) for one in sent} == {Abort}
    with pytest.raises(errors.OutcomeMismatchError):
        _ = agent.n_rejected


def test_a_roster_without_it_is_refused():
    agent = joined()
    tell(agent, Roster(("east", "south"), 60, 10))
    assert "the roster leaves this agent out" in str(agent.error)


def test_every_peer_gets_its_own_model():
    agent = joined("full")
    agents = ("east", "north", "south")
    assert tell(agent, Roster(agents, 90, 15)) == [FitModels(1, agents)]
    sent = agent.work_done({"east": b"for east", "south": b"for south"})
    assert {one.receiver: one.message.body.blob for one in sent} == {
        "east": b"for east",
        "south": b"for south",
    }
    assert agent.awaited == ["east", "south"]


def test_it_ranks_once_all_models_have_come():
    agent = joined("full")
    tell(agent, ROSTER)
    agent.work_done({"south": b"mine"})
    assert tell(agent, Model(b"theirs"), sender="south") == [RankRows({"south": b"theirs"})]
    assert agent.awaited == []
    [ready] = agent.work_done(counted())
    assert ready.message.body == Ready(n_tested=5, n_calibration=19)


def test_it_does_not_wait_for_a_peer_that_left():
    agent = joined("full")
    tell(agent, ROSTER)
    agent.work_done({"south": b"mine"})
    assert tell(agent, Left("south")) == [RankRows({})]


@pytest.mark.parametrize(
    ("regime", "body", "sender", "words"),
    [
        ("full", Model(b"x"), COORDINATOR, "coordinator may not send MODEL"),
        ("full", Left("south"), "south", "south may not send LEFT"),
        ("counts", Model(b"x"), "south", "south sent"),
        ("full", Model(b"x"), "east", "east does not take part"),
    ],
)
def test_it_takes_each_message_from_its_sender_alone(regime, body, sender, words):
    agent = joined(regime)
    tell(agent, ROSTER)
    tell(agent, body, sender=sender)
    assert isinstance(agent.error, errors.RemoteProtocolError)
    assert agent.error.culprit == sender
    assert words in str(agent.error)


@pytest.mark.parametrize(
    "histogram",
    [counted([1, 2]), counted(n_calibration=31)],  # it said 5 test rows and 30 known normals
)
def test_ranks_must_be_of_the_rows_it_told(histogram):
    agent = joined()
    tell(agent, ROSTER)
    sent = agent.work_done(histogram)
    assert [(one.receiver, type(one.message.body)) for one in sent] == [
        (COORDINATOR, Abort),
        ("south", Abort),
    ]
    assert isinstance(agent.error, errors.SiteFailedError)


def test_only_the_class_of_a_failure_leaves_the_site():
    agent = joined()
    tell(agent, ROSTER)
    sent = agent.site_failed(ValueError("patient 4711"))
    assert {one.message.body.reason for one in sent} == {"north could not go on (ValueError)"}
    assert not any(b"4711" in one.data for one in sent)


def test_a_refused_model_is_its_senders_fault():
    agent = joined("full")
    tell(agent, ROSTER)
    sent = agent.site_failed(errors.ModelRefusedError("the model of south is too deep", "south"))
    assert {one.message.body.culprit for one in sent} == {"south"}


def test_after_the_end_it_says_nothing():
    agent = joined()
    agent.site_failed(ValueError())
    assert tell(agent, ROSTER) == []
    assert agent.work_done(counted()) == []
