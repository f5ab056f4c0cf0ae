"""ε and δ: what is read, what is refused, and where they are part of a run's settings."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.errors import ConovelError, InputError, PrivacyError
from conovel.spec.run_spec import RunSpec, repeated_specs
from conovel.spec.settings import MAX_EPSILON, Privacy, as_privacy

PRIVATE = RunSpec.of(regime="full", privacy=4)


def test_every_form_of_a_value_is_the_same():
    forms = [4, 4.0, "4", " 4 ", Fraction(4), "4,1e-6", "4,1/1000000", Privacy(Fraction(4))]
    assert {as_privacy(form) for form in forms} == {Privacy(Fraction(4), Fraction(1, 10**6))}
    assert as_privacy(None) is None
    assert as_privacy(0.1).epsilon == Fraction(1, 10)


@pytest.mark.parametrize(
    "value",
    [0, -1, "0", "", ",", "4,", ",1e-6", "4,0", "4,1", "4,-1", "4,1e-6,1", "many", True, [], {},
     MAX_EPSILON + 1, "1e9", "1e99999999", 10**4000, float("nan"), float("inf"), b"4", 1j],
)  # fmt: skip
def test_what_is_no_privacy_is_refused_by_name(value):
    with pytest.raises(PrivacyError):
        as_privacy(value)


@given(st.text(max_size=12) | st.floats() | st.integers())
def test_values_of_anybody_are_read_to_one_spelling_or_refused(value):
    try:
        privacy = as_privacy(value)
    except PrivacyError:
        return
    assert as_privacy(str(privacy)) == privacy


def test_delta_must_be_below_one_over_the_number_of_rows():
    privacy = as_privacy("4,1/1000")
    privacy.require_small_delta(999)
    with pytest.raises(PrivacyError, match="not below 1/1000"):
        privacy.require_small_delta(1000)


def test_a_run_has_it_in_its_one_spelling():
    assert RunSpec.from_text(PRIVATE.to_text()) == PRIVATE
    assert json.loads(PRIVATE.to_text())["privacy"] == "4,1/1000000"
    for other in ("4", "4.0,1/1000000", 4, None):
        text = json.dumps(PRIVATE.to_dict() | {"privacy": other}, separators=(",", ":"))
        with pytest.raises(InputError):
            RunSpec.from_text(text)


def test_runs_without_it_are_spelled_as_before():
    assert "privacy" not in RunSpec.of(regime="full").to_dict()


def test_differences_name_it():
    [said] = RunSpec.of(regime="full").differences(PRIVATE)
    assert said == "privacy is '4,1/1000000' instead of None"
    [said] = PRIVATE.differences(RunSpec.of(regime="full"))
    assert said == "privacy is None instead of '4,1/1000000'"


@pytest.mark.parametrize("regime", ["counts", "isolated", "pooled", "consensus"])
def test_regimes_that_it_would_not_cover_are_refused(regime):
    with pytest.raises(PrivacyError, match=regime):
        RunSpec.of(regime=regime, privacy=4)


@pytest.mark.parametrize("regime", ["joint", "together", "full", "split", "conservative"])
def test_regimes_that_send_one_model_for_each_row_take_it(regime):
    assert RunSpec.of(regime=regime, privacy="2,1e-9").privacy.epsilon == 2


def test_repeated_runs_share_it():
    runs = repeated_specs(RunSpec.of(regime="full", privacy="4,1/1000000", repeats=8))
    assert sum(run.privacy.epsilon for run in runs) == 4
    assert sum(run.privacy.delta for run in runs) == Fraction(1, 10**6)


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8))
def test_plain_values_from_anybody_are_read_or_refused(value):
    try:
        spec = RunSpec.from_dict(PRIVATE.to_dict() | {"privacy": value})
    except ConovelError:
        return
    assert RunSpec.from_dict(spec.to_dict()) == spec
