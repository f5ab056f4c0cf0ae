"""What follows from a bound on false rows: for the flagged rows, for any list, for all tests.

Thresholds are numbered from the highest on; these numbers are *places*. A row has the place of the
highest threshold that it reaches.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.stats.certificate import Block, false_bound
from conovel.stats.levels import Level
from conovel.stats.stepup import RankHistogram

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ListBounds:
    """Tests at each place or before it, and how many of them can be false at most.

    All statements hold at once with the same probability, whatever list is chosen after looking.

    Attributes
    ----------
    tests : int array of shape (n_places,)
        Tests R from each threshold on, nondecreasing.
    calibration : int array of shape (n_places,)
        Calibration rows C from each threshold on.
    bound : int array
        b(0), b(1), ...; see :func:`conovel.stats.certificate.false_bound`.
    relied_on : int array of shape (n_places,), optional
        Tests that count for a list or for novelties; fewer than `tests` where liars are tolerated.
    """

    tests: Counts
    calibration: Counts
    bound: Counts
    relied_on: Counts | None = None

    @cached_property
    def at_most(self) -> Counts:
        """The most false rows among the tests at each place or before it.

        It is b(C), or less where few tests were added since an earlier place.

        Proof: Theorem 21 (docs/theory.md#thm-certificate).
        """
        by_counts = self.bound[np.minimum(self.calibration, self.bound.size - 1)]
        if not self.tests.size:
            return by_counts
        # min over earlier places of b(C) + tests since then; none is false before the first place
        room = np.minimum.accumulate(np.minimum(by_counts - self.tests, 0))
        return np.minimum(self.tests + room, by_counts)

    @property
    def counted(self) -> Counts:
        """The tests that count for a list."""
        return self.tests if self.relied_on is None else self.relied_on

    def max_false(self, places: Counts) -> int:
        """Return the most false rows among rows at these places, chosen by any rule.

        Proof: Theorem 21 (docs/theory.md#thm-certificate).
        """
        if not places.size:
            return 0
        n = self.tests.size
        chosen = np.cumsum(np.bincount(np.minimum(places, n), minlength=n + 1))
        after = places.size - chosen[:n]
        return int(min(places.size, (self.at_most + after).min(initial=places.size)))

    @property
    def min_novelties(self) -> int:
        """The least number of novelties among all tests.

        Proof: Theorem 21 (docs/theory.md#thm-certificate).
        """
        return int((self.counted - self.at_most).max(initial=0))

    def last_place(self, max_share: Fraction) -> int:
        """Return the last place of the longest list with at most this share false; -1 if none.

        Proof: Theorem 21 (docs/theory.md#thm-certificate).
        """
        allowed = self.counted * max_share.numerator // max_share.denominator
        fits = np.flatnonzero((self.at_most <= allowed) & (self.counted > 0))
        return int(fits[-1]) if fits.size else -1

    def telling(self) -> tuple[int, int]:
        """Return the shortest list that proves half of the novelties: rows, and novelties in it.

        Both are zero where none are proven.
        """
        proven = self.counted - self.at_most
        if not self.min_novelties:
            return 0, 0
        first = int(np.argmax(2 * proven >= self.min_novelties))
        return int(self.tests[first]), int(proven[first])

    def min_novelties_of_first(self, rows: Counts) -> Counts:
        """Return the least number of novelties among the first k tests, for each k in `rows`.

        Tests are taken place by place. Of the last place any of its tests, if not all fit. Where
        liars are tolerated, only places that fit as a whole are counted.

        Proof: Theorem 21 (docs/theory.md#thm-certificate).
        """
        before, at = _places_of_first(self.tests, rows)
        proven = np.maximum.accumulate(np.maximum(self.counted - self.at_most, 0))
        least = np.concatenate([[0], proven])[before]
        if self.relied_on is None:
            # All k tests are among those at `at` or before.
            by_end = rows - np.append(self.at_most, rows.max(initial=0))[at]
            least = np.maximum(least, by_end)
        return least

    def expected_of_first(self, false: NDArray[np.float64], rows: Counts) -> Counts:
        """Estimate the novelties among the first k tests, for each k in `rows`, rounded down.

        It is k·(1 - q), where q is the adjusted p-value of Benjamini and Hochberg: the smallest
        level at which k tests would be rejected. A longer list has no fewer novelties than a
        shorter one, nor fewer than are proven. This is an estimate and carries no guarantee.

        Parameters
        ----------
        false : float array of shape (n_places,)
            False rows at each place or before it, expected if no test were novel.
        rows : int array
        """
        if not self.tests.size:
            return np.zeros_like(rows)
        counted = self.counted
        share = np.divide(false, counted, out=np.ones_like(false), where=counted > 0)
        level = np.minimum(np.minimum.accumulate(share[::-1])[::-1], 1.0)
        before, at = _places_of_first(self.tests, rows)
        whole = np.concatenate([[0.0], np.maximum.accumulate(counted * (1 - level))])
        expected = whole[before]
        if self.relied_on is None:
            expected = np.maximum(expected, rows * (1 - np.append(level, 1.0)[at]))
        # Products that are whole numbers must not fall below them.
        rounded = np.floor(expected + 1e-9).astype(np.int64)
        return np.maximum(rounded, self.min_novelties_of_first(rows))


def _places_of_first(tests: Counts, rows: Counts) -> tuple[Counts, Counts]:
    """Return how many places fit into the first k tests, and the first place that has them all."""
    return np.searchsorted(tests, rows, side="right"), np.searchsorted(tests, rows, side="left")


def site_bounds(histogram: RankHistogram, confidence: Level) -> ListBounds:
    """Return what follows for one site from how often each rank occurs.

    Proof: Theorem 21 (docs/theory.md#thm-certificate).

    Examples
    --------
    >>> ranks = np.array([1] * 30 + [200, 400])
    >>> site_bounds(RankHistogram(ranks, 499), 0.95).min_novelties
    29
    """
    size = histogram.n_calibration
    bound = false_bound([Block(histogram.size, size)], confidence)
    return ListBounds(histogram.totals(), np.arange(size + 1), bound)


def certificate_numbers(
    bounds: ListBounds, flagged: Counts, n_test: int, confidence: Fraction
) -> dict[str, Any]:
    """Give the numbers of a certificate as JSON types; `flagged` are places of flagged rows."""
    rows, novel = bounds.telling()
    return {
        "confidence": str(confidence),
        "n_test": n_test,
        "n_flagged": int(flagged.size),
        "max_false": bounds.max_false(flagged),
        "min_novelties": bounds.min_novelties,
        "most_novel": {"rows": rows, "min_novelties": novel},
    }
