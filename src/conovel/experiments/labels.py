"""Labels of past data: which rows are normal, and columns that are no features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conovel.errors import ColumnError, InputError, SampleError
from conovel.rows.samples import as_frame, collected
from conovel.rows.tables import chance_of_none
from conovel.site.checks.columns import LIKELY, is_called_label, looks_like_id
from conovel.stats.ranks import as_array
from conovel.stats.words import counted, not_there

_NORMAL = ("0", "0.0", "false", "normal", "benign", "no", "ok", "none", "inlier")
_FEW_VALUES = 50  # a label has at most so many values


def split_column(X: Any, which: Any, what: str) -> tuple[Any, NDArray[Any]]:
    """Take a column out of a frame, by name; values that are given are only checked."""
    X = collected(X)
    if not isinstance(which, str):
        return X, as_array(which, what)
    frame = as_frame(X, "X")
    if frame is None or which not in frame.columns:
        has = "" if frame is None else f": {not_there(which, frame.columns)}"
        raise ColumnError(f"{what}: there is no column {which!r}{has}")
    return frame.drop(which).to_native(), frame[which].to_numpy()


def read_label(values: NDArray[Any], normal: Any) -> tuple[NDArray[np.bool_], str]:
    """Tell which rows are novel, and the label of the others."""
    if values.ndim != 1 or not values.size:
        raise SampleError("label needs one value for each row")
    texts = np.array([str(value).strip() for value in values.tolist()])
    missing = np.isin(np.char.lower(texts), ["", "nan", "none", "null", "<na>", "nat"])
    distinct, counts = np.unique(texts[~missing], return_counts=True)
    if missing.any() and "none" not in map(str.lower, distinct.tolist()):
        raise InputError(
            f"label is missing in {counted(int(missing.sum()), 'row')}: fill it in, or drop"
            " these rows"
        )
    if len(distinct) < 2:
        raise InputError("label has a single value: there must be normal rows and novelties")
    if normal is None:
        hits = [name for name in distinct.tolist() if name.lower() in _NORMAL]
        if len(hits) != 1:
            listed = ", ".join(map(repr, distinct[np.argsort(-counts)][:8].tolist()))
            raise InputError(
                f"label has the values {listed}: say with normal= or --normal which is normal"
            )
        normal = hits[0]
    name = str(normal).strip()
    if name not in distinct:
        raise InputError(f"no row has the label {name!r}: say which value normal rows have")
    return texts != name, name


def require_features(rows: Any, is_novel: NDArray[np.bool_], keep: Sequence[str] = ()) -> None:
    """Refuse columns that are ids or further labels, in one message with the option to drop them.

    Examples
    --------
    >>> require_features(np.array([[i, i % 5] for i in range(100)]), np.arange(100) % 5 == 1)
    Traceback (most recent call last):
    ...
    conovel.errors.ColumnError: '0' looks like an id: leave out with --exclude '0', or ...
    """
    ids, labels = [], []
    for name, values in _columns(rows):
        if name in keep:
            continue
        if _is_id(values, name):
            ids.append(name)
        elif _is_label(values, is_novel, name):
            labels.append(name)
    if not ids and not labels:
        return
    reasons = [
        f"{', '.join(map(repr, names))} {'look' if len(names) > 1 else 'looks'} like {what}"
        for names, what in (
            (ids, "ids" if len(ids) > 1 else "an id"),
            (labels, "further labels" if len(labels) > 1 else "a further label"),
        )
        if names
    ]
    columns = ",".join(f'"{name}"' if "," in name else name for name in (*ids, *labels))
    raise ColumnError(
        f"{' and '.join(reasons)}: leave out with --exclude '{columns}', or use as features with"
        f" --keep '{columns}'"
    )


def _columns(rows: Any) -> Iterator[tuple[str, nw.Series[Any]]]:
    frame = as_frame(rows, "X")
    if frame is None:
        array = np.asarray(rows)
        if array.ndim != 2:
            return  # the detection says what is wrong
        frame = nw.from_dict(
            {str(j): array[:, j] for j in range(array.shape[1])}, backend="pyarrow"
        )
    for j, name in enumerate(frame.columns):
        yield str(name), frame[:, j]


def _is_id(values: nw.Series[Any], name: str) -> bool:
    if values.dtype.is_integer() or values.dtype.is_float():
        numbers = values.cast(nw.Float64).to_numpy()
        return bool(np.isfinite(numbers).all()) and looks_like_id(numbers, name)
    is_text = values.dtype in (nw.String, nw.Object, nw.Categorical)
    return is_text and len(values) >= 20 and values.n_unique() == len(values)


def _is_label(values: nw.Series[Any], is_novel: NDArray[np.bool_], name: str) -> bool:
    """Tell whether a column has one value in all normal rows and others in novelties.

    Columns that are called a label are some, too, where they have two values or texts.
    """
    # Numbers must have two values, or tell all novelties: counts of rare events are 0 in normals.
    if values.n_unique() > _FEW_VALUES:
        return False
    texts = np.array([str(value) for value in values.to_list()])
    is_text = values.dtype in (nw.String, nw.Object, nw.Categorical)
    n_values = np.unique(texts).size
    if is_called_label(name) and n_values > 1 and (is_text or _is_flag(values, n_values)):
        return True
    of_normals = np.unique(texts[~is_novel])
    if of_normals.size != 1:
        return False
    differs = texts != of_normals[0]
    n_novel, n_differ = int(is_novel.sum()), int(differs.sum())
    if chance_of_none(len(texts) - n_novel, n_novel, n_differ) > LIKELY:
        return False
    tells_all = bool((differs == is_novel).all())
    return n_values > 1 and (tells_all or is_text or _is_flag(values, n_values))


def _is_flag(values: nw.Series[Any], n_values: int) -> bool:
    if values.dtype == nw.Boolean:
        return True
    if not values.dtype.is_numeric() or n_values != 2:
        return False
    return {0.0, 1.0} == set(map(float, values.unique().to_list()))
