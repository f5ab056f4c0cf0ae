"""The regime `consensus` over messages: rounds of models, counts of folds, and what is refused."""

from dataclasses import replace
from fractions import Fraction

import pytest
from support.fake_link import LEVEL, NAMES, Link, folds_of, quietly, sites_for

from conovel.errors import CountOutOfRangeError, OutcomeMismatchError, SiteVanishedError
from conovel.protocol.bodies import FoldCounts, Kind, Model, Outcome
from conovel.protocol.consensus import agreed_of, score_digest
from conovel.protocol.messages import decode, encode
from conovel.protocol.states import State
from conovel.spec.consensus import types_of
from conovel.spec.groups import Numbers
from conovel.spec.joint import N_CELLS
from conovel.spec.run_spec import RunSpec

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
    for round_ in (1, 2, 3):
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


def test_a_peer_that_sends_different_models_is_noticed():
    link = linked()
    for site in link.sites.values():  # they take any model
        site.compare = lambda models, own=site: folds_of(own.given, own.n_calibration)
    tampered(lambda m: Model(b"another") if m.round == 2 else None, Kind.MODEL, link)
    assert isinstance(link.coordinator.error, OutcomeMismatchError)
    assert "another model" in str(link.coordinator.error)


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


def test_the_digest_of_the_score_depends_on_every_model():
    models = {"a": (b"1", b"2"), "b": (b"3", b"4")}
    moved = {"a": (b"1", b"23"), "b": (b"", b"4")}
    assert score_digest(models) == score_digest(dict(reversed(models.items())))
    assert score_digest(models) != score_digest(moved)
    assert FoldCounts.kind is Kind.FOLD
