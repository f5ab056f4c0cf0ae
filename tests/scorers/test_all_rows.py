"""Scores that learn from all rows together: every known normal calibrates."""

import numpy as np
import pytest

import conovel as cn
from conovel.errors import InputError, ScorerError
from conovel.scorers.all_rows import AddedTails, AllRows, NeighbourDistance
from conovel.scorers.base import Mixture, TrainingSet

SCORERS = [None, "knn", "isolation-forest"]


def few(seed, n=80, far=8.0):
    rng = np.random.default_rng(seed)
    X_test = rng.normal(size=(40, 4))
    X_test[30:] += far
    return rng.normal(size=(n, 4)), X_test


@pytest.mark.parametrize("scorer", SCORERS)
def test_all_known_normals_calibrate_and_rows_far_away_are_found(scorer):
    powers = []
    for seed in range(3):
        result = cn.AdaDetect(scorer, train_fraction=0, random_state=seed).detect(*few(seed))
        assert (result.n_train, result.n_calibration) == (0, 80)
        powers.append(result.rejected[30:].mean())
    assert np.mean(powers) > 0.9
    assert len(result.explain()) > 0  # known normals say what is usual


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("decimals", [0, 1, 9], ids=["integers", "equal rows", "continuous"])
def test_roles_do_not_matter(scorer, decimals, known):
    """Known normals and test rows change places: every row keeps its score, bit for bit."""
    X_null, X_test = (rows.round(decimals) for rows in few(1, far=3.0))
    X_known = X_test[30:] + 0.5 if known else None
    detector = cn.AdaDetect(scorer, train_fraction=0, random_state=2)
    before = detector.detect(X_null, X_test, X_known, check=False)
    other_null, other_test = X_null.copy(), X_test.copy()
    other_null[5:20], other_test[10:25] = X_test[10:25], X_null[5:20]
    after = detector.detect(other_null, other_test, X_known, check=False)
    same = np.r_[0:10, 25:40]
    assert before.scores[same].tobytes() == after.scores[same].tobytes()
    assert before.scores[10:25].tobytes() == after.calibration_scores[5:20].tobytes()
    assert before.calibration_scores[5:20].tobytes() == after.scores[10:25].tobytes()


def test_a_score_that_sees_roles_is_noticed():
    """The test above can fail: rows that train change the score."""
    X_null, X_test = few(1, far=3.0)
    other_null, other_test = X_null.copy(), X_test.copy()
    other_null[:40], other_test[:40] = X_test, X_null[:40]
    plain, other = (
        cn.AdaDetect("knn", train_fraction=0.5, random_state=2).detect(*rows, check=False)
        for rows in ((X_null, X_test), (other_null, other_test))
    )
    assert not np.isin(plain.scores, other.calibration_scores).all()


def test_the_false_discovery_rate_is_that_of_the_bound():
    """No ties and alpha (l + 1)/m whole: the bound is attained where all tests are normal."""
    rejected = []
    for seed in range(300):
        rng = np.random.default_rng([seed, 3])
        X_null, X_test = rng.normal(size=(39, 2)), rng.normal(size=(8, 2))
        detector = cn.AdaDetect("knn", level="1/5", train_fraction=0, random_state=seed)
        rejected.append(detector.detect(X_null, X_test, check=False).n_rejected > 0)
    rate, error = np.mean(rejected), (0.2 * 0.8 / 300) ** 0.5
    assert abs(rate - 0.2) < 3 * error


@pytest.mark.parametrize("scorer", ["boosting", "logistic", ["knn", "isolation-forest"]])
def test_scorers_that_need_known_normals_are_refused(scorer):
    with pytest.raises(ScorerError, match="train_fraction=0 there are none"):
        cn.AdaDetect(scorer, train_fraction=0).detect(*few(0))


def test_it_is_for_one_site_in_memory():
    X_null, X_test = few(0)
    with pytest.raises(InputError, match="some known normals must train"):
        cn.AdaDetect(train_fraction=0).keep(X_null)
    agents = [cn.Agent(name, X_null, X_test) for name in "ab"]
    with pytest.raises(InputError, match="train_fraction"):
        cn.Network(agents, train_fraction=0).run()
    with pytest.raises(InputError, match="train_fraction"):
        cn.AdaDetect(train_fraction=False).detect(X_null, X_test)


def test_known_novelties_are_told_from_all_other_rows():
    X_null, X_test = few(4, far=2.0)
    known_rows = np.random.default_rng(9).normal(size=(40, 4)) + 2.0
    results = [
        cn.AdaDetect(train_fraction=0).detect(X_null, X_test, some) for some in (None, known_rows)
    ]
    found = [one.rejected[30:].sum() for one in results]
    assert found[1] > found[0]
    assert results[1].choices["known"].winner == "with known novelties"


def test_neighbours_are_more_than_a_group_of_novelties():
    rows, group = np.random.default_rng(0).normal(size=(90, 2)), np.full((10, 2), 9.0)
    group += 0.01 * np.arange(20).reshape(10, 2)
    model = NeighbourDistance().fit(np.concatenate([rows, group]))
    assert model.k_ == 15
    assert model.score_samples(group).min() > model.score_samples(rows).max()
    near = NeighbourDistance(3).fit(np.concatenate([rows, group]))
    assert near.score_samples(group).max() < near.score_samples(rows).max()


def test_tails_are_those_of_the_mixture():
    mixture = Mixture.of(np.random.default_rng(1).normal(size=(99, 2)))
    training = TrainingSet(mixture.rows[:0], mixture)
    fitted = AllRows(0).fit(training)
    added = fitted.read.__self__
    assert isinstance(added, AddedTails)
    highest = max(mixture.score(fitted))
    assert highest <= 2 * np.log(100) + 1e-9
    assert np.isfinite(fitted.score(np.full((1, 2), 1e6))).all()
