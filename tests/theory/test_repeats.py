"""The false discovery rate of evidence averaged over several splits, rows in and decisions out.

Every row is normal, so the rate is the share of trials in which any row is rejected. The score of
a run is a direction drawn from its seed: valid, without a fit, and so different from run to run
that what any of the runs rejects is far too much.
"""

import numpy as np
import pytest

import conovel as cn

LEVEL, REPEATS = 0.4, 5
# ℓ = 24 and β = 0.24, so that β(ℓ+1)/m is a whole number and a run attains its level.
N_NULL, N_TEST, WIDTH = 48, 2, 10
pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


class RandomDirection(cn.Scorer):
    """The position of a row along a direction that follows from the seed alone."""

    label = "random direction"

    def __init__(self, seed=0):
        self.seed = seed

    def with_seed(self, seed):
        return RandomDirection(seed)

    def fit(self, training):
        direction = np.random.default_rng(self.seed).normal(size=WIDTH)
        return cn.FittedScorer(self, lambda X: X @ direction, "ordinal")


def one_site(trial):
    """Return the flags of five runs and the decision, for rows that are all normal."""
    rng = np.random.default_rng([trial, 11])
    X_null, X_test = rng.normal(size=(N_NULL, WIDTH)), rng.normal(size=(N_TEST, WIDTH))
    settings = {"level": LEVEL, "repeats": REPEATS, "train_fraction": "1/2"}
    detector = cn.AdaDetect(RandomDirection(), random_state=trial, **settings)
    found = detector.detect(X_null, X_test)
    assert found.n_calibration == 24
    return found.repeated.flags, found.rejected


def share(masks):
    """Return the share of masks that reject anything, and its standard error."""
    found = np.array([mask.any() for mask in masks])
    return found.mean(), found.std() / found.size**0.5


def check(trials):
    flags, decisions = zip(*map(one_site, range(trials)), strict=True)
    rate, error = share(decisions)
    assert rate <= LEVEL + 3 * error
    one, error = share([run[0] for run in flags])
    assert one <= 0.24 + 3 * error
    union, error = share(flags)  # what any of the runs rejects: no procedure of ours
    assert union > LEVEL + 3 * error


def test_fdr_with_all_rows_normal():
    check(400)


@pytest.mark.slow
def test_fdr_with_all_rows_normal_in_many_trials():
    check(5000)


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["full", "joint"])
def test_fdr_of_a_network_with_all_rows_normal(regime):
    masks = []
    for trial in range(200):
        rng = np.random.default_rng([trial, 12])
        agents = [
            cn.Agent(name, rng.normal(size=(60, 2)), rng.normal(size=(4, 2))) for name in "ab"
        ]
        options = {"scorer": "logistic", "composite": "mean", "bits": 4, "random_state": trial}
        run = cn.Network(agents, regime=regime, level=LEVEL, repeats=3, **options).run()
        masks.append(np.concatenate([site.rejected for site in run.values()]))
    rate, error = share(masks)
    assert rate <= LEVEL + 3 * error
