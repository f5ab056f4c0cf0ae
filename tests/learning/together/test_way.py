"""Agents learn together over the protocol: roles, losses, hostile numbers, and what it finds."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support.fake_link import NAMES, RUN_ID, FakeSite
from support.thin_agents import thin_agents

import conovel as cn
from conovel.errors import SiteVanishedError
from conovel.experiments.gaussian import gaussian_design
from conovel.learning.base import Party
from conovel.learning.together import at_site
from conovel.learning.together.at_site import SiteLearner
from conovel.learning.together.demands import demands_of
from conovel.learning.together.learner import Learner, learn
from conovel.learning.together.rounds import AgentRows, sum_of
from conovel.learning.together.scale import own_weight
from conovel.learning.together.way import Sums, TogetherCoordinator
from conovel.protocol import agent as protocol
from conovel.runs.agents import open_sites, read_agents
from conovel.spec.bodies import COORDINATOR
from conovel.spec.run_spec import RunSpec


def agents_of(pairs):
    return [cn.Agent(name, *pair) for name, pair in zip("abc", pairs, strict=False)]


def scores(pairs, **more):
    run = cn.Network(agents_of(pairs), regime="together", **more).run(check=False)
    return {name: run[name].scores for name in run}, run


def sites_of(pairs, run):
    """Open the sites of a run again, each with the weight of its group."""
    sites = open_sites(run.spec, read_agents(run.spec, agents_of(pairs)))
    for name, site in sites.items():
        site.weight = run.transcript.weights[name]
    return sites


def require_roles_do_not_matter(scored, pairs, before, places):
    """Exchange calibration rows of the second agent, at these places, with its first tests."""
    n, half = len(places), len(places) // 2
    changed = [tuple(some.copy() for some in pair) for pair in pairs]
    changed[1][0][places], changed[1][1][:n] = pairs[1][1][:n], pairs[1][0][places]
    after, _ = scored(changed)
    assert before["a"].tobytes() == after["a"].tobytes()
    assert before["b"][n:].tobytes() == after["b"][n:].tobytes()
    # The rows that were calibration rows before have the scores that the other order gives them.
    back = [tuple(some.copy() for some in pair) for pair in changed]
    first = places[:half]
    back[1][1][:half], back[1][0][first] = changed[1][0][first], changed[1][1][:half]
    third, _ = scored(back)
    assert third["b"][:half].tobytes() == before["b"][:half].tobytes()
    assert third["b"][half:].tobytes() == after["b"][half:].tobytes()


@pytest.mark.parametrize("masks", [False, True])
def test_calibration_rows_and_test_rows_may_change_places(masks):
    """All scores stay bit for bit, whichever of the exchanged rows are tested."""
    pairs = thin_agents(3, 1)
    before, run = scores(pairs, masks=masks)
    _, calibration = sites_of(pairs, run)["b"].split(60)
    require_roles_do_not_matter(partial(scores, masks=masks), pairs, before, calibration[:12])


def test_roles_may_change_places_where_the_own_score_counts():
    """Agents that differ, with rows enough for scores of their own."""
    rng = np.random.default_rng(5)
    pairs = [tuple(rng.normal(4 * j, 1, (n, 3)).round(1) for n in (400, 200)) for j in range(3)]
    for _, test in pairs:
        test[:20] += 3
    before, run = scores(pairs)
    site = sites_of(pairs, run)["b"]
    n_rows = site.own_block.training.mixture.position.size + len(site.own_block.null_train)
    assert own_weight(n_rows, 9.0) > 0.3
    require_roles_do_not_matter(scores, pairs, before, site.split(400)[1][:50])
    assert run["a"].rejected.sum() > 10


@pytest.mark.parametrize("share", [True, False])
def test_roles_may_change_places_beside_known_novelties(share, monkeypatch):
    """Those of one agent reach all, or stay with it as its own score."""
    rng = np.random.default_rng(6)
    pairs = [tuple(rng.standard_t(4, (n, 3)).round(1) for n in (300, 120)) for _ in range(3)]
    for _, test in pairs:
        test[-24:] = [3.0, -3.0, 3.0]
        test[-24:] += 0.3 * rng.normal(size=(24, 3)).round(1)
    known_rows = np.array([3.0, -3.0, 3.0]) + 0.3 * rng.normal(size=(20, 3))
    if not share:
        monkeypatch.setattr(at_site, "shared_known", lambda site: None)

    def scored(some, novelties=known_rows):
        agents = agents_of(some)
        agents[1] = replace(agents[1], X_known=novelties)
        run = cn.Network(agents, regime="together").run(check=False)
        return {name: run[name].scores for name in run}, run

    before, run = scored(pairs)
    without, _ = scored(pairs, None)
    assert before["b"].tobytes() != without["b"].tobytes()
    assert (before["a"].tobytes() != without["a"].tobytes()) is share
    _, calibration = sites_of(pairs, run)["b"].split(300)
    require_roles_do_not_matter(scored, pairs, before, calibration[:20])


def test_rows_that_train_do_change_the_score():
    pairs = thin_agents(3, 1)
    before, run = scores(pairs)
    train, _ = sites_of(pairs, run)["b"].split(60)
    changed = [tuple(some.copy() for some in pair) for pair in pairs]
    changed[1][0][train[:12]], changed[1][1][:12] = pairs[1][1][:12], pairs[1][0][train[:12]]
    after, _ = scores(changed)
    assert before["b"][12:].tobytes() != after["b"][12:].tobytes()


def test_permuting_test_rows_permutes_scores_and_decisions():
    pairs = thin_agents(3, 2)
    order = np.random.default_rng(0).permutation(30)
    moved = [(null, test[order]) for null, test in pairs]
    (before, run), (after, again) = scores(pairs), scores(moved)
    for name in "abc":
        assert before[name][order].tobytes() == after[name].tobytes()
        assert run[name].rejected[order].tolist() == again[name].rejected.tolist()


def test_the_score_over_the_protocol_is_that_of_the_learner():
    pairs = thin_agents(3, 3)
    _, run = scores(pairs)
    blocks = {name: site.own_block for name, site in sites_of(pairs, run).items()}
    parts = {
        n: AgentRows(b.training.null_train, b.training.mixture.rows) for n, b in blocks.items()
    }
    learner = learn(list(parts.values()), run.spec.seed)
    for name, (_, test) in zip("abc", pairs, strict=True):
        own = learner.score(test, parts[name].centre)
        assert own.tobytes() == run[name].scores.tobytes()


def test_thin_agents_find_together_what_none_finds_alone():
    """Thirty agents with a hundred known normals, at a false discovery rate near the level."""
    design = gaussian_design(2.0, 7, n_agents=30)
    agents = [cn.Agent(f"{i:02d}", one.X_null, one.X_test) for i, one in enumerate(design)]
    run = cn.Network(agents, regime="together").run(check=False)
    flags = [(run[f"{i:02d}"].rejected, one.is_novel) for i, one in enumerate(design)]
    true = sum(int((flag & novel).sum()) for flag, novel in flags)
    assert true > 0.9 * sum(int(novel.sum()) for _, novel in flags)
    assert run.n_rejected - true <= 0.25 * run.n_rejected
    assert {entry.kind for entry in run.transcript.entries} >= {"SUMS", "TOTALS"}
    assert "MODEL" not in {entry.kind for entry in run.transcript.entries}


def test_a_lost_agent_ends_the_run():
    with pytest.raises(SiteVanishedError, match="needs all"):
        cn.Network(agents_of(thin_agents(3, 5)), regime="together").run(dropouts={"b": "models"})


def test_the_coordinator_adds_and_blames_whoever_sends_another_number_of_numbers():
    adder = TogetherCoordinator()
    adder.begin(NAMES)
    numbers = np.arange(4, dtype="<i8")
    assert adder.take(NAMES[0], Sums(numbers.tobytes()), 1) == []
    assert adder.take(NAMES[1], Sums(numbers.tobytes()), 1) == []
    [out] = adder.take(NAMES[2], Sums((-numbers).tobytes()), 1)
    assert np.frombuffer(out.body.numbers, "<i8").tolist() == [0, 1, 2, 3]
    for name in NAMES[:2]:
        adder.take(name, Sums(numbers.tobytes()), 2)
    with pytest.raises(cn.errors.CountOutOfRangeError) as caught:
        adder.take(NAMES[2], Sums(numbers[:2].tobytes()), 2)
    assert caught.value.culprit == NAMES[2]


@pytest.mark.parametrize("numbers", [b"", bytes(8), b"\xff" * 8 * 770, b"abc"])
def test_totals_of_no_rows_are_refused(numbers):
    spec = RunSpec.of(regime="together")
    site = FakeSite(NAMES[0], [1, 2], 5, regime="together")
    learner = SiteLearner(Party(NAMES[0], spec, RUN_ID, b"", NAMES))
    learner.begin(site, 0)
    with pytest.raises(cn.errors.OutcomeMismatchError, match="the coordinator is wrong"):
        learner.go_on(numbers)


def test_cells_between_organisations_hold_several_rows_of_a_site():
    pairs = thin_agents(3, 6, n_null=400, n_test=200)
    smallest = {}
    for least in (1, 5):
        agents = agents_of(pairs)
        run = cn.Network(agents, regime="together", min_group_rows=least).run(check=False)
        counts = [np.add(h.calibration, h.tests) for h in run.transcript.histograms.values()]
        smallest[least] = min(int(cells[cells > 0].min()) for cells in counts if cells.any())
    assert smallest[1] == 1
    assert smallest[5] >= 5


def test_sums_of_another_round_and_an_early_ready_are_refused():
    adder = TogetherCoordinator()
    adder.begin(NAMES)
    numbers = Sums(bytes(8))
    with pytest.raises(cn.errors.UnexpectedMessageError):
        adder.take(NAMES[0], numbers, 9)
    with pytest.raises(cn.errors.UnexpectedMessageError) as caught:
        adder.require_learnt(NAMES[0])
    assert caught.value.culprit == NAMES[0]
    for name in NAMES:
        adder.take(name, numbers, 1)
    adder.require_learnt(NAMES[0])
    with pytest.raises(cn.errors.UnexpectedMessageError):  # it was ready
        adder.take(NAMES[0], numbers, 2)
    adder.take(NAMES[1], numbers, 2)  # one round more than the others
    with pytest.raises(cn.errors.UnexpectedMessageError) as caught:
        adder.require_learnt(NAMES[2])
    assert caught.value.culprit == NAMES[1]


def test_a_site_blames_the_coordinator_for_totals_of_no_rows():
    spec = RunSpec.of(regime="together")
    agent = protocol.Agent(NAMES[0], spec=spec, run_id=RUN_ID, nonce=bytes(32))
    agent.join(FakeSite(NAMES[0], [1], 5, regime="together").facts)
    error = cn.errors.OutcomeMismatchError("the coordinator is wrong: no rows", COORDINATOR)
    agent.site_failed(error)
    assert agent.error.culprit == COORDINATOR


def test_seeds_of_128_bits_are_taken():
    run = cn.Network(agents_of(thin_agents(3, 9)), regime="together", random_state=2**70 + 3)
    assert run.run(check=False).spec.seed == 2**70 + 3


def test_no_run_asks_for_more_than_it_says():
    """What sites compare with their consent bounds every round of a run."""
    asked = demands_of()
    pairs = thin_agents(3, 4, n_null=400, n_test=200)
    known_rows = cn.Agent("a", *pairs[0], X_known=pairs[0][1][:6])
    for agents, n_rounds in (
        (agents_of(pairs), asked.rounds - 1),  # one round is about known novelties
        ([known_rows, *agents_of(pairs)[1:]], asked.rounds),
    ):
        run = cn.Network(agents, regime="together").run(check=False)
        entries = [e for e in run.transcript.entries if e.kind == "SUMS"]
        assert max(e.round for e in entries) == n_rounds
    parts = [AgentRows(*pair) for pair in thin_agents(3, 4, n_null=3000, n_test=900)]
    learner = Learner(3, 3, 0)
    while not learner.bins:
        assert learner.n_numbers <= 4 + 3 * asked.bins
        learner.take(sum_of([learner.answer(part) for part in parts]))


def test_more_columns_than_a_message_holds_are_refused_with_a_way_out():
    wide = np.random.default_rng(0).normal(size=(60, 8_001))
    pairs = [(wide, wide[:10] + 1)] * 2
    with pytest.raises(cn.ConovelError, match="use the regime 'joint'"):
        cn.Network(agents_of(pairs), regime="together", level=0.5).run(check=False)
