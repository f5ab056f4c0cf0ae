"""The compiled coder and the plain one: equal bytes, equal models, equal errors."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile_bytes import MESSAGES, mutated, reseal
from support.paths import ATTACKS
from support.random_models import random_forest, random_network

from conovel.errors import WireError
from conovel.models.quantized import canonical
from conovel.models.quantized.canonical import prune
from conovel.models.quantized.forest import per_feature, uniform
from conovel.models.wire import compiled, decode, encode, write
from conovel.models.wire.numbers import FRACTION, _fractions, code_floats, code_lists, order_of
from conovel.models.wire.range_coder import Decoder, Encoder

pytest.importorskip("numba")

FILES = sorted(ATTACKS.glob("*.bin"))
NEVER = 1 << 62


def both(work):
    """Do something with the plain coder and with the compiled one."""
    results = []
    for worth in (NEVER, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(canonical, "WORTH_COMPILING", worth)
            results.append(work())
    return results


def ending(message):
    """What becomes of a message: the name and text of its error, or the model's own bytes."""
    try:
        model = decode(message)
    except WireError as error:
        return type(error).__name__, str(error)
    return model, encode(model)


def assert_equal_endings(message):
    plain, fast = both(lambda: ending(message))
    assert plain[1] == fast[1]
    if isinstance(plain[0], str):
        assert plain[0] == fast[0]
        return
    rows = np.random.default_rng(0).normal(size=(20, plain[0].n_features))
    assert plain[0].score(rows).tobytes() == fast[0].score(rows).tobytes()


def test_the_loops_are_taken():
    """Otherwise the tests below would compare the plain coder with itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical, "WORTH_COMPILING", 0)
        assert compiled.loops_for(Encoder(), 1) is not None
        assert compiled.loops_for(Decoder(b""), 1) is not None
    assert compiled.loops_for(Encoder(), 1) is None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_attacks_end_in_the_same_error(path):
    assert_equal_endings(path.read_bytes())


@given(mutated())
@settings(max_examples=150)
def test_mutated_payloads_end_in_the_same_way(message):
    assert_equal_endings(reseal(message))


@pytest.mark.parametrize("message", MESSAGES, ids=range(len(MESSAGES)))
def test_cut_payloads_end_in_the_same_way(message):
    for length in range(28, len(message), 1 + len(message) // 20):
        assert_equal_endings(reseal(message[:length]))


def random_model(seed):
    rng = random.Random(seed)
    if rng.random() < 0.3:
        hidden = tuple(rng.randrange(1, 6) for _ in range(rng.randrange(3)))
        model = random_network(seed, hidden=hidden)
        return model if rng.random() < 0.5 else uniform(model, rng.randrange(1, 17))
    forest = random_forest(
        seed,
        n_trees=rng.randrange(1, 30),
        max_depth=rng.randrange(9),
        n_features=rng.choice([1, 2, 3, 20, 300]),
        split=rng.choice([0.5, 0.8, 1.0]),
        distinct=rng.choice([None, 2, 5]),
    )
    kind = rng.randrange(3)
    if kind == 0:
        return forest
    if kind == 1:
        return uniform(forest, rng.randrange(1, 17))
    return per_feature(forest, rng.randrange(1, 17), rng.randrange(1, 17))


@pytest.mark.parametrize("seed", range(60))
def test_random_models_have_the_same_bytes(seed):
    model = random_model(seed)
    plain, fast = both(lambda: encode(model))
    assert plain == fast
    assert_equal_endings(plain)


def test_a_deep_chain_has_the_same_bytes():
    """Depth 256 on 256 features: the most that ancestors can say about a node."""
    n = 256
    feature = [i // 2 if i % 2 == 0 else -1 for i in range(2 * n)] + [-1]
    left = [i + 1 if f >= 0 else i for i, f in enumerate(feature)]
    code = [i % 3 for i in range(2 * n + 1)]
    plain, fast = both(lambda: prune(*map(np.array, (feature, code, left, [0]))))
    assert plain == fast
    assert len(plain[0]) == 2 * n + 1


def test_a_carry_crosses_from_one_coder_to_the_other():
    """The compiled writer carries into bytes that the plain one wrote."""

    def payload():
        encoder, rng = Encoder(), random.Random(3)
        for _ in range(300):
            if rng.random() < 0.5:
                encoder.uniform(2, 3, "raw")
            numbers = [rng.gauss(0, 1) for _ in range(rng.randrange(1, 4))]
            code_floats(encoder, numbers, len(numbers))
        return encoder.finish()

    plain, fast = both(payload)
    assert plain == fast


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, unique=True)
    | st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, unique=True)
    | st.lists(st.fractions(0, 1, max_denominator=5791).map(float), min_size=1, unique=True)
)
def test_lists_of_numbers_have_the_same_bytes(numbers):
    values = np.unique(np.array(numbers) + 0.0)
    lists = [part[order_of(part)].tolist() for part in (values, values[:1], values[::2])]

    def payload():
        encoder, most = Encoder(), sum(map(len, lists))
        code_lists(encoder, lists, 3, most)
        data = encoder.finish()
        assert code_lists(Decoder(data), [], 3, most) == lists
        return data

    plain, fast = both(payload)
    assert plain == fast


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
