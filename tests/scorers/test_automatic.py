"""The automatic scorer: it chooses from H alone and reports its choice."""

import json

import numpy as np
import pytest
from support.roles import Sample, assert_roles_do_not_matter, in_detector
from support.scorers import both_sides

import conovel as cn
from conovel.scorers.automatic import Automatic, normality
from conovel.scorers.base import Mixture, TrainingSet
from conovel.spec.training import train_share


def test_automatic_sees_what_a_linear_score_cannot():
    X_null, X_test = both_sides(0)
    result = cn.AdaDetect().detect(X_null, X_test)
    assert result.rejected[200:].mean() > 0.8
    blind = cn.AdaDetect("refined-linear").detect(X_null, X_test)
    assert blind.rejected[200:].mean() < 0.7


def heavy_tailed(seed, n_null=600, n_test=240, n_novel=40, d=8):
    """Log-normal columns, and novelties that lie between the normals' values."""
    rng = np.random.default_rng(seed)
    X_null, X_test = (np.exp(2 * rng.normal(size=(n, d))) for n in (n_null, n_test))
    X_test[n_test - n_novel :, :6] = np.exp(2 * rng.normal(-1.5, 0.1, size=(n_novel, 6)))
    return X_null, X_test


def test_forests_score_where_the_normals_do_not_look_gaussian():
    X_null, X_test = heavy_tailed(0)
    result = cn.AdaDetect().detect(X_null, X_test)
    assert result.selection.winner == result.scorer == "forests"
    assert result.selection.values == (0, 8)
    assert result.rejected[200:].mean() > 0.8
    blend = Automatic().candidates()["blend"]
    assert cn.AdaDetect(blend).detect(X_null, X_test).rejected[200:].mean() < 0.4


def requests(seed, n_null=900, n_test=400, n_novel=20):
    """Like requests to a web server: three columns, one of which is nearly always the same.

    The novelties send as many bytes as no normal does. Two columns do not look Gaussian, and of
    three as many may seem so by chance.
    """
    rng = np.random.default_rng(seed)

    def normal(n):
        duration = -2.3 + (rng.random(n) < 0.01) * rng.uniform(2, 8, n)
        sent = np.log(np.round(np.exp(rng.normal(5.4, 0.3, n))))
        sent[rng.random(n) < 0.01] += 1.5
        return np.column_stack([duration, sent, rng.normal(8, 1.3, n)])

    X_null, X_test = normal(n_null), normal(n_test)
    X_test[n_test - n_novel :] = [-2.3, np.log(54540), np.log(8314)]
    return X_null, X_test


def test_forests_score_where_a_few_columns_have_extreme_values():
    for seed in range(2):
        X_null, X_test = requests(seed)
        result = cn.AdaDetect().detect(X_null, X_test)
        assert result.selection.winner == "forests"
        assert "extreme values" in result.selection.rule
        assert result.rejected[380:].all()
        blend = Automatic().candidates()["blend"]
        assert cn.AdaDetect(blend).detect(X_null, X_test).n_rejected == 0


@pytest.mark.parametrize("n_columns", [1, 2, 3])
def test_extremes_are_judged_even_where_all_columns_may_fail_by_chance(n_columns):
    rng = np.random.default_rng(n_columns)
    rows = np.exp(2 * rng.normal(size=(500, n_columns)))
    assert normality(rows)._replace(n_extreme=0).is_plausible or n_columns == 3
    assert not normality(rows).is_plausible
    # One column in three is enough, and one in four is not.
    wide = np.column_stack([rows[:, 0], rng.normal(size=(500, 3))])
    assert not normality(wide[:, :3]).is_plausible
    assert normality(wide).is_plausible


@pytest.mark.parametrize("n", [2, 10, 25, 60, 500])
def test_gaussian_columns_are_never_extreme(n):
    rng = np.random.default_rng(n)
    assert [normality(rng.normal(size=(n, 20))).n_extreme for _ in range(100)] == [0] * 100


def test_roles_do_not_matter_where_columns_are_extreme(few_trees):
    run = in_detector(level="1/5")
    for seed in range(3):
        sample = Sample(*requests(seed, n_null=90, n_test=30, n_novel=10))
        assert_roles_do_not_matter(run, [sample], Automatic(n_folds=2), seed=seed)


def test_the_choice_depends_on_null_train_alone():
    (X_null, X_test), (_, gaussian) = heavy_tailed(1), both_sides(1, d=8)
    chosen = [
        Automatic(random_state=0).fit(TrainingSet(X_null, Mixture.of(rows))).selection
        for rows in (X_test, gaussian)
    ]
    assert chosen[0] == chosen[1]


def test_the_result_says_what_was_chosen_and_what_resolution_is_left(few_trees):
    X_null, X_test = both_sides(1)
    result = cn.AdaDetect().detect(X_null, X_test)
    said = json.loads(json.dumps(result.summary()))
    assert said["selection"]["candidates"] == list(result.selection.names)
    assert said["selection"]["chosen"] == result.selection.winner
    assert said["selection"]["columns"] == list(result.selection.values) == [5, 1]
    assert said["selection"]["rule"].startswith("1 of 6 columns of the training normals do not")
    share = train_share(len(X_null), len(X_test), 0.1)
    assert result.n_train == int(share * len(X_null))
    assert said["fewest_rejections_possible"] == result.resolution.fewest


@pytest.mark.parametrize(("n_null", "n_test"), [(2, 1), (4, 2), (30, 3)])
@pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")
def test_a_handful_of_rows_is_enough_to_run(n_null, n_test, few_trees):
    X_null, X_test = both_sides(2, n_null, n_test, 0)
    assert cn.AdaDetect().detect(X_null, X_test).n_rejected == 0
