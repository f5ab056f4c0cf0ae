"""Evidence of several runs: e-BH by counts is e-BH, and the flags are written and read."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.errors import InputError
from conovel.stats.evidence import averaged, e_bh, rejection_evidence
from conovel.stats.levels import MAX_REPEATS, as_repeats
from conovel.stats.repeats import combine, read_flags, repeated_resolution, run_level


@st.composite
def several_runs(draw):
    """Flags of B runs for up to four agents, some without rows, and a level."""
    repeats = draw(st.integers(2, 6))
    sizes = draw(st.lists(st.integers(0, 8), min_size=1, max_size=4).filter(sum))
    share = draw(st.floats(0.05, 0.95))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    novelty = rng.random(sum(sizes)) < 0.4  # rows that most runs flag
    chance = np.where(novelty, 0.9, share / 3)
    flags = rng.random((repeats, sum(sizes))) < chance
    flags[rng.random(repeats) < 0.2] = False  # a run that rejects nothing
    parts = np.split(flags, np.cumsum(sizes)[:-1], axis=1)
    level = Fraction(draw(st.integers(1, 19)), 20)
    return {str(i): part for i, part in enumerate(parts)}, flags, level


@given(several_runs())
def test_counts_decide_what_e_bh_decides(drawn):
    parts, flags, level = drawn
    sizes = {name: part.shape[1] for name, part in parts.items()}
    found = combine(parts, sizes, level, range(len(flags)))
    expected = e_bh(averaged([rejection_evidence(f, run_level(level)) for f in flags]), level)
    assert np.array_equal(np.concatenate([*found.rejected.values()]), expected)
    questions = [round_.k for round_ in found.rounds]
    assert questions[0] == flags.shape[1]
    assert questions == sorted(questions, reverse=True)
    last = found.rounds[-1]
    assert last.total == expected.sum()
    assert last.total in (0, last.k)
    assert len(set(questions)) == len(questions)
    assert np.array_equal(
        np.concatenate([part.times_flagged for part in found.parts.values()]), flags.sum(axis=0)
    )


@given(several_runs())
def test_whoever_decides_alone_uses_its_own_rows_only(drawn):
    parts, flags, level = drawn
    parts = {name: part for name, part in parts.items() if part.size}
    sizes = {name: part.shape[1] for name, part in parts.items()}
    found = combine(parts, sizes, level, range(len(flags)), alone=True)
    assert found.rounds == ()
    for name, part in parts.items():
        evidence = averaged([rejection_evidence(f, run_level(level)) for f in part])
        assert np.array_equal(found.rejected[name], e_bh(evidence, level))


@given(several_runs())
def test_flags_are_written_and_read(drawn):
    _, flags, level = drawn
    found = combine({"": flags}, {"": flags.shape[1]}, level, range(len(flags)))
    texts = found.parts[""].spelled_flags().tolist()
    assert np.array_equal(read_flags(texts, len(flags)), flags)
    for bad in (["F"], ["x" * len(flags)], [3]):
        with pytest.raises(InputError, match="row 0 has no F or dot"):
            read_flags(bad, len(flags))


def test_equal_runs_decide_as_one_run():
    """Lemma 9(b): the evidence of one run is enough for its own rows, at its level and above."""
    flags = np.tile(np.arange(10) < 3, (4, 1))
    found = combine({"": flags}, {"": 10}, Fraction(1, 5), range(4))
    assert np.array_equal(found.rejected[""], flags[0])


def test_no_fewer_rows_than_the_resolution_says():
    """All sets that two runs of at least f rows can reject, and what e-BH makes of them."""
    level, m, n_calibration = Fraction(1, 2), 6, 5
    said = repeated_resolution(n_calibration, m, level)
    f = int(np.ceil(m / (run_level(level) * (n_calibration + 1))))
    found = set()
    for code in range(1 << (2 * m)):
        flags = np.array([[code >> (m * b + i) & 1 for i in range(m)] for b in range(2)], bool)
        if all(n == 0 or n >= f for n in flags.sum(axis=1)):
            k = combine({"": flags}, {"": m}, level, (0, 1)).rejected[""].sum()
            found |= {int(k)} - {0}
    assert min(found) >= said.fewest


def test_as_few_rows_as_the_resolution_says():
    """Eleven runs reject the same two rows and one more each: f = 3, and two rows stay."""
    level, m, n_calibration = Fraction(1, 2), 13, 24
    flags = np.zeros((11, m), bool)
    flags[:, :2] = flags[range(11), range(2, 13)] = True
    rejected = combine({"": flags}, {"": m}, level, range(11)).rejected[""]
    assert rejected.sum() == repeated_resolution(n_calibration, m, level).fewest == 2


@pytest.mark.parametrize("repeats", [0, -1, MAX_REPEATS + 1, 1.5, True, "5", None])
def test_a_number_of_runs_is_a_whole_number_up_to_a_hundred(repeats):
    with pytest.raises(InputError, match="repeats must be a whole number from 1 to 100"):
        as_repeats(repeats)
