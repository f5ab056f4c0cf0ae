"""One model from noisy sums: what a row changes, what noise costs, and whole runs."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.noise import FixedNoise, NoNoise, SeededNoise

import conovel as cn
from conovel.errors import PrivacyError
from conovel.experiments.gaussian import gaussian_design
from conovel.learning.together.learner import sum_of
from conovel.learning.together.private import (
    EDGES,
    GRAIN,
    PrivateLearner,
    PrivateRows,
    honest_of,
    quartiles_of,
    shared_scale,
)
from conovel.models.wire import decode
from conovel.protocol.replay import verify
from conovel.runs.agents import open_sites, read_agents
from conovel.site.sent.compact import Units, public_units
from conovel.site.sent.private_surrogate import (
    SecretNoise,
    _gaussian,
    radius_of,
    sensitivity,
    total_rho,
)
from conovel.spec.settings import as_privacy

EPSILON = as_privacy(4)
NUMBERS = st.floats(-1e30, 1e30, width=64) | st.sampled_from([-1e38, 0.0, 1e-300, 1.0, 4.0, 1e38])
UNKNOWN, KNOWN = public_units(None, 3), Units(np.zeros(3), np.ones(3))


class Recorded:
    """No noise, and a list of what it would have been added to."""

    def __init__(self):
        self.asked_for = []

    def add(self, sums, scale):
        self.asked_for.append((sums.copy(), scale))
        return sums


def rows_of(rng, n_null=40, n_mixture=60, n_columns=3):
    null, mixture = rng.normal(size=(n_null, n_columns)), rng.normal(size=(n_mixture, n_columns))
    mixture[:6] += 4
    return PrivateRows(null, mixture, n_mixture)


def learn(agents, noise, public=UNKNOWN, privacy=EPSILON, n_honest=1):
    learner = PrivateLearner(public, privacy, n_honest)
    while not learner.is_done:
        learner.take(sum_of([learner.answer(rows, noise) for rows in agents]))
    return learner


# What one row changes: the figures that the proof uses -------------------------------------------


def changes(rows, other, public):
    """Return by how much a replaced row moves the sums, squared, and the scale, of each round."""
    found = []
    noise = [Recorded(), Recorded()]
    learner = PrivateLearner(public, EPSILON)
    while not learner.is_done:
        totals = [
            learner.answer(one, some) for one, some in zip((rows, other), noise, strict=True)
        ]
        np.testing.assert_array_equal(totals[0][:3], totals[1][:3])
        (a, scale), (b, _) = (some.asked_for[-1] for some in noise)
        found.append(
            (sum((x - y) ** 2 for x, y in zip(a.tolist(), b.tolist(), strict=True)), scale)
        )
        learner.take(totals[0])
    return found


@given(
    arrays(np.float64, (8, 3), elements=NUMBERS),
    arrays(np.float64, (3,), elements=NUMBERS),
    st.integers(0, 7),
    st.sampled_from([UNKNOWN, KNOWN]),
)
def test_a_replaced_row_costs_no_more_than_rho(values, row, place, public):
    other = values.copy()
    other[place] = row
    pair = (PrivateRows(x[:3], x[3:], 5) for x in (values, other))
    spent = sum(moved / (2 * scale**2) for moved, scale in changes(*pair, public))
    assert spent <= total_rho(EPSILON)


@pytest.mark.parametrize("public", [UNKNOWN, KNOWN])
def test_rho_is_spent_by_the_worst_row(public):
    """A row far up in one column becomes one far up in another, and leaves all its intervals."""
    values = np.zeros((40, 3))
    values[::2] = 1.0
    values[3], other = [1e6, 0.01, -0.01], values.copy()
    other[3] = [-0.01, 1e6, 0.01]
    pair = (PrivateRows(x[:20], x[20:], 20) for x in (values, other))
    spent = sum(moved / (2 * scale**2) for moved, scale in changes(*pair, public))
    assert spent > 0.9 * total_rho(EPSILON)
    assert len(changes(*(PrivateRows(x[:20], x[20:], 20) for x in (values, other)), public)) == (
        2 if public is UNKNOWN else 1
    )


def test_the_library_agrees_about_the_noise_of_all_honest_agents():
    for n_honest in (1, 2, 15):
        scale = shared_scale(sensitivity(20), 0.1, n_honest)
        assert _gaussian(scale * math.sqrt(n_honest)).map(sensitivity(20)) <= 0.1
        assert scale == pytest.approx(sensitivity(20) / math.sqrt(0.2 * n_honest), rel=1e-6)


@pytest.mark.parametrize("n_agents", [2, 3, 7])
def test_noise_of_several_agents_adds_up_to_that_of_one(n_agents):
    """Rényi divergences of shifted sums of noise, at the smallest scale that is allowed."""
    scale, shift = 3.0, 20
    places = np.arange(-400, 401)
    noise = np.exp(-(places**2) / (2 * scale**2))
    total = one = noise / noise.sum()
    for _ in range(n_agents - 1):
        total = np.convolve(total, one, "same")
    for order in (1.5, 2.0, 8.0):
        p, q = total[shift:], total[:-shift]
        keep = (p > 1e-250) & (q > 1e-250)
        moment = np.sum(np.exp(order * np.log(p[keep]) + (1 - order) * np.log(q[keep])))
        divergence = math.log(moment) / (order - 1)
        assert divergence <= order * shift**2 / (2 * n_agents * scale**2) * (1 + 1e-9)


def test_noise_that_is_too_small_to_be_shared_is_refused():
    assert shared_scale(GRAIN * math.sqrt(2), total_rho(as_privacy(100)), 1) < 30
    with pytest.raises(PrivacyError, match="does not add up"):
        shared_scale(GRAIN * math.sqrt(2), total_rho(as_privacy(100)), 2000)


# The model ---------------------------------------------------------------------------------------


def test_the_model_follows_from_the_totals_in_any_order():
    rng = np.random.default_rng(0)
    agents = [rows_of(rng) for _ in range(4)]
    shuffled = [
        one._replace(mixture=rng.permutation(one.mixture), null_train=one.null_train[::-1])
        for one in agents[::-1]
    ]
    blobs = [learn(some, NoNoise()).model() for some in (agents, shuffled)]
    assert blobs[0] == blobs[1]
    whole = PrivateRows(*(np.vstack(x) for x in zip(*[a[:2] for a in agents], strict=True)), 240)
    divided, undivided = (learn(some, NoNoise(), KNOWN).sums for some in (agents, [whole]))
    np.testing.assert_array_equal(np.concatenate(divided), np.concatenate(undivided))


def test_novelties_score_higher_than_normal_rows():
    rng = np.random.default_rng(1)
    agents = [rows_of(rng) for _ in range(30)]
    model = decode(learn(agents, SeededNoise(0), n_honest=15).model())
    assert model.score(np.full((1, 3), 4.0))[0] > model.score(np.zeros((1, 3)))[0]


def test_a_model_that_would_be_noise_is_a_constant():
    rng = np.random.default_rng(2)
    learner = learn([rows_of(rng)], SeededNoise(0), privacy=as_privacy("1/10"))
    assert np.ptp(decode(learner.model()).score(rng.normal(size=(50, 3)) * 3)) == 0


def test_quartiles_follow_from_counts():
    column = np.random.default_rng(0).normal(50, 10, 100_000)
    counts = np.bincount(np.searchsorted(EDGES, column, side="right"), minlength=EDGES.size + 1)
    low, high = quartiles_of(counts * 1.0, spread=10.0)
    assert abs(low - (50 - 6.745)) < 1.5
    assert abs(high - (50 + 6.745)) < 1.5
    assert quartiles_of(np.zeros(EDGES.size + 1), spread=1.0) == pytest.approx(
        (-0.6745, 0.6745), 1e-3
    )


@pytest.mark.parametrize(
    "change", [lambda t: t[:-1], lambda t: t * 0, lambda t: t + np.eye(1, t.size, 1, dtype=int)[0]]
)
def test_totals_of_no_rows_are_refused(change):
    rows = rows_of(np.random.default_rng(0))
    learner = PrivateLearner(UNKNOWN, EPSILON)
    learner.take(learner.answer(rows, NoNoise()))
    with pytest.raises(ValueError, match=r"rows|numbers"):
        learner.take(change(learner.answer(rows, NoNoise())))


def test_a_row_is_no_longer_than_the_noise_is_made_for():
    assert sensitivity(3) >= math.sqrt(2) * radius_of(3)


# Whole runs --------------------------------------------------------------------------------------


def test_a_network_learns_together_with_privacy(few_trees):
    drawn = gaussian_design(0.0, 3, n_agents=6, n_null=1200, n_test=400)
    agents = [cn.Agent(str(i), a.X_null, a.X_test) for i, a in enumerate(drawn)]
    runs = [cn.Network(agents, regime="together", privacy=8).run(check=False) for _ in range(2)]
    kinds = [run.transcript.totals()["by_kind"] for run in runs]
    assert kinds[0]["SUMS"]["messages"] == 2 * len(agents)  # two rounds
    assert "MODEL" not in kinds[0]
    assert not verify(runs[0].to_dict())
    assert "drawn anew" in str(runs[0].guarantee)
    # The noise is secret, so that two runs differ.
    scores = [np.concatenate([run[a.name].scores for a in agents]) for run in runs]
    assert (scores[0] != scores[1]).any()


def test_known_novelties_never_enter_sums_with_privacy(monkeypatch, few_trees):
    """What an agent knows moves its own score; agents that know nothing keep every bit."""
    monkeypatch.setattr(SecretNoise, "add", FixedNoise.add)
    rng = np.random.default_rng(4)
    pairs = [(rng.normal(size=(300, 3)), rng.normal(size=(120, 3))) for _ in range(2)]
    for _, test in pairs:
        test[:20] += 4

    def scores(known_rows):
        agents = [cn.Agent(name, *pair) for name, pair in zip("ab", pairs, strict=True)]
        agents[0] = replace(agents[0], X_known=known_rows)
        run = cn.Network(agents, regime="together", privacy=50).run(check=False)
        return [run[name].scores for name in "ab"]

    without, with_known = scores(None), scores(rng.normal(4, 1, size=(30, 3)))
    assert without[1].tobytes() == with_known[1].tobytes()
    assert without[0].tobytes() != with_known[0].tobytes()


def test_calibration_rows_and_test_rows_may_change_places(monkeypatch, few_trees):
    """With the noise held fixed, all scores stay bit for bit."""
    monkeypatch.setattr(SecretNoise, "add", FixedNoise.add)
    rng = np.random.default_rng(1)
    pairs = [(rng.normal(size=(90, 3)), rng.normal(size=(40, 3))) for _ in range(2)]

    def scores(some):
        agents = [cn.Agent(name, *pair) for name, pair in zip("ab", some, strict=True)]
        run = cn.Network(agents, regime="together", privacy=50).run(check=False)
        return [run[name].scores for name in "ab"], run, agents

    before, run, agents = scores(pairs)
    site = open_sites(run.spec, read_agents(run.spec, agents))["b"]
    site.weight = run.transcript.weights["b"]
    train, calibration = site.split(90)
    for places, is_same in ((calibration[:10], True), (train[:10], False)):
        changed = [tuple(x.copy() for x in pair) for pair in pairs]
        changed[1][0][places], changed[1][1][:10] = pairs[1][1][:10], pairs[1][0][places]
        after = scores(changed)[0]
        assert (before[0].tobytes() == after[0].tobytes()) is is_same
        assert (before[1][10:].tobytes() == after[1][10:].tobytes()) is is_same


@pytest.mark.parametrize(("n_agents", "honest"), [(2, 1), (3, 2), (10, 5), (30, 15)])
def test_half_of_the_agents_are_taken_to_be_honest(n_agents, honest):
    assert honest_of(n_agents) == honest
