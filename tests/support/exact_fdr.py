"""Every order of the nulls of a small site, each equally likely."""

import itertools
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from conovel.stats.ranks import conformal_ranks

FAR = 99.0  # the score of a novelty that is above all nulls


class Site(NamedTuple):
    """Calibration rows, null tests, scores of the novelties, and ties among the nulls."""

    n_calibration: int
    n_null: int
    novel: tuple[float, ...] = ()
    ties: int = 1  # how many nulls share one score


def outcomes(site, strict=False):
    """Every distinct vector of ranks of a site (nulls first), with its probability."""
    pool = np.arange(site.n_calibration + site.n_null) // site.ties
    found = Counter()
    for chosen in itertools.combinations(range(pool.size), site.n_calibration):
        calibration = pool[list(chosen)]
        tests = np.concatenate([np.delete(pool, chosen), site.novel])
        if strict:  # ties broken in favour of the test: what sort-order ranks amount to
            ranks = 1 + np.count_nonzero(calibration[:, None] > tests, axis=0)
        else:
            ranks = conformal_ranks(calibration.astype(float), tests)
        found[tuple(int(r) for r in ranks)] += 1
    total = found.total()
    return [(np.array(ranks), Fraction(n, total)) for ranks, n in found.items()]
