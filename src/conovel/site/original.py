"""Rows as a matrix from which the frame they came in can be made again, for pipelines.

A number stays as it is. Any other value is its place among the different values of the column in
both samples together, in a fixed order. So the matrix is a function of the two samples as one
multiset, as every encoding must be, and nothing of the frame is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conovel.scorers.on_frames import on_frames, reads_frames
from conovel.scorers.reading import Matrix, Vector
from conovel.site.columns import no_value, plain_missing, series_kind
from conovel.site.encoding import FeatureMap, pandas_frame
from conovel.site.representation import as_floats
from conovel.site.tables import Rows, require_finite, unify

if TYPE_CHECKING:
    from conovel.site.site import SiteWork


@dataclass(frozen=True, eq=False)
class _Column:
    """One column of the frame.

    Attributes
    ----------
    name : object
        As in the frame: pandas takes names that are no texts.
    dtype : Any
        Its type in the library of the frame, if both samples agree on it.
    is_number : bool
        Whether it holds numbers; other values have places.
    missing : bool
        Whether numbers are missing, which a feature of its own tells.
    values : tuple
        The different values, where they have places; a missing one has the place -1.
    """

    name: Any
    dtype: Any
    is_number: bool
    missing: bool
    values: tuple[Any, ...]

    @property
    def n_features(self) -> int:
        return 2 if self.missing else 1


class FrameCodec(FeatureMap):
    """Turns frames into matrices, and the rows of a matrix into a frame.

    Parameters
    ----------
    null, test : narwhals DataFrame
        Both samples of a detection, with the same columns in the same order.
    """

    def __init__(self, null: nw.DataFrame[Any], test: nw.DataFrame[Any]) -> None:
        self._library = null.implementation
        pairs = [(null[:, j], test[:, j]) for j in range(null.shape[1])]
        named = zip(null.columns, pairs, strict=True)
        self._columns = [_column(name, pair) for name, pair in named]
        labels = [str(column.name) for column in self._columns]
        features, source = [], []
        for label, column in zip(labels, self._columns, strict=True):
            features += [label, f"{label} is missing"][: column.n_features]
            source += [label] * column.n_features
        super().__init__(tuple(features), tuple(source))

    def described(self) -> list[tuple[str, bool, tuple[str, ...] | None]]:
        """Say of each column its name, whether it lacks numbers, and its values if it has none."""
        return [
            (str(c.name), c.missing, None if c.is_number else tuple(map(str, c.values)))
            for c in self._columns
        ]

    def encode(self, frame: nw.DataFrame[Any], name: str) -> Rows:
        """Give the rows of one of the samples."""
        found: list[Vector] = []
        kinds: list[str] = []
        for j, column in enumerate(self._columns):
            found += _encoded(column, frame[:, j])
            own = series_kind(frame[:, j]) if column.is_number else None
            kinds += [own or "float64", "float64"][: column.n_features]
        values = np.stack(found, axis=1)
        require_finite(values, self.features, name)
        return Rows(values + 0.0, self.features, frame, tuple(kinds), self)

    def decode(self, X: Matrix) -> Any:
        """Make a frame of rows, with the names and types of the columns."""
        found, j = {}, 0
        for column in self._columns:
            found[column.name] = _decoded(column, X[:, j : j + column.n_features].T)
            j += column.n_features
        if self._library.is_polars():
            import polars as pl  # noqa: PLC0415

            return pl.DataFrame(
                [pl.Series(str(c.name), found[c.name], c.dtype) for c in self._columns]
            )
        frame = pandas_frame(found)
        if not self._library.is_pandas():
            return frame
        return frame.astype({c.name: c.dtype for c in self._columns if c.dtype is not None})


def with_frames(work: SiteWork, rows: Rows) -> SiteWork:
    """Let the scorers of a site that read frames have a frame, if the rows came in one."""
    if rows.columns is None or not reads_frames(work.candidates):
        return work
    names = rows.columns
    decode = getattr(
        rows.encoder, "decode", lambda X: pandas_frame(dict(zip(names, X.T, strict=True)))
    )
    return replace(work, candidates=on_frames(work.candidates, decode))


def read_frames(null: nw.DataFrame[Any], test: nw.DataFrame[Any]) -> tuple[Rows, Rows]:
    """Give both samples as matrices that keep all of their frames."""
    codec = FrameCodec(null, test)
    known, tests = unify(codec.encode(null, "X_null"), codec.encode(test, "X_test"))
    return known, tests


def _column(name: Any, pair: tuple[nw.Series[Any], nw.Series[Any]]) -> _Column:
    natives = [series.to_native() for series in pair]
    dtypes = [getattr(native, "dtype", None) for native in natives]
    dtype = dtypes[0] if dtypes[0] == dtypes[1] else None
    kinds = [series_kind(series) for series in pair]
    if None not in kinds:
        missing = any(np.isnan(as_floats(series.to_numpy())).any() for series in pair)
        return _Column(name, dtype, True, missing, ())
    try:
        values = {value for series in pair for value in _values(series)} - {None}
    except TypeError:
        raise no_value(f"column {name!r}", str(pair[0].dtype)) from None
    ordered = tuple(sorted(values, key=lambda value: (type(value).__name__, str(value))))
    return _Column(name, dtype, False, False, ordered)


def _values(series: nw.Series[Any]) -> Sequence[Any]:
    return [plain_missing(value) for value in series.to_list()]


def _encoded(column: _Column, series: nw.Series[Any]) -> list[Vector]:
    if not column.is_number:
        place: dict[Any, int] = {value: i for i, value in enumerate(column.values)}
        return [np.array([place.get(v, -1) for v in _values(series)], dtype=np.float64)]
    values = as_floats(series.to_numpy())
    gone = np.isnan(values)
    # Missing numbers are zero here; a pipeline sees them as missing.
    filled = np.where(gone, 0.0, values)
    return [filled, gone.astype(np.float64)] if column.missing else [filled]


def _decoded(column: _Column, features: NDArray[np.float64]) -> list[Any] | NDArray[np.float64]:
    if not column.is_number:
        known = (*column.values, None)
        return [known[place] for place in features[0].astype(np.int64).tolist()]
    if not column.missing:
        return np.asarray(features[0])
    if column.dtype is not None and "float" in str(column.dtype).lower():
        return np.asarray(np.where(features[1] > 0, np.nan, features[0]))
    values, gone = features.tolist()
    return [None if no else value for value, no in zip(values, gone, strict=True)]
