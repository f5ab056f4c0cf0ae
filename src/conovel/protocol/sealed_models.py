"""Seals on the second models of the regime `consensus`: nobody's depend on another's.

The second model of a fold has learnt from the rows of the other fold. A peer that saw the second
models of both folds before it made its own could make the score of a fold depend on the rows that
are tested in it, and the guarantee would be lost. So every agent first sends a seal, SHA-256 over
the run, its name, a nonce and both models. Second models are sent only when all seals are told.
With them goes what opens the seal: the nonce, and a digest of all seals as the sender was told
them, so that a coordinator cannot tell different seals to different agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conovel.errors import CommitmentError, LocalProtocolError, OutcomeMismatchError
from conovel.protocol.committed import NONCE_BYTES
from conovel.protocol.consensus import digest_of
from conovel.protocol.messages import COORDINATOR


def seal_of(run_id: bytes, agent: str, nonce: bytes, models: Sequence[bytes]) -> bytes:
    """Return the seal on an agent's second models, one for each fold.

    Raises
    ------
    LocalProtocolError
        If the nonce, which a driver has to draw, does not have 32 bytes.

    Examples
    --------
    >>> seal = seal_of(bytes(16), "north", bytes(32), [b"one", b"two"])
    >>> seal == seal_of(bytes(16), "north", bytes(32), [b"onet", b"wo"])
    False
    """
    if len(nonce) != NONCE_BYTES:
        raise LocalProtocolError(f"a seal needs a secret nonce of {NONCE_BYTES} bytes")
    return digest_of([b"second models", run_id, agent.encode(), nonce, *models])


def opening_of(nonce: bytes, seals: Mapping[str, bytes]) -> bytes:
    """Return what opens a seal: the nonce, and a digest of all seals."""
    return nonce + digest_of(
        part for name in sorted(seals) for part in (name.encode(), seals[name])
    )


def check_opened(
    run_id: bytes,
    seals: Mapping[str, bytes],
    openings: Mapping[str, bytes],
    models: Mapping[str, Sequence[bytes]],
) -> None:
    """Check that everybody's second models are those that were sealed.

    Raises
    ------
    CommitmentError
        If an agent sent other models than it had sealed; it is the culprit.
    OutcomeMismatchError
        If an agent was told other seals: the coordinator is the culprit.
    """
    for name in sorted(seals):
        nonce, told = openings[name][:NONCE_BYTES], openings[name][NONCE_BYTES:]
        if len(nonce) < NONCE_BYTES or seal_of(run_id, name, nonce, models[name]) != seals[name]:
            raise CommitmentError(f"{name} sent other second models than it had sealed", name)
        if nonce + told != opening_of(nonce, seals):
            raise OutcomeMismatchError(
                f"the coordinator is wrong: it told {name} other seals than this agent",
                COORDINATOR,
            )
