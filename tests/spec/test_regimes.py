"""The regimes: the design's table, blocks, and what is claimed for each."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_link import table_of

from conovel.deciding.ways import guarantee, ways_of
from conovel.errors import InputError
from conovel.spec.regimes import REGIMES, as_deployable, as_regime, block_sizes, own_block
from conovel.spec.run_spec import RunSpec


def test_the_table_of_the_design():
    assert {name: (one.learning, one.deciding) for name, one in REGIMES.items()} == {
        "isolated": ("alone", "isolated"),
        "counts": ("alone", "counts"),
        "pooled": ("pooled", "pooled"),
        "split": ("blocks", "counts"),
        "conservative": ("exchange", "isolated"),
        "full": ("exchange", "counts"),
        "joint": ("exchange", "cells"),
        "together": ("together", "cells"),
        "consensus": ("consensus", "types"),
    }


@given(st.integers(0, 10_000), st.integers(1, 200))
def test_blocks_are_even_and_complete(n, k):
    sizes = block_sizes(n, k)
    assert (len(sizes), sum(sizes)) == (k, n)
    assert max(sizes) - min(sizes) <= 1
    assert list(sizes) == sorted(sizes, reverse=True)


@given(st.integers(0, 1000), st.integers(2, 50), st.sampled_from(list(REGIMES)))
def test_only_split_tests_a_part(n, k, name):
    tested = [REGIMES[name].n_tested(n, index, k) for index in range(k)]
    if name == "split":
        assert tested == [block_sizes(n, k)[own_block(index)] for index in range(k)]
        assert sum(tested) == n  # equal agents together test as much as one of them has
    else:
        assert tested == [n] * k


def test_the_level_is_divided_where_everybody_decides_alone():
    levels = {name: regime.test_level(0.1, 4) for name, regime in REGIMES.items()}
    divided = {name for name, level in levels.items() if level == Fraction(1, 40)}
    assert divided == {"isolated", "conservative"}
    assert set(levels.values()) == {Fraction(1, 40), Fraction(1, 10)}


def test_reading_a_regime():
    assert as_regime("full") is as_regime(REGIMES["full"])
    with pytest.raises(InputError, match="isolated, counts, pooled, split, conservative, full"):
        as_regime("mesh")
    with pytest.raises(InputError, match="simulation only"):
        as_deployable("pooled")


def text_of(spec, **losses):
    return str(guarantee(spec, **losses))


@pytest.mark.parametrize("name", list(REGIMES))
def test_what_is_claimed_names_its_assumptions(name):
    said = text_of(RunSpec.of(regime=name))
    ways = ways_of(REGIMES[name])
    assert ways.needs in said
    is_plain = name in ("isolated", "conservative", "joint", "together", "consensus")
    assert ("at most 1/10 · m0/m" in said) is not is_plain
    assert ("agents are independent" in said) is (name not in ("isolated", "pooled", "consensus"))


def test_dropouts_change_what_is_claimed():
    said = text_of(RunSpec.of(regime="full"), left_out=["south"], dropped=["west", "east"])
    assert "Left out before the counts: south" in said
    assert "Lost during the counts: east, west" in said
    assert "1/10 · (1 + 1/2 + … + 1/m)" in said
    assert "how its own rows were split" not in text_of(
        RunSpec.of(regime="isolated"), left_out=["south"]
    )
    assert "1/2 + …" in text_of(RunSpec.of(regime="full", pi0="storey"), dropped=["west"])
    said = text_of(RunSpec.of(regime="full", pi0="quantile"), dropped=["west"])
    assert "1/2 + …" not in said
    assert "not proven here" in said


def test_an_unproven_estimator_is_not_claimed():
    assert "not proven" in text_of(RunSpec.of(regime="full", pi0="quantile"))
    assert "not proven" not in text_of(RunSpec.of(regime="full", pi0="storey"))
    assert "not proven" not in text_of(RunSpec.of(regime="isolated", pi0="quantile"))
    assert "m0/m" not in text_of(RunSpec.of(regime="full", pi0="storey"))


def test_what_is_revealed_in_the_documentation():
    rows = table_of("revealed.md", "regime", "peers learn", "the coordinator learns")
    assert sorted(rows) == sorted(
        [f"`{name}`", ways_of(regime).peers_learn, ways_of(regime).coordinator_learns]
        for name, regime in REGIMES.items()
    )
