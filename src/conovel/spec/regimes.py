"""The regimes: a regime is a name for a way to learn and a way to decide.

The ways are in :mod:`conovel.learning` and :mod:`conovel.deciding`;
:func:`conovel.deciding.ways.ways_of` gives those of a regime. Here are the names, what settings
each regime refuses, and what follows for numbers of rows before any row is read.

Users may also ask for `auto`, which is the default. It is a request and not a regime:
:func:`choose_regime` answers it with `together`; with `joint` where a setting is about models that
agents exchange (a scorer, a composite, the precision of models); and with `full` for what
is not proven for these: an estimate of the proportion of nulls (`pi0`), and going on without an
agent that is lost during the counts (`on_dropout`). Settings, messages, transcripts and reports
have the regime that was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType

from conovel.errors import InputError
from conovel.stats.levels import Level, as_level
from conovel.stats.words import briefly


@dataclass(frozen=True)
class Regime:
    """One way for K agents to decide together."""

    # Our name and the paper's; the names of the way to learn and of the way to decide.
    name: str
    paper_name: str
    learning: str
    deciding: str
    # Settings that are not proven or have no meaning, with the reason.
    refuses: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def refusal(self, setting: str) -> str:
        """Return why a setting is refused; empty if it is not."""
        return self.refuses.get(setting, "").format(name=repr(self.name))

    def test_level(self, level: Level, n_agents: int) -> Fraction:
        """Level of the step-up that decides: α when there is one for all, else α/K.

        With α/K the agents' false discovery proportions add up to at most α whoever leaves
        later, because K stays the number of agents that were there at the start.

        Proof: Lemma 4 (docs/theory.md#lem-sum), Proposition 3 (docs/theory.md#prop-conservative).
        """
        return as_level(level) / (n_agents if self.deciding == "isolated" else 1)

    def n_blocks(self, n_agents: int) -> int:
        """Into how many blocks each agent cuts its rows, of which it tests one."""
        return n_agents if self.learning == "blocks" else 1

    def n_tested(self, n_test: int, index: int, n_agents: int) -> int:
        """How many of its `n_test` rows the agent at `index` tests."""
        n_blocks = self.n_blocks(n_agents)
        return block_sizes(n_test, n_blocks)[own_block(index) if n_blocks > 1 else 0]

    def decided_together(self, n_null: int, n_test: int, n_agents: int) -> tuple[int, int]:
        """Known normals and tests that are decided about together, if all agents are alike."""
        if self.deciding in ("counts", "cells", "types"):
            n_test *= n_agents
        if self.deciding == "cells":  # calibration rows count together, as if of one agent
            n_null *= n_agents
        return n_null, n_test // self.n_blocks(n_agents)


_NO_SUMS = {
    "masks": (
        "masks hide what agents add to a sum, and in the regime {name} agents learn from no sums:"
        " leave masks out, or use the regime 'together'"
    )
}
_NO_CELLS = _NO_SUMS | {
    "strata": (
        "strata are compared by cells of one scale, and the regime {name} has none: use 'together'"
        " or 'joint', or leave strata out"
    )
}
_NO_COUNTS = {
    "liars": ("the regime {name} has no counts that an agent could lie about: leave liars at 0"),
    "counting": "the regime {name} has no counts: leave counting at 'rounds'",
    "ledger": (
        "in the regime {name} nobody learns how many rows others reject, which a ledger needs: use"
        " 'joint' or 'full'"
    ),
} | _NO_CELLS
_OTHERS_SEND_MODELS = "use 'together', 'joint', 'full', 'conservative' or 'split'"
_NO_MODELS = {
    "privacy": (
        "privacy is about models, and the regime {name} sends none; its counts are exact. Leave"
        f" privacy out, or {_OTHERS_SEND_MODELS}"
    )
}
_ONE_STEP_UP = {
    "repeats of an unproven pi0": (
        "repeats needs runs with a proven bound, and pi0={{pi0!r}} has none for several sites: use"
        " pi0='storey', or leave it out"
    )
} | _NO_CELLS
_CELLS = {
    "pi0": ("pi0 is not proven for the regime {name}: leave it out, or use the regime 'full'"),
    "on_dropout": (
        "the regime {name} compares rows with the calibration rows of all agents, and those of a"
        " lost agent would be missing: leave on_dropout at 'abort', or use the regime 'full'"
    ),
}
_NO_LIARS = (
    "lying agents are not tolerated in the regime {name}: a liar's calibration rows are among what"
    " all rows are compared with. Leave liars at 0 and counting at 'rounds'"
)
_NO_TYPES = (
    "strata are not for the regime {name}, which compares a row with the normals of every agent:"
    " use 'together' or 'joint', or leave strata out"
)

REGIMES: Mapping[str, Regime] = MappingProxyType(
    {
        regime.name: regime
        for regime in (
            Regime("isolated", "Baseline 2", "alone", "isolated", _NO_COUNTS | _NO_MODELS),
            Regime("counts", "Baseline 3", "alone", "counts", _NO_MODELS | _ONE_STEP_UP),
            Regime(
                "pooled",
                "Baseline 1 (oracle)",
                "pooled",
                "pooled",
                _NO_COUNTS
                | {
                    "privacy": "privacy is not for the regime {name}, which pools rows",
                    "deployment": "{name} pools raw rows: it is for simulation only",
                },
            ),
            Regime(
                "split",
                "Model Exchange",
                "blocks",
                "counts",
                _ONE_STEP_UP
                | {
                    "repeats": (
                        "repeats is not for the regime {name}, in which each run tests other rows:"
                        " use the regime 'full', or repeats=1"
                    )
                },
            ),
            Regime(
                "conservative", "Conservative Model Exchange", "exchange", "isolated", _NO_COUNTS
            ),
            Regime("full", "(ours)", "exchange", "counts", _ONE_STEP_UP),
            Regime("joint", "(ours)", "exchange", "cells", _CELLS | _NO_SUMS),
            Regime("together", "(ours)", "together", "cells", _CELLS),
            Regime(
                "consensus",
                "(ours)",
                "consensus",
                "types",
                _CELLS
                | _NO_MODELS
                | {"liars": _NO_LIARS, "counting": _NO_LIARS, "strata": _NO_TYPES},
            ),
        )
    }
)


AUTO = "auto"  # what users ask for by default, see choose_regime


def choose_regime(
    regime: str | Regime,
    *,
    estimates_nulls: bool,
    on_dropout: str = "abort",
    names_models: bool = False,
) -> Regime:
    """Read a regime by its name, or choose one where `auto` is asked for.

    It is `together`. It is `joint` where settings are about models that agents exchange
    (`names_models`), and `full` for what is not proven for either: an estimate of the proportion
    of nulls (`estimates_nulls`), and going on without an agent that is lost.
    """
    if not isinstance(regime, str) or regime != AUTO:
        return _read(regime, (AUTO, *REGIMES))
    if estimates_nulls or (isinstance(on_dropout, str) and on_dropout == "conservative"):
        return REGIMES["full"]
    return REGIMES["joint" if names_models else "together"]


def as_regime(regime: str | Regime) -> Regime:
    """Read a regime by its name."""
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
    if reason := chosen.refusal("deployment"):
        raise InputError(reason)
    return chosen


def block_sizes(n: int, n_agents: int) -> tuple[int, ...]:
    """Cut n rows into K blocks as even as can be; the first n mod K get one row more.

    Block b of every agent serves the agent at position b of the sorted names: its owner
    keeps block :func:`own_block` to calibrate and test, and trains the model for the peer
    at position b on block b.
    """
    return tuple(n // n_agents + (b < n % n_agents) for b in range(n_agents))


def own_block(index: int) -> int:
    """Return the block that the agent at position `index` keeps for itself: the same number."""
    return index
