"""How many known normals train and how many calibrate: a rule of numbers of rows.

Calibration rows set the resolution: with ℓ of them p-values are multiples of 1/(ℓ+1), and a
step-up that would stop at p-value t can only stop at the next multiple below, or nowhere.
Training rows make the score. How many to give to each is decided before any row is looked
at, from their number, the number of tests and the level. All parties of a run can derive it.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from conovel.spec.findings import Finding, percent
from conovel.spec.run_spec import RunSpec
from conovel.stats.levels import Level, as_level
from conovel.stats.null_proportion import NullProportion
from conovel.stats.resolution import resolution_words
from conovel.stats.words import counted

MAX_TRAIN_ROWS = 100_000  # beyond, a score learns little more and takes much longer
# In a group of several agents everybody keeps at least so many calibration rows, if it has them.
FEWEST_CALIBRATION_ROWS = 30
_GRID = 20  # shares are multiples of 1/20, easy to read and to repeat
# The share of discoveries among the tests is not known beforehand: anything from 1 in 50 to 1
# in 5, on a logarithmic scale. Half of what a score can learn, it learns from 200 rows.
# Made from decimals, so that they have the same bits on every machine.
_DISCOVERIES = np.array(
    [float(Decimal(2) / 100 * Decimal(10) ** (Decimal(i) / 100)) for i in range(101)]
)
_HALF_LEARNT = 200
_LARGEST_LIST = 4  # one test in so many: a list that it must be possible to reject


class Numbers(NamedTuple):
    """What the hello of an agent says of its rows."""

    n_null: int
    n_test: int


HALF, ANY_SHARE = Fraction(1, 2), Fraction(0)


def train_share(n_null: int, n_tests: int, level: Level, least: Fraction = HALF) -> Fraction:
    """Return the share of known normals to train on.

    It maximises (part of the level that the resolution leaves, on average over the share of
    discoveries) × (part of a score that is learnt), among shares of at least `least`. Smaller ones
    are taken where a quarter of the tests could not be rejected. Half is for a batch at one site
    (docs/results/few.md). In a network, with a ledger and for a kept detector any share may be
    best: from few known normals more calibrate, from many a little more than half train.

    `n_tests` are decided together. In a network with counts an agent gives its own number times
    the number of agents: it does not know the others' numbers when it cuts its rows. A poor guess
    costs resolution, never validity.

    Examples
    --------
    >>> [str(train_share(n, 1000, 0.1)) for n in (70, 333, 1000, 100_000)]
    ['3/20', '1/2', '1/2', '13/20']
    >>> [str(train_share(n, 1000, 0.1, ANY_SHARE)) for n in (70, 333, 1000, 100_000)]
    ['3/20', '2/5', '1/2', '13/20']
    """
    alpha = float(as_level(level))
    shares = np.arange(2, 16) / _GRID
    n_train = np.maximum(1, np.floor(shares * n_null))
    threshold = alpha * np.maximum(1, _DISCOVERIES * n_tests) / max(n_tests, 1)
    steps = (n_null - n_train + 1)[:, np.newaxis] * threshold
    used = (np.floor(steps) / steps).mean(axis=1)
    if not used.any():  # nothing can be rejected whatever the split
        return Fraction(1, 2)
    worth = used * n_train / (n_train + _HALF_LEARNT)
    finest = alpha * (n_null - n_train + 1) / _LARGEST_LIST >= 1
    allowed = (shares >= float(least)) & finest
    best = int(np.argmax(np.where(allowed, worth, -1) if allowed.any() else worth))
    return Fraction(best + 2, _GRID)


def as_share(
    train_fraction: Level | None, n_null: int, n_tests: int, level: Level, least: Fraction = HALF
) -> Fraction:
    """Read `train_fraction`; None is :func:`train_share`."""
    if train_fraction is None:
        return train_share(n_null, n_tests, level, least)
    return as_level(train_fraction, "train_fraction")


def as_train_fraction(share: Level) -> Fraction:
    """Read the share of known normals that train; 0 lets all of them calibrate.

    Examples
    --------
    >>> as_train_fraction("0.0"), as_train_fraction(0.25)
    (Fraction(0, 1), Fraction(1, 4))
    """
    is_text = isinstance(share, str) and share.strip("0") in ("", ".") and "0" in share
    if is_text or (not isinstance(share, str | bool) and share == 0):
        return Fraction(0)
    return as_level(share, "train_fraction")


def n_training(n: int, train_fraction: Level, most: int | None = None) -> int:
    """Return how many of n known normals train: one at least, and all but one at most.

    Examples
    --------
    >>> n_training(1000, "1/2"), n_training(1000, "1/5000"), n_training(1000, "1/2", most=100)
    (500, 1, 100)
    """
    fraction = as_level(train_fraction, "train_fraction")
    return max(min(max(int(fraction * n), 1), n - 1, n if most is None else most), 0)


def share_that_trains(
    spec: RunSpec, n_null: int, n_test: int, n_agents: int, *, by_rule: bool = False
) -> Fraction:
    """Return the share of an agent's known normals that train, in a run of so many agents.

    Where all tests are decided together, their number is taken to be this agent's own times the
    number of agents. The totals of the roster come after the rows are cut. With `by_rule` it is
    the agent's own rule, whatever the run asks for.

    Proof: Theorem 1 (docs/theory.md#thm-valid).
    """
    n_null, n_tests = spec.regime.decided_together(n_null, n_test, n_agents)
    fixed = None if by_rule else spec.train_fraction
    least = HALF if n_agents == 1 else ANY_SHARE
    return as_share(fixed, n_null, n_tests, spec.test_level(n_agents), least)


def planned_calibration(rows: Numbers, spec: RunSpec, n_agents: int) -> int:
    """Return how many calibration rows an agent would keep by itself."""
    if rows.n_null < 2:  # no run accepts so few; none trains
        return rows.n_null
    share = share_that_trains(spec, rows.n_null, rows.n_test, n_agents)
    return rows.n_null - n_training(rows.n_null, share, MAX_TRAIN_ROWS)


def needed_calibration(n_test: int, weight: Fraction) -> int:
    """Return how many calibration rows an agent needs in a group of that weight.

    With so many its own m_j/(ℓ_j + 1) is at most the weight of the group. More would only make
    its normal rows count more than those of the others.
    """
    return max(math.ceil(n_test / weight) - 1, FEWEST_CALIBRATION_ROWS)


# A site with fewer rows than these has a few novelties, which groups of five rows would hide
# (docs/privacy.md).
_FEW_ROWS = 400
LEAST_ROWS, LEAST_ROWS_OF_FEW = 5, 3


def least_rows(n_rows: int) -> int:
    """Return how many rows a leaf, a level or a cell that leaves a site stands for, at least.

    A model is learnt from `n_rows`: null_train and the mixture together. This number does not
    depend on which rows of the mixture are calibration rows.
    """
    return LEAST_ROWS if n_rows >= _FEW_ROWS else LEAST_ROWS_OF_FEW


# Few: if no row can be flagged unless more than this share of the rows are.
THIN = Fraction(1, 5)
NOTHING_FLAGGED = Fraction(1, 10)  # the same where no row was flagged
_WANTED = Fraction(1, 20)  # the share for which the advice says how many rows are needed


def thin_finding(
    n_calibration: int,
    n_tests: int,
    level: Fraction,
    pi0: NullProportion | None = None,
    agent: str = "",
    where: str = "",
    share: Fraction = THIN,
    *,
    trains: bool = True,
) -> Finding | None:
    """Say that calibration rows are few; None if they are not.

    `n_tests` are decided together. `where` says whose they are, such as " of all agents", for a
    network; then `joint` is advised. Calibration rows are few if no row can be flagged unless
    more than `share` of the rows are, and more than one. `trains` says whether some known normals
    train; if none does, it is not advised that all of them calibrate.

    Examples
    --------
    >>> print(thin_finding(18, 300, Fraction(1, 10), None, "va", " of all agents").message)
    with 18 calibration rows, no row of va can be flagged unless at least 158 of the 300 rows of
    all agents are flagged at once
    >>> thin_finding(400, 300, Fraction(1, 10)) is None
    True
    """
    if pi0 is not None:  # an estimate below m can make up for few rows
        return None
    fewest = math.ceil(n_tests / (level * (n_calibration + 1)))
    joint = bool(where)
    return few_rows(
        n_calibration, fewest, n_tests, level, agent, where, joint, share, trains=trains
    )


def few_rows(
    size: int,
    fewest: int,
    n_tests: int,
    level: Fraction,
    agent: str = "",
    where: str = "",
    joint: bool = False,
    share: Fraction = THIN,
    *,
    trains: bool = True,
) -> Finding | None:
    """Say that `size` calibration rows are few if `fewest` rejections are; None if not."""
    if fewest < 2 or fewest <= share * n_tests:
        return None
    row = f"row of {agent}" if agent else "row"
    message = resolution_words(size, fewest, n_tests, level, row, where)
    fix = _what_helps(size, level, agent, trains)
    if joint:
        fix = (
            "use regime='joint', in which the calibration rows of all agents count together, or"
            f" {fix}"
        )
    numbers = {"n_calibration": size, "fewest": fewest, "n_tests": n_tests}
    return Finding("thin_calibration", message, fix, agent=agent, numbers=numbers)


def _what_helps(size: int, level: Fraction, agent: str, trains: bool) -> str:
    """Say what would let fewer rows be flagged, the best first."""
    enough = math.ceil(1 / (level * _WANTED)) - 1
    fix = "take a higher level"
    if size < enough:
        fix = (
            f"add known normals: with {counted(enough, 'calibration row')},"
            f" {percent(_WANTED)} of the rows are enough; or {fix}"
        )
    single = math.floor(level * (size + 1))
    if agent:
        return fix
    if single:
        fix += f"; test at most {counted(single, 'row')} at once, to flag a single one"
    if trains:
        fix += "; let every known normal calibrate (train_fraction=0, for rows in memory)"
    return (
        f"{fix}; or ask for a certificate, which may prove novelties among rows of which none can"
        " be flagged"
    )
