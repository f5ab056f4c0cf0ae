"""Which blocks calibrate together: a rule of numbers of rows, for agents and for strata."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from conovel.spec.training import needed_calibration
from conovel.stats.cells import USUAL_ROOM

# The share of all tests that is expected to be rejected: groups are worth most at this share.
DISCOVERIES = Fraction(1, 10)


class Planned(NamedTuple):
    """The tests of a block, and the calibration rows that it would keep by itself."""

    n_test: int
    n_calibration: int

    @property
    def weight(self) -> Fraction:
        """The ratio m/(ℓ + 1) of the block."""
        return Fraction(self.n_test, self.n_calibration + 1)

    def with_room(self, weight: Fraction) -> int:
        """Return for how many tests there is room above the floor, in a group of that weight."""
        kept = min(self.n_calibration, needed_calibration(self.n_test, weight))
        return min(self.n_test, int(USUAL_ROOM * (kept + 1) // DISCOVERIES))


def best_stops(order: Sequence[Planned], level: Fraction) -> list[int]:
    """Return where the groups of an ascending order end, by dynamic programming.

    Every machine finds the same: a quotient of integers and a root are rounded correctly by
    IEEE 754, and sums are made in a fixed order. Equal values: fewer groups, then the shorter
    last group. A group of several agents never follows a group of the same weight, so that
    weights name such groups.
    """
    weights = [agent.weight for agent in order]
    best: list[tuple[float, int, list[int]]] = [(0.0, 0, [])]  # value, -groups, stops
    for stop in range(1, len(order) + 1):
        weight, with_room, choice = weights[stop - 1], 0, (-1.0, 0, [0])
        for start in reversed(range(stop)):
            with_room += order[start].with_room(weight)
            is_alone = start == stop - 1
            if start and not is_alone and weights[start - 1] == weight:
                continue
            value, groups, stops = best[start]
            value += worth(order[start].n_test if is_alone else with_room, weight, level)
            if (value, groups - 1) > choice[:2]:
                choice = value, groups - 1, [*stops, stop]
        best.append(choice)
    return best[-1][2]


def worth(m: int, weight: Fraction, level: Fraction) -> float:
    """Return m sqrt(max(0, 1 - w/(α ν m))); the root is of a quotient of integers."""
    used = level * DISCOVERIES
    whole = used.numerator * weight.denominator * m
    left = whole - weight.numerator * used.denominator
    return m * math.sqrt(left / whole) if left > 0 else 0.0
