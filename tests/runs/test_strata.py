"""Results with strata: what is tested, what is said, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
from support.strata_rows import BRANCHES, frame

import conovel as cn
from conovel.errors import ColumnError, InputError, PrivacyError, SampleError
from conovel.protocol.replay import verify
from conovel.rows.pairs import read_pair
from conovel.rows.strata import find_strata
from conovel.runs.file_detection import detect_files
from conovel.site.checks.rows import CheckedRows
from conovel.site.strata import matched

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


@pytest.fixture(scope="module")
def samples():
    test = frame(1, 320, [0.2, 0.3, 0.5], far=5)
    test.loc[300:, "branch"] = "new"
    return frame(0, 1500, [0.6, 0.25, 0.15]), test


@pytest.fixture(scope="module")
def result(samples):
    return cn.AdaDetect("logistic", strata="branch").detect(*samples, ids=np.arange(320))


def test_rows_without_known_normals_are_not_tested_and_named(result):
    new = np.arange(320) >= 300
    assert np.array_equal(result.tested, ~new)
    assert not result.rejected[new].any()
    assert np.isnan(result.scores[new]).all()
    assert np.isnan(result.p_values[new]).all()
    [finding] = [one for one in result.warnings if one.kind == "untested_strata"]
    assert "20 rows" in finding.message
    assert "'new'" in finding.message


def test_tables_by_stratum_add_up(result):
    table = result.by_stratum()
    assert table["n_rejected"].sum() == result.n_rejected > 20
    assert table["n_test"].sum() == 320
    assert table["n_calibration"].sum() == result.n_calibration == result.calibration_scores.size
    assert table["n_train"].sum() == result.n_train
    assert dict(zip(table["stratum"], table["tested"], strict=True))["new"] == np.False_
    assert result.to_frame()["stratum"].tolist()[300:] == ["new"] * 20
    assert "branch" in result.guarantee.statement


def test_p_values_are_among_the_calibration_rows_of_the_own_stratum(result):
    table = result.by_stratum().set_index("stratum")
    stratum = result.to_frame()["stratum"].to_numpy()
    for name in BRANCHES:
        size = int(table.loc[name, "n_calibration"])
        own = result.p_values[stratum == name] * (size + 1)
        assert np.allclose(own, np.rint(own))
        assert own.min() >= 1
        assert own.max() <= size + 1


def test_checks_compare_rows_with_the_same_shares_of_strata():
    parts = [frame(j, 300, p) for j, p in enumerate(([0.9, 0.1, 0], [0, 0.1, 0.9]))]
    null, test = read_pair(pd.concat(parts), frame(5, 300, [0.3, 0.1, 0.6]))
    strata = find_strata(null, test, ["branch"])
    checked = CheckedRows.of(null, test)
    compared = matched(checked, strata)
    shares = [
        np.bincount(strata.of_rows(rows), minlength=3) / len(rows)
        for rows in (compared.null, compared.test, checked.null)
    ]
    assert np.abs(shares[0] - shares[1]).max() < 0.02
    assert np.abs(shares[2] - shares[1]).max() > 0.05
    halves = np.array_split(strata.of_rows(compared.null), 2)
    first, second = (np.bincount(half, minlength=3) for half in halves)
    assert np.abs(first - second).max() <= 3  # in the order of the rows they change
    assert matched(checked, strata).null.shape[1] == checked.null.shape[1]


def test_a_certificate_is_about_the_rows_of_all_strata(result):
    certificate = result.certificate(0.9)
    assert 0 < certificate.min_novelties <= 40
    assert certificate.max_false <= result.n_rejected
    assert certificate.n_test == 300


def test_confidence_and_repeats(samples):
    certified = cn.AdaDetect("logistic", strata="branch", confidence=0.8).detect(*samples)
    assert "probability" in certified.guarantee.statement
    repeated = cn.AdaDetect("logistic", strata="branch", repeats=3).detect(*samples)
    assert repeated.repeats == 3
    assert not repeated.rejected[300:].any()


def test_results_are_verified_and_wrong_ones_are_not(result):
    content = json.loads(json.dumps({"command": "detect", **result.summary()}))
    assert verify(content) == []
    assert verify(content | {"n_rejected": content["n_rejected"] + 1})
    for change in ({"n_rejected": 10**6}, {"n_train": 1}, {"n_calibration": -1}):
        other = json.loads(json.dumps(content))
        other["strata"]["strata"][0] |= change
        assert verify(other)
    rows = {"ranks": result.ranks.tolist(), "rejected": result.rejected.tolist()}
    assert verify(content | rows) == []
    assert verify(content | rows | {"rejected": [True] * 320})


def test_files_give_the_same_decisions(samples, result, tmp_path):
    paths = [tmp_path / name for name in ("null.parquet", "test.parquet")]
    for one, path in zip(samples, paths, strict=True):
        one.to_parquet(path)
    detector = cn.AdaDetect("logistic", strata="branch")
    files = detect_files(detector, *paths, tmp_path / "out.parquet", memory="800MB")
    written = pd.read_parquet(files.out)
    assert np.array_equal(written["rejected"], result.rejected)
    assert np.array_equal(written["rank"], result.ranks)
    assert written["stratum"].tolist() == result.to_frame()["stratum"].tolist()
    assert files.summary()["strata"] == result.summary()["strata"]
    assert files.n_train == result.n_train
    with pytest.raises(InputError, match="strata"):
        files.certificate()


@pytest.mark.parametrize(
    "options",
    [{"pi0": "storey"}, {"ties": "random"}, {"train_fraction": 0}],
)
def test_what_is_not_proven_at_one_site_is_refused(samples, options):
    with pytest.raises(InputError, match=f"strata and {next(iter(options))}"):
        cn.AdaDetect("logistic", strata="branch", **options).detect(*samples)


def test_verdicts_are_refused_and_a_confidence_of_a_kept_detector(samples, tmp_path):
    detector = cn.AdaDetect("logistic", strata="branch")
    with pytest.raises(InputError, match="strata and verdicts"):
        detector.detect(*samples, verdicts=tmp_path / "file.json")
    with pytest.raises(InputError, match="strata and confidence"):
        detector.keep(samples[0], samples[1][:300], confidence=0.9)


def agents(samples):
    null, test = (one.drop(columns="branch").assign(s=one["branch"] == "east") for one in samples)
    halves = ((one.iloc[j::2].astype(float) for one in (null, test)) for j in (0, 1))
    return [cn.Agent(name, *pair) for name, pair in zip("ab", halves, strict=True)]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"regime": "full"}, InputError),
        ({"regime": "counts"}, InputError),
        ({"regime": "isolated"}, InputError),
        ({"regime": "consensus"}, InputError),
        ({"regime": "pooled"}, InputError),
        ({"regime": "split"}, InputError),
        ({"regime": "joint", "liars": 1}, InputError),
        ({"counting": "committed"}, InputError),
        ({"regime": "joint", "privacy": "3"}, PrivacyError),
    ],
)
def test_what_is_not_proven_in_a_network_is_refused(samples, options, error):
    with pytest.raises(error, match=r"strata|liars|privacy"):
        cn.Network(agents(samples), strata="s", **options).spec()


@pytest.mark.parametrize("masks", [False, True])
def test_a_network_is_verified_and_has_a_certificate(samples, masks):
    run = cn.Network(agents(samples), strata="s", masks=masks).run()
    assert run.n_rejected > 20
    content = json.loads(json.dumps(run.to_dict()))
    assert verify(content) == []
    content["decisions"]["a"]["rejected"][0] ^= True
    assert verify(content)
    assert run.certificate(0.9).min_novelties > 0
    with pytest.raises(InputError, match="the run has one"):
        run["a"].certificate()
    assert "within each stratum (s)" in str(run.guarantee)
    assert run["a"].by_stratum()["n_rejected"].sum() == run["a"].n_rejected


def test_no_common_stratum_is_named(samples):
    null, test = samples
    with pytest.raises(SampleError, match="no stratum of 'branch'"):
        cn.AdaDetect("logistic", strata="branch").detect(
            null[null["branch"] == "north"], test[test["branch"] == "east"]
        )


def test_a_schema_that_does_not_keep_strata_apart_is_named_before_a_run(samples):
    null = samples[0]
    for kind, message in (
        ("ignore", "ignored by the schema"),
        ({"kind": "category", "buckets": 4}, "put into buckets"),
    ):
        schema = cn.infer_schema(null, kinds={"branch": kind})
        with pytest.raises(ColumnError, match=message):
            cn.Network(agents(samples), strata="branch", schema=schema).spec()
    with pytest.raises(ColumnError, match="not in the schema"):
        cn.Network(agents(samples), strata="town", schema=cn.infer_schema(null)).spec()


def test_levels_that_a_schema_puts_together_are_named(samples):
    null, test = samples
    few = null.assign(branch=null["branch"].where(null.index != 3, "islands"))
    schema = cn.infer_schema(
        few,
        test,
        kinds={
            "branch": {
                "kind": "category",
                "levels": ["north", "south"],
                "rare": ["east", "islands"],
            }
        },
    )
    detector = cn.AdaDetect("logistic", strata="branch", schema=schema)
    [finding] = [w for w in detector.detect(few, test).warnings if w.kind == "untested_strata"]
    assert "rare ('east', 'islands'), or unknown to the schema" in finding.message
