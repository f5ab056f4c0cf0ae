"""Where the ledgers of all sites stand when a run begins, and what becomes of a prepared batch.

A run may have been broken off while its batch went into the ledgers. Then some sites have the
batch in their ledger, and the others have it prepared; or nobody has it, and some have it prepared
(:mod:`conovel.runs.ledger_file`). All sites get the standings of all and decide alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from conovel.errors import InputError
from conovel.protocol.listing import history_of
from conovel.runs.ledger import MAX_BATCHES, Ledger
from conovel.runs.ledger_file import Prepared
from conovel.spec.fields import MAX_AGENTS

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Standing(NamedTuple):
    """Where the ledger of one site stands.

    Attributes
    ----------
    n_batches : int
        Batches in the ledger.
    history : str
        Digest of the level of the list and of the numbers of every batch over all sites.
    prepared : str
        The same digest with the prepared batch; empty if there is none.
    agents : tuple of str
        Who took part in the run of the prepared batch.
    """

    n_batches: int
    history: str
    prepared: str = ""
    agents: tuple[str, ...] = ()

    @classmethod
    def of(cls, ledger: Ledger, prepared: Prepared | None) -> Standing:
        """Describe a ledger and the batch that is prepared for it."""
        told = len(ledger.entries), _digest(ledger)
        if prepared is None:
            return cls(*told)
        return cls(*told, _digest(prepared.ledger), prepared.agents)

    def to_plain(self) -> list[Any]:
        """Give it as plain types."""
        return [self.n_batches, self.history, self.prepared, list(self.agents)]

    @classmethod
    def from_plain(cls, plain: Any) -> Standing:
        """Read what :meth:`to_plain` gave; :class:`InputError` for anything else."""
        match plain:
            case [int(n_batches), str(history), str(prepared), [*agents]] if (
                not isinstance(n_batches, bool)
                and 0 <= n_batches <= MAX_BATCHES
                and _DIGEST.fullmatch(history)
                and (not prepared or _DIGEST.fullmatch(prepared))
                and len(agents) <= MAX_AGENTS
                and all(isinstance(name, str) for name in agents)
            ):
                return cls(n_batches, history, prepared, tuple(agents))
        raise InputError("this is not the standing of a ledger")


def is_taken(standing: Standing, everybody: Mapping[str, Standing]) -> bool:
    """Tell whether some site has in its ledger what this one has prepared."""
    return any(other.history == standing.prepared for other in everybody.values())


def objection_to(everybody: Mapping[str, Standing]) -> str:
    """Return why a run cannot continue the list of these ledgers; an empty text if it can.

    Examples
    --------
    >>> print(objection_to({"north": Standing(3, "a"), "south": Standing(2, "b", "a")}))
    <BLANKLINE>
    >>> print(objection_to({"north": Standing(3, "a"), "south": Standing(2, "b")}))
    the ledgers are not about the same batches: north has 3, south has 2; all sites need ...
    """
    after = {}
    for name, standing in everybody.items():
        taken = is_taken(standing, everybody)
        after[name] = standing.prepared if taken else standing.history
        # An absent site may have the batch in its ledger.
        absent = sorted(set(standing.agents) - set(everybody))
        if absent and not taken:
            return (
                f"whether the last batch is on the list is known to {', '.join(absent)} alone: run"
                " once with all sites that took part in it"
            )
    if len(set(after.values())) <= 1:
        return ""
    numbers = ", ".join(f"{name} has {one.n_batches}" for name, one in sorted(everybody.items()))
    return (
        f"the ledgers are not about the same batches: {numbers}; all sites need the ledgers of the"
        " same batches, or a new list"
    )


def _digest(ledger: Ledger) -> str:
    return history_of(ledger.history, ledger.level).digest.hex()
