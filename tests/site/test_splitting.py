"""The share of the known normals that train: it depends on numbers alone."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from conovel.spec.training import ANY_SHARE, as_share, train_share


@given(
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.sampled_from(["1/100", "1/20", "1/10", "1/5", "1/2"]),
)
def test_the_share_depends_on_numbers_alone_and_leaves_rows_for_both(n, m, level):
    share = train_share(n, m, level)
    assert Fraction(1, 10) <= share <= Fraction(3, 4)
    assert share == train_share(n, m, Fraction(level))
    assert as_share(None, n, m, level) == share
    assert as_share(0.3, n, m, level) == Fraction(3, 10)


def test_few_known_normals_calibrate_rather_than_train():
    """In a network: there its models come from all agents, and calibration rows do not."""
    shares = [train_share(n, 1000, 0.1, ANY_SHARE) for n in (150, 1000, 10**5)]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]
    # With half of 333 rows only rank 1 could be rejected at 10 % discoveries, now rank 2.
    n_calibration = 333 - int(train_share(333, 999, 0.1, ANY_SHARE) * 333)
    assert (n_calibration + 1) * Fraction(11, 1000) >= 2


@given(st.integers(2, 3000), st.integers(1, 3000), st.sampled_from(["1/100", "1/20", "1/10"]))
def test_at_one_site_half_trains_if_a_quarter_of_the_tests_could_still_be_rejected(n, m, level):
    share, any_share = train_share(n, m, level), train_share(n, m, level, ANY_SHARE)
    n_calibration = n - max(1, n // 2)
    if Fraction(level) * (n_calibration + 1) >= 4:
        assert share >= Fraction(1, 2)
    else:
        assert share == any_share
    if any_share >= Fraction(1, 2):
        assert share == any_share
