"""Attacks on models: they find what is planted, and nothing where there is nothing."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from typer.testing import CliRunner

import conovel as cn
from conovel.cli import app
from conovel.experiments import shadows
from conovel.experiments.attacks import (
    area,
    detected_at,
    discriminate,
    leakage,
    likelihood_ratio,
)
from conovel.experiments.privacy import (
    KNOWN,
    NOVELTIES,
    TRAINING,
    design_pool,
    draw_shadows,
    measure_privacy,
    pool_of,
    read_bytes,
)
from conovel.experiments.shadows import ROLES, Exchange, draw_shadow
from conovel.site.sent.private_surrogate import make_private_surrogate
from conovel.site.sent.surrogate import encode
from conovel.spec.settings import as_privacy

DEEP = RandomForestClassifier(10, random_state=0)


def planted(effect, n_shadows=200, n_rows=60, seed=0):
    """Statistics of rows that a model moves by so many standard deviations."""
    rng = np.random.default_rng(seed)
    members = rng.random((n_shadows, n_rows)) < 0.5
    own = rng.normal(size=n_rows)  # rows differ, whoever has them
    return rng.normal(size=members.shape) + own + effect * members, members


@pytest.mark.parametrize("effect", [0.0, 1.0, 3.0])
def test_the_likelihood_ratio_finds_what_is_planted_and_no_more(effect):
    statistic, members = planted(effect)
    found = leakage(likelihood_ratio(statistic, members, ~members), members, ~members)
    expected = 0.5 * math.erfc(-effect / 2)  # P(N(effect, 1) > N(0, 1))
    assert abs(found.auc - expected) < 4 * found.auc_error + 0.01
    assert found.auc_error < 0.02
    if effect == 3.0:
        assert found.detected[0] > 0.6
    if effect == 0.0:
        assert found.detected[0] < 0.03


def test_rates_and_areas_of_small_samples():
    others = np.arange(200.0)
    assert detected_at(others, others + 1000, 0.01) == 1.0
    assert detected_at(others, others, 0.01) == 0.01
    assert math.isnan(detected_at(others, others, 0.001))
    assert area(others, others) == 0.5


def test_a_discriminant_reads_what_differs():
    rng = np.random.default_rng(0)
    is_member = np.arange(200) % 4 < 2
    readings = rng.normal(size=(200, 12))
    assert abs(area(*split(discriminate(readings, is_member), is_member)) - 0.5) < 0.15
    readings[is_member, 3] += 4
    assert area(*split(discriminate(readings, is_member), is_member)) > 0.95
    assert not discriminate(np.zeros((200, 3)), is_member).any()


def split(statistic, is_member):
    return statistic[~is_member], statistic[is_member]


def test_deep_forests_give_rows_away_and_small_models_do_not():
    pool = design_pool(2.0, seed=0, n_known=100, n_tests=33)
    exchanges = [Exchange("deep", DEEP, None), Exchange("compact", DEEP)]
    found = measure_privacy(pool, exchanges, n_shadows=24)
    auc = {
        one.exchange: one.leakage.auc
        for one in found
        if (one.target, one.attack) == (TRAINING, "likelihood ratio")
    }
    assert auc["deep"] > 0.8
    assert auc["compact"] < 0.65
    deep, compact = read_bytes(pool, draw_shadows(pool, exchanges, 8), exchanges)
    assert deep.midpoints > 0.9
    assert math.isnan(compact.midpoints)
    assert "middle of two rows' values" in deep.in_words


def known_auc(found):
    return max(one.leakage.auc for one in found if one.target == KNOWN)


def test_known_novelties_are_found_where_a_model_is_learnt_from_them_itself(monkeypatch):
    pool = design_pool(2.0, seed=0, n_known=100, n_tests=60, n_shared=20)
    exchange = Exchange("compact", DEEP)
    assert known_auc(measure_privacy(pool, [exchange], n_shadows=24)) < 0.6

    def sent_itself(bits, local, training, seed, **_):
        rows = np.vstack([training.null_train, training.known_rows])
        labels = np.arange(len(rows)) >= len(training.null_train)
        return encode(clone(DEEP).set_params(bootstrap=False).fit(rows, labels))

    monkeypatch.setattr(shadows, "make_surrogate", sent_itself)
    assert known_auc(measure_privacy(pool, [exchange], n_shadows=24)) > 0.8


def test_known_novelties_of_a_shadow_agent_change_its_model_and_no_other_row():
    """Otherwise an attack that finds none of them says nothing."""
    pool = design_pool(2.0, seed=1, n_shared=20)
    drawn = [
        draw_shadow(p, [Exchange("compact")], 0, 0) for p in (pool, replace(pool, known_rows=None))
    ]
    np.testing.assert_array_equal(drawn[0].rows, drawn[1].rows)
    assert 10 < drawn[0].known_rows.sum() < 30
    scores = [one.models[0][0].score(pool.tests) for one in drawn]
    assert (scores[0] != scores[1]).mean() > 0.5


def test_every_known_normal_is_behind_several_runs():
    pool = design_pool(2.0, seed=0, n_known=60, n_tests=30)
    found = measure_privacy(pool, [Exchange("two runs", DEEP, None, n_runs=2)], n_shadows=8)
    # A known normal trains in some of the runs, so all that an agent has are members.
    numbers = found[0].leakage.n_members, found[0].leakage.n_others
    assert sum(numbers) == 8 * len(pool.normals)


def test_shadow_agents_have_the_canary_that_they_say():
    pool = design_pool(0.0, seed=0, n_known=60, n_tests=30)
    shadows = [draw_shadow(pool, [Exchange("deep", DEEP, 4)], i, 0) for i in range(16)]
    assert [s.canary for s in shadows] == [-1, -1, 0, 0, -1, -1, 1, 1, -1, -1, 2, 2, -1, -1, 3, 3]
    for shadow in shadows:
        there = [(shadow.rows == c.row).all(axis=1).any() for c in pool.canaries]
        assert there == [i == shadow.canary for i in range(4)]
        assert not (shadow.trains & ~shadow.normals).any()
    assert [c.role for c in pool.canaries] == [ROLES[0], ROLES[0], ROLES[1], ROLES[1]]
    assert [len(c.features) for c in pool.canaries] == [1, 5, 1, 5]


def test_a_site_measures_its_own_rows(tmp_path):
    rng = np.random.default_rng(0)
    header = ",".join("abc")
    for name, n in (("null", 240), ("test", 90)):
        rows = rng.normal(size=(n, 3))
        np.savetxt(tmp_path / f"{name}.csv", rows, "%.4f", ",", header=header, comments="")
    args = ["--null", tmp_path / "null.csv", "--test", tmp_path / "test.csv", "--shadows", 16]
    more = ["--scorer", "logistic", "--out", tmp_path / "found.json"]
    result = CliRunner().invoke(app, ["privacy", *map(str, args + more)])
    assert result.exit_code == 0
    assert "compact" in result.output
    assert max(map(len, result.output.splitlines())) <= 80
    assert (tmp_path / "found.json").stat().st_size > 100
    result = CliRunner().invoke(app, ["privacy", *map(str, args[:2])])
    assert "give both --null and --test" in str(result.exception)


def test_a_pool_of_own_rows_is_bounded():
    rows = np.random.default_rng(0).normal(size=(6000, 2))
    pool = pool_of(rows, rows[:2000] + 0.5)
    assert (len(pool.normals), len(pool.tests)) == (4000, 1500)


def test_where_only_imitations_are_sent_the_own_model_is_not_fitted(monkeypatch):
    monkeypatch.setattr(shadows, "fit_best", lambda *_: pytest.fail("the own model was fitted"))
    pool = design_pool(2.0, seed=0, n_known=100, n_tests=50)
    drawn = draw_shadow(pool, [Exchange("compact", "logistic")], 0, seed=0)
    assert drawn.sizes[0] > 0


def test_attacks_on_private_models_know_the_units_of_the_schema(monkeypatch):
    known = {}

    def made(training, n_mixture, units, *more):
        known["unit"] = units.unit
        return make_private_surrogate(training, n_mixture, units, *more)

    monkeypatch.setattr(shadows, "make_private_surrogate", made)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"age": rng.uniform(20, 80, 600), "weight": rng.normal(size=600)})
    bounds = {"age": {"kind": "number", "low": 0, "high": 120}, "weight": "number"}
    pool = pool_of(rows[200:], rows[:200], cn.Schema.from_dict(bounds))
    private = Exchange("ε", "logistic", privacy=as_privacy(8))
    draw_shadow(pool, [private], 0, seed=0)
    np.testing.assert_array_equal(known["unit"], [15, np.nan])


@pytest.mark.slow
def test_the_default_model_hides_outliers_and_most_of_the_novelties():
    found = measure_privacy(design_pool(2.0, seed=1), [Exchange("compact")], n_shadows=240)
    for one in found:
        leak = one.leakage
        if one.attack == "reading":
            assert leak.detected[0] <= 0.10 + 2 * leak.detected_error[0]
        elif one.target == NOVELTIES:
            assert leak.auc <= 0.60 + 2 * leak.auc_error
        else:
            assert leak.auc <= 0.53
