"""Secret noise, and how much of it an ε needs: both by OpenDP.

Noise is whole numbers from exact samplers that read the operating system's randomness. No seed of
a run reaches it, and no draw is used twice. Floating-point noise would give away rows by its last
digits (Mironov 2012).

Privacy is counted as ρ of zero-concentrated differential privacy, which adds up over mechanisms.
OpenDP converts it to ε at a given δ.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.errors import MissingExtraError, PrivacyError
from conovel.spec.settings import Privacy

Integers: TypeAlias = NDArray[np.int64]
_ROOM = 1 + 1e-9  # scales are a little larger than needed, so that rounding never costs privacy


class NoiseSource(Protocol):
    """What makes noise. Everything but tests uses :class:`SecretNoise`."""

    def add(self, sums: Integers, scale: float) -> Integers:
        """Add discrete Gaussian noise of this scale to each of some whole numbers."""

    def largest(self, scores: Integers, scale: float) -> int:
        """Return the place of the largest score, after noise of this scale; a smaller one may win.

        The exponential mechanism: place i with probability proportional to exp(score_i / scale).
        """


class SecretNoise:
    """Noise of the operating system, drawn by OpenDP.

    Proof: Proposition (docs/theory.md#prop-privacy).
    """

    def add(self, sums: Integers, scale: float) -> Integers:
        """Add discrete Gaussian noise."""
        return np.array(_gaussian(scale)(sums.tolist()), dtype=np.int64)

    def largest(self, scores: Integers, scale: float) -> int:
        """Choose a place by the exponential mechanism."""
        return int(_selection(scale)(scores.tolist()))


def total_rho(privacy: Privacy) -> float:
    """Return the largest ρ that (ε, δ) allows, as OpenDP converts one into the other.

    Proof: Proposition (docs/theory.md#prop-privacy).

    Examples
    --------
    >>> rho = total_rho(Privacy(Fraction(4)))
    >>> 0.3 < rho < 0.32
    True
    """
    return _total_rho(privacy.epsilon, privacy.delta)


@lru_cache(maxsize=64)
def _total_rho(epsilon: Fraction, delta: Fraction) -> float:
    reference = _library().c.make_zCDP_to_approxDP(_gaussian(1.0))
    delta_float = math.nextafter(float(delta), 0.0)

    def is_allowed(distance: float) -> bool:
        """Tell whether a sum that changes by this much may have noise of scale 1."""
        return bool(Fraction(reference.map(distance).epsilon(delta_float)) <= epsilon)

    low, high = 0.0, 2.0 * math.sqrt(float(epsilon)) + 1.0  # ε ≥ ρ = distance² / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_allowed(middle) else (low, middle)
    if not low:
        raise PrivacyError(f"no noise is large enough for ε = {epsilon} and δ = {delta}")
    return low * low / 2 / _ROOM


def gaussian_scale(sensitivity: float, rho: float) -> float:
    """Return the scale of discrete Gaussian noise that costs ρ.

    Proof: Proposition (docs/theory.md#prop-privacy).
    """
    scale = sensitivity / math.sqrt(2 * rho) * _ROOM
    if _gaussian(scale).map(sensitivity) > rho:
        raise PrivacyError(f"noise of scale {scale} does not give the privacy that was asked for")
    return scale


def selection_scale(rho: float) -> float:
    """Return the scale at which choosing among scores that change by 1 at most costs ρ.

    Proof: Proposition (docs/theory.md#prop-privacy).
    """
    scale = 1 / math.sqrt(2 * rho) * _ROOM
    if _selection(scale).map(1) > rho:
        raise PrivacyError(f"noise of scale {scale} does not give the privacy that was asked for")
    return scale


@lru_cache(maxsize=16)
def _gaussian(scale: float) -> Any:
    dp = _library()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*space, scale=scale)


@lru_cache(maxsize=16)
def _selection(scale: float) -> Any:
    dp = _library()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
    return dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=scale)


@cache
def _library() -> Any:
    try:
        import opendp.prelude as dp  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("OpenDP", "privacy") from None
    dp.enable_features("contrib")
    return dp
