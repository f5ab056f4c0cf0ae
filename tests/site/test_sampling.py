"""A sample of the rows to learn from: it depends on the multiset of the mixture alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesClassifier
from support.files import N_NULL, N_TEST, draw, trees
from support.scorers import fit_scorer
from support.strategies import coarse_rows

import conovel as cn
from conovel.scorers.base import Mixture
from conovel.site.blocks import training_sample


@given(coarse_rows, st.integers(1, 80), st.randoms(use_true_random=False))
def test_a_sample_knows_the_multiset_only(rows, most, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    sample = training_sample(Mixture.of(rows), most)
    again = training_sample(Mixture.of(rows[order]), most)
    assert np.array_equal(sample.rows, again.rows)
    # Each distinct row is represented by its share, rounded up or down.
    mixture = Mixture.of(rows)
    taken = [np.count_nonzero((sample.rows == row).all(axis=1)) for row in mixture.distinct]
    fair = np.bincount(mixture.position) * min(1, most / len(rows))
    assert np.all(np.abs(taken - fair) < 1)


def test_a_sample_of_distinct_rows_has_about_the_size_asked_for():
    rows = np.random.default_rng(0).normal(size=(50_000, 4))
    sizes = [training_sample(Mixture.of(rows), most).position.size for most in (500, 5000)]
    assert abs(sizes[0] - 500) < 5 * 500**0.5
    assert abs(sizes[1] - 5000) < 5 * 5000**0.5


def test_whoever_calibrates_the_scores_are_the_same():
    """Equivariance: swap calibration and test rows, and every row keeps its score."""
    null, test = draw()
    train, calibration = null[:400], null[400:]
    scorer = ExtraTreesClassifier(8, max_depth=4, random_state=0)

    def score(first, second):
        mixture = Mixture.of(np.concatenate([first, second]))
        sample = training_sample(mixture, 200)
        assert sample.position.size < mixture.position.size
        return np.split(mixture.score(fit_scorer(scorer, train, sample)), [len(first)])

    rng = np.random.default_rng(1)
    swapped = rng.permutation(np.arange(500))[:50]
    other_calibration, other_test = calibration.copy(), test.copy()
    other_calibration[swapped], other_test[swapped] = test[swapped], calibration[swapped]
    of_calibration, of_test = score(calibration, test)
    of_other_calibration, of_other_test = score(other_calibration, other_test)
    assert np.array_equal(of_other_test[swapped], of_calibration[swapped])
    assert np.array_equal(of_other_calibration[swapped], of_test[swapped])
    kept = np.setdiff1d(np.arange(500), swapped)
    assert np.array_equal(of_other_test[kept], of_test[kept])


def test_below_the_cap_nothing_changes():
    null, test = draw()
    with_cap, without = (
        cn.AdaDetect(ExtraTreesClassifier(8), max_train_rows=n).detect(null, test)
        for n in (N_NULL + N_TEST, 10**9)
    )
    assert np.array_equal(with_cap.scores, without.scores)
    assert with_cap.n_train == without.n_train


def test_spared_training_rows_calibrate():
    null, test = draw()
    result = trees().detect(null, test)
    assert result.n_train == 300
    assert result.n_calibration == N_NULL - 300
