"""Two kinds of machines on a fake link: what a network decides, and what it refuses."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_link import (
    HIGH,
    LEVEL,
    LOW,
    RUN_ID,
    THIRD,
    Link,
    block,
    quietly,
    sites_for,
    table_of,
)

from conovel import errors
from conovel.deciding.asking import Below, limit_of
from conovel.errors import GuaranteeWarning
from conovel.learning.base import Cue, State
from conovel.protocol.coordinator import Coordinator
from conovel.protocol.messages import decode
from conovel.protocol.states import TRANSITIONS, Machine
from conovel.spec.bodies import COORDINATOR, Kind
from conovel.spec.run_spec import RunSpec
from conovel.stats.stepup import RankHistogram, benjamini_hochberg, fast_lsu

networks = st.lists(block(), min_size=2, max_size=6).filter(lambda b: any(r for r, _ in b))
levels = st.sampled_from([Fraction(1, 10), Fraction(1, 5), Fraction(1, 2), Fraction(7, 9)])


# What a network decides


@given(networks, levels, st.sampled_from(["counts", "split", "full"]), st.integers(0, 2**32))
def test_counts_decide_as_bh_on_everything_together(blocks, level, regime, seed):
    link = Link(sites_for(blocks, regime), regime=regime, level=level, seed=seed).run()
    expected = quietly(fast_lsu, blocks, level)
    outcome = link.coordinator.outcome
    assert (outcome.n_rejected, outcome.rounds) == (expected.n_rejected, expected.rounds)
    together = quietly(
        benjamini_hochberg,
        np.concatenate([ranks for ranks, _ in blocks]).astype(np.int64),
        np.concatenate([np.full(len(ranks), size) for ranks, size in blocks]),
        level,
    )
    masks = link.masks()
    assert np.array_equal(np.concatenate(list(masks.values())), together)
    for agent, limit in zip(link.agents.values(), expected.limits, strict=True):
        assert agent.limit == limit
        assert agent.outcome == outcome
    assert sum(agent.n_rejected for agent in link.agents.values()) == outcome.n_rejected


@given(
    networks,
    levels,
    st.sampled_from(["storey", "storey:1/4", "quantile", "quantile:1/5"]),
    st.integers(0, 2**32),
)
def test_estimators_of_the_nulls_work_on_counts(blocks, level, pi0, seed):
    link = quietly(Link, sites_for(blocks), regime="full", level=level, pi0=pi0, seed=seed).run()
    try:
        expected = quietly(fast_lsu, blocks, level, pi0=pi0)
    except errors.SampleError:
        assert isinstance(link.coordinator.error, errors.SampleError)
        for agent in link.agents.values():
            assert isinstance(agent.error, errors.RunAbortedError)
        return
    assert link.coordinator.outcome.n_rejected == expected.n_rejected
    assert link.coordinator.outcome.slope == level / (
        expected.pi0 * sum(len(r) for r, _ in blocks)
    )
    for mask, wanted in zip(link.masks().values(), expected.rejected, strict=True):
        assert np.array_equal(mask, wanted)


@given(
    networks,
    levels,
    st.sampled_from(["isolated", "conservative"]),
    st.sampled_from([None, "storey"]),
)
def test_without_counts_every_agent_decides_at_its_share_of_the_level(blocks, level, regime, pi0):
    link = Link(sites_for(blocks), regime=regime, level=level, pi0=pi0).run()
    for (ranks, size), agent in zip(blocks, link.agents.values(), strict=True):
        if not ranks:
            continue
        try:
            wanted = quietly(benjamini_hochberg, ranks, size, level / len(blocks), pi0=pi0)
        except errors.SampleError:
            assert link.coordinator.state is State.ABORTED
            return
        assert np.array_equal(np.asarray(ranks) <= agent.limit, wanted)
    assert link.coordinator.outcome.n_rejected == 0
    assert link.coordinator.outcome.rounds == 0
    assert not any(decode(data).body.kind is Kind.COUNT for *_, data in link.delivered)


@pytest.mark.parametrize("regime", ["isolated", "counts", "split", "conservative", "full"])
def test_models_go_from_every_agent_to_every_peer_and_only_where_they_should(regime):
    link = Link(sites_for([LOW, HIGH, THIRD], regime), regime=regime, level=LEVEL).run()
    pairs = [(s, r) for s, r, data in link.delivered if decode(data).body.kind is Kind.MODEL]
    names = list(link.agents)
    exchanges = regime in ("split", "conservative", "full")
    assert sorted(pairs) == [(a, b) for a in names for b in names if a != b and exchanges]
    for name in link.agents:
        assert link.sites[name].received == [n for n in names if n != name and exchanges]


def test_two_hundred_agents():
    rng = np.random.default_rng(0)
    blocks = [
        (np.r_[rng.integers(1, 3, 5), rng.integers(1, 100, 15)], int(rng.integers(99, 300)))
        for _ in range(200)
    ]
    link = Link(sites_for(blocks), regime="full", level=0.1, seed=1).run()
    expected = fast_lsu(blocks, 0.1)
    assert link.coordinator.outcome.n_rejected == expected.n_rejected > 0
    for mask, wanted in zip(link.masks().values(), expected.rejected, strict=True):
        assert np.array_equal(mask, wanted)


def test_nothing_to_test_rejects_nothing():
    link = Link(sites_for([([], 9), ([], 5)]), regime="full", level=LEVEL).run()
    assert link.coordinator.outcome.n_rejected == 0
    assert [agent.limit for agent in link.agents.values()] == [0, 0]


@given(block(), st.fractions(0, 2, max_denominator=50))
def test_a_question_is_a_limit_on_ranks(block, p_value):
    ranks, size = block
    histogram = RankHistogram(np.asarray(ranks, dtype=np.int64), size)
    assert histogram.at_most(limit_of(Below(p_value), size)) == histogram.below(p_value)


# The table


def play(scenario, slow_sites=False, **more):
    """A run with a given number of deliveries before an agent is lost."""
    regime, on_dropout, victim, when, pi0 = scenario
    link = Link(
        sites_for([LOW, HIGH, THIRD], regime),
        regime=regime,
        level=LEVEL,
        on_dropout=on_dropout,
        pi0=pi0,
        seed=when,
        slow_sites=slow_sites,
        **more,
    )
    for _ in range(when):
        link.step()
    if victim:
        link.kill(victim)
    return link.run()


def test_every_row_of_the_table_happens_and_nothing_else(monkeypatch):
    seen = set()
    advance = Machine._advance

    def spy(self, event, action, sender):
        before = self.state
        outbox = advance(self, event, action, sender)
        seen.add((before, event, self.state))
        return outbox

    monkeypatch.setattr(Machine, "_advance", spy)
    for when in range(60):
        for slow_sites in (False, True):
            for regime in ("isolated", "counts", "full"):
                for pi0 in (None, "storey"):
                    play((regime, "conservative", "agent001", when, pi0), slow_sites=slow_sites)
            play(("joint", "abort", "agent001", when, None), slow_sites=slow_sites)
            play(("consensus", "abort", None, when, None), slow_sites=slow_sites)
            if when < 3:
                play(("together", "abort", None, when, None), slow_sites=slow_sites)
                play(("together", "abort", None, when, None), slow_sites=slow_sites, masks=True)
    # What only happens when the one who vanishes is the last one waited for.
    for regime, kind, n in [
        ("full", Kind.HELLO, 2),
        ("isolated", Kind.READY, 2),
        ("counts", Kind.COUNT, 11),
    ]:
        blocks = [LOW, HIGH, ([9, 10], 9)]
        sites = sites_for(blocks, regime)
        link = Link(sites, regime=regime, level=LEVEL, on_dropout="conservative")
        while n > sum(decode(data).body.kind is kind for *_, data in link.delivered):
            link.step()
        link.kill("agent002")
        link.run()
    for regime in ("counts", "joint"):
        blocks = [LOW, HIGH, ([9, 10], 9)]
        committed = {"counting": "committed", "reveal_to": "members"}
        link = Link(sites_for(blocks, regime), regime=regime, level=LEVEL, **committed)
        if regime == "joint":  # the one that vanishes is the last one waited for
            while sum(decode(data).body.kind is Kind.READY for *_, data in link.delivered) < 2:
                link.step()
            [last] = set(link.agents) - set(link.coordinator.present.ready)
            link.kill(last)
        link.run()
        assert link.coordinator.outcome
    rows = {(state, event, after) for (state, event), to in TRANSITIONS.items() for after in to}
    assert seen <= rows
    assert rows - seen == set()


def test_the_table_in_the_documentation():
    rows = table_of("protocol.md", "state", "event", "next")
    assert sorted(rows) == sorted(
        [
            state.value,
            event.name if isinstance(event, Kind) else event.value,
            ", ".join(sorted(after.value for after in to)),
        ]
        for (state, event), to in TRANSITIONS.items()
    )


def test_the_errors_in_the_documentation():
    named = {error.strip("`") for error, _ in table_of("protocol.md", "error", "when")}
    remote = {error.__name__ for error in errors.RemoteProtocolError.__subclasses__()}
    assert named == remote - {"RunAbortedError"} | {"SiteFailedError"}


def test_no_state_follows_the_end():
    assert not any(state is State.ABORTED for state, _ in TRANSITIONS)
    assert {event for state, event in TRANSITIONS if state is State.DONE} == {Cue.DROP}


# Arguments


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["only"]},
        {"names": ["a", "a"]},
        {"names": ["a", COORDINATOR]},
        {"names": ["a", ""]},
        {"names": ["a", "b\n"]},
        {"names": ["a", "b" * 65]},
        {"regime": "pooled"},
        {"regime": "other"},
        {"level": 1},
        {"run_id": b"short"},
        {"on_dropout": "ignore"},
        {"pi0": "guess"},
    ],
)
def test_a_coordinator_refuses_bad_arguments(change):
    arguments = {"names": ["a", "b"], "regime": "full", "level": 0.1, "run_id": RUN_ID} | change
    own = {name: arguments.pop(name) for name in ("names", "run_id")}
    with pytest.raises(errors.InputError):
        Coordinator(spec=RunSpec.of(**arguments), **own)


def test_nobody_can_vanish_who_was_not_there():
    coordinator = Coordinator(["a", "b"], spec=RunSpec.of(regime="full"), run_id=RUN_ID)
    with pytest.raises(errors.InputError, match="'c'"):
        coordinator.drop("c")


def test_an_unproven_estimator_is_announced():
    with pytest.warns(GuaranteeWarning, match="one site"):
        Coordinator(["a", "b"], spec=RunSpec.of(regime="full", pi0="quantile"), run_id=RUN_ID)
    Coordinator(["a", "b"], spec=RunSpec.of(regime="isolated", pi0="quantile"), run_id=RUN_ID)
