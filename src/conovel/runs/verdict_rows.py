"""Rows with a verdict, as they were read, and the samples of batches in a file of verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError
from conovel.rows.columns import Numbers, RawColumn, Texts
from conovel.rows.samples import Table, as_clean, as_table, part_of
from conovel.rows.tables import Rows
from conovel.runs.spent_rows import NO_ROWS, Copies
from conovel.runs.verdict_file import Content, Verdict

Held: TypeAlias = Mapping[tuple[int, str], Verdict]  # by the number of a batch and the id of a row


def recorded(content: Content) -> set[int]:
    """Return the numbers of the batches whose verdicts can train."""
    return {number for number, one in enumerate(content.batches, 1) if one.is_recorded}


def judged_batches(content: Content) -> set[int]:
    """Return the numbers of the batches that were judged: a verdict, or nothing to judge."""
    judged = {number for number, _ in content.verdicts}
    return judged | {number for number, one in enumerate(content.batches, 1) if not one.ids}


def spent_by(content: Content, numbers: Iterable[int]) -> Copies:
    """Return the known normals that are spent if the verdicts of some batches have trained."""
    spent = NO_ROWS
    samples = (content.batches[number - 1].normals for number in sorted(numbers))
    for name in dict.fromkeys(samples):
        if name is not None:
            spent = spent.joined(Copies.of(content.samples[name]))
    return spent


def rows_tested_in(content: Content, numbers: Iterable[int]) -> Copies:
    """Return the rows that some batches have tested; batches are different rows."""
    names = [content.batches[number - 1].tested for number in sorted(numbers)]
    samples = [content.samples[name] for name in dict.fromkeys(names) if name is not None]
    return Copies.of(np.concatenate(samples)) if samples else NO_ROWS


def require_columns(content: Content, sample: Rows | Table) -> None:
    """Refuse other columns than those of earlier batches: rows could not be compared."""
    earlier = [one for one in content.batches if one.is_recorded]
    if not earlier or earlier[0].kinds is None:
        return
    columns = earlier[0].columns
    own = None if sample.columns is None else sorted(sample.columns)
    if own != (None if columns is None else sorted(columns)) or sample.width != len(
        earlier[0].kinds
    ):
        raise InputError(
            "the file of verdicts was begun with other columns, so spent rows could not be"
            " recognised: give the same columns, or begin a new file with fresh known normals"
        )


def judged_places(
    content: Content, word: str, numbers: Iterable[int], held: Held | None = None
) -> list[tuple[int, int]]:
    """Return the batch and the place there of each row with a verdict."""
    held = content.verdicts if held is None else held
    return [
        (number, place)
        for number in sorted(numbers)
        for place, name in enumerate(content.batches[number - 1].ids)
        if (number, name) in held and held[number, name].verdict == word
    ]


def judged_rows(
    content: Content, word: str, numbers: Iterable[int], held: Held | None = None
) -> Rows | Table | None:
    """Return the rows of some batches with a verdict, as they were read; None if there is none."""
    places = judged_places(content, word, numbers, held)
    if not places:
        return None
    first = content.batches[places[0][0] - 1]
    order = first.columns
    rows, kinds = [], [set(one) for one in first.kinds or ()]
    for number, place in places:
        batch = content.batches[number - 1]
        at = range(len(kinds)) if order is None else map((batch.columns or []).index, order)
        moved = list(at)
        rows.append([(batch.values or [])[place][j] for j in moved])
        for own, j in zip(kinds, moved, strict=True):
            own |= set((batch.kinds or [])[j])
    return sample_of(rows, order, kinds)


def usable_rows(rows: Rows | Table | None, *samples: Rows | Table) -> Rows | Table | None:
    """Leave out rows that lack a value where no row of a detection does.

    A feature says that a value is missing only if some are, and features follow from the rows of
    the detection alone.
    """
    if not isinstance(rows, Table):
        return rows
    usable = np.ones(len(rows), dtype=np.bool_)
    tables = [as_table(sample).values for sample in samples]
    for name, raw in rows.values.items():
        if not any(_missing(table[name]).any() for table in tables):
            usable &= ~_missing(raw)
    return part_of(rows, np.flatnonzero(usable)) if usable.any() else None


def _missing(raw: RawColumn) -> NDArray[np.bool_]:
    return np.isnan(raw.values) if isinstance(raw, Numbers) else raw.codes < 0


def sample_of(
    rows: Sequence[Sequence[Any]], columns: Sequence[str] | None, kinds: Sequence[set[str]]
) -> Rows | Table:
    """Make a sample of rows that were stored."""
    held: dict[str, RawColumn] = {}
    names = list(columns) if columns is not None else [str(j) for j in range(len(kinds))]
    for name, values, own in zip(names, zip(*rows, strict=True), kinds, strict=True):
        if any(isinstance(value, str) for value in values):
            texts = ["" if value is None else str(value) for value in values]
            levels = sorted(set(texts))
            codes = np.array([levels.index(text) for text in texts], dtype=np.int64)
            held[name] = Texts.of(codes, levels, own)
        else:
            numbers = np.array([np.nan if v is None else float(v) for v in values])
            held[name] = Numbers(numbers, next(iter(sorted(own)), "float64"))
    table = Table(held, as_named(held) if columns is not None else None)
    plain = [raw for raw in held.values() if isinstance(raw, Numbers)]
    if len(plain) < len(held) or any(np.isnan(raw.values).any() for raw in plain):
        return table
    matrix = as_clean(np.stack([raw.values for raw in plain], axis=1))
    frame_columns = None if columns is None else tuple(names)
    return Rows(matrix, frame_columns, table.frame, tuple(raw.kind for raw in plain))


def as_named(held: Mapping[str, RawColumn]) -> Any:
    """Give columns as a frame."""
    import narwhals as nw  # noqa: PLC0415

    return nw.from_dict({name: _listed(raw) for name, raw in held.items()}, backend="pandas")


def _listed(raw: RawColumn) -> list[Any]:
    if isinstance(raw, Numbers):
        return [None if np.isnan(value) else value for value in raw.values.tolist()]
    return [None if code < 0 else raw.levels[code] for code in raw.codes.tolist()]


def stored_rows(sample: Rows | Table, places: NDArray[np.intp]) -> dict[str, Any]:
    """Return the fields of a batch that hold some of its rows."""
    table = as_table(part_of(sample, places))
    columns = [_listed(raw) for raw in table.values.values()]
    rows = [list(row) for row in zip(*columns, strict=True)]
    kinds = [
        [raw.kind] if isinstance(raw, Numbers) else sorted(raw.kinds)
        for raw in table.values.values()
    ]
    names = None if sample.columns is None else list(sample.columns)
    return {"columns": names, "kinds": kinds, "values": rows}


def given_back(sample: Rows | Table | None) -> Any:
    """Give rows as a frame, or as an array where columns have no names."""
    if sample is None:
        return np.zeros((0, 0))
    if sample.frame is not None:
        return sample.frame.to_native()
    table = as_table(sample)
    return np.array([_listed(raw) for raw in table.values.values()], dtype=float).T
