"""Budgets of memory: how they are written, and what they allow."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import in_pieces, left_in, trees

from conovel.errors import InputError
from conovel.site import engines as budgets
from conovel.site.engines import MemoryPlan, as_memory


@pytest.mark.parametrize(("text", "n"), [("1GB", 10**9), ("750 mb", 75 * 10**7), (2**30, 2**30)])
def test_amounts_of_memory(text, n):
    assert as_memory(text) == n


@pytest.mark.parametrize("text", ["", "GB", "1 parsec", "-1GB", "5MB", "1e9"])
def test_what_is_no_amount_of_memory(text):
    with pytest.raises(InputError, match="memory"):
        as_memory(text)


def test_a_budget_too_small_to_fit_in_is_refused_before_the_fit(files, monkeypatch):
    monkeypatch.setattr("conovel.site.engines._LIBRARIES", 10**9)
    with pytest.raises(InputError, match=r"600 rows of 3 columns takes about 1000MB"):
        in_pieces(trees(), files, files / "out.parquet", memory="1GB")
    assert left_in(files) == ["null", "test"]


def test_without_a_budget_a_fit_may_take_more(files, monkeypatch):
    monkeypatch.setattr("conovel.site.engines._LIBRARIES", 10**9)
    in_pieces(trees(), files, files / "out.parquet", memory=None)
    assert "out.parquet" in left_in(files)


@given(st.integers(10**8, 10**12), st.integers(1, 5000))
def test_a_plan_stays_within_the_budget(memory, n_features):
    plan = MemoryPlan.of(memory, n_features)
    in_flight = 8 * 6 * plan.piece * 8 * n_features
    assert plan.piece == 1024 or in_flight <= memory / 4
    assert 4 << plan.cell_bits <= memory


def test_memory_is_released_also_without_the_gnu_c_library(monkeypatch):
    def no_library(name):
        raise OSError(name)

    monkeypatch.setattr(budgets.ctypes, "CDLL", no_library)
    rows = pa.array(range(100_000))
    budgets.release_unused()
    assert rows[99_999].as_py() == 99_999  # what is in use stays
