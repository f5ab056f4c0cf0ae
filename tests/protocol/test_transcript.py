"""Transcripts: what they add up to, and what a tampered one gives away."""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_link import HIGH, LEVEL, LOW, NAMES, THIRD, Link, sites_for

from conovel.deciding.asking import Step
from conovel.errors import InputError
from conovel.learning.base import State
from conovel.protocol.messages import decode
from conovel.protocol.plain_bodies import as_body, as_plain
from conovel.protocol.replay import verify
from conovel.protocol.transcript import Transcript
from conovel.spec.bodies import COORDINATOR, Kind, Model
from conovel.stats.stepup import fast_lsu

BLOCKS = [LOW, HIGH, THIRD]
REGIMES = ["isolated", "counts", "split", "conservative", "full"]


def link_for(regime="full", **options):
    return Link(sites_for(BLOCKS, regime), regime=regime, level=LEVEL, **options)


def saved(link):
    """What a driver saves, after a trip through a file."""
    decisions = {}
    for name in link.coordinator.outcome.participants:
        agent = link.agents[name]
        site = link.sites[name]
        ranks = np.zeros(site.facts.n_test, dtype=int)
        ranks[: site.given.size] = site.given
        rejected = (ranks > 0) & (ranks <= agent.limit)
        decisions[name] = {"ranks": ranks.tolist(), "rejected": rejected.tolist()}
    run = {"transcript": link.transcript.to_dict(), "decisions": decisions}
    return json.loads(json.dumps(run))


@pytest.mark.parametrize("pi0", [None, "storey"])
@pytest.mark.parametrize("regime", REGIMES)
def test_an_honest_run_holds(regime, pi0):
    run = saved(link_for(regime, pi0=pi0).run())
    assert verify(run) == []
    del run["decisions"]
    assert verify(run) == []


@pytest.mark.parametrize("regime", ["counts", "full"])
def test_a_run_that_lost_somebody_holds(regime):
    for when in range(100):
        link = link_for(regime, on_dropout="conservative", pi0="storey", seed=when)
        for _ in range(when):
            link.step()
        if link.coordinator.state is State.DONE:
            break
        link.kill("agent001")
        run = saved(link.run())
        assert verify(run) == []
        run["transcript"]["outcome"]["left_out"] = []
        run["transcript"]["outcome"]["dropped"] = []
        assert verify(run)


@pytest.mark.parametrize("regime", REGIMES)
@given(st.integers(0, 2**32))
def test_the_order_of_delivery_does_not_show(regime, seed):
    texts = [json.dumps(saved(link_for(regime, seed=s).run())) for s in (None, seed)]
    assert texts[0] == texts[1]


def test_it_comes_back_from_json():
    plain = link_for(pi0="storey").run().transcript.to_dict()
    assert Transcript.from_dict(json.loads(json.dumps(plain))).to_dict() == plain


def test_every_message_is_there_with_its_bytes():
    link = link_for().run()
    entries = link.transcript.entries
    assert len(entries) == len(link.delivered)
    assert sum(entry.n_bytes for entry in entries) == sum(len(d) for *_, d in link.delivered)
    totals = link.transcript.totals()
    assert totals["bytes"] == sum(kind["bytes"] for kind in totals["by_kind"].values())
    assert totals["bytes"] == sum(agent["sent"] for agent in totals["by_agent"].values())
    assert totals["bytes"] == sum(agent["received"] for agent in totals["by_agent"].values())
    models = [d for *_, d in link.delivered if decode(d).body.kind is Kind.MODEL]
    assert totals["by_kind"]["MODEL"] == {
        "messages": 6,
        "bytes": sum(map(len, models)),
        "paper_bits": 6 * 100.5,
    }


@pytest.mark.parametrize("pi0", [None, "storey"])
def test_counts_are_charged_as_in_the_paper(pi0):
    link = link_for("counts", pi0=pi0).run()
    rounds = fast_lsu(BLOCKS, LEVEL, pi0=pi0).rounds + (pi0 is not None)
    up = sum(math.ceil(math.log2(len(ranks) + 1)) for ranks, _ in BLOCKS)
    down = 3 * math.ceil(math.log2(5 + 4 + 2 + 1))
    kinds = link.transcript.totals()["by_kind"]
    assert kinds["COUNT"]["paper_bits"] == rounds * up
    asked = kinds["STEP"]["paper_bits"] + kinds.get("BELOW", {"paper_bits": 0})["paper_bits"]
    assert asked == rounds * down
    assert link.transcript.totals()["paper_bits"] == rounds * (up + down)


@given(st.integers(0, 10**9))
def test_bit_length_is_the_papers_logarithm(m):
    assert 2 ** m.bit_length() >= m + 1 > 2 ** (m.bit_length() - 1)


def test_a_broken_run_does_not_hold():
    link = link_for()
    for _ in range(12):
        link.step()
    link.post("agent000", link.agents["agent000"].receive(b"noise", "agent001"))
    link.run()
    plain = link.transcript.to_dict()
    assert plain["outcome"] is None
    assert plain["abort"]["culprit"] == "agent001"
    assert verify({"transcript": plain}) == ["the run was broken off: it has no outcome"]
    assert "broken off" in verify({"transcript": plain, "decisions": {"agent000": {}}})[1]


def test_an_outcome_that_was_withdrawn_does_not_hold():
    link = link_for().run()
    decisions = saved(link)["decisions"]
    link.post(COORDINATOR, link.coordinator.receive(b"noise", "agent001"))
    link.run()
    findings = verify({"transcript": link.transcript.to_dict(), "decisions": decisions})
    assert len(findings) == 2


# Tampering: every change below must be found


def put(path, value):
    def change(run):
        *parents, last = path
        for key in parents:
            run = run[key]
        assert run[last] != value
        run[last] = value

    return change


def drop_message(kind):
    def change(run):
        rows = run["transcript"]["messages"]
        rows.remove(next(row for row in rows if row[3] == kind))
        run["transcript"]["totals"] = Transcript.from_dict(run["transcript"]).totals()

    return change


def shift_round(run):
    """Lower a count and everything that was derived from it."""
    last = run["transcript"]["rounds"][-1]
    last["counts"]["agent001"] -= 1
    run["transcript"]["outcome"]["n_rejected"] -= 1


def cut_rounds(run):
    run["transcript"]["rounds"].pop()
    run["transcript"]["outcome"]["rounds"] -= 1


def numbers_for_truths(run):
    decision = run["decisions"]["agent000"]
    decision["rejected"] = [int(rejected) for rejected in decision["rejected"]]


T, OUT = "transcript", "outcome"
TAMPERED = [
    (put([T, OUT, "n_rejected"], 4), "outcome.n_rejected is 4, and follows to be 3"),
    (put([T, OUT, "slope"], "1/50"), "outcome.slope is '1/50'"),
    (put([T, OUT, "rounds"], 9), "outcome.rounds is 9"),
    (put([T, OUT, "n_tests"], 12), "outcome.n_tests is 12"),
    (put([T, OUT, "participants"], ["agent000", "agent001"]), "agent002 does not take part"),
    (put([T, OUT, "left_out"], ["agent001"]), "outcome.left_out is ['agent001']"),
    (put([T, OUT, "dropped"], ["agent001"]), "outcome.dropped is ['agent001']"),
    (put([T, OUT], None), "broken off"),
    (put([T, "spec", "level"], "1/10"), "the slope is not α/m"),
    (
        put([T, "spec", "pi0"], "storey:1/2"),
        "rounds.0.question.p_value is None",
    ),
    (put([T, "spec", "regime"], "counts"), "where none is sent"),
    (put([T, "spec", "regime"], "split"), "(to test 2)"),
    (put([T, "spec", "regime"], "conservative"), "has no counts"),
    (put([T, "spec", "regime"], "pooled"), "simulation only"),
    (put([T, "n_tests"], 10), "n_tests is 10, and follows to be 11"),
    (put([T, "roster"], ["agent000", "agent001"]), "the outcome is about others"),
    (put([T, "left"], {"agent001": 0}), "the outcome is about others"),
    (put([T, "left"], {"agent001": 2}), "agent001 vanished during the counts"),
    (put([T, "agents", "agent000", "n_tested"], 4), "agent000 tests 4 rows against 19"),
    (put([T, "agents", "agent000", "n_calibration"], 30), "5 rows against 30"),
    (
        put([T, "agents", "agent000", "n_calibration"], 9),
        "give Count(count=0)",
    ),
    (put([T, "agents", "agent000", "n_test"], 6), "(to test 6)"),
    (put([T, "rounds", 0, "counts", "agent000"], 6), "counts 6 of its 5"),
    (put([T, "rounds", 1, "counts", "agent000"], 5), "but 3 up to"),
    (put([T, "rounds", 0, "counts", "agent000"], 2), "but 2 up to 4"),
    (
        put([T, "rounds", 0, "counts"], {"agent000": 3, "agent001": 2}),
        "counts for round 2 in round 1",
    ),
    (put([T, "rounds", 0, "question", "k"], 10), "rounds.0.question.k is 10"),
    (put([T, "rounds", 0, "question", "slope"], "1/50"), "rounds.0.question.slope is"),
    (put([T, "rounds", 1, "round"], 7), "round 3 is out of turn"),
    (cut_rounds, "no outcome follows"),
    (shift_round, "counts 1 ranks up to 2, but 0 up to 2"),
    (put([T, "messages", 0, 4], 1), "totals"),
    (put([T, "messages", 0, 1], "agent002"), "totals"),
    (put([T, "messages", -4, 5], 1), "charged"),
    (put([T, "totals", "bytes"], 1), "totals"),
    (drop_message("MODEL"), "is missing: MODEL of agent000 for agent001"),
    (drop_message("COUNT"), "a message is missing: COUNT of agent000"),
    (put(["decisions", "agent000", "rejected", 0], False), "did not reject exactly"),
    (put(["decisions", "agent000", "rejected", 4], True), "did not reject exactly"),
    (numbers_for_truths, "are not true or false"),
    (put(["decisions", "agent000", "ranks", 0], 9), "give Count(count=2)"),
    (put(["decisions", "agent000", "ranks", 4], 0), "has 4 ranks"),
    (put(["decisions", "agent000", "ranks", 4], 21), "between 1 and n_calibration"),
    (put(["decisions", "agent000"], {}), "it has no 'ranks'"),
    (lambda run: run["decisions"].pop("agent002"), "decisions of others"),
    (put([T, "format"], "other"), "not a transcript"),
    (put([T, "messages", 0], [1, 2]), "not a transcript"),
    (put([T, "messages", 0, 5], float("nan")), "not a transcript"),
    (put([T, "spec", "level"], "1e-1000000000"), "not a transcript"),
    (put([T, "spec", "pi0"], "storey:1e-1000000000"), "not a transcript"),
    (put([T, "rounds", 0, "counts", "agent000"], "3"), "not a transcript"),
    (lambda run: run.pop(T), "transcript"),
    (put(["decisions", "agent000", "rejected", 0], float("inf")), "are not true or false"),
]


@pytest.mark.parametrize(("change", "finding"), TAMPERED)
def test_tampering_is_found(change, finding):
    run = saved(link_for().run())
    change(run)
    findings = verify(run)
    assert any(finding in said for said in findings), findings


@pytest.mark.parametrize("regime", ["isolated", "conservative"])
def test_tampering_is_found_where_everybody_decides_alone(regime):
    run = saved(link_for(regime).run())
    for change in (
        put(["decisions", "agent000", "ranks"], [1] * 5),
        put(["decisions", "agent000", "rejected"], [True] * 5),
        put([T, "spec", "level"], "7/9"),
        put([T, OUT, "n_rejected"], 1),
    ):
        tampered = copy.deepcopy(run)
        change(tampered)
        assert verify(tampered), change


def leaves(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if isinstance(inner, (dict, list)):
            yield from leaves(inner, (*path, key))
        else:
            yield (*path, key)


@given(
    st.data(),
    st.none()
    | st.booleans()
    | st.integers(-5, 10**6)
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers(), max_size=2)
    | st.just({}),
)
def test_any_change_is_read_without_surprise(data, value):
    run = saved(link_for(pi0="storey").run())
    path = data.draw(st.sampled_from(sorted(leaves(run), key=str)))
    where = run
    for key in path[:-1]:
        where = where[key]
    was, where[path[-1]] = where[path[-1]], value
    findings = verify(run)
    follows = {"rounds", "outcome", "roster", "totals"}
    decides = {"regime", "level", "pi0"}  # other settings show only in the ranks
    told = path[1] in follows or (path[1] == "spec" and path[2] in decides)
    if (path[0] == "decisions" or told) and (path[-1] != "kind"):
        assert findings or value == was


def test_bodies_come_back_from_plain_types():
    step = Step(7, Fraction(1, 30))
    assert as_plain(step) == {"kind": "STEP", "k": 7, "slope": "1/30"}
    assert as_body(Step, as_plain(step)) == step
    for plain in ({"k": -1, "slope": "1/30"}, {"k": 7, "slope": "-1/30"}, {"k": 1.0, "slope": ""}):
        with pytest.raises(Exception, match=r"cannot|integer"):
            as_body(Step, plain)


def test_what_is_not_a_transcript():
    for plain in ({}, {"format": "conovel-transcript-1"}, [], None, 3):
        with pytest.raises(InputError, match="not a transcript"):
            Transcript.from_dict(plain)


def test_no_model_is_in_it():
    link = link_for().run()
    text = json.dumps(link.transcript.to_dict())
    blobs = [decode(d).body.blob for *_, d in link.delivered if type(decode(d).body) is Model]
    assert len(blobs) == len(NAMES) * (len(NAMES) - 1)
    assert not any(blob.decode() in text for blob in blobs)
