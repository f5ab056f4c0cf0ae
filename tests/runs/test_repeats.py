"""One site with `repeats`: what is averaged, what is decided, and what the result shows."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from support.evidence import rejection_evidence

import conovel as cn
from conovel.errors import InputError, ResolutionWarning
from conovel.protocol.replay import verify
from conovel.runs.file_detection import detect_files
from conovel.spec.run_spec import repeat_seeds
from conovel.stats.evidence import Evidence, averaged, closed_e_bh

RNG = np.random.default_rng(3)
NULL, TEST = RNG.normal(size=(600, 3)), RNG.normal(size=(80, 3))
TEST[:20] += 3.5


def detect(**settings):
    return cn.AdaDetect(**{"scorer": "logistic", "level": 0.2} | settings).detect(NULL, TEST)


def test_one_run_is_what_it_was():
    once, default = detect(repeats=1), detect()
    assert np.array_equal(once.scores, default.scores)
    assert once.repeats == 1
    assert once.repeated is None
    assert np.array_equal(once.times_flagged, once.rejected)
    assert list(once.columns()) == ["score", "rank", "p_value", "adjusted_p_value", "rejected"]
    assert "repeats" not in once.summary()


@pytest.mark.parametrize(("n_null", "level"), [(299, "3/25"), (300, "1/10")])
def test_the_decision_is_closed_e_bh_on_runs_that_can_be_made_one_by_one(n_null, level):
    def run(**settings):
        return cn.AdaDetect("logistic", **settings).detect(NULL[:n_null], TEST)

    found = run(repeats=4, random_state=8, level=0.2)
    runs = [run(level=level, random_state=seed) for seed in repeat_seeds(8, 4)]
    assert found.repeated.run_level == runs[0].level
    assert verify({"command": "detect", **found.summary()}) == []
    assert np.array_equal(found.repeated.flags, [run.rejected for run in runs])
    values = [Fraction(run.n_calibration + 1, run.stepup.limits[0]) for run in runs]
    evidence = averaged(
        [
            Evidence((Fraction(0), value), run.rejected.astype(np.int64))
            for value, run in zip(values, runs, strict=True)
        ]
    )
    assert found.repeated.evidence.to_list() == evidence.to_list()
    assert np.array_equal(found.rejected, closed_e_bh(evidence, 0.2))
    assert found.n_rejected > 0
    assert found.resolution.fewest == 1
    assert "closed e-BH" in found.guarantee.statement


@pytest.mark.parametrize("pi0", ["storey", "quantile"])
def test_with_an_estimate_e_bh_decides_on_runs_that_can_be_made_one_by_one(pi0):
    found = detect(repeats=4, random_state=8, pi0=pi0)
    seeds = repeat_seeds(8, 4)
    runs = [detect(level="2/25", random_state=seed, pi0=pi0) for seed in seeds]
    assert found.repeated.seeds == tuple(seeds)
    assert np.array_equal(found.repeated.flags, [run.rejected for run in runs])
    assert found.repeated.n_rejected == tuple(run.n_rejected for run in runs)
    evidence = averaged([rejection_evidence(run.rejected, "2/25") for run in runs])
    assert found.repeated.evidence.to_list() == evidence.to_list()
    assert np.array_equal(found.rejected, cn.e_bh(evidence, 0.2))
    assert found.n_rejected == found.rejected.sum() > 0
    assert found.level == cn.Storey("1/5").at
    assert np.array_equal(found.scores, runs[0].scores)


def test_the_columns_hold_what_decided_and_nothing_of_one_run():
    found = detect(repeats=3)
    columns = found.columns()
    assert list(columns) == ["times_flagged", "flagged_in_runs", "e_value", "rejected"]
    assert columns["flagged_in_runs"][0] in {"FFF", "FF.", "F.F", ".FF"}
    assert columns["e_value"][found.rejected].min() > columns["e_value"][~found.rejected].max()
    assert set(found.summary()["repeats"]) == {"level", "seeds", "n_rejected"}
    assert "3 runs" in found.guarantee.statement
    assert "at most 0.2." in found.guarantee.statement


def test_the_same_seed_gives_the_same_and_a_generator_another():
    first, again = detect(repeats=3, random_state=5), detect(repeats=3, random_state=5)
    assert np.array_equal(first.repeated.flags, again.repeated.flags)
    state = np.random.default_rng(0)
    drawn = [detect(repeats=2, random_state=state).repeated.seeds for _ in range(2)]
    assert drawn[0] != drawn[1]


def test_predict_and_clone_know_it():
    detector = cn.AdaDetect("logistic", level=0.2, repeats=3)
    assert np.array_equal(
        detector.fit(NULL).predict(TEST) == -1, detector.detect(NULL, TEST).rejected
    )
    assert detector.get_params()["repeats"] == 3


def test_one_warning_for_all_runs_and_stages_name_the_run():
    stages = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        detector = cn.AdaDetect("logistic", level=0.1, repeats=3)
        detector.detect(NULL[:30], TEST, on_stage=stages.append)
    assert [w.category for w in caught] == [ResolutionWarning]
    assert "run 3 of 3: deciding" in stages


@pytest.mark.parametrize("repeats", [0, 101, 2.0, "3", None, True])
def test_bad_numbers_are_refused(repeats):
    with pytest.raises(InputError, match="repeats must be a whole number from 1 to 100"):
        detect(repeats=repeats)


def test_files_in_pieces_are_refused_with_what_to_do(tmp_path):
    detector = cn.AdaDetect("logistic", repeats=2)
    with pytest.raises(InputError, match="repeats is for rows in memory"):
        detect_files(detector, tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "out.csv")
