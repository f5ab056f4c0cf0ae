"""Seals on the second models of the regime `consensus`: nobody's depend on another's.

The second model of a fold has learnt from the rows of the other fold. A peer that saw the second
models of both folds before it made its own could make the score of a fold depend on the rows that
are tested in it, and the guarantee would be lost. So every agent first sends a seal, SHA-256 over
the run, its name, a nonce and both models. Second models are sent only when all seals are told.
With them goes what opens the seal: the nonce, and a digest of all seals as the sender was told
them, so that a coordinator cannot tell different seals to different agents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from conovel.errors import CommitmentError, LocalProtocolError, OutcomeMismatchError
from conovel.spec.bodies import COORDINATOR, Message, Model
from conovel.spec.consensus import N_FOLDS
from conovel.spec.fields import NONCE_BYTES
from conovel.spec.regimes import Regime

FIRST_ROUND = 1  # in which the first models are sent
SECOND_ROUNDS = tuple(range(2, 2 + N_FOLDS))  # in which second models are sent, one for each fold
OPENING_ROUND = 2 + N_FOLDS  # in which agents send what opens their seals


def model_rounds(regime: Regime) -> tuple[int, ...]:
    """Return the rounds in which an agent sends models to its peers; none where it sends none."""
    if not regime.exchanges_models:
        return ()
    return (FIRST_ROUND, *SECOND_ROUNDS, OPENING_ROUND) if regime.composite_null else (0,)


def opens_seal(message: Message) -> bool:
    """Tell whether a MODEL holds no model, but what opens the seal of its sender."""
    return isinstance(message.body, Model) and message.round == OPENING_ROUND


def score_digest(models: Mapping[str, Sequence[bytes]]) -> bytes:
    """Return a digest of all second models, in the order of the agents' names.

    Agents that have the same digest have the same score.
    """
    return digest_of(part for name in sorted(models) for part in (name.encode(), *models[name]))


def digest_of(parts: Iterable[bytes]) -> bytes:
    """Return SHA-256 over parts, each behind its length: other parts have other bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def seal_of(run_id: bytes, agent: str, nonce: bytes, models: Sequence[bytes]) -> bytes:
    """Return the seal on an agent's second models, one for each fold.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).

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

    Proof: Theorem 16 (docs/theory.md#thm-consensus).

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
