"""What a site agrees to, and the reason it gives when a run asks for more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from conovel.errors import InputError
from conovel.federation.terms import Terms
from conovel.levels import as_level
from conovel.messages import Left, Message, Roster
from conovel.regimes import REGIMES, as_deployable


@dataclass(frozen=True)
class Limits:
    """The limits of one site's consent; the defaults agree to all that a deployment can do.

    Attributes
    ----------
    regimes : tuple of str
        Which regimes; `pooled` is never among them.
    max_level : str
        The largest level.
    min_agents : int
        The smallest number of agents, this one included.
    max_bytes_in : int
        The most bytes of messages in one run.
    max_seconds : float
        The longest run.

    Examples
    --------
    >>> limits = Limits(regimes=("counts",), min_agents=3)
    >>> print(limits.objection(Terms(("north", "south"), regime="counts")))
    a run of 2 agents is too small: this site asks for 3
    """

    regimes: tuple[str, ...] = tuple(name for name, r in REGIMES.items() if r.deployable)
    max_level: str = "1/2"
    min_agents: int = 2
    max_bytes_in: int = 256 * 2**20
    max_seconds: float = 24 * 3600.0

    def __post_init__(self) -> None:
        if isinstance(self.regimes, str) or not isinstance(self.regimes, Sequence):
            raise InputError("regimes must be a list of names")
        object.__setattr__(self, "regimes", tuple(as_deployable(r).name for r in self.regimes))
        object.__setattr__(self, "max_level", str(as_level(self.max_level)))
        for name, least in (("min_agents", 2), ("max_bytes_in", 1), ("max_seconds", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
                raise InputError(f"{name} must be a number from {least}, not {value!r}")

    def objection(self, terms: Terms) -> str:
        """Say why these terms are refused; nothing if they are not."""
        if terms.regime not in self.regimes:
            return (
                f"regime {terms.regime!r} is not among those this site agrees to"
                f" ({', '.join(self.regimes) or 'none'})"
            )
        if terms.alpha > Fraction(self.max_level):
            return f"level {terms.level} is above the {self.max_level} this site agrees to"
        if terms.run_seconds > self.max_seconds:
            return (
                f"a run of up to {terms.run_seconds:g} s is too long: this site agrees to"
                f" {self.max_seconds:g}"
            )
        return self._too_few(len(terms.agents))

    def objection_to(self, message: Message, terms: Terms, n_here: int) -> tuple[str, int]:
        """Say why a message is refused, and how many agents are there after it."""
        match message.body:
            case Roster(agents=agents):
                if strangers := sorted(set(agents) - set(terms.agents)):
                    return f"{', '.join(strangers)} did not stand in the terms", len(agents)
                return self._too_few(len(agents)), len(agents)
            case Left():
                return self._too_few(n_here - 1), n_here - 1
        return "", n_here

    def _too_few(self, n_agents: int) -> str:
        if n_agents >= self.min_agents:
            return ""
        return f"a run of {n_agents} agents is too small: this site asks for {self.min_agents}"
