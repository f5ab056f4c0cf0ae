"""How the known normals of each stratum are divided: a rule of numbers of rows.

Strata are blocks (docs/theory.md#thm-strata). In a group a calibration row counts the same in all
blocks: w = the largest m_s/(ℓ_s + 1). So a stratum keeps no more calibration rows than w asks for,
and trains on others, as many as its share of the mixture asks for. At one site strata are divided
into groups, as agents are in a network. The strata of an agent of a network are in one group.
There one stratum with many tests and few known normals would raise w for all; where that costs
more than it can bring, its rows are not tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from conovel.spec.grouping import DISCOVERIES, Planned, best_stops
from conovel.spec.training import MAX_TRAIN_ROWS, Numbers, needed_calibration

# A stratum trains on at most so many times the rows of the stratum that has fewest for its share
# of the mixture (docs/results/strata.md).
_MOST_UNEVEN = 2
# The stratum with fewest known normals for its tests decides w: half of them calibrate.
_MOST_TRAIN = Fraction(1, 2)


class StratumPlan(NamedTuple):
    """How many known normals of a stratum train and calibrate; the others are not used."""

    n_train: int
    n_calibration: int  # none if it is not tested
    group: int = -1  # with which strata it calibrates; -1 if it is not tested

    @property
    def is_tested(self) -> bool:
        """Whether its test rows are tested."""
        return self.group >= 0


def plan_strata(
    sizes: Sequence[Numbers],
    share: Fraction,
    level: Fraction,
    *,
    n_agents: int = 1,
    weight: Fraction = Fraction(0),
    is_fixed: bool = False,
    most: int = MAX_TRAIN_ROWS,
) -> list[StratumPlan]:
    """Divide the known normals of each stratum, and say which strata are tested.

    Nothing but numbers of rows is looked at.

    Proof: Theorem 22 (docs/theory.md#thm-strata).

    Parameters
    ----------
    sizes : sequence of Numbers
        Known normals and tests of each stratum.
    share : Fraction
        The share of known normals that trains, by the rule for all of them together.
    level : Fraction
    n_agents : int
        How many agents decide together; the others are taken to be like this one. With one,
        strata may be in several groups.
    weight : Fraction
        Of the agent's group, zero where no other is in it.
    is_fixed : bool
        Whether the user chose the share. Then every stratum keeps to it.
    most : int
        How many rows train at most.

    Examples
    --------
    >>> sizes = [Numbers(4200, 120), Numbers(1200, 180), Numbers(600, 300), Numbers(0, 9)]
    >>> for plan in plan_strata(sizes, Fraction(1, 2), Fraction(1, 10), n_agents=3):
    ...     print(*plan)
    240 120 0
    360 180 0
    300 300 0
    0 0 -1
    """
    if not is_fixed:
        share = min(share, _MOST_TRAIN)
    kept = [n - min(int(share * n), max(n - 1, 0)) if m else 0 for n, m in sizes]
    blocks = [Planned(m, k) for (_, m), k in zip(sizes, kept, strict=True)]
    groups = (
        divide_strata(blocks, level) if n_agents == 1 else [_worth_most(blocks, level, n_agents)]
    )
    if not is_fixed:
        kept = _needed(blocks, groups, weight)
    places = {s: g for g, group in enumerate(groups) for s in group}
    trains = [n - kept[s] if s in places else 0 for s, (n, _) in enumerate(sizes)]
    if not is_fixed and places:
        trains = balanced(trains, {s: kept[s] + sizes[s].n_test for s in places})
    if (total := sum(trains)) > most:
        trains = [n * most // total for n in trains]
    return [
        StratumPlan(trains[s], kept[s], places[s]) if s in places else StratumPlan(trains[s], 0)
        for s in range(len(sizes))
    ]


def plan_batch(
    sizes: Sequence[Numbers], trains: Sequence[int], level: Fraction
) -> list[StratumPlan]:
    """Say which strata of a batch a kept detector tests, and how many rows of each calibrate.

    Proof: Theorem 22 (docs/theory.md#thm-strata).
    """
    blocks = [Planned(one.n_test, one.n_null - k) for one, k in zip(sizes, trains, strict=True)]
    groups = divide_strata(blocks, level)
    kept = _needed(blocks, groups, Fraction(0))
    plan = [StratumPlan(k, 0) for k in trains]
    for g, group in enumerate(groups):
        for s in group:
            plan[s] = StratumPlan(trains[s], kept[s], g)
    return plan


def _needed(
    blocks: Sequence[Planned], groups: Sequence[Sequence[int]], weight: Fraction
) -> list[int]:
    """Say how many rows of each stratum calibrate: in a group no more than its w asks for."""
    kept = [block.n_calibration for block in blocks]
    for group in groups:
        if len(group) > 1 or weight:
            w = max([weight, *(blocks[s].weight for s in group)])
            for s in group:
                kept[s] = min(kept[s], needed_calibration(blocks[s].n_test, w))
    return kept


def balanced(trains: Sequence[int], mixture: Mapping[int, int]) -> list[int]:
    """Let no stratum train on many more rows than its share of the mixture.

    A score tells known normals from the mixture. Where a stratum is rare among the ones and
    frequent in the other, it learns the stratum and not the novelties.
    """
    least = min(Fraction(trains[s], n) for s, n in mixture.items())
    most = {s: int(_MOST_UNEVEN * least * n) for s, n in mixture.items()}
    return [min(n, most.get(s, 0)) for s, n in enumerate(trains)]


def divide_strata(blocks: Sequence[Planned], level: Fraction) -> list[list[int]]:
    """Divide the strata of one site into groups, those without tests or normals left out.

    Proof: Theorem 12 (docs/theory.md#thm-groups), Theorem 22 (docs/theory.md#thm-strata).
    """
    order = _by_weight(blocks)
    stops = best_stops([blocks[s] for s in order], level)
    return [sorted(order[start:stop]) for start, stop in zip([0, *stops], stops, strict=False)]


def _worth_most(blocks: Sequence[Planned], level: Fraction, n_agents: int) -> list[int]:
    """Return which strata are tested, if all that are tested are in one group.

    The first ones by w_s are taken. M tests at the weight w are worth M sqrt(1 - w/(α ν M)), as
    in :func:`conovel.spec.grouping.best_stops`; of several that are worth as much, the most. All
    are taken where none are worth anything.
    """
    order = _by_weight(blocks)
    best, stop, n_tests = Fraction(0), len(order), 0
    for place, s in enumerate(order, 1):
        n_tests += n_agents * blocks[s].n_test
        square = n_tests * (n_tests - blocks[s].weight / (level * DISCOVERIES))
        if square >= best and square > 0:
            best, stop = square, place
    return sorted(order[:stop])


def _by_weight(blocks: Sequence[Planned]) -> list[int]:
    some = [s for s, block in enumerate(blocks) if block.n_test and block.n_calibration]
    return sorted(some, key=lambda s: (blocks[s].weight, s))
