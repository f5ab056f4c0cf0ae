"""What messages say: one frozen record for each kind, whose fields are its byte layout."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from fractions import Fraction
from typing import Annotated, ClassVar

from conovel.spec.fields import (
    BLOB,
    DIGEST,
    FRACTION,
    FRACTIONS,
    NAME,
    NAMES,
    SPEC,
    TEXT,
    U16,
    U32,
    U32S,
    U64,
    U64S,
    layout_of,
    pack,
)
from conovel.spec.run_spec import RunSpec

COORDINATOR = "coordinator"  # reserved; that party may well live at one of the agents


class Kind(IntEnum):
    """What a message is, as its header says."""

    HELLO = 1
    ROSTER = 2
    MODEL = 3
    READY = 4
    LEFT = 5
    START = 6
    BELOW = 7
    STEP = 8
    COUNT = 9
    OUTCOME = 10
    ABORT = 11
    HISTOGRAM = 12
    SHARED = 13
    COMMIT = 14
    COMMITMENTS = 15
    REVEAL = 16
    REVEALS = 17
    HISTORY = 20
    LISTING = 21
    LISTED = 22
    SUMS = 23
    TOTALS = 24
    KEY = 25
    SIZES = 26
    MASKED = 27
    WANTED = 28
    CELLS = 29


AMONG_AGENTS = frozenset(
    {Kind.MODEL, Kind.KEY}
)  # all other messages have the coordinator at one end
# Everything else happens once in a run and has round 0.
IN_ROUNDS = frozenset(
    {
        Kind.LEFT,
        Kind.BELOW,
        Kind.STEP,
        Kind.COUNT,
        Kind.OUTCOME,
        Kind.HISTOGRAM,
        Kind.SHARED,
        Kind.COMMIT,
        Kind.COMMITMENTS,
        Kind.REVEAL,
        Kind.REVEALS,
        Kind.LISTING,
        Kind.LISTED,
        Kind.SUMS,
        Kind.TOTALS,
        Kind.MASKED,
        Kind.WANTED,
        Kind.CELLS,
    }
)


BODIES: dict[int, type[Body]] = {}  # by kind; a way adds its own by defining them


@dataclass(frozen=True)
class Body:
    """What a message says; the fields of a subclass are its byte layout."""

    kind: ClassVar[Kind]

    def __init_subclass__(cls) -> None:
        BODIES[cls.kind] = cls


@dataclass(frozen=True)
class Hello(Body):
    """Agent to coordinator: its row numbers, its columns, and the settings it came for."""

    kind = Kind.HELLO
    n_null: Annotated[int, U64]
    n_test: Annotated[int, U64]
    n_features: Annotated[int, U32]
    schema: Annotated[bytes, DIGEST]
    software: Annotated[str, TEXT]
    wire_version: Annotated[int, U16]
    spec: Annotated[RunSpec, SPEC]


@dataclass(frozen=True)
class Roster(Body):
    """Coordinator to agents: who takes part, in canonical order, with the totals of rows.

    In the regime `joint`, `weights` has the planned weight of the group of every agent. It is
    zero for an agent that is in a group with no other; no two groups have the same weight. In the
    regime `consensus` it is 1 for an agent that is a type, and 0 for the others. In other regimes
    it is empty.
    """

    kind = Kind.ROSTER
    agents: Annotated[tuple[str, ...], NAMES]
    n_null: Annotated[int, U64]
    n_test: Annotated[int, U64]
    weights: Annotated[tuple[Fraction, ...], FRACTIONS] = ()


@dataclass(frozen=True)
class Model(Body):
    """Agent to agent: a score model in the wire format."""

    kind = Kind.MODEL
    blob: Annotated[bytes, BLOB]


@dataclass(frozen=True)
class Ready(Body):
    """Agent to coordinator: every score is ranked. `n_wanted` is zero outside of `joint`.

    With strata, `strata` has the three numbers of each stratum, one after the other.
    """

    kind = Kind.READY
    n_tested: Annotated[int, U64]
    n_calibration: Annotated[int, U64]
    n_wanted: Annotated[int, U64] = 0
    strata: Annotated[tuple[int, ...], U64S] = ()

    @property
    def blocks(self) -> list[tuple[int, int, int]]:
        """The three numbers of each stratum, or of the agent where it has none."""
        if not self.strata:
            return [(self.n_tested, self.n_calibration, self.n_wanted)]
        parts = iter(self.strata)
        return list(zip(parts, parts, parts, strict=True))


@dataclass(frozen=True)
class Left(Body):
    """Coordinator to agents: one of them vanished; it counts as zero from this round on."""

    kind = Kind.LEFT
    agent: Annotated[str, NAME]


@dataclass(frozen=True)
class Start(Body):
    """Coordinator to agents: the counts begin, over these agents and this many tests.

    In the regime `joint`, `rooms` has the x of the group of every participant, zero where it is in
    a group with no other. In other regimes it is empty.
    """

    kind = Kind.START
    participants: Annotated[tuple[str, ...], NAMES]
    n_tests: Annotated[int, U64]
    rooms: Annotated[tuple[Fraction, ...], FRACTIONS] = ()


def packed(body: Body) -> bytes:
    """Return the bytes of a body, without its envelope."""
    return pack(layout_of(type(body)), [getattr(body, field.name) for field in fields(body)])


@dataclass(frozen=True)
class Outcome(Body):
    """Coordinator to agents: the fixed point, and on whom it rests.

    Where agents decide alone there is no common step-up: `n_rejected`, `slope` and `rounds`
    are zero, and nobody learns the total. In the regime `joint`, `cells` has the lowest rejected
    cell of every participant's group, and the number of cells where none is rejected. In the
    regime `consensus` it has the lowest rejected cell, and `conforms` has what each participant
    said. In other regimes both are empty.
    `k` is what the limits on ranks follow from in committed counting, and zero otherwise: there it
    is `n_rejected`.
    """

    kind = Kind.OUTCOME
    n_rejected: Annotated[int, U64]
    n_tests: Annotated[int, U64]
    slope: Annotated[Fraction, FRACTION]
    rounds: Annotated[int, U32]
    participants: Annotated[tuple[str, ...], NAMES]
    left_out: Annotated[tuple[str, ...], NAMES]
    dropped: Annotated[tuple[str, ...], NAMES]
    cells: Annotated[tuple[int, ...], U32S] = ()
    conforms: Annotated[tuple[int, ...], U32S] = ()
    k: Annotated[int, U64] = 0

    @property
    def conforming(self) -> dict[str, int]:
        """From which cell of distances on rows do not conform to each participant's normals."""
        return dict(zip(self.participants, self.conforms, strict=bool(self.conforms)))

    def cell_of(self, agent: str) -> int:
        """Return the lowest rejected cell of a participant's group, in the regime `joint`."""
        return dict(zip(self.participants, self.cells, strict=True))[agent]


@dataclass(frozen=True)
class Abort(Body):
    """Anybody to everybody: the run is over without an outcome. `culprit` may be empty."""

    kind = Kind.ABORT
    culprit: Annotated[str, NAME]
    fault: Annotated[str, TEXT]
    reason: Annotated[str, TEXT]


@dataclass(frozen=True)
class History(Body):
    """Agent to coordinator, after a batch: the batches so far, as its ledger has them.

    `digest` stands for the numbers of tests and of rejections over all agents in each batch, and
    the level of the list. All agents must have the same.
    """

    kind = Kind.HISTORY
    n_batches: Annotated[int, U32]
    n_tests: Annotated[int, U64]
    digest: Annotated[bytes, DIGEST]


@dataclass(frozen=True)
class Listing(Body):
    """Coordinator to agents: count your rows of all batches with E ≥ M/(αk)."""

    kind = Kind.LISTING
    k: Annotated[int, U64]


@dataclass(frozen=True)
class Listed(Body):
    """Coordinator to agents: so many rows of all agents are on the list."""

    kind = Kind.LISTED
    n_listed: Annotated[int, U64]


@dataclass(frozen=True)
class Message:
    """A body with its address."""

    run_id: bytes  # 16 bytes that no other run has
    sender: str  # an agent, or "coordinator"
    receiver: str
    round: int  # of counts, from 1; 0 outside of them
    body: Body
