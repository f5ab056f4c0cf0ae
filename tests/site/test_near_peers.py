"""How models are weighted: by what they do on the agent's own likely novelties and normals."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from support.scorers import FunctionScore

from conovel.models.linear import expit
from conovel.scorers.base import Mixture, TrainingSet
from conovel.scorers.blend import Refined
from conovel.site.composite import Standardised, model_weights, stack


def scores_of(*novel_means, n=60, n_novel=4, seed=0):
    """Scores of one model for each mean that it gives to novelties; normal rows have 0 ± 1."""
    rng = np.random.default_rng(seed)
    known, mixture = rng.normal(size=(2, len(novel_means), n))
    mixture[:, :n_novel] += np.array(novel_means)[:, np.newaxis]
    return Standardised.of(known, mixture)


def test_models_that_see_the_novelties_count_more():
    scores = scores_of(8.0, 4.0, 0.0, -8.0)
    weights = model_weights(scores, first=scores.mixture[0])
    assert weights.sum() == pytest.approx(1)
    assert weights[0] > weights[1] > 5 * weights[2]
    assert weights[3] == 0


def test_a_model_to_which_the_own_normals_are_novel_counts_little():
    """It was learnt from other normals, so null_train is as novel to it as the novelties."""
    near, far = scores_of(8.0, 8.0), scores_of(8.0, 8.0)
    far.null_train[1] += far.mixture[1, :4].mean()
    first = near.mixture[0]
    assert model_weights(near, first)[1] > 0.3
    assert model_weights(far, first)[1] < 0.1


@pytest.mark.parametrize("first", [np.zeros(60), np.linspace(-1, 1, 60)])
def test_weights_are_equal_where_no_row_stands_out(first):
    assert model_weights(scores_of(3.0, 0.0), first).tolist() == [0.5, 0.5]


def test_weights_are_equal_where_no_model_tells_rows_apart():
    scores = scores_of(-5.0, -5.0)
    assert model_weights(scores, first=-scores.mixture[0]).tolist() == [0.5, 0.5]


def test_models_of_a_constant_score_are_allowed():
    flat = Standardised.of(np.zeros((2, 9)), np.zeros((2, 20)))
    assert model_weights(flat, first=np.arange(20.0) ** 3).tolist() == [0.5, 0.5]


def test_a_thin_site_finds_more_with_the_models_of_near_peers():
    """Peers that know where novelties lie help, also beside one that says the opposite."""
    rng = np.random.default_rng(1)
    null, test = rng.normal(size=(80, 20)), rng.normal(size=(40, 20))
    test[:4, :5] += 2.0
    is_novel = np.arange(40) < 4
    training = TrainingSet(null[:40], Mixture.of(np.concatenate([null[40:], test])))
    local = Refined(LogisticRegression(), n_folds=2, n_refits=2).fit(training)

    def peer(sign):
        return FunctionScore(lambda rows: expit(sign * (rows[:, :5].sum(axis=1) - 5)))

    def gap(peers):
        scores = training.mixture.score(stack(local, peers, training))[-40:]
        return (scores[is_novel].mean() - scores[~is_novel].mean()) / scores[~is_novel].std()

    alone, helped, also_misled = gap([peer(0)]), gap([peer(1)] * 2), gap([peer(1), peer(-1)])
    assert helped > 1.3 * alone
    assert also_misled > 1.1 * alone
