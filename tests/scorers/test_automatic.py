"""The automatic scorer: it chooses from H alone and reports its choice."""

import json

import pytest
from support.scorers import both_sides

import conovel as cn
from conovel.site.splitting import train_share


def test_automatic_sees_what_a_linear_score_cannot():
    X_null, X_test = both_sides(0)
    result = cn.AdaDetect().detect(X_null, X_test)
    assert result.selection.winner != "linear"
    assert result.rejected[200:].mean() > 0.8
    blind = cn.AdaDetect("refined-linear").detect(X_null, X_test)
    assert blind.rejected[200:].mean() < 0.7


def test_the_result_says_what_was_chosen_and_what_resolution_is_left(few_trees):
    X_null, X_test = both_sides(1)
    result = cn.AdaDetect().detect(X_null, X_test)
    said = json.loads(json.dumps(result.summary()))
    assert said["selection"]["candidates"] == list(result.selection.names)
    assert said["selection"]["chosen"] == result.selection.winner
    assert len(said["selection"]["enrichment"]) == len(result.selection.names)
    share = train_share(len(X_null), len(X_test), 0.1)
    assert result.n_train == int(share * len(X_null))
    assert said["fewest_rejections_possible"] == result.resolution.fewest


@pytest.mark.parametrize(("n_null", "n_test"), [(2, 1), (4, 2), (30, 3)])
@pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")
def test_a_handful_of_rows_is_enough_to_run(n_null, n_test, few_trees):
    X_null, X_test = both_sides(2, n_null, n_test, 0)
    assert cn.AdaDetect().detect(X_null, X_test).n_rejected == 0
