"""Numbers of strata in READY: they must add up, or the run ends with the name of the sender."""

from fractions import Fraction

import pytest
from support.terms import make_terms

from conovel.deciding.cells import Histogram, block_of, check_strata
from conovel.errors import CountOutOfRangeError
from conovel.federation.consent import Limits
from conovel.spec.bodies import Ready
from conovel.stats.cells import N_CELLS

GOOD = Ready(10, 30, 4, (4, 10, 1, 6, 20, 3))


def test_numbers_that_add_up_are_taken():
    check_strata("a", GOOD, ("branch",))
    check_strata("a", Ready(10, 30, 4), ())
    check_strata("a", Ready(0, 0), ("branch",))
    assert GOOD.blocks == [(4, 10, 1), (6, 20, 3)]
    assert Ready(10, 30, 4).blocks == [(10, 30, 4)]


@pytest.mark.parametrize(
    ("ready", "columns"),
    [
        (Ready(10, 30, 4, (4, 10, 1, 6, 19, 3)), ("branch",)),
        (Ready(10, 30, 4, (5, 10, 1, 6, 20, 3)), ("branch",)),
        (Ready(10, 30, 4, (4, 10, 1, 6, 20, 2)), ("branch",)),
        (Ready(10, 30, 4, (10, 20, 4, 0, 10, 0)), ("branch",)),
        (Ready(10, 30, 4, (10, 30)), ("branch",)),
        (Ready(10, 30, 4), ("branch",)),
        (GOOD, ()),
    ],
)
def test_numbers_that_do_not_add_up_name_their_sender(ready, columns):
    with pytest.raises(CountOutOfRangeError) as caught:
        check_strata("south", ready, columns)
    assert caught.value.culprit == "south"


def test_an_agent_cannot_count_more_rows_than_the_floors_of_its_strata_leave():
    room, level = Fraction(1, 5), Fraction(1, 10)
    most = 11 // 5 + 21 // 5  # 2 + 4, where one block of 30 rows has room for 6
    counts = (0,) * (N_CELLS - 1) + (1,)
    full = Histogram(counts, (0,) * (N_CELLS - 1) + (most - 1,))
    assert block_of("a", GOOD, full, room, level).n_above == most
    over = Histogram(counts, (0,) * (N_CELLS - 1) + (most,))
    with pytest.raises(CountOutOfRangeError):
        block_of("a", GOOD, over, room, level)


def test_a_site_allows_columns_by_name():
    terms = make_terms(("a", "b"), regime="joint", strata=["branch"])
    allowed = Limits(regimes=("joint",), strata=("branch", "month"))
    assert allowed.objection(terms) == ""
    objection = Limits(regimes=("joint",), strata=("month",)).objection(terms)
    assert "branch" in objection
    assert "site.toml" in objection
