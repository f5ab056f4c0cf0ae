"""Small surrogates: forests grown to imitate an agent's model in a few hundred bytes.

What an agent sends need not be its model. A hundred extremely randomised trees of a few
leaves, fitted to the log-odds that the local model gives its own rows, say nearly as much to
a peer as the model itself, and a coarse grid costs them little (docs/front.md):

* the local model is imitated. Learning from the labels again would lose what it has averaged
  out;
* an average of small trees is flat, so before it is quantized it is stretched until its
  log-odds spread as far as the local model's: otherwise it would never be the `max`;
* a logistic regression is smaller than any forest that would imitate it, and sent itself;
* the thresholds of a feature lie on a uniform lattice over bounds that no single row decides. A
  range that follows from the schema is taken. For other features, bounds follow from quantiles of
  null_train with at least five rows beyond them. Quantile grids would be fine where the normals
  are and coarse where novelties are;
* values beyond the bounds are moved to them before anything that is sent is learnt. A known normal
  with several values beyond, more than are usual, is left out (docs/privacy.md);
* each leaf stands for at least five rows, at a small site for three, and thresholds are drawn
  between the bounds, whatever the extremes of the rows are.

Where a precision is asked for and the local model has no numbers to send, a forest of the
size of the paper's models imitates it in the same way (:func:`imitate`).

Everything here is a fixed function of null_train, the mixture as a multiset and the seed, and
so is the choice of a profile under a budget: validity costs nothing. The score that ranks the
site's own rows is learnt from the rows as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.tree import ExtraTreeRegressor

from conovel.errors import InputError
from conovel.models import wire
from conovel.models.forest import Forest
from conovel.models.linear import Linear
from conovel.models.quantized.forest import QuantizedForest, per_feature, uniform
from conovel.models.quantized.grids import Lattice
from conovel.models.trees import Tree, join_trees
from conovel.models.wire import NO_SCHEMA
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Mixture,
    TrainingSet,
    Vector,
    add_up,
    log_odds,
)
from conovel.site.composite import as_probability
from conovel.spec.schema import Column, Schema, SchemaDigest
from conovel.spec.training import least_rows

# Which scorer is imitated follows from rows that are clipped further: moments say much about one
# row that is four standard deviations away.
SHAPE_REACH = 3.0
REACH = 4.0  # bounds of a Gaussian feature lie so many standard deviations from its median
_SHARE_BEYOND = 0.1  # of null_train, on either side of the quantiles that give the bounds,
_FEWEST_BEYOND = 5  # but no fewer rows than these,
_USUAL = 0.9  # of the rows of null_train have no more values beyond the bounds than is usual
_LARGEST_SHARE = 0.25  # and no more than this share


@dataclass(frozen=True, eq=False)
class Bounds:
    """The least and the greatest value that each feature has in what is sent."""

    low: Vector
    high: Vector

    def clip(self, rows: Matrix) -> Matrix:
        """Move values beyond the bounds to them."""
        return np.asarray(np.clip(rows, self.low, self.high))

    def clip_training(self, training: TrainingSet) -> TrainingSet:
        """Return a training set with no value beyond the bounds.

        A row of null_train is left out if more of its values lie beyond than of nine tenths of the
        rows, and at least two. Rows of the mixture stay: among them are the novelties.

        Examples
        --------
        >>> bounds = Bounds(np.array([-1.0]), np.array([1.0]))
        >>> rows = np.array([[0.5], [7.0], [9.0]])
        >>> clipped = bounds.clip_training(TrainingSet(rows, Mixture.of(rows)))
        >>> clipped.null_train.ravel().tolist(), clipped.mixture.rows.ravel().tolist()
        ([0.5, 1.0, 1.0], [0.5, 1.0, 1.0])
        """
        rows = training.null_train
        n_beyond = ((rows < self.low) | (rows > self.high)).sum(axis=1)
        usual = max(1.0, float(np.quantile(n_beyond, _USUAL)))
        mixture = Mixture.of(self.clip(training.mixture.rows))
        known_rows = None if training.known_rows is None else self.clip(training.known_rows)
        return TrainingSet(self.clip(rows[n_beyond <= usual]), mixture, known_rows)

    def lattice(self, feature: int, bits: int) -> Lattice:
        """Return the lattice of a feature's thresholds."""
        return Lattice.over([self.low[feature], self.high[feature]], bits)


def find_bounds(null_train: Matrix, agreed: Ranges | None = None, reach: float = REACH) -> Bounds:
    """Return the agreed range of each feature, or bounds from quantiles of null_train.

    On each side of the median m the bound is m + (q − m) · 4 / z. Here q is the quantile that the
    share p of null_train lies beyond, and z is the same quantile of the standard normal
    distribution; p is 0.1, or more if that would be fewer than five rows. A side without width
    has that of the other side. Bounds of whole numbers are whole numbers.
    """
    beyond = min(max(_SHARE_BEYOND, _FEWEST_BEYOND / len(null_train)), _LARGEST_SHARE)
    lower, middle, upper = np.quantile(null_train, [beyond, 0.5, 1 - beyond], axis=0)
    factor = reach / float(ndtri(1 - beyond))
    below, above = _with_width((middle - lower) * factor, (upper - middle) * factor, middle)
    low, high = middle - below, middle + above
    whole = (null_train == np.rint(null_train)).all(axis=0)
    low, high = np.where(whole, np.floor(low), low), np.where(whole, np.ceil(high), high)
    if agreed is not None:
        is_agreed = np.isfinite(agreed.low) & np.isfinite(agreed.high)
        low, high = np.where(is_agreed, agreed.low, low), np.where(is_agreed, agreed.high, high)
    return Bounds(low, high)


def _with_width(
    below: Vector, above: Vector, middle: Vector
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give a side without width that of the other side, or |middle|, or 1."""
    usual = np.where(middle != 0, np.abs(middle), 1.0)
    widest = np.maximum(below, above)
    widest = np.where(widest > 0, widest, usual)
    return np.where(below > 0, below, widest), np.where(above > 0, above, widest)


_PARTS = {  # least and largest number that a part of a date has; a missing date has the part 0
    "month": (0, 12),
    "day": (0, 31),
    "weekday": (0, 6),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
_UNKNOWN = (np.nan, np.nan)


class Ranges(NamedTuple):
    """Least and largest value of each feature; NaN where the schema does not say."""

    low: Vector
    high: Vector


def public_ranges(schema: Schema | SchemaDigest | None, n_features: int) -> Ranges:
    """Return what is publicly known of the ranges of all features."""
    ranges = [_UNKNOWN] * n_features
    if isinstance(schema, Schema) and len(schema.features) == n_features:
        ranges = [pair for column in schema.used for pair in _ranges_of(column)]
    low, high = np.array(ranges, dtype=np.float64).reshape(n_features, 2).T
    return Ranges(low, high)


def _ranges_of(column: Column) -> list[tuple[float, float]]:
    n = len(column.features) - column.missing
    ranges: list[tuple[float, float]] = [(0.0, 1.0)] * n
    if column.kind == "number":
        bounded = column.low is not None and column.high is not None
        ranges = [(column.low or 0.0, column.high or 0.0) if bounded else _UNKNOWN]
        if bounded and column.missing:  # what stands for a missing number may be any number
            ranges = [(min(ranges[0][0], column.neutral), max(ranges[0][1], column.neutral))]
    elif column.kind == "date":
        ranges = [_PARTS.get(part, _UNKNOWN) for part in column.parts]
    elif column.kind == "category" and not column.has_feature_per_level:
        last = column.buckets - 1 if column.buckets else len(column.levels) + bool(column.rare)
        ranges = [(0.0, float(last))]
    return ranges + [(0.0, 1.0)] * column.missing


# Units in a range. Bounds of a number leave room: most values are within the middle quarter or
# two. Yes or no, places in a list and hours take all values of their range.
_OF_NUMBERS, _OF_OTHERS = 8, 4


class Units(NamedTuple):
    """The middle and the unit of each feature; NaN where it is not known."""

    centre: Vector
    unit: Vector


def public_units(schema: Schema | SchemaDigest | None, n_features: int) -> Units:
    """Return what is publicly known of the middles and units of all features."""
    low, high = public_ranges(schema, n_features)
    n_units = np.full(n_features, _OF_OTHERS)
    if isinstance(schema, Schema) and len(schema.features) == n_features:
        # The feature of a number has the name of its column, that of missing values has not.
        numbers = {column.name for column in schema if column.kind == "number"}
        named = zip(schema.features, schema.source, strict=True)
        n_units[[name == own and own in numbers for name, own in named]] = _OF_NUMBERS
    return Units((low + high) / 2, (high - low) / n_units)


# Corners of the bounds, added to the rows without weight. Random thresholds lie between the
# least and the greatest value of a node. With corners these are the bounds in nearly every node.
_N_CORNERS = 64
_NO_WEIGHT = 1e-9  # scikit-learn leaves rows of weight zero out
_CLOSEST = 0.02  # probabilities are read no closer to 0 and 1: beyond, log-odds are noise


@dataclass(frozen=True)
class Profile:
    """The shape of a small surrogate and the precision of its numbers."""

    n_trees: int
    n_leaves: int
    threshold_bits: int
    leaf_bits: int

    def __str__(self) -> str:
        """Return it as the tables write it."""
        shape = f"{self.n_trees} trees of {self.n_leaves} leaves"
        return f"{shape}, {self.threshold_bits}/{self.leaf_bits} bits"


# From most to least power, as measured in docs/front.md; sizes fall in the same order.
PROFILES = (
    Profile(100, 8, threshold_bits=4, leaf_bits=3),  # about 1000 bytes at 20 features
    Profile(100, 4, threshold_bits=3, leaf_bits=2),  # 230
    Profile(100, 3, threshold_bits=4, leaf_bits=2),  # 180
    Profile(200, 2, threshold_bits=4, leaf_bits=2),  # 110
    Profile(50, 2, threshold_bits=4, leaf_bits=2),  # 70
)
DEFAULT = PROFILES[1]
# A forest that stands for a model at a given precision has 3,900 thresholds and leaf values; the
# paper's models have 3,962 (docs/reproduction.md).
_STAND_IN_TREES, _STAND_IN_LEAVES = 100, 20
_LINEAR_BITS = 8  # about 70 bytes at 20 features, and no score moves by more than a hundredth


def encode_compact(
    local: FittedScorer,
    training: TrainingSet,
    seed: int,
    *,
    bounds: Bounds | None = None,
    budget: int | None = None,
    schema: bytes = NO_SCHEMA,
) -> bytes:
    """Return a small surrogate of a local model as bytes."""
    linear = _as_linear(local)
    if linear is not None:
        message = wire.encode(uniform(linear, _LINEAR_BITS), schema=schema)
        if budget is None or len(message) <= budget:
            return message
    rows, target = _lesson(local, training)
    bounds = bounds or find_bounds(training.null_train)
    if budget is None:
        return wire.encode(_imitate(rows, target, seed, DEFAULT, bounds), schema=schema)
    sizes = []
    for profile in PROFILES:
        message = wire.encode(_imitate(rows, target, seed, profile, bounds), schema=schema)
        if len(message) <= budget:
            return message
        sizes.append(len(message))
    raise InputError(
        f"no model fits a budget of {budget} bytes: the smallest on these rows has {min(sizes)}"
    )


def fit_compact(
    local: FittedScorer,
    training: TrainingSet,
    seed: int,
    profile: Profile = DEFAULT,
    bounds: Bounds | None = None,
) -> QuantizedForest:
    """Return the small forest that imitates a local model on the rows it was fitted on.

    Its thresholds lie between bounds, which are by default those of null_train.
    """
    rows, target = _lesson(local, training)
    return _imitate(rows, target, seed, profile, bounds or find_bounds(training.null_train))


def imitate(
    local: FittedScorer, training: TrainingSet, seed: int, bounds: Bounds | None = None
) -> Forest:
    """Return a forest of 100 trees with at most 20 leaves that imitates a local model.

    It stands for a model that has no numbers to send, and is quantized like any other forest.
    What is sent is grown between bounds; what stays at the site needs none.
    """
    rows, target = _lesson(local, training)
    return grow_imitation(rows, target, seed, bounds)


def grow_imitation(
    rows: Matrix, target: Vector, seed: int, bounds: Bounds | None = None
) -> Forest:
    """Return such a forest for rows and the log-odds that are to be imitated."""
    return _grow(rows, target, seed, (_STAND_IN_TREES, _STAND_IN_LEAVES), bounds)


def _as_linear(local: FittedScorer) -> Linear | None:
    """Return the local model where it is a logistic regression and speaks for itself."""
    last = getattr(local.estimator, "steps", [(None, local.estimator)])[-1][1]
    if not isinstance(last, LogisticRegression):
        return None
    return local.flat if isinstance(local.flat, Linear) else None


def _lesson(local: FittedScorer, training: TrainingSet) -> tuple[Matrix, Vector]:
    """Return the rows to learn from and the log-odds that the local model gives them."""
    rows, _ = training.labelled()
    return rows, log_odds(as_probability(local, training.null_train, rows), _CLOSEST)


def _imitate(
    rows: Matrix, target: Vector, seed: int, profile: Profile, bounds: Bounds
) -> QuantizedForest:
    """Grow small trees and put their numbers on lattices."""
    forest = _grow(rows, target, seed, (profile.n_trees, profile.n_leaves), bounds)
    bits = profile.threshold_bits
    used = set(forest.feature.tolist()) - {-1}
    return per_feature(forest, bits, profile.leaf_bits, {f: bounds.lattice(f, bits) for f in used})


def _grow(
    rows: Matrix, target: Vector, seed: int, shape: tuple[int, int], bounds: Bounds | None
) -> Forest:
    """Fit small trees to log-odds and stretch their mean to the same spread.

    Between bounds, values beyond them are moved to them, and a leaf has at least five rows, or
    three where few rows teach it.
    """
    n_trees, n_leaves = shape
    learnt, targets, weights, least_share = rows, target, None, 0.0
    if bounds is not None:
        rows, corners = bounds.clip(rows), _corners(bounds, seed)
        # Half a row less than that: the weights of corners must not decide.
        least_share = min((least_rows(len(rows)) - 0.5) / len(rows), 0.5)
        learnt = np.concatenate([rows, corners])
        targets = np.append(target, np.full(len(corners), target.mean()))
        weights = np.repeat([1.0, _NO_WEIGHT], [len(rows), len(corners)])
    trees = _extra_trees(
        learnt,
        targets,
        weights,
        np.random.RandomState(seed).randint(np.iinfo(np.int32).max, size=n_trees),
        max_leaf_nodes=n_leaves,
        min_weight_fraction_leaf=least_share,
    )
    single = rows.astype(np.float32)
    flat = (add_up(tree.predict(single)[:, 0] for tree in trees) / n_trees).std()
    stretch = target.std() / flat if flat > 0 else 1.0
    return _to_forest(trees, rows.shape[1], target.mean(), stretch / n_trees)


def _extra_trees(
    rows: Matrix,
    target: Vector,
    weights: Vector | None,
    seeds: NDArray[np.integer],
    **limits: float,
) -> list[Any]:
    """Grow one tree for each seed, as scikit-learn's ExtraTreesRegressor does.

    Growing trees of a few leaves takes a third of the time of that forest; the rest are copies of
    settings, checks and hand-overs to threads for each tree.
    """
    single, column = rows.astype(np.float32, order="C"), np.reshape(target, (-1, 1))
    trees, drawn = [], np.random.RandomState()
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for seed in seeds.tolist():
            drawn.seed(seed)  # in a tenth of the time of a new generator
            tree = ExtraTreeRegressor(max_features="sqrt", random_state=drawn, **limits)
            tree.fit(single, column, sample_weight=weights, check_input=False)
            trees.append(tree.tree_)
    return trees


def _corners(bounds: Bounds, seed: int) -> Matrix:
    """Draw corners of the bounds at random, from the seed alone."""
    is_high = np.random.default_rng([seed, _N_CORNERS]).random((_N_CORNERS, bounds.low.size)) < 0.5
    return np.where(is_high, bounds.high, bounds.low)


def _to_forest(trees: list[Any], n_features: int, centre: float, factor: float) -> Forest:
    """Return expit(centre + factor · Σ (tree − centre)) as a flat model."""
    return join_trees(
        (
            Tree(
                tree.feature,
                tree.threshold,
                tree.children_left,
                tree.children_right,
                factor * (tree.value[:, 0, 0] - centre),
            )
            for tree in trees
        ),
        n_features,
        link="logistic",
        base=float(centre),
    )
