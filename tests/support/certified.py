"""How often a bound on false rows fails: every order of small networks, and simulated ones."""

import itertools
import math
from fractions import Fraction

import numpy as np

from benchmarks.certificates import fails
from conovel.stats.certificate import Block, false_bound

from .pooled import by_floor, orders


def blocks_of(agents, x, keep=by_floor):
    """The numbers of an agent that the bound follows from, with κ_j of its floor."""
    n_cells = cells_of(agents)
    above = [next(orders(agent, keep, x, n_cells))[0].n_above for agent in agents]
    return [Block(g.n_test, g.n_calibration, k) for g, k in zip(agents, above, strict=True)]


def cells_of(agents):
    return 1 + max(s for agent in agents for s in (*agent.nulls, *agent.novel))


def exact_miss(agents, x, confidence, bound=None, keep=by_floor):
    """The probability that V > b(C) at some cell, over all orders at all agents."""
    n_cells = cells_of(agents)
    if bound is None:
        bound = false_bound(blocks_of(agents, x), confidence)
    miss = Fraction(0)
    for combination in itertools.product(*(orders(g, keep, x, n_cells) for g in agents)):
        known = np.sum([block.calibration_counts for block, *_ in combination], axis=0)
        false = np.sum([from_cell for _, from_cell, _ in combination], axis=0)
        above = np.cumsum(known[::-1])[::-1]
        if (false > np.asarray(bound)[above]).any():
            miss += math.prod(p for *_, p in combination)
    return miss


def simulated_miss(blocks, confidence, *, repeats, seed=0, novel=0.0, ties=0, in_turn=False):
    """The share of simulated networks in which some list has more false rows than its bound.

    `novel` is the share of tests that are novelties; with `ties` so many different scores; with
    `in_turn` agents with more tests for a calibration row come first on the scale.
    """
    rng, bound = np.random.default_rng(seed), false_bound(blocks, confidence)
    how = {"novel": novel, "ties": ties, "in_turn": in_turn}
    return sum(fails(blocks, bound, rng, **how) for _ in range(repeats)) / repeats


# The bound by its definition on docs/theory.md, in plain loops ---------------------------------


def reference_bound(blocks, confidence):
    """Theorem 21 and "How b is chosen", in floats of plain Python."""
    delta, size = 1 - float(confidence), sum(b.n_calibration for b in blocks)
    taking = [b for b in blocks if b.n_test and b.n_part]
    most = sum(min(b.n_test, b.n_part) for b in taking)
    rows = sum(b.n_calibration for b in taking)
    last = min(math.ceil(rows / 4), sum(min(b.n_calibration, b.n_part) for b in taking))
    bound, spent, alive, moved = [], 0.0, {0: 1.0}, 0.0

    def allowed(c):
        return delta * (1 - (c + 2) ** -0.5) / (1 - (last + 2) ** -0.5) - spent

    p = max(b.n_test / (b.n_test + b.n_calibration) for b in taking)
    for c in range(last + 1):
        gone = [min(c, b.n_calibration, b.n_part - 1) for b in taking]
        sizes = zip(taking, gone, strict=True)
        q = max(b.n_test / (b.n_test + b.n_calibration - g) for b, g in sizes)
        if len(taking) == 1:
            q = p
        moved += q / (1 - q) - p / (1 - p) if q < 1 else math.inf
        if c > 400 or moved > 0.25 * math.sqrt((c + 1) * p) / (1 - p):
            break
        reached, v = {-1: 0.0}, 0
        while v <= max(alive) or reached[v - 1] * q > 1e-18:
            reached[v] = alive.get(v, 0.0) + q * reached[v - 1]
            v += 1
        value = bound[-1] if bound else 0
        while reached.get(value + 1, 0.0) * drawn(taking, value + 1, c, p) > allowed(c):
            value += 1
        spent += reached.get(value + 1, 0.0) * drawn(taking, value + 1, c, p)
        bound.append(value)
        alive = {v: (1 - q) * chance for v, chance in reached.items() if 0 <= v <= value}
    while len(bound) <= last:
        start, value = len(bound), bound[-1] if bound else 0
        at = min(start + math.ceil(2 * math.sqrt(start + 1)) - 1, last)
        while value < most and binomial_tail(taking, value, at) > allowed(at):
            value += 1
        spent += binomial_tail(taking, value, at) if value < most else 0.0
        bound += [value] * (at + 1 - start)
    return [min(b, most) for b in bound + [most] * (size - last)]


def drawn(blocks, v, c, p):
    """How much likelier v tests and c calibrations are when one agent's rows are drawn."""
    if len(blocks) > 1:
        return 1.0
    m, rows = blocks[0].n_test, blocks[0].n_test + blocks[0].n_calibration
    if v > m:
        return 0.0
    return math.comb(rows - v - c, m - v) / math.comb(rows, m) / (p**v * (1 - p) ** c)


def binomial_tail(blocks, v, c):
    """The chance of more than v tests among v + 1 + c null rows, or among all."""
    shares = sorted((b.n_test / (b.n_test + b.n_calibration), b.n_part) for b in blocks)[::-1]
    s = left = min(v + 1 + c, sum(n for _, n in shares))
    mean = 0.0
    for share, n in shares:
        mean += share * min(n, left)
        left -= min(n, left)
    if v < mean:
        return 1.0
    p = mean / s
    return sum(math.comb(s, k) * p**k * (1 - p) ** (s - k) for k in range(v + 1, s + 1))
