"""The agents of a network in one process, as a user names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from conovel.errors import InputError
from conovel.protocol.messages import as_name
from conovel.scorers.estimators import ScorerLike
from conovel.spec.fields import MAX_AGENTS
from conovel.spec.settings import Bits
from conovel.spec.shown import Shown

INHERIT: Any = "as the network"


@dataclass(frozen=True, eq=False, repr=False)
class Agent(Shown):
    """One organisation and its rows.

    Parameters
    ----------
    name : str
        Unique in the network.
    X_null, X_test : array or frame
        Known normals, and rows to test.
    scorer : classifier, OneClass, str, list of these, or None
        Overrides the network's.
    bits : int, "compact", "compact:BYTES" or None
        Overrides the network's: how its own model is sent.
    ids : array of shape (m,), optional
        Names of the test rows.
    seed : int, optional
        Overrides the seed that follows from the network's `random_state`. A site of a federation
        mixes a secret into its own and notes it in its record of the run; given here, it repeats
        what that site did.

    See Also
    --------
    conovel.Network : Agents that decide together.
    """

    name: str
    X_null: Any
    X_test: Any
    scorer: ScorerLike | str | list[ScorerLike | str] | None = INHERIT
    bits: Bits = INHERIT
    ids: ArrayLike | None = None
    seed: int | None = None

    def _shown(self) -> dict[str, str]:
        sizes = {"known normals": self.X_null, "rows to test": self.X_test}
        told = {term: f"{len(X):,}" for term, X in sizes.items() if hasattr(X, "__len__")}
        return {"name": self.name, **told}


def is_inherited(setting: Any) -> bool:
    """Tell whether an agent takes a setting from its network.

    A copy of an agent, from another process say, has a text that is equal but not the same object.
    """
    return isinstance(setting, str) and setting == INHERIT


def as_agents(agents: Any) -> list[Agent]:
    """Check the agents and sort them by name."""
    try:
        listed = list(agents)
    except TypeError:
        raise InputError(f"agents must be a list of Agent, not {agents!r}") from None
    for agent in listed:
        if not isinstance(agent, Agent):
            raise InputError(f"agents must be a list of Agent; {agent!r} is none")
        as_name(agent.name)
    names = sorted(agent.name for agent in listed)
    if not 2 <= len(names) <= MAX_AGENTS or len(set(names)) < len(names):
        raise InputError(
            f"a network needs 2 to {MAX_AGENTS} agents of different names, not"
            f" {len(names)}: {', '.join(names[:5])}"
        )
    return sorted(listed, key=lambda agent: agent.name)
