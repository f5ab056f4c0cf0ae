"""What is drawn from rows that are kept in a folder is what a sample in memory holds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import coarse_rows

from conovel.scorers.base import Mixture
from conovel.scorers.content import content_hash
from conovel.site.blocks import training_sample
from conovel.site.stored_blocks import Chosen, RowCounter, draw_sample


class Held:
    """Rows in memory that give their hashes chunk by chunk."""

    def __init__(self, rows, size):
        self.rows, self.size = rows, size

    def hashes(self):
        for start in range(0, len(self.rows), self.size):
            yield start, content_hash(self.rows[start : start + self.size])

    def take(self, places):
        return self.rows[places]


@given(coarse_rows, coarse_rows, st.integers(1, 80), st.integers(1, 70), st.integers(4, 20))
def test_drawing_by_chunks_is_sampling_in_memory(null, test, most, size, cell_bits):
    calibrates = np.arange(len(null)) % 2 == 1
    mixture = Mixture.of(np.concatenate([null[calibrates], test]))
    rate = most / mixture.position.size
    if rate < 1:
        expected = training_sample(mixture, most)
        if expected.position.size == 0:
            return
    else:
        expected = mixture
    everything = np.ones(len(test), dtype=np.bool_)
    chosen = Chosen(Held(null, size), calibrates), Chosen(Held(test, size), everything)
    assert np.array_equal(draw_sample(chosen, rate, cell_bits).rows, expected.rows)


def test_a_row_that_fills_the_files_takes_no_memory():
    tally = RowCounter()
    for _ in range(50):
        tally.add(np.ones((10_000, 2)))
    assert sum(map(len, tally.rows)) <= 1 << 17
    distinct, copies = tally.joined()
    assert distinct.tolist() == [[1.0, 1.0]]
    assert copies.tolist() == [500_000]
