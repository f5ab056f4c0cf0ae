"""The coordinator by itself: whom it waits for, what it asks, what it refuses and announces.

The agents are messages that are written here. α = 1/2 and m = 10, as in `test_agent.py`.
"""

from fractions import Fraction

import pytest
from support.fake_link import RUN_ID, SCHEMA, forge

from conovel import errors
from conovel.deciding.asking import Count, Step
from conovel.learning.base import State
from conovel.protocol.coordinator import Coordinator
from conovel.spec.bodies import COORDINATOR, Abort, Hello, Left, Ready, Roster, Start
from conovel.spec.run_spec import RunSpec

SLOPE = Fraction(1, 20)
READY = Ready(n_tested=5, n_calibration=19)


def spec_of(regime="counts", **settings):
    return RunSpec.of(regime=regime, level=Fraction(1, 2), **settings)


def hello(own, **change):
    facts = {"n_null": 30, "n_test": 5, "n_features": 3, "schema": SCHEMA}
    return Hello(**(facts | {"software": "1.0", "wire_version": 7, "spec": own.told} | change))


def tell(coordinator, sender, body, round_=0):
    return coordinator.receive(forge(sender, COORDINATOR, body, round_), sender)


def gathered(names=("north", "south"), **settings):
    """A coordinator that has heard from everybody."""
    spec = spec_of(**settings)
    coordinator = Coordinator(names, spec=spec, run_id=RUN_ID)
    for name in names:
        tell(coordinator, name, hello(spec))
    return coordinator


def counting(names=("north", "south"), **settings):
    """A coordinator that has asked its first question."""
    coordinator = gathered(names, **settings)
    for name in names:
        tell(coordinator, name, READY)
    return coordinator


def bodies(sent):
    return {one.receiver: one.message.body for one in sent}


def test_the_roster_goes_out_once_everybody_has_said_hello():
    spec = spec_of()
    coordinator = Coordinator(["south", "north"], spec=spec, run_id=RUN_ID)
    assert tell(coordinator, "south", hello(spec)) == []
    sent = tell(coordinator, "north", hello(spec, n_test=6))
    roster = Roster(("north", "south"), n_null=60, n_test=11)  # in canonical order, with totals
    assert bodies(sent) == {"north": roster, "south": roster}


def test_counts_start_once_everybody_is_ready():
    coordinator = gathered()
    assert tell(coordinator, "north", READY) == []
    sent = tell(coordinator, "south", READY)
    asked = [one.message.body for one in sent if one.receiver == "north"]
    assert asked == [Start(("north", "south"), 10), Step(10, SLOPE)]


def test_k_falls_to_the_sum_of_counts_until_nothing_changes():
    coordinator = counting()
    for round_, (of_north, of_south, following) in enumerate([(5, 1, 6), (4, 1, 5)], start=1):
        assert tell(coordinator, "north", Count(of_north), round_) == []
        sent = tell(coordinator, "south", Count(of_south), round_)
        assert bodies(sent) == dict.fromkeys(("north", "south"), Step(following, SLOPE))
    tell(coordinator, "north", Count(4), 3)
    sent = tell(coordinator, "south", Count(1), 3)
    told = bodies(sent)["north"]
    assert told == bodies(sent)["south"] == coordinator.outcome
    assert (told.n_rejected, told.n_tests, told.slope, told.rounds) == (5, 10, SLOPE, 3)
    assert told.participants == ("north", "south")
    assert coordinator.state is State.DONE


def test_it_announces_no_total_where_each_agent_decides_alone():
    coordinator = gathered(regime="isolated")
    tell(coordinator, "north", READY)
    [one, other] = tell(coordinator, "south", READY)
    assert one.message.body == other.message.body
    assert (one.message.body.n_rejected, one.message.body.rounds) == (0, 0)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"wire_version": 8}, errors.VersionMismatchError, "west has another model format"),
        ({"n_features": 4}, errors.SchemaMismatchError, "west has another columns"),
        ({"schema": bytes([1] * 32)}, errors.SchemaMismatchError, "west has another columns"),
        ({"spec": spec_of("full").told}, errors.SpecMismatchError, "west has other settings"),
    ],
)
def test_an_agent_that_differs_from_most_is_named(change, error, words):
    spec, names = spec_of(), ("north", "south", "west")
    coordinator = Coordinator(names, spec=spec, run_id=RUN_ID)
    tell(coordinator, "north", hello(spec))
    tell(coordinator, "west", hello(spec, **change))
    tell(coordinator, "south", hello(spec))
    assert isinstance(coordinator.error, error)
    assert words in str(coordinator.error)
    assert coordinator.error.culprit == "west"


@pytest.mark.parametrize(
    "ready",
    [Ready(6, 19), Ready(4, 19), Ready(5, 31), Ready(5, 0)],  # it said 5 test rows and 30 normals
)
def test_an_agent_tests_the_rows_it_told(ready):
    coordinator = gathered()
    sent = tell(coordinator, "north", ready)
    assert isinstance(coordinator.error, errors.CountOutOfRangeError)
    assert coordinator.error.culprit == "north"
    assert {type(body) for body in bodies(sent).values()} == {Abort}
    assert set(bodies(sent)) == {"north", "south"}


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        ([(6, 1)], errors.CountOutOfRangeError),  # north has 5 rows
        ([(3, 1), (4, 2)], errors.CountRisingError),  # a lower limit has no more ranks below it
        ([(5, 2)], errors.UnexpectedMessageError),  # round 1 is not over
    ],
)
def test_a_count_that_cannot_be_is_refused(counts, error):
    coordinator = counting()
    for count, round_ in counts:
        tell(coordinator, "north", Count(count), round_)
        if coordinator.error is None:
            tell(coordinator, "south", Count(1), round_)
    assert isinstance(coordinator.error, error)
    assert coordinator.error.culprit == "north"


def test_a_stranger_ends_the_run():
    coordinator = gathered()
    tell(coordinator, "west", READY)
    assert isinstance(coordinator.error, errors.UnknownSenderError)
    with pytest.raises(errors.UnknownSenderError):
        _ = coordinator.outcome


def test_an_agent_that_vanishes_before_the_roster_is_left_out():
    spec, names = spec_of(), ("north", "south", "west")
    coordinator = Coordinator(names, spec=spec, run_id=RUN_ID)
    for name in ("north", "south"):
        tell(coordinator, name, hello(spec))
    roster = Roster(("north", "south"), 60, 10)
    assert bodies(coordinator.drop("west")) == {"north": roster, "south": roster}


def test_an_agent_that_vanishes_during_the_counts_ends_the_run_by_default():
    coordinator = counting()
    coordinator.drop("south")
    assert isinstance(coordinator.error, errors.SiteVanishedError)


def test_rows_of_an_agent_that_vanished_still_count_as_tested():
    """Its count is zero from then on, and m stays: fewer rejections, never more."""
    coordinator = counting(on_dropout="conservative")
    tell(coordinator, "south", Count(5), 1)
    [left] = [one for one in coordinator.drop("south") if isinstance(one.message.body, Left)]
    assert left.receiver == "north"
    sent = tell(coordinator, "north", Count(5), 1)
    assert bodies(sent) == {"north": Step(5, SLOPE)}  # 5 of north and none of south; α/m as before
    sent = tell(coordinator, "north", Count(5), 2)
    assert coordinator.outcome.n_tests == 10
    assert coordinator.outcome.dropped == ("south",)
    assert coordinator.outcome.n_rejected == 5


def test_it_ends_when_nobody_is_left():
    coordinator = gathered()
    coordinator.drop("north")
    coordinator.drop("south")
    assert "nobody is left" in str(coordinator.error)
