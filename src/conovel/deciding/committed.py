"""Committed counting: a hash of all counts first, the counts when everybody's hash is known.

A commitment is SHA-256 over the run, the agent's name, a nonce of 32 bytes and all counts. The
name makes a copied commitment worthless. A commitment that is not opened, or does not match, ends
the run: any value in its place would let a liar choose after it has seen the counts of others
(docs/theory.md, Theorem 17).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from conovel.deciding.cells import block_of, decide_groups, told_cells
from conovel.errors import CommitmentError, CountOutOfRangeError, InputError, SampleError
from conovel.spec.bodies import Histogram, Outcome, Ready, Reveal, packed
from conovel.spec.fields import MAX_NAME_BYTES, MAX_STEPS, NONCE_BYTES
from conovel.spec.groups import Group
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import N_CELLS, CellHistogram
from conovel.stats.stepup import RankHistogram
from conovel.stats.tolerant import CountSteps, count_steps, largest_k, rises_at

ROUND = 1  # of all messages of committed counting
_PURPOSE = b"conovel commitment 1\n"


def as_nonce(nonce: bytes) -> bytes:
    """Check a nonce, which a driver draws: the protocol has no random numbers."""
    if not isinstance(nonce, bytes) or len(nonce) != NONCE_BYTES:
        raise InputError(f"committed counting needs a secret nonce of {NONCE_BYTES} bytes")
    return nonce


def commitment(run_id: bytes, agent: str, reveal: Reveal) -> bytes:
    """Return the hash by which an agent commits to what it will reveal.

    Proof: Theorem 17 (docs/theory.md#thm-liars), Theorem 18 (docs/theory.md#thm-joint-liars).

    Examples
    --------
    >>> reveal = Reveal(bytes(32), 5, 19, 0, (2, 3), (), (2, 1))
    >>> commitment(bytes(16), "north", reveal) == commitment(bytes(16), "south", reveal)
    False
    """
    name = agent.encode()
    if len(name) > MAX_NAME_BYTES:
        raise InputError(f"a name has at most {MAX_NAME_BYTES} bytes")
    whole = _PURPOSE + run_id + len(name).to_bytes(1, "little") + name + packed(reveal)
    return hashlib.sha256(whole).digest()


def slope_of(level: Fraction, n_tests: int) -> Fraction:
    """Return α/m, and zero where nothing is tested."""
    return level / n_tests if n_tests else Fraction(0)


def reveal_ranks(nonce: bytes, histogram: RankHistogram, level: Fraction, n_tests: int) -> Reveal:
    """Return what an agent reveals of its ranks, where there are `n_tests` tests in all."""
    claim = CountSteps((), ())
    if histogram.size:
        claim = count_steps(histogram, slope_of(level, n_tests), n_tests)
    if len(claim.steps) > MAX_STEPS:
        raise SampleError(
            f"{len(claim.steps):,} different counts are too many to reveal, at most {MAX_STEPS:,}:"
            " use counting='rounds'"
        )
    return Reveal(nonce, histogram.size, histogram.n_calibration, 0, claim.steps, (), claim.tests)


def reveal_cells(nonce: bytes, ready: Ready, above: CellHistogram) -> Reveal:
    """Return what an agent reveals in the regime `joint`: its rows above its floor."""
    counts = tuple(above.calibration.tolist()), tuple(above.tests.tolist())
    return Reveal(nonce, ready.n_tested, ready.n_calibration, ready.n_wanted, (), *counts)


def claim_of(agent: str, reveal: Reveal, level: Fraction, n_tests: int) -> CountSteps:
    """Check that counts are those of some ranks, and return them as a function of k.

    Proof: Theorem 17 (docs/theory.md#thm-liars).

    Raises
    ------
    CountOutOfRangeError
        If they count more rows than the agent has, or rise at a k where no rank can join.
    """
    steps, tests, slope = reveal.steps, reveal.tests, slope_of(level, n_tests)
    size = reveal.n_calibration
    fits = (
        not reveal.calibration
        and len(steps) == len(tests)
        and all(a < b for a, b in pairwise(steps))
        and all(k <= n_tests for k in steps)
        and all(n > 0 for n in tests)
        and sum(tests) <= reveal.n_tested
        and all(rises_at(k, slope, size) for k in steps)
    )
    if not fits:
        raise CountOutOfRangeError(
            f"{agent} reveals counts that {reveal.n_tested} ranks among {size} calibration rows"
            " cannot have",
            agent,
        )
    return CountSteps(steps, tests)


def cells_of(agent: str, reveal: Reveal) -> Histogram:
    """Check that an agent reveals one count for each cell, and return them."""
    if reveal.steps or {len(reveal.calibration), len(reveal.tests)} != {N_CELLS}:
        raise CountOutOfRangeError(f"{agent} does not reveal one count for each cell", agent)
    return Histogram(reveal.calibration, reveal.tests)


@dataclass
class CommittedCounts:
    """The commitments of all participants, and what they have revealed so far.

    Attributes
    ----------
    run_id : bytes
    participants : tuple of str
    digests : dict of bytes
        The commitments that are known.
    reveals : dict of Reveal
        Checked against the commitments.
    """

    run_id: bytes
    participants: tuple[str, ...]
    digests: dict[str, bytes] = field(default_factory=dict)
    reveals: dict[str, Reveal] = field(default_factory=dict)

    @property
    def is_committed(self) -> bool:
        """Whether everybody has committed."""
        return set(self.digests) == set(self.participants)

    @property
    def is_revealed(self) -> bool:
        """Whether everybody has revealed."""
        return set(self.reveals) == set(self.participants)

    def add(self, agent: str, reveal: Reveal, ready: Ready | None = None) -> None:
        """Take what an agent reveals, if it is what it committed to."""
        if commitment(self.run_id, agent, reveal) != self.digests[agent]:
            raise CommitmentError(f"{agent} reveals other counts than it committed to", agent)
        if ready is not None and reveal.ready != ready:
            raise CountOutOfRangeError(f"{agent} reveals other numbers than in its READY", agent)
        self.reveals[agent] = reveal


@dataclass(frozen=True)
class Decided:
    """What follows from the counts of all participants."""

    n_rejected: int
    k: int
    slope: Fraction
    cells: tuple[int, ...] = ()

    def matches(self, outcome: Outcome) -> bool:
        """Tell whether an outcome says the same."""
        told = Decided(outcome.n_rejected, outcome.k, outcome.slope, outcome.cells)
        return told == self and outcome.rounds == ROUND


def decide(
    spec: RunSpec,
    reveals: Mapping[str, Reveal],
    n_tests: int,
    groups: Sequence[Group] = (),
    rooms: Mapping[str, Fraction] | None = None,
) -> Decided:
    """Decide from what all participants reveal.

    Proof: Theorem 17 (docs/theory.md#thm-liars), Theorem 18 (docs/theory.md#thm-joint-liars).

    Parameters
    ----------
    spec : RunSpec
    reveals : mapping of Reveal
    n_tests : int
        Tests of all participants.
    groups, rooms
        Of the regime `joint`.
    """
    if spec.regime.pools_calibration:
        return _decide_cells(spec, reveals, groups, rooms or {})
    names = sorted(reveals)
    claims = [claim_of(name, reveals[name], spec.level, n_tests) for name in names]
    k = largest_k(claims, n_tests, spec.liars)
    return Decided(sum(claim.at(k) for claim in claims), k, slope_of(spec.level, n_tests))


def _decide_cells(
    spec: RunSpec,
    reveals: Mapping[str, Reveal],
    groups: Sequence[Group],
    rooms: Mapping[str, Fraction],
) -> Decided:
    ready = {name: reveal.ready for name, reveal in reveals.items()}
    blocks = {
        name: block_of(name, ready[name], cells_of(name, reveal), rooms[name], spec.level)
        for name, reveal in reveals.items()
    }
    found = decide_groups(groups, blocks, rooms, ready, spec.level, spec.liars)
    n_rejected = sum(group.found.n_rejected for group in found)
    return Decided(n_rejected, 0, Fraction(0), told_cells(found, sorted(reveals)))
