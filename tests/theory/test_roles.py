"""Whole runs with exchanged roles: scores, sent bytes and choices must not change by a bit.

This is the exact form of what a simulated false discovery rate can only suggest. A score that
depends on which rows calibrate fails here at once (docs/theory.md, section 2).
"""

import warnings
from functools import reduce

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from support.noise import FixedNoise
from support.roles import (
    KINDS,
    ArrivalOrder,
    Block,
    Sample,
    assert_roles_do_not_matter,
    assert_same_bits,
    between_file_sites,
    covering,
    draw,
    exchange,
    exchanged,
    in_detector,
    in_files,
    in_network,
    mixtures,
)

import conovel as cn
from conovel.deciding.ways import ways_of
from conovel.scorers.argument import NAMED
from conovel.scorers.automatic import Automatic
from conovel.scorers.base import Mixture
from conovel.scorers.weighted_forests import WeightedForests
from conovel.site.blocks import split_null
from conovel.site.sent.private_surrogate import SecretNoise
from conovel.spec.regimes import REGIMES
from conovel.spec.run_spec import detector_seeds
from conovel.spec.settings import COMPOSITES
from conovel.spec.training import train_share
from conovel.stats.ranks import conformal_ranks

SCORERS = (None, *(name for name in NAMED if name != "automatic"))
BITS = (None, 1, 4, "compact", "compact:200")
# In `consensus` test rows train and calibration rows do not: tests/theory/test_consensus.py. In
# `together` no scorer is fitted: tests/learning/together/test_way.py.
MIXING = {
    name: regime for name, regime in REGIMES.items() if name not in ("consensus", "together")
}
EXCHANGING = tuple(
    name for name, regime in MIXING.items() if ways_of(regime).learning.model_rounds
)
ALONE = tuple(name for name in MIXING if name not in EXCHANGING)
LEVEL = "1/5"


def check_network(regime, composite, bits, scorer, kind, n_agents=2):
    run = in_network(regime=regime, composite=composite, bits=bits, level=LEVEL)
    splits_rows = regime == "split"
    assert_roles_do_not_matter(run, draw(kind, n_agents), scorer, splits_rows=splits_rows)


def check_file_sites(folder, regime, composite, bits, scorer, kind):
    run = between_file_sites(folder, regime=regime, composite=composite, bits=bits)
    splits_rows = regime == "split"
    assert_roles_do_not_matter(run, draw(kind, 2), scorer, splits_rows=splits_rows)


# The fixed part: every regime, composite, precision, kind of rows and quick scorer at least once.


@pytest.mark.parametrize(
    ("regime", "composite", "bits", "scorer", "kind"),
    [
        ("full", "auto", "compact", None, "duplicates"),
        ("full", "auto", 4, None, "tiny"),
        ("full", "mean", 4, "logistic", "integers"),
        ("full", "max", 1, "random-forest", "duplicates"),
        ("full", "stacked", "compact:200", "logistic", "float32"),
        ("full", "min", None, "boosting", "tiny"),
        ("counts", "auto", "compact", "boosting", "float32"),
        ("isolated", "auto", "compact", "isolation-forest", "wide"),
        ("pooled", "auto", "compact", "logistic", "duplicates"),
        ("split", "auto", "compact", "logistic", "duplicates"),
        ("split", "max", 4, "boosting", "continuous"),
        ("split", "stacked", None, "logistic", "wide"),
        ("conservative", "auto", 1, "logistic", "continuous"),
        ("conservative", "mean", "compact:200", "mlp", "duplicates"),
        ("joint", "auto", "compact", "logistic", "duplicates"),
        ("joint", "mean", 4, "random-forest", "integers"),
    ],
)
def test_roles_in_a_network(regime, composite, bits, scorer, kind, few_trees):
    check_network(regime, composite, bits, scorer, kind)


@pytest.mark.parametrize("kind", ["duplicates", "integers", "float32"])
@pytest.mark.parametrize("regime", ["full", "joint"])
def test_roles_with_the_forests_of_the_default(tmp_path, regime, kind):
    """Small samples look Gaussian to the default, so its forests are named here."""
    forests = WeightedForests(n_trees=6)
    check_network(regime, "auto", "compact", forests, kind)
    check_file_sites(tmp_path, regime, "mean", 4, forests, kind)


def test_roles_in_a_network_of_three():
    check_network("full", "auto", 1, "logistic", "integers", n_agents=3)


def unequal(kind):
    """Samples of two equal agents and one with many known normals and few tests."""
    thin, other, rich = draw(kind), draw(kind, seed=1), draw(kind, n_agents=4, seed=2)
    X_null = np.concatenate([sample.X_null for sample in rich])
    return [*thin, *other, Sample(X_null, rich[0].X_test[-6:])]


def test_roles_where_a_group_leaves_rows_to_train_on(tmp_path):
    """The third agent keeps 30 calibration rows and trains on the rest."""
    run = in_network(regime="joint", composite="mean", bits=4, level=LEVEL)
    samples = unequal("duplicates")
    assert mixtures(run, samples, splits_rows=False)[2].calibration.size == 30
    assert_roles_do_not_matter(run, samples, "logistic")
    files = between_file_sites(tmp_path, regime="joint", composite="mean", bits=4)
    assert mixtures(files, samples, splits_rows=False)[2].calibration.size == 30
    assert_roles_do_not_matter(files, samples, "logistic")


@pytest.mark.parametrize(
    ("scorer", "kind"),
    [
        (Automatic(n_folds=2), "integers"),
        ("extra-trees", "duplicates"),
        ("compiled-forest", "float32"),
        ("mlp", "wide"),
        ("logistic", "tiny"),
        (["logistic", "boosting"], "continuous"),
    ],
)
def test_roles_in_a_detector(scorer, kind, few_trees):
    assert_roles_do_not_matter(in_detector(level=LEVEL), draw(kind), scorer)


@pytest.mark.parametrize("most", [10**6, 20])
@pytest.mark.parametrize(
    ("scorer", "kind"), [("boosting", "duplicates"), ("logistic", "float32"), ("mlp", "wide")]
)
def test_roles_in_files(tmp_path, scorer, kind, most):
    run = in_files(tmp_path, level=LEVEL, max_train_rows=most)
    assert_roles_do_not_matter(run, draw(kind), scorer)


class SeesSomeBatches(LogisticRegression):
    """Its scores depend on the batch, but only in batches of 8 and 16 rows."""

    def predict_proba(self, X):
        return super().predict_proba(X - X.mean(axis=0) if len(X) in (8, 16) else X)


class SeesLargeBatches(LogisticRegression):
    """Its scores depend on the batch, but only in batches of more than 1,024 rows."""

    def predict_proba(self, X):
        return super().predict_proba(X - X.mean(axis=0) if len(X) > 1024 else X)


def test_roles_in_files_where_some_batches_change_scores(tmp_path):
    """No number of batches that are tried says that a score does not depend on the batch."""
    run = in_files(tmp_path, level=LEVEL)
    assert_roles_do_not_matter(run, draw("continuous"), SeesSomeBatches())
    large = draw("continuous", n_agents=60)
    joined = [Sample(*(np.concatenate(rows) for rows in zip(*large, strict=True)))]
    run = in_files(tmp_path / "large", piece=1200, level=LEVEL)
    assert_roles_do_not_matter(run, joined, SeesLargeBatches())


@pytest.mark.parametrize("composite", ["stacked", "mean"])
def test_roles_between_sites_with_files_where_batches_change_scores(tmp_path, composite):
    scorer = SeesSomeBatches()
    check_file_sites(tmp_path, "full", composite, "compact", scorer, "duplicates")


@pytest.mark.parametrize(
    ("regime", "composite", "bits", "kind"),
    [
        ("full", "auto", "compact", "integers"),
        ("full", "mean", 4, "duplicates"),
        ("split", "max", 1, "duplicates"),
        ("conservative", "stacked", None, "float32"),
        ("joint", "mean", "compact", "duplicates"),
    ],
)
def test_roles_between_sites_with_files(tmp_path, regime, composite, bits, kind):
    check_file_sites(tmp_path, regime, composite, bits, "logistic", kind)


@pytest.fixture
def fixed_noise(monkeypatch):
    """Let the secret noise be the same in both runs."""
    for name in ("add", "largest"):
        monkeypatch.setattr(SecretNoise, name, getattr(FixedNoise, name))


@pytest.mark.parametrize(
    ("regime", "bits", "kind"),
    [
        ("joint", "compact", "duplicates"),
        ("full", 4, "integers"),
        ("split", None, "float32"),
    ],
)
def test_roles_with_private_models(tmp_path, regime, bits, kind, fixed_noise):
    splits_rows, samples = regime == "split", draw(kind, 2)
    run = in_network(regime=regime, composite="auto", bits=bits, level=LEVEL, privacy=4)
    assert_roles_do_not_matter(run, samples, "logistic", splits_rows=splits_rows)
    run = between_file_sites(tmp_path, regime=regime, composite="mean", bits=bits, privacy=4)
    assert_roles_do_not_matter(run, samples, "logistic", splits_rows=splits_rows)


# The tests tested: a scorer that knows who arrived first is caught, wherever it works.


@pytest.mark.parametrize("kind", ["continuous", "integers"])
def test_a_scorer_that_depends_on_the_order_of_arrival_is_caught(tmp_path, kind):
    invalid = ArrivalOrder()
    with pytest.raises(AssertionError, match="have other scores"):
        assert_roles_do_not_matter(in_detector(), draw(kind), invalid)
    with pytest.raises(AssertionError, match="have other scores"):
        assert_roles_do_not_matter(in_network(regime="counts"), draw(kind, 2), invalid)
    with pytest.raises(AssertionError, match="a model has other bytes"):
        assert_roles_do_not_matter(in_network(bits=4), draw(kind, 2), invalid)


def test_a_composite_that_looks_at_positions_is_caught(monkeypatch):
    """Raise the score of whatever stands last in the mixture by the smallest possible step."""
    fair = Mixture.score

    def unfair(mixture, model):
        scores = fair(mixture, model)
        scores[-3:] = np.nextafter(scores[-3:], np.inf)
        return scores

    monkeypatch.setattr(Mixture, "score", unfair)
    with pytest.raises(AssertionError, match="test rows have other scores"):
        check_network("full", "mean", 4, "logistic", "continuous")


def test_the_positions_that_are_exchanged_are_those_that_calibrate():
    [sample] = draw("continuous")
    [block] = mixtures(in_detector(level=LEVEL), [sample], splits_rows=False)
    n, m = len(sample.X_null), len(sample.X_test)
    _, calibration = split_null(n, train_share(n, m, LEVEL), detector_seeds(0)[0])
    assert block.calibration.tolist() == calibration.tolist()
    assert block.tests.tolist() == list(range(m))


def test_blocks_of_rows_are_disjoint_and_complete():
    samples = draw("continuous", 2)
    n_test = sum(len(sample.X_test) for sample in samples)
    run = in_network(regime="split", level=LEVEL)
    blocks = mixtures(run, samples, splits_rows=True)
    assert len(blocks) == 4  # two agents, two blocks each
    assert sorted(np.concatenate([block.tests for block in blocks])) == list(range(n_test))
    cal = np.concatenate([block.calibration for block in blocks])
    assert np.unique(cal).size == cal.size


def test_combinations_cover_every_choice_of_three():
    factors = {"a": (1, 2), "b": (3, 4, 5), "c": (6, 7), "d": (8, 9, 10)}
    rows = list(covering(factors, 3))
    for name in factors:
        three = [other for other in factors if other != name]
        found = {tuple(row[key] for key in three) for row in rows}
        assert len(found) == np.prod([len(factors[key]) for key in three])
    assert len(rows) < 2 * 3 * 2 * 3


# The matrix: any three of regime, composite, precision, scorer and kind of rows in all their
# combinations where models are exchanged, any two elsewhere.

FACTORS = {"kind": tuple(KINDS), "scorer": SCORERS, "bits": BITS, "composite": COMPOSITES}
DEPLOYABLE = tuple(name for name, regime in MIXING.items() if name != "pooled")
MATRIX = list(covering({**FACTORS, "regime": EXCHANGING}, strength=3))
FILES = list(covering({**FACTORS, "regime": DEPLOYABLE}, strength=2))
ONE_EACH = {"bits": ("compact",), "composite": ("auto",)}
WITHOUT_MODELS = list(covering({**FACTORS, **ONE_EACH, "regime": ALONE}, strength=2))


def label(case):
    return "-".join(str(case[name]) for name in ("regime", "composite", "bits", "scorer", "kind"))


@pytest.mark.slow
@pytest.mark.parametrize("case", MATRIX, ids=map(label, MATRIX))
def test_matrix_of_networks_that_exchange_models(case):
    check_network(**case)


@pytest.mark.slow
@pytest.mark.parametrize("case", WITHOUT_MODELS, ids=map(label, WITHOUT_MODELS))
def test_matrix_of_networks_that_do_not(case):
    check_network(**case)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scorer", SCORERS)
def test_matrix_of_detectors(scorer, kind):
    assert_roles_do_not_matter(in_detector(level=LEVEL), draw(kind), scorer)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scorer", SCORERS)
def test_matrix_of_files(tmp_path, scorer, kind):
    for most in (10**6, 20):
        run = in_files(tmp_path / str(most), level=LEVEL, max_train_rows=most)
        assert_roles_do_not_matter(run, draw(kind), scorer)


@pytest.mark.slow
@pytest.mark.parametrize("case", FILES, ids=map(label, FILES))
def test_matrix_of_sites_with_files(tmp_path, case):
    check_file_sites(tmp_path, **case)


def test_roles_in_the_runs_of_a_repeated_detection(monkeypatch):
    """Rows that calibrate in all three runs change places with test rows: no score changes."""
    samples, run = draw("duplicates"), in_detector(level=LEVEL, repeats=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blocks = mixtures(run, samples, splits_rows=False)
        assert len(blocks) == 3
        always = reduce(np.intersect1d, [block.calibration for block in blocks])
        assert any(not np.array_equal(block.calibration, always) for block in blocks)
        pairs = exchange([Block(always, blocks[0].tests)], seed=0)
        before = scores_of_runs(monkeypatch, samples, blocks)
        after = scores_of_runs(monkeypatch, exchanged(samples, pairs), blocks)
    cal, tests = pairs
    assert cal.size >= 4
    for (null, test), (null_after, test_after) in zip(before, after, strict=True):
        expected_null, expected_test = null.copy(), test.copy()
        expected_null[cal], expected_test[tests] = test[tests], null[cal]
        assert_same_bits(test_after, expected_test, "test rows")
        assert_same_bits(null_after, expected_null, "calibration rows")


def scores_of_runs(monkeypatch, samples, blocks):
    """Return for each run the scores of known normals, NaN where they train, and of tests."""
    noted = []

    def note(calibration, tests):
        noted.append((calibration, tests))
        return conformal_ranks(calibration, tests)

    monkeypatch.setattr("conovel.runs.one_site.conformal_ranks", note)
    cn.AdaDetect("logistic", level=LEVEL, repeats=3).detect(*samples[0])
    found = []
    for (calibration, tests), block in zip(noted, blocks, strict=True):
        null = np.full(len(samples[0].X_null), np.nan)
        null[block.calibration] = calibration
        found.append((null, tests))
    return found
