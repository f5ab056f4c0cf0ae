"""Agents with few calibration rows: what it takes to flag one of their rows, and what helps."""

from __future__ import annotations

import math
from fractions import Fraction

from conovel.spec.findings import Finding, percent
from conovel.stats.null_proportion import NullProportion
from conovel.stats.words import counted

# Few: if no row can be flagged unless more than this share of the rows are.
_THIN = Fraction(1, 5)
_WANTED = Fraction(1, 20)  # the share for which the advice says how many rows are needed


def thin_finding(
    n_calibration: int,
    n_tests: int,
    level: Fraction,
    pi0: NullProportion | None = None,
    agent: str = "",
    where: str = "",
) -> Finding | None:
    """Say that calibration rows are few; None if they are not.

    Parameters
    ----------
    n_calibration : int
        Calibration rows of the agent.
    n_tests : int
        Tests that are decided together.
    level : Fraction
        At which level.
    pi0 : NullProportion or None
        With an estimator nothing is said: an estimate below m can make up for few rows.
    agent : str
        The agent; empty for one site alone.
    where : str
        Whose tests these are, such as " of all agents", for a network. Then `joint` is advised.

    Examples
    --------
    >>> print(thin_finding(18, 300, Fraction(1, 10), None, "va", " of all agents").message)
    18 calibration rows: no row of va can be flagged unless at least 158 of the 300 rows of all
    agents are
    >>> thin_finding(400, 300, Fraction(1, 10)) is None
    True
    """
    if pi0 is not None:
        return None
    fewest = math.ceil(n_tests / (level * (n_calibration + 1)))
    return few_rows(n_calibration, fewest, n_tests, level, agent, where, bool(where))


def few_rows(
    size: int, fewest: int, n_tests: int, level: Fraction, agent: str, where: str, joint: bool
) -> Finding | None:
    """Say that `size` calibration rows are few if `fewest` rejections are; None if not."""
    if fewest < 2 or fewest <= _THIN * n_tests:
        return None
    row = f"row of {agent}" if agent else "row"
    rows = counted(size, "calibration row")
    if fewest > n_tests:
        message = f"{rows}: no {row} can be flagged at level {level}"
    else:
        message = (
            f"{rows}: no {row} can be flagged unless at least {fewest:,} of the"
            f" {counted(n_tests, 'row')}{where} are"
        )
    enough = math.ceil(1 / (level * _WANTED)) - 1
    fix = (
        f"add known normals: with {counted(enough, 'calibration row')},"
        f" {percent(_WANTED)} of the rows are enough"
    )
    if joint:
        fix = (
            "use regime='joint', in which the calibration rows of all agents count together, or"
            f" {fix}"
        )
    numbers = {"n_calibration": size, "fewest": fewest, "n_tests": n_tests}
    return Finding("thin_calibration", message, fix, agent=agent, numbers=numbers)
