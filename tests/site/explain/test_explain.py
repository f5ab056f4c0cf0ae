"""Reasons: right where the truth is known, the same decisions, rows in groups."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import conovel as cn
from conovel.errors import InputError
from conovel.rows.pairs import KnownRows
from conovel.rows.tables import Rows
from conovel.scorers.cross_fit import CrossFit
from conovel.site.explain.alike import alike
from conovel.site.explain.explainer import Explainer, plain_views
from conovel.site.explain.reasons import Reasons, spelled
from conovel.site.explain.shares import exact_parts

TREES = ExtraTreesClassifier(10, max_depth=6, min_samples_leaf=2)
LINEAR = LogisticRegression(C=0.1)
SCORERS = {
    "linear": LINEAR,
    "trees": RandomForestClassifier(60, max_depth=6, min_samples_leaf=5),
    "refined": cn.Refined(TREES, LINEAR),
    "blend": cn.Blend(TREES, [LINEAR, TREES]),
    "neighbours": make_pipeline(StandardScaler(), KNeighborsClassifier(25)),
}


def shifted(rng, n_null=900, n_test=300, n_novel=60, d=8, shift=5.0):
    """Draw novelties that are shifted in one column each, half of them upwards."""
    X_null, X_test = rng.normal(size=(n_null, d)), rng.normal(size=(n_test, d))
    column = np.full(n_test, -1)
    column[-n_novel:] = rng.integers(2, size=n_novel)
    sign = np.where(column == 0, 1.0, -1.0)  # a linear score needs one side for each column
    novel = column >= 0
    X_test[novel, column[novel]] += shift * sign[novel]
    return X_null, X_test, column


def with_pair(rng, n_null=1500, n_test=400, n_novel=80, d=5):
    """Draw novelties whose first two columns are usual, but not together."""
    X_null, X_test = rng.normal(size=(n_null, d)), rng.normal(size=(n_test, d))
    for X in (X_null, X_test):
        X[:, 1] = 0.97 * X[:, 0] + np.sqrt(1 - 0.97**2) * X[:, 1]
    sign = rng.choice([-1, 1], n_novel)
    X_test[-n_novel:, 0] = sign * rng.uniform(0.8, 1.8, n_novel)
    X_test[-n_novel:, 1] = -sign * rng.uniform(0.8, 1.8, n_novel)
    return X_null, X_test, np.arange(n_test) >= n_test - n_novel


def with_parity(rng, n_null=1500, n_test=300, n_novel=60):
    """Draw rows with an even number of negative columns of three, and novelties with an odd one.

    Every single value and every two values are as usual as in the known normals.
    """
    sign = rng.choice([-1.0, 1.0], size=(n_null + n_test, 3))
    sign[:, 2] = sign[:, 0] * sign[:, 1]
    sign[-n_novel:, 2] *= -1
    X = sign + rng.normal(scale=0.1, size=sign.shape)
    return X[:n_null], X[n_null:]


def share_of_right_reasons(result, column):
    first = result.explain(top=1).drop_duplicates("row")
    flagged = first[column[first["row"]] >= 0]
    assert len(flagged) >= 20
    return (flagged["column"].to_numpy() == column[flagged["row"]]).mean()


@cache
def detected(name):
    X_null, X_test, column = shifted(np.random.default_rng(0))
    return cn.AdaDetect(SCORERS[name]).detect(X_null, X_test), X_null, X_test, column


@pytest.mark.parametrize("name", SCORERS)
def test_the_first_reason_is_the_column_that_was_shifted(name):
    result, *_, column = detected(name)
    assert share_of_right_reasons(result, column) >= 0.95


@pytest.mark.parametrize("composite", ["max", "stacked"])
def test_the_first_reason_of_a_composite_is_right(composite):
    rng = np.random.default_rng(1)
    drawn = {name: shifted(rng) for name in ("north", "south")}
    agents = [cn.Agent(name, a, b) for name, (a, b, _) in drawn.items()]
    run = cn.Network(agents, scorer=LINEAR, composite=composite, regime="full").run()
    for name, (*_, column) in drawn.items():
        assert share_of_right_reasons(run[name], column) >= 0.95


@pytest.mark.parametrize("name", ["trees", "blend"])
def test_a_pair_that_is_seldom_together_is_one_reason(name):
    X_null, X_test, novel = with_pair(np.random.default_rng(2))
    result = cn.AdaDetect(SCORERS[name]).detect(X_null, X_test)
    lines = result.explain(top=1)
    rows = [group for row, group in lines.groupby("row") if novel[row]]
    assert len(rows) >= 40
    right = [list(g["how"]) == ["combination"] * 2 and {*g["column"]} == {0, 1} for g in rows]
    assert np.mean(right) >= 0.8


def test_values_ranges_and_shares_of_the_frame():
    X_null, X_test, column = shifted(np.random.default_rng(0))
    names = [f"c{j}" for j in range(8)]
    ids = np.array([f"id-{i}" for i in range(len(X_test))])
    frames = (pd.DataFrame(X, columns=names) for X in (X_null, X_test))
    result = cn.AdaDetect(LINEAR).detect(*frames, ids=ids)
    lines = result.explain(top=8)
    at = [names.index(c) for c in lines["column"]]
    np.testing.assert_array_equal(lines["value"], X_test[lines["row"], at])
    assert (lines["id"] == ids[lines["row"]]).all()
    assert (lines["normal_low"] < lines["normal_high"]).all()
    assert lines["normal_low"].between(*np.quantile(X_null, [0.002, 0.05])).all()
    assert (lines.groupby("row")["share"].sum() <= 1 + 1e-9).all()
    assert (lines["share"] > 0).all()
    assert (lines.groupby("row")["share"].diff().dropna() <= 1e-12).all()
    assert set(lines["row"]) == set(np.flatnonzero(result.rejected))
    first = lines[(lines["reason"] == 1) & (column[lines["row"]] == 0)]
    assert set(first["how"]) == {"high"}
    assert len(result.explain()) <= 3 * result.n_rejected


def test_a_frame_of_polars_gives_a_frame_of_polars():
    X_null, X_test, _ = shifted(np.random.default_rng(0))
    names = [f"c{j}" for j in range(8)]
    result = cn.AdaDetect(LINEAR).detect(*(pl.DataFrame(X, names) for X in (X_null, X_test)))
    assert isinstance(result.explain(), pl.DataFrame)
    assert isinstance(result.patterns(), pl.DataFrame)


def test_rows_with_the_same_reasons_form_a_pattern():
    result, *_ = detected("linear")
    found = result.patterns()
    assert found["rows"].sum() == result.n_rejected
    assert set(found["pattern"][:2]) == {"column 0 high", "column 1 low"}
    assert found["rows"].is_monotonic_decreasing


def test_explaining_changes_nothing():
    _, X_null, X_test, _ = detected("linear")
    result, other = (cn.AdaDetect(LINEAR).detect(X_null, X_test) for _ in range(2))
    scores, rejected = result.scores.copy(), result.rejected.copy()
    result.explain()
    np.testing.assert_array_equal(result.scores, scores)
    np.testing.assert_array_equal(result.rejected, rejected)
    np.testing.assert_array_equal(other.scores, scores)


def test_reasons_of_a_row_do_not_depend_on_the_rows_around_it():
    result, _, X_test, _ = detected("blend")
    whole = result.explainer.explain(X_test[-6:])
    alone = [result.explainer.explain(X_test[i : i + 1]) for i in range(294, 300)]
    np.testing.assert_array_equal(whole.order, np.concatenate([one.order for one in alone]))
    np.testing.assert_allclose(whole.share, np.concatenate([one.share for one in alone]))


def test_the_background_is_null_train_alone():
    """Calibration rows and test rows are not kept for explanations."""
    X_null, X_test, _ = shifted(np.random.default_rng(0))
    result = cn.AdaDetect(LINEAR, train_fraction=0.5).detect(X_null, X_test)
    known_rows = {row.tobytes() for row in result.explainer.null_train}
    assert len(known_rows) == 450 == len(X_null) - result.n_calibration
    assert known_rows <= {row.tobytes() for row in X_null}


def test_exact_for_linear_models_and_trees_also_in_folds():
    for name, n_models in (("linear", 1), ("trees", 1), ("refined", None)):
        result, _, X_test, _ = detected(name)
        parts = exact_parts(result.explainer.model, X_test)
        assert parts is not None, name
        assert n_models in (None, len(parts))
        scores = np.empty(len(X_test))
        for rows, flat in parts:
            scores[rows] = flat.score(X_test[rows])
        np.testing.assert_allclose(scores, result.scores)
    blend, *_ = detected("blend")
    assert isinstance(blend.explainer.model.read.__self__, CrossFit)
    assert exact_parts(blend.explainer.model, X_test) is None


def test_of_many_columns_blocks_are_screened():
    """The same first column as when every column is tried by itself."""

    class Sum:
        scale = "ordinal"

        def score(self, X):
            return X[:, 37] ** 2 + X[:, 90]

    rng = np.random.default_rng(3)
    null_train, X = rng.normal(size=(300, 100)), rng.normal(size=(20, 100))
    X[:10, 37] += 9
    X[10:, 90] += 9
    found = Explainer(Sum(), null_train, plain_views(range(100))).explain(X)
    assert found.order[:, 0].tolist() == [37] * 10 + [90] * 10


def test_interactions_of_two_columns_are_shared_evenly():
    """First and last change together are the Shapley value where two columns interact."""

    class Product:
        scale = "ordinal"

        def score(self, X):
            return X[:, 0] * X[:, 1] + 3 * X[:, 2]

    null_train = np.zeros((5, 3))
    null_train[:, 2] = np.arange(5) * 1e-9
    found = Explainer(Product(), null_train, plain_views(range(3))).explain(
        np.array([[2.0, 2.0, 1.0]])
    )
    shares = dict(zip(found.order[0].tolist(), found.share[0], strict=True))
    np.testing.assert_allclose([shares[j] for j in range(3)], [2 / 7, 2 / 7, 3 / 7], atol=1e-6)


def test_no_rejected_row_gives_an_empty_frame():
    rng = np.random.default_rng(0)
    result = cn.AdaDetect(LINEAR).detect(rng.normal(size=(300, 3)), rng.normal(size=(50, 3)))
    assert result.n_rejected == 0
    assert len(result.explain()) == 0
    assert len(result.patterns()) == 0


@pytest.mark.parametrize("top", [0, 11, "3", 1.5])
def test_bad_numbers_of_reasons_are_refused(top):
    result, *_ = detected("linear")
    with pytest.raises(InputError, match="top"):
        result.explain(top=top)


def test_many_patterns_end_in_one_of_others():
    n = 60
    names = [f"c{j}" for j in range(n)]
    null_train = np.random.default_rng(0).normal(size=(200, n))

    class Largest:
        scale = "ordinal"

        def score(self, X):
            return X.max(axis=1)

    X = np.eye(n) * 50
    explainer = Explainer(Largest(), null_train, plain_views(names))
    reasons = Reasons.of(explainer, Rows(X, tuple(names)), np.arange(n))
    patterns = reasons.patterns()
    assert patterns[-1].text == "other reasons"
    assert sum(len(pattern.members) for pattern in patterns) == n
    assert len(patterns) == 21


def test_numbers_are_written_for_people():
    assert [spelled(x) for x in (3.0, 0.123456, 1551.0, 123456.7, -0.00001)] == [
        "3",
        "0.1235",
        "1551",
        "123457",
        "-1e-05",
    ]


def test_every_row_has_a_reason():
    """Also where the nearest known normals score as high as the row, or higher."""

    class Falling:
        scale = "ordinal"

        def score(self, X):
            return -X[:, 0]

    class Constant:
        scale = "ordinal"

        def score(self, X):
            return np.zeros(len(X))

    null_train = np.random.default_rng(0).normal(size=(50, 3))
    test = Rows(np.array([[9.0, 0.0, 0.0]]))
    for model in (Falling(), Constant()):
        explainer = Explainer(model, null_train, plain_views(range(3)))
        reasons = Reasons.of(explainer, test, np.arange(1))
        assert len(reasons.of_row(0)) >= 1
        assert reasons.patterns()[0].members.tolist() == [0]


def mules(n, rng):
    """Draw confirmed cases: of one kind in the first column, of another in the second."""
    X = rng.normal(0, 0.5, size=(n, 3))
    X[::2, 0] += 6
    X[1::2, 1] -= 6
    kinds = np.where(np.arange(n) % 2 == 0, "mule account", "stolen card")
    return pd.DataFrame(X, columns=["amount", "hour", "age"]), kinds


@cache
def with_mules():
    rng = np.random.default_rng(4)
    names = ["amount", "hour", "age"]
    X_null, X_test = (pd.DataFrame(rng.normal(size=(n, 3)), columns=names) for n in (900, 240))
    X_test.iloc[:40], _ = mules(40, rng)
    X_test.iloc[40:60, 2] += 7  # of another kind than all known ones
    confirmed, kinds = mules(14, rng)
    return X_null, X_test, confirmed, kinds


def test_a_row_that_is_like_known_novelties_says_so_and_of_which_kind(few_trees):
    X_null, X_test, confirmed, kinds = with_mules()
    result = cn.AdaDetect().detect(X_null, X_test, confirmed.assign(kind=kinds))
    reasons = result.reasons
    place = {int(row): i for i, row in enumerate(reasons.rows)}
    for row in (0, 1):
        kind = ("mule account", "stolen card")[row]
        assert reasons.texts()[place[row]][-1] == f"like 7 known rows of kind `{kind}`"
        assert len(reasons.texts()[place[row]]) == len(reasons.counting(place[row])) + 1
    frame = result.explain().drop_duplicates("row").set_index("row")
    assert {"known", "known_kind"} <= set(frame.columns)
    right = frame.loc[frame.index < 40, "known_kind"]
    assert len(right) >= 30
    assert (right.to_numpy() == np.where(right.index % 2 == 0, *sorted(set(kinds)))).mean() > 0.9
    others = frame.loc[(frame.index >= 40) & (frame.index < 60)]
    assert (others["known"] == 0).mean() > 0.5  # nothing that is known is like them
    columns = reasons.file_columns(0, len(X_test))
    assert columns["known"].to_pylist()[0] == 7
    assert columns["known_kind"].to_pylist()[:2] == ["mule account", "stolen card"]
    assert not any("like" in (text or "") for text in columns["reason_3"].to_pylist())
    plain = {row["row"]: row for row in reasons.to_dict(result.n_rejected)["rows"]}
    assert plain["0"]["known"] == {"n_rows": 7, "kind": "mule account", "n_of_kind": 7}


def test_without_kinds_and_without_known_novelties(few_trees):
    X_null, X_test, confirmed, _ = with_mules()
    plain = cn.AdaDetect().detect(X_null, X_test)
    assert "known" not in plain.explain().columns
    assert set(plain.reasons.file_columns(0, 240)) == {
        "reason_1",
        "reason_2",
        "reason_3",
        "pattern",
    }
    result = cn.AdaDetect().detect(X_null, X_test, confirmed)
    texts = [texts[-1] for texts in result.reasons.texts()]
    assert "like 7 known rows" in texts
    assert set(result.explain()["known_kind"]) == {""}
    patterns = [group.text for group in result.reasons.patterns()]
    assert patterns
    assert not any("known" in text for text in patterns)


def test_likeness_is_to_be_unusual_in_the_same_way():
    rng = np.random.default_rng(1)
    normals = rng.normal(size=(500, 3))
    model = cn.AdaDetect("logistic").keep(normals, normals + 3).fitted
    confirmed = np.array([[9.0, 0, 0], [3.0, 9, 0], [-9.0, 0, 0], [0.0, 9, 0]])
    known_rows = KnownRows(confirmed, ("a", "b", "b", ""))
    explainer = Explainer(model, normals, plain_views(range(3)), known_rows)
    rows = np.array([[7.0, 0, 0], [-5.0, 0, 0], [0.0, 7, 0], [0.0, 7, 7], [1.5, 0, 0]])
    columns = [[0], [0], [1], [1, 2], [0]]
    found = alike(explainer, known_rows, rows, explainer.how(rows), columns)
    assert list(map(str, found)) == [
        "like 2 known rows, 1 of them of kind `a`",
        "like 1 known row of kind `b`",
        "like 2 known rows, 1 of them of kind `b`",
        "",  # no known row is high in the last column
        "",  # rather high, as one in ten known normals is
    ]
    assert Reasons.of(replace(explainer, known_rows=None), Rows(rows), np.arange(5)).alike is None


def test_where_all_values_are_usual_no_single_column_stands_out():
    X_null, X_test = with_parity(np.random.default_rng(4))
    result = cn.AdaDetect(SCORERS["neighbours"]).detect(X_null, X_test)
    reasons = result.reasons
    novel = [i for i, row in enumerate(reasons.rows) if row >= 240]
    assert len(novel) > 30
    plain = [i for i in novel if not reasons.stands_out(i)]
    assert len(plain) > len(novel) / 2
    texts, patterns = reasons.texts(), reasons.patterns()
    for i in plain:
        (text,) = texts[i]
        assert text.startswith("no single column stands out")
        assert "in range" not in text
    distance = " times as far from a known normal as these from one another; most by column "
    assert sum(distance in texts[i][0] for i in plain) > 0.8 * len(plain)
    assert {p.text for p in patterns if set(plain) & set(p.members.tolist())} == {
        "no single column stands out"
    }
    written = reasons.to_dict(result.n_rejected)
    far = [row["far"] for row in written["rows"] if "far" in row]
    assert len(far) == sum(not reasons.stands_out(i) for i in range(len(reasons)))
    assert np.median(far) > 2


def test_distances_are_in_units_of_known_normals():
    rng = np.random.default_rng(0)
    normals = rng.normal(size=(1000, 4))
    explainer = Explainer(
        cn.AdaDetect(LINEAR).detect(normals, rng.normal(size=(50, 4))).explainer.model,
        normals,
        plain_views("abcd"),
    )
    far = explainer.explain(rng.normal(size=(400, 4))).far
    assert 0.85 < np.median(far) < 1.15
    assert explainer.explain(np.full((1, 4), 9.0)).far[0] > 2


def test_a_print_of_80_letters_shows_how_and_value():
    X_null, X_test, _ = shifted(np.random.default_rng(1))
    names = [f"a_longer_name_{j}" for j in range(8)]
    tables = pd.DataFrame(X_null, columns=names), pd.DataFrame(X_test, columns=names)
    for ids in (None, [f"row-{i}" for i in range(300)]):
        explained = cn.AdaDetect(LINEAR).detect(*tables, ids=ids).explain()
        with pd.option_context("display.width", 80):
            head = repr(explained).splitlines()[0].split()
        assert {"how", "value", "column"} <= set(head)


def test_a_sample_is_explained_where_reasons_say_little():
    X_null, X_test, _ = shifted(np.random.default_rng(1), n_test=2400, n_novel=2200, shift=9)
    result = cn.AdaDetect(LINEAR).detect(X_null, X_test)
    assert result.n_rejected > 1200
    assert len(result.most_novel_reasons()) == 1000
    assert len(result.most_novel_reasons(1100)) == 1100
    assert len(result.reasons) == result.n_rejected
