"""Agents that vanish: what is still decided, and what holds for it."""

from __future__ import annotations

import pytest
from support.fake_link import (
    HIGH,
    LEVEL,
    LOW,
    NAMES,
    THIRD,
    Link,
    forge,
    quietly,
    sites_for,
)

from conovel import errors
from conovel.deciding.asking import Below
from conovel.learning.base import State
from conovel.protocol.replay import verify
from conovel.spec.bodies import COORDINATOR, Abort
from conovel.stats.stepup import fast_lsu


@pytest.mark.parametrize("in_flight", ["arrives", "is lost"])
@pytest.mark.parametrize("on_dropout", ["abort", "conservative"])
@pytest.mark.parametrize("regime", ["isolated", "counts", "full"])
def test_an_agent_may_vanish_at_any_moment(regime, on_dropout, in_flight):
    blocks = dict(zip(NAMES, [LOW, HIGH, THIRD], strict=True))
    states = set()
    for victim in NAMES:
        for when in range(100):
            link = Link(
                sites_for(blocks.values()),
                regime=regime,
                level=LEVEL,
                on_dropout=on_dropout,
                seed=when if in_flight == "arrives" else None,
            )
            for _ in range(when):
                link.step()
            state = link.coordinator.state
            if state is State.DONE:
                break
            states.add(state)
            if in_flight == "is lost":
                link.queue = type(link.queue)(c for c in link.queue if c[0] != victim)
            link.kill(victim)
            link.run()
            if state is State.ASKING and on_dropout == "abort":
                assert isinstance(link.coordinator.error, errors.SiteVanishedError)
                for name in set(NAMES) - {victim}:
                    assert link.agents[name].error.culprit == victim
                continue
            outcome = link.coordinator.outcome
            rest = {name: block for name, block in blocks.items() if name != victim}
            assert outcome.participants == tuple(rest)
            if state is State.ASKING:  # its rows still count, and none is rejected
                ranks, size = blocks[victim]
                lost = ([size + 1] * len(ranks), size)
                expected = quietly(fast_lsu, [*rest.values(), lost], LEVEL)
                limits = expected.limits[:2]
                assert (outcome.left_out, outcome.dropped) == ((), (victim,))
                assert outcome.n_tests == sum(len(ranks) for ranks, _ in blocks.values())
                assert outcome.n_rejected == expected.n_rejected
            else:
                assert (outcome.left_out, outcome.dropped) == ((victim,), ())
                assert outcome.n_tests == sum(len(ranks) for ranks, _ in rest.values())
                if regime == "isolated":
                    share = LEVEL / (2 if state is State.GATHERING else 3)
                    limits = [quietly(fast_lsu, [b], share).limits[0] for b in rest.values()]
                else:
                    limits = quietly(fast_lsu, list(rest.values()), LEVEL).limits
            assert [link.agents[name].limit for name in rest] == list(limits)
    asking = {State.ASKING} - ({State.ASKING} if regime == "isolated" else set())
    assert states == {State.GATHERING, State.WAITING} | asking


@pytest.mark.parametrize("pi0", ["storey", "storey:1/5", "quantile", "quantile:1/5"])
@pytest.mark.filterwarnings("ignore::conovel.errors.GuaranteeWarning")
def test_an_agent_lost_while_the_nulls_are_estimated_has_no_small_p_values(pi0):
    """It counts zero from the round in which it is lost, and its rows still count in m."""
    blocks = dict(zip(NAMES, [LOW, HIGH, THIRD], strict=True))
    m = sum(len(ranks) for ranks, _ in blocks.values())
    slopes = {}
    for when in range(100):
        link = Link(
            sites_for(blocks.values()),
            regime="counts",
            level=LEVEL,
            pi0=pi0,
            on_dropout="conservative",
        )
        for _ in range(when):
            link.step()
        if link.coordinator.state is State.DONE:
            break
        if link.coordinator.state is not State.ASKING:
            continue
        estimating = isinstance([*link.transcript.rounds.values()][-1].question, Below)
        link.kill("agent001")
        link.run()
        if link.coordinator.error is not None:  # the quantile has no answer: nothing is decided
            assert pi0 == "quantile"
            continue
        outcome = link.coordinator.outcome
        assert (outcome.n_tests, outcome.dropped) == (m, ("agent001",))
        assert verify({"transcript": link.transcript.to_dict()}) == []
        slopes.setdefault(estimating, []).append(outcome.slope)
    whole = quietly(fast_lsu, list(blocks.values()), LEVEL, pi0=pi0)
    assert set(slopes[False]) == {LEVEL / (whole.pi0 * m)}  # after the estimate it is as it was
    assert all(slope <= slopes[False][0] for slope in slopes.get(True, []))
    if pi0.startswith("storey"):
        ranks, size = HIGH
        lost = quietly(fast_lsu, [LOW, ([size + 1] * len(ranks), size), THIRD], LEVEL, pi0=pi0)
        assert set(slopes[True]) == {LEVEL / (lost.pi0 * m)}


def test_an_agent_given_up_for_lost_is_told_so_when_it_speaks():
    for when in range(60):
        link = Link(
            sites_for([LOW, HIGH, THIRD]), regime="full", level=LEVEL, on_dropout="conservative"
        )
        for _ in range(when):
            link.step()
        if link.coordinator.state is State.DONE:
            break
        link.post(COORDINATOR, link.coordinator.drop("agent001"))
        link.run()
        assert link.coordinator.outcome.participants == ("agent000", "agent002")
        assert link.agents["agent001"].state is not State.DONE
        with pytest.raises(errors.ProtocolError):
            _ = link.agents["agent001"].limit
    assert when > 20


@pytest.mark.parametrize("vouched", [True, False])
def test_whoever_was_given_up_cannot_end_the_run(vouched):
    peer = "agent001" if vouched else ""
    last_words = [forge("agent001", COORDINATOR, Abort("agent000", "X", "lies"))]
    if vouched:
        last_words.append(b"noise")
    for words in last_words:
        link = Link(sites_for([LOW, HIGH, THIRD]), regime="counts", level=LEVEL)
        link.post(COORDINATOR, link.coordinator.drop("agent001"))
        [sent] = link.coordinator.receive(words, peer)
        assert sent.receiver == "agent001"
        assert sent.message.body.fault == "SiteVanishedError"
        link.run()
        assert link.coordinator.outcome.participants == ("agent000", "agent002")


def test_everybody_may_vanish_and_nothing_is_decided():
    for on_dropout in ("abort", "conservative"):
        for when in range(30):
            link = Link(sites_for([LOW, HIGH]), regime="full", level=LEVEL, on_dropout=on_dropout)
            for _ in range(when):
                link.step()
            if link.coordinator.state is State.DONE:
                break
            for name in list(link.agents):
                link.kill(name)
            link.run()
            assert isinstance(link.coordinator.error, errors.SiteVanishedError)


def test_two_vanish_during_the_counts():
    link = Link(
        sites_for([LOW, HIGH, THIRD]), regime="counts", level=LEVEL, on_dropout="conservative"
    )
    while link.coordinator.state is not State.ASKING:
        link.step()
    link.kill("agent001")
    link.kill("agent002")
    link.kill("agent002")  # news that is old
    link.run()
    ranks, size = LOW
    lost = ([10] * 6, 9)
    expected = fast_lsu([(ranks, size), lost], LEVEL)
    assert link.agents["agent000"].limit == expected.limits[0]
    assert link.coordinator.outcome.dropped == ("agent001", "agent002")


def test_vanishing_after_the_outcome_changes_nothing():
    link = Link(sites_for([LOW, HIGH, THIRD]), regime="full", level=LEVEL).run()
    assert link.coordinator.drop("agent000") == []
    assert link.coordinator.outcome.participants == NAMES
