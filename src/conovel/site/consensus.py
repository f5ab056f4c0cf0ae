"""One score for all agents: how novel a row is to the agent it is least novel to.

Each agent learns twice. Its first model says how far a row is from its own normals
(:mod:`conovel.site.sent.surrogate`). With everybody's first models an agent sets aside the
test rows that are far from its own normals and near those of another: roaming rows, which are no
novelties. From the others it learns its second model, once for each fold, and always from the
rows of the other fold. The output of a second model is an estimate of the log-odds that a row is
a novelty and not one of the agent's normals, as many of both assumed (μz - μ²/2 of
:mod:`conovel.site.common_scale`). So second models of different agents can be compared, and the
score of a row is the smallest of them.

Calibration rows take no part in any of this. Models are sent as integers on grids and evaluated
with the same bits on every machine, one's own model like those of the peers: the score has to be
the same function everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from conovel.models import wire
from conovel.models.forest import Forest
from conovel.models.linear import Linear, affine, expit, standardise
from conovel.models.quantized.forest import QuantizedForest, per_feature, uniform
from conovel.models.wire import Surrogate
from conovel.scorers.automatic import Automatic, normality
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Mixture,
    Scorer,
    TrainingSet,
    Vector,
    add_up,
    fit_best,
    is_by_row,
    log_odds,
)
from conovel.scorers.blend import Discriminant
from conovel.site.common_scale import EDGES, novelties_in
from conovel.site.sent.compact import Bounds, grow_imitation
from conovel.site.sent.surrogate import CONFORMS, distance_model
from conovel.spec.consensus import FEWEST_LEARNT, fold_sizes
from conovel.spec.settings import MAX_BITS, Bits

_FEWEST_TRAINED = 10  # rows of null_train
_REFITS = 6
_FAR = 1.0  # standard units from all agents' normals; a row counts in full one unit further on
_STANDS_OUT = 2.0  # standard units; a row counts in full from one unit further on
_FEWEST_NOVEL = 1.5  # in weight; with fewer, all rows count
_QUANTILE, _NORMAL_QUANTILE = 0.8, 0.8416212335729143  # Φ(0.84162...) = 0.8
_CLOSEST = 1e-3
_BITS_OF_LINEAR, _BITS_OF_FOREST = 12, 8  # of `compact` models
_EDGES = expit(EDGES)  # scores are probabilities: the lowest of each cell but the first


def draw_folds(n_test: int, seed: int) -> NDArray[np.int64]:
    """Draw the fold of each test row, 0 or 1, from its position and the seed alone.

    A fold that depends on what is in a row would break the guarantee.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    order = np.random.default_rng([seed, n_test, 2]).permutation(n_test)
    folds = np.zeros(n_test, dtype=np.int64)
    folds[order[fold_sizes(n_test)[0] :]] = 1
    return folds


def cells_of(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the cell of each score on the grid that all agents share, the lowest is 0."""
    return np.searchsorted(_EDGES, scores, side="right").astype(np.int64)


@dataclass(frozen=True, eq=False)
class ConsensusScore:
    """The score of one fold: the smallest output of all agents' second models."""

    models: Mapping[str, Surrogate]  # by agent, decoded from the bytes that were sent

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score in any batch."""
        return all(map(is_by_row, self.models.values()))

    def score(self, X: Matrix) -> Vector:
        """Score each row."""
        smallest = np.ones(len(X))
        for model in self.models.values():
            np.minimum(smallest, model.score(X), out=smallest)
        return smallest

    def cells_by_agent(self, X: Matrix) -> dict[str, NDArray[np.int64]]:
        """Return the cell of each row by the model of each agent alone."""
        return {name: cells_of(model.score(X)) for name, model in self.models.items()}


def first_model(null_train: Matrix, bits: Bits, schema: bytes) -> bytes:
    """Return how far rows are from null_train, as bytes."""
    return wire.encode(distance_model(null_train), bits=_width(bits, MAX_BITS), schema=schema)


@dataclass(frozen=True, eq=False)
class FoldTraining:
    """What the second model of a fold is learnt from: the test rows of the other fold."""

    null_train: Matrix
    # Test rows of the other fold, those that were set aside left out. None if fewer than five are
    # left.
    mixture: Mixture | None
    # For each row of the mixture, in its order, how far it is from the nearest agent's normals, in
    # standard units
    far: Vector

    @classmethod
    def of(
        cls,
        null_train: Matrix,
        mixture: Mixture | None,
        own: Surrogate,
        others: Sequence[Surrogate],
    ) -> FoldTraining:
        """Set aside the rows that are far from the own normals and near those of another."""
        if mixture is None:
            return cls(null_train, None, np.zeros(0))
        rows = mixture.rows
        by_own, by_others = own.score(rows), np.ones(len(rows))
        for model in others:
            np.minimum(by_others, model.score(rows), out=by_others)
        normal = expit(np.array([CONFORMS]))[0]
        kept = (by_own <= normal) | (by_others > normal)
        if np.count_nonzero(kept) < FEWEST_LEARNT:
            return cls(null_train, None, np.zeros(0))
        # Rows are in canonical order, and stay in it.
        nearest = np.minimum(by_own, by_others)[kept]
        return cls(null_train, Mixture.of(rows[kept]), log_odds(nearest, 1e-12))

    def within(self, bounds: Bounds) -> FoldTraining:
        """Move values beyond the bounds to them; rows keep their order, and so does `far`."""
        mixture = self.mixture
        if mixture is not None:
            mixture = Mixture(bounds.clip(mixture.distinct), mixture.position)
        return replace(self, null_train=bounds.clip(self.null_train), mixture=mixture)


def second_model(
    candidates: Sequence[Scorer],
    training: FoldTraining,
    own: Surrogate,
    bits: Bits,
    seed: int,
    schema: bytes,
    bounds: Bounds,
) -> tuple[bytes, FittedScorer | None]:
    """Learn what is novel to an agent, and return it as bytes, with the scorer if one was fitted.

    Where the columns of null_train look Gaussian and the scorer is the default, it is a linear
    discriminant, refitted to the rows that stand out. Other scorers are imitated: a logistic
    regression is sent itself, for all others a forest. Without rows to learn from, it is the
    distance from null_train.
    """
    training = training.within(bounds)
    null_train, mixture = training.null_train, training.mixture
    if mixture is None or len(null_train) < _FEWEST_TRAINED:
        return wire.encode(own, schema=schema), None
    is_default = len(candidates) == 1 and isinstance(candidates[0], Automatic)
    if is_default and normality(null_train).is_plausible:
        linear = _discriminant(training, mixture)
        return _encode(_as_odds(linear, null_train, mixture), bounds, bits, schema), None
    fitted = fit_best(candidates, TrainingSet(null_train, mixture))
    if isinstance(fitted.flat, Linear):
        model: Linear | Forest = fitted.flat
    else:
        rows = np.vstack([null_train, mixture.rows])
        model = grow_imitation(rows, _log_odds(fitted, rows), seed, bounds)
    return _encode(_as_odds(model, null_train, mixture), bounds, bits, schema), fitted


def _discriminant(training: FoldTraining, mixture: Mixture) -> Linear:
    """Fit a linear discriminant, beginning with the rows that are far from all agents."""
    null_train, rows = training.null_train, mixture.rows
    labels = np.repeat([0, 1], [len(null_train), len(rows)])
    both = np.vstack([null_train, rows])
    ones = np.ones(len(null_train))
    weights = np.clip(training.far - _FAR, 0, 1)
    for _ in range(_REFITS):
        if weights.sum() < _FEWEST_NOVEL:
            weights = np.ones(len(rows))
        fitted = Discriminant().fit(both, labels, np.concatenate([ones, weights + 1e-9]))
        coef = fitted.coef_
        of_normals, of_mixture = (add_up((X * coef).T) for X in (null_train, rows))
        centre, unit = _centre_and_unit(of_normals)
        weights = np.clip((of_mixture - centre) / unit - _STANDS_OUT, 0, 1)
    return Linear(coef, -float(add_up((fitted.middle_ * coef)[:, np.newaxis])[0]))


def _log_odds(fitted: FittedScorer, rows: Matrix) -> Vector:
    """Return the scores of rows on a scale on which they can be averaged."""
    scores = fitted.score(rows)
    return log_odds(scores, _CLOSEST) if fitted.scale == "probability" else scores


def _as_odds(model: Linear | Forest, null_train: Matrix, mixture: Mixture) -> Linear | Forest:
    """Stretch and shift the output of a model to estimated log-odds.

    In standard units z of null_train novelties are taken to be normal around a mean μ.
    """
    of_normals, of_mixture = (_raw_output(model, rows) for rows in (null_train, mixture.rows))
    centre, unit = _centre_and_unit(of_normals)
    mean, _ = novelties_in((of_mixture - centre) / unit)
    factor, shift = mean / unit, -mean * centre / unit - mean**2 / 2
    if isinstance(model, Linear):
        return replace(model, coef=factor * model.coef, intercept=factor * model.intercept + shift)
    return replace(model, value=factor * model.value, base=factor * model.base + shift)


def _raw_output(model: Linear | Forest, rows: Matrix) -> Vector:
    """Return the output of a model before it becomes a probability.

    Log-odds of a probability end at 28. Those of a linear model go on, and normals that are more
    than seven standard units from novelties lie beyond.
    """
    if isinstance(model, Linear):
        units = standardise(rows, model.centre, model.scale)
        return affine(units, model.coef[:, np.newaxis], model.intercept)[:, 0]
    return log_odds(model.score(rows), 1e-12)


def _centre_and_unit(scores: Vector) -> tuple[float, float]:
    """Return the median, and the standard deviation as the upper half of the scores tells it."""
    centre, upper = np.quantile(scores, [0.5, _QUANTILE]).tolist()
    return centre, (upper - centre) / _NORMAL_QUANTILE or float(scores.std()) or 1.0


def _encode(model: Linear | Forest, bounds: Bounds, bits: Bits, schema: bytes) -> bytes:
    """Put the numbers of a model on grids, so that it has the same bits everywhere."""
    if isinstance(model, Linear):
        return wire.encode(uniform(model, _width(bits, _BITS_OF_LINEAR)), schema=schema)
    width = _width(bits, _BITS_OF_FOREST)
    used = set(model.feature.tolist()) - {-1}
    lattices = {f: bounds.lattice(f, width) for f in used}
    coded: QuantizedForest = per_feature(model, width, width, lattices)
    return wire.encode(coded, schema=schema)


def _width(bits: Bits, usual: int) -> int:
    """Return the bits of a number: those that are asked for, all of them, or the usual."""
    if bits is None:
        return MAX_BITS
    return usual if isinstance(bits, str) else bits
