"""What all parties of the regime `consensus` share: whose normals count as a type.

A type is an agent whose calibration rows every test row is compared with. The p-value of a row is
the largest over all types, and with ℓ calibration rows it is at least 1/(ℓ + 1). So an agent with
few of them would keep everybody from rejecting. Such agents are no types: their own rows are
tested, and the score learns from them, but rows that are normal at them alone are not
covered by the guarantee. Who is a type follows from the numbers of rows in the hellos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers, planned_calibration

# A type can be rejected against where one test in 20 is a discovery, or it has a quarter of the
# calibration rows of the agent with the most.
_ONE_TEST_IN = 20
_SHARE_OF_LARGEST = Fraction(1, 4)


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
