"""Do the columns change along the order of the rows? A permutation test, column by column.

The order is cut into segments of equal size. For each column, the ranks of its values are
compared before and after every cut, and their spread as well. The largest standardised difference
is compared with that of random orders of the same rows (docs/theory.md, "The check of the known
normals").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp, mannwhitneyu, rankdata

from conovel.spec.findings import Finding, named, percent

LEVEL = Fraction(1, 100)  # chance of a false finding, of up to 20 agents together
_MOST_SHARES = 20  # p-values are not small enough for smaller shares of the level
MOST_DRAWS = 1999
_SEGMENTS = 20
_FEWEST_ROWS = 40
_MOST_ROWS = 2048
_ROWS_OF_WIDE = 256  # of tables with many columns
_MOST_VALUES = 200_000  # rows × columns of a sample: the check must be cheap
_ALLOWED = 0.1  # what novelties may move: about their share of the test rows
_PLAUSIBLE = 0.2  # share of flagged rows that leaves a change along the order without consequence
UNDECIDED = "order"  # the kind of a finding that only the decisions can settle
_FIX = (
    "take known normals from the same time as the rows to test, leave the drifting columns out, or"
    " replace them by differences from their recent mean; conovel check shows all of them"
)


def level_of_each(n_agents: int) -> Fraction:
    """Return the level at which each agent of a run looks for drift."""
    return LEVEL / min(n_agents, _MOST_SHARES)


class ColumnDrift(NamedTuple):
    """How one column changes along the order.

    Attributes
    ----------
    column : str
        Its name.
    p_value : float
        Adjusted for the number of columns.
    since : int
        The row from which on the values differ most from those before.
    before, after : float
        The mean before and from that row on.

    See Also
    --------
    conovel.runs.check_order.Check : Has one for each column that drifts.
    """

    column: str
    p_value: float
    since: int
    before: float
    after: float


@dataclass(frozen=True, eq=False)
class Drift:
    """How the columns of a sample change along the order of its rows.

    Attributes
    ----------
    n_rows : int
        The rows of the sample.
    p_value : Fraction
        Small if the order of the rows is not a random one.
    columns : tuple of ColumnDrift
        All columns that are not constant, those that change most first.
    places : int array of shape (g,)
        The rows in the middle of each segment.
    traces : dict of float arrays of shape (g,)
        The mean of each column in each segment.

    See Also
    --------
    conovel.runs.check_order.Check : Has it as `drift`.
    """

    n_rows: int
    p_value: Fraction
    columns: tuple[ColumnDrift, ...]
    places: NDArray[np.int64]
    traces: dict[str, NDArray[np.float64]]

    def drifting(self, level: Fraction = LEVEL) -> tuple[ColumnDrift, ...]:
        """Return the columns that change, with at most this chance of naming any in error."""
        if self.p_value > level:
            return ()
        return tuple(column for column in self.columns if column.p_value <= float(level))

    def trace(self, column: str) -> tuple[tuple[float, float], ...]:
        """Return the mean of a column along the order, to be drawn."""
        places = zip(self.places.tolist(), self.traces[column].tolist(), strict=True)
        return tuple(places)


def find_drift(
    values: NDArray[np.float64],
    names: Sequence[str],
    most_draws: int = MOST_DRAWS,
    stride: int = 1,
) -> Drift | None:
    """Test whether the order of rows is a random one; None for fewer than 40 rows.

    Of many rows every 2^k-th is tested. That choice does not look at values.
    """
    n, d = values.shape
    if n < _FEWEST_ROWS or not d:
        return None
    step = stride_of(n, max(min(_MOST_ROWS, _MOST_VALUES // d), _ROWS_OF_WIDE))
    rows = np.arange(0, n, step) * stride
    sample = values[::step]
    size = len(sample)
    varied = np.flatnonzero(np.ptp(sample, axis=0) > 0)
    if not varied.size:
        return None
    cuts = _cuts(size)
    scores = _scores(sample[:, varied])
    observed = _differences(scores, cuts)
    largest = observed.max(axis=0).reshape(2, -1).max(axis=0)  # location and spread
    rng = np.random.default_rng(0)
    drawn = permutation_p_value(
        largest, lambda: float(_differences(scores[rng.permutation(size)], cuts).max()), most_draws
    )
    best = observed.reshape(len(cuts) - 1, 2, -1).max(axis=1).argmax(axis=0)
    order = np.lexsort((-largest, drawn.adjusted))
    traces = np.add.reduceat(sample, cuts, axis=0) / np.diff([*cuts, size])[:, np.newaxis]
    columns = []
    for j in order.tolist():
        cut, column = int(cuts[best[j] + 1]), int(varied[j])
        before, after = sample[:cut, column].mean(), sample[cut:, column].mean()
        p_value, since = float(drawn.adjusted[j]), int(rows[cut])
        columns.append(ColumnDrift(names[column], p_value, since, float(before), float(after)))
    middles = rows[np.minimum((cuts + np.array([*cuts[1:], size])) // 2, size - 1)]
    means = {names[j]: traces[:, j] for j in varied.tolist()}
    return Drift(n * stride, drawn.p_value, tuple(columns), middles, means)


def drift_finding(
    drift: Drift | None,
    null: NDArray[np.float64],
    test: NDArray[np.float64],
    names: Sequence[str],
    level: Fraction = LEVEL,
) -> Finding | None:
    """Say that the known normals change along their order.

    Known normals in the order of a sorted file do as well, and if the test rows were dealt from
    the same file at random, they are alike as a whole. So it is a drift only if the test rows
    differ from the known normals in such a column, by more than a share of novelties would. If
    not, the finding is :data:`UNDECIDED`, until :func:`settled` has seen the decisions.
    """
    drifting = () if drift is None else drift.drifting(level)
    if drift is None or not drifting:
        return None
    columns = {one.column: names.index(one.column) for one in drifting}
    gaps = {
        one.column: _gap(null[:, columns[one.column]], test[:, columns[one.column]], one)
        for one in drifting
    }
    apart = [one for one in drifting if gaps[one.column] > 1]
    ordered = sorted(apart or drifting, key=lambda one: -gaps[one.column])
    worst = ordered[0]
    more = len(ordered) - 1
    change = f"and {more:,} more change" if more else "changes"
    mean = float(test[:, columns[worst.column]].mean())
    message = (
        f"{named(worst.column)} {change} along the known normals since row"
        f" {worst.since:,} of {drift.n_rows:,} (mean {worst.before:.4g} before, {worst.after:.4g}"
        f" after, {mean:.4g} in the test rows; p = {float(drift.p_value):.2g})"
    )
    return Finding(
        "drift" if apart else UNDECIDED,
        message,
        _FIX,
        tuple(one.column for one in ordered),
        numbers={"p_value": float(drift.p_value), "since": worst.since},
        trace=drift.trace(worst.column),
    )


def are_apart(
    drifting: Sequence[ColumnDrift],
    null: NDArray[np.float64],
    test: NDArray[np.float64],
    names: Sequence[str],
) -> bool:
    """Tell whether test rows differ from known normals in a column that drifts."""
    columns = ((names.index(one.column), one) for one in drifting)
    return any(_gap(null[:, j], test[:, j], one) > 1 for j, one in columns)


def settled(finding: Finding, share_flagged: float) -> Finding | None:
    """Take an undecided finding for a drift if more rows are flagged than are plausible."""
    if finding.kind != UNDECIDED:
        return finding
    if share_flagged <= _PLAUSIBLE:
        return None
    message = f"{finding.message}, and {percent(round(share_flagged, 3))} of the rows are flagged"
    return replace(finding, kind="drift", message=message)


def _gap(null: NDArray[np.float64], test: NDArray[np.float64], one: ColumnDrift) -> float:
    """Return how far the test rows are from the known normals in a column, 1 at the limit.

    Novelties that are a share π of the test rows move the distribution function by at most π, and
    the chance that a test row is above a known normal by at most π/2. Allowed is π = 1/10, and
    what chance exceeds once in a hundred samples. The second limit is lower, and counts in the
    direction of the drift only.
    """
    n, m = null.size, test.size
    apart = float(ks_2samp(null, test).statistic)
    above = float(mannwhitneyu(test, null).statistic) / (n * m) - 0.5
    moved = above if one.after > one.before else -above
    chance = float(np.sqrt((n + m) / (n * m)))
    return max(
        apart / (_ALLOWED + 1.63 * chance), moved / (_ALLOWED / 2 + 2.33 * chance / 12**0.5)
    )


def _cuts(n: int) -> NDArray[np.int64]:
    """Return where segments of equal size begin, at least 10 rows each."""
    segments = min(_SEGMENTS, n // 10)
    return (np.arange(segments) * n // segments).astype(np.int64)


def _scores(sample: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return standardised ranks of each column, then their standardised squares."""
    ranks = rankdata(sample, axis=0)
    ranks -= ranks.mean(axis=0)
    squares = ranks**2
    squares -= squares.mean(axis=0)
    both = np.concatenate([ranks, squares], axis=1)
    spread = both.std(axis=0)
    none = np.zeros_like(both)
    return np.asarray(np.divide(both, spread, out=none, where=spread > 1e-9 * len(sample)))


def _differences(scores: NDArray[np.float64], cuts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the absolute sums up to each cut, divided by their spread in a random order."""
    n = len(scores)
    sums = np.add.reduceat(scores, cuts, axis=0)[:-1].cumsum(axis=0)
    k = cuts[1:, np.newaxis]
    return np.asarray(np.abs(sums) / np.sqrt(k * (n - k) / (n - 1)))


ENOUGH = 10  # draws at least as extreme as the observed order, after which no more are made


class Draws(NamedTuple):
    """What the permutations gave."""

    p_value: Fraction  # of the largest of all statistics
    # Of shape (d,); of each statistic, adjusted for the number of statistics (single-step max-T)
    adjusted: NDArray[np.float64]
    n_draws: int  # how many permutations were drawn


def permutation_p_value(
    observed: NDArray[np.float64], draw: Callable[[], float], most: int
) -> Draws:
    """Compare statistics with the largest statistic of random permutations.

    Draws stop once :data:`ENOUGH` of them were at least as large as the largest observed
    statistic: samples without anything to be seen cost a few draws only. The p-value is then h/B
    with h = 10 and B draws, and otherwise (1 + exceedances)/(1 + B): Besag and Clifford (1991).
    See docs/theory.md, "The check of the known normals".

    Proof: Proposition (docs/theory.md#prop-check).
    """
    largest = observed.max(initial=-np.inf)
    reached = 0
    drawn: list[float] = []
    while len(drawn) < most and reached < ENOUGH:
        drawn.append(draw())
        reached += drawn[-1] >= largest
    n = len(drawn)
    p_value = Fraction(ENOUGH, n) if reached == ENOUGH else Fraction(1 + reached, 1 + n)
    above = n - np.searchsorted(np.sort(drawn), observed)  # draws at least as large
    adjusted = np.maximum((1 + above) / (1 + n), float(p_value))
    return Draws(p_value, np.minimum(adjusted, 1.0), n)


def stride_of(n: int, most: int) -> int:
    """Return the smallest power of two of which at most so many multiples are below n.

    Examples
    --------
    >>> [stride_of(n, 100) for n in (100, 101, 401)]
    [1, 2, 8]
    """
    stride = 1
    while n > stride * most:
        stride *= 2
    return stride
