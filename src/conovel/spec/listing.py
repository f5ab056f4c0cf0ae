"""The list of a network over several batches: what its runs must be like."""

from __future__ import annotations

from dataclasses import replace

from conovel.errors import InputError
from conovel.spec.run_spec import RunSpec
from conovel.stats.batches import NETWORK_SHARE


def require_listable(spec: RunSpec) -> None:
    """Refuse the settings of runs that are no evidence for a list (docs/theory.md, Theorem 14)."""
    if spec.repeats > 1 or spec.on_dropout != "abort":
        raise InputError("with a ledger leave repeats at 1 and on_dropout at 'abort'")
    if spec.liars:
        raise InputError(
            "a ledger lists rows by counts that nobody has committed to: leave it out, or take"
            " liars=0"
        )
    if reason := spec.regime.refusal("ledger"):
        raise InputError(reason)
    if spec.pi0 is not None and not spec.pi0.proven_for_several:
        raise InputError("a ledger needs runs with a proven bound: use pi0='storey', or none")


def of_batch(spec: RunSpec) -> RunSpec:
    """Give the settings of the run of a batch, from those of its list: half the level."""
    return replace(spec, level=spec.level * NETWORK_SHARE)


def of_list(spec: RunSpec) -> RunSpec:
    """Give the settings of a list, from those of the run of a batch."""
    return replace(spec, level=spec.level / NETWORK_SHARE)
