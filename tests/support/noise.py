"""Noise that tests know: the same numbers in every run, or none."""

from __future__ import annotations

import numpy as np


class FixedNoise:
    """The same noise for the same number of sums or scores, whatever these are."""

    def add(self, sums, scale):
        drawn = np.random.default_rng(sums.size).normal(size=sums.size)
        return sums + np.rint(scale * drawn).astype(np.int64)

    def largest(self, scores, scale):
        return int(
            np.argmax(scores / scale + np.random.default_rng(scores.size).gumbel(size=scores.size))
        )


class NoNoise:
    """No noise at all."""

    def add(self, sums, scale):
        return sums

    def largest(self, scores, scale):
        return int(np.argmax(scores))


class SeededNoise:
    """Other noise at each call, from a seed: nearly the real noise, and the same in every run."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def add(self, sums, scale):
        return sums + np.rint(scale * self._rng.normal(size=sums.size)).astype(np.int64)

    def largest(self, scores, scale):
        return int(np.argmax(scores / scale + self._rng.gumbel(size=scores.size)))
