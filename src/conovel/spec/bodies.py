"""What messages say: one frozen record for each kind, whose fields are its byte layout."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from fractions import Fraction
from typing import Annotated, ClassVar, get_type_hints

from conovel.spec.fields import (
    BLOB,
    COUNTS,
    DIGEST,
    DIGESTS,
    FRACTION,
    FRACTIONS,
    NAME,
    NAMES,
    SPEC,
    TEXT,
    U16,
    U32,
    U32S,
    U32S_OF_FOLDS,
    U64,
    U64S,
    Field,
    listed,
    pack,
    unpack,
)
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import RoomWanted

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
    FOLD = 13
    COMMIT = 14
    COMMITMENTS = 15
    REVEAL = 16
    REVEALS = 17
    SEAL = 18
    SEALED = 19
    HISTORY = 20
    LISTING = 21
    LISTED = 22


# Everything else happens once in a run and has round 0.
# Models have rounds in the regime `consensus` alone.
IN_ROUNDS = frozenset(
    {
        Kind.MODEL,
        Kind.LEFT,
        Kind.BELOW,
        Kind.STEP,
        Kind.COUNT,
        Kind.OUTCOME,
        Kind.HISTOGRAM,
        Kind.FOLD,
        Kind.COMMIT,
        Kind.COMMITMENTS,
        Kind.REVEAL,
        Kind.REVEALS,
        Kind.LISTING,
        Kind.LISTED,
    }
)


@dataclass(frozen=True)
class Body:
    """What a message says; the fields of a subclass are its byte layout."""

    kind: ClassVar[Kind]


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
    """Agent to agent: a score model in the wire format.

    In the regime `consensus` the first models have round 1, the second models of the two folds
    have rounds 2 and 3, and what opens the sender's seal has round 4. In other regimes a model has
    round 0.
    """

    kind = Kind.MODEL
    blob: Annotated[bytes, BLOB]


@dataclass(frozen=True)
class Seal(Body):
    """Agent to coordinator, in the regime `consensus`: a commitment to its second models."""

    kind = Kind.SEAL
    digest: Annotated[bytes, DIGEST]


@dataclass(frozen=True)
class Sealed(Body):
    """Coordinator to agents: the seals of all agents, in the order of the roster."""

    kind = Kind.SEALED
    digests: Annotated[tuple[bytes, ...], DIGESTS]


@dataclass(frozen=True)
class Ready(Body):
    """Agent to coordinator: every score is ranked. `n_wanted` is zero outside of `joint`."""

    kind = Kind.READY
    n_tested: Annotated[int, U64]
    n_calibration: Annotated[int, U64]
    n_wanted: Annotated[int, U64] = 0

    @property
    def asks(self) -> RoomWanted:
        """What the agent asks for in the regime `joint`."""
        return RoomWanted(self.n_wanted, self.n_tested, self.n_calibration)


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


@dataclass(frozen=True)
class Below(Body):
    """Coordinator to agents: count the p-values strictly below this one."""

    kind = Kind.BELOW
    p_value: Annotated[Fraction, FRACTION]


@dataclass(frozen=True)
class Step(Body):
    """Coordinator to agents: count your rejections if there are `k` in all."""

    kind = Kind.STEP
    k: Annotated[int, U64]
    slope: Annotated[Fraction, FRACTION]


@dataclass(frozen=True)
class Count(Body):
    """Agent to coordinator: the answer."""

    kind = Kind.COUNT
    count: Annotated[int, U64]


@dataclass(frozen=True)
class Histogram(Body):
    """Agent to coordinator: its rows in each cell of the common scale above its floor."""

    kind = Kind.HISTOGRAM
    calibration: Annotated[tuple[int, ...], COUNTS]
    tests: Annotated[tuple[int, ...], COUNTS]


@dataclass(frozen=True)
class FoldCounts(Body):
    """Agent to coordinator: its rows in each cell, by the score of one fold; rounds 1 and 2.

    `others` are the test rows of the other fold. `conforms` is the lowest cell, by the agent's own
    model, in which a row does not conform to its normals. `score` is the digest of all models that
    the scores of both folds are made of: the same at every agent.
    """

    kind = Kind.FOLD
    calibration: Annotated[tuple[int, ...], COUNTS]
    tests: Annotated[tuple[int, ...], COUNTS]
    others: Annotated[tuple[int, ...], COUNTS]
    conforms: Annotated[int, U32]
    score: Annotated[bytes, DIGEST]


@dataclass(frozen=True)
class Commit(Body):
    """Agent to coordinator: a hash of what it will reveal; round 1."""

    kind = Kind.COMMIT
    digest: Annotated[bytes, DIGEST]


@dataclass(frozen=True)
class Commitments(Body):
    """Coordinator to agents: the commitments of all participants; round 1."""

    kind = Kind.COMMITMENTS
    agents: Annotated[tuple[str, ...], NAMES]
    digests: Annotated[tuple[bytes, ...], DIGESTS]


@dataclass(frozen=True)
class Reveal(Body):
    """Agent to coordinator: all its counts, and the nonce of its commitment; round 1.

    The first three numbers are those of its READY. `steps` are the values of k at which its count
    rises, and `tests` by how much. In the regime `joint` there are no steps: `calibration` and
    `tests` have its rows in each cell above its floor.
    """

    kind = Kind.REVEAL
    nonce: Annotated[bytes, DIGEST]
    n_tested: Annotated[int, U64]
    n_calibration: Annotated[int, U64]
    n_wanted: Annotated[int, U64]
    steps: Annotated[tuple[int, ...], U64S]
    calibration: Annotated[tuple[int, ...], U64S]
    tests: Annotated[tuple[int, ...], U64S]

    @property
    def ready(self) -> Ready:
        """The numbers that the agent gave in its READY."""
        return Ready(self.n_tested, self.n_calibration, self.n_wanted)


def _layout(body: type[Body]) -> tuple[Field, ...]:
    hints = get_type_hints(body, include_extras=True)
    return tuple(hints[field.name].__metadata__[0] for field in fields(body))


def packed(body: Body) -> bytes:
    """Return the bytes of a body, without its envelope."""
    return pack(_layout(type(body)), [getattr(body, field.name) for field in fields(body)])


REVEALS_FIELD = listed(Field(packed, lambda reader: Reveal(*unpack(_layout(Reveal), reader))))


@dataclass(frozen=True)
class Reveals(Body):
    """Coordinator to agents: what all participants revealed; round 1."""

    kind = Kind.REVEALS
    agents: Annotated[tuple[str, ...], NAMES]
    reveals: Annotated[tuple[Reveal, ...], REVEALS_FIELD]


@dataclass(frozen=True)
class Outcome(Body):
    """Coordinator to agents: the fixed point, and on whom it rests.

    Where agents decide alone there is no common step-up: `n_rejected`, `slope` and `rounds`
    are zero, and nobody learns the total. In the regime `joint`, `cells` has the lowest rejected
    cell of every participant's group, and the number of cells where none is rejected. In the
    regime `consensus` it has the lowest rejected cell of each fold, and `conforms` has what each
    participant said of the first fold, then of the second. In other regimes both are empty.
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
    conforms: Annotated[tuple[int, ...], U32S_OF_FOLDS] = ()
    k: Annotated[int, U64] = 0

    @property
    def step(self) -> Step:
        """The question that the limits on ranks follow from."""
        return Step(self.k or self.n_rejected, self.slope)

    def limits_of(self, agent: str) -> tuple[int, ...]:
        """Return from which cell on rows do not conform to an agent's normals, for each fold."""
        return self.conforms[self.participants.index(agent) :: len(self.participants)]

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


LAYOUT: dict[type[Body], tuple[Field, ...]] = {b: _layout(b) for b in Body.__subclasses__()}
BODIES: dict[int, type[Body]] = {body.kind: body for body in LAYOUT}


@dataclass(frozen=True)
class Message:
    """A body with its address.

    Attributes
    ----------
    run_id : bytes
        16 bytes that no other run has.
    sender, receiver : str
        Name of an agent, or ``"coordinator"``.
    round : int
        Which round of counts it belongs to, from 1; 0 outside of them.
    body : Body
    """

    run_id: bytes
    sender: str
    receiver: str
    round: int
    body: Body
