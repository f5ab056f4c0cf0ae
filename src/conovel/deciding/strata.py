"""The decision of one site whose rows are compared within strata: each stratum is a block."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from conovel.deciding.cell_groups import Group, rooms_of
from conovel.deciding.cells import decide_groups, own_floor
from conovel.spec.bodies import Ready
from conovel.stats.cells import N_CELLS, CellHistogram, PooledBlock
from conovel.stats.certificate import Block
from conovel.stats.strata import StrataHistogram


class StrataOutcome(NamedTuple):
    """The lowest cell of each stratum whose rows take part, and the lowest that is rejected."""

    floors: tuple[int, ...]
    cuts: tuple[int, ...]  # the number of cells where no row is rejected
    above: CellHistogram  # the rows of all strata above floors, for a certificate
    blocks: tuple[Block, ...]  # the numbers of rows of each stratum, for a certificate
    n_rejected: int
    evidence: tuple[Fraction, ...]  # the e-value of the rejected rows of each stratum
    counts: StrataHistogram  # what it was decided from
    groups: Sequence[int]


def decide_strata(
    counts: StrataHistogram, groups: Sequence[int], level: Fraction, most: Fraction | None = None
) -> StrataOutcome:
    """Decide about the rows of one site; `groups` says which strata calibrate together.

    For evidence, `most` is the share of rows beyond which rejections bring no others.

    Proof: Theorem 22 (docs/theory.md#thm-strata), Theorem 12 (docs/theory.md#thm-groups), Lemma 12
    (docs/theory.md#lem-block-evidence).
    """
    strata = dict(zip(map(str, range(len(counts.strata))), counts.strata, strict=True))
    ready = {s: Ready(one.size, one.n_calibration, one.n_likely) for s, one in strata.items()}
    planned = [_group(number, groups, ready) for number in sorted(set(groups))]
    rooms = rooms_of(planned, ready, level)
    floors = {
        s: own_floor(one, rooms[s], is_alone=not rooms[s], level=level)
        for s, one in strata.items()
    }
    blocks = {}
    for s, one in strata.items():
        above = one.above(floors[s])
        cells = tuple(above.tests.tolist()), tuple(above.calibration.tolist())
        blocks[s] = PooledBlock(one.size, one.n_calibration, *cells)
    limit = None if most is None else int(most * counts.size)
    decided = decide_groups(planned, blocks, rooms, ready, level, most=limit)
    cuts, evidence = dict.fromkeys(strata, N_CELLS), dict.fromkeys(strata, Fraction(0))
    for group in decided:
        evidence |= dict.fromkeys(group.agents, group.outcome.evidence(counts.size, level))
        if group.outcome.cell is not None:
            cuts |= {s: max(group.outcome.cell, floors[s]) for s in group.agents}
    # A stratum by itself has no floor: where its rows end depends on the calibration rows.
    certain = tuple(floors[s] if rooms[s] else 0 for s in strata)
    numbers = tuple(
        Block(one.size, one.n_calibration, blocks[s].n_above if rooms[s] else None)
        for s, one in strata.items()
    )
    n_rejected = sum(group.outcome.n_rejected for group in decided)
    above = counts.above_floors(certain)
    own = tuple(cuts.values()), above, numbers, n_rejected, tuple(evidence.values())
    return StrataOutcome(certain, *own, counts, groups)


def _group(number: int, groups: Sequence[int], ready: dict[str, Ready]) -> Group:
    members = tuple(str(s) for s, one in enumerate(groups) if one == number)
    sizes = [(ready[s].n_tested, ready[s].n_calibration) for s in members]
    return Group(members, max(Fraction(m, n + 1) for m, n in sizes))
