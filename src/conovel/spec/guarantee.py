"""What is promised, and what the promise rests on: the one author of every guarantee."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from conovel.spec.run_spec import RunSpec
from conovel.stats.null_proportion import NullProportion
from conovel.stats.repeats import run_level


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


def one_site(level: Fraction, pi0: NullProportion | None, repeats: int = 1) -> Guarantee:
    """State the guarantee of AdaDetect at one site (docs/theory.md)."""
    alpha = f"{float(level):g}"
    if repeats > 1:
        statement = (
            f"The expected share of false alarms among the rejected rows is at most {alpha}."
            f" {repeats} runs with splits of their own, each at level"
            f" {float(run_level(level)):g}, gave evidence about every row; e-BH decided on its"
            " average. Exact for every sample size; the runs need not be independent."
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


NO_REACTION = (
    "what arrives later does not react to earlier results, and all batches have the same kind of"
    " normal rows"
)
UNSEEN_ROWS = (
    "no calibration row and no tested row was among the rows that the detector learnt from"
)
SAME_SETTINGS = "no setting was changed because of an earlier list"
_ONE_CALIBRATION = (
    " The bound is an average over calibration samples too: the one that the detector keeps serves"
    " every batch, and with it the share may be larger or smaller."
)
_COMPOSITE = "A row counts as a false alarm if it is normal at any agent, not only its own."
_NEW_NOISE = (
    "The noise of private models is drawn anew in each run: running again is a new attempt, and"
    " the bounds of attempts add up unless a run was broken off for reasons that have nothing to"
    " do with the rows."
)


def kept_score(level: Fraction) -> Guarantee:
    """State the guarantee of a batch that a kept detector tests by itself (docs/theory.md)."""
    plain = one_site(level, None)
    return Guarantee(plain.statement + _ONE_CALIBRATION, (EXCHANGEABLE, UNSEEN_ROWS))


def over_time(level: Fraction, score: str, *, final: bool) -> Guarantee:
    """State the guarantee of a list over several batches (docs/theory.md, "Over time").

    Parameters
    ----------
    level : Fraction
    score : {"kept", "refitted", "network"}
    final : bool
    """
    alpha = f"{float(level):g}"
    if final:
        statement = (
            f"At every time the share of false alarms among all rows flagged so far is expected to"
            f" be at most {alpha}, also at a time chosen by looking at the list. Decisions are"
            " final."
        )
    else:
        times = " times the share of normal rows" if score == "kept" else ""
        whose = " and all agents" if score == "network" else ""
        statement = (
            f"The expected share of false alarms on the list over all batches so far{whose} is at"
            f" most {alpha}{times}, after any number of batches that is fixed in advance. Rows may"
            " join or leave the list later."
        )
    if score == "kept":
        return Guarantee(statement + _ONE_CALIBRATION, (EXCHANGEABLE, NO_REACTION, UNSEEN_ROWS))
    if score == "network":
        needs = "what the runs of the batches need; their regime says what counts as a false alarm"
        return Guarantee(statement, (needs, NO_REACTION, SAME_SETTINGS))
    return Guarantee(statement, (EXCHANGEABLE, NO_REACTION, SAME_SETTINGS, BLIND_SCORER))


def network_over_time(spec: RunSpec) -> Guarantee:
    """State the guarantee of a list over several batches of a network."""
    bound = (
        f"FDR over the list of all batches so far and all agents at most {spec.level}, after any"
        " number of batches that is fixed in advance"
    )
    settings = ", ".join(filter(None, [f"and {SAME_SETTINGS}", _if_few_lie(spec)]))
    notes = ["Each batch ran at half the level, and e-BH decided on the evidence of all batches."]
    if spec.regime.composite_null:
        notes.append(
            f"{_COMPOSITE} Rows that are normal only at agents with too few known normals to"
            " compare with, in the run of their batch, do not count."
        )
    if spec.privacy is not None:
        notes.append(_NEW_NOISE)
    return _of_network(bound, [spec.regime.needs, NO_REACTION, settings], notes)


def _if_few_lie(spec: RunSpec) -> str:
    """Say how many members may lie, where their counts decide for all."""
    if not spec.regime.uses_counts:
        return ""
    if not spec.liars:
        return "if no member lies about its counts"
    return f"if at most {spec.liars} members lie about their counts"


def guarantee(
    spec: RunSpec,
    *,
    left_out: Collection[str] = (),
    dropped: Collection[str] = (),
    uncovered: Collection[str] = (),
) -> Guarantee:
    """State what holds for a finished run of a network, and what it rests on.

    Parameters
    ----------
    spec : RunSpec
        Regime, level and the estimator of the nulls that was used.
    left_out : collection of str
        Agents that vanished before the counts.
    dropped : collection of str
        Agents that vanished during the counts and were counted as zero.
    uncovered : collection of str
        In the regime `consensus`, agents with too few calibration rows to be a type.

    Examples
    --------
    >>> print(guarantee(RunSpec.of(regime="full", level=0.1)))
    FDR over all tested rows of all agents at most 1/10 · m0/m, provided agents are ...
    """
    regime, alpha, estimator = spec.regime, spec.level, spec.pi0
    is_plain = estimator or regime.divides_level or regime.pools_calibration or spec.repeats > 1
    whose = "all agents" if not spec.liars else "all members that do not lie"
    bound = f"FDR over all tested rows of {whose} at most {alpha}{'' if is_plain else ' · m0/m'}"
    notes = []
    if spec.liars and not is_plain:
        notes.append("m0 counts the normal rows of members that do not lie, m all tested rows.")
    if regime.composite_null:
        notes.append(_COMPOSITE)
    if uncovered:
        notes.append(
            f"Too few known normals to compare with: {', '.join(sorted(uncovered))}; a row that is"
            " normal only there may be flagged, and the bound does not count it as a false alarm."
        )
    if spec.repeats > 1:
        notes.append(
            f"{spec.repeats} runs with splits of their own, each at level {run_level(alpha)}, gave"
            " evidence about every row, and e-BH decided on its average. The runs need not be"
            " independent."
        )
    if estimator and regime.uses_counts and not estimator.proven_for_several:
        name = type(estimator).__name__
        notes.append(f"{name} is proven for one site only, so that bound is not proven here.")
    if spec.privacy is not None:
        notes.append(_NEW_NOISE)
    notes.extend(_about_losses(spec, left_out, dropped))
    return _of_network(bound, [regime.needs, _if_few_lie(spec)], notes)


def _of_network(bound: str, assumptions: Iterable[str], notes: Iterable[str]) -> Guarantee:
    """Join a bound, what it needs and what else is to be said about it."""
    needs, rest = [one for one in assumptions if one], " ".join(notes)
    paragraph = f"{bound}, provided {', '.join(needs)}. {rest}".rstrip()
    return Guarantee(f"{bound}. {rest}".rstrip(), tuple(needs), paragraph)


def _about_losses(
    spec: RunSpec, left_out: Collection[str], dropped: Collection[str]
) -> Iterator[str]:
    """Say what holds without the agents that vanished (docs/theory.md, Theorems 8 and 9)."""
    estimator = spec.pi0
    if left_out:
        yield (
            f"Left out before the counts: {', '.join(sorted(left_out))}; their rows are neither"
            " tested nor counted, and the bound is about the other agents."
        )
        if spec.regime.uses_counts:
            yield "Nobody may have left because of how its own rows were split."
    if dropped:
        yield (
            f"Lost during the counts: {', '.join(sorted(dropped))}; their rows count as tested"
            " and not rejected. Nobody may have been lost because of what others counted."
        )
        if estimator is None or estimator.proven_for_several:
            yield f"Whatever the reason, FDR is at most {spec.level} · (1 + 1/2 + … + 1/m)."
