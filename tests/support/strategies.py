"""Hypothesis strategies for ranks, levels and scores, heavy on the cases that hurt.

Two places break a step-up: points where a p-value equals its threshold exactly, and ties
between scores. Both are drawn here by construction rather than left to luck.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

# Levels as a user types them: floats of two decimals, which are fractions of 100.
float_levels = st.integers(1, 99).map(lambda percent: percent / 100)
levels = float_levels | st.fractions(Fraction(1, 50), Fraction(49, 50), max_denominator=50)


class Problem(NamedTuple):
    """Ranks with one calibration size per test, and a level."""

    ranks: np.ndarray
    sizes: np.ndarray
    level: Fraction


@st.composite
def problems(draw, max_tests=12, one_size=False):
    """Ranks on, just below and just above the thresholds αk(ℓ+1)/m, on grids that meet them."""
    m = draw(st.integers(1, max_tests))
    level = Fraction(str(draw(levels)))
    # With ℓ + 1 a multiple of the denominator of α/m every threshold is a grid point.
    meeting = st.integers(1, 3).map(lambda c: c * (level / m).denominator - 1)
    size = meeting.filter(lambda n: 1 <= n < 10_000) | st.integers(1, 60)
    common = draw(st.lists(size, min_size=1, max_size=1 if one_size else 3))
    sizes = draw(st.lists(st.sampled_from(common), min_size=m, max_size=m))
    ranks = []
    for n in sizes:
        threshold = level * draw(st.integers(1, m)) * (n + 1) / m
        near = int(threshold) + draw(st.sampled_from([-1, 0, 0, 1]))
        anywhere = st.integers(1, n + 1)
        ranks.append(min(max(near, 1), n + 1) if draw(st.integers(0, 3)) else draw(anywhere))
    return Problem(np.array(ranks), np.array(sizes), level)


@st.composite
def blocks_of(draw, problem, max_extra=3):
    """Partition the tests of a problem into blocks of one calibration size, some empty."""
    groups = {}
    for i, size in enumerate(problem.sizes):
        groups.setdefault((draw(st.integers(0, 2)), int(size)), []).append(i)
    members = [(size, rows) for (_, size), rows in groups.items()]
    members += [(n, []) for n in draw(st.lists(st.integers(1, 500), max_size=max_extra))]
    return draw(st.permutations(members))


# Scores of every awkward kind. Calibration and test scores come from one strategy, so that
# ties between the two samples are common.
few_values = st.integers(0, 4).map(float)
binary = st.sampled_from([0.0, 1.0])
ordinary = st.floats(-10, 10)
anything = st.floats(allow_nan=False)
edges = st.sampled_from(
    [-np.inf, -1.7e308, -1.0, -5e-324, 0.0, 5e-324, 1e-310, 1.0, 1.7e308, np.inf]
)
big_integers = st.integers(2**62, 2**62 + 6)
small_integers = st.integers(-3, 3)


def samples(element, max_size=40):
    """A pair of samples, calibration and test, of the same kind of score."""
    sample = st.lists(element, min_size=1, max_size=max_size)
    return st.tuples(sample, sample)


score_samples = st.one_of(
    [
        samples(element)
        for element in (
            few_values,
            binary,
            ordinary,
            anything,
            edges,
            big_integers,
            small_integers,
        )
    ]
)

# Rows of two columns that repeat often.
coarse_rows = arrays(
    np.float64,
    st.tuples(st.integers(2, 60), st.just(2)),
    elements=st.sampled_from([0.0, 1.0, 2.5]),
)
