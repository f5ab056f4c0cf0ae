"""From what the user holds (arrays, pandas, polars, arrow) to two checked matrices.

Every complaint names the column or the number of rows and says what to do, before any
model is fitted. Samples that are compared get one numeric type for each column, see
:mod:`conovel.rows.tables`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import ColumnError, DataWarning, MissingValueError, SampleError
from conovel.scorers.content import content_hash
from conovel.spec.made_from import Contents
from conovel.spec.schema import missing_feature
from conovel.stats.ranks import as_array
from conovel.stats.words import joined

if TYPE_CHECKING:
    from conovel.rows.encoding import FeatureMap


LARGEST = float(np.finfo(np.float32).max)  # scikit-learn's trees read single precision


@dataclass(frozen=True, eq=False)
class Rows:
    """A sample as a finite float64 matrix, with the names it came with."""

    # Of shape (n, d); contiguous and finite; negative zeros are made positive, so that equal rows
    # have equal bytes
    values: NDArray[np.float64]
    columns: tuple[str, ...] | None = None  # column names, when the sample was a frame
    frame: nw.DataFrame[Any] | None = None  # the frame itself, to give results back in kind
    # The type in which each column came, such as "float32"; None is float64 throughout
    kinds: tuple[str, ...] | None = None
    # What made the columns out of columns of other kinds, where they were not plain numbers
    encoder: FeatureMap | None = None
    # What tells whether a schema was made from these rows, where it says what it was made from
    contents: Contents | None = None

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(self.values.shape[1])

    def take(self, places: NDArray[np.intp]) -> NDArray[np.float64]:
        """Give the rows at some places, in this order."""
        return self.values[places]

    def chunks(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Give all rows in one chunk, which begins at row 0."""
        yield 0, self.values

    def in_memory(self) -> Rows:
        """Give all rows."""
        return self


def unify(*samples: Rows) -> tuple[Rows, ...]:
    """Give every column the narrowest float type that it has in any of the samples.

    Part of what exchangeability means (docs/theory.md, section 1): all rows that are compared
    must have been rounded alike. Warns of columns in which numbers may have been rounded.
    """
    if len({sample.kinds for sample in samples}) == 1:
        return samples
    width = samples[0].values.shape[1]
    kinds = [sample.kinds or ("float64",) * width for sample in samples]
    common = tuple(common_kind(column) for column in zip(*kinds, strict=True))
    labels = [column_label(samples[0].columns, j) for j in range(width)]
    warn_rounded(dict(zip(labels, zip(*kinds, strict=True), strict=True)), stacklevel=5)
    return tuple(
        _rounded(sample, own, common, labels) for sample, own in zip(samples, kinds, strict=True)
    )


def pool_pairs(pairs: Sequence[Sequence[Rows]]) -> tuple[Rows, Rows]:
    """Put the known normals of several sites together, and their test rows, all in one type."""
    unified = unify(*(sample for pair in pairs for sample in pair))
    null, test = (
        replace(part[0], values=np.concatenate([rows.values for rows in part]), frame=None)
        for part in (unified[::2], unified[1::2])
    )
    return null, test


def _rounded(
    sample: Rows, own: Sequence[str], common: tuple[str, ...], labels: Sequence[str]
) -> Rows:
    values = sample.values
    for j, (kind, wanted) in enumerate(zip(own, common, strict=True)):
        if loses_digits(kind, wanted):
            values = values.copy() if values is sample.values else values
            values[:, j] = round_to(values[:, j], wanted, labels[j])
    return replace(sample, values=values + 0.0, kinds=common)  # what was rounded to -0.0 is 0.0


def rounded_as(sample: Rows, like: Rows) -> NDArray[np.float64]:
    """Give the values of a sample, rounded where another has a narrower float type."""
    own, wanted = (one.kinds or ("float64",) * like.width for one in (sample, like))
    labels = [column_label(like.columns, j) for j in range(like.width)]
    return _rounded(sample, own, wanted, labels).values


def column_label(columns: Sequence[str] | None, index: int) -> str:
    """Name a column the way the user knows it."""
    return f"column {columns[index]!r}" if columns is not None else f"column {index}"


def with_ids(ids: NDArray[Any] | None, **columns: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Put the row names, if there are any, in front of per-row results."""
    return columns if ids is None else {"id": ids, **columns}


def numbered(columns: Mapping[str, Any], n_rows: int, start: int = 0) -> dict[str, Any]:
    """Put numbers of rows, the first is 0, in front of results without ids, for a file."""
    if "id" in columns:
        return dict(columns)
    return {"row": np.arange(start, start + n_rows), **columns}


def as_ids(ids: ArrayLike | None, m: int) -> NDArray[Any] | None:
    """Check that there is one name for each of the m test rows."""
    if ids is None:
        return None
    names = as_array(ids, "ids")
    if names.shape != (m,):
        raise SampleError(f"ids has shape {names.shape}, but there are {m} test rows")
    if names.dtype.kind == "S" or any(isinstance(name, bytes) for name in names):
        raise SampleError("ids holds bytes: name rows by texts or numbers")
    return names


def chance_of_none(n: int, n_others: int, n_present: int) -> float:
    """Return the chance that n rows have no value of a column, if all orders are equally likely.

    There are n_others rows more, and n_present rows of all have a value.

    Examples
    --------
    >>> round(chance_of_none(1, 9, 9), 3), round(chance_of_none(2, 2, 2), 3)
    (0.1, 0.167)
    >>> chance_of_none(5, 3, 4)
    0.0
    """
    if n_present > n_others:
        return 0.0
    # C(n_others, k) / C(n + n_others, k)
    logs = map(math.lgamma, (n_others + 1, n + n_others - n_present + 1))
    less = map(math.lgamma, (n + n_others + 1, n_others - n_present + 1))
    return round(math.exp(sum(logs) - sum(less)), 16)


def entirely_missing(name: str, labels: Sequence[str], n: int) -> MissingValueError:
    """Say that columns have no value at all."""
    where = "the one row that was read" if n == 1 else f"all {n:,} rows that were read"
    return MissingValueError(
        f"{name}: entirely missing, in {where}:"
        f" {joined(labels)}: leave the column out or fill it in"
    )


def require_finite(
    values: NDArray[np.float64],
    columns: Sequence[str] | None,
    name: str,
    *,
    may_be_missing: bool = False,
) -> None:
    """Check that all values are numbers that trees can read, and that no column is empty."""
    # One pass over the sum finds nearly every clean matrix without a temporary mask.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()) and np.abs(values).max() <= LARGEST:
            return
    n = len(values)
    empty = np.flatnonzero(np.isnan(values).all(axis=0)).tolist() if n > 1 else []
    if empty and not may_be_missing:
        raise entirely_missing(name, [column_label(columns, j) for j in empty], n)
    for what, wrong, fix in (
        ("missing", np.isnan(values) & (not may_be_missing), "drop the rows or fill them in"),
        ("infinite", np.isinf(values), "drop those rows or cap the values"),
        ("beyond single precision", np.abs(values) > LARGEST, "rescale the column"),
    ):
        hit = np.flatnonzero(wrong.any(axis=0))
        if hit.size:
            bad = [
                f"{column_label(columns, j)} has {np.count_nonzero(wrong[:, j])}"
                f" (first in row {np.flatnonzero(wrong[:, j])[0]})"
                for j in hit.tolist()
            ]
            error = MissingValueError if what == "missing" else ColumnError
            raise error(f"{name} has {what} values: {joined(bad)}: {fix}")


def warn_constant(null: Rows, test: Rows) -> None:
    """Warn of columns that are the same in all rows of both samples."""
    low = np.minimum(null.values.min(axis=0), test.values.min(axis=0))
    high = np.maximum(null.values.max(axis=0), test.values.max(axis=0))
    if null.encoder is None:
        constant = [column_label(null.columns, j) for j in np.flatnonzero(low == high).tolist()]
    else:
        # Other agents may have values of a column that is missing in all rows.
        gone = {
            source
            for source, feature, least in zip(
                null.encoder.source, null.encoder.features, low.tolist(), strict=True
            )
            if least == 1 and feature == missing_feature(source)
        }
        unchanged = null.encoder.constant_columns(low == high)
        constant = [f"column {c!r}" for c in unchanged if c not in gone]
    if (low == high).all():
        raise ColumnError("every column is constant: there is nothing to tell rows apart by")
    if constant:
        # As a finding says it of each column, so that a command says it once.
        words = [f"{one} never changes in either sample and tells nothing" for one in constant]
        warnings.warn(f"{joined(words)}: leave it out", DataWarning, stacklevel=4)


def count_shared_rows(null: NDArray[np.float64], test: NDArray[np.float64]) -> int:
    """Count the test rows among the nulls, if they are more than rows that repeat by nature; or 0.

    Coarse data repeat by nature; then the rate within the null sample is as high, and
    sharing is no sign that somebody put test rows among the known normals.
    """
    hashes, times = np.unique(content_hash(null), return_counts=True)
    shared = int(np.isin(content_hash(test), hashes).sum())
    # One row more, because no copy may occur by chance. Copies come in pairs, and both samples
    # vary: the variance is about 2 (1 + m/n) times the mean.
    by_nature = (int(times[times > 1].sum()) + 1) / len(null) * len(test)
    largest = by_nature + 3 * (2 * by_nature * (1 + len(test) / len(null))) ** 0.5
    return shared if shared > largest else 0


def warn_shared_rows(null: Rows, test: Rows) -> None:
    """Warn when test rows reappear among the nulls more often than nulls repeat themselves."""
    n_test, n_shared = len(test), count_shared_rows(null.values, test.values)
    if n_shared:
        warnings.warn(
            f"{n_shared} of {n_test} test rows also stand in X_null: if they are the same"
            " observations, remove them from X_null, or novelties among them go unseen",
            DataWarning,
            stacklevel=4,
        )


# Significant bits. Everything is computed in float64, so wider floats count as float64.
_FLOAT_BITS = {"float16": 11, "float32": 24, "float64": 53}
_EXACT_BITS = {"bool": 1} | {
    f"{sign}int{n}": n - (not sign) for sign in ("", "u") for n in (8, 16, 32, 64, 128)
}


def kind_of(dtype: np.dtype[Any]) -> str | None:
    """Name the kind of numbers of a numpy type, such as "float32" or "bool"; None if it has none.

    Examples
    --------
    >>> kind_of(np.dtype(np.float32)), kind_of(np.dtype("U3"))
    ('float32', None)
    """
    if dtype.kind not in "biuf":
        return None
    return "float64" if dtype.kind == "f" and dtype.itemsize > 8 else dtype.name


def kinds_of_objects(column: NDArray[Any]) -> set[str]:
    """Name the kinds of numbers in a column of objects; what is missing has none.

    Examples
    --------
    >>> sorted(kinds_of_objects(np.array([np.float32(1), 2.0, 3, None], dtype=object)))
    ['float32', 'float64', 'integer']
    """

    def kind(held: type) -> str:
        if issubclass(held, np.generic):
            return kind_of(np.dtype(held)) or held.__name__
        return {bool: "bool", int: "integer", float: "float64"}.get(held, held.__name__)

    return {kind(held) for held in set(map(type, column)) - {type(None)}}


def common_kind(kinds: Iterable[str]) -> str:
    """Give the kind in which columns of these kinds are compared.

    Examples
    --------
    >>> common_kind(["float64", "float32"]), common_kind(["int64", "int64"])
    ('float32', 'int64')
    >>> common_kind(["int64", "float32"]), common_kind(["int64", "bool"])
    ('float32', 'float64')
    """
    different = set(kinds)
    floats = different & _FLOAT_BITS.keys()
    if floats:
        return min(floats, key=lambda kind: _FLOAT_BITS[kind])
    return different.pop() if len(different) == 1 else "float64"


def loses_digits(kind: str, common: str) -> bool:
    """Tell whether numbers of a kind may change when they are compared in a narrower float.

    All numbers become float64, so that this alone is no difference between samples.
    """
    if common not in _FLOAT_BITS or common == "float64":
        return False
    needed = (_FLOAT_BITS | _EXACT_BITS).get(kind, np.inf)  # decimals have any number of digits
    return needed > _FLOAT_BITS[common]


def require_kept_kind(kept: str, new: str, label: str, name: str) -> None:
    """Refuse new rows in a narrower type of float than the one that rows were calibrated with."""
    common = common_kind((kept, new))
    if common in ("float16", "float32") and loses_digits(kept, common):
        raise ColumnError(
            f"{name}: {label} is {new}, and the detector was calibrated with {kept}: give {kept},"
            " or keep a new detector"
        )


def as_floats(array: NDArray[Any]) -> NDArray[np.float64]:
    """Turn numbers of any kind into float64, each to the nearest; what is missing is NaN.

    Python's decimals are rounded correctly, which casts of data frame libraries do not promise.
    What no tree can read, infinite or beyond single precision, becomes the nearest number that one
    can: the same for every cell, whichever sample it stands in.

    Examples
    --------
    >>> as_floats(np.array([1.5, -np.inf])).tolist() == [1.5, -LARGEST]
    True
    """
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return within_bounds(array.astype(np.float64, copy=False))
    if array.dtype.kind != "O":
        return array.astype(np.float64, copy=False)
    missing = [type(value).__name__ == "NAType" for value in array.flat]  # pandas has its own
    if any(missing):
        array = array.copy()
        array[np.reshape(missing, array.shape)] = None
    return within_bounds(array.astype(np.float64))  # None becomes NaN


def within_bounds(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move numbers that are infinite or beyond single precision to its bounds."""
    if values.size and values.min() >= -LARGEST and values.max() <= LARGEST:
        return values
    return np.clip(values, -LARGEST, LARGEST)  # also where some are NaN, which stay


def round_to(values: NDArray[np.float64], kind: str, label: str) -> NDArray[Any]:
    """Round a column to a float type, and leave it in that type."""
    with np.errstate(over="ignore"):
        rounded = values.astype(kind)
    if np.any(np.isinf(rounded) & np.isfinite(values)):
        raise ColumnError(
            f"{label} has values beyond {kind}, the type of the other sample or of another file:"
            " rescale the column in all of them"
        )
    return rounded


def warn_rounded(columns: Mapping[str, Iterable[str]], stacklevel: int = 3) -> None:
    """Warn of columns whose kinds differ so that some numbers are rounded."""
    differing = []
    for label, kinds in columns.items():
        names = sorted(set(kinds))
        if any(loses_digits(kind, common_kind(names)) for kind in names):
            differing.append(f"{label} ({' and '.join(names)})")
    if differing:
        warnings.warn(
            f"{joined(differing)}: known"
            " normals and test rows must have the same numeric type, or equal values differ in"
            " their last digits. All are rounded to the narrower float type; give all samples"
            " and files one type",
            DataWarning,
            stacklevel=stacklevel,
        )
