"""A model that was trained elsewhere: it scores as it is, and may not know roles."""

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest, RandomForestClassifier

import conovel as cn
from conovel.errors import InputError, ScorerError
from conovel.scorers.base import Mixture, TrainingSet


def distance(X):
    return (X**2).sum(axis=1)


def rows(seed, n_null=400, n_test=100, n_novel=20):
    rng = np.random.default_rng(seed)
    X_test = rng.normal(size=(n_test, 3))
    X_test[n_test - n_novel :] += 3
    return rng.normal(size=(n_null, 3)), X_test


def test_scores_do_not_change_when_rows_swap_roles():
    X_null, X_test = rows(0)
    X_test[:5] = X_null[:5]  # equal rows in both roles
    both = np.concatenate([X_null, X_test])
    order = np.random.default_rng(1).permutation(len(both))
    scorer, none = cn.FixedScore(distance), np.empty((0, 3))
    scores = []
    for mixture in (Mixture.of(both), Mixture.of(both[order])):
        scores.append(mixture.score(scorer.fit(TrainingSet(none, mixture))))
    assert np.array_equal(scores[0][order], scores[1])


def test_a_refusal_does_not_tell_roles():
    X_null, X_test = rows(0)
    none, swapped = np.empty((0, 3)), (np.concatenate(pair) for pair in ((X_null, X_test),) * 2)
    scorer = cn.FixedScore(distance, "d", trained_on=X_test[:2])
    texts = []
    for both, order in zip(swapped, (slice(None), slice(None, None, -1)), strict=True):
        with pytest.raises(ScorerError, match="trained on 2 of the rows") as caught:
            scorer.fit(TrainingSet(none, Mixture.of(both[order])))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_all_known_normals_calibrate_unless_told_otherwise():
    X_null, X_test = rows(0)
    result = cn.AdaDetect(cn.FixedScore(distance, "d")).detect(X_null, X_test)
    assert (result.n_train, result.n_calibration) == (0, 400)
    assert np.array_equal(result.scores, distance(X_test))
    halved = cn.AdaDetect(cn.FixedScore(distance, "d"), train_fraction="1/2")
    assert halved.detect(X_null, X_test).n_calibration == 200


@pytest.mark.parametrize("as_digests", [False, True])
def test_known_normals_that_trained_the_model_never_calibrate(as_digests):
    X_null, X_test = rows(0)
    trained = X_null[100:150]
    scorer = cn.FixedScore(
        distance, "d", trained_on=cn.FixedScore.digests(trained) if as_digests else trained
    )
    result = cn.AdaDetect(scorer).detect(X_null, X_test)
    others = cn.AdaDetect(cn.FixedScore(distance)).detect(
        np.delete(X_null, range(100, 150), 0), X_test
    )
    assert (result.n_train, result.n_calibration) == (50, 350)
    assert np.array_equal(result.ranks, others.ranks)
    assert scorer.has_seen(X_null).nonzero()[0].tolist() == list(range(100, 150))


def test_a_model_that_has_seen_tests_is_refused():
    X_null, X_test = rows(0)
    scorer = cn.FixedScore(distance, "d", trained_on=np.concatenate([X_null[:9], X_test[:3]]))
    with pytest.raises(ScorerError, match="trained on 3 of the rows that calibrate or are tested"):
        cn.AdaDetect(scorer).detect(X_null, X_test)


def test_a_network_refuses_it_with_the_name_of_the_agent():
    X_null, X_test = rows(0)
    agents = [cn.Agent(n, X_null[i::2], X_test[i::2]) for i, n in enumerate("ab")]
    with pytest.raises(ScorerError, match="agent a: d was trained on"):
        cn.Network(agents, scorer=cn.FixedScore(distance, "d", trained_on=X_null[::2])).run()


def of_three_columns(X):
    assert X.shape[1] == 3
    return distance(X)


@pytest.mark.parametrize("regime", ["auto", "together", "full", "counts", "isolated", "split"])
def test_it_scores_the_columns_that_it_was_trained_on_in_every_regime(regime):
    X_null, X_test = rows(0, 900, 300, 60)
    agents = [cn.Agent(n, X_null[i::3], X_test[i::3]) for i, n in enumerate("abc")]
    run = cn.Network(agents, regime=regime, scorer=cn.FixedScore(of_three_columns)).run()
    if regime in ("auto", "full", "counts", "isolated"):
        assert np.array_equal(run["a"].scores, distance(X_test[::3]))
    assert run.n_rejected > 0


def test_the_guarantee_names_what_cannot_be_checked():
    X_null, X_test = rows(0)
    result = cn.AdaDetect(cn.FixedScore(distance, "sum of squares")).detect(X_null, X_test)
    assert "sum of squares was trained elsewhere" in result.guarantee.assumptions[-1]
    agents = [cn.Agent(n, X_null[i::2], X_test[i::2]) for i, n in enumerate("ab")]
    run = cn.Network(agents, regime="counts", scorer=cn.FixedScore(distance, "d")).run()
    assert "d was trained elsewhere" in str(run.guarantee)
    assert run.guarantee.assumptions[-1].startswith("d was trained elsewhere")
    plain = cn.AdaDetect("logistic").detect(X_null, X_test)
    assert not any("elsewhere" in one for one in plain.guarantee.assumptions)


@pytest.mark.parametrize("higher", ["novel", "normal"])
def test_models_of_several_kinds(higher):
    X_null, X_test = rows(0)
    train = np.random.default_rng(5).normal(size=(300, 3))
    labels = distance(train) > 4
    forest = RandomForestClassifier(10, random_state=0).fit(train, labels)
    sign = 1 if higher == "novel" else -1
    expected = {
        "classifier": (cn.FixedScore(forest, higher=higher), forest.predict_proba(X_test)[:, 1]),
        "method": (
            cn.FixedScore(
                IsolationForest(random_state=0).fit(train), "i", None, higher, "score_samples"
            ),
            IsolationForest(random_state=0).fit(train).score_samples(X_test),
        ),
    }
    for scorer, scores in expected.values():
        result = cn.AdaDetect(scorer).detect(X_null, X_test)
        assert np.allclose(result.scores, sign * scores, rtol=0, atol=1e-12)


class Booster:
    """Scores like a booster of XGBoost."""

    def inplace_predict(self, X):
        return distance(X).astype(np.float32)


def test_a_booster_is_read_by_its_own_method():
    X_null, X_test = rows(0)
    result = cn.AdaDetect(cn.FixedScore(Booster())).detect(X_null, X_test)
    assert np.array_equal(result.scores, distance(X_test).astype(np.float32))


def test_what_does_not_score_is_refused():
    forest = IsolationForest()
    with pytest.raises(ScorerError, match="cannot be called"):
        cn.FixedScore(forest)
    with pytest.raises(ScorerError, match="no method 'judge'"):
        cn.FixedScore(forest, method="judge")
    with pytest.raises(ScorerError, match="'novel' or 'normal'"):
        cn.FixedScore(distance, higher="odd")
    with pytest.raises(ScorerError, match="rows of numbers"):
        cn.FixedScore(distance, trained_on=np.zeros(3))
    with pytest.raises(ScorerError, match="gave NaN or"):
        cn.AdaDetect(cn.FixedScore(lambda X: X)).detect(*rows(0))


def test_nothing_of_it_is_kept_by_a_detector():
    X_null, X_test = rows(0)
    with pytest.raises(ScorerError, match="kept in its own file"):
        cn.AdaDetect(cn.FixedScore(distance)).keep(X_null, X_test)


def test_the_false_discovery_rate_is_held_and_attained():
    """One column, no ties, half of the tests novel and far away: the bound is attained."""
    shares, level = [], 0.2
    rng = np.random.default_rng(7)
    for _ in range(400):
        X_null, normal = rng.normal(size=(99, 1)), rng.normal(size=(20, 1))
        X_test = np.concatenate([normal, np.full((20, 1), 50.0) + rng.normal(size=(20, 1))])
        trained = rng.normal(size=(5, 1))
        scorer = cn.FixedScore(lambda X: X[:, 0], trained_on=trained)
        result = cn.AdaDetect(scorer, level).detect(
            np.concatenate([trained, X_null]), X_test, check=False
        )
        assert result.n_calibration == 99
        shares.append(result.rejected[:20].sum() / max(result.n_rejected, 1))
    mean, error = np.mean(shares), np.std(shares) / len(shares) ** 0.5
    bound = level / 2
    assert mean < bound + 3 * error
    assert mean > bound - 4 * error  # (ℓ + 1)·α·k/m are whole numbers: little is lost


def test_a_model_that_memorised_calibration_rows_breaks_the_rate_unless_they_are_named():
    """The reason for `trained_on`: rows that were learnt look more normal than new ones."""
    rng = np.random.default_rng(3)
    counts = {"not named": 0, "named": 0}
    for _ in range(60):
        X_null, X_test = rng.normal(size=(100, 2)), rng.normal(size=(50, 2))
        learnt = {row.tobytes() for row in X_null[:80]}

        def memory(X, learnt=learnt):
            return np.array([float(row.tobytes() not in learnt) for row in X]) + X[:, 0] * 1e-3

        for how, trained in (("not named", None), ("named", X_null[:80])):
            scorer = cn.FixedScore(memory, trained_on=trained)
            result = cn.AdaDetect(scorer, 0.3).detect(X_null, X_test, check=False)
            counts[how] += result.n_rejected > 0
    assert counts["not named"] > 55  # every list is false: no test is novel
    assert counts["named"] <= 60 * 0.3 + 3 * (60 * 0.3 * 0.7) ** 0.5


@pytest.mark.parametrize("more", [{"strata": "a"}, {"weights": "a"}])
def test_a_fixed_score_goes_with_neither_strata_nor_weights(more):
    detector = cn.AdaDetect(cn.FixedScore(distance), **more)
    with pytest.raises(InputError, match="neither strata nor weights"):
        detector.detect(*rows(0))


@pytest.mark.parametrize(("regime", "bound"), [("counts", 0.2), ("joint", 0.3)])
def test_the_rate_over_a_network_is_held(regime, bound):
    shares, rng = [], np.random.default_rng(11)
    for seed in range(60):
        agents = [
            cn.Agent(
                n,
                rng.normal(size=(60, 1)),
                np.append(rng.normal(size=10), np.full(5, 9.0))[:, None],
            )
            for n in "ab"
        ]
        scorer = cn.FixedScore(lambda X: X[:, 0])
        run = cn.Network(agents, regime=regime, scorer=scorer, level=0.3, random_state=seed).run(
            check=False
        )
        false = sum(int(run[n].rejected[:10].sum()) for n in "ab")
        shares.append(false / max(run.n_rejected, 1))
    error = np.std(shares) / len(shares) ** 0.5
    assert np.mean(shares) < bound + 3 * error
    assert np.mean(shares) > 0.05  # the level is used
