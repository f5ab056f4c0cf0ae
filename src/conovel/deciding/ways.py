"""Which way of learning and which way of deciding a regime is, and what the pair promises.

A new way is one more line in :data:`LEARNING` or :data:`DECIDING`, and a regime that names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from conovel.deciding.base import Deciding
from conovel.deciding.counts import COUNTS
from conovel.deciding.isolated import ISOLATED, POOLED
from conovel.deciding.masked_cells import CELLS
from conovel.deciding.types import TYPES
from conovel.learning.alone import ALONE, POOLED_ROWS
from conovel.learning.base import EXCHANGEABLE, Learning
from conovel.learning.consensus.way import CONSENSUS
from conovel.learning.exchange import BLOCKS, EXCHANGE
from conovel.learning.together.way import TOGETHER
from conovel.spec.guarantee import NO_REACTION, SAME_SETTINGS, Guarantee
from conovel.spec.regimes import Regime
from conovel.spec.run_spec import RunSpec
from conovel.stats.repeats import run_level

LEARNING: Mapping[str, Learning] = MappingProxyType(
    {way.name: way for way in (ALONE, EXCHANGE, BLOCKS, TOGETHER, CONSENSUS, POOLED_ROWS)}
)
DECIDING: Mapping[str, Deciding] = MappingProxyType(
    {way.name: way for way in (ISOLATED, COUNTS, CELLS, TYPES, POOLED)}
)
_NEW_NOISE = (
    "The noise of private models is drawn anew in each run: running again is a new attempt, and"
    " the bounds of attempts add up unless a run was broken off for reasons that have nothing to"
    " do with the rows."
)

_OF_TOTALS = (
    "which agents decide by themselves, and their numbers of rows in high cells; of each group of"
    " several agents the total of rows in high cells, and in each cell above floors"
)
_PLAIN_NEEDS = (
    "the data of the sites are independent of one another",
    "at each site, the known normals and the normal rows under test are exchangeable, for"
    " instance drawn independently from the same source",
    "scores do not depend on the order of the rows, which conovel ensures",
)


class Ways(NamedTuple):
    """The pair that a regime is a name for."""

    learning: Learning
    deciding: Deciding

    @property
    def needs(self) -> str:
        """What the guarantee assumes."""
        return self.deciding.needs or self.learning.needs

    @property
    def plain_needs(self) -> tuple[str, ...]:
        """What the guarantee assumes, in the words of a report."""
        if self.deciding.plain_needs:
            return self.deciding.plain_needs
        return _PLAIN_NEEDS[self.needs == EXCHANGEABLE :]

    @property
    def peers_learn(self) -> str:
        """What peers learn beyond names and row numbers."""
        learnt = self.learning.models_in_words, self.deciding.peers_learn
        return "; ".join(filter(None, learnt)) or "nothing"

    @property
    def coordinator_learns(self) -> str:
        """What the coordinator learns beyond names and row numbers."""
        learnt = self.learning.coordinator_learns, self.deciding.coordinator_learns
        return "; ".join(filter(None, learnt))


def ways_of(regime: Regime) -> Ways:
    """Return the ways of a regime.

    Examples
    --------
    >>> from conovel.spec.regimes import as_regime
    >>> ways = ways_of(as_regime("joint"))
    >>> ways.learning.name, ways.deciding.name
    ('exchange', 'cells')
    """
    return Ways(LEARNING[regime.learning], DECIDING[regime.deciding])


def revealed_by(spec: RunSpec) -> tuple[str, str]:
    """Return what peers and what the coordinator learn in a run with these settings.

    Examples
    --------
    >>> revealed_by(RunSpec.of(regime="together", masks=True))[1].split("; ")[-1]
    'the counts of an agent that decides by itself'
    """
    ways = ways_of(spec.regime)
    if not spec.masks:
        return ways.peers_learn, ways.coordinator_learns
    sums, counts = ways.learning.models_in_words, ways.deciding
    if not spec.hides_counts:
        return ways.peers_learn, f"{sums}; {counts.coordinator_learns}"
    both = f"{sums}; {_OF_TOTALS}"
    return (
        f"{both}; {counts.peers_learn}",
        f"{both}; the counts of an agent that decides by itself",
    )


def network_over_time(spec: RunSpec) -> Guarantee:
    """State the guarantee of a list over several batches of a network."""
    bound = (
        f"FDR over the list of all batches so far and all agents at most {spec.level}, after any"
        " number of batches that is fixed in advance"
    )
    settings = ", ".join(filter(None, [f"and {SAME_SETTINGS}", _if_few_lie(spec)]))
    notes = ["Each batch ran at half the level, and e-BH decided on the evidence of all batches."]
    ways = ways_of(spec.regime)
    if ways.deciding.false_alarm:
        notes.append(
            f"{ways.deciding.false_alarm} Rows that are normal only at agents with too few known"
            " normals to compare with, in the run of their batch, do not count."
        )
    if spec.privacy is not None:
        notes.append(_NEW_NOISE)
    return _of_network(bound, [ways.needs, NO_REACTION, settings], notes)


def _if_few_lie(spec: RunSpec) -> str:
    """Say how many members may lie, where their counts decide for all."""
    if not ways_of(spec.regime).deciding.shares_counts:
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
    ways, alpha, estimator = ways_of(spec.regime), spec.level, spec.pi0
    is_plain = estimator or not ways.deciding.bound_by_nulls or spec.repeats > 1
    whose = "all agents" if not spec.liars else "all members that do not lie"
    bound = f"FDR over all tested rows of {whose} at most {alpha}{'' if is_plain else ' · m0/m'}"
    notes = []
    if spec.liars and not is_plain:
        notes.append("m0 counts the normal rows of members that do not lie, m all tested rows.")
    if ways.deciding.false_alarm:
        notes.append(ways.deciding.false_alarm)
    if uncovered:
        notes.append(
            f"Too few known normals to compare with: {', '.join(sorted(uncovered))}; a row that is"
            " normal only there may be flagged, and the bound does not count it as a false alarm."
        )
    if spec.repeats > 1:
        notes.append(
            f"{spec.repeats} runs with splits of their own, each at level"
            f" {run_level(alpha, spec.averaging)}, gave evidence about every row, and"
            f" {spec.averaging.name} decided on its average. The runs need not be independent."
        )
    if estimator and ways.deciding.shares_counts and not estimator.proven_for_several:
        name = type(estimator).__name__
        notes.append(f"{name} is proven for one site only, so that bound is not proven here.")
    if spec.privacy is not None:
        notes.append(_NEW_NOISE)
    notes.extend(_about_losses(spec, left_out, dropped))
    needs = ways.needs
    if spec.strata:
        within = f"exchangeable within each stratum ({', '.join(spec.strata)})"
        needs = needs.replace("exchangeable", within, 1)
        notes.append(
            "The shares of strata may differ between known normals and tests; rows of strata"
            " without known normals are not tested."
        )
    return _of_network(bound, [needs, _if_few_lie(spec)], notes)


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
        if ways_of(spec.regime).deciding.shares_counts:
            yield "Nobody may have left because of how its own rows were split."
    if dropped:
        yield (
            f"Lost during the counts: {', '.join(sorted(dropped))}; their rows count as tested"
            " and not rejected. Nobody may have been lost because of what others counted."
        )
        if estimator is None or estimator.proven_for_several:
            yield f"Whatever the reason, FDR is at most {spec.level} · (1 + 1/2 + … + 1/m)."
