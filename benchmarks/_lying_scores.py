"""Agents that lie about their counts: what honest agents reject, by both rules.

Scores are drawn, so that a trial takes milliseconds: nulls are standard normal, novelties are
shifted. A liar claims the smallest rank for each of its rows, or, in the regime `joint`, as many
rows in the highest cell as its floor allows, and no calibration row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.stats.cells import CellHistogram, PooledBlock, RoomWanted, choose_room, most_above
from conovel.stats.grouped import pooled_cut
from conovel.stats.ranks import conformal_ranks
from conovel.stats.stepup import step_up

N_CELLS = 64
LIKELY = 2.7  # scores from here on are counted as likely novelties, to choose x in `joint`
LEVEL = Fraction(1, 10)


@dataclass(frozen=True)
class LiarDesign:
    """Equal agents, the last `liars` of which lie.

    Attributes
    ----------
    n_agents, liars : int
        The numbers K and f.
    n_calibration, n_null, n_novel : int
        Rows of each agent.
    shift : float
        Of the novelties, in standard deviations.
    """

    n_agents: int
    liars: int
    n_calibration: int
    n_null: int
    n_novel: int
    shift: float = 3.0

    @property
    def honest(self) -> int:
        """The number of agents that do not lie."""
        return self.n_agents - self.liars


class Found(NamedTuple):
    """The share of nulls among the rejected rows of honest agents, and the share found."""

    false_share: float
    power: float


class Scores(NamedTuple):
    """The scores of one agent; of its tests the nulls come first."""

    calibration: NDArray[np.float64]
    tests: NDArray[np.float64]


def draw(design: LiarDesign, seed: int) -> list[Scores]:
    """Draw the scores of all agents for one trial.

    Examples
    --------
    >>> [part.shape for part in draw(LiarDesign(3, 1, 99, 18, 2), seed=0)[0]]
    [(99,), (20,)]
    """
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(design.n_agents):
        tests = rng.normal(size=design.n_null + design.n_novel)
        tests[design.n_null :] += design.shift
        found.append(Scores(rng.normal(size=design.n_calibration), tests))
    return found


def by_ranks(
    agents: Sequence[Scores], design: LiarDesign, *, is_lying: bool, tolerated: int
) -> Found:
    """Decide as `counts` and `full` do; liars claim the smallest rank for every row.

    Examples
    --------
    >>> design = LiarDesign(9, 1, 199, 110, 0)
    >>> agents = draw(design, seed=0)
    >>> [by_ranks(agents, design, is_lying=True, tolerated=f).false_share for f in (0, 1)]
    [1.0, 0.0]
    """
    blocks = [(conformal_ranks(a.calibration, a.tests), design.n_calibration) for a in agents]
    if is_lying:
        liars = [(np.ones_like(ranks), size) for ranks, size in blocks[design.honest :]]
        blocks = blocks[: design.honest] + liars
    outcome = step_up(blocks, LEVEL, liars=tolerated)
    return _of_honest(outcome.rejected[: design.honest], design)


def by_cells(
    agents: Sequence[Scores], design: LiarDesign, *, is_lying: bool, tolerated: int
) -> Found:
    """Decide as `joint` does, on a grid of cells; liars claim all that their floor allows."""
    edges = np.linspace(-1, 5, N_CELLS - 1)
    x = choose_room([_wanted(agent) for agent in agents], LEVEL, tolerated)
    histograms = [
        CellHistogram.of(np.digitize(a.calibration, edges), np.digitize(a.tests, edges), N_CELLS)
        for a in agents
    ]
    floors = [histogram.floor(x) for histogram in histograms]
    m = design.n_null + design.n_novel
    blocks = []
    for place, (histogram, floor) in enumerate(zip(histograms, floors, strict=True)):
        above = histogram.above(floor)
        if is_lying and place >= design.honest:
            claimed = np.zeros(N_CELLS, dtype=np.int64)
            claimed[-1] = min(m, most_above(design.n_calibration, x))
            above = CellHistogram(np.zeros_like(claimed), claimed)
        block = PooledBlock(m, design.n_calibration, tuple(above.tests), tuple(above.calibration))
        blocks.append(block)
    outcome = pooled_cut(blocks, LEVEL, x, liars=tolerated)
    masks = [
        outcome.rejects(np.digitize(agent.tests, edges), floor)
        for agent, floor in zip(agents, floors, strict=True)
    ]
    return _of_honest(masks[: design.honest], design)


def _wanted(agent: Scores) -> RoomWanted:
    likely = sum(int((scores >= LIKELY).sum()) for scores in agent)
    return RoomWanted(likely, agent.tests.size, agent.calibration.size)


def _of_honest(masks: Sequence[NDArray[np.bool_]], design: LiarDesign) -> Found:
    false = sum(int(mask[: design.n_null].sum()) for mask in masks)
    right = sum(int(mask[design.n_null :].sum()) for mask in masks)
    novel = design.honest * design.n_novel
    return Found(false / max(false + right, 1), right / novel if novel else 0.0)
