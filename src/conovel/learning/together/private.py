"""One model of all agents from noisy sums, with differential privacy for every row.

Trees that are grown together count every row hundreds of times, so that noise would have to be
hundreds of times as large as a row. With `privacy` agents learn less instead: how far their rows
reach into the tails of each column, as the model of one site does that has privacy
(:mod:`conovel.site.sent.private_surrogate`), but from the rows of all:

1. numbers of rows in fixed intervals of those columns whose unit is not public, from which a
   middle and a unit follow: a quarter of ρ;
2. how far the rows of null_train and of the mixture reach into the tails, added up: the rest.

Every agent adds noise to its numbers before they leave it. Where sums are masked, only totals are
seen, and it is enough that the noise of all *honest* agents together is as large as it must be
(docs/theory.md, Proposition "sums with differential privacy"). Each agent then combines the common
model with the score that it has learnt by itself, which never leaves it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import PrivacyError
from conovel.models.wire import NO_SCHEMA
from conovel.scorers.base import Matrix, Vector
from conovel.site.sent.compact import Units
from conovel.site.sent.private_surrogate import (
    MOST_NOISE,
    NoiseSource,
    Sums,
    encode_tails,
    gaussian_scale,
    heavier_tails,
    noise_of_means,
    row_vectors,
    sensitivity,
    total_rho,
)
from conovel.spec.settings import Privacy

_UNITS_SHARE = 1 / 4  # of ρ, where the unit of some column is not public
# Edges of the intervals: 8 in each power of ten from 0.001 to a million, of both signs, and zero.
_DECADES = np.array([float(f"{10 ** (i / 8 - 3):.6g}") for i in range(9 * 8 + 1)])
EDGES = np.concatenate([-_DECADES[::-1], [0.0], _DECADES])
# A row counts as so many. So noise is drawn on a finer grid than whole rows, and the noise of
# several agents adds up to nearly the noise of one.
GRAIN = 64
_LEAST_SCALE = 3.0  # of the noise of one agent, below which sums of noise are not that of one
_STANDS_OUT = 4.0  # standard deviations of the noise; rows end where no interval has as many
_QUARTILE = 0.6744897501960817  # of the standard normal distribution
_LEAST_UNIT = 1e-3
_HEAD = 3  # one agent, and its numbers of rows, which are public
_MOST_ROWS = 1 << 31  # of all agents: no sum of theirs is above 2^63
Whole = NDArray[np.int64]


class PrivateRows(NamedTuple):
    """The rows of one agent."""

    null_train: Matrix
    mixture: Matrix
    n_mixture: int  # of a sample, on average: the number itself would follow from rows


class PrivateLearner:
    """The model as far as it is learnt, the same at all agents.

    Parameters
    ----------
    public : Units
        Middles and units of the columns; NaN where they are not public.
    privacy : Privacy
    n_honest : int
        How many agents are sure to add their noise. With masks at most all agents; without
        masks 1, so that the numbers of every agent have all the noise.
    """

    def __init__(self, public: Units, privacy: Privacy, n_honest: int = 1) -> None:
        self.units = public
        self._unknown = np.flatnonzero(np.isnan(public.unit))
        rho = total_rho(privacy)
        for_units = rho * _UNITS_SHARE if self._unknown.size else 0.0
        # A replaced row leaves one interval of each column and enters another.
        moved = GRAIN * math.sqrt(2 * max(self._unknown.size, 1))
        self._scales = [
            shared_scale(moved, for_units or rho, n_honest),
            shared_scale(sensitivity(public.unit.size), rho - for_units, n_honest),
        ]
        self.n_rounds = 0 if self._unknown.size else 1
        self.n_agents = 0
        self.sums: Sums | None = None
        self._n_null = self._n_mixture = 0

    @property
    def is_done(self) -> bool:
        """Whether the model is learnt."""
        return self.sums is not None

    @property
    def n_numbers(self) -> int:
        """How many numbers every agent sends in the next round."""
        if self.n_rounds == 0:
            return _HEAD + self._unknown.size * (EDGES.size + 1)
        return _HEAD + 4 * self.units.unit.size

    def answer(self, rows: PrivateRows, noise: NoiseSource) -> Whole:
        """Return an agent's numbers of this round, with its noise.

        Proof: Proposition (docs/theory.md#prop-private-sums).
        """
        head = [1, len(rows.null_train), rows.n_mixture]
        exact = self._intervals(rows) if self.n_rounds == 0 else self._tails(rows)
        return np.concatenate([head, noise.add(exact, self._scales[self.n_rounds])])

    def take(self, totals: Whole) -> None:
        """Go on with the sums over all agents; ValueError for what no rows can have."""
        if totals.size != self.n_numbers:
            raise ValueError(f"{totals.size} numbers, and not {self.n_numbers}")
        numbers = n_agents, n_null, n_mixture = tuple(map(int, totals[:_HEAD]))
        if min(numbers) < 1 or n_null + n_mixture > _MOST_ROWS:
            raise ValueError(f"{n_null} and {n_mixture} rows of {n_agents} agents")
        if self.n_agents and numbers != (self.n_agents, self._n_null, self._n_mixture):
            raise ValueError("the numbers of rows are others than before")
        self.n_agents, self._n_null, self._n_mixture = numbers
        if self.n_rounds == 0:
            self._take_intervals(totals[_HEAD:])
        else:
            self.sums = Sums(*np.split(totals[_HEAD:], 2))
        self.n_rounds += 1

    @property
    def noise(self) -> float:
        """The standard deviation that noise gives to a difference of means, in units."""
        scale = self._scales[1] * math.sqrt(self.n_agents)
        return noise_of_means(scale, self._n_null, self._n_mixture)

    def model(self, schema: bytes = NO_SCHEMA) -> bytes:
        """Return the model of all agents, a constant where it would be mostly noise."""
        if self.sums is None:
            raise ValueError("the model is not learnt yet")
        tails = heavier_tails(self.sums, self._n_null, self._n_mixture)
        if self.noise > MOST_NOISE:
            tails = tails.first(0)
        odds = self._n_mixture / self._n_null
        return encode_tails(tails, self.units, odds, "compact", schema)

    # --- rounds ---------------------------------------------------------------------------------
    def _intervals(self, rows: PrivateRows) -> Whole:
        """Count the rows in each interval of each column without a public unit.

        Proof: Proposition (docs/theory.md#prop-private-sums).
        """
        counts = [
            np.bincount(np.searchsorted(EDGES, column, side="right"), minlength=EDGES.size + 1)
            for column in np.concatenate([rows.null_train, rows.mixture]).T[self._unknown]
        ]
        grains: Whole = GRAIN * np.concatenate(counts).astype(np.int64)
        return grains

    def _tails(self, rows: PrivateRows) -> Whole:
        """Add up how far the rows of either kind reach into the tails.

        Proof: Proposition (docs/theory.md#prop-private-sums).
        """
        kinds = (rows.null_train, rows.mixture)
        return np.concatenate([row_vectors(some, self.units).sum(axis=0) for some in kinds])

    def _take_intervals(self, totals: Whole) -> None:
        centre, unit = self.units.centre.copy(), self.units.unit.copy()
        spread = self._scales[0] * math.sqrt(self.n_agents)
        counts = totals.reshape(self._unknown.size, -1)
        for f, column in zip(self._unknown.tolist(), counts, strict=True):
            low, high = quartiles_of(column.astype(np.float64), spread)
            centre[f] = (low + high) / 2
            unit[f] = max((high - low) / (2 * _QUARTILE), _LEAST_UNIT)
        self.units = Units(centre, unit)


def honest_of(n_agents: int) -> int:
    """Return how many of the agents are taken to be honest where sums are masked: half of them.

    Those who are not may leave out their noise and put together what they see.
    """
    return (n_agents + 1) // 2


def shared_scale(distance: float, rho: float, n_honest: int) -> float:
    """Return the scale of each agent's noise, so that that of `n_honest` together costs ρ.

    Proof: Proposition (docs/theory.md#prop-private-sums).
    """
    scale = gaussian_scale(distance, rho) / math.sqrt(n_honest)
    if n_honest > 1 and scale < _LEAST_SCALE:
        raise PrivacyError(
            f"noise of scale {scale:.2g} at each of {n_honest} agents does not add up to the noise"
            " that is needed: give a smaller ε"
        )
    return scale


def quartiles_of(counts: Vector, spread: float) -> tuple[float, float]:
    """Return the quartiles of a column from noisy counts in its intervals.

    Rows are taken to lie between the first and the last interval whose count stands out of the
    noise. Within an interval a quartile is where the counts say, on a straight line.
    """
    out = np.flatnonzero(counts > _STANDS_OUT * spread)
    if not out.size:
        return -_QUARTILE, _QUARTILE
    first, last = int(out[0]), int(out[-1])
    above = np.maximum.accumulate(np.cumsum(counts[first : last + 1]))
    ends = np.concatenate([EDGES[:1], EDGES, EDGES[-1:]])[first : last + 2]
    places = above[-1] * np.array([0.25, 0.75])
    low, high = np.interp(places, np.append(0.0, above), ends)
    return float(low), float(high)
