"""The regime `joint` from the asking side: groups, x, checked histograms, and the decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from conovel.errors import CountOutOfRangeError
from conovel.spec.bodies import Histogram, Ready
from conovel.spec.groups import Group
from conovel.stats.cells import N_CELLS, ROOMS, CellHistogram, PooledBlock, choose_room
from conovel.stats.grouped import PooledGroup, PooledOutcome, grouped_cut

_ONE_TEST_IN = (50, 10)  # is expected to be rejected, if not more; one guess each


def crowded_apart(groups: Sequence[Group], ready: Mapping[str, Ready]) -> list[Group]:
    """Let agents with more likely novelties than room above a floor decide by themselves.

    By itself an agent needs no floor. It stays in its group where it could reject nothing by
    itself: half of its likely novelties must be enough for its smallest p-value, at level 1/10.
    Whether a row is a calibration row plays no part in these numbers.

    Proof: Theorem 12 (docs/theory.md#thm-groups).
    """
    found = []
    for group in groups:
        apart = [name for name in group.agents if name in ready and _is_crowded(ready[name])]
        rest = tuple(name for name in group.agents if name not in apart)
        found += [Group((name,), group.weight) for name in apart]
        found += [Group(rest, group.weight)] if rest else []
    return found


def _is_crowded(ready: Ready) -> bool:
    size = ready.n_calibration + 1
    can_alone = ready.n_wanted * size >= 20 * ready.n_tested
    return can_alone and ready.n_wanted > ROOMS[-1] * size


def rooms_of(
    groups: Sequence[Group], ready: Mapping[str, Ready], level: Fraction, liars: int = 0
) -> dict[str, Fraction]:
    """Choose x for every group, and give it by the names of those who are ready.

    Zero, which means no floor, for whoever is in a group with no other.

    Proof: Theorem 12 (docs/theory.md#thm-groups).
    """
    rooms = dict.fromkeys(ready, Fraction(0))
    for group in crowded_apart(groups, ready):
        members = [name for name in group.agents if name in ready]
        if len(members) > 1:
            room = choose_room([ready[name].asks for name in members], level, liars)
            rooms |= dict.fromkeys(members, room)
    return rooms


def own_floor(histogram: CellHistogram, room: Fraction, *, is_alone: bool, level: Fraction) -> int:
    """Return the lowest cell whose rows an agent sends.

    Proof: Theorem 10 (docs/theory.md#thm-joint), Corollary 3 (docs/theory.md#cor-joint-one).
    """
    if not histogram.size:
        return N_CELLS  # nothing to test: its rows do not matter
    return histogram.floor_alone(level) if is_alone else histogram.floor(room)


def group_of(
    agent: str,
    told: Iterable[str],
    weights: Mapping[str, Fraction],
    rooms: Mapping[str, Fraction],
) -> set[str]:
    """Return who is in an agent's group, by what was told of everybody."""
    own = weights[agent]
    if not own or not rooms[agent]:  # it decides alone
        return {agent}
    return {name for name in told if weights[name] == own and rooms[name]} | {agent}


def told_groups(weights: Mapping[str, Fraction]) -> tuple[Group, ...]:
    """Return the groups that the weights of a roster tell; see :func:`told_weights`.

    Examples
    --------
    >>> half = Fraction(1, 2)
    >>> [g.agents for g in told_groups({"a": half, "b": Fraction(0), "c": half})]
    [('a', 'c'), ('b',)]
    """
    together: dict[object, list[str]] = {}
    for name, weight in weights.items():
        together.setdefault(weight or name, []).append(name)
    return tuple(Group(tuple(names), weights[names[0]]) for names in together.values())


def block_of(
    agent: str, ready: Ready, histogram: Histogram, room: Fraction, level: Fraction
) -> PooledBlock:
    """Check an agent's histogram against the numbers that it gave before.

    Proof: Theorem 10 (docs/theory.md#thm-joint).

    Raises
    ------
    CountOutOfRangeError
        If it counts more rows than the agent has, or more above its floor than x allows. Without
        a floor, if it counts calibration rows where no row can be rejected.
    """
    n_calibration, n_tests = sum(histogram.calibration), sum(histogram.tests)
    if n_calibration > ready.n_calibration or n_tests > ready.n_tested:
        raise CountOutOfRangeError(
            f"{agent} counts {n_calibration} calibration rows and {n_tests} test rows, and has"
            f" {ready.n_calibration} and {ready.n_tested}",
            agent,
        )
    if room:
        counted, most = n_calibration + n_tests, room * (ready.n_calibration + 1) // 1
    else:  # see CellHistogram.floor_alone
        counted, most = n_calibration, max(level * (ready.n_calibration + 1) // 1 - 1, 0)
    if counted > most:
        raise CountOutOfRangeError(
            f"{agent} counts {counted} rows above its floor, and x = {room} allows {most}", agent
        )
    return PooledBlock(ready.n_tested, ready.n_calibration, histogram.tests, histogram.calibration)


def expected_rejections(ready: Sequence[Ready]) -> tuple[int, ...]:
    """Return how many rejections a group may expect, by two guesses.

    Both are at least its rows in high cells. Where these are few, one guess says that there are
    few novelties, and the other that they are not in high cells.

    Proof: Theorem 12 (docs/theory.md#thm-groups).
    """
    tests, likely = (sum(n) for n in zip(*((r.n_tested, r.n_wanted) for r in ready), strict=True))
    return tuple(max(likely, -(-tests // one_in)) for one_in in _ONE_TEST_IN)


@dataclass(frozen=True)
class GroupOutcome:
    """What became of one group: who was in it, and where the rule stopped."""

    agents: tuple[str, ...]
    room: Fraction
    found: PooledOutcome


def decide_groups(
    groups: Sequence[Group],
    blocks: Mapping[str, PooledBlock],
    rooms: Mapping[str, Fraction],
    ready: Mapping[str, Ready],
    level: Fraction,
    liars: int = 0,
) -> tuple[GroupOutcome, ...]:
    """Decide for all agents that sent a histogram; agents without tests are in no group.

    Proof: Theorem 12 (docs/theory.md#thm-groups), Theorem 18 (docs/theory.md#thm-joint-liars).
    """
    names = [
        [name for name in group.agents if name in blocks] for group in crowded_apart(groups, ready)
    ]
    present = [tuple(members) for members in names if any(blocks[n].n_test for n in members)]
    if not present:
        return ()
    x = [rooms[members[0]] for members in present]
    pooled = [
        PooledGroup(
            [blocks[name] for name in members],
            room or None,
            expected=expected_rejections([ready[name] for name in members]),
        )
        for members, room in zip(present, x, strict=True)
    ]
    return tuple(map(GroupOutcome, present, x, grouped_cut(pooled, level, liars)))


def told_cells(decided: Sequence[GroupOutcome], participants: Sequence[str]) -> tuple[int, ...]:
    """Return the lowest rejected cell of every participant, as an outcome has it."""
    cells = dict.fromkeys(participants, N_CELLS)
    for group in decided:
        if group.found.cell is not None:
            cells |= dict.fromkeys(group.agents, group.found.cell)
    return tuple(cells[name] for name in participants)
