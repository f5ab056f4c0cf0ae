"""Detection where normal tests are not distributed like the known normals: weights of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ColumnError, InputError
from conovel.rows.samples import as_frame
from conovel.runs.detection import Detection
from conovel.runs.site_results import with_part
from conovel.scorers.base import Matrix, Mixture, Vector
from conovel.site.shift import estimate_weights, like_mixture
from conovel.spec.findings import Finding
from conovel.spec.guarantee import weighted
from conovel.stats.weighted import as_row_weights, effective_rows, weighted_step_up, whole_weights

ESTIMATE = "estimate"
WeightsLike: TypeAlias = str | Callable[[Any], Any] | None
_UNCERTIFIED = "with weights evidence decides, which no single score ranks"
ESTIMATED = Finding(
    "weights",
    "how the normal tests differ from the known normals was learnt from the same rows, novelties"
    " among them",
    "give weights that are known apart from these rows, or known normals that are like them",
)


# What weights are not combined with, and why.
_WHY = {
    "pi0": "no bound is proven if the share of normal rows is estimated, too",
    "repeats": "one random number prunes the rows of one run",
    "confidence": "a certificate needs rows that one score ranks for all",
    "ties='random'": "equal scores count against a row, which its proof needs",
    "train_fraction=0": "weights are estimated from the known normals that train",
    "a ledger": "the rows of a batch are weighed against its own calibration rows",
    "verdicts": "they need known normals that are exchangeable with the normal tests",
}


class RowWeights(NamedTuple):
    """Weights of the rows of both samples; None where they are to be estimated."""

    source: str  # where they come from, in words
    null: Vector | None
    test: Vector | None

    def of(
        self,
        null_train: Matrix,
        mixture: Mixture,
        train: NDArray[np.intp],
        calibration: NDArray[np.intp],
    ) -> SplitWeights:
        """Take the weights of the rows that train and of the mixture."""
        share = 1 - calibration.size / mixture.position.size
        if self.null is None or self.test is None:
            return SplitWeights(*estimate_weights(null_train, mixture, share), share)
        of_mixture = np.concatenate([self.null[calibration], self.test])
        return SplitWeights(self.null[train], of_mixture, share)


class SplitWeights(NamedTuple):
    """Weights of null_train and of the mixture, calibration rows first."""

    train: Vector
    mixture: Vector
    share: float  # of tests in the mixture

    def like_mixture(self, null_train: Matrix, seed: int) -> Matrix:
        """Take the part of null_train that is distributed like the normals of the mixture."""
        return null_train[like_mixture(self.train, self.share, seed)]


@dataclass(frozen=True, eq=False)
class Weighted:
    """What a result with weights has besides.

    Attributes
    ----------
    source : str
        Where the weights come from.
    estimated : bool
        Whether they were estimated from the same rows; then nothing is proven.
    weights : float array of shape (m,)
        Of the tests.
    p_values : float array of shape (m,)
        Weighted p-values.
    needs : int array of shape (m,)
        The row is flagged if at least so many rows are; m + 1: it is not.
    effective_rows : float
        How many calibration rows of equal weight are worth as much.
    fewest : int
        The fewest rows that could have been flagged together.
    chance : Fraction
        The random number by which rows were pruned.

    See Also
    --------
    conovel.Detection : Has it as ``result.weighted``.
    """

    source: str
    estimated: bool
    weights: Vector
    p_values: Vector
    needs: NDArray[np.int64]
    effective_rows: float
    fewest: int
    chance: Fraction

    def summary(self) -> dict[str, Any]:
        """Everything but the rows, ready for JSON."""
        return {
            "source": self.source,
            "estimated": self.estimated,
            "effective_calibration_rows": round(self.effective_rows, 1),
            "chance": str(self.chance),
        }


def require_plain(weights: Any, others: dict[str, bool]) -> None:
    """Check the argument `weights`, and refuse settings for which nothing is proven with it."""
    if not callable(weights) and not (isinstance(weights, str) and weights):
        raise InputError(
            "weights must be a function of rows, the name of a column or 'estimate', not"
            f" {type(weights).__name__}"
        )
    for name, is_given in others.items():
        if is_given:
            raise InputError(
                f"weights do not work with {name}: {_WHY[name]}. Leave one of them out"
            )


def take_weights(
    weights: Any, X_null: Any, X_test: Any, X_known: Any
) -> tuple[Any, Any, Any, RowWeights]:
    """Read the weights of all rows; a column of weights is taken off the samples."""
    if callable(weights):
        of_null, of_test = (
            _by_function(weights, X, name) for X, name in ((X_null, "X_null"), (X_test, "X_test"))
        )
        return X_null, X_test, X_known, RowWeights("a function of the row", of_null, of_test)
    if weights == ESTIMATE:
        for sample, name in ((X_null, "X_null"), (X_test, "X_test")):
            frame = as_frame(sample, name)
            if frame is not None and ESTIMATE in map(str, frame.columns):
                raise InputError(
                    f"weights={ESTIMATE!r} estimates weights, and {name} has a column of that"
                    " name: rename the column"
                )
        return X_null, X_test, X_known, RowWeights("estimated from the rows", None, None)
    normals, of_null = _by_column(weights, X_null, "X_null")
    tests, of_test = _by_column(weights, X_test, "X_test")
    if X_known is not None and _has_column(weights, X_known, "X_known"):
        X_known = _without_column(weights, X_known, "X_known")
    return normals, tests, X_known, RowWeights(f"column {weights!r}", of_null, of_test)


def _by_function(weights: Callable[[Any], Any], sample: Any, name: str) -> Vector:
    label, frame = f"weights({name})", as_frame(sample, name)
    n_rows = len(sample) if frame is None else len(frame)
    values = as_row_weights(weights(sample), n_rows, label)
    if n_rows < 2:
        return values
    first = np.asarray(sample)[:1] if frame is None else frame[:1].to_native()
    alone = as_row_weights(weights(first), 1, f"{label} of its first row")
    if not math.isclose(alone[0], values[0], rel_tol=1e-6):
        raise InputError(
            f"weights must be a function of each row by itself: the first row of {name} weighs"
            f" {values[0]:.6g} among the others and {alone[0]:.6g} alone"
        )
    return values


def _has_column(column: str, sample: Any, name: str) -> bool:
    frame = as_frame(sample, name)
    return frame is not None and column in map(str, frame.columns)


def _by_column(column: str, sample: Any, name: str) -> tuple[Any, Vector]:
    """Take a column of weights off a sample."""
    if not _has_column(column, sample, name):
        raise ColumnError(
            f"weights={column!r} names a column, and {name} has none of that name: both samples"
            " need it; for arrays give a function of rows"
        )
    frame = as_frame(sample, name)
    assert frame is not None  # noqa: S101  (_has_column has looked)
    series = frame[:, list(map(str, frame.columns)).index(column)]
    label = f"{name}: column {column!r}"
    if not series.dtype.is_numeric():
        raise InputError(f"{label} holds {series.dtype} values: weights must be numbers")
    values = np.array([math.nan if one is None else one for one in series.to_list()], dtype=float)
    return _without_column(column, sample, name), as_row_weights(values, len(frame), label)


def _without_column(column: str, sample: Any, name: str) -> Any:
    frame = as_frame(sample, name)
    assert frame is not None  # noqa: S101  (callers have looked)
    return frame[:, [j for j, label in enumerate(frame.columns) if str(label) != column]]


def decide_weighted(
    result: Detection, row_weights: RowWeights, weights: Vector, chance: Fraction
) -> Detection:
    """Decide about scored rows by their weights; `weights` are those of the whole mixture.

    Proof: Theorem 24 (docs/theory.md#thm-weights).
    """
    n, m, level = result.n_calibration, result.scores.size, result.stepup.level
    whole = whole_weights(weights)
    outcome = weighted_step_up(
        (result.calibration_scores, whole[:n]), (result.scores, whole[n:]), level, chance
    )
    lightest = min(whole[n:])
    estimated = row_weights.null is None
    part = Weighted(
        source=row_weights.source,
        estimated=estimated,
        weights=weights[n:],
        p_values=outcome.p_values,
        needs=outcome.needs,
        effective_rows=effective_rows(weights[:n]),
        fewest=math.ceil(Fraction(m * lightest, sum(whole[:n]) + lightest) / level),
        chance=chance,
    )
    n_rejected = int(outcome.rejected.sum())
    stepup = replace(
        result.stepup,
        n_rejected=n_rejected,
        rejected=(outcome.rejected,),
        counts=((n_rejected,),),
        limits=(int(result.ranks[outcome.rejected].max(initial=0)),),
    )
    return with_part(
        with_part(result, "uncertified", _UNCERTIFIED),
        "weights",
        part,
        rejected=outcome.rejected,
        stepup=stepup,
        guarantee=weighted(level, estimated=estimated),
        warnings=(ESTIMATED,) if estimated else (),
    )
