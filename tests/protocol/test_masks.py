"""A run with masks: the same decisions, and what a hostile coordinator or agent can still do."""

from dataclasses import replace

import numpy as np
import pytest
from support.fake_link import HIGH, LEVEL, LOW, NAMES, THIRD, Link, sites_for
from support.thin_agents import thin_agents

import conovel as cn
from conovel.deciding.cell_totals import AllSizes, Cells, Masked, Wanted
from conovel.deciding.cells import Histogram
from conovel.errors import (
    InputError,
    KeyRefusedError,
    OutcomeMismatchError,
    RunAbortedError,
    UnexpectedMessageError,
)
from conovel.learning.base import State
from conovel.learning.together.masks import Key, public_key
from conovel.learning.together.way import Sums, Totals
from conovel.protocol.messages import decode, encode
from conovel.protocol.replay import verify
from conovel.report import network_content
from conovel.report.page import render
from conovel.spec.bodies import COORDINATOR, Outcome, Ready, Roster
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import N_CELLS, ROOMS, RoomWanted, choose_room, room_from, room_numbers

BLOCKS = [LOW, HIGH, THIRD]
# One group, in which no agent has more likely novelties than room: see is_crowded.
ALIKE = [([1, 1, 1, *[9] * 7], 9), ([1, 1, 1, *[8] * 7], 9), ([1, 1, 1, *[10] * 7], 9)]


class Tampered(Link):
    """Delivers other messages than were sent: `change` gets each body and may return another."""

    def __init__(self, change, blocks=ALIKE, *, masks=True):
        self.change = change
        sites = sites_for(blocks, "together")
        super().__init__(sites, regime="together", level=LEVEL, masks=masks)

    def deliver(self, sender, receiver, data):
        message = decode(data)
        body = self.change(message, receiver)
        if body is not None:
            data = encode(replace(message, body=body))
        super().deliver(sender, receiver, data)


def played(change=lambda message, receiver: None, blocks=ALIKE):
    return Tampered(change, blocks).run()


def fault_of(link, name=NAMES[0]):
    """Return what a party found wrong; nobody has an outcome."""
    assert link.coordinator.state is State.ABORTED
    assert all(agent.state is State.ABORTED for agent in link.agents.values())
    return link.machines[name].error


def agents_of(pairs):
    return [cn.Agent(f"{j:03d}", *pair) for j, pair in enumerate(pairs)]


def network(pairs, **more):
    return cn.Network(agents_of(pairs), regime="together", **more).run(check=False)


# The same decisions ------------------------------------------------------------------------------


@pytest.mark.parametrize("n_agents", [2, 3, 30])
def test_a_run_with_masks_scores_and_decides_as_one_without(n_agents):
    pairs = thin_agents(n_agents)
    plain, masked = (network(pairs, masks=masks) for masks in (False, True))
    assert plain.n_rejected
    for name in plain:
        assert plain[name].scores.tobytes() == masked[name].scores.tobytes()
        assert plain[name].rejected.tolist() == masked[name].rejected.tolist()
        assert plain[name].floor == masked[name].floor
    assert [g.x for g in plain.groups] == [g.x for g in masked.groups]


def test_consensus_learns_under_masks_as_without_them():
    pairs = thin_agents(3, n_null=300, n_test=60)
    plain, masked = (
        cn.Network(agents_of(pairs), regime="consensus", masks=masks).run(check=False)
        for masks in (False, True)
    )
    assert plain.n_rejected
    for name in plain:
        assert plain[name].scores.tobytes() == masked[name].scores.tobytes()
        assert plain[name].rejected.tolist() == masked[name].rejected.tolist()
    assert "KEY" in {entry.kind for entry in masked.transcript.entries}
    assert verify(network_content(masked)) == []
    assert not masked.spec.hides_counts  # those of each type are needed


def test_an_agent_with_many_novelties_leaves_its_group_as_without_masks():
    """It says so itself, from its own rows and the numbers of the others."""
    pairs = thin_agents(3, n_null=400, n_test=100)
    pairs[1][1][:95] += 6
    plain, masked = (network(pairs, masks=masks) for masks in (False, True))
    for run in (plain, masked):
        assert [group.agents for group in run.groups] == [("001",), ("000", "002")]
    assert plain.groups == masked.groups
    ready = masked.transcript.all_ready
    assert [bool(ready[name].n_wanted) for name in ("000", "001", "002")] == [False, True, False]
    assert all(plain[n].rejected.tolist() == masked[n].rejected.tolist() for n in plain)
    assert verify(network_content(masked)) == []


def test_the_record_of_a_run_with_masks_does_not_depend_on_the_keys():
    pairs = thin_agents(3)
    first, again = (network_content(network(pairs, masks=True)) for _ in range(2))
    assert first["transcript"] == again["transcript"]
    assert not first["transcript"]["histograms"]
    assert verify(first) == []


def test_the_agents_of_these_tests_are_one_group():
    link = played()
    assert set(link.transcript.group_cells) == {NAMES[0]}
    assert link.coordinator.outcome.n_rejected == 9


@pytest.mark.parametrize("blocks", [BLOCKS, ALIKE, BLOCKS[:2], [([1, 2], 9), ([], 30), LOW]])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_messages_may_arrive_in_any_order(blocks, seed):
    link, plain = (
        Link(
            sites_for(blocks, "together"), regime="together", level=LEVEL, masks=masks, seed=seed
        ).run()
        for masks in (True, False)
    )
    assert link.coordinator.outcome.cells == plain.coordinator.outcome.cells
    for name, agent in link.agents.items():
        assert (agent.limit, agent.floor) == (plain.agents[name].limit, plain.agents[name].floor)


def test_with_liars_only_learning_is_hidden():
    pairs = thin_agents(4)
    run = network(pairs, masks=True, liars=1)
    assert {e.kind for e in run.transcript.entries} >= {"KEY", "SUMS", "REVEAL"}
    assert "MASKED" not in {e.kind for e in run.transcript.entries}
    assert verify(network_content(run)) == []
    plain = network(pairs, liars=1)
    assert all(plain[n].rejected.tolist() == run[n].rejected.tolist() for n in plain)


def test_x_from_totals_is_x_from_agents():
    rng = np.random.default_rng(0)
    chosen = set()
    for _ in range(300):
        agents = [
            RoomWanted(int(rng.integers(0, 20)), int(rng.integers(1, 40)), int(n))
            for n in rng.integers(5, 120, rng.integers(2, 6))
        ]
        sizes = [(a.n_test, a.n_calibration) for a in agents]
        numbers = [room_numbers(agent, sizes, LEVEL) for agent in agents]
        totals = np.sum(numbers, axis=0).tolist()
        x = room_from(totals, sizes, LEVEL)
        assert x == choose_room(agents, LEVEL)
        chosen.add(x)
    assert len(chosen) >= 3
    assert chosen <= set(ROOMS)


@pytest.mark.parametrize("regime", ["joint", "full", "isolated", "pooled", "split"])
def test_other_regimes_have_no_sums_to_hide(regime):
    with pytest.raises(InputError, match="use the regime 'together'"):
        RunSpec.of(regime=regime, masks=True)
    with pytest.raises(InputError, match="masks must be true or false"):
        RunSpec.of(regime="together", masks=1)


def test_settings_name_masks_only_if_there_are_any():
    """Ids of runs follow from the settings: those of other runs stay as they were."""
    plain, masked = (RunSpec.of(regime="together", masks=masks) for masks in (False, True))
    assert "masks" not in plain.to_text()
    assert RunSpec.from_text(masked.to_text()) == masked
    assert plain.differences(masked) == ["masks is True instead of None"]


# What the coordinator sees -----------------------------------------------------------------------


def to_coordinator(link, kind, sender):
    return [
        decode(data).body.numbers
        for name, receiver, data in link.delivered
        if (name, receiver) == (sender, COORDINATOR) and isinstance(decode(data).body, kind)
    ]


def test_an_agents_counts_at_the_coordinator_are_noise():
    """Without masks the coordinator reads them. With masks no number is an agent's."""
    links = [
        Link(sites_for(ALIKE, "together"), regime="together", level=LEVEL, masks=masks).run()
        for masks in (False, True)
    ]
    for name in NAMES:
        plain, masked = (to_coordinator(link, Sums, name) for link in links)
        assert len(plain) == len(masked) > 20
        for own, sent in zip(plain, masked, strict=True):
            assert not np.any(np.frombuffer(own, "<u8") == np.frombuffer(sent, "<u8"))
        for sent in to_coordinator(links[1], Masked, name):
            # Counts are below a hundred, and a number of 64 random bits is not.
            assert np.frombuffer(sent, "<u8").min() > 10**6
    kinds = {type(decode(data).body) for *_, data in links[1].delivered}
    assert Histogram not in kinds


def test_the_same_view_fits_other_rows():
    """A coordinator with all agents but two on its side learns the sum of these two only.

    What it sees of them is the same for all numbers with this sum, under another mask.
    """
    own, other = np.array([5, 0, 7], "<u8"), np.array([1, 1, 1], "<u8")
    mask = np.array([2**63, 17, 2**64 - 3], "<u8")
    seen = own + mask, other - mask
    guess = np.array([0, 1, 8], "<u8")  # with the same sum as seen: 6, 1, 8
    its_mask = seen[0] - guess
    assert (guess + its_mask).tolist() == seen[0].tolist()
    assert ((own + other - guess) - its_mask).tolist() == seen[1].tolist()


def test_no_model_of_a_peer_can_ask_about_rows():
    """A peer's model as a question was answered by exact counts. Here no model is ever taken."""
    run = network(thin_agents(3), masks=True)
    assert "MODEL" not in {entry.kind for entry in run.transcript.entries}
    table = Link(sites_for(ALIKE, "together"), regime="together", level=LEVEL, masks=True)
    agent = table.agents[NAMES[0]]
    assert not any(getattr(event, "name", "") == "MODEL" for _, event in agent.transitions)


def test_an_agent_told_other_totals_answers_with_noise():
    """A coordinator that steers one agent learns nothing from it, and the run ends."""

    def steer(message, receiver):
        if receiver == NAMES[1] and isinstance(message.body, Totals) and message.round == 9:
            numbers = np.frombuffer(message.body.numbers, "<i8").copy()
            numbers[2] += 1
            return Totals(numbers.tobytes())
        return None

    link = played(steer)
    error = link.coordinator.error
    assert isinstance(error, RunAbortedError)
    assert "totals are of no rows" in str(error)
    assert "masks hide whose" in str(error)
    sent = [to_coordinator(link, Sums, name)[9] for name in NAMES]  # of round 10
    plain = Link(sites_for(ALIKE, "together"), regime="together", level=LEVEL).run()
    own = [to_coordinator(plain, Sums, name)[9] for name in NAMES]
    total, of_rows = (
        np.sum([np.frombuffer(n, "<u8") for n in some], axis=0, dtype="<u8")
        for some in (sent, own)
    )
    assert not np.any(total == of_rows)


# Keys --------------------------------------------------------------------------------------------


def changing_key(public, sender=NAMES[1], receiver=NAMES[0]):
    def change(message, to):
        if isinstance(message.body, Key) and (message.sender, to) == (sender, receiver):
            return replace(message.body, public=public)
        return None

    return change


@pytest.mark.parametrize("public", [bytes(32), b"\xff" * 32, (1).to_bytes(32, "little")])
def test_a_key_that_is_none_names_its_sender(public):
    error = fault_of(played(changing_key(public)))
    assert isinstance(error, KeyRefusedError)
    assert error.culprit == NAMES[1]


def test_a_reflected_key_and_a_key_of_two_agents_are_refused():
    link = played()
    keys = {
        sender: decode(data).body.public
        for sender, _, data in link.delivered
        if isinstance(decode(data).body, Key)
    }
    for whose in (NAMES[0], NAMES[2]):
        error = fault_of(played(changing_key(keys[whose])))
        assert isinstance(error, KeyRefusedError)


def test_a_key_of_another_run_gives_no_total():
    """A wrong key, or one that was used before: masks do not cancel, and the run ends."""
    link = played(changing_key(public_key(b"another secret of thirty-two byt")))
    assert isinstance(fault_of(link), OutcomeMismatchError)


def test_other_numbers_of_rows_in_a_key_end_the_run():
    def change(message, receiver):
        if isinstance(message.body, Key) and receiver == NAMES[0]:
            return replace(message.body, n_test=message.body.n_test + 50)
        return None

    error = fault_of(played(change))
    assert "the groups do not follow from the numbers of rows" in str(error)


def test_the_coordinator_sends_no_keys_and_without_masks_nobody_does():
    link = Link(sites_for(ALIKE, "together"), regime="together", level=LEVEL, masks=True)
    agent = link.agents[NAMES[0]]
    body = Key(public_key(bytes(31) + b"k"), 1, 1)
    agent.receive(encode(_message(COORDINATOR, body)), COORDINATOR)
    assert isinstance(agent.error, UnexpectedMessageError)
    plain = Link(sites_for(ALIKE, "together"), regime="together", level=LEVEL)
    agent = plain.agents[NAMES[0]]
    agent.receive(encode(_message(NAMES[1], body)), NAMES[1])
    assert isinstance(agent.error, UnexpectedMessageError)


def _message(sender, body):
    from support.fake_link import RUN_ID

    from conovel.spec.bodies import Message

    return Message(RUN_ID, sender, NAMES[0], 0, body)


def test_an_agent_alone_on_the_roster_sends_nothing():
    def change(message, receiver):
        if isinstance(message.body, Roster) and receiver == NAMES[0]:
            return Roster((NAMES[0],), 10, 5, message.body.weights[:1])
        return None

    error = fault_of(played(change))
    assert "nobody to hide its numbers among" in str(error)


# Totals that do not hold -------------------------------------------------------------------------


def changing(kind, make, receiver=NAMES[0]):
    def change(message, to):
        if isinstance(message.body, kind) and to == receiver:
            return make(message.body)
        return None

    return change


def more_cells(cells, place=N_CELLS - 1, n=1):
    [total] = cells.totals
    tests = list(total.tests)
    tests[place] = max(tests[place] + n, 0)
    return replace(cells, totals=(replace(total, tests=tuple(tests)),))


TOLD = [
    (Totals, lambda b: Totals(bytes(len(b.numbers))), "of no rows"),
    (Wanted, lambda b: replace(b, rooms=(ROOMS[0],) * 3), "x does not follow"),
    (Wanted, lambda b: replace(b, totals=b.totals[1:]), "one total of each number"),
    (Wanted, lambda b: replace(b, groups=(), totals=()), "of no agents"),
    (AllSizes, lambda b: replace(b, agents=b.agents[:2]), "of others than take part"),
    (AllSizes, lambda b: replace(b, ready=b.ready[:2]), "of no agents"),
    (AllSizes, lambda b: replace(b, ready=(Ready(1, 1), *b.ready[1:])), "numbers of this agent"),
    (AllSizes, lambda b: replace(b, ready=(*b.ready[:2], Ready(1, 1))), "has not so many rows"),
    (Cells, lambda b: more_cells(b, n=-10), "fewer rows than at this agent"),
    (Cells, lambda b: more_cells(b, n=10**6), "of no agents"),
    (Cells, lambda b: Cells((), ()), "does not tell the totals of each group"),
    (Cells, lambda b: Cells(("agent002",), b.totals), "totals of other groups"),
    (Cells, lambda b: replace(b, totals=()), "of no agents"),
    (Outcome, lambda b: replace(b, n_rejected=b.n_rejected + 1), "not what follows"),
    (Outcome, lambda b: replace(b, cells=(N_CELLS,) * 3), "not what follows"),
    (Outcome, lambda b: replace(b, rounds=1), "not what follows"),
]


@pytest.mark.parametrize(("kind", "make", "words"), TOLD)
def test_an_agent_checks_all_that_follows_from_totals(kind, make, words):
    link = Tampered(changing(kind, make))
    link.run()
    error = link.agents[NAMES[0]].error
    assert isinstance(error, OutcomeMismatchError)
    assert error.culprit == COORDINATOR
    assert words in str(error)


def test_totals_below_an_agents_own_numbers_are_refused():
    """They cannot contain them; totals of the others alone are found out, masks or not."""

    def without_one(body):
        numbers = np.frombuffer(body.numbers, "<i8").copy()
        numbers[0] = 0  # rows of null_train
        return Totals(numbers.tobytes())

    for masks in (True, False):
        tampered = Tampered(changing(Totals, without_one), masks=masks)
        tampered.run()
        error = tampered.agents[NAMES[0]].error
        assert "below that of this agent" in str(error)
        assert error.culprit == COORDINATOR


def test_an_agent_by_itself_is_seen_by_the_coordinator_and_nobody_else():
    """Its total is its own; the others are not told it, and check what they can."""
    blocks, lone = [*ALIKE, ([1] * 30, 60)], "agent003"
    link = played(blocks=blocks)
    assert link.transcript.rooms[lone] == 0
    assert link.coordinator.outcome.n_rejected > 30
    assert set(link.transcript.group_cells) == {NAMES[0], lone}
    shown = {
        receiver: decode(data).body.groups
        for _, receiver, data in link.delivered
        if isinstance(decode(data).body, Cells)
    }
    assert shown == dict.fromkeys(NAMES, (NAMES[0],)) | {lone: (NAMES[0], lone)}
    for change in (
        lambda b: replace(b, cells=tuple(cell + 1 for cell in b.cells[:3]) + b.cells[3:]),
        lambda b: replace(b, cells=(N_CELLS,) * 3 + b.cells[3:]),
        lambda b: replace(b, n_rejected=0),
    ):
        tampered = Tampered(changing(Outcome, change), blocks)
        tampered.run()
        assert isinstance(tampered.agents[NAMES[0]].error, OutcomeMismatchError)
    sees = Tampered(changing(Cells, more_cells_of, lone), blocks)
    sees.run()
    assert isinstance(sees.agents[lone].error, OutcomeMismatchError)


def more_cells_of(cells):
    group, own = cells.totals
    calibration = (own.calibration[0] + 1, *own.calibration[1:])
    return replace(cells, totals=(group, replace(own, calibration=calibration)))


def wrong_numbers(message, receiver):
    if isinstance(message.body, Masked) and message.sender == NAMES[1]:
        return Masked(b"\x01" * len(message.body.numbers))
    return None


def test_numbers_that_are_not_masked_as_agreed_end_the_run_and_nobody_is_blamed():
    error = fault_of(played(wrong_numbers), COORDINATOR)
    assert "masks hide whose numbers are wrong" in str(error)
    assert error.culprit == ""


def test_masked_numbers_of_another_length_name_their_sender():
    def change(message, receiver):
        if isinstance(message.body, Masked) and message.sender == NAMES[1]:
            return Masked(bytes(8))
        return None

    error = fault_of(played(change), COORDINATOR)
    assert isinstance(error, UnexpectedMessageError)
    assert error.culprit == NAMES[1]


def test_the_page_says_what_masks_hide():
    run = network(thin_agents(3), masks=True)
    text = render(network_content(run))
    assert "so that only totals are seen" in text
    assert "the counts of an agent that decides by itself" in text
    assert "a public key, to make masks with" in text
    assert "every agent&#39;s counts" not in text
    assert "every agent's counts" not in text
    assert "every agent" in render(network_content(network(thin_agents(3))))
