"""Small surrogates: forests grown to imitate an agent's model in a few hundred bytes.

What an agent sends need not be its model. A hundred extremely randomised trees of a few
leaves, fitted to the log-odds that the local model gives its own rows, say nearly as much to
a peer as the model itself, and a coarse grid costs them little (docs/front.md):

* the local model is imitated. Learning from the labels again would lose what it has averaged
  out;
* an average of small trees is flat, so before it is quantized it is stretched until its
  log-odds spread as far as the local model's: otherwise it would never be the `max`;
* a logistic regression is smaller than any forest that would imitate it, and sent itself;
* the thresholds of a feature lie on a uniform lattice over bounds that no single row decides
  (:mod:`conovel.site.sent.bounds`). Quantile grids would be fine where the normals are and coarse
  where novelties are;
* each leaf stands for at least five rows, at a small site for three, and thresholds are drawn
  between the bounds, whatever the extremes of the rows are.

Where a precision is asked for and the local model has no numbers to send, a forest of the
size of the paper's models imitates it in the same way (:func:`imitate`).

Everything here is a fixed function of null_train, the mixture as a multiset and the seed, and
so is the choice of a profile under a budget: validity costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression

from conovel.errors import InputError
from conovel.models import wire
from conovel.models.forest import Forest
from conovel.models.linear import Linear
from conovel.models.quantized.forest import QuantizedForest, per_feature, uniform
from conovel.models.trees import Tree, join_trees, round_down
from conovel.models.wire import NO_SCHEMA
from conovel.scorers.base import FittedScorer, Matrix, TrainingSet, Vector, log_odds
from conovel.site.sent.bounds import Bounds, find_bounds
from conovel.site.stacking import as_probability
from conovel.spec.training import least_rows

__all__ = ["DEFAULT", "PROFILES", "Profile", "encode_compact", "fit_compact", "imitate"]

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

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from conovel.scorers.base import Mixture
    >>> from conovel.scorers.estimators import as_scorer
    >>> rng = np.random.default_rng(0)
    >>> mixture = Mixture.of(rng.normal(size=(150, 3)) + 1.0)
    >>> training = TrainingSet(rng.normal(size=(100, 3)), mixture)
    >>> local = as_scorer(LogisticRegression()).fit(training)
    >>> small = fit_compact(local, training, seed=0)
    >>> rows = mixture.distinct
    >>> bool(np.corrcoef(small.score(rows), local.score(rows))[0, 1] > 0.9)
    True
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
    trees = ExtraTreesRegressor(
        n_trees, max_leaf_nodes=n_leaves, max_features="sqrt", random_state=seed
    )
    if bounds is None:
        trees.fit(rows, target)
    else:
        rows = bounds.clip(rows)
        # Half a row less than that: the weights of corners must not decide.
        least = least_rows(len(rows)) - 0.5
        trees.set_params(min_weight_fraction_leaf=min(least / len(rows), 0.5))
        corners = _corners(bounds, seed)
        trees.fit(
            np.concatenate([rows, corners]),
            np.append(target, np.full(len(corners), target.mean())),
            np.repeat([1.0, _NO_WEIGHT], [len(rows), len(corners)]),
        )
    flat = trees.predict(rows).std()
    stretch = target.std() / flat if flat > 0 else 1.0
    return _to_forest(trees, target.mean(), stretch / n_trees)


def _corners(bounds: Bounds, seed: int) -> Matrix:
    """Draw corners of the bounds at random, from the seed alone."""
    is_high = np.random.default_rng([seed, _N_CORNERS]).random((_N_CORNERS, bounds.low.size)) < 0.5
    return np.where(is_high, bounds.high, bounds.low)


def _to_forest(trees: ExtraTreesRegressor, centre: float, factor: float) -> Forest:
    """Return expit(centre + factor · Σ (tree − centre)) as a flat model."""
    return join_trees(
        (
            Tree(
                tree.feature,
                round_down(tree.threshold),
                tree.children_left,
                tree.children_right,
                factor * (tree.value[:, 0, 0] - centre),
            )
            for tree in (member.tree_ for member in trees.estimators_)
        ),
        trees.n_features_in_,
        link="logistic",
        base=float(centre),
    )
