"""Who tests what, at which level, and who learns what: the regimes, as frozen descriptions.

A regime fixes three choices: whether models are exchanged, whether rows are split into
blocks so that no model meets the rows it was trained on, and whether the agents share one
step-up through counts (level α) or each runs its own (level α/K).

Users may also ask for `auto`, which is the default. It is a request and not a regime:
:func:`choose_regime` answers it with `joint`, or with `full` for what is not proven for `joint`:
an estimate of the proportion of nulls (`pi0`), and going on without an agent that is lost during
the counts (`on_dropout`). Settings, messages, transcripts and reports have the regime that was
chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from conovel.errors import InputError
from conovel.stats.levels import Level, as_level
from conovel.stats.words import briefly


@dataclass(frozen=True)
class Regime:
    """One way for K agents to decide together.

    Attributes
    ----------
    name, paper_name : str
        Our name and the paper's.
    exchanges_models : bool
        Whether every agent sends a model to every peer.
    splits_rows : bool
        Whether rows are cut into K blocks, of which an agent tests one.
    uses_counts : bool
        Whether there is one step-up over all agents, through counts.
    divides_level : bool
        Whether every agent runs a step-up of its own at α/K.
    pools_calibration : bool
        Whether the calibration rows of all agents count together, on a common scale.
    composite_null : bool
        Whether a row is null if it is normal at some agent, not only at its own.
    deployable : bool
        False when raw rows would have to leave their site.
    needs : str
        What the guarantee assumes.
    peers_learn, coordinator_learns : str
        What becomes known beyond names and row numbers.
    """

    name: str
    paper_name: str
    exchanges_models: bool
    splits_rows: bool
    uses_counts: bool
    divides_level: bool
    needs: str
    peers_learn: str
    coordinator_learns: str
    pools_calibration: bool = False
    composite_null: bool = False
    deployable: bool = True

    @property
    def decides_by_cells(self) -> bool:
        """Whether rows are rejected by their cell on a common scale, and not by their rank."""
        return self.pools_calibration or self.composite_null

    def test_level(self, level: Level, n_agents: int) -> Fraction:
        """Level of the step-up that decides: α when there is one for all, else α/K.

        With α/K the agents' false discovery proportions add up to at most α whoever leaves
        later, because K stays the number of agents that were there at the start.

        Proof: Lemma 4 (docs/theory.md#lem-sum), Proposition 3 (docs/theory.md#prop-conservative).
        """
        return as_level(level) / (n_agents if self.divides_level else 1)

    def n_tested(self, n_test: int, index: int, n_agents: int) -> int:
        """How many of its `n_test` rows the agent at `index` tests."""
        return block_sizes(n_test, n_agents)[own_block(index)] if self.splits_rows else n_test


_EXCHANGEABLE = (
    "each agent's nulls are exchangeable given its novelties and its scores do not depend on"
    " the order of its rows"
)
_INDEPENDENT = f"agents are independent, {_EXCHANGEABLE}"
_COMPOSITE = (
    "a row that is normal at some agent is exchangeable with that agent's calibration rows, given"
    " all other rows, all agents hold their columns in the same number format, and how columns"
    " become numbers was fixed before any of these rows was read"
)
_COUNTS = "every agent's count in each round"
_TOTALS = "the total count of each round"

REGIMES: Mapping[str, Regime] = MappingProxyType(
    {
        regime.name: regime
        for regime in (
            Regime(
                name="isolated",
                paper_name="Baseline 2",
                exchanges_models=False,
                splits_rows=False,
                uses_counts=False,
                divides_level=True,
                needs=_EXCHANGEABLE,
                peers_learn="nothing",
                coordinator_learns="nothing",
            ),
            Regime(
                name="counts",
                paper_name="Baseline 3",
                exchanges_models=False,
                splits_rows=False,
                uses_counts=True,
                divides_level=False,
                needs=_INDEPENDENT,
                peers_learn=_TOTALS,
                coordinator_learns=_COUNTS,
            ),
            Regime(
                name="pooled",
                paper_name="Baseline 1 (oracle)",
                exchanges_models=False,
                splits_rows=False,
                uses_counts=False,
                divides_level=False,
                needs="the nulls of all agents together are exchangeable given the novelties",
                peers_learn="every row",
                coordinator_learns="every row",
                deployable=False,
            ),
            Regime(
                name="split",
                paper_name="Model Exchange",
                exchanges_models=True,
                splits_rows=True,
                uses_counts=True,
                divides_level=False,
                needs=_INDEPENDENT,
                peers_learn=f"one model per agent, made for this peer alone; {_TOTALS}",
                coordinator_learns=_COUNTS,
            ),
            Regime(
                name="conservative",
                paper_name="Conservative Model Exchange",
                exchanges_models=True,
                splits_rows=False,
                uses_counts=False,
                divides_level=True,
                needs=_INDEPENDENT,
                peers_learn="one model per agent",
                coordinator_learns="nothing",
            ),
            Regime(
                name="full",
                paper_name="(ours)",
                exchanges_models=True,
                splits_rows=False,
                uses_counts=True,
                divides_level=False,
                needs=_INDEPENDENT,
                peers_learn=f"one model per agent; {_TOTALS}",
                coordinator_learns=_COUNTS,
            ),
            Regime(
                name="joint",
                paper_name="(ours)",
                exchanges_models=True,
                splits_rows=False,
                uses_counts=True,
                divides_level=False,
                needs=_INDEPENDENT,
                peers_learn=(
                    "one model per agent; the total count; the weight, x and lowest flagged cell"
                    " of each group"
                ),
                coordinator_learns=(
                    "every agent's counts of calibration rows and test rows in each cell above its"
                    " floor, and the number of rows in high cells"
                ),
                pools_calibration=True,
            ),
            Regime(
                name="consensus",
                paper_name="(ours)",
                exchanges_models=True,
                splits_rows=False,
                uses_counts=True,
                divides_level=False,
                needs=_COMPOSITE,
                peers_learn=(
                    "three models per agent; from which cell on rows do not conform to an agent's"
                    " normals; the total count; the lowest flagged cell of each fold"
                ),
                coordinator_learns=(
                    "every agent's counts of calibration rows, and of test rows of either fold, in"
                    " each cell of the common scale, by the score of each fold"
                ),
                composite_null=True,
            ),
        )
    }
)


AUTO = "auto"  # what users ask for by default, see choose_regime


def choose_regime(
    asked: str | Regime, *, estimates_nulls: bool, on_dropout: str = "abort"
) -> Regime:
    """Read a regime by its name, or choose one where `auto` is asked for.

    Parameters
    ----------
    asked : str or Regime
        "auto" is `joint`, or `full` where that is not proven.
    estimates_nulls : bool
        Whether `pi0` is given.
    on_dropout : {"abort", "conservative"}
        What is done when an agent is lost during the counts.

    Examples
    --------
    >>> [choose_regime("auto", estimates_nulls=given).name for given in (False, True)]
    ['joint', 'full']
    """
    if not isinstance(asked, str) or asked != AUTO:
        return _read(asked, (AUTO, *REGIMES))
    counts_losses = isinstance(on_dropout, str) and on_dropout == "conservative"
    return REGIMES["full" if estimates_nulls or counts_losses else "joint"]


def as_regime(regime: str | Regime) -> Regime:
    """Read a regime by its name.

    Examples
    --------
    >>> as_regime("split").paper_name
    'Model Exchange'
    """
    return _read(regime, tuple(REGIMES))


def _read(regime: str | Regime, allowed: tuple[str, ...]) -> Regime:
    """Read a regime; an error names what is allowed."""
    if isinstance(regime, Regime):
        return regime
    if not isinstance(regime, str) or regime not in REGIMES:
        raise InputError(f"regime must be one of {', '.join(allowed)}, not {briefly(regime)}")
    return REGIMES[regime]


def as_deployable(regime: str | Regime) -> Regime:
    """Read a regime that agents can run without handing over rows."""
    chosen = as_regime(regime)
    if not chosen.deployable:
        raise InputError(f"{chosen.name!r} pools raw rows: it is for simulation only")
    return chosen


def block_sizes(n: int, n_agents: int) -> tuple[int, ...]:
    """Cut n rows into K blocks as even as can be; the first n mod K get one row more.

    Block b of every agent serves the agent at position b of the sorted names: its owner
    keeps block :func:`own_block` to calibrate and test, and trains the model for the peer
    at position b on block b.

    Examples
    --------
    >>> block_sizes(11, 3)
    (4, 4, 3)
    """
    return tuple(n // n_agents + (b < n % n_agents) for b in range(n_agents))


def own_block(index: int) -> int:
    """Return the block that the agent at position `index` keeps for itself: the same number."""
    return index
