"""Automatic choices: made from H alone, reported, and as valid as what they choose from."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from support.scorers import composite_scores, fit_scorer

import conovel as cn
from conovel.errors import InputError
from conovel.experiments.gaussian import gaussian_design
from conovel.scorers.automatic import Automatic
from conovel.scorers.base import Mixture, TrainingSet
from conovel.scorers.refined import Refined
from conovel.scorers.selection import HoldOut, Selection
from conovel.site.composite import choose_composite
from conovel.site.splitting import as_share, train_share

QUICK = Refined(LogisticRegression(), n_folds=2, n_refits=2)


def both_sides(seed, n_null=600, n_test=240, n_novel=40, d=6):
    """Novelties on both sides of the normals: a linear score cannot see them."""
    rng = np.random.default_rng(seed)
    X_null, X_test = rng.normal(size=(n_null, d)), rng.normal(size=(n_test, d))
    X_test[n_test - n_novel :] += rng.choice([-2.5, 2.5], size=(n_novel, 1))
    return X_null, X_test


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


def test_the_choice_depends_on_null_train_alone():
    (X_null, X_test), (_, gaussian) = heavy_tailed(1), both_sides(1, d=8)
    chosen = [
        fit_scorer(Automatic(random_state=0), X_null, Mixture.of(rows)).selection
        for rows in (X_test, gaussian)
    ]
    assert chosen[0] == chosen[1]


def test_the_result_says_what_was_chosen_and_what_resolution_is_left():
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
def test_a_handful_of_rows_is_enough_to_run(n_null, n_test):
    X_null, X_test = both_sides(2, n_null, n_test, 0)
    assert cn.AdaDetect().detect(X_null, X_test).n_rejected == 0


@given(
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.sampled_from(["1/100", "1/20", "1/10", "1/5", "1/2"]),
)
def test_the_share_depends_on_numbers_alone_and_leaves_rows_for_both(n, m, level):
    share = train_share(n, m, level)
    assert Fraction(1, 10) <= share <= Fraction(3, 4)
    assert share == train_share(n, m, Fraction(level))
    assert as_share(None, n, m, level) == share
    assert as_share(0.3, n, m, level) == Fraction(3, 10)


def test_few_known_normals_calibrate_rather_than_train():
    shares = [train_share(n, 1000, 0.1) for n in (150, 1000, 10**5)]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]
    # With half of 333 rows only rank 1 could be rejected at 10 % discoveries, now rank 2.
    n_calibration = 333 - int(train_share(333, 999, 0.1) * 333)
    assert (n_calibration + 1) * Fraction(11, 1000) >= 2


def agents(seed=0, **design):
    drawn = gaussian_design(2.0, seed, n_null=900, n_test=300, **design)
    return [cn.Agent(f"site-{j}", a.X_null, a.X_test) for j, a in enumerate(drawn)]


def test_each_agent_chooses_its_composite_and_says_so():
    run = cn.Network(agents(), scorer=QUICK).run()
    names = ("stacked", "mean", "local", "min", "max")
    for site in run.values():
        assert isinstance(site.choices["composite"], Selection)
        assert site.choices["composite"].names == names
    said = json.loads(json.dumps(run.to_dict()))["decisions"]
    assert all(
        set(one["choices"]["composite"]["candidates"]) == set(names) for one in said.values()
    )
    automatic = cn.Network(agents(), regime="counts").run()
    assert all(set(site.choices) == {"scorer"} for site in automatic.values())


def test_a_composite_is_what_its_choice_names():
    train, rows = both_sides(3)
    mixture = Mixture.of(np.concatenate([train[300:], rows]))
    local = fit_scorer(QUICK, train[:300], mixture)
    peer = fit_scorer(LogisticRegression(), train[300:], Mixture.of(rows))
    task = local, [peer], train[:300], mixture
    winner = choose_composite(local, [peer], TrainingSet(train[:300], mixture)).winner
    auto, named = (composite_scores(name, *task) for name in ("auto", winner))
    assert auto.tobytes() == named.tobytes()


@pytest.mark.parametrize("composite", ["auto", "stacked"])
def test_permuting_the_mixture_permutes_composite_scores_bit_for_bit(composite):
    train, rows = both_sides(4, n_novel=20)
    rows = np.concatenate([rows, rows[:7]])  # equal rows too
    order = np.random.default_rng(0).permutation(len(rows))
    peer = fit_scorer(LogisticRegression(), train, Mixture.of(rows[::2]))
    scores = []
    for some in (rows, rows[order]):
        mixture = Mixture.of(some)
        local = fit_scorer(Automatic(n_folds=3, random_state=1), train, mixture)
        scores.append(composite_scores(composite, local, [peer], train, mixture))
    assert scores[0][order].tobytes() == scores[1].tobytes()
