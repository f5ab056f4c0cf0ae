"""The agents of a group by their numbers of rows: who takes part, and how much level is left.

A group of several agents decides at the level a = α(1 - x). Here x is the largest h_j/(ℓ_j + 1)
of its agents. h_j bounds how many of the ℓ_j calibration rows of an agent and one of its test rows
can lie at or above a threshold at which rows are rejected (Theorem 10 of docs/theory.md). There
are κ_j mixture rows of the agent above its floor, so h_j = κ_j will do. But many calibration rows
above a threshold need many rejections, and there are only so many tests. So often less will do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import NamedTuple


class Member(NamedTuple):
    """One agent of a group: all its tests and calibration rows, and those above its floor."""

    n_test: int
    n_calibration: int
    n_above: int  # the number κ_j of all mixture rows at or above the floor, or a bound on it

    @property
    def takes_part(self) -> bool:
        """Whether the agent has tests, and rows above its floor."""
        return self.n_test > 0 and self.n_above > 0

    @property
    def most(self) -> int:
        """The largest number of rows that the agent can reject."""
        return min(self.n_test, self.n_above)


class Reach(NamedTuple):
    """What bounds the rejections of a group: a group g rejects where w(1 + C) <= a min(π k, m_g).

    k is at most the rows of the group and `others` rows of other groups.
    """

    n_test: int  # m_g, those below the floors included
    n_above: int  # all mixture rows of the group above their floors
    share: Fraction  # π
    others: int = 0

    def right_side(self, n: int) -> Fraction:
        """Return min(π k, m_g) for n rows of the group and all rows of the others."""
        return min(self.share * (n + self.others), Fraction(self.n_test))


def level_left(
    members: Sequence[Member], weight: Fraction, level: Fraction, reach: Reach
) -> Fraction:
    """Return a = α(1 - x), with x the largest h_j/(ℓ_j + 1) of the agents that take part.

    h_j is the smallest whole number from 1 on with h_j = κ_j, or with

        w h_j  >  α(1 - h_j/(ℓ_j + 1)) min(π k, m_g),

    where k - 1 is the largest number of rejections beside h_j + 1 rows of the agent that are none:
    min(m_j, κ_j - h_j) of the agent, min(m_a, κ_a) of every other one, and those of other groups.
    None of these numbers depends on which mixture rows are calibration rows.

    Proof: Theorem 10 (docs/theory.md#thm-joint), Theorem 12 (docs/theory.md#thm-groups).
    """
    taking = [member for member in members if member.takes_part]
    most = sum(member.most for member in taking)
    x = Fraction(0)
    for agent in taking:
        suffices = partial(_suffices, agent, most - agent.most, weight, level, reach)
        # Its left side grows with h and its right side does not, so the first one is searched for
        h = 1 + bisect_left(range(1, agent.n_above), True, key=suffices)
        x = max(x, Fraction(h, agent.n_calibration + 1))
    return level * (1 - x)


def _suffices(
    agent: Member, of_others: int, weight: Fraction, level: Fraction, reach: Reach, h: int
) -> bool:
    size = agent.n_calibration + 1
    own = min(agent.n_test, agent.n_above - h)
    beside = min(of_others + own, reach.n_above - h)
    return weight * h > level * Fraction(size - h, size) * reach.right_side(1 + beside)
