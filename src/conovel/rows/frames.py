"""Results as frames, of the kind in which the test rows came."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conovel.rows.columns import as_it_is, no_value, one_form, plain_missing, series_kind
from conovel.rows.encoding import FeatureMap, pandas_frame, spell_number
from conovel.rows.tables import Rows, as_floats, require_finite, unify
from conovel.scorers.argument import on_frames, reads_frames
from conovel.scorers.base import Matrix, Scorer, Vector

if TYPE_CHECKING:
    from conovel.site.work import SiteWork


_PLACE = 200  # bytes that a value takes besides itself: in a set, a tuple and a dictionary


@dataclass(frozen=True, eq=False)
class FrameColumn:
    """One column of the frame."""

    name: Any  # as in the frame: pandas takes names that are no texts
    dtype: Any  # its type in the library of the frame, if both samples agree on it
    is_number: bool  # whether it holds numbers; other values have places
    missing: bool  # whether numbers are missing, which a feature of its own tells
    # The different values, where they have places; a missing one has the place -1
    values: tuple[Any, ...]
    plain: Callable[[Any], Any] = as_it_is  # gives a value the one form that it has among `values`

    @property
    def n_features(self) -> int:
        """How many features it becomes."""
        return 2 if self.missing else 1

    @cached_property
    def _places(self) -> dict[Any, int]:
        return {value: i for i, value in enumerate(self.values)}

    def place(self, value: Any) -> int:
        """Give the place of a value; that of a missing one is -1."""
        return -1 if value is None else self._places[self.plain(value)]


@dataclass(eq=False)
class ColumnValues:
    """The different values of one column, put together from both samples in any order."""

    name: Any
    is_number: bool  # whether it holds numbers in both samples
    # Those of columns that are not numbers; of equal values, each type is kept
    values: set[Any] = field(default_factory=set)
    n_bytes: int = 0  # about how much memory they take
    _missing: bool = False
    _dtypes: list[Any] = field(default_factory=list)

    def see(self, series: nw.Series[Any]) -> None:
        """Take in some rows."""
        dtype = getattr(series.to_native(), "dtype", None)
        if dtype not in self._dtypes:
            self._dtypes.append(dtype)
        if self.is_number:
            self._missing |= bool(np.isnan(as_floats(series.to_numpy())).any())
            return
        try:
            seen = {(type(value), value) for value in _values(series) if value is not None}
        except TypeError:
            raise no_value(f"column {self.name!r}", str(series.dtype)) from None
        new = seen - self.values
        self.values |= new
        self.n_bytes += sum(sys.getsizeof(value) + _PLACE for _, value in new)

    def column(self) -> FrameColumn:
        """Give the column; its values are in an order that does not depend on the rows'."""
        label = f"column {self.name!r}"
        dtype = self._dtypes[0] if len(self._dtypes) == 1 else None
        plain = one_form({kind for kind, _ in self.values}, [v for _, v in self.values], label)
        held = {plain(value) for _, value in self.values}
        ordered = sorted(held, key=lambda value: (type(value).__name__, str(value)))
        return FrameColumn(self.name, dtype, self.is_number, self._missing, tuple(ordered), plain)


class FrameCodec(FeatureMap):
    """Turns frames into matrices, and the rows of a matrix into a frame.

    Parameters
    ----------
    library : narwhals Implementation
        Of the frames; what is neither pandas nor polars becomes pandas.
    columns : sequence of FrameColumn
    """

    def __init__(self, library: nw.Implementation, columns: Sequence[FrameColumn]) -> None:
        self._library, self._columns = library, list(columns)
        labels = [str(column.name) for column in self._columns]
        features, source = [], []
        for label, column in zip(labels, self._columns, strict=True):
            features += [label, f"{label} is missing"][: column.n_features]
            source += [label] * column.n_features
        super().__init__(tuple(features), tuple(source))

    @classmethod
    def of(cls, *samples: nw.DataFrame[Any]) -> FrameCodec:
        """Make it from all samples of a detection, with the same columns in the same order."""
        status = []
        for j, name in enumerate(samples[0].columns):
            held = [sample[:, j] for sample in samples]
            values = ColumnValues(name, None not in map(series_kind, held))
            for series in held:
                values.see(series)
            status.append(values.column())
        return cls(samples[0].implementation, status)

    def identity(self) -> Any:
        """Give what is described of each column."""
        return self.described()

    def described(self) -> list[tuple[str, bool, tuple[str, ...] | None]]:
        """Say of each column its name, whether it lacks numbers, and its values if it has none."""
        return [
            (str(c.name), c.missing, None if c.is_number else tuple(map(str, c.values)))
            for c in self._columns
        ]

    def spell_value(self, column: str, features: Sequence[float]) -> str:
        """Spell the value that a column has where these are its features."""
        own = next(one for one in self._columns if str(one.name) == column)
        if own.is_number:
            is_missing = own.missing and features[1] > 0
            return "(missing)" if is_missing else spell_number(features[0])
        return "(missing)" if features[0] < 0 else str(own.values[int(features[0])])

    def encode_frame(self, frame: nw.DataFrame[Any], name: str) -> list[Vector]:
        """Give the features of the rows of a frame, each as a vector."""
        columns = enumerate(self._columns)
        return [vector + 0.0 for j, c in columns for vector in _encoded(c, frame[:, j])]

    def encode(self, frame: nw.DataFrame[Any], name: str) -> Rows:
        """Give the rows of one of the samples."""
        kinds: list[str] = []
        for j, column in enumerate(self._columns):
            own = series_kind(frame[:, j]) if column.is_number else None
            kinds += [own or "float64", "float64"][: column.n_features]
        values = np.stack(self.encode_frame(frame, name), axis=1)
        require_finite(values, self.features, name)
        return Rows(values, self.features, frame, tuple(kinds), self)

    def decode(self, X: Matrix) -> Any:
        """Make a frame of rows, with the names and types of the columns."""
        columns, j = {}, 0
        for column in self._columns:
            columns[column.name] = _decoded(column, X[:, j : j + column.n_features].T)
            j += column.n_features
        if self._library.is_polars():
            import polars as pl  # noqa: PLC0415

            return pl.DataFrame([_polars_series(c, columns[c.name]) for c in self._columns])
        frame = pandas_frame(columns)
        if not self._library.is_pandas():
            return frame
        return frame.astype({c.name: c.dtype for c in self._columns if c.dtype is not None})


def with_frames(
    work: SiteWork, columns: Sequence[str] | None, encoder: FeatureMap | None
) -> SiteWork:
    """Let the scorers of a site that read frames have a frame, if the rows came in one."""
    return replace(work, candidates=on_frames_of(work.candidates, columns, encoder))


def on_frames_of(
    candidates: tuple[Scorer, ...], columns: Sequence[str] | None, encoder: FeatureMap | None
) -> tuple[Scorer, ...]:
    """Do the same for scorers alone."""
    if columns is None or not reads_frames(candidates):
        return candidates
    decode = partial(_named, tuple(columns)) if encoder is None else encoder.decode
    return on_frames(candidates, decode)


def _named(columns: tuple[str, ...], X: Matrix) -> Any:
    return pandas_frame(dict(zip(columns, X.T, strict=True)))


def read_frames(samples: Mapping[str, nw.DataFrame[Any]]) -> tuple[Rows, ...]:
    """Give all samples, by their names, as matrices that keep all of their frames."""
    codec = FrameCodec.of(*samples.values())
    return unify(*(codec.encode(frame, name) for name, frame in samples.items()))


def _values(series: nw.Series[Any]) -> Sequence[Any]:
    return [plain_missing(value) for value in series.to_list()]


def _polars_series(column: FrameColumn, values: Any) -> Any:
    import polars as pl  # noqa: PLC0415

    name = str(column.name)
    if not column.is_number:
        return pl.Series(name, values, column.dtype)
    # polars makes no whole numbers and booleans of a list of floats with gaps.
    floats = pl.Series(name, values, pl.Float64)
    return floats if column.dtype is None else floats.cast(column.dtype)


def _encoded(column: FrameColumn, series: nw.Series[Any]) -> list[Vector]:
    if not column.is_number:
        return [np.array([column.place(v) for v in _values(series)], dtype=np.float64)]
    values = as_floats(series.to_numpy())
    gone = np.isnan(values)
    # Missing numbers are zero here; a pipeline sees them as missing.
    filled = np.where(gone, 0.0, values)
    return [filled, gone.astype(np.float64)] if column.missing else [filled]


def _decoded(
    column: FrameColumn, features: NDArray[np.float64]
) -> list[Any] | NDArray[np.float64]:
    if not column.is_number:
        values_of_column = (*column.values, None)
        return [values_of_column[place] for place in features[0].astype(np.int64).tolist()]
    if not column.missing:
        return np.asarray(features[0])
    if column.dtype is not None and "float" in str(column.dtype).lower():
        return np.asarray(np.where(features[1] > 0, np.nan, features[0]))
    values, gone = features.tolist()
    return [None if no else value for value, no in zip(values, gone, strict=True)]


def give_back(test: Rows, data: dict[str, NDArray[Any]]) -> Any:
    """Build a frame of per-row results in the kind of frame the test rows came in.

    A pandas index is kept. Rows that came as an array give a pandas frame.
    """
    result = frame_like(test, data)
    if test.frame is not None and (index := nw.maybe_get_index(test.frame)) is not None:
        result.index = index
    return result


def frame_like(test: Rows, data: dict[str, NDArray[Any]]) -> Any:
    """Build a frame in the kind of frame the test rows came in, with an index of its own."""
    if test.frame is not None:
        return nw.from_dict(data, backend=test.frame.implementation).to_native()
    return pandas_frame(data)
