"""A kept detector with confidence: its own long-run rate, its guarantee, its file."""

from fractions import Fraction

import numpy as np
import pytest

import conovel as cn
from conovel.errors import LevelError, ResolutionWarning
from conovel.scorers.automatic import mahalanobis_distance
from conovel.stats.conditional import Conditional
from conovel.stats.ranks import conformal_ranks


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(5)
    null, past, today = (rng.normal(size=(n, 3)) for n in (1500, 300, 200))
    past[:30] += 4
    today[:20] += 4
    return null, past, today


def test_it_decides_by_conditional_p_values(samples):
    null, past, today = samples
    detector = cn.AdaDetect("logistic", train_fraction="1/5")
    kept, plain = detector.keep(null, past, confidence=0.95), detector.keep(null, past)
    assert np.array_equal(kept.calibration_scores, plain.calibration_scores)
    found = kept.detect(today)
    adjusted = Conditional(kept.n_calibration, Fraction(19, 20))
    expected = adjusted.step_up(
        conformal_ranks(kept.calibration_scores, kept.score(today)), kept.level
    )
    assert np.array_equal(found.rejected, expected.rejected[0])
    assert found.rejected[:20].all()
    assert found.n_rejected <= plain.detect(today).n_rejected
    columns = found.to_frame()
    values = columns["conditional_p_value"].to_numpy()
    assert np.array_equal(values, adjusted.p_values(found.ranks))
    assert (values > found.p_values).all()
    assert "adjusted_p_value" not in columns
    assert found.summary()["confidence"] == "19/20"
    assert "confidence" not in plain.detect(today).summary()
    assert found.resolution.fewest > plain.detect(today).resolution.fewest
    assert np.array_equal(kept.margins(today) < 0, values <= 0.1)
    assert kept.detect(today, level=0.3).n_rejected >= found.n_rejected


def test_the_guarantee_and_the_repr_say_how_detectors_differ(samples):
    null, past, today = samples
    plain = cn.AdaDetect("logistic").keep(null, past)
    rate = plain.long_run
    shown = f"90 % of such detectors flag a row by itself in {100 * rate.low:.2g} %"
    assert shown in repr(plain)
    statement = plain.detect(today).guarantee.statement
    assert "is an average over calibration samples" in statement
    assert f"Of detectors with {plain.n_calibration} calibration rows, 90 % flag" in statement
    kept = cn.AdaDetect("logistic").keep(null, past, confidence="0.95")
    assert "with probability 0.95 its own long-run rate is at most 0.1" in repr(kept)
    promise = kept.detect(today).guarantee
    assert "With probability 0.95 or more this detector has a calibration sample" in str(promise)
    assert "drawn independently" in str(promise)


def test_its_file_and_what_it_refuses(samples, tmp_path):
    null, past, today = samples
    detector = cn.AdaDetect("logistic")
    kept = detector.keep(null, past, confidence="0.95")
    again = cn.KeptDetector.from_bytes(kept.to_bytes())
    assert (again.confidence, again.digest) == (Fraction(19, 20), kept.digest)
    assert np.array_equal(again.detect(today).rejected, kept.detect(today).rejected)
    plain = detector.keep(null, past)
    assert kept.n_calibration > plain.n_calibration  # a rank counts for more
    assert plain.digest != kept.digest
    # A detector without what is new is written as before, so that ledgers know it.
    assert plain.to_bytes()[8:10] == b"\x01\x00"
    assert kept.to_bytes()[8:10] == b"\x02\x00"
    with pytest.raises(cn.InputError, match="leave the ledger out, or make a detector without"):
        kept.detect(today, ledger=tmp_path / "m.json")
    for wrong in (0, 1, "x"):
        with pytest.raises(LevelError, match="confidence"):
            detector.keep(null, past, confidence=wrong)
    few = detector.keep(null[:60], past, confidence=0.99)
    with pytest.warns(ResolutionWarning, match="leave the confidence out"):
        few.detect(today[:30])


def false_alarm_share(kept, rng, n_batches=300, m=40):
    """Return in which share of batches of normal rows a detector flags something."""
    scores = kept.fitted.score(rng.normal(size=(n_batches * m, 2)))
    ranks = conformal_ranks(kept.calibration_scores, scores).reshape(n_batches, m)
    if kept.conditional is not None:
        flags = [kept.conditional.step_up(batch, kept.level).n_rejected for batch in ranks]
    else:
        flags = [
            cn.benjamini_hochberg(batch, kept.n_calibration, kept.level).sum() for batch in ranks
        ]
    return np.mean(np.array(flags) > 0)


def test_the_rates_of_fitted_detectors():
    """Each has a calibration sample of its own: few with confidence are above the level."""
    rng, rates = np.random.default_rng(0), {None: [], "0.8": []}
    for _ in range(80):
        null = rng.normal(size=(500, 2))
        for confidence, shares in rates.items():
            detector = cn.AdaDetect(mahalanobis_distance(), level=0.2, train_fraction="1/5")
            kept = detector.keep(null, confidence=confidence)
            shares.append(false_alarm_share(kept, rng))
    above = {confidence: np.mean(np.array(shares) > 0.2) for confidence, shares in rates.items()}
    assert above["0.8"] <= 0.2 + 3 * np.sqrt(0.2 * 0.8 / 80)
    assert above[None] > 0.3
    assert abs(np.mean(rates[None]) - 0.2) < 3 * np.std(rates[None]) / np.sqrt(80)
