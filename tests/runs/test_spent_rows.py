"""Which known normals are spent: by content, and by the number of copies."""

from collections import Counter
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.errors import SpentRowsError
from conovel.rows.samples import read_sample
from conovel.runs.spent_rows import (
    NO_ROWS,
    Copies,
    first_copies,
    row_digests,
    same_rows,
    spent_mask,
)

KEY = "ab" * 32
FEW = st.lists(st.integers(0, 5), max_size=30)


def as_digests(numbers):
    return np.array(numbers, dtype=np.uint64)


@given(FEW, FEW)
def test_of_each_content_as_many_copies_are_marked_as_were_used(present, used):
    mask = first_copies(as_digests(present), Copies.of(as_digests(used)))
    fresh = Counter(np.array(present, dtype=int)[~mask].tolist())
    assert fresh == Counter(present) - Counter(used)


@given(FEW, FEW)
def test_rows_that_were_added_are_exactly_those_that_are_left(used, added):
    digests = as_digests([*used, *used, *added])  # that rows repeat is seen among the spent ones
    mask = spent_mask(digests, Copies.of(as_digests([*used, *used])))
    assert Counter(digests[~mask].tolist()) == Counter(added)


@given(FEW, FEW)
def test_samples_that_grow_are_joined_to_the_larger_one(used, added):
    small, large = (Copies.of(as_digests(one)) for one in (used, [*used, *added]))
    for joined in (small.joined(large), large.joined(small), NO_ROWS.joined(large)):
        assert joined.digests.tolist() == large.digests.tolist()
        assert joined.copies.tolist() == large.copies.tolist()


def test_rows_that_repeat_must_not_be_left_out():
    used = Copies.of(as_digests([1, 1, 2]))
    with pytest.raises(SpentRowsError, match="append fresh ones"):
        spent_mask(as_digests([1, 3, 3]), used)
    with pytest.raises(SpentRowsError, match="nobody can tell"):
        used.joined(Copies.of(as_digests([1, 1, 3])))
    without = spent_mask(as_digests([1, 3]), Copies.of(as_digests([1, 2])))  # no row repeats
    assert without.tolist() == [True, False]


def test_digests_follow_content_and_key_alone():
    frame = pd.DataFrame({"a": [1.5, 2.0, 0.1], "b": ["x", None, "003"]})
    sample = read_sample(frame, "X")
    digests = row_digests(sample, KEY)
    assert len(set(digests.tolist())) == 3
    turned = row_digests(read_sample(frame[["b", "a"]][::-1], "X"), KEY)
    assert turned.tolist() == digests[::-1].tolist()
    single = row_digests(read_sample(frame.assign(a=frame["a"].astype("float32")), "X"), KEY)
    assert single.tolist() == digests.tolist()
    assert row_digests(sample, "cd" * 32).tolist() != digests.tolist()


def test_tested_rows_among_the_normals_are_found_unless_rows_repeat_by_nature():
    rng = np.random.default_rng(0)
    tested = as_digests(range(1000, 1100))
    normals = as_digests([*range(300), 1007, 1008])
    assert np.flatnonzero(same_rows(normals, Copies.of(tested))).tolist() == [300, 301]
    coarse, more = (as_digests(rng.integers(20, size=n)) for n in (300, 100))
    assert not same_rows(coarse, Copies.of(more)).any()


@pytest.mark.parametrize("n_values", [20, 3000, 10**6])
def test_fresh_rows_that_repeat_by_nature_are_not_refused(n_values):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        used, added = (rng.integers(n_values, size=n) for n in (1000, 500))
        mask = spent_mask(as_digests([*used, *added]), Copies.of(as_digests(used)))
        assert Counter([*used, *added]) - Counter(used) == Counter(added)
        assert mask.sum() == 1000


def test_spent_rows_that_were_appended_again_do_not_calibrate():
    rng = np.random.default_rng(0)
    coarse, fresh = (rng.integers(3000, size=n) for n in (1000, 500))
    with pytest.raises(SpentRowsError, match="Give every row once"):
        spent_mask(as_digests([*coarse, *fresh, *coarse]), Copies.of(as_digests(coarse)))
    used, fresh = range(1000), range(1000, 1500)
    for n_again, is_refused in ((4, False), (5, True)):  # so few may be equal by nature
        digests = as_digests([*used, *fresh, *used[:n_again]])
        with pytest.raises(SpentRowsError, match="5 of the") if is_refused else nullcontext():
            assert spent_mask(digests, Copies.of(as_digests(used))).sum() == 1000
