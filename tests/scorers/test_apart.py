"""Neighbour distances score at one site, from few known normals, where rows lie apart."""

import math

import numpy as np
import pytest

import conovel as cn
from conovel.scorers.all_rows import Neighbours, fit_apart
from conovel.scorers.base import Mixture, TrainingSet


def few(seed, n=100, far=6.0, d=4):
    rng = np.random.default_rng(seed)
    X_test = rng.normal(size=(40, d))
    X_test[30:] += far
    return rng.normal(size=(n, d)), X_test


def test_rows_that_lie_apart_are_found_by_their_distance():
    for seed in range(3):
        result = cn.AdaDetect(random_state=seed).detect(*few(seed))
        assert result.scorer == "neighbours"
        assert result.rejected[30:].all()
    said = result.summary()["selection"]
    assert said["chosen"] == "neighbours, standard units"
    assert said["apart"][0] >= 10
    assert "further from their neighbours than all 50 known normals that train" in said["rule"]
    assert len(result.explain()) > 0


def test_one_column_with_a_large_unit_is_enough():
    """In standard units nineteen columns without novelties hide the one with them."""
    X_null, X_test = few(0, d=20, far=0.0)
    X_test[30:, 0] += 9
    unit = np.r_[1000.0, np.ones(19)]
    result = cn.AdaDetect().detect(X_null * unit, X_test * unit)
    assert result.selection.winner == "neighbours, own units"
    assert result.rejected[30:].all()


def test_normals_that_lie_apart_themselves_do_not_decide():
    """A tenth of all normals is far away: known normals that train are among them."""
    X_null, X_test = few(0, far=0.0)
    X_null[::10] += 6
    X_test[::10] += 6
    result = cn.AdaDetect().detect(X_null, X_test)
    assert result.scorer != "neighbours"


@pytest.mark.parametrize("n", [298, 300])
def test_it_is_for_few_known_normals(n, few_trees):
    X_null, X_test = few(0, n=n, far=9.0)
    X_test[20:30] += 9.0
    result = cn.AdaDetect().detect(X_null, X_test)
    assert result.n_train == n // 2
    assert (result.scorer == "neighbours") == (n < 300)


def test_networks_kept_detectors_and_named_scorers_are_as_before(few_trees):
    X_null, X_test = few(0)
    agents = [cn.Agent(name, X_null, X_test) for name in ("a", "b")]
    run = cn.Network(agents, regime="isolated").run()
    assert run["a"].choices["scorer"].criterion == "columns"
    kept = cn.AdaDetect().keep(X_null, X_test)
    assert kept.scorer != "neighbours"
    assert cn.AdaDetect("logistic").detect(X_null, X_test).scorer != "neighbours"


def test_as_many_rows_must_be_apart_as_chance_rarely_leaves_in_the_mixture():
    rng = np.random.default_rng(0)
    null_train, others = rng.normal(size=(20, 2)), rng.normal(size=(11, 2))
    for n_far in range(2, 5):
        far = rng.normal(size=(n_far, 2)) + 40
        n_mixture = len(others) + n_far
        fitted = fit_apart(TrainingSet(null_train, Mixture.of(np.concatenate([others, far]))))
        chance = math.comb(n_mixture, n_far) / math.comb(20 + n_mixture, n_far)
        assert (fitted is not None) == (chance <= 0.05), n_far


def test_a_share_of_the_rows_must_be_apart():
    """Of 250 rows nine are too few, and ten are enough."""
    rng = np.random.default_rng(1)
    null_train, others = rng.uniform(size=(149, 2)), rng.uniform(size=(92, 2))
    for n_far, is_chosen in ((9, False), (10, True)):
        mixture = np.concatenate([others[: 101 - n_far], np.full((n_far, 2), 9.0)])
        mixture[-n_far:] += rng.uniform(size=(n_far, 2))
        fitted = fit_apart(TrainingSet(null_train, Mixture.of(mixture)))
        assert (fitted is not None) == is_chosen


def test_equal_rows_have_no_unit_to_measure_in():
    rows = np.zeros((60, 2))
    rows[50:] = 1.0
    assert fit_apart(TrainingSet(rows[:30], Mixture.of(rows[30:]))) is None


def test_distances_know_no_labels():
    """Rows that train and rows of the mixture change places: all keep their scores."""
    X_null, X_test = few(0)
    one = Neighbours().fit(TrainingSet(X_null, Mixture.of(X_test)))
    other = Neighbours().fit(TrainingSet(X_test, Mixture.of(X_null)))
    assert np.allclose(one.score(X_null), other.score(X_null), rtol=1e-12)
