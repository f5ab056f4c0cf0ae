"""Numbers and nodes of a payload: they come back, in as few decisions as docs/wire.md says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_models import random_forest

from conovel.models.quantized.forest import per_feature, prune, uniform
from conovel.models.wire import write
from conovel.models.wire.numbers import FRACTION, _fractions, code_lists, order_of
from conovel.models.wire.range_coder import Decoder, Encoder


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, unique=True)
    | st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, unique=True)
    | st.lists(st.fractions(0, 1, max_denominator=5791).map(float), min_size=1, unique=True)
)
def test_lists_of_numbers_come_back(numbers):
    values = np.unique(np.array(numbers) + 0.0)
    lists = [part[order_of(part)].tolist() for part in (values, values[:1], values[::2])]
    encoder, most = Encoder(), sum(map(len, lists))
    code_lists(encoder, lists, 3, most)
    assert code_lists(Decoder(encoder.finish()), [], 3, most) == lists


def test_a_deep_chain_keeps_all_its_splits():
    """Depth 256 on 256 features: the most that ancestors can say about a node."""
    n = 256
    feature = [i // 2 if i % 2 == 0 else -1 for i in range(2 * n)] + [-1]
    left = [i + 1 if f >= 0 else i for i, f in enumerate(feature)]
    code = [i % 3 for i in range(2 * n + 1)]
    (tree,) = prune(*map(np.array, (feature, code, left, [0])))
    assert tree == list(zip(feature, code, strict=True))


class Counted(Encoder):
    """An encoder that counts its decisions."""

    n_decisions = 0

    def bit(self, *arguments):
        self.n_decisions += 1
        return super().bit(*arguments)

    def uniform(self, *arguments):
        self.n_decisions += 1
        return super().uniform(*arguments)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]
)
def test_a_node_takes_as_many_decisions_as_docs_wire_says_at_most(seed):
    forest = random_forest(seed, n_trees=8, max_depth=9, n_features=300, split=0.95)
    for model in (forest, uniform(forest, 16), per_feature(forest, 16, 16)):
        coder = Counted()
        about = write(coder, model)
        assert coder.n_decisions <= 48 * about.n_items + 23 * about.n_features


@given(
    st.integers(1, 5900).flatmap(lambda n: st.integers(0, n).map(lambda k: k / n))
    | st.floats(-1, 2)
    | st.sampled_from([0.0, -0.0, 1.0, 5e-324, 1 - 2**-53, 2**-53, 1 / 5791, 1 / 5792])
)
def test_short_fractions_are_found(value):
    near = Fraction(value).limit_denominator(5791)
    is_short = 0 <= value <= 1 and float(near) == value
    over, under = _fractions(np.array([value]))
    assert (over[0], under[0]) == (near.as_integer_ratio() if is_short else (0, 0))
    assert FRACTION == 24
