"""The contract of every way of learning and of deciding.

The tables of ways and the regimes that name them are the parameters: a new way is tested by
adding it there. Rows and messages are small, so that all orders of rows and all moments of a run
can be tried.
"""

from __future__ import annotations

import copy
import itertools
import math
from fractions import Fraction

import pytest
from support.exact_fdr import Site, outcomes
from support.fake_link import (
    HIGH,
    LEVEL,
    LOW,
    NAMES,
    RUN_ID,
    THIRD,
    Link,
    forge,
    sites_for,
    table_of,
)
from support.roles import assert_roles_do_not_matter, draw, in_network

from conovel import errors
from conovel.deciding.asking import Count, Step
from conovel.deciding.base import Decided
from conovel.deciding.cell_totals import AllSizes, Cells, Masked, Wanted
from conovel.deciding.cells import Histogram
from conovel.deciding.ways import DECIDING, LEARNING, guarantee, ways_of
from conovel.learning.base import State
from conovel.learning.together.masks import Key
from conovel.learning.together.way import Sums, Totals
from conovel.protocol.coordinator import Coordinator
from conovel.spec.bodies import (
    AMONG_AGENTS,
    COORDINATOR,
    IN_ROUNDS,
    Kind,
    Left,
    Model,
    Outcome,
    Ready,
    Roster,
    Start,
)
from conovel.spec.regimes import REGIMES
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import N_CELLS
from conovel.stats.stepup import RankHistogram

RUN = [name for name, regime in REGIMES.items() if not ways_of(regime).learning.simulated]
VARIANTS = [(name, {}) for name in RUN] + [
    (name, {"counting": "committed", "reveal_to": "members"})
    for name in RUN
    if not REGIMES[name].refusal("counting")
]
VARIANTS += [(name, {"masks": True}) for name in RUN if not REGIMES[name].refusal("masks")]
BLOCKS = [LOW, HIGH, THIRD]
# No scorer is fitted there from which the test could read which rows train: see
# tests/learning/together/test_way.py and tests/theory/test_consensus.py.
WITHOUT_SCORER = {"together", "consensus"}


def play(regime, blocks=BLOCKS, **more):
    return Link(sites_for(blocks, regime), regime=regime, level=LEVEL, **more)


def has_outcome(machine):
    try:
        _ = machine.outcome
    except errors.ConovelError:
        return False
    return True


# The tables ------------------------------------------------------------------------------------


def test_every_way_has_a_regime_and_every_regime_its_ways():
    assert {regime.learning for regime in REGIMES.values()} == set(LEARNING)
    assert {regime.deciding for regime in REGIMES.values()} == set(DECIDING)


@pytest.mark.parametrize("name", REGIMES)
def test_the_guarantee_names_what_it_needs_and_what_is_revealed_is_stated(name):
    ways, spec = ways_of(REGIMES[name]), RunSpec.of(regime=name, level=0.1)
    promise = guarantee(spec)
    assert ways.needs in str(promise)
    assert ways.needs in promise.assumptions
    assert ways.plain_needs
    rows = table_of("revealed.md", "regime", "peers learn", "the coordinator learns")
    assert [f"`{name}`", ways.peers_learn, ways.coordinator_learns] in rows
    lies = "lies about its counts" in str(promise)
    assert lies is ways.deciding.shares_counts


# Learning --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [name for name, regime in REGIMES.items() if regime.learning not in WITHOUT_SCORER],
)
def test_calibration_rows_and_test_rows_may_change_places(name):
    run = in_network(regime=name, composite="mean", bits=4, level="1/5")
    splits = REGIMES[name].n_blocks(2) > 1
    assert_roles_do_not_matter(run, draw("duplicates", 2), "logistic", splits_rows=splits)


@pytest.mark.parametrize("name", RUN)
def test_models_are_sent_in_the_rounds_of_the_way_and_in_no_other(name):
    link = play(name).run()
    sent = {(e.round, e.sender, e.receiver) for e in link.transcript.entries if e.kind == "MODEL"}
    rounds = ways_of(REGIMES[name]).learning.model_rounds
    assert sent == {(r, *pair) for r in rounds for pair in itertools.permutations(NAMES, 2)}


# Deciding --------------------------------------------------------------------------------------


def rejected(link, name, given):
    """Which of the given ranks an agent rejects, whatever decides."""
    agent, way = link.agents[name], ways_of(link.coordinator.regime).deciding
    if way.counts_type is RankHistogram:
        return [rank <= agent.limit for rank in given]
    cells = [N_CELLS - 1 - min(rank - 1, N_CELLS - 1) for rank in given]
    return [cell >= agent.limit for cell in cells]


@pytest.mark.parametrize(("name", "more"), VARIANTS)
def test_the_false_discovery_rate_over_all_orders_is_at_most_the_level(name, more):
    """At the boundary: α(ℓ + 1)/m is a whole number, so that a step-up spends all of its level."""
    sites, level = [Site(5, 1, (1000.0,)), Site(5, 1)], Fraction(1, 2)
    rate = Fraction(0)
    for combination in itertools.product(*map(outcomes, sites)):
        blocks = [(ranks, 5) for ranks, _ in combination]
        link = Link(sites_for(blocks, name), regime=name, level=level, **more).run()
        false = total = 0
        for (ranks, _), site, agent in zip(combination, sites, NAMES, strict=False):
            mask = rejected(link, agent, ranks)
            assert sum(mask) == link.agents[agent].n_rejected
            false, total = false + sum(mask[: site.n_null]), total + sum(mask)
        weight = math.prod(p for _, p in combination)
        rate += weight * Fraction(false, max(total, 1))
    assert rate <= level


@pytest.mark.parametrize(("name", "more"), VARIANTS)
def test_the_same_messages_give_the_same_outcome(name, more):
    link = play(name, **more).run()
    again = Coordinator(list(link.agents), spec=link.coordinator.spec, run_id=RUN_ID)
    for sender, receiver, data in link.delivered:
        if receiver == COORDINATOR:
            again.receive(data, sender)
    assert again.outcome == link.coordinator.outcome
    assert Decided.of(again.outcome) == again.deciding.decided()
    assert {agent.outcome for agent in link.agents.values()} == {again.outcome}


@pytest.mark.parametrize(("name", "more"), VARIANTS)
def test_in_whichever_phase_an_agent_vanishes_nobody_decides_without_knowing(name, more):
    endings = set()
    for when in itertools.count():
        link = play(name, **more)
        steps = sum(link.step() for _ in range(when))
        if steps < when:
            break
        is_done = link.coordinator.state is State.DONE
        link.kill("agent001")
        link.run()
        others = [agent for n, agent in link.agents.items() if n != "agent001"]
        if has_outcome(link.coordinator):
            outcome = link.coordinator.outcome
            assert is_done or "agent001" in (*outcome.left_out, *outcome.dropped)
            assert all(agent.outcome == outcome for agent in others)
        else:
            ends = errors.SiteVanishedError, errors.RunAbortedError
            assert isinstance(link.coordinator.error, ends)
            assert not any(map(has_outcome, others))
        endings.add(has_outcome(link.coordinator))
    assert endings  # a run can be broken off, or go on


# Messages that nobody should send ----------------------------------------------------------------

HOSTILE = [
    Roster(NAMES, 10**6, 10**6),
    Model(b"a model"),
    Ready(10**9, 10**9),
    Left(NAMES[2]),
    Start(NAMES, 10**9),
    Step(10**9, Fraction(1, 2)),
    Count(10**9),
    Histogram((10**9,) * N_CELLS, (10**9,) * N_CELLS),
    Outcome(10**9, 10**9, Fraction(1), 99, NAMES, (), ()),
]
HOSTILE_SUMS = [
    Key(bytes(32), 10**6, 10**6),
    Sums(b"\xff" * 16),
    Totals(b"\xff" * 16),
    Masked(b"\xff" * 16),
    AllSizes(NAMES, (Ready(10**9, 10**9),) * 3),
    Wanted(NAMES, (10**9,) * 3, (Fraction(1, 2),) * 3),
    Cells(NAMES[:1], (HOSTILE[7],)),
]


@pytest.mark.parametrize("target", [COORDINATOR, NAMES[0]])
@pytest.mark.parametrize(("name", "more"), VARIANTS)
def test_a_hostile_message_ends_the_run_or_is_one_that_was_due(name, more, target):
    """Wrong kind, wrong round, out of range, unknown sender: at every moment of a run."""
    link, by_cells = play(name, **more), ways_of(REGIMES[name]).deciding.name == "cells"
    sender = NAMES[1] if target == COORDINATOR else COORDINATOR
    while True:
        machine = link.machines[target]
        for body in HOSTILE + (HOSTILE_SUMS if by_cells else []):
            for round_ in (0, 77) if body.kind in IN_ROUNDS else (0,):
                for author in (sender, "stranger"):
                    victim = copy.deepcopy(machine)
                    before = victim.state
                    victim.receive(forge(author, target, body, round_), author)
                    survived = victim.state is not State.ABORTED
                    # Before the roster anybody may be a peer; the roster settles who was.
                    is_early = before is State.JOINING and body.kind in AMONG_AGENTS
                    assert author == sender or is_early or not survived
                    assert before is State.DONE or not has_outcome(victim)
                    # A LEFT, and a model from a peer, may come at a time when they are expected.
                    due = (Kind.LEFT, Kind.ROSTER, Kind.START)
                    assert not survived or is_early or body.kind in due
        if not link.step():
            break
