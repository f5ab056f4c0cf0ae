"""Models with differential privacy: sensitivity by brute force, noise, and what is public."""

import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.noise import FixedNoise, NoNoise

import conovel as cn
from conovel.errors import InputError, MissingExtraError, PrivacyError
from conovel.experiments.gaussian import gaussian_design
from conovel.models.wire import decode, family_of
from conovel.protocol.replay import verify
from conovel.scorers.base import Mixture, TrainingSet
from conovel.site.blocks import training_sample
from conovel.site.sent import private_surrogate as noise_module
from conovel.site.sent.compact import Units, public_units
from conovel.site.sent.private_surrogate import (
    CANDIDATES,
    LENGTH,
    START,
    SecretNoise,
    find_units,
    gaussian_scale,
    make_private_surrogate,
    quartile_scores,
    radius_of,
    row_vectors,
    selection_scale,
    sensitivity,
    tail_sums,
    total_rho,
)
from conovel.spec.schema import Schema
from conovel.spec.settings import Privacy, as_privacy

EPSILON = as_privacy(4)
NUMBERS = st.floats(-1e30, 1e30, width=64) | st.sampled_from([-1e38, 0.0, 1e-300, 1.0, 4.0, 1e38])


def units_of(d):
    return Units(np.zeros(d), np.ones(d))


def training_of(null_train, mixture):
    return TrainingSet(np.asarray(null_train, float), Mixture.of(np.asarray(mixture, float)))


def distance(one, other):
    """Euclidean distance between all sums of two training sets, squared, in exact integers."""
    both = zip(np.concatenate(one).tolist(), np.concatenate(other).tolist(), strict=True)
    return sum((a - b) ** 2 for a, b in both)


def replaced(training, role, place, row):
    null_train, mixture = training.null_train.copy(), training.mixture.rows
    (null_train if role == "null_train" else mixture)[place] = row
    return training_of(null_train, mixture)


# Sensitivity: the figures that the proof uses ----------------------------------------------------


@given(arrays(np.float64, (6, 3), elements=NUMBERS), st.sampled_from([1e-3, 1.0, 1e6]))
def test_no_row_is_longer_than_the_radius(rows, unit):
    vectors = row_vectors(rows, Units(np.zeros(3), np.full(3, unit)))
    assert vectors.dtype == np.int64
    assert vectors.min() >= 0
    assert all(sum(v * v for v in row) <= radius_of(3) ** 2 for row in vectors.tolist())


@given(
    arrays(np.float64, (5, 2), elements=NUMBERS),
    arrays(np.float64, (2,), elements=NUMBERS),
    st.sampled_from(["null_train", "mixture"]),
    st.integers(0, 1),
)
def test_a_replaced_row_moves_the_sums_by_no_more_than_claimed(rows, row, role, place):
    before = training_of(rows[:2], rows[2:])
    after = replaced(before, role, place, row)
    sums = [tail_sums(one, units_of(2)) for one in (before, after)]
    assert distance(*sums) <= 2 * radius_of(2) ** 2 <= sensitivity(2) ** 2


@pytest.mark.parametrize("role", ["null_train", "mixture"])
def test_the_claimed_distance_is_attained(role):
    """A row far up in one feature becomes one that is far up in another."""
    far = START + LENGTH
    before = training_of([[far, 0.0], [0.0, 0.0]], [[0.0, 0.0], [far, 0.0]])
    place = 0 if role == "null_train" else 1
    after = replaced(before, role, place, [0.0, far])
    found = distance(*(tail_sums(one, units_of(2)) for one in (before, after)))
    assert found == 2 * radius_of(2) ** 2


@given(
    arrays(np.float64, 9, elements=NUMBERS), st.integers(0, 8), NUMBERS, st.sampled_from([9, 12])
)
def test_a_replaced_value_changes_no_score_of_a_quartile_by_more_than_one(values, i, new, n):
    before = quartile_scores(values, n)
    values[i] = new
    after = quartile_scores(values, n)
    assert max(np.abs(a - b).max() for a, b in zip(before, after, strict=True)) <= 1


def test_the_change_of_a_score_is_attained():
    values = np.zeros(8)
    changed = np.append(np.zeros(7), 1.0)
    one, other = (np.concatenate(quartile_scores(v, 8)) for v in (values, changed))
    assert np.abs(one - other).max() == 1


@given(st.integers(0, 10**6), st.integers(0, 39))
def test_a_sample_by_content_changes_by_one_row_out_and_one_in(seed, place):
    """What is learnt from a very large mixture is a sample: it changes no more than the rows."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 4, size=(40, 1)).astype(float)
    other = rows.copy()
    other[place] = rng.integers(0, 4)
    kept = [training_sample(Mixture.of(x), 25).rows[:, 0] for x in (rows, other)]
    counts = [np.bincount(x.astype(int), minlength=4) for x in kept]
    change = counts[0] - counts[1]
    assert change.max(initial=0) <= 1
    assert np.abs(change).sum() <= 2


# Noise and accounting ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1/100", "1", "4", "100", "4,1e-9"])
def test_the_library_agrees_that_all_noise_together_costs_no_more_than_asked(text):
    dp, privacy = noise_module._library(), as_privacy(text)
    rho = total_rho(privacy)
    for_units, for_sums = rho / 4, rho * 3 / 4
    n_columns = 20
    spent = (
        2
        * n_columns
        * noise_module._selection(selection_scale(for_units / (2 * n_columns))).map(1)
    )
    scale = gaussian_scale(sensitivity(n_columns), for_sums)
    spent += noise_module._gaussian(scale).map(sensitivity(n_columns))
    assert spent <= rho * (1 + 1e-12)
    whole = dp.c.make_zCDP_to_approxDP(noise_module._gaussian(1.0))
    epsilon = whole.map((2 * spent) ** 0.5).epsilon(float(privacy.delta))
    assert 0.999 * privacy.epsilon <= epsilon <= privacy.epsilon


def test_the_conversion_is_at_least_as_careful_as_the_exact_one_of_a_gaussian():
    """The exact δ of Gaussian noise (Balle and Wang 2018) at our ε is below the δ we claim."""
    from scipy.stats import norm

    for epsilon in (1.0, 4.0, 8.0):
        mu = (2 * total_rho(as_privacy(epsilon))) ** 0.5
        exact = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(
            -mu / 2 - epsilon / mu
        )
        assert exact <= 1e-6


def test_noise_has_the_scale_it_is_asked_for_and_is_never_the_same():
    drawn = SecretNoise().add(np.zeros(4000, dtype=np.int64), 50.0)
    again = SecretNoise().add(np.zeros(4000, dtype=np.int64), 50.0)
    assert not np.array_equal(drawn, again)
    # The variance of 4,000 draws is within 5 standard errors of 2,500.
    assert abs(drawn.astype(float).var() / 2500 - 1) < 5 * (2 / 4000) ** 0.5
    chosen = [SecretNoise().largest(np.array([0, 10]), 10.0) for _ in range(2000)]
    expected = np.e / (1 + np.e)
    assert abs(np.mean(chosen) - expected) < 5 * (expected * (1 - expected) / 2000) ** 0.5


def test_no_seed_reaches_the_noise():
    rows = np.random.default_rng(0).normal(size=(1000, 2))
    asked = training_of(rows[:500], rows[500:]), 500, public_units(None, 2), EPSILON
    sent = set()
    for _ in range(3):
        np.random.seed(0)  # noqa: NPY002  (whoever draws from it would repeat itself)
        sent.add(make_private_surrogate(*asked, SecretNoise()))
    assert len(sent) == 3


def test_without_the_library_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    noise_module._library.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r"conovel\[privacy\]"):
            noise_module._library()
    finally:
        noise_module._library.cache_clear()


# What is public ----------------------------------------------------------------------------------


def test_units_follow_from_the_schema():
    schema = Schema.from_dict(
        {
            "age": {"kind": "number", "low": 0, "high": 120, "missing": True},
            "dose": "number",
            "ill": "boolean",
            "size": {"kind": "category", "levels": ["L", "M"], "rare": ["S"]},
            "town": {"kind": "category", "levels": list("abcdefghij")},
            "at": {"kind": "date", "parts": ["year", "hour"]},
            "note": "ignore",
        }
    )
    centre, unit = public_units(schema, len(schema.features))
    nan = np.nan
    assert np.array_equal(centre, [60, 0.5, nan, *4 * [0.5], 5, nan, 11.5], equal_nan=True)
    quarters = [15, 0.25, nan, *4 * [0.25], 2.5, nan, 5.75]
    assert np.array_equal(unit, quarters, equal_nan=True)


def test_known_units_cost_nothing_and_look_at_no_row():
    class Refuses(NoNoise):
        def largest(self, scores, scale):
            raise AssertionError("a quartile was asked for")

    schema = Schema.from_dict({"a": {"kind": "number", "low": -8, "high": 8}, "b": "boolean"})
    known = public_units(schema, 2)
    units = find_units(training_of([[0, 0]], [[1, 1]]), 1, known, Refuses(), 0.0)
    assert units.centre.tolist() == [0, 0.5]
    assert units.unit.tolist() == [2, 0.25]


def test_units_are_those_of_the_quartiles():
    rows = np.random.default_rng(0).normal(5.0, 2.0, size=(4000, 1))
    training = training_of(rows[:2000], rows[2000:])
    centre, unit = find_units(training, 2000, public_units(None, 1), NoNoise(), 0.1)
    assert abs(centre[0] - 5) < 0.4  # candidates are 15 % apart
    assert 1.5 < unit[0] < 2.5
    assert CANDIDATES.size == 291
    assert (np.diff(CANDIDATES) > 0).all()


# The model ---------------------------------------------------------------------------------------


def test_without_noise_the_model_finds_the_heavy_tails():
    rng = np.random.default_rng(0)
    null_train, mixture = rng.normal(size=(1000, 3)), rng.normal(size=(1000, 3))
    mixture[:100, 0] += 3
    mixture[100:200, 2] -= 3
    training = training_of(null_train, mixture)
    blob = make_private_surrogate(training, 1000, public_units(None, 3), EPSILON, NoNoise())
    score = decode(blob).score(
        [[0, 0, 0], [3, 0, 0], [-3, 0, 0], [0, 0, -3], [0, 0, 3], [9, 0, 0]]
    )
    usual, up, down, other_down, other_up, far = score
    assert min(up, other_down) > 1.5 * usual
    assert max(abs(down - usual), abs(other_up - usual)) < 0.1
    assert far >= up


@pytest.mark.parametrize("bits", ["compact", "compact:90", 4, None])
def test_every_precision_is_sent(bits):
    a = gaussian_design(2.0, 0)[0]
    training = training_of(a.X_null[:500], np.concatenate([a.X_null[500:], a.X_test]))
    blob = make_private_surrogate(
        training, 834, public_units(None, 20), EPSILON, FixedNoise(), bits
    )
    assert family_of(blob) == ("forest", bits is None)
    assert len(blob) <= {"compact": 500, "compact:90": 90}.get(bits, 4000)
    assert np.isfinite(decode(blob).score(a.X_test)).all()


def test_a_model_that_would_be_noise_says_nothing():
    """It follows from ε and the numbers of rows alone, so that it tells nothing either."""
    a = gaussian_design(2.0, 0)[0]
    training = training_of(a.X_null[:500], np.concatenate([a.X_null[500:], a.X_test]))
    asked = training, 834, public_units(None, 20)
    says = [
        np.unique(decode(make_private_surrogate(*asked, p, FixedNoise())).score(a.X_test)).size > 1
        for p in map(as_privacy, ("1/100", "4"))
    ]
    assert says == [False, True]


def test_too_small_a_budget_is_refused():
    training = training_of([[0.0]], [[1.0]])
    with pytest.raises(InputError, match="no model fits a budget of 5 bytes"):
        make_private_surrogate(
            training, 1, public_units(None, 1), EPSILON, FixedNoise(), "compact:5"
        )


@given(arrays(np.float64, (4, 2), elements=NUMBERS))
def test_any_rows_give_a_model(rows):
    training = training_of(rows[:2], rows[2:])
    blob = make_private_surrogate(training, 2, public_units(None, 2), EPSILON, FixedNoise())
    assert np.isfinite(decode(blob).score(rows)).all()


# Runs --------------------------------------------------------------------------------------------


def agents_of(rows):
    return [cn.Agent(name, a.X_null, a.X_test) for name, a in zip("abc", rows, strict=False)]


def test_a_network_sends_private_models_and_says_so():
    agents = agents_of(gaussian_design(0.0, 0, n_null=600, n_test=150))
    run = cn.Network(agents, regime="full", scorer="logistic", privacy=4).run(check=False)
    assert run.spec.privacy == Privacy(Fraction(4))
    assert run.transcript.spec.privacy == run.spec.privacy
    assert run.to_dict()["transcript"]["spec"]["privacy"] == "4,1/1000000"


def test_a_network_refuses_a_delta_that_is_too_large():
    agents = agents_of(gaussian_design(0.0, 0, n_null=600, n_test=150))
    with pytest.raises(PrivacyError, match="agent a: δ = 1/100 of privacy"):
        cn.Network(agents, regime="full", scorer="logistic", privacy="4,1/100").run()


@pytest.mark.parametrize("regime", ["split", "conservative", "joint"])
def test_every_regime_that_takes_privacy_sends_models_with_noise(regime):
    """A run repeats itself, and its scores do not once the models of peers have secret noise."""
    agents = agents_of(gaussian_design(0.0, 0, n_null=600, n_test=150))
    options = {"regime": regime, "scorer": "logistic", "composite": "mean"}

    def scores(**privacy):
        run = cn.Network(agents, **options, **privacy).run(check=False)
        assert verify(run.to_dict()) == []
        return np.concatenate([site.scores[site.tested] for site in run.values()])

    assert np.array_equal(scores(), scores())
    one, other = scores(privacy=100), scores(privacy=100)
    assert not np.array_equal(one, other)


def test_repeated_runs_divide_epsilon():
    agents = agents_of(gaussian_design(0.0, 0, n_null=600, n_test=150))
    options = {"regime": "full", "scorer": "logistic", "composite": "mean"}
    run = cn.Network(agents, privacy=8, repeats=2, **options).run(check=False)
    assert run.spec.privacy.epsilon == 8
    assert [one.spec.privacy.epsilon for one in run.runs] == [4, 4]
