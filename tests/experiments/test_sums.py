"""Attacks on sums find what is there, and nothing where there is nothing; no model is a query."""

import numpy as np
import pytest

from benchmarks import _listening as listening
from benchmarks import sums as benchmark
from benchmarks._listening import ALL, KINDS, KNOWN_KINDS
from benchmarks._sums import Ear, Products, counted_by, listen, ratios
from benchmarks._sums_rows import KNOWN, MIXTURE, NULL, Design, Probe
from conovel.experiments.attacks import area
from conovel.learning.together import bins
from conovel.learning.together.learner import AgentRows, Learner, Settings, sum_of
from conovel.learning.together.way import TOGETHER
from conovel.spec.bodies import Kind
from conovel.spec.settings import as_privacy

SMALL = Settings(n_trees=5, depth=3)


@pytest.fixture(scope="module")
def trials():
    design = Design(40, 3)
    return [listening.trial(design, [1, 3], seed, 30, SMALL) for seed in range(3)]


def test_sums_of_few_rows_tell_who_took_part(trials):
    for kind in KINDS[:2]:
        key = 1, ALL, kind
        assert np.mean([area(one.others[key], one.members[key]) for one in trials]) > 0.9
    assert np.mean([one.secrets[1] for one in trials]) > 0.25


def test_the_attack_finds_nothing_where_nothing_was_heard():
    """Sums that are exactly what is expected tell no row from another, but for its own size."""
    design = Design(40, 3)
    rng = np.random.default_rng(0)
    agents = [design.agent(j, rng) for j in range(3)]
    references = [Probe(design.normals(0, 30, rng), role, 0) for role in (NULL, MIXTURE)]
    attacked = [Probe(agents[0].null_train[:20], NULL), Probe(design.normals(0, 20, rng), NULL)]
    heard = listen(agents, design, references, attacked, 0, SMALL)
    assert sorted(heard) == ["bins", "moments", "trees"]
    silent = [
        Products(one.of_probes, np.zeros_like(one.with_sums), np.zeros_like(one.with_expected))
        for one in heard.values()
    ]
    members, others = ratios(silent, 1, design, references, attacked)
    assert 0.2 < area(others, members) < 0.8
    members, others = ratios(list(heard.values()), 1, design, references, attacked)
    assert area(others, members) > 0.9


@pytest.mark.parametrize("n_shared", [0, 12])
def test_what_rows_add_one_by_one_adds_up_to_what_an_agent_sends(n_shared):
    design = Design(30, 3, n_shared=n_shared)
    rng = np.random.default_rng(1)
    agents = [design.agent(j, rng) for j in range(3)]
    own = agents[0]
    probes = [Probe(own.null_train, NULL), Probe(own.mixture, MIXTURE)]
    if n_shared:
        probes.append(Probe(own.known_rows, KNOWN))
    ear = Ear(Learner(20, 3, 0, SMALL), design, probes)
    parts = set()
    for one in ear.rounds(agents, 0):
        parts.add(one.part)
        together = sum(np.asarray(z.sum(axis=0)).ravel() for z in one.added)
        np.testing.assert_array_equal(together, one.sums[0])
    assert (KNOWN in parts) == bool(n_shared)


def test_rows_are_counted_at_the_candidates_of_their_nodes():
    rng = np.random.default_rng(2)
    rows = AgentRows(rng.normal(size=(20, 3)), rng.normal(size=(30, 3)))
    learner = Learner(3, 1, 0, SMALL)
    while not learner.forests:
        learner.take(learner.answer(rows))
    exact = learner.answer(rows)
    lines = np.arange(50)
    kinds = [
        counted_by(learner.forests[0], rows.codes, rows.nodes[0], kind, lines, 50)
        for kind in (False, True)
    ]
    null, mixture = (np.asarray(z.sum(axis=0)).ravel() for z in kinds)
    sums = [exact[side::2].sum() for side in (0, 1)]
    assert sums[0] < null.sum()  # all rows are counted as if of one kind
    assert sums[1] < mixture.sum()
    assert (null[::2] == exact[::2] + exact[1::2]).all()


def test_noise_hides_who_took_part():
    design = Design(60, 3)
    found = [
        [listening.trial(design, [1], seed, 30, privacy=as_privacy(e)) for seed in range(3)]
        for e in (1, 100)
    ]
    auc = [benchmark.strongest(some, 1, KINDS[0])[0] for some in found]
    assert auc[0] + 0.15 < auc[1]


@pytest.fixture(scope="module")
def known_trials():
    """The agent that is attacked has known novelties, alone or as all others have."""
    alone, among = (Design(60, 3, n_shared=20, n_sharing=n) for n in (1, 3))
    return [
        [listening.known_trial(design, [1, 3], seed, 60, SMALL) for seed in range(3)]
        for design in (alone, among)
    ]


def test_counts_of_known_novelties_tell_who_they_are(known_trials):
    alone, _ = known_trials
    for kind in KNOWN_KINDS[:2]:
        assert benchmark.strongest(alone, 1, kind)[0] > 0.8
    # Totals hide nothing where one agent alone has known novelties, bit for bit.
    for kind in KNOWN_KINDS:
        for one in alone:
            np.testing.assert_array_equal(one.members[1, KNOWN, kind], one.members[3, KNOWN, kind])


def test_known_novelties_of_others_hide_those_of_an_agent(known_trials):
    _, among = known_trials
    auc = [benchmark.strongest(among, heard, KNOWN_KINDS[0])[0] for heard in (1, 3)]
    assert auc[1] < auc[0]


def test_too_few_known_novelties_are_counted_nowhere():
    design = Design(30, 3, n_shared=SMALL.least - 1)
    rng = np.random.default_rng(1)
    agents = [design.agent(j, rng) for j in range(3)]
    ear = Ear(Learner(20, 3, 0, SMALL), design, [Probe(agents[0].known_rows, KNOWN)])
    assert all(not z.nnz for one in ear.rounds(agents, 0) for z in one.added)


# Values ------------------------------------------------------------------------------------------


def test_intervals_of_few_rows_are_not_divided():
    """Otherwise the sums tell the values of thin agents to a hundred-thousandth."""
    design = Design(30, 3)
    rng = np.random.default_rng(0)
    agents = [design.agent(j, rng) for j in range(3)]
    published = listening.publish(agents)
    widths = listening.brackets(published, agents[0].values)
    assert (widths < 0.001).mean() < 0.02


def test_two_runs_that_differ_in_a_row_tell_it():
    found, row = listening.one_row_more(Design(60, 3), 1, is_split_again=False)
    assert np.median(np.abs(found.guess - row)) < 0.01
    other, row = listening.one_row_more(Design(60, 3), 1, is_split_again=True)
    assert np.median(np.abs(other.guess - row)) > 1  # other rows train: the sums say nothing
    np.testing.assert_array_equal(found.widths, other.widths)  # bins count all rows alike


def test_a_liar_asks_with_rows_that_it_does_not_have():
    design = Design(40, 3)
    assert listening.steered(design, 0, is_there=True) == 20
    assert listening.steered(design, 0, is_there=False) < 5


# What fails by construction ----------------------------------------------------------------------


def test_no_model_of_a_peer_can_be_put_to_the_rows_of_an_agent():
    assert Kind.MODEL not in {cause for _, cause in TOGETHER.transitions}


def test_totals_do_not_tell_at_which_agent_a_row_is():
    """Who sees totals alone sees the same intervals and counts, bit for bit."""
    design = Design(40, 3)
    rng = np.random.default_rng(3)
    agents = [design.agent(j, rng) for j in range(3)]
    a, b = agents[0].mixture.copy(), agents[1].mixture.copy()
    a[0], b[0] = agents[1].mixture[0], agents[0].mixture[0]
    moved = [AgentRows(agents[0].null_train, a), AgentRows(agents[1].null_train, b), agents[2]]
    first, second = (Learner(20, 3, 0, SMALL) for _ in range(2))
    for _ in range(bins.N_ROUNDS):
        totals = [
            sum_of([learner.answer(rows) for rows in some])
            for learner, some in ((first, agents), (second, moved))
        ]
        np.testing.assert_array_equal(*totals)
        # An agent's own numbers do tell: that is what masks hide.
        assert (first.answer(agents[0]) != second.answer(moved[0])).any()
        first.take(totals[0])
        second.take(totals[1])


def test_the_benchmark_prints_its_tables(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["sums", "--rows", "30", "--trials", "0", "--repeat", "2"])
    benchmark.main()
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4
    assert printed[2].startswith("| 30 | 3 |")
    assert "2 of 2" in printed[2]


def test_the_benchmark_prints_a_table_of_known_novelties(capsys, monkeypatch):
    monkeypatch.setattr(benchmark, "KNOWN_VIEWS", ((3, 1, (1, 3)),))
    sizes = ["--rows", "30", "--shared", "12", "--trials", "4", "--references", "20"]
    monkeypatch.setattr("sys.argv", ["sums", *sizes])
    benchmark.main()
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4
    assert printed[2].startswith("| 30 | 12 | 1 | 3 | 1 |")


def test_the_strongest_part_is_told(trials):
    auc, error, part = benchmark.strongest(trials, 3, KINDS[0])
    assert 0.5 < auc <= 1
    assert error < 0.2
    assert part in ("bins", "moments", "trees", ALL)
