"""Known novelties at one site: they help where rows are like them, and else change no bit."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import conovel as cn
from conovel.scorers.base import FittedScorer, Mixture, TrainingSet, fit_best
from conovel.scorers.known import (
    AddedScores,
    find_likeness,
    fit_with_known,
    lifted,
    likeness_share,
    n_standing_out,
)
from conovel.scorers.weighted_forests import WeightedForests

AT = np.array([2.5, 2.5, 0.0, 0.0, 0.0])


def drawn(seed, heavy=True, n_novel=15, at=AT):
    rng = np.random.default_rng(seed)
    draw = (
        (lambda size: rng.standard_t(3, size)) if heavy else (lambda size: rng.normal(size=size))
    )
    X_null, X_test = draw((400, 5)), draw((150, 5))
    X_test[:n_novel] = 0.5 * draw((n_novel, 5)) + at
    known_rows = 0.5 * draw((30, 5)) + at
    return X_null, X_test, known_rows


def training_of(seed, at=AT, heavy=True):
    X_null, X_test, known_rows = drawn(seed, heavy)
    return TrainingSet(
        X_null[:200], Mixture.of(np.concatenate([X_null[200:], X_test])), known_rows + at - AT
    )


@pytest.mark.parametrize(
    "scorer", [None, "extra-trees", "boosting", "logistic", "isolation-forest"]
)
def test_known_novelties_never_lose_on_average(scorer):
    without, with_known = [], []
    for seed in range(4):
        X_null, X_test, known_rows = drawn(seed)
        for some, X_known in ((without, None), (with_known, known_rows)):
            detector = cn.AdaDetect(scorer, random_state=seed)
            some.append(detector.detect(X_null, X_test, X_known, check=False).rejected[:15].mean())
    assert np.mean(with_known) >= np.mean(without) - 0.02
    weak = ("isolation-forest", "logistic")  # by themselves they find nothing in heavy tails
    assert np.mean(with_known) > 0.1 or scorer in weak


@pytest.mark.parametrize("heavy", [True, False])
def test_known_novelties_of_another_kind_change_no_bit(heavy):
    X_null, X_test, known_rows = drawn(1, heavy)
    far = known_rows * [-1, -1, 1, 1, 1] * 4
    plain, other = (
        cn.AdaDetect().detect(X_null, X_test, some, check=False) for some in (None, far)
    )
    assert plain.scores.tobytes() == other.scores.tobytes()
    assert other.choices["known"].winner == "without known novelties"
    assert "known" not in plain.choices


def test_no_known_novelty_is_as_none():
    X_null, X_test, known_rows = drawn(2)
    plain, empty = (
        cn.AdaDetect().detect(X_null, X_test, some, check=False) for some in (None, known_rows[:0])
    )
    assert plain.scores.tobytes() == empty.scores.tobytes()


def test_one_known_novelty_works():
    X_null, X_test, known_rows = drawn(3)
    result = cn.AdaDetect().detect(X_null, X_test, known_rows[:1], check=False)
    assert result.choices["known"].rule


def test_their_order_and_copies_of_the_frame_do_not_matter():
    X_null, X_test, known_rows = drawn(4)
    order = np.random.default_rng(0).permutation(len(known_rows))
    one, other = (
        cn.AdaDetect().detect(X_null, X_test, some, check=False)
        for some in (known_rows, known_rows[order])
    )
    assert one.choices["known"].winner == "with known novelties"
    assert one.scores.tobytes() == other.scores.tobytes()


@pytest.mark.parametrize(
    "classifier",
    [
        KNeighborsClassifier(5),  # takes no weights
        LogisticRegression(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        cn.Refined(LogisticRegression(), LogisticRegression()),
        cn.Blend(LogisticRegression(), [LogisticRegression()]),
    ],
    ids=["no weights", "weights", "pipeline", "refined", "blend"],
)
def test_every_kind_of_scorer_learns_from_them(classifier):
    training = training_of(5)
    scorer = cn.AdaDetect(classifier).settings().candidates[0]
    with_them, without = fit_best([scorer], training), scorer.fit(TrainingSet(*_pair(training)))
    assert isinstance(with_them.read.__self__, AddedScores)
    first = with_them.read.__self__.parts[0]
    assert not np.array_equal(training.mixture.score(first), training.mixture.score(without)), (
        "the scorer's own part has learnt from known novelties"
    )


def _pair(training):
    return training.null_train, training.mixture


def test_roles_do_not_matter_to_likeness():
    training = training_of(6)
    mixture = training.mixture
    again = TrainingSet(
        training.null_train, Mixture.of(mixture.rows[::-1].copy()), training.known_rows
    )
    one, other = (fit_with_known([WeightedForests(20, 0)], some) for some in (training, again))
    rows = mixture.distinct
    assert one.score(rows).tobytes() == other.score(rows).tobytes()


def test_likeness_is_a_discriminant_where_normals_look_gaussian():
    X_null, X_test, known_rows = drawn(7, heavy=False, at=2 * AT)
    mixture = Mixture.of(np.concatenate([X_null[200:], X_test]))
    forest = find_likeness(training_of(7))
    line = find_likeness(TrainingSet(X_null[:200], mixture, known_rows))
    assert type(line[1].estimator).__name__ == "Discriminant"
    assert type(forest[1].estimator).__name__ == "Forest"


def test_what_is_lifted_is_counted_beyond_chance():
    rng = np.random.default_rng(8)
    chance = [lifted(rng.normal(size=300), rng.normal(size=200), 2.5) for _ in range(200)]
    assert np.mean(np.array(chance) > 0) < 0.2
    null, mixture = rng.normal(size=300), np.append(rng.normal(size=180), np.full(20, 9.0))
    assert 10 < lifted(null, mixture, 2.5) <= 20
    assert n_standing_out(null, mixture) >= 20


def test_the_share_grows_with_what_is_lifted_and_with_known_rows():
    rng = np.random.default_rng(9)
    null, mixture = rng.normal(size=300), np.append(rng.normal(size=170), np.full(30, 9.0))
    shares = [likeness_share(null, mixture, n, 10.0, 2.5) for n in (1, 5, 20, 1000)]
    assert 0 < shares[0] < shares[1] < shares[2] < shares[3] < 1
    assert likeness_share(null, mixture, 20, 10.0, 50.0) == 0
    assert likeness_share(null, mixture[:170], 20, 10.0, 2.5) == 0


def test_scores_are_added_in_units_of_the_mixture():
    rows = np.random.default_rng(10).normal(size=(50, 2))
    mixture = Mixture.of(rows)
    parts = tuple(
        FittedScorer(WeightedForests(), lambda X, c=c: c * X[:, 0], "ordinal")
        for c in (1.0, 1000.0)
    )
    added = AddedScores.of(parts, (0.5, 0.5), mixture)
    assert np.allclose(added.score(rows).mean(), 0)
    assert np.allclose(added.score(rows).std(), 1)
    assert not added.by_row
