"""What is promised, and what the promise rests on: the one author of every guarantee."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from conovel.stats.conditional import long_run
from conovel.stats.null_proportion import NullProportion
from conovel.stats.repeats import ALONE, Averaging, run_level
from conovel.stats.words import joined


@dataclass(frozen=True)
class Guarantee:
    """A statement and its assumptions, in words a user can check.

    Attributes
    ----------
    statement : str
        What holds.
    assumptions : tuple of str
        What it needs.
    paragraph : str
        Both in one paragraph, for a network; ``str()`` gives it.

    See Also
    --------
    conovel.Detection : Holds the one of a detection.
    conovel.NetworkRun : Holds the one of a network.
    """

    statement: str
    assumptions: tuple[str, ...]
    paragraph: str = field(default="", repr=False)

    def __str__(self) -> str:
        if self.paragraph:
            return self.paragraph
        return "\n".join([self.statement, *(f"  needs: {a}" for a in self.assumptions)])


EXCHANGEABLE = (
    "the known normals and the normal test rows are exchangeable (e.g. drawn independently"
    " from the same source)"
)
BLIND_SCORER = (
    "the scorer is deterministic given its rows and seed (conovel hides from it which rows"
    " are calibration rows)"
)


def one_site(
    level: Fraction, pi0: NullProportion | None, repeats: int = 1, rule: Averaging = ALONE
) -> Guarantee:
    """State the guarantee of AdaDetect at one site (docs/theory.md).

    With `repeats`, `rule` says how the runs decide together.
    """
    alpha = f"{float(level):g}"
    if repeats > 1:
        statement = (
            f"The expected share of false alarms among the rejected rows is at most {alpha}."
            f" {repeats} runs with splits of their own, each at level"
            f" {float(run_level(level, rule)):g}, gave evidence about every row; {rule.name}"
            " decided on its average. Exact for every sample size; the runs need not be"
            " independent."
        )
    elif pi0 is None:
        statement = (
            f"The expected share of false alarms among the rejected rows is at most {alpha}"
            " times the share of normal rows in the test sample. Exact for every sample"
            " size; ties are allowed."
        )
    elif pi0.proven_for_several:
        statement = (
            f"The expected share of false alarms among the rejected rows is at most {alpha},"
            " with the share of normal rows estimated (Storey). Proven for one site and for"
            " several."
        )
    else:
        statement = (
            f"The expected share of false alarms among the rejected rows is at most {alpha},"
            " with the share of normal rows estimated (quantile). Proven for one site; not"
            " proven for several."
        )
    return Guarantee(statement, (EXCHANGEABLE, BLIND_SCORER))


def within_strata(
    level: Fraction, columns: Sequence[str], repeats: int = 1, *, is_kept: bool = False
) -> Guarantee:
    """State the guarantee of one site whose rows are compared within strata (docs/theory.md)."""
    which = joined([f"'{name}'" for name in columns])
    runs = "" if repeats == 1 else f" {repeats} runs gave evidence, and its average decided."
    statement = (
        "The expected share of false alarms among the rejected rows is at most"
        f" {float(level):g}, whatever the shares of strata ({which}) are among known normals and"
        f" among tests. Exact for every sample size; ties are allowed.{runs}"
    )
    if is_kept:
        return Guarantee(statement + _ONE_CALIBRATION, (EXCHANGEABLE_WITHIN, UNSEEN_ROWS))
    return Guarantee(statement, (EXCHANGEABLE_WITHIN, BLIND_SCORER))


EXCHANGEABLE_WITHIN = (
    "within each stratum, the known normals and the normal test rows are exchangeable (e.g. drawn"
    " independently from the same source)"
)

LOTS = (
    "equal scores were ordered at random, by a seed that does not depend on the rows and that"
    " nobody chose after seeing a result; so equal rows may get different answers"
)


def with_lots(guarantee: Guarantee) -> Guarantee:
    """Add what a guarantee needs where ties are broken at random (docs/theory.md)."""
    return Guarantee(guarantee.statement, (*guarantee.assumptions, LOTS))


WEIGHTED = (
    "a normal test row is drawn independently from the distribution of the known normals times its"
    " weight, and the weights were fixed before any of these rows was seen"
)
PRUNED = (
    "rows were pruned by one random number, whose seed does not depend on the rows and that nobody"
    " chose after seeing a result"
)
ESTIMATED = (
    "the estimated weights are right: how normal tests differ from the known normals has the form"
    " exp(a + b·x), and novelties among the tests do not bend the estimate"
)


def weighted(level: Fraction, *, estimated: bool) -> Guarantee:
    """State the guarantee of one site with weights (docs/theory.md#thm-weights)."""
    plain = one_site(level, None)
    if not estimated:
        return Guarantee(plain.statement, (WEIGHTED, BLIND_SCORER, PRUNED))
    statement = (
        "Approximate: the weights are estimated from the same rows, and no bound is proven for"
        " that. If they were right, the expected share of false alarms among the rejected rows"
        f" would be at most {float(level):g} times the share of normal rows in the test sample."
    )
    return Guarantee(statement, (ESTIMATED, BLIND_SCORER, PRUNED))


def with_needs(guarantee: Guarantee, needs: Iterable[str]) -> Guarantee:
    """Add what scorers need that do not learn here."""
    added = [one for one in dict.fromkeys(needs) if one]
    if not added:
        return guarantee
    paragraph = guarantee.paragraph and f"{guarantee.paragraph} It needs that {'; '.join(added)}."
    return Guarantee(guarantee.statement, (*guarantee.assumptions, *added), paragraph)


UNSPENT = (
    "the known normals that calibrate are exchangeable with the normal test rows given all earlier"
    " batches, decisions and verdicts: they were collected apart from them"
)


def with_verdicts(guarantee: Guarantee) -> Guarantee:
    """Add what a guarantee needs where verdicts have trained the score (docs/theory.md)."""
    return Guarantee(guarantee.statement, (*guarantee.assumptions, UNSPENT))


def this_list(mean: Guarantee, level: Fraction, confidence: Fraction, liars: int = 0) -> Guarantee:
    """State the guarantee of a list that a certificate chose (docs/theory.md#thm-certificate).

    It needs what the guarantee on average needs.
    """
    whose = " of honest agents" if liars else ""
    statement = (
        f"With a probability of at least {float(confidence):g}, at most {float(level):g} of the"
        f" rejected rows{whose} on this very list are false alarms. Exact for every sample size;"
        " ties are allowed."
    )
    return Guarantee(statement, mean.assumptions)


NO_REACTION = (
    "what arrives later does not react to earlier results, and all batches have the same kind of"
    " normal rows"
)
UNSEEN_ROWS = (
    "no calibration row and no tested row was among the rows that the detector learnt from"
)
INDEPENDENT = (
    "the known normals and the normal test rows are drawn independently from the same source"
)
SAME_SETTINGS = "no setting was changed because of an earlier list"
_ONE_CALIBRATION = (
    " The bound is an average over calibration samples too: the one that the detector keeps serves"
    " every batch, and with it the share may be larger or smaller."
)


def kept_score(
    level: Fraction, n_calibration: int | None = None, confidence: Fraction | None = None
) -> Guarantee:
    """State the guarantee of a batch that a kept detector tests by itself (docs/theory.md).

    Without `n_calibration` it does not say how far detectors differ, as results of earlier
    releases do not.
    """
    if confidence is not None:
        alpha, sure = f"{float(level):g}", f"{float(confidence):g}"
        statement = (
            f"With probability {sure} or more this detector has a calibration sample with which"
            " the expected share of false alarms among the rejected rows of a batch is at most"
            f" {alpha} times the share of normal rows in it: in the long run, for batches of"
            " every size. Exact for every sample size; ties are allowed."
        )
        return Guarantee(statement, (INDEPENDENT, UNSEEN_ROWS))
    statement = one_site(level, None).statement + _ONE_CALIBRATION
    rate = None if n_calibration is None else long_run(n_calibration, level)
    if rate is not None:
        statement += (
            f" Of detectors with {n_calibration:,} calibration rows, 90 % flag some row by itself"
            f" {rate}."
        )
    return Guarantee(statement, (EXCHANGEABLE, UNSEEN_ROWS))


def over_time(level: Fraction, score: str, *, final: bool, within: bool = False) -> Guarantee:
    """State the guarantee of a list over several batches (docs/theory.md, "Over time").

    `score` is "kept", "refitted" or "network"; `within`: rows were compared within strata.
    """
    alpha, alike = f"{float(level):g}", EXCHANGEABLE_WITHIN if within else EXCHANGEABLE
    if final:
        statement = (
            f"At every time the share of false alarms among all rows flagged so far is expected to"
            f" be at most {alpha}, also at a time chosen by looking at the list. Decisions are"
            " final."
        )
    else:
        times = " times the share of normal rows" if score == "kept" and not within else ""
        whose = " and all agents" if score == "network" else ""
        statement = (
            f"The expected share of false alarms on the list over all batches so far{whose} is at"
            f" most {alpha}{times}, after any number of batches that is fixed in advance. Rows may"
            " join or leave the list later."
        )
    if score == "kept":
        return Guarantee(statement + _ONE_CALIBRATION, (alike, NO_REACTION, UNSEEN_ROWS))
    if score == "network":
        needs = "what the runs of the batches need; their regime says what counts as a false alarm"
        return Guarantee(statement, (needs, NO_REACTION, SAME_SETTINGS))
    return Guarantee(statement, (alike, NO_REACTION, SAME_SETTINGS, BLIND_SCORER))
