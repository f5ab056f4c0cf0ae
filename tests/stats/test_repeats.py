"""Evidence of several runs: e-BH by counts is e-BH, and the flags are written and read."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.evidence import rejection_evidence

from conovel.errors import InputError
from conovel.stats.evidence import Evidence, averaged, closed_e_bh, e_bh
from conovel.stats.levels import MAX_REPEATS, as_repeats
from conovel.stats.repeats import (
    ALONE,
    COUNTED,
    PLAIN,
    averaging,
    averaging_alone,
    averaging_of,
    combine,
    read_flags,
    repeated_resolution,
    run_level,
)


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


def by_limits(parts, level, rule, sizes):
    """(ℓ+1)/⌊βR(ℓ+1)/m⌋ for every row that a run rejects, averaged, written out row by row."""
    flags = np.concatenate([*parts.values()], axis=1)
    ells = np.concatenate([np.full(part.shape[1], sizes[name]) for name, part in parts.items()])
    values = []
    for i, ell in enumerate(ells.tolist()):
        total = Fraction(0)
        for run in flags:
            limit = rule.share * level * int(run.sum()) * (ell + 1) // flags.shape[1]
            total += Fraction(ell + 1, limit) if run[i] and limit else 0
        values.append(total / len(flags))
    return Evidence(tuple(values), np.arange(len(values)))


@given(several_runs(), st.lists(st.integers(0, 400), min_size=4, max_size=4))
def test_counts_of_limits_decide_what_e_bh_decides(drawn, ells):
    parts, flags, level = drawn
    sizes = {name: part.shape[1] for name, part in parts.items()}
    n_calibration = dict(zip(parts, ells, strict=False))
    found = combine(parts, sizes, level, range(len(flags)), COUNTED, n_calibration)
    expected = by_limits(parts, level, COUNTED, n_calibration)
    evidence = [e for part in found.parts.values() for e in part.evidence.to_list()]
    assert evidence == expected.to_list()
    assert np.array_equal(np.concatenate([*found.rejected.values()]), e_bh(expected, level))


@given(several_runs(), st.integers(0, 400))
def test_one_site_decides_by_closed_e_bh(drawn, ell):
    _, flags, level = drawn
    numbers = {"": flags.shape[1]}, level, range(len(flags)), ALONE, {"": ell}
    found = combine({"": flags}, *numbers)
    expected = by_limits({"": flags}, level, ALONE, {"": ell})
    assert found.parts[""].evidence.to_list() == expected.to_list()
    assert np.array_equal(found.rejected[""], closed_e_bh(expected, level))
    assert found.rounds == ()


def test_which_rule_decides():
    assert averaging("isolated", estimates_nulls=False) == ALONE
    assert averaging("counts", estimates_nulls=False) == COUNTED
    for deciding in ("cells", "types", "pooled"):
        assert averaging(deciding, estimates_nulls=False) == PLAIN
    for deciding in ("isolated", "counts"):
        assert averaging(deciding, estimates_nulls=True) == PLAIN
    assert (ALONE.closed, COUNTED.closed, PLAIN.closed) == (True, False, False)
    assert (ALONE.by_limit, COUNTED.by_limit, PLAIN.by_limit) == (True, True, False)
    tenth = Fraction(1, 10)
    chosen = [averaging_alone(tenth, n, estimates_nulls=False) for n in (599, 600)]
    assert chosen == [ALONE, ALONE._replace(share=Fraction(1, 2))]
    assert averaging_alone(tenth, 9999, estimates_nulls=True) == PLAIN
    for rule in (*chosen, PLAIN):
        assert averaging_of(tenth, run_level(tenth, rule)) == rule
    shares = [str(run_level(Fraction(1), rule)) for rule in (ALONE, COUNTED, PLAIN)]
    assert shares == ["3/5", "2/5", "2/5"]


@given(several_runs())
def test_counts_decide_what_e_bh_decides(drawn):
    parts, flags, level = drawn
    sizes = {name: part.shape[1] for name, part in parts.items()}
    found = combine(parts, sizes, level, range(len(flags)), PLAIN, {})
    beta = run_level(level, PLAIN)
    expected = e_bh(averaged([rejection_evidence(f, beta) for f in flags]), level)
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
    found = combine(parts, sizes, level, range(len(flags)), PLAIN, {}, alone=True)
    assert found.rounds == ()
    for name, part in parts.items():
        evidence = averaged([rejection_evidence(f, run_level(level, PLAIN)) for f in part])
        assert np.array_equal(found.rejected[name], e_bh(evidence, level))


@given(several_runs())
def test_flags_are_written_and_read(drawn):
    _, flags, level = drawn
    found = combine({"": flags}, {"": flags.shape[1]}, level, range(len(flags)), PLAIN, {})
    texts = found.parts[""].spelled_flags().tolist()
    assert np.array_equal(read_flags(texts, len(flags)), flags)
    for bad in (["F"], ["x" * len(flags)], [3]):
        with pytest.raises(InputError, match="row 0 has no F or dot"):
            read_flags(bad, len(flags))


def test_equal_runs_decide_as_one_run():
    """Lemma 9(b): the evidence of one run is enough for its own rows, at its level and above."""
    flags = np.tile(np.arange(10) < 3, (4, 1))
    for rule in (ALONE, COUNTED, PLAIN):
        found = combine({"": flags}, {"": 10}, Fraction(1, 5), range(4), rule, {"": 99})
        assert np.array_equal(found.rejected[""], flags[0])


def test_no_fewer_rows_than_the_resolution_says():
    """All sets that two runs of at least f rows can reject, and what e-BH makes of them."""
    level, m, n_calibration = Fraction(1, 2), 6, 5
    said = repeated_resolution(n_calibration, m, level, PLAIN)
    f = int(np.ceil(m / (run_level(level, PLAIN) * (n_calibration + 1))))
    found = set()
    for code in range(1 << (2 * m)):
        flags = np.array([[code >> (m * b + i) & 1 for i in range(m)] for b in range(2)], bool)
        if all(n == 0 or n >= f for n in flags.sum(axis=1)):
            k = combine({"": flags}, {"": m}, level, (0, 1), PLAIN, {}).rejected[""].sum()
            found |= {int(k)} - {0}
    assert min(found) >= said.fewest


def test_as_few_rows_as_the_resolution_says():
    """Eleven runs reject the same two rows and one more each: f = 3, and two rows stay."""
    level, m, n_calibration = Fraction(1, 2), 13, 24
    flags = np.zeros((11, m), bool)
    flags[:, :2] = flags[range(11), range(2, 13)] = True
    rejected = combine({"": flags}, {"": m}, level, range(11), PLAIN, {}).rejected[""]
    assert rejected.sum() == repeated_resolution(n_calibration, m, level, PLAIN).fewest == 2


@pytest.mark.parametrize("repeats", [0, -1, MAX_REPEATS + 1, 1.5, True, "5", None])
def test_a_number_of_runs_is_a_whole_number_up_to_a_hundred(repeats):
    with pytest.raises(InputError, match="repeats must be a whole number from 1 to 100"):
        as_repeats(repeats)
