"""The limits of a site: each allows what it says, refuses one more, and names the way out."""

from fractions import Fraction

import pytest
from support.fake_link import forge
from support.terms import make_terms

from conovel.errors import InputError
from conovel.federation.consent import NONE, Limits
from conovel.federation.exposure import EpsilonSpent, RunsSpent
from conovel.protocol.messages import decode
from conovel.site.blocks import TrainingRows
from conovel.spec.bodies import COORDINATOR, Left, Outcome, Roster, Start
from conovel.spec.schema import Schema

AGENTS = ("north", "south", "west")


def terms(agents=AGENTS, **settings):
    return make_terms(agents, **({"regime": "full"} | settings))


def message(body):
    return decode(forge(COORDINATOR, "north", body))


# The limits themselves ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits",
    [
        {"regimes": "full"},
        {"max_level": "1"},
        {"min_agents": 1},
        {"min_agents": True},
        {"max_bytes_in": 0},
        {"max_seconds": float("nan")},
        {"min_train_share": "2"},
        {"reveal_to": "everybody"},
        {"reveal_to": ["members"]},
        {"max_bits": 17},
        {"max_bits": "high"},
        {"model_families": ["pickle"]},
        {"model_families": "forest"},
        {"composites": ["sum"]},
        {"min_group_rows": 0},
        {"masks": 1},
        {"max_sum_rounds": 0},
        {"max_bins": 0},
        {"max_trees": "many"},
        {"min_leaf_rows": 0},
        {"max_peer_share": -1},
        {"max_epsilon": 0},
        {"max_epsilon": True},
    ],
)
def test_a_limit_that_means_nothing_is_named(limits):
    [name] = limits
    with pytest.raises(InputError) as error:
        Limits(**limits)
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"regimes": ["pooled"]}, "'pooled' pools raw rows"),
        ({"regimes": ["other"]}, "'other'"),
        ({"min_liars": -1}, "liars must be"),
    ],
)
def test_a_limit_is_one_that_a_run_could_have(limits, words):
    with pytest.raises(InputError, match=words):
        Limits(**limits)


def test_what_reveals_more_must_be_named():
    assert not {"joint", "consensus", "pooled"} & set(Limits().regimes)
    assert not {"max", "min"} & set(Limits().composites)
    assert Limits().reveal_to == "coordinator"


def test_equal_limits_are_equal_however_they_are_written():
    assert Limits(max_level=0.25, min_train_share="0.5") == Limits(
        max_level="1/4", min_train_share="1/2"
    )
    assert Limits(max_epsilon="0.5").max_epsilon == "1/2"
    assert Limits().own_group_rows is None
    assert Limits(min_group_rows=7).own_group_rows == 7


# The terms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "asked", "words"),
    [
        ({"max_level": "1/10"}, {"level": 0.1}, ""),
        ({"max_level": "1/10"}, {"level": "101/1000"}, "level 101/1000 is above the 1/10"),
        ({"max_seconds": 60}, {"run_seconds": 60}, ""),
        ({"max_seconds": 60}, {"run_seconds": 61}, "a run of up to 61 s is too long"),
        ({"min_agents": 3}, {}, ""),
        ({"min_agents": 4}, {}, "a run of 3 agents is too small: this site asks for 4"),
        ({}, {"composite": "max"}, "the site adds 'max' to composites"),
        ({}, {"composite": "max", "regime": "counts"}, ""),  # no models to combine
        ({"composites": ["max"]}, {"composite": "max"}, ""),
        ({"min_liars": 1}, {"liars": 0}, "tolerates 0 lying members is refused"),
        ({"min_liars": 1}, {"liars": 1, "counting": "committed"}, ""),
        ({"min_liars": 1}, {"regime": "isolated"}, ""),  # no counts to lie about
        ({}, {"counting": "committed", "reveal_to": "members"}, "revealed to all members"),
        ({"reveal_to": "members"}, {"counting": "committed", "reveal_to": "members"}, ""),
        ({"reveal_to": "members"}, {"counting": "committed"}, ""),
        ({}, {"regime": "together"}, "the coordinator would see sums over its rows"),
        ({}, {"regime": "together", "masks": True}, ""),
        ({"masks": False}, {"regime": "together"}, ""),
        ({"max_sum_rounds": 31}, {"regime": "together", "masks": True}, ""),
        ({"max_sum_rounds": 30}, {"regime": "together", "masks": True}, "31 rounds of sums"),
        ({"max_bins": 20}, {"regime": "together", "masks": True}, "bins of a column"),
        ({"max_trees": 199}, {"regime": "together", "masks": True}, "200 trees"),
        ({"min_leaf_rows": 6}, {"regime": "together", "masks": True}, "it asks for 6"),
        ({"max_trees": 1, "min_leaf_rows": 99}, {"regime": "counts"}, ""),  # grows no trees
    ],
)
def test_terms_are_taken_up_to_the_limit(limits, asked, words):
    named = {"regimes": ["together"]} if asked.get("regime") == "together" else {}
    objection = Limits(**named, **limits).objection(terms(**asked))
    assert words in objection
    assert bool(objection) is bool(words)


def test_a_list_is_judged_by_the_level_it_promises():
    """A run of a list has half the level of the list."""
    asked = terms(regime="counts", level=0.1, list_name="alarms")
    assert Limits(max_level="1/5").objection(asked) == ""
    assert "level 1/5 is above" in Limits(max_level="1/10").objection(asked)


def test_a_site_takes_its_own_schema_and_no_other():
    own, other = (Schema.from_dict({"a": {"kind": "number", "high": h}}) for h in (1, 2))
    asked = terms(schema=own)
    assert Limits.objection_to_schema(asked, own) == ""
    assert "is not the one in its site.toml" in Limits.objection_to_schema(asked, other)
    assert "is not the one in its site.toml" in Limits.objection_to_schema(asked, None)
    assert Limits.objection_to_schema(terms(), None) == ""


# The rows and what was spent ---------------------------------------------------------------------


def rows(n_train, n_null=100):
    return TrainingRows(n_null, n_train, n_train, 60, 100_000)


@pytest.mark.parametrize(("n_train", "is_refused"), [(90, False), (91, True)])
def test_counts_need_calibration_rows(n_train, is_refused):
    limits = Limits(min_calibration_rows=10)
    several = [rows(50), rows(n_train)]  # the fewest decide
    words, numbers = limits.objection_to_calibration(terms(regime="counts"), several)
    assert ("fewer than 10 of its known normals would calibrate" in words) is is_refused
    assert numbers == ("9 would calibrate" if is_refused else "")
    assert limits.objection_to_calibration(terms(regime="isolated"), several) == NONE


@pytest.mark.parametrize(
    ("last_day", "same_data", "name"),
    [(1, 2, ""), (2, 0, "max_runs_per_day"), (0, 3, "max_runs_per_data")],
)
def test_runs_are_numbered(last_day, same_data, name):
    limits = Limits(max_runs_per_day=2, max_runs_per_data=3)
    words, numbers = limits.objection_to_runs(RunsSpent(last_day, same_data))
    assert name in words
    assert bool(words) is bool(numbers) is bool(name)


@pytest.mark.parametrize(
    ("most", "privacy", "spent", "words"),
    [
        ("none", None, EpsilonSpent(), ""),
        ("8", None, EpsilonSpent(), "with differential privacy only"),
        ("8", "4,1e-9", EpsilonSpent(Fraction(4)), ""),
        ("8", "4,1e-9", EpsilonSpent(Fraction(5)), "agrees to spend of ε is spent"),
        ("8", "4,1e-9", EpsilonSpent(n_open=1), "agrees to spend of ε is spent"),
        ("none", "4,1e-9", EpsilonSpent(n_open=1), ""),
        ("none", "4,1/1000", EpsilonSpent(), "is too large for its number of rows"),
        ("none", "4,1/1001", EpsilonSpent(), ""),
        ("none", "4,1/2000", EpsilonSpent(delta=Fraction(1, 2000)), "is too large for its number"),
    ],
)
def test_epsilon_and_delta_add_up_over_runs(most, privacy, spent, words):
    asked = terms(privacy=privacy)
    objection, _ = Limits(max_epsilon=most).objection_to_epsilon(asked, spent, n_rows=1000)
    assert words in objection
    assert bool(objection) is bool(words)


def test_sums_cost_epsilon_as_models_do():
    spent, site = EpsilonSpent(), Limits(max_epsilon=3)
    said, _ = site.objection_to_epsilon(terms(regime="together"), spent, n_rows=1000)
    assert "with differential privacy only" in said
    asked = terms(regime="together", privacy="2,1e-9")
    assert site.objection_to_epsilon(asked, spent, n_rows=1000) == NONE
    said, _ = site.objection_to_epsilon(asked, EpsilonSpent(Fraction(2)), n_rows=1000)
    assert "is spent" in said


def test_no_model_costs_no_epsilon():
    spent = EpsilonSpent(Fraction(100))
    assert Limits(max_epsilon=1).objection_to_epsilon(terms(regime="counts"), spent, 10) == NONE


# Messages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "n_here", "expected"),
    [
        (Roster(AGENTS, 9, 9), 3, ("", 3)),
        (Roster(("north", "south"), 9, 9), 3, ("a run of 2 agents is too small", 2)),
        (Roster((*AGENTS, "x"), 9, 9), 3, ("x took part without being in the terms", 4)),
        (Left("west"), 4, ("", 3)),
        (Left("west"), 3, ("a run of 2 agents is too small", 2)),
        (Start(AGENTS, 9), 3, ("", 3)),
    ],
)
def test_a_run_that_shrinks_or_grows_is_noticed(body, n_here, expected):
    words, after = Limits(min_agents=3).objection_to(message(body), terms(), n_here)
    assert words.startswith(expected[0])
    assert bool(words) is bool(expected[0])
    assert after == expected[1]


@pytest.mark.parametrize(
    ("body", "regime", "is_refused"),
    [
        (Roster(AGENTS, 9, 30), "counts", False),  # 20 of others for its 10
        (Roster(AGENTS, 9, 31), "counts", True),
        (Start(AGENTS, 30), "counts", False),
        (Start(AGENTS, 31), "counts", True),
        (Roster(AGENTS, 9, 31), "isolated", False),  # nobody's rows touch another's
        (Outcome(0, 31, Fraction(0), 0, AGENTS, (), ()), "counts", False),
    ],
)
def test_others_may_not_outnumber_a_site(body, regime, is_refused):
    limits = Limits(max_peer_share=2)
    words, numbers = limits.objection_to_sizes(message(body), terms(regime=regime), n_test=10)
    assert ("more than 2 test rows for each of its own" in words) is is_refused
    assert numbers == ("21 for its 10" if is_refused else "")
