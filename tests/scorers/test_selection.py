"""The choice among scores: by hidden nulls, with an error that knows how few they are."""

import numpy as np
import pytest

from conovel.errors import InputError
from conovel.scorers.base import Mixture, TrainingSet
from conovel.scorers.selection import HoldOut


def hold_out(rng, n_train, n_mixture):
    rows = rng.normal(size=(n_train, 1)), rng.normal(size=(n_mixture, 1))
    return HoldOut.of(TrainingSet(rows[0], Mixture.of(rows[1])))


def test_a_hold_out_hides_every_second_null_among_the_unlabelled_rows():
    null_train, rows = np.arange(10.0).reshape(5, 2), np.arange(100.0, 108.0).reshape(4, 2)
    held = HoldOut.of(TrainingSet(null_train, Mixture.of(rows)))
    assert held.n_hidden == 2
    assert np.array_equal(held.training.null_train, null_train[::2])
    mixture = held.training.mixture
    together = mixture.distinct[mixture.position]
    assert np.array_equal(together[:2], null_train[1::2])
    assert np.array_equal(together[2:], rows)
    with pytest.raises(InputError, match="at least 2 training nulls, not 1"):
        HoldOut.of(TrainingSet(null_train[:1], Mixture.of(rows)))


def test_without_novelties_the_enrichment_is_one_on_average():
    rng = np.random.default_rng(0)
    held = hold_out(rng, 400, 600)
    shares = [held.shares(rng.normal(size=800)) for _ in range(400)]
    assert min(one.min() for one in shares) >= 0
    means = np.array([one.mean() for one in shares])
    assert abs(means.mean() - 1) < 3 * means.std() / len(means) ** 0.5


def test_the_first_named_is_kept_unless_another_is_clearly_better():
    rng = np.random.default_rng(0)
    held = hold_out(rng, 400, 600)
    noise = rng.normal(size=800)
    better = noise.copy()
    better[-40:] += 5
    assert held.select(["a", "b"], [noise, noise]).winner == "a"
    assert held.select(["a", "b"], [noise, better]).winner == "b"
    slightly = noise.copy()
    slightly[-2:] += 5  # two rows are not enough
    chosen = held.select(["a", "b"], [noise, slightly])
    assert chosen.values[1] > chosen.values[0]
    assert chosen.winner == "a"


def test_the_error_knows_how_few_hidden_nulls_there_are(monkeypatch):
    """Of two scores that say nothing, the later seems better by an error in one of six trials."""
    monkeypatch.setattr("conovel.scorers.selection._ROWS", 0)
    chosen = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        held = hold_out(rng, 400, 600)
        chosen.append(held.select(["a", "b"], rng.normal(size=(2, 800))).chosen)
    assert 0.10 < np.mean(chosen) < 0.22  # 0.32 where hidden nulls are taken for certain
