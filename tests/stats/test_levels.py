"""Levels are what the user typed, as fractions."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.errors import InputError, LevelError
from conovel.stats.levels import MAX_EXPONENT, MAX_FRACTION_BITS, MAX_TEXT, as_fraction, as_level


@pytest.mark.parametrize(
    "level",
    [
        0.1,
        "0.1",
        " 0.10 ",
        "1e-1",
        "1/10",
        Fraction(1, 10),
        Decimal("0.1"),
        np.float64(0.1),
        np.float32(0.1),
        np.array(0.1),
    ],
)
def test_a_tenth_is_a_tenth_however_it_is_written(level):
    assert as_level(level) == Fraction(1, 10)
    assert type(as_level(level)) is Fraction


@given(st.integers(1, 10**6 - 1))
def test_floats_mean_their_decimal_form(millionths):
    assert as_level(millionths / 10**6) == Fraction(millionths, 10**6)


@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_every_float_inside_is_a_level_that_rounds_back_to_it(level):
    assert float(as_level(level)) == level


def test_a_quotient_of_floats_means_its_decimal_form_too():
    # A third cannot be typed as a float; as a string or a Fraction it is exact.
    assert as_level(1 / 3) == Fraction(3333333333333333, 10**16)
    assert as_level("1/3") == as_level(Fraction(1, 3)) == Fraction(1, 3)


@pytest.mark.parametrize(
    "level", [0, 1, 0.0, 1.0, -0.1, 1.5, "2", "-1/10", "3/2", True, Fraction(0)]
)
def test_outside_the_open_interval(level):
    with pytest.raises(
        LevelError, match=r"^level must lie strictly between 0 and 1, not "
    ) as error:
        as_level(level)
    assert str(level) in str(error.value)


@pytest.mark.parametrize(
    "level",
    [
        *[np.nan, np.inf, -np.inf, Decimal("NaN"), 0.1j],
        *["nan", "abc", "", "10%", "1/0", "1/2/3", b"0.1"],
        *[None, [0.1], np.array([0.1, 0.2])],
    ],
)
def test_not_a_number(level):
    with pytest.raises(LevelError, match=r"^level must be a number such as 0\.1 or '1/10', not "):
        as_level(level)


def test_the_message_names_the_argument():
    with pytest.raises(LevelError, match=r"^train_fraction must lie"):
        as_level(7, "train_fraction")
    with pytest.raises(LevelError, match=r"^train_fraction must be a number"):
        as_level("much", "train_fraction")


def test_a_level_error_is_an_input_error_and_a_value_error():
    assert issubclass(LevelError, InputError)
    assert issubclass(LevelError, ValueError)


@pytest.mark.parametrize("text", ["1e-9999999999", "0e0", "-1e-99999999999"])
def test_a_level_that_is_zero_for_all_purposes_is_refused_at_once(text):
    with pytest.raises(LevelError, match=r"must be a number such as|strictly between 0 and 1"):
        as_level(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 40, "'" + "x" * 40 + "'"),
        ("x" * 41, "'" + "x" * 37 + "...'"),
        (10**5000, "a number of too many digits"),  # Python writes no integer of so many
    ],
    ids=["40 characters", "41 characters", "5001 digits"],
)
def test_a_message_shows_the_beginning_of_a_long_level(text, shown):
    with pytest.raises(LevelError) as error:
        as_level(text)
    assert str(error.value).endswith(f", not {shown}")


def test_texts_and_exponents_are_bounded_before_they_are_expanded():
    assert as_fraction("0." + "1" * (MAX_TEXT - 2)) > 0
    assert as_fraction(f"1e-{MAX_EXPONENT}") == Fraction(1, 10**MAX_EXPONENT)
    for text in ("0." + "1" * (MAX_TEXT - 1), f"1e-{MAX_EXPONENT + 1}", f"1e-0{MAX_EXPONENT}"):
        with pytest.raises(LevelError, match=r"^level must be a number such as"):
            as_fraction(text)


def test_a_level_has_at_most_so_many_digits():
    assert (
        as_level(Fraction(1, 2 ** (MAX_FRACTION_BITS - 1))).denominator.bit_length()
        == MAX_FRACTION_BITS
    )
    with pytest.raises(LevelError, match="too many digits"):
        as_level(Fraction(1, 2**MAX_FRACTION_BITS))
