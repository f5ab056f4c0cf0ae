"""Grids: the numbers that codes of a few bits stand for."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import ModelError
from conovel.spec.settings import check_bits

STEPS = 2048  # steps that a lattice may have: 8 in each octave from 2^-128 to 2^128
MAX_INDEX = 1 << 24  # multiples of a step stay below this: no finer than single precision


@dataclass(frozen=True)
class Uniform:
    """2^bits equally spaced numbers from `low` to `high`: the paper's grid.

    The ends are in single precision, as they are sent. A grid whose ends are equal has one
    code.
    """

    low: float
    high: float
    bits: int

    @classmethod
    def over(cls, numbers: ArrayLike, bits: int) -> Uniform:
        """Return the grid from the least to the greatest of `numbers`."""
        numbers = np.asarray(numbers, dtype=np.float64)
        return cls(single(numbers.min()), single(numbers.max()), check_bits(bits))

    @property
    def n_codes(self) -> int:
        """How many codes there are."""
        return 1 if self.low == self.high else 1 << self.bits

    @property
    def reach(self) -> float:
        """How far the ends of the grid may lie outside the numbers that it covers."""
        return 0.0

    def values(self) -> NDArray[np.float64]:
        """Return the number that each code stands for, ascending."""
        return self.total(np.arange(self.n_codes), 1)

    def total(self, codes: NDArray[np.int64], count: int) -> NDArray[np.float64]:
        """Return the sum of `count` numbers, given the sum of their codes."""
        steps = max(self.n_codes - 1, 1)
        return count * self.low + (self.high - self.low) * codes / steps

    def codes(self, numbers: ArrayLike) -> NDArray[np.int64]:
        """Return the nearest code of each number, the even one if two are equally near."""
        width = (self.high - self.low) or 1.0
        share = (np.asarray(numbers, dtype=np.float64) - self.low) / width
        codes = np.clip(np.rint(share * (self.n_codes - 1)), 0, self.n_codes - 1)
        return np.asarray(codes, dtype=np.int64)


@dataclass(frozen=True)
class Lattice:
    """2^bits consecutive multiples of a round step.

    The step is ``(8 + step % 8) * 2**(step // 8 - 131)`` and code c stands for
    ``first + c`` steps: two small integers describe the lattice, instead of two
    floating-point numbers.
    """

    step: int
    first: int
    bits: int

    @classmethod
    def over(cls, numbers: ArrayLike, bits: int) -> Lattice:
        """Return a fine lattice of `bits` bits that has a code near each of `numbers`.

        Near is within half a step, so the ends may lie a little outside.
        """
        limit = 1 << check_bits(bits)
        numbers = np.asarray(numbers, dtype=np.float64)
        low, high = float(numbers.min()), float(numbers.max())
        start, stop = 0, STEPS - 1
        while start < stop:  # the step `stop` covers all numbers; search for a finer one
            step = (start + stop) // 2
            first, last = _multiple(low, step), _multiple(high, step)
            if max(-first, last) < MAX_INDEX - limit and last - first < limit:
                stop = step
            else:
                start = step + 1
        first, last = _multiple(low, start), _multiple(high, start)
        if not (max(-first, last) < MAX_INDEX and last - first < limit):
            raise ModelError("the numbers are too large or too far apart for a lattice")
        return cls(start, int(first), bits)

    @property
    def n_codes(self) -> int:
        """How many codes there are."""
        return 1 << self.bits

    @property
    def reach(self) -> float:
        """How far the ends of the grid may lie outside the numbers that it covers."""
        return _size(self.step) / 2

    def values(self) -> NDArray[np.float64]:
        """Return the number that each code stands for, ascending."""
        return self.total(np.arange(self.n_codes), 1)

    def total(self, codes: NDArray[np.int64], count: int) -> NDArray[np.float64]:
        """Return the sum of `count` numbers, given the sum of their codes."""
        return np.asarray((count * self.first + codes) * _size(self.step), dtype=np.float64)

    def codes(self, numbers: ArrayLike) -> NDArray[np.int64]:
        """Return the nearest code of each number, the even multiple if two are equally near."""
        multiples = np.rint(np.asarray(numbers, dtype=np.float64) / _size(self.step))
        return np.asarray(np.clip(multiples - self.first, 0, self.n_codes - 1), dtype=np.int64)


@dataclass(frozen=True)
class SharedGrids:
    """One min-max grid for all thresholds and one for all leaf values."""

    thresholds: Uniform
    leaves: Uniform

    @property
    def bits(self) -> tuple[int, int]:
        """Width of thresholds and of leaf values."""
        return self.thresholds.bits, self.leaves.bits

    def of(self, feature: int) -> Uniform:
        """Return the grid of a feature."""
        return self.thresholds

    def only(self, used: Collection[int]) -> SharedGrids:
        """Return the grids that forests with splits on the `used` features need."""
        return self if used else replace(self, thresholds=Uniform(0.0, 0.0, bits=1))


@dataclass(frozen=True)
class FeatureGrids:
    """A lattice for each feature that is used, and one for all leaf values."""

    thresholds: dict[int, Lattice]
    leaves: Lattice

    @property
    def bits(self) -> tuple[int, int]:
        """Width of thresholds and of leaf values."""
        return max((grid.bits for grid in self.thresholds.values()), default=1), self.leaves.bits

    def of(self, feature: int) -> Lattice:
        """Return the grid of a feature."""
        return self.thresholds[feature]

    def only(self, used: Collection[int]) -> FeatureGrids:
        """Return the grids that forests with splits on the `used` features need."""
        return replace(self, thresholds={f: self.thresholds[f] for f in sorted(used)})


def single(number: float) -> float:
    """Round to single precision, as grids and quantized models hold their numbers."""
    with np.errstate(over="ignore"):
        rounded = float(np.float32(number))
    if not math.isfinite(rounded):
        raise ModelError(f"{number} is too large for single precision")
    return rounded


def _size(step: int) -> float:
    return math.ldexp(8 + step % 8, step // 8 - 131)


def _multiple(number: float, step: int) -> float:
    """Return the multiple of a step nearest to a number, the even one if two are equally near."""
    return float(np.rint(number / _size(step)))
