"""Every mode with what it promises, word by word, and the theorem of docs/theory.md behind it."""

from fractions import Fraction
from typing import NamedTuple

import pytest
from support.paths import DOCS

from conovel.deciding.ways import guarantee, network_over_time, ways_of
from conovel.errors import ConovelError
from conovel.spec.guarantee import kept_score, one_site, over_time
from conovel.spec.regimes import REGIMES
from conovel.spec.run_spec import RunSpec, require_listable
from conovel.stats.null_proportion import as_estimator

THEORY = (DOCS / "theory.md").read_text(encoding="utf-8")
LEVEL = Fraction(1, 10)

SHARE = "The expected share of false alarms among the rejected rows is at most 0.1"
TIMES = " times the share of normal rows"
EXACT = f"{SHARE}{TIMES} in the test sample. Exact for every sample size; ties are allowed."
ESTIMATED = f"{SHARE}, with the share of normal rows estimated"
KEPT = (
    " The bound is an average over calibration samples too: the one that the detector keeps serves"
    " every batch, and with it the share may be larger or smaller."
)
FIXED = ", after any number of batches that is fixed in advance"
MAY_CHANGE = f"{FIXED}. Rows may join or leave the list later."
ON_LIST = "The expected share of false alarms on the list over all batches so far"
FINAL = (
    "At every time the share of false alarms among all rows flagged so far is expected to be at"
    " most 0.1, also at a time chosen by looking at the list. Decisions are final."
)

EXCHANGEABLE = (
    "the known normals and the normal test rows are exchangeable (e.g. drawn independently from"
    " the same source)"
)
SCORER = (
    "the scorer is deterministic given its rows and seed (conovel hides from it which rows are"
    " calibration rows)"
)
UNSEEN = "no calibration row and no tested row was among the rows that the detector learnt from"
NO_REACTION = (
    "what arrives later does not react to earlier results, and all batches have the same kind of"
    " normal rows"
)
SETTINGS = "no setting was changed because of an earlier list"
RUNS = "what the runs of the batches need; their regime says what counts as a false alarm"


class Mode(NamedTuple):
    promised: object
    statement: str
    assumptions: tuple[str, ...]
    theorem: str


ONE_SITE = {
    "plain": Mode(one_site(LEVEL, None), EXACT, (EXCHANGEABLE, SCORER), "Theorem 2"),
    "storey": Mode(
        one_site(LEVEL, as_estimator("storey")),
        f"{ESTIMATED} (Storey). Proven for one site and for several.",
        (EXCHANGEABLE, SCORER),
        "Theorem 6",
    ),
    "quantile": Mode(
        one_site(LEVEL, as_estimator("quantile")),
        f"{ESTIMATED} (quantile). Proven for one site; not proven for several.",
        (EXCHANGEABLE, SCORER),
        "Theorem 7",
    ),
    "repeats": Mode(
        one_site(LEVEL, None, 3),
        f"{SHARE}. 3 runs with splits of their own, each at level 0.06, gave evidence about every"
        " row; closed e-BH decided on its average. Exact for every sample size; the runs need not"
        " be independent.",
        (EXCHANGEABLE, SCORER),
        "Lemma 9",
    ),
    "kept detector": Mode(kept_score(LEVEL), EXACT + KEPT, (EXCHANGEABLE, UNSEEN), "Theorem 13"),
    "list, kept": Mode(
        over_time(LEVEL, "kept", final=False),
        f"{ON_LIST} is at most 0.1{TIMES}{MAY_CHANGE}{KEPT}",
        (EXCHANGEABLE, NO_REACTION, UNSEEN),
        "Theorem 13",
    ),
    "list, refitted": Mode(
        over_time(LEVEL, "refitted", final=False),
        f"{ON_LIST} is at most 0.1{MAY_CHANGE}",
        (EXCHANGEABLE, NO_REACTION, SETTINGS, SCORER),
        "Theorem 14",
    ),
    "list, a site of a network": Mode(
        over_time(LEVEL, "network", final=False),
        f"{ON_LIST} and all agents is at most 0.1{MAY_CHANGE}",
        (RUNS, NO_REACTION, SETTINGS),
        "Theorem 14",
    ),
    "final, kept": Mode(
        over_time(LEVEL, "kept", final=True),
        FINAL + KEPT,
        (EXCHANGEABLE, NO_REACTION, UNSEEN),
        "Theorem 15",
    ),
    "final, refitted": Mode(
        over_time(LEVEL, "refitted", final=True),
        FINAL,
        (EXCHANGEABLE, NO_REACTION, SETTINGS, SCORER),
        "Theorem 15",
    ),
}


@pytest.mark.parametrize("mode", ONE_SITE)
def test_what_one_site_is_promised(mode):
    promised, statement, assumptions, theorem = ONE_SITE[mode]
    assert (promised.statement, promised.assumptions) == (statement, assumptions)
    assert f"{{admonition}} {theorem} (" in THEORY


# Networks: every regime with every feature ---------------------------------------------------

OWN_NULLS = (
    "each agent's nulls are exchangeable given its novelties and its scores do not depend on the"
    " order of its rows"
)
NEEDS = dict.fromkeys(REGIMES, f"agents are independent, {OWN_NULLS}") | {
    "isolated": OWN_NULLS,
    "pooled": "the nulls of all agents together are exchangeable given the novelties",
    "consensus": "a row that is normal at some agent is exchangeable with that agent's calibration"
    " rows, given all other rows, all agents hold their columns in the same number format, and how"
    " columns become numbers was fixed before any of these rows was read",
}
COUNTING = ("counts", "split", "full", "joint", "together", "consensus")
OTHERS = ", if no member lies about its counts"
FALSE = " A row counts as a false alarm if it is normal at any agent, not only its own."
NOISE = (
    " The noise of private models is drawn anew in each run: running again is a new attempt, and"
    " the bounds of attempts add up unless a run was broken off for reasons that have nothing to"
    " do with the rows."
)
FEATURES = {
    "plain": ({}, ""),
    "storey": ({"pi0": "storey"}, ""),
    "quantile": (
        {"pi0": "quantile"},
        " Quantile is proven for one site only, so that bound is not proven here.",
    ),
    "repeats": (
        {"repeats": 3},
        " 3 runs with splits of their own, each at level 1/25, gave evidence about every row, and"
        " e-BH decided on its average. The runs need not be independent.",
    ),
    "liars": (
        {"liars": 1},
        " m0 counts the normal rows of members that do not lie, m all tested rows.",
    ),
    "privacy": ({"privacy": 4}, NOISE),
    "an agent lost": (
        {"on_dropout": "conservative"},
        " Lost during the counts: west; their rows count as tested and not rejected. Nobody may"
        " have been lost because of what others counted. Whatever the reason, FDR is at most 1/10"
        " · (1 + 1/2 + … + 1/m).",
    ),
    "list": ({}, ""),
}
REFUSED, UNPROVEN = "refused", "not proven"
THEOREMS = {
    "isolated": {
        "plain": "Lemma 4",
        "storey": "Theorem 6",
        "quantile": "Theorem 7",
        "repeats": "Lemma 9",
        "an agent lost": "Theorem 8",
    },
    "counts": {
        "plain": "Theorem 2",
        "storey": "Theorem 6",
        "quantile": UNPROVEN,
        "repeats": "Lemma 9",
        "liars": "Theorem 17",
        "an agent lost": "Theorem 8",
        "list": "Theorem 14",
    },
    "pooled": {
        "plain": "Theorem 2",
        "storey": "Theorem 6",
        "quantile": "Theorem 7",
        "repeats": "Lemma 9",
        "an agent lost": "Theorem 8",  # a simulation in which nobody can be lost
    },
    "split": {
        "plain": "Proposition 2",
        "storey": "Theorem 6",
        "quantile": UNPROVEN,
        "liars": "Theorem 17",
        "privacy": "Proposition 2",
        "an agent lost": "Theorem 8",
        "list": "Theorem 14",
    },
    "conservative": {
        "plain": "Proposition 3",
        "storey": "Theorem 6",
        "quantile": "Theorem 7",
        "repeats": "Lemma 9",
        "privacy": "Proposition 3",
        "an agent lost": "Theorem 8",
    },
    "full": {
        "plain": "Theorem 5",
        "storey": "Theorem 6",
        "quantile": UNPROVEN,
        "repeats": "Lemma 9",
        "liars": "Theorem 17",
        "privacy": "Theorem 5",
        "an agent lost": "Theorem 8",
        "list": "Theorem 14",
    },
    "joint": {
        "plain": "Theorem 12",
        "repeats": "Lemma 9",
        "liars": "Theorem 18",
        "privacy": "Theorem 12",
        "list": "Theorem 14",
    },
    "together": {
        "plain": "Theorem 19",
        "repeats": "Lemma 9",
        "liars": "Theorem 18",
        "privacy": "Theorem 12",
        "list": "Theorem 14",
    },
    "consensus": {"plain": "Theorem 16", "repeats": "Lemma 9", "list": "Theorem 14"},
}


def expected(regime, feature):
    """What a network is promised, in the words of the tables above."""
    said, whose, lies = FEATURES[feature][1], "all agents", OTHERS if regime in COUNTING else ""
    false = FALSE if regime == "consensus" else ""
    if feature == "list":
        uncovered = (
            " Rows that are normal only at agents with too few known normals to compare with, in"
            " the run of their batch, do not count."
        )
        return (
            f"FDR over the list of all batches so far and all agents at most 1/10{FIXED}, provided"
            f" {NEEDS[regime]}, {NO_REACTION}, and {SETTINGS}{lies}. Each batch ran at half the"
            " level, and e-BH decided on the evidence of all batches."
            f"{false + uncovered if false else ''}"
        )
    if feature == "liars":
        whose, lies = (
            "all members that do not lie",
            ", if at most 1 members lie about their counts",
        )
        said = "" if regime in ("joint", "together") else said
    if regime not in COUNTING and feature in ("quantile", "an agent lost"):
        said = ""
    if regime in ("isolated", "conservative"):
        said = said.replace("1/25", "3/50").replace("e-BH", "closed e-BH")
    alone = regime in ("isolated", "conservative", "joint", "together", "consensus")
    bound = "1/10" if alone or feature in ("storey", "quantile", "repeats") else "1/10 · m0/m"
    head = f"FDR over all tested rows of {whose} at most {bound}, provided {NEEDS[regime]}{lies}."
    return head + false + said


def promised(regime, feature):
    """What the package says, or None if it refuses the mode."""
    try:
        spec = RunSpec.of(regime=regime, **FEATURES[feature][0])
        if feature == "list":
            require_listable(spec)
            return str(network_over_time(spec))
    except ConovelError:
        return None
    lost = (
        ["west"]
        if feature == "an agent lost" and ways_of(spec.regime).deciding.shares_counts
        else []
    )
    return str(guarantee(spec, dropped=lost))


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("regime", REGIMES)
def test_what_a_network_is_promised(regime, feature):
    theorem, said = THEOREMS[regime].get(feature, REFUSED), promised(regime, feature)
    assert (said is None) is (theorem == REFUSED)
    if said is None:
        return
    assert said == expected(regime, feature)
    assert ("not proven" in said) is (theorem == UNPROVEN)
    if theorem != UNPROVEN:
        assert f"{{admonition}} {theorem} (" in THEORY


def test_agents_that_are_no_types_and_agents_that_left_are_named():
    spec = RunSpec.of(regime="consensus")
    assert str(guarantee(spec, uncovered=["west"])) == expected("consensus", "plain") + (
        " Too few known normals to compare with: west; a row that is normal only there may be"
        " flagged, and the bound does not count it as a false alarm."
    )
    assert str(guarantee(RunSpec.of(regime="full"), left_out=["west"])) == expected(
        "full", "plain"
    ) + (
        " Left out before the counts: west; their rows are neither tested nor counted, and the"
        " bound is about the other agents. Nobody may have left because of how its own rows were"
        " split."
    )


def test_a_private_list_says_that_running_again_is_a_new_attempt():
    said = str(network_over_time(RunSpec.of(regime="joint", privacy=4)))
    assert said == expected("joint", "list") + NOISE
