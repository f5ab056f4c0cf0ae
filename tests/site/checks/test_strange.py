"""A finding where known normals lie apart from others that look Gaussian, and none elsewhere."""

import numpy as np
import pytest

import conovel as cn
from conovel.scorers.automatic import mahalanobis_distance
from conovel.site.checks.rows import strange_finding


def rows(seed, share=0.0, n=1500, width=8):
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(n, width)) @ rng.normal(size=(width, width))
    n_novel = round(share * n)
    drawn[:n_novel] += 3 * drawn.std(axis=0) * np.sign(rng.normal(size=width))
    return drawn


@pytest.mark.parametrize("share", [0.03, 0.05])
def test_a_few_percent_of_novelties_are_seen_and_counted(share):
    seen = [strange_finding(rows(seed, share), 1500) for seed in range(5)]
    shares = [finding.numbers["share"] for finding in seen if finding is not None]
    assert len(shares) >= 4
    assert np.mean(shares) == pytest.approx(share, abs=0.01)
    assert "conovel clean" in seen[0].fix
    assert not seen[0].breaks_promise


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.normal(size=(1500, 8)),
        lambda rng: rng.standard_t(3, size=(1500, 8)),
        lambda rng: rng.laplace(size=(1500, 8)),
        lambda rng: rng.exponential(size=(1500, 8)),
        lambda rng: rng.integers(0, 5, size=(1500, 8)).astype(float),
        lambda rng: rng.normal(size=(1500, 8)) / rng.random(size=(1500, 1)),
        lambda rng: np.ones((1500, 8)),
        lambda rng: rng.standard_t(5, size=(1500, 1)),
        lambda rng: np.exp(rng.normal(4, 0.5, size=(1500, 2))),
        lambda rng: np.c_[rng.gamma(4, size=1500), rng.normal(size=1500)],
        lambda rng: rng.normal(size=(100, 2)) * np.r_[np.ones(95), np.full(5, 9)][:, None],
    ],
)
def test_nothing_is_said_of_clean_rows_and_other_shapes(draw):
    n_seen = 0
    for seed in range(5):
        drawn = draw(np.random.default_rng(seed))
        n_seen += strange_finding(drawn, len(drawn)) is not None
    assert n_seen == 0


def test_a_detection_says_it_and_decides_as_without_it():
    X_null, X_test = rows(0, 0.04), rows(0, 0.1, n=300)
    detector = cn.AdaDetect(mahalanobis_distance())
    result = detector.detect(X_null, X_test)
    assert "strange_normals" in [finding.kind for finding in result.warnings]
    unchecked = detector.detect(X_null, X_test, check=False)
    assert np.array_equal(result.ranks, unchecked.ranks)
    clean = rows(1)
    quiet = detector.detect(clean[:1200], clean[1200:])
    assert "strange_normals" not in [finding.kind for finding in quiet.warnings]
