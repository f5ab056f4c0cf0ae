"""What all parties of the regime `consensus` share: folds, and whose normals count as a type.

A type is an agent whose calibration rows every test row is compared with. The p-value of a row is
the largest over all types, and with ℓ calibration rows it is at least 1/(ℓ + 1). So an agent with
few of them would keep everybody from rejecting. Such agents are no types: their own rows are
tested, and their model is part of the score, but rows that are normal at them alone are not
covered by the guarantee. Who is a type follows from the numbers of rows in the hellos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers, planned_calibration

N_FOLDS = 2
FEWEST_LEARNT = 5  # test rows of a fold; a model of fewer would be about single rows
# A type can be rejected against where one test in 20 is a discovery, or it has a quarter of the
# calibration rows of the agent with the most.
_ONE_TEST_IN = 20
_SHARE_OF_LARGEST = Fraction(1, 4)


def fold_sizes(n_test: int) -> tuple[int, int]:
    """Return how many of an agent's test rows are in each fold.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).

    Examples
    --------
    >>> fold_sizes(7)
    (4, 3)
    """
    return n_test - n_test // N_FOLDS, n_test // N_FOLDS


def fewest_learnt(n_test: int) -> int | None:
    """Return the fewest test rows that a model is learnt from, None if none is learnt from any.

    Examples
    --------
    >>> fewest_learnt(41), fewest_learnt(9), fewest_learnt(1)
    (20, 5, None)
    """
    return min((n for n in fold_sizes(n_test) if n >= FEWEST_LEARNT), default=None)


def types_of(agents: Mapping[str, Numbers], spec: RunSpec, n_agents: int) -> tuple[str, ...]:
    """Return the agents whose normals count as a type; everybody derives the same.

    `agents` is everybody on the roster, and `n_agents` how many were invited.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    sizes = {
        name: planned_calibration(rows, spec, n_agents)
        for name, rows in agents.items()
        if rows.n_null > 1  # a single row trains
    }
    most = max(sizes.values(), default=0)
    least = min(_ONE_TEST_IN / spec.level, _SHARE_OF_LARGEST * (most + 1))
    return tuple(name for name in sorted(sizes) if sizes[name] and sizes[name] + 1 >= least)


def told_types(types: Sequence[str], agents: Sequence[str]) -> tuple[Fraction, ...]:
    """Return 1 for every agent that is a type and 0 for the others, as a roster tells it."""
    return tuple(Fraction(name in types) for name in agents)


class Agreed(NamedTuple):
    """What the agents of a run agreed on."""

    cells: tuple[int, ...]  # the lowest rejected cell of each fold
    # For each agent and fold, the lowest cell in which a row does not conform to its normals.
    limits: Mapping[str, tuple[int, ...]]
