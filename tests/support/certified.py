"""How often a bound on false rows fails: every order of small networks, and simulated ones."""

import itertools
import math
from fractions import Fraction

import numpy as np

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
    first = max(block.n_test / block.n_calibration for block in blocks)
    missed = 0
    for _ in range(repeats):
        keys, tests = [], []
        for block in blocks:
            n_null = block.n_test - round(novel * block.n_test)
            labels = rng.permutation(np.arange(block.n_calibration + n_null) < n_null)
            rows = np.sort(rng.random(labels.size))[: block.n_part]
            if ties:
                rows = np.floor(rows * ties)
            if in_turn and block.n_test / block.n_calibration < first:
                rows = rows + 1
            keys.append(rows)
            tests.append(labels[: rows.size])
        key, test = np.concatenate(keys), np.concatenate(tests)
        order = np.argsort(key, kind="stable")
        false, known = np.cumsum(test[order]), np.cumsum(~test[order])
        last_of_ties = np.append(np.diff(key[order]) > 0, True)
        missed += bool((false > bound[known])[last_of_ties].any())
    return missed / repeats
