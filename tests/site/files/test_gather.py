"""What is gathered from pieces is what a sample in memory holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import in_memory, in_pieces, trees
from support.strategies import coarse_rows

from conovel.rows.pieces import Piece
from conovel.scorers.base import Mixture
from conovel.site.blocks import training_sample
from conovel.site.checks.sample import Strided, stride_of
from conovel.site.files.gather import Cells, Early, Gathering, RowCounter, gather, survey
from conovel.site.files.stream import Stream


def mapped(rows, size):
    pieces = [Piece(i, rows[i : i + size].T) for i in range(0, len(rows), size)]
    return lambda work: map(work, pieces)


@given(
    coarse_rows,
    coarse_rows,
    st.integers(1, 80),
    st.integers(1, 70),
    st.integers(4, 20),
    st.integers(1, 50),
    st.sampled_from([9, 1000]),
)
def test_gathering_in_pieces_is_sampling_in_memory(null, test, most, size, cell_bits, few, room):
    is_train = np.arange(len(null)) % 2 == 0
    mixture = Mixture.of(np.concatenate([null[~is_train], test]))
    expected = training_sample(mixture, most)
    rate = most / mixture.position.size
    cells = Cells(cell_bits)
    constant = lambda hashes: np.full(hashes.size, few)  # noqa: E731
    early = Early(is_train, rate, constant, copies=few, room=room)
    for sample, known in ((null, True), (test, False)):
        looked = Strided(few)
        seen = survey(mapped(sample, size), cells, lambda n: None, looked, early, known=known)
        assert seen.n == len(sample)
        assert np.array_equal(looked.rows, sample[:: stride_of(len(sample), few)])
    if expected.position.size == 0:
        return
    late = Gathering(is_train, rate, cells.bound)
    found = [gather(mapped(null, size), mapped(test, size), late, lambda n: None)]
    found.append(early.settled(cells))
    if few == 50 and room == 1000 and cells.most <= 50:
        assert found[-1] is not None
    for training in filter(None, found):
        assert np.array_equal(training.null_train, null[is_train])
        assert np.array_equal(training.mixture.rows, expected.rows)


@pytest.mark.parametrize(("few", "again"), [(160, False), (159, True)])
def test_a_second_pass_is_made_only_where_rows_may_occur_too_often(
    files, tmp_path, monkeypatch, few, again
):
    """One row occurs 160 times; the bytes are the same either way."""
    monkeypatch.setattr(Stream, "_few_copies", lambda self, most: few)
    expected, out, begun = tmp_path / "memory.csv", tmp_path / "pieces.csv", set()
    in_memory(trees(), expected)
    in_pieces(trees(), files, out, on_progress=lambda stage, *_: begun.add(stage))
    assert ("choosing what to learn from" in begun) == again
    assert out.read_bytes() == expected.read_bytes()


def test_a_row_that_fills_the_files_takes_no_memory():
    tally = RowCounter()
    for _ in range(50):
        tally.add(np.ones((10_000, 2)))
    assert sum(map(len, tally.rows)) <= 1 << 17
    distinct, copies = tally.joined()
    assert distinct.tolist() == [[1.0, 1.0]]
    assert copies.tolist() == [500_000]
