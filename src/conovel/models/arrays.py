"""Functions that all flat models use: frozen arrays, checked rows, the logistic function."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import ColumnError, ModelError, SampleError
from conovel.spec.shown import Shown


class Described(Shown):
    """Base of models: adds `describe`, and shows a model by its size."""

    by_row = True  # sums go from feature to feature or tree to tree, for each row by itself

    def _shown(self) -> dict[str, str]:
        sizes = {"trees": "n_trees", "features": "n_features"}
        return {term: f"{getattr(self, n):,}" for term, n in sizes.items() if hasattr(self, n)}

    def describe(self) -> dict[str, Any]:
        """Return size, shape and bytes by part; see `conovel.models.wire.describe`."""
        from conovel.models.wire import describe  # noqa: PLC0415  (the wire imports this module)

        return describe(self)  # type: ignore[arg-type]


def freeze(values: ArrayLike, dtype: type[np.generic], name: str) -> NDArray[Any]:
    """Copy numbers into a read-only array.

    Parameters
    ----------
    values : array
        Finite numbers.
    dtype : numpy scalar type
        Wanted type; integers that it cannot hold are an error, floats are rounded.
    name : str
        Name of the numbers in error messages.
    """
    given = np.asarray(values)
    if given.dtype.kind not in "iuf" or not np.all(np.isfinite(given)):
        raise ModelError(f"{name} must be finite numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        array = given.astype(dtype, order="C", copy=True)
    if array.dtype.kind in "iu" and not np.array_equal(array, given):
        raise ModelError(f"{name} must be whole numbers that fit {array.dtype}")
    array.flags.writeable = False
    return array


def freeze_scaler(
    centre: ArrayLike | None, scale: ArrayLike | None, n_features: int
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Freeze a scaler, which maps rows to ``(rows - centre) / scale``; each part may be None."""
    if centre is not None:
        centre = freeze(centre, np.float64, "centre")
    if scale is not None:
        scale = freeze(scale, np.float64, "scale")
        if np.any(scale <= 0):
            raise ModelError("scale must be positive")
    for part in (centre, scale):
        if part is not None and part.shape != (n_features,):
            raise ModelError(f"a scaler needs {n_features} numbers, got an array {part.shape}")
    return centre, scale


def check_rows(X: ArrayLike, n_features: int) -> NDArray[np.float64]:
    """Return the rows as a finite float64 matrix with the number of columns of the model.

    Examples
    --------
    >>> check_rows([[1, 2]], n_features=3)
    Traceback (most recent call last):
    conovel.errors.SampleError: the model scores rows of 3 columns, got an array (1, 2)
    """
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ColumnError("rows to score must hold numbers only") from error
    if rows.ndim != 2 or rows.shape[1] != n_features:
        raise SampleError(
            f"the model scores rows of {n_features} columns, got an array {rows.shape}"
        )
    if not np.all(np.isfinite(rows)):
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ColumnError(f"row {row} has {rows[row, column]} in column {column}")
    return rows


def logistic(raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / (1 + exp(-raw)), and 1/2 where sums overflowed to NaN.

    This is scipy's function, which scikit-learn uses too: scores have the same bits as those
    of the scikit-learn model.
    """
    # Imported here, so that `import conovel` is fast.
    from scipy.special import expit  # noqa: PLC0415

    return np.asarray(expit(np.nan_to_num(raw, nan=0.0, posinf=np.inf, neginf=-np.inf)))


def standardise(
    rows: NDArray[np.float64],
    centre: NDArray[np.float64] | None,
    scale: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Return ``(rows - centre) / scale``, the operations of scikit-learn's scalers."""
    with np.errstate(over="ignore", invalid="ignore"):
        if centre is not None:
            rows = rows - centre
        if scale is not None:
            rows = rows / scale
    return rows


def affine(
    rows: NDArray[np.float64], weight: NDArray[np.float64], bias: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Return ``rows @ weight + bias``, summed over the inputs from the first to the last.

    A matrix product of BLAS sums in an order that depends on the number of rows, which
    would make the score of a row depend on the rows scored with it.

    Examples
    --------
    >>> affine(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), 0.5)
    array([[11.5]])
    """
    sums = np.zeros((len(rows), weight.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for column, outgoing in zip(rows.T, weight, strict=True):
            sums += column[:, np.newaxis] * outgoing
        sums += bias
    return sums
