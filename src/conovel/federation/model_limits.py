"""Which models a site agrees to: what may leave it, and what it takes from a peer."""

from __future__ import annotations

from collections.abc import Iterable

from conovel.errors import WireError
from conovel.federation.consent import FLOAT64, Limits
from conovel.federation.terms import Terms
from conovel.models.wire import family_of, n_nodes_of
from conovel.spec.settings import MAX_BITS, Bits


def objection_to_precision(limits: Limits, terms: Terms, bits: Bits) -> str:
    """Return why a model of this precision, or of the family it would have, may not leave."""
    regime = terms.spec.regime
    if not regime.exchanges_models:
        return ""
    is_forest = isinstance(bits, str) or terms.spec.privacy is not None
    families = {"forest"} if is_forest else set()
    if regime.composite_null:  # its models have numbers of their own precision, on grids
        bits, families = bits if isinstance(bits, int) else MAX_BITS, {"dense"}
    if _order(bits) > _order(limits.max_bits):
        said = FLOAT64 if bits is None else bits
        return (
            f"its model would be sent with bits {said}, and it agrees to {limits.max_bits} at"
            " most: choose smaller bits, or the site raises max_bits in its site.toml"
        )
    return _objection_to_families(limits, families)


def objection_to_model_out(limits: Limits, blob: bytes) -> str:
    """Return why a model that was made may not leave the site: the check before it does."""
    family, is_exact = family_of(blob)
    if is_exact and limits.max_bits != FLOAT64:
        return f"its model has numbers in {FLOAT64}, and it agrees to {limits.max_bits} at most"
    if family == "forest" and len(blob) > limits.max_forest_bytes:
        return (
            f"its model is a forest of {len(blob):,} bytes, and it agrees to"
            f" {limits.max_forest_bytes:,} at most: rows behind a deep forest are told from"
            " others with AUC 0.9. Choose bits compact, or the site raises max_forest_bytes"
        )
    return _objection_to_families(limits, {family})


def objection_to_model_in(limits: Limits, blob: bytes) -> str:
    """Return why a model of a peer is not taken; empty where it is no model at all.

    What a peer's model may be is what the site's own may be. Its size bounds the work.
    """
    try:
        family, is_exact = family_of(blob)
        n_nodes = n_nodes_of(blob)
    except WireError:
        return ""  # the decoder says what is wrong with it
    if n_nodes > limits.max_nodes_in:
        return (
            f"a peer's model has {n_nodes:,} nodes, and this site takes {limits.max_nodes_in:,}"
            " at most: choose bits compact, or the site raises max_nodes_in in its site.toml"
        )
    if is_exact and limits.max_bits != FLOAT64:
        return (
            f"a peer's model has numbers in {FLOAT64}, and this site takes {limits.max_bits} at"
            " most: choose bits compact, or the site raises max_bits in its site.toml"
        )
    if family not in limits.model_families:
        return (
            f"a peer's model is of the family {family!r}, which this site does not take: the"
            " site adds it to model_families in its site.toml"
        )
    return ""


def _objection_to_families(limits: Limits, families: Iterable[str]) -> str:
    if not (others := sorted(set(families) - set(limits.model_families))):
        return ""
    return (
        f"its model would be of the family {others[0]!r}, which may not leave it: the site"
        " changes bits or scorer, or adds the family to model_families in its site.toml"
    )


def _order(bits: Bits) -> int:
    """Order precisions: compact models, then numbers of more and more bits, then float64."""
    if bits is None or bits == FLOAT64:
        return MAX_BITS + 1
    return 0 if isinstance(bits, str) else bits
