"""Counts of ranks give what the ranks give."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from conovel.stats.ranks import adjusted_pvalues
from conovel.stats.stepup import RankHistogram


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40))
def test_a_histogram_gives_what_the_ranks_give(ranks):
    ranks = np.array(ranks)
    histogram = RankHistogram.of_counts(np.bincount(ranks, minlength=13), 11)
    assert [histogram.at_most(r) for r in range(14)] == [(ranks <= r).sum() for r in range(14)]
    assert histogram.smallest(np.arange(1, ranks.size + 1)).tolist() == sorted(ranks)
    values, adjusted = histogram.adjusted()
    assert np.array_equal(adjusted[np.searchsorted(values, ranks)], adjusted_pvalues(ranks, 11))
