"""Known novelties: roles stay hidden, and the false discovery rate stays where it was."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from support.roles import (
    ArrivalOrder,
    Sample,
    assert_roles_do_not_matter,
    in_detector,
    in_files,
    in_network,
)

import conovel as cn
from conovel.rows.known_files import KnownFile
from conovel.scorers.argument import NAMED
from conovel.scorers.base import Scorer
from conovel.scorers.weighted_forests import WeightedForests

SHIFT = 3.0


def draw(n_agents=1, seed=0):
    """Draw agents with so many novelties that known ones count; rows repeat."""
    rng = np.random.default_rng(seed)
    samples = []
    for j in range(n_agents):
        X_null, X_test = (rng.normal(size=(n, 3)).round(1) for n in (200 + 8 * j, 80 + 4 * j))
        X_test[-30:] += SHIFT
        samples.append(Sample(X_null, X_test))
    return samples


def known_rows(n=25, seed=9):
    return (np.random.default_rng(seed).normal(size=(n, 3)) + SHIFT).round(1)


def counted(run):
    """Wrap a run, and note whether known novelties counted in it."""
    choices = []

    def noting(samples, scorer, blocks):
        seen = run(samples, scorer, blocks)
        if seen is not None:
            flat = [seen.choices] if "known" in seen.choices else seen.choices.values()
            choices.extend(one["known"].chosen for one in flat if "known" in one)
        return seen

    return noting, choices


@pytest.mark.parametrize("scorer", [*NAMED, WeightedForests(n_trees=6), ["logistic", "boosting"]])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_roles_in_a_detector(scorer, few_trees):
    run, choices = counted(in_detector(known_rows=known_rows(), level="1/5"))
    assert_roles_do_not_matter(run, draw(), scorer)
    assert choices == [1, 1]


class KnownByPlace(Scorer):
    """A score that adds known rows to what it learns in the order of arrival."""

    label = "by place"

    def with_seed(self, seed):
        return self

    def fit(self, training):
        return ArrivalOrder().fit(training)


def test_a_score_that_sees_roles_is_caught():
    run, _ = counted(in_detector(known_rows=known_rows(), level="1/5"))
    with pytest.raises(AssertionError, match="have other scores"):
        assert_roles_do_not_matter(run, draw(), KnownByPlace())


@pytest.mark.parametrize(
    ("regime", "composite", "bits", "scorer"),
    [
        ("isolated", "auto", "compact", "logistic"),
        ("counts", "auto", "compact", WeightedForests(n_trees=6)),
        ("split", "stacked", "compact", "logistic"),
        ("full", "auto", "compact", "logistic"),
        ("full", "mean", 4, "random-forest"),
        ("joint", "auto", "compact", "logistic"),
        ("joint", "mean", None, WeightedForests(n_trees=6)),
        ("pooled", "auto", "compact", "logistic"),
    ],
)
def test_roles_in_a_network(regime, composite, bits, scorer, few_trees):
    """The first agent knows some novelties, the second none."""
    options = {"regime": regime, "composite": composite, "bits": bits, "level": "1/5"}
    run, choices = counted(in_network(known_rows=[known_rows()], **options))
    assert_roles_do_not_matter(run, draw(2), scorer, splits_rows=regime == "split")
    assert choices
    assert all(choices)


@pytest.mark.parametrize("scorer", ["logistic", WeightedForests(n_trees=6), "mlp"])
def test_roles_in_files(tmp_path, scorer):
    path = tmp_path / "known.parquet"
    rows = known_rows()
    pa_parquet.write_table(pa.table({f"x{j}": rows[:, j] for j in range(3)}), path)
    run, choices = counted(in_files(tmp_path, known_rows=KnownFile(path), level="1/5"))
    assert_roles_do_not_matter(run, draw(), scorer)
    assert choices == [1, 1]


# The boundary: with ℓ = 199, m = 20 and α = 1/5 the false discovery rate is exactly α·m0/m.

LEVEL, N_TEST = 0.2, 20


def false_share(trial, n_novel):
    rng = np.random.default_rng([trial, n_novel])
    X_null, X_test, known_rows = (rng.normal(size=(n, 3)) for n in (398, N_TEST, 20))
    X_test[N_TEST - n_novel :, 0] += 4
    known_rows[:, 0] += 4
    detector = cn.AdaDetect("logistic", LEVEL, 0.5, random_state=trial)
    result = detector.detect(X_null, X_test, known_rows, check=False)
    assert result.n_calibration == 199
    false = result.rejected[: N_TEST - n_novel].sum()
    return false / max(result.n_rejected, 1), result.choices["known"].chosen


def check_boundary(n_novel, n_trials):
    shares, counts = np.transpose([false_share(trial, n_novel) for trial in range(n_trials)])
    bound = LEVEL * (N_TEST - n_novel) / N_TEST
    assert abs(shares.mean() - bound) <= 3 * shares.std(ddof=1) / n_trials**0.5
    return counts


def test_the_bound_is_attained_where_all_tests_are_null():
    check_boundary(0, 80)


def test_the_bound_is_attained_where_known_novelties_count():
    assert check_boundary(10, 80).mean() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("n_novel", [0, 10])
def test_the_bound_is_attained_in_many_trials(n_novel):
    check_boundary(n_novel, 2000)
