"""How agents tell each other their counts, and how many of them may lie.

In `rounds` the coordinator asks for counts until they stay (FastLSU); in the regime `joint` agents
send a histogram. In `committed` counting every agent first commits to all its counts with a hash,
and reveals them when all commitments are known. So no agent can fit its counts to those of the
others, and some lying agents can be tolerated (docs/theory.md, Theorems 17 and 18).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from conovel.errors import InputError
from conovel.stats.words import briefly

if TYPE_CHECKING:
    from conovel.spec.regimes import Regime
    from conovel.spec.run_spec import RunSpec

ROUNDS, COMMITTED = "rounds", "committed"
COUNTING = (ROUNDS, COMMITTED)
TO_COORDINATOR, TO_MEMBERS = "coordinator", "members"
FEWEST_FOR_LIARS = 4  # sites of a run between organisations that tolerates a liar by default
REVEAL_TO = (TO_COORDINATOR, TO_MEMBERS)


def has_counting(regime: Regime) -> bool:
    """Tell whether a regime can count in either way."""
    return regime.uses_counts and not regime.composite_null


def choose_counting(regime: Regime, pi0: object, on_dropout: str, repeats: int = 1) -> str:
    """Choose how to count between organisations: committed, wherever that is possible.

    Examples
    --------
    >>> from conovel.spec.regimes import as_regime
    >>> [choose_counting(as_regime(name), None, "abort") for name in ("full", "isolated")]
    ['committed', 'rounds']
    """
    possible = has_counting(regime) and pi0 is None and on_dropout == "abort" and repeats == 1
    return COMMITTED if possible else ROUNDS


def choose_liars(
    regime: Regime, n_agents: int, counting: str, excluded: Mapping[str, bool] | None = None
) -> int:
    """Choose how many liars a run between organisations tolerates if its operator does not say.

    Parameters
    ----------
    regime : Regime
    n_agents : int
    counting : str
    excluded : mapping of str to bool, optional
        Options that no rule with liars is proven for, and whether they are given.

    Raises
    ------
    InputError
        If other options stand against tolerance: the operator then has to write ``--liars 0``,
        which every site reads in the terms.

    Examples
    --------
    >>> from conovel.spec.regimes import as_regime
    >>> [choose_liars(as_regime("full"), n, COMMITTED) for n in (3, 4, 30)]
    [0, 1, 1]
    """
    if n_agents < FEWEST_FOR_LIARS or not has_counting(regime):
        return 0
    given = [option for option, is_given in (excluded or {}).items() if is_given]
    if given or counting != COMMITTED:
        option = given[0] if given else f"--counting {counting}"
        raise InputError(
            f"a run of {n_agents} sites tolerates one that lies about its counts, which is not"
            f" possible with {option}: leave that out, or write --liars 0, and every site reads"
            " in the terms that no member may lie"
        )
    return 1


def check_counting(spec: RunSpec) -> None:
    """Refuse settings of the counts that are not proven, with the reason."""
    _as_one_of("counting", spec.counting, COUNTING)
    _as_one_of("reveal_to", spec.reveal_to, REVEAL_TO)
    name = spec.regime.name
    if spec.liars and not spec.regime.uses_counts:
        raise InputError(
            f"the regime {name!r} has no counts that an agent could lie about: leave liars at 0"
        )
    if (spec.liars or spec.counting == COMMITTED) and spec.regime.composite_null:
        raise InputError(
            f"lying agents are not tolerated in the regime {name!r}: a liar's calibration rows and"
            " models are part of what all rows are compared with. Leave liars at 0 and counting"
            " at 'rounds'"
        )
    if spec.liars and spec.counting != COMMITTED:
        raise InputError(
            f"liars={spec.liars} needs counting='committed': in rounds an agent can fit its counts"
            " to those of the others"
        )
    if spec.liars and spec.repeats > 1:
        raise InputError(
            "repeats adds up evidence by counts that nobody has committed to: take repeats=1, or"
            " liars=0"
        )
    if spec.counting == COMMITTED:
        _check_committed(spec)
    elif spec.reveal_to != TO_COORDINATOR:
        raise InputError(
            "counts in rounds are not revealed to members: leave reveal_to at 'coordinator', or"
            " take counting='committed'"
        )


def _check_committed(spec: RunSpec) -> None:
    if not spec.regime.uses_counts:
        raise InputError(
            f"the regime {spec.regime.name!r} has no counts: leave counting at 'rounds'"
        )
    if spec.pi0 is not None:
        raise InputError(
            "pi0 needs counting='rounds': agents commit to counts for every k, and with an"
            " estimate of the nulls these are not known before the counts are"
        )
    if spec.on_dropout != "abort":
        raise InputError(
            "committed counting ends when a commitment is not opened: leave on_dropout at 'abort',"
            " or take counting='rounds'"
        )


def _as_one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name} must be {' or '.join(map(repr, allowed))}, not {briefly(value)}")
