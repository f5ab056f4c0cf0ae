"""Small networks on one common scale: the rule of `joint` by its definition, and every order.

Scores are whole numbers, the cells of the scale. All orders of an agent's null rows are equally
likely, so the false discovery rate of a small network is a fraction.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from conovel.stats.cells import PooledBlock, common_weight, floor_cell
from conovel.stats.grouped import PooledGroup, grouped_cut, pooled_cut


class Agent(NamedTuple):
    """Scores of the nulls (calibration and tests), how many calibrate, scores of novelties."""

    nulls: tuple[int, ...]
    n_calibration: int
    novel: tuple[int, ...] = ()

    @property
    def n_test(self):
        return len(self.nulls) - self.n_calibration + len(self.novel)


class Kept(NamedTuple):
    """The rows of an agent that take part, by their scores."""

    calibration: tuple[int, ...]
    nulls: tuple[int, ...]
    novel: tuple[int, ...]


# The rule by its definition, on scores ------------------------------------------------------


def reference_floor(calibration, tests, x):
    """The smallest of all scores with at most x(ℓ + 1) mixture rows at or above it."""
    mixture = [*calibration, *tests]
    fits = (
        s for s in mixture if sum(other >= s for other in mixture) <= x * (len(calibration) + 1)
    )
    return min(fits, default=math.inf)


def reference_threshold(agents, a, w):
    """The lowest score t with w(1 + C(t)) <= a R(t) among the rows that take part; None if none.

    `agents` holds the scores of (calibration rows, test rows) that take part.
    """
    scores = sorted({s for calibration, tests in agents for s in (*calibration, *tests)})
    for t in scores:
        above = sum(s >= t for calibration, _ in agents for s in calibration)
        rejected = sum(s >= t for _, tests in agents for s in tests)
        if rejected and w * (1 + above) <= a * rejected:
            return t
    return None


def reference_left(agents, w, level, share=1, m_g=None, others=0, total=math.inf):
    """The level a = α(1 - x) of Theorems 10 and 12, for (m_j, ℓ_j, κ_j) of agents that take part.

    Of every h from 1 to κ_j: h calibration rows of agent j, its row i among them, can lie above a
    threshold only if w(h - 1) <= a ψ(R + 2) for some number R of other test rows above it. The
    rule may not run at a = α(1 - x) unless no h above x(ℓ_j + 1) can. `total` is the number of all
    mixture rows above floors, where κ_j are only bounds.
    """
    m_g = sum(m for m, *_ in agents) if m_g is None else m_g
    paid = Fraction(0)
    for j, (m, size, above) in enumerate(agents):
        elsewhere = sum(min(a[0], a[2]) for i, a in enumerate(agents) if i != j)
        for least in range(1, above + 1):
            a = level * (1 - Fraction(least, size + 1))
            if not any(
                w * (h - 1) <= a * min(share * (others + min(elsewhere + own, total - h) + 2), m_g)
                for h in range(least + 1, above + 1)
                for own in range(min(m - 1, above - h) + 1)
            ):
                break
        paid = max(paid, Fraction(least, size + 1))
    return level * (1 - paid)


def reference_masks(agents, level, x):
    """Decide on the scores (calibration, tests) of all agents, in rationals."""
    floors = [reference_floor(calibration, tests, x) for calibration, tests in agents]
    kept = [
        ([s for s in calibration if s >= floor], [s for s in tests if s >= floor])
        for (calibration, tests), floor in zip(agents, floors, strict=True)
    ]
    taking_part = [
        (len(tests), len(calibration), sum(map(len, rows)))
        for (calibration, tests), rows in zip(agents, kept, strict=True)
        if tests and any(rows)
    ]
    w = max((Fraction(m, size + 1) for m, size, _ in taking_part), default=Fraction(0))
    m_g = sum(len(tests) for _, tests in agents)
    a = reference_left(taking_part, w, level, m_g=m_g) if len(taking_part) > 1 else level
    t = reference_threshold(kept, a, w)
    return [
        [t is not None and s >= max(t, floor) for s in tests]
        for (_, tests), floor in zip(agents, floors, strict=True)
    ]


# Which rows take part -----------------------------------------------------------------------


def by_floor(calibration, nulls, novel, x, n_cells):
    """The rows above the floor of the theorem, which sees the mixture alone."""
    mixture = np.bincount([*calibration, *nulls, *novel], minlength=n_cells)
    floor = floor_cell(mixture, len(calibration), x)
    return Kept(*(tuple(s for s in rows if s >= floor) for rows in (calibration, nulls, novel)))


def by_calibration_floor(calibration, nulls, novel, x, n_cells):
    """INVALID: the floor looks at the calibration rows alone."""
    floor = floor_cell(np.bincount(calibration, minlength=n_cells), len(calibration), x)
    return Kept(*(tuple(s for s in rows if s >= floor) for rows in (calibration, nulls, novel)))


def by_cut_through_ties(calibration, nulls, novel, x, n_cells):
    """INVALID: the highest x(ℓ + 1) rows, and of a tied group the test rows first."""
    most = math.floor(x * (len(calibration) + 1))
    rows = [(s, 1, "nulls") for s in nulls] + [(s, 1, "novel") for s in novel]
    rows += [(s, 0, "calibration") for s in calibration]
    highest = sorted(rows, reverse=True)[:most]
    return Kept(*(tuple(s for s, _, kind in highest if kind == name) for name in Kept._fields))


# Every order --------------------------------------------------------------------------------


def orders(agent, keep, x, n_cells):
    """Every (block, false rejections from each cell on) of an agent, with its probability."""
    found = Counter()
    for chosen in itertools.combinations(range(len(agent.nulls)), agent.n_calibration):
        calibration = [agent.nulls[i] for i in chosen]
        nulls = [s for i, s in enumerate(agent.nulls) if i not in chosen]
        found[keep(calibration, nulls, agent.novel, x, n_cells)] += 1
    total = found.total()
    for kept, number in found.items():
        known, null, novel = (np.bincount(rows, minlength=n_cells) for rows in kept)
        block = PooledBlock(agent.n_test, agent.n_calibration, null + novel, known)
        yield block, np.cumsum(null[::-1])[::-1].tolist(), Fraction(number, total)


def exact_fdr(agents, level, x, keep=by_floor, a=None):
    """Expected share of nulls among the rejected rows, over all orders at all agents.

    With `a` the rule runs at that level, whatever the theorem says, and without its checks.
    """
    n_cells = 1 + max(s for agent in agents for s in (*agent.nulls, *agent.novel))
    fdr = Fraction(0)
    for combination in itertools.product(*(orders(g, keep, x, n_cells) for g in agents)):
        blocks = [block for block, _, _ in combination]
        if a is None:
            outcome = pooled_cut(blocks, level, x)
            cell, rejected = outcome.cell, outcome.n_rejected
        else:
            cell, rejected = unchecked_cut(blocks, a)
        if cell is not None:
            false = sum(from_cell[cell] for _, from_cell, _ in combination)
            fdr += math.prod(p for _, _, p in combination) * Fraction(false, rejected)
    return fdr


def unchecked_cut(blocks, a):
    """The lowest cell with w(1 + C) <= a R, and R; for rules that the library refuses."""
    tests = np.sum([b.test_counts for b in blocks], axis=0)
    known = np.sum([b.calibration_counts for b in blocks], axis=0)
    w = common_weight(blocks)
    for cell in range(tests.size):
        above, rejected = int(known[cell:].sum()), int(tests[cell:].sum())
        if rejected and w * (1 + above) <= a * rejected:
            return cell, rejected
    return None, 0


def random_network(rng, most_orders=400):
    """A small network; half of them with ties, a third without novelties."""
    while True:
        n_agents = int(rng.choice([1, 2, 2, 3, 3]))
        sizes = rng.integers([[1, 0]], [[9, 4]], size=(n_agents, 2)).tolist()
        novel = rng.integers(0, 3, size=n_agents) * (rng.random() < 2 / 3)
        n_orders = math.prod(math.comb(size + null, null) for size, null in sizes)
        n_tests = sum(null for _, null in sizes) + novel.sum()
        if 1 < n_orders <= most_orders and n_tests:
            break
    total = int(sum(map(sum, sizes)) + novel.sum())
    tied = rng.random() < 1 / 2
    scores = rng.integers(0, rng.integers(2, 9), size=total) if tied else rng.permutation(total)
    if rng.random() < 1 / 3 and not tied:  # one agent's rows come first on the scale
        scores = np.sort(scores)
    agents, left = [], scores.tolist()
    for (size, null), n_novel in zip(sizes, novel, strict=True):
        rows, left = left[: size + null + n_novel], left[size + null + n_novel :]
        rows.sort()
        # Novelties are the highest rows of the agent, or any of them.
        if n_novel and rng.random() < 1 / 3:
            rng.shuffle(rows)
        agents.append(Agent(tuple(rows[: size + null]), size, tuple(rows[size + null :])))
    return agents


# Groups -------------------------------------------------------------------------------------


def kept_without_floor(calibration, nulls, novel, x, n_cells):
    """All rows take part: the one agent of a group."""
    return Kept(tuple(calibration), tuple(nulls), tuple(novel))


def reference_groups(groups, level):
    """The rule of Theorem 12 by its definition: try every k, from the largest.

    `groups` holds (scores of the calibration rows and test rows that take part, w, a, π, tests).
    """
    scores = sorted({s for known, tests, *_ in groups for s in (*known, *tests)})

    def lowest(group, k):
        known, _, w, a, share, m_g = group
        most = a * min(share * k, m_g)
        fits = (t for t in scores if w * (1 + sum(s >= t for s in known)) <= most)
        return next(fits, math.inf) if w else math.inf

    for k in range(sum(len(tests) for _, tests, *_ in groups), -1, -1):
        cells = [lowest(group, k) for group in groups]
        rejected = [sum(s >= t for s in g[1]) for g, t in zip(groups, cells, strict=True)]
        if sum(rejected) >= k:
            return cells, rejected
    raise AssertionError("k = 0 always holds")


def exact_group_fdr(groups, level, xs, decide=grouped_cut, expected=None):
    """FDR over all orders at all agents, for groups of agents; x is None for one by itself."""
    agents = [agent for group in groups for agent in group]
    owners = [g for g, group in enumerate(groups) for _ in group]
    n_cells = 1 + max(s for agent in agents for s in (*agent.nulls, *agent.novel))
    choices = [
        orders(agent, kept_without_floor if xs[g] is None else by_floor, xs[g], n_cells)
        for agent, g in zip(agents, owners, strict=True)
    ]
    fdr = Fraction(0)
    for combination in itertools.product(*choices):
        blocks = [
            [b for (b, *_), o in zip(combination, owners, strict=True) if o == g]
            for g in range(len(groups))
        ]
        hopes = expected or [None] * len(groups)
        made = [PooledGroup(*g[:2], expected=g[2]) for g in zip(blocks, xs, hopes, strict=True)]
        found = decide(made, level)
        false = sum(
            from_cell[found[g].cell]
            for (_, from_cell, _), g in zip(combination, owners, strict=True)
            if found[g].cell is not None
        )
        if rejected := sum(outcome.n_rejected for outcome in found):
            fdr += math.prod(p for *_, p in combination) * Fraction(false, rejected)
    return fdr
