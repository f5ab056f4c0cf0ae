"""Findings of a detection: what is told, and that no decision depends on them."""

import numpy as np
import pandas as pd
import pytest

import conovel as cn
from conovel.site.checks.rows import column_finding, share_finding
from conovel.spec.findings import KINDS

RNG = np.random.default_rng(5)


def drifting(n=800, m=300):
    rows = RNG.normal(size=(n + m, 3))
    rows[:, 1] += np.arange(n + m) / 250
    return rows[:n], rows[n:]


def test_drift_is_found_and_told_before_the_score_is_learnt():
    told = []
    null, test = drifting()
    result = cn.AdaDetect("logistic").detect(
        null, test, on_stage=told.append, on_finding=lambda finding: told.append(str(finding))
    )
    drift = next(one for one in result.warnings if one.kind == "drift")
    assert drift.columns == ("1",)
    assert drift.numbers["p_value"] <= 0.01
    note = next(i for i, text in enumerate(told) if text.startswith("column 1 changes"))
    assert note < told.index("fitting the score model")
    assert result.headline.startswith("The known normals are not like today's rows: column 1")
    assert "the 10 % promise presumes they are" in result.headline


@pytest.mark.parametrize("repeats", [1, 2])
def test_no_decision_depends_on_the_checks(repeats):
    null, test = drifting()
    detector = cn.AdaDetect("logistic", repeats=repeats)
    checked, plain = detector.detect(null, test), detector.detect(null, test, check=False)
    assert checked.warnings
    assert plain.warnings == ()
    for field in ("rejected", "ranks", "scores"):
        assert np.array_equal(getattr(checked, field), getattr(plain, field))
    shuffled = RNG.permutation(len(null))
    assert not any(one.kind == "drift" for one in detector.detect(null[shuffled], test).warnings)


def test_findings_are_in_the_summary_and_the_headline_is_plain_without():
    null, test = RNG.normal(size=(500, 2)), RNG.normal(size=(100, 2))
    test[:10] += 6
    result = cn.AdaDetect("logistic").detect(null, test)
    assert result.warnings == ()
    assert result.summary()["warnings"] == []
    assert "on average at most 10 % of the flagged rows are false alarms" in result.headline
    assert "note" not in result.headline


def test_duplicate_ids_and_shared_rows():
    null, test = RNG.normal(size=(300, 2)), RNG.normal(size=(50, 2))
    test[:5] = null[:5]
    with pytest.warns(cn.errors.DataWarning, match="also stand in X_null"):
        result = cn.AdaDetect("logistic").detect(null, test, ids=["a", "a", *range(48)])
    found = {one.kind: one for one in result.warnings}
    assert found["duplicate_ids"].message == "1 id names more than one test row: 'a'"
    assert found["shared_rows"].numbers == {"n_shared": 5}


def test_thin_calibration_of_one_site_says_what_it_takes():
    null, test = RNG.normal(size=(60, 2)), RNG.normal(size=(200, 2))
    result = cn.AdaDetect("logistic", train_fraction=0.5).detect(null, test)
    (thin,) = result.warnings
    assert thin.message == (
        "with 30 calibration rows, no row can be flagged unless at least 65 of the 200 rows are"
        " flagged at once"
    )
    assert thin.numbers["fewest"] == result.resolution.fewest
    assert not thin.breaks_promise
    assert "rows flagged" in result.headline


def test_an_implausible_outcome():
    assert share_finding(100, 40, 50) is None
    assert share_finding(100, 51, 10).numbers["share_flagged"] == 0.51
    assert "0 of 100 rows are flagged" in share_finding(100, 0, 80).message
    null, test = np.zeros((50, 2)), np.zeros((100, 2))
    test[:40, 1] = 9
    flagged = test[:, 1] > 0
    assert column_finding(null, test, flagged, ["a", "b"]).columns == ("b",)
    assert column_finding(null, test[:, ::-1], np.roll(flagged, 60), ["b", "a"]) is None


def test_an_id_explains_flags_once():
    rows = pd.DataFrame(RNG.normal(size=(900, 2)), columns=["x", "y"]).assign(no=range(900))
    result = cn.AdaDetect("random-forest").detect(rows[:600], rows[600:])
    assert [one.kind for one in result.warnings] == ["id", "most_flagged"]
    assert "--id 'no'" in result.warnings[0].fix


def mixed(n, m):
    rows = pd.DataFrame(RNG.normal(size=(n + m, 2)), columns=["x", "y"])
    rows["size"] = RNG.choice(["S", "M", "L"], n + m)
    rows.loc[RNG.random(n + m) < 0.1, "x"] = np.nan
    return rows


def test_columns_of_other_kinds_are_named_as_the_user_knows_them():
    rows = mixed(600, 200)
    label = np.where(np.arange(800) >= 780, "attack", "benign")
    rows.loc[780:, "y"] += 8
    labelled = rows.assign(label=label)
    found = cn.AdaDetect("random-forest").detect(labelled[:600], labelled[600:])
    assert [(one.kind, one.columns) for one in found.warnings] == [("label", ("label",))]
    assert "--exclude 'label'" in found.warnings[0].fix
    same = rows.assign(site="here", none=3)
    with pytest.warns(cn.errors.DataWarning, match="never changes"):
        found = cn.AdaDetect("random-forest").detect(same[:600], same[600:])
    assert {(one.kind, one.columns) for one in found.warnings} == {
        ("constant", ("site",)),
        ("constant", ("none",)),
    }


def test_drift_of_a_category_and_of_missing_values():
    rows = mixed(900, 300)
    late = np.arange(1200) > 600
    rows.loc[late & (RNG.random(1200) < 0.7), "size"] = "L"
    found = cn.AdaDetect("random-forest").detect(rows[:900], rows[900:])
    drift = next(one for one in found.warnings if one.kind == "drift")
    assert drift.columns == ("size",)
    assert cn.check(rows[:900], scorer="random-forest").columns[0].column.startswith("size=")


def test_in_a_network_with_a_schema():
    rows = [mixed(300, 100) for _ in range(2)]
    rows[1]["y"] += np.arange(400) / 80
    agents = [cn.Agent(n, r[:300], r[300:]) for n, r in zip("ab", rows, strict=True)]
    schema = cn.infer_schema(rows[0])
    run = cn.Network(agents, regime="counts", scorer="logistic", schema=schema).run()
    assert {(one.agent, one.kind, one.columns) for one in run.warnings} >= {("b", "drift", ("y",))}
    assert not any(one.agent == "a" for one in run.warnings)


def test_a_kept_detector_looks_at_the_outcome():
    null, test = RNG.normal(size=(400, 2)), RNG.normal(4, 1, size=(60, 2))
    kept = cn.AdaDetect("logistic").keep(null, RNG.normal(2, 2, size=(100, 2)))
    result = kept.detect(test, ids=["a"] * 60)
    assert [one.kind for one in result.warnings] == ["duplicate_ids", "most_flagged"]
    assert kept.detect(test, check=False).warnings == ()


def test_exchangeable_rows_seldom_give_findings():
    found = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = np.column_stack(
            [rng.normal(size=600), rng.integers(0, 3, 600), rng.poisson(1, 600)]
        )
        rows[580:] += 3
        found += bool(cn.AdaDetect("logistic").detect(rows[:400], rows[400:]).warnings)
    assert found <= 4  # 5 % is promised


def test_findings_print_their_fix():
    finding = cn.Finding("drift", "column 'a' changes", "leave it out", ("a",), "north")
    assert str(finding) == "north: column 'a' changes. What to do: leave it out."
    assert finding.breaks_promise
    assert set(KINDS) > {"drift", "thin_calibration"}
