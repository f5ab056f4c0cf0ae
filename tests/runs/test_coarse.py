"""Where nothing is flagged, results say how few rows could have been, and what would help."""

import numpy as np
import pandas as pd
import pytest

import conovel as cn
from conovel.experiments.evaluation import evaluate
from conovel.report import of_network
from conovel.runs.file_detection import detect_files

WORDS = "with 63 calibration rows, no row can be flagged unless at least 8 of the 50 rows are"
MANY = "with 30 calibration rows, no row can be flagged unless at least 65 of the 200 rows are"


def rows(n, m, seed=0, d=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(m, d))


def detect(n=126, m=50, **settings):
    return cn.AdaDetect("logistic", train_fraction=0.5, **settings).detect(*rows(n, m))


def test_after_a_run_that_flags_nothing():
    result = detect()
    assert result.n_rejected == 0
    (few,) = result.warnings
    assert few.message == f"{WORDS} flagged at once"
    assert few.message in result.headline
    assert few.message == result.summary()["resolution"]
    for help_ in ("199 calibration rows", "a higher level", "at most 6 rows", "train_fraction=0"):
        assert help_ in few.fix
    assert "a certificate" in few.fix
    assert not few.breaks_promise


def test_what_is_advised_is_true():
    assert cn.resolution(63, 6, 0.1).fewest == 1
    assert cn.resolution(63, 7, 0.1).fewest == 2
    assert cn.resolution(199, 200, 0.1).fewest == 10  # 5 % of the rows


def test_nothing_is_said_where_rows_are_flagged_or_calibration_rows_are_many():
    null, test = rows(126, 50)
    test[30:] += 9
    flagged = cn.AdaDetect("logistic", train_fraction=0.5).detect(null, test)
    assert flagged.n_rejected >= 8
    assert "thin_calibration" not in {one.kind for one in flagged.warnings}
    assert "at once" not in flagged.headline
    many = detect(600, 50)
    assert many.n_rejected == 0
    assert many.warnings == ()
    assert many.summary()["resolution"] == (
        "with 300 calibration rows, no row can be flagged unless at least 2 of the 50 rows are"
        " flagged at once"
    )
    assert "at once" not in detect(pi0="storey").headline  # an estimate can make up for few rows


def test_before_a_run_with_many_tests():
    told = []
    null, test = rows(60, 200)
    cn.AdaDetect("logistic", train_fraction=0.5).detect(
        null, test, on_stage=told.append, on_finding=lambda one: told.append(one.message)
    )
    (note,) = (i for i, text in enumerate(told) if text == f"{MANY} flagged at once")
    assert note < told.index("fitting the score model")


@pytest.mark.parametrize("name", ["null.csv", "null.parquet"])
def test_files_in_pieces_say_the_same(tmp_path, name):
    suffix = name.partition(".")[2]
    for part, values in zip(("null", "test"), rows(126, 50), strict=True):
        frame = pd.DataFrame(values, columns=["a", "b"])
        path = tmp_path / f"{part}.{suffix}"
        frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    detector = cn.AdaDetect("logistic", train_fraction=0.5)
    files = tmp_path / f"null.{suffix}", tmp_path / f"test.{suffix}"
    result = detect_files(detector, *files, tmp_path / "out.csv")
    assert result.n_rejected == 0
    (few,) = result.warnings
    assert few.message == f"{WORDS} flagged at once" == result.summary()["resolution"]
    assert few.message in result.headline
    assert f"{WORDS} flagged at once" in result.report(tmp_path / "page.html").read_text()


def test_a_kept_detector_says_the_same():
    null, test = rows(126, 50)
    kept = cn.AdaDetect("logistic", train_fraction=0.5).keep(null, test)
    result = kept.detect(rows(2, 50, seed=1)[1])
    assert result.n_rejected == 0
    assert WORDS in result.headline


def test_what_is_done_already_is_not_advised():
    with_all = cn.AdaDetect("knn", train_fraction=0).detect(*rows(40, 50))
    assert with_all.n_train == with_all.n_rejected == 0
    (few,) = (one for one in with_all.warnings if one.kind == "thin_calibration")
    assert "train_fraction" not in few.fix
    with pytest.warns(cn.errors.ResolutionWarning) as caught:
        cn.AdaDetect("knn", train_fraction=0).detect(*rows(8, 50))
    assert "train_fraction" not in str(caught[0].message)


def test_the_page_of_a_detection_says_it(tmp_path):
    page = detect().report(tmp_path / "page.html").read_text()
    assert f"{WORDS} flagged at once" in page


def test_an_evaluation_explains_power_0():
    values = np.concatenate(rows(126, 50))
    is_novel, told = np.arange(176) % 25 == 0, []
    settings = {"trials": 2, "scorer": "logistic", "train_fraction": 0.5}
    found = evaluate(values, is_novel, **settings, on_finding=told.append)
    assert found.power == 0
    (few,) = (one for one in found.warnings if one.kind == "thin_calibration")
    assert few.message in found.headline
    assert "flagged at once" in few.message
    assert found.to_dict()["warnings"][0]["message"] == few.message
    assert told == []
    evaluate(values, is_novel, **settings, test_share=0.6, on_finding=told.append)
    assert [one.kind for one in told] == ["thin_calibration"]  # told once, before the first trial


def network(regime, sizes=((90, 40), (80, 40), (8, 40))):
    agents = [
        cn.Agent(name, *rows(*size, seed=seed))
        for seed, (name, size) in enumerate(zip(("basel", "bern", "uri"), sizes, strict=True))
    ]
    return cn.Network(agents, regime=regime, scorer="logistic").run()


@pytest.mark.parametrize("regime", ["joint", "counts", "isolated", "together"])
@pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")
def test_terminal_and_page_tell_the_resolution_of_an_agent_alike(regime, tmp_path):
    run = network(regime)
    drawn = of_network(run)["sites"]
    few = {one.agent: one for one in run.warnings if one.kind == "thin_calibration"}
    assert few
    for name, finding in few.items():
        fewest, m = finding.numbers["fewest"], finding.numbers["n_tests"]
        assert drawn[name]["fewest"] == (fewest if fewest <= m else 0)
        nobody = "can be flagged at level" in finding.message
        assert nobody == (drawn[name]["fewest"] == 0)
    if any(site["fewest"] == 0 for site in drawn.values()):
        assert "no row could be" in run.report(tmp_path / "page.html").read_text()


def test_a_network_that_flags_nothing_names_its_best_agent_once():
    run = network("counts", ((700, 30), (600, 30), (500, 30)))
    assert run.n_rejected == 0
    assert not [one for one in run.warnings if one.kind == "thin_calibration"]  # few would do
    run = network("counts", ((140, 30), (120, 30), (130, 30)))
    assert run.n_rejected == 0
    (few,) = (one for one in run.warnings if one.kind == "thin_calibration")
    assert few.agent == "basel"
    assert few.message in run.headline
