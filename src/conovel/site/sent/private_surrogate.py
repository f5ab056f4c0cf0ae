"""A surrogate with differential privacy: how much heavier the tails of the mixture are.

Novelties stand out in the tails of some columns. So each column is brought to a common unit, and
for its upper and its lower tail it is counted how far the rows of null_train and of the mixture
reach into it. Noise is added to these sums. The model adds up what a row has in the tails that are
heavier in the mixture. It is a fixed function of the noisy sums and of public numbers, and so are
its bytes.

What depends on rows, and what it costs (docs/theory.md, section "Differential privacy"):

1. the quartiles of columns whose unit is not public, by the exponential mechanism: a quarter;
2. the sums, by the discrete Gaussian mechanism: the rest of ρ.

The local score of the site is not used here and never sent.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError, MissingExtraError, PrivacyError
from conovel.models import wire
from conovel.models.forest import Forest
from conovel.models.quantized.forest import per_feature
from conovel.models.trees import Tree, join_trees, round_down
from conovel.models.wire import NO_SCHEMA
from conovel.scorers.base import Matrix, TrainingSet, Vector
from conovel.site.sent.compact import Units
from conovel.spec.settings import Bits, Privacy

_QUARTILE_SHARE = 1 / 4  # of ρ, where the unit of some column is not public
# Quartiles are looked for among these numbers: 16 in each power of ten from 0.001 to a million,
# of both signs, and zero.
_DECADES = np.array([float(f"{10 ** (i / 16 - 3):.6g}") for i in range(9 * 16 + 1)])
CANDIDATES = np.concatenate([-_DECADES[::-1], [0.0], _DECADES])
_QUARTILE = 0.6744897501960817  # of the standard normal distribution
_LEAST_UNIT = 1e-3  # the distance of the smallest candidates

START, LENGTH = 1.0, 3.0  # a tail begins at one unit from the middle and counts up to four
STEPS = 1024  # whole numbers in a unit
_RADIUS = 0.78  # of a row's vector, times the root of the number of features: twice what is usual
_VARIANCE = 0.1  # of the reach of one row: 0.07 for normal numbers, up to 1/4 for yes or no
_CUTS = np.arange(0.25, LENGTH, 0.5)  # thresholds of the model, from the start of a tail
# Beyond, a model is mostly noise and costs its receivers power. A share of 4 % novelties that
# reach 1.5 units into a tail makes a difference of 0.06. The noise follows from public numbers.
MOST_NOISE = 0.07
_MOST_TAILS = 40  # in a model: about 250 bytes
_THRESHOLD_BITS, _LEAF_BITS = 5, 5


class Sums(NamedTuple):
    """How far rows reach into the tails, added up: upper tails first, in steps of 1/1024 unit."""

    null_train: Integers
    mixture: Integers


def make_private_surrogate(
    training: TrainingSet,
    n_mixture: int,
    public: Units,
    privacy: Privacy,
    noise: NoiseSource,
    bits: Bits = "compact",
    schema: bytes = NO_SCHEMA,
) -> bytes:
    """Make what a peer receives, with differential privacy for every row."""
    n_null = len(training.null_train)
    units, sums, scale = noisy_sums(training, n_mixture, public, privacy, noise)
    tails = heavier_tails(sums, n_null, n_mixture)
    if noise_of_means(scale, n_null, n_mixture) > MOST_NOISE:
        tails = tails.first(0)
    return encode_tails(tails, units, n_mixture / n_null, bits, schema)


def noisy_sums(
    training: TrainingSet, n_mixture: int, public: Units, privacy: Privacy, noise: NoiseSource
) -> tuple[Units, Sums, float]:
    """Return all that depends on rows, after the noise, and the scale of the noise of the sums.

    Proof: Proposition (docs/theory.md#prop-privacy).
    """
    rho = total_rho(privacy)
    for_units = rho * _QUARTILE_SHARE if np.isnan(public.unit).any() else 0.0
    units = find_units(training, n_mixture, public, noise, for_units)
    scale = gaussian_scale(sensitivity(units.unit.size), rho - for_units)
    both = noise.add(np.concatenate(tail_sums(training, units)), scale)
    return units, Sums(*np.split(both, 2)), scale


def find_units(
    training: TrainingSet, n_mixture: int, public: Units, noise: NoiseSource, rho: float
) -> Units:
    """Return the middle and the unit of each feature; those that are not known cost ρ together.

    Such a unit is the standard deviation of normal numbers with the same quartiles.

    Proof: Proposition (docs/theory.md#prop-privacy).
    """
    centre, unit = public.centre.copy(), public.unit.copy()
    unknown = np.flatnonzero(np.isnan(unit))
    if unknown.size:
        scale = selection_scale(rho / (2 * unknown.size))
        n_rows = len(training.null_train) + n_mixture
        columns = np.concatenate([training.null_train, training.mixture.rows]).T
        for f in unknown.tolist():
            scores = quartile_scores(columns[f], n_rows)
            quartiles = sorted(CANDIDATES[noise.largest(one, scale)] for one in scores)
            centre[f] = (quartiles[0] + quartiles[1]) / 2
            unit[f] = max((quartiles[1] - quartiles[0]) / (2 * _QUARTILE), _LEAST_UNIT)
    return Units(centre, np.maximum(unit, np.finfo(np.float32).tiny))


def quartile_scores(values: Vector, n_rows: int) -> tuple[Integers, Integers]:
    """Score every candidate for the lower and the upper quartile; 0 is best.

    The score is minus the distance between the number of values up to the candidate and n/4, or
    3n/4. A row that is replaced changes no score by more than 1.

    Proof: Proposition (docs/theory.md#prop-privacy).
    """
    n_below = np.searchsorted(np.sort(values), CANDIDATES, side="right").astype(np.int64)
    lower, upper = (-np.abs(n_below - n) for n in (n_rows // 4, n_rows - n_rows // 4))
    return lower, upper


def radius_of(n_features: int) -> int:
    """Return the largest Euclidean length of a row's vector, in steps of 1/1024 unit."""
    return int(STEPS * max(_RADIUS * math.sqrt(n_features), 1.0))


def sensitivity(n_features: int) -> float:
    """Return the largest Euclidean distance between the sums of neighbouring data sets.

    A row that is replaced changes one of the two sums, by u - v. Both have no negative entries and
    are no longer than the radius, so ‖u - v‖² = ‖u‖² + ‖v‖² - 2 u·v ≤ 2 radius².

    Proof: Proposition (docs/theory.md#prop-privacy).
    """
    return math.nextafter(math.sqrt(2) * radius_of(n_features), math.inf)


def tail_sums(training: TrainingSet, units: Units) -> Sums:
    """Add up how far rows reach into the tails.

    Proof: Proposition (docs/theory.md#prop-privacy).
    """
    null_train, mixture = (
        row_vectors(rows, units).sum(axis=0)
        for rows in (training.null_train, training.mixture.rows)
    )
    return Sums(null_train, mixture)


def row_vectors(rows: Matrix, units: Units) -> Integers:
    """Return how far each row reaches into the upper and lower tails, shortened to the radius.

    The numbers are whole, and their squares add up to at most that of the radius, in integers.

    Proof: Proposition (docs/theory.md#prop-privacy).
    """
    radius = radius_of(rows.shape[1])
    with np.errstate(over="ignore"):
        z = (rows - units.centre) / units.unit
    reach = np.clip(np.concatenate([z, -z], axis=1) - START, 0.0, LENGTH)
    length = np.sqrt((reach * reach).sum(axis=1))
    factor = STEPS * np.minimum(1.0, radius / STEPS / np.maximum(length, 1e-300))
    vectors: Integers = (reach * factor[:, np.newaxis]).astype(np.int64)  # towards zero
    too_long = (vectors * vectors).sum(axis=1) > radius * radius
    vectors[too_long] = np.maximum(vectors[too_long] - 1, 0)  # rounding was against us
    still = (vectors * vectors).sum(axis=1) > radius * radius
    vectors[still] = 0
    return vectors


def noise_of_means(scale: float, n_null: int, n_mixture: int) -> float:
    """Return the standard deviation that the noise gives to a difference of means, in units."""
    return scale / STEPS * math.hypot(1 / n_null, 1 / n_mixture)


class Tails(NamedTuple):
    """The tails of a model, those with the largest weight first."""

    weight: Vector  # log-odds for each unit that a row reaches into the tail
    # Which tail: feature f has its upper tail at f and its lower one at f + n_features
    place: Integers
    usual: Vector  # how far rows reach into the tail on average

    def first(self, n: int) -> Tails:
        """Return the first tails."""
        return Tails(self.weight[:n], self.place[:n], self.usual[:n])


def heavier_tails(noisy: Sums, n_null: int, n_mixture: int) -> Tails:
    """Return the tails that are heavier in the mixture than in null_train, by noisy sums.

    As in a discriminant, a weight is the difference of the means over a variance, here the same
    for all tails: variances from the noisy sums lost power (docs/results/differential-privacy.md).
    """
    of_null, of_mixture = noisy.null_train / STEPS / n_null, noisy.mixture / STEPS / n_mixture
    pooled = (n_null * of_null + n_mixture * of_mixture) / (n_null + n_mixture)
    weight = (of_mixture - of_null) / _VARIANCE
    order = np.argsort(-weight, kind="stable")[:_MOST_TAILS]
    place = order[weight[order] > 0].astype(np.int64)
    return Tails(weight[place], place, np.clip(pooled[place], 0.0, LENGTH))


def as_forest(tails: Tails, units: Units, odds: float) -> Forest:
    """Return expit(log odds + sum of weight · (reach - usual reach)), with steps for the reach."""
    trees = [_tree(*tail, units) for tail in zip(tails.weight, tails.place, strict=True)]
    base = math.log(odds) - float(tails.weight @ tails.usual)
    return join_trees(trees or [_CONSTANT], units.unit.size, link="logistic", base=base)


def _tree(weight: float, place: int, units: Units) -> Tree:
    """Return a chain of steps: 0 up to the start of the tail, then a half unit more at each."""
    n, side = _CUTS.size, 1.0
    if place >= units.unit.size:
        place, side = place - units.unit.size, -1.0
    inner, leaf = np.arange(n), np.arange(n, 2 * n + 1)
    feature = np.repeat([place, -2], [n, n + 1])
    threshold = np.zeros(2 * n + 1)
    threshold[:n] = units.centre[place] + side * units.unit[place] * (START + _CUTS)
    value = np.concatenate([np.zeros(n), weight * LENGTH / n * np.arange(n + 1)])
    # Each step leads to the leaf before the tail goes on, or on to the next step.
    ends, goes_on = leaf[:-1], np.append(inner[1:], leaf[-1])
    left, right = (ends, goes_on) if side > 0 else (goes_on, ends)
    none = np.full(n + 1, -1)
    return Tree(
        feature,
        round_down(threshold),
        np.concatenate([left, none]),
        np.concatenate([right, none]),
        value,
    )


_CONSTANT = Tree(
    *(np.array([number]) for number in (-2, 0.0, -1, -1, 0.0))
)  # the same for all rows


def encode_tails(tails: Tails, units: Units, odds: float, bits: Bits, schema: bytes) -> bytes:
    """Encode a model; where bytes are limited, the first tails that fit."""
    if not isinstance(bits, str):
        return wire.encode(as_forest(tails, units, odds), bits=bits, schema=schema)
    _, _, budget = bits.partition(":")
    for n in range(tails.place.size, -1, -1):
        forest = as_forest(tails.first(n), units, odds)
        small = per_feature(forest, _THRESHOLD_BITS, _LEAF_BITS)
        message = wire.encode(small, schema=schema)
        if not budget or len(message) <= int(budget):
            return message
    raise InputError(
        f"no model fits a budget of {budget} bytes: the smallest here has {len(message)}"
    )


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
