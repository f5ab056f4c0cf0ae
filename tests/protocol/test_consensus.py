"""The regime `consensus` over messages: rounds of models, counts of folds, and what is refused."""

from dataclasses import replace
from fractions import Fraction

import pytest
from support.fake_link import (
    LEVEL,
    NAMES,
    RUN_ID,
    Link,
    forge,
    nonce_of,
    quietly,
    sites_for,
)

from conovel.deciding.folds import FoldCounts, agreed_of, check_score
from conovel.errors import (
    CommitmentError,
    CountOutOfRangeError,
    LocalProtocolError,
    OutcomeMismatchError,
    SiteVanishedError,
    UnexpectedMessageError,
)
from conovel.learning.base import State
from conovel.learning.consensus import (
    Seal,
    Sealed,
    Sealing,
    check_opened,
    opening_of,
    score_digest,
    seal_of,
)
from conovel.learning.exchange import Exchange
from conovel.protocol.messages import decode, encode
from conovel.spec.bodies import COORDINATOR, Kind, Model, Outcome, Ready
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
def test_models_go_round_three_times_and_counts_twice(seed):
    link = linked(seed=seed).run()
    assert link.coordinator.state is State.DONE
    sent = kinds(link)
    for round_ in (1, 2, 3, 4):
        assert sent.count((Kind.MODEL, round_)) == 6
    for round_ in (1, 2):
        assert sent.count((Kind.FOLD, round_)) == 3
    outcome = link.coordinator.outcome
    assert outcome.n_rejected == sum(agent.n_rejected for agent in link.agents.values())
    assert outcome.n_rejected >= 6
    assert len(outcome.cells) == 2
    assert agreed_of(outcome).limits == dict.fromkeys(NAMES, (100, 100))


def tampered(change, kind, link=None):
    """A run in which one message of the first agent is changed on its way."""
    link = link or linked()
    post, done = link.post, []

    def changed(sender, outbox):
        outbox = list(outbox)
        for place, sent in enumerate(outbox):
            message = sent.message
            if sender != NAMES[0] or message.body.kind is not kind or done:
                continue
            if (body := change(message)) is not None:
                done.append(body)
                message = replace(message, body=body)
                outbox[place] = replace(sent, data=encode(message), message=message)
        post(sender, outbox)

    link.post = changed
    link.run()
    assert done
    return link


# Seals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_no_second_model_is_sent_before_all_are_sealed(seed):
    sent = kinds(linked(seed=seed).run())
    sealed = [place for place, (kind, _) in enumerate(sent) if kind is Kind.SEAL]
    second = [place for place, (kind, at) in enumerate(sent) if kind is Kind.MODEL and at > 1]
    assert len(sealed) == 3
    assert max(sealed) < min(second)


def test_a_peer_that_waits_with_its_seal_sees_no_second_model():
    link = linked()
    post = link.post

    def late(sender, outbox):
        kept = [s for s in outbox if sender != NAMES[0] or s.message.body.kind is not Kind.SEAL]
        post(sender, kept)

    link.post = late
    link.run()
    assert not any(kind is Kind.MODEL and at > 1 for kind, at in kinds(link))
    assert link.coordinator.state is State.WAITING


@pytest.mark.parametrize("round_", [2, 3, 4])
@pytest.mark.parametrize("blob", [b"another", b"", bytes(64)])
def test_a_peer_that_sends_other_models_than_it_sealed_is_named(round_, blob):
    link = tampered(lambda m: Model(blob) if m.round == round_ else None, Kind.MODEL)
    found = [agent.error for agent in link.agents.values()]
    (error,) = [one for one in found if isinstance(one, CommitmentError)]
    assert error.culprit == link.coordinator.error.culprit == NAMES[0]
    assert "had sealed" in str(error)


def test_a_peer_that_sends_everybody_models_made_after_the_seals_is_named():
    link = linked()
    post = link.post

    def changed(sender, outbox):
        outbox = list(outbox)
        for place, sent in enumerate(outbox):
            message = sent.message
            if sender == NAMES[0] and message.body.kind is Kind.MODEL and message.round == 3:
                message = replace(message, body=Model(b"made later"))
                outbox[place] = replace(sent, data=encode(message), message=message)
        post(sender, outbox)

    link.post = changed
    link.run()
    assert link.coordinator.error.culprit == NAMES[0]
    assert all(agent.error is not None for agent in link.agents.values())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_coordinator_that_tells_different_seals_is_named(place):
    link = linked()
    post = link.post

    def changed(sender, outbox):
        outbox = list(outbox)
        for at, sent in enumerate(outbox):
            message = sent.message
            if message.body.kind is Kind.SEALED and sent.receiver == NAMES[0]:
                told = [*message.body.digests]
                told[place] = bytes(32)
                message = replace(message, body=Sealed(tuple(told)))
                outbox[at] = replace(sent, data=encode(message), message=message)
        post(sender, outbox)

    link.post = changed
    link.run()
    errors = [agent.error for agent in link.agents.values()]
    assert all(errors)
    assert any(isinstance(e, CommitmentError | OutcomeMismatchError) for e in errors)
    if place == 0:
        assert errors[0].culprit == COORDINATOR


def test_an_agent_that_was_told_other_seals_says_so():
    models = {"a": (b"1", b"2"), "b": (b"3", b"4")}
    seals = {n: seal_of(RUN_ID, n, nonce_of(n), models[n]) for n in models}
    openings = {n: opening_of(nonce_of(n), seals) for n in models}
    check_opened(RUN_ID, seals, openings, models)
    openings["b"] = opening_of(nonce_of("b"), seals | {"a": bytes(32)})
    with pytest.raises(OutcomeMismatchError) as caught:
        check_opened(RUN_ID, seals, openings, models)
    assert caught.value.culprit == COORDINATOR
    with pytest.raises(CommitmentError):
        check_opened(bytes(16), seals, openings, models)


@pytest.mark.parametrize("digests", [(), (bytes(32),) * 2, (bytes(32),) * 4])
def test_seals_of_another_number_of_agents_are_refused(digests):
    link = linked()
    agent = link.agents[NAMES[0]]
    while agent.state is not Sealing.SEALING:
        link.step()
    agent.receive(forge(COORDINATOR, NAMES[0], Sealed(digests)), COORDINATOR)
    assert isinstance(agent.error, OutcomeMismatchError)


def test_a_second_model_before_the_own_seal_is_refused():
    for round_ in (2, 3, 4):
        link = linked()
        agent = link.agents[NAMES[0]]
        while agent.state is not Exchange.EXCHANGING:
            link.step()
        agent.receive(forge(NAMES[1], NAMES[0], Model(b"early"), round_), NAMES[1])
        assert isinstance(agent.error, UnexpectedMessageError)
        assert agent.error.culprit == NAMES[1]


def test_the_coordinator_refuses_ranks_before_all_seals_and_seals_of_other_regimes():
    link = linked()
    while link.coordinator.state is not State.WAITING:
        link.step()
    link.coordinator.receive(forge(NAMES[0], COORDINATOR, Ready(6, 199)), NAMES[0])
    assert isinstance(link.coordinator.error, UnexpectedMessageError)
    other = quietly(Link, sites_for(BLOCKS, "full"), regime="full", level=LEVEL)
    while other.coordinator.state is not State.WAITING:
        other.step()
    other.coordinator.receive(forge(NAMES[0], COORDINATOR, Seal(bytes(32))), NAMES[0])
    assert isinstance(other.coordinator.error, UnexpectedMessageError)


def test_a_seal_needs_a_nonce_of_the_driver():
    with pytest.raises(LocalProtocolError, match="nonce"):
        seal_of(RUN_ID, "north", b"", [b"1", b"2"])


# Counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["calibration", "tests", "others"])
def test_counts_of_other_numbers_of_rows_are_refused(part):
    def more(message):
        counts = getattr(message.body, part)
        return replace(message.body, **{part: (counts[0] + 1, *counts[1:])})

    link = tampered(more, Kind.FOLD)
    assert isinstance(link.coordinator.error, CountOutOfRangeError)
    assert link.coordinator.error.culprit == NAMES[0]


def test_a_limit_that_does_not_exist_is_refused():
    link = tampered(lambda m: replace(m.body, conforms=N_CELLS + 1), Kind.FOLD)
    assert isinstance(link.coordinator.error, CountOutOfRangeError)


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
        replace(outcome, cells=(N_CELLS + 1, 0)),
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


def test_agents_that_scored_with_other_models_are_noticed():
    counts = FoldCounts((0,) * N_CELLS, (0,) * N_CELLS, (0,) * N_CELLS, 0, bytes(32))
    other = replace(counts, score=bytes([1] * 32))
    check_score({"a": [counts] * 2, "b": [counts] * 2})
    with pytest.raises(OutcomeMismatchError, match="another model") as caught:
        check_score({"a": [counts] * 2, "b": [counts, other], "c": [counts] * 2})
    assert caught.value.culprit == "b"


def test_the_digest_of_the_score_depends_on_every_model():
    models = {"a": (b"1", b"2"), "b": (b"3", b"4")}
    moved = {"a": (b"1", b"23"), "b": (b"", b"4")}
    assert score_digest(models) == score_digest(dict(reversed(models.items())))
    assert score_digest(models) != score_digest(moved)
    assert FoldCounts.kind is Kind.FOLD
