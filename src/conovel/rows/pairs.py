"""The samples of a detection, with columns of any kind, as matrices of features.

Samples of plain numbers stay as they are. Otherwise each column is brought to one form in both
samples, and a schema says how it becomes numbers: the one that was given, or one that follows
from both samples as one multiset. So no feature depends on which rows calibrate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conovel.errors import ColumnError
from conovel.rows.columns import Numbers, RawColumn, Texts
from conovel.rows.encoding import Encoder, contents_of
from conovel.rows.frames import read_frames
from conovel.rows.profiles import profiles_of
from conovel.rows.samples import (
    Table,
    as_frame,
    as_table,
    chosen_columns,
    collected,
    read_rows,
    read_sample,
)
from conovel.rows.schemas import (
    SchemaLike,
    as_schema,
    changes_numbers,
    columns_of,
    needs_schema,
    schema_from,
)
from conovel.rows.spelling import TEXT, require_one_meaning
from conovel.rows.tables import (
    Rows,
    common_kind,
    loses_digits,
    require_finite,
    require_kept_kind,
    round_to,
    rounded_as,
    unify,
    warn_constant,
    warn_rounded,
    warn_shared_rows,
)
from conovel.spec.made_from import MadeFrom, require_made_for
from conovel.spec.schema import Schema

KIND = "kind"  # the column of known novelties that says of which kind they are


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Known novelties in the features of a detection."""

    values: NDArray[np.float64]  # of shape (k, d)
    kinds: tuple[str, ...] | None = None  # of which kind each is, where they say so

    def __len__(self) -> int:
        return len(self.values)

    def like(self, before: Rows, now: Rows) -> KnownRows:
        """Round them as known normals that were rounded to the types of other agents."""
        return replace(self, values=rounded_as(replace(before, values=self.values), now))


def join_known(parts: Sequence[KnownRows | None]) -> KnownRows | None:
    """Put the known novelties of several sites together."""
    held = [part for part in parts if part is not None]
    if not held:
        return None
    kinds = None
    if any(part.kinds for part in held):
        kinds = tuple(kind for part in held for kind in part.kinds or ("",) * len(part))
    return KnownRows(np.concatenate([part.values for part in held]), kinds)


def read_pair(
    X_null: Any,
    X_test: Any,
    schema: SchemaLike = None,
    *,
    shares_schema: bool = False,
    fixed: bool = False,
    keep_frames: bool = False,
) -> tuple[Rows, Rows]:
    """Check the two samples of a detection, and give both in the same features."""
    options = {"shares_schema": shares_schema, "fixed": fixed, "keep_frames": keep_frames}
    normals, tests, _ = read_with_known(X_null, X_test, None, schema, **options)
    return normals, tests


def read_with_known(
    X_null: Any,
    X_test: Any,
    X_known: Any,
    schema: SchemaLike = None,
    *,
    shares_schema: bool = False,
    fixed: bool = False,
    keep_frames: bool = False,
) -> tuple[Rows, Rows, KnownRows | None]:
    """Check the samples of a detection, and give all in the same features.

    Features follow from known normals and test rows alone; known novelties, if there are any, are
    brought to them. Only where a pipeline reads frames, their values are among its values.
    """
    given = None if schema is None else as_schema(schema)
    samples = (X_null, X_test, X_known)
    X_null, X_test, X_known = (collected(s) if hasattr(s, "collect") else s for s in samples)
    X_known, kinds = without_kinds(X_known, X_null)
    frames = _all_frames(X_null, X_test, X_known, given) if keep_frames else {}
    known_rows: NDArray[np.float64] | None = None
    if frames:
        normals, tests, *last = read_frames(frames)
        known_rows = last[0].values if last else None
    else:
        normals, tests = _read_features(X_null, X_test, given, shares_schema=shares_schema)
        if X_known is not None:
            known_rows = known_features(X_known, normals, given)
    if isinstance(given, Schema):
        require_made_for(given.made_from, normals.contents, tests.contents, fixed=fixed)
    warn_constant(normals, tests)
    warn_shared_rows(normals, tests)
    return normals, tests, None if known_rows is None else KnownRows(known_rows, kinds)


def without_kinds(X_known: Any, X_null: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Take the column of kinds off known novelties, if they have one that the normals lack."""
    if X_known is not None and len(np.shape(X_known)) == 2 and not len(X_known):
        return None, None  # nothing is known
    frame = None if X_known is None else as_frame(X_known, "X_known")
    if frame is None or KIND not in frame.columns:
        return X_known, None
    held = isinstance(X_null, Rows | Table)
    normals = X_null.columns if held else getattr(as_frame(X_null, "X_null"), "columns", None)
    if normals is None or KIND in normals:
        return X_known, None
    kinds = tuple("" if kind is None else str(kind) for kind in frame[KIND].to_list())
    return frame.drop(KIND), kinds


def known_features(
    X_known: Any, like: Rows, given: Schema | Mapping[str, Any] | None
) -> NDArray[np.float64]:
    """Give known novelties in the features of the other rows."""
    encoder = like.encoder
    if isinstance(encoder, Encoder):
        # Few rows may all lack a value that other rows lack, too.
        table = as_table(read_sample(X_known, "X_known", None, encoder.schema))
        plain = like.kinds or ("float64",) * like.width
        kinds = encoder.kinds_of_columns(plain)
        of_numbers = {c.name: kinds[c.name] for c in encoder.schema.used if c.kind == "number"}
        columns = aligned([table], of_numbers)
        [rows] = _all_encoded([table], columns, encoder.schema, ["X_known"])
        return rows.values
    sample = read_sample(X_known, "X_known", like.columns, given)
    if not isinstance(sample, Rows):
        read_rows(X_known, "X_known", like.columns)  # names the columns that are no plain numbers
        raise ColumnError(
            "X_known has columns that are no plain numbers, as the known normals are"
        )
    if sample.width != like.width:
        raise ColumnError(
            f"X_null has {like.width} columns and X_known {sample.width}: both must hold the same"
            " features in the same order"
        )
    return rounded_as(sample, like)


def _read_features(
    X_null: Any, X_test: Any, given: Schema | Mapping[str, Any] | None, *, shares_schema: bool
) -> tuple[Rows, Rows]:
    null = read_sample(X_null, "X_null", None, given)
    test = read_sample(X_test, "X_test", null.columns, given)
    if null.width != test.width:
        raise ColumnError(
            f"X_null has {null.width} columns and X_test {test.width}:"
            " both must hold the same features in the same order"
        )
    is_plain = given is None or not changes_numbers(given)
    if is_plain and isinstance(null, Rows) and isinstance(test, Rows):
        normals, tests = unify(null, test)
        return normals, tests
    if shares_schema and given is None:
        _refuse_without_schema(X_null, X_test)
    return _encode(as_table(null), as_table(test), given)


def encode_samples(samples: Sequence[Any], schema: Schema, names: Sequence[str]) -> list[Rows]:
    """Check samples that are compared and give their features, by a schema that is fixed.

    Their types are those that :meth:`Encoder.kinds_to_keep` names.
    """
    tables = [
        as_table(read_sample(sample, name, None, schema))
        for sample, name in zip(samples, names, strict=True)
    ]
    columns = aligned(tables)
    kinds = Encoder(schema).kinds_to_keep(columns)
    encoded = _all_encoded(tables, columns, schema, names)
    return [replace(rows, kinds=kinds) for rows in encoded]


def encode_rows(sample: Any, schema: Schema, name: str, kinds: Sequence[str]) -> Rows:
    """Check one sample and give its features as those of rows that were encoded before."""
    columns = [column.name for column in schema.used]  # all were there before
    table = as_table(read_sample(sample, name, columns, schema))
    before = Encoder(schema).kinds_of_columns(kinds)
    for label, raw in table.values.items():
        if schema[label].kind == "number" and isinstance(raw, Numbers):
            require_kept_kind(before[label], raw.kind, f"column {label!r}", name)
    [rows] = _all_encoded([table], aligned([table], before), schema, [name])
    return replace(rows, kinds=tuple(kinds))


def _all_frames(
    X_null: Any, X_test: Any, X_known: Any, given: Schema | Mapping[str, Any] | None
) -> dict[str, nw.DataFrame[Any]]:
    """Give all samples by name as frames with the same columns, if they are frames."""
    frames: dict[str, nw.DataFrame[Any]] = {}
    columns, ignored = columns_of(given)
    samples = {"X_null": X_null, "X_test": X_test, "X_known": X_known}
    for name, sample in samples.items():
        if sample is None:
            continue
        held = isinstance(sample, Rows | Table)
        if (frame := sample.frame if held else as_frame(sample, name)) is None:
            return {}
        kept = [j for j, label in enumerate(frame.columns) if str(label) not in ignored]
        frame, labels = chosen_columns(frame[:, kept], name, columns)
        columns = list(labels)
        frames[name] = frame
    return frames


def infer_schema(X_null: Any, X_test: Any = None, *, kinds: SchemaLike = None) -> Schema:
    """Make a first schema from both samples of a site, or from a table that is neither.

    In a network all agents must have the same schema. Make one at any agent, look at it, take out
    what others must not see, and give it to all: :class:`conovel.Network` takes it, and
    ``schema.to_toml()`` is a file that ``conovel`` reads.

    The schema keeps the number of rows and a digest of each sample it was made from. A run refuses
    a schema that was made from its known normals alone, or from its test rows alone: such a schema
    knows all levels of the one and not those of the other, and the guarantee would be lost. The
    regimes `consensus` and `pooled` also refuse one from both samples of an agent.

    Parameters
    ----------
    X_null : array or frame
        Known normals, with `X_test`; or one table whose rows are in neither sample of the run.
    X_test : array or frame, optional
        Rows to test, with the same columns.
    kinds : mapping of a column's name to its kind, optional
        Which kinds some columns have: "number", "boolean", "category", "date" or "ignore".

    Returns
    -------
    Schema

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": ["L", "M"] * 20, "age": [40.0, None] * 20})
    >>> infer_schema(frame)["size"].levels, infer_schema(frame)["age"].fill
    (('L', 'M'), 40.0)
    """
    return infer_from([X_null] if X_test is None else [X_null, X_test], kinds)


def infer_from(rows: Sequence[Any], kinds: SchemaLike) -> Schema:
    """Make a schema from one sample or several, as one multiset of rows."""
    given = as_schema(kinds)
    of_samples = ("X_null", "X_test", "X_known")[: len(rows)]
    samples = [read_sample(rows[0], "X_null", None, given)]
    for others, name in zip(rows[1:], of_samples[1:], strict=True):
        samples.append(read_sample(others, name, samples[0].columns, given))
    columns = aligned(list(map(as_table, samples)))
    if isinstance(given, Schema):
        return given
    inferred = _inferred(columns, given, of_samples)
    names = tuple(column.name for column in inferred.used)
    seen = (contents_of([sample[name] for name in names]) for sample in columns)
    return replace(inferred, made_from=MadeFrom(names, tuple(seen)))


def _refuse_without_schema(X_null: Any, X_test: Any) -> None:
    """Say which columns are no plain numbers, and that agents need a schema for them."""
    for sample, name in ((X_null, "X_null"), (X_test, "X_test")):
        try:
            read_rows(sample, name)
        except ColumnError as error:
            raise needs_schema(error) from None


def aligned(
    samples: Sequence[Table], before: Mapping[str, str] | None = None
) -> list[dict[str, RawColumn]]:
    """Give each column one form in all samples: texts where any has texts, or one type of number.

    Then equal values have equal forms in whichever sample they stand. What every sample holds is
    looked at, so that no form depends on which of them calibrates. `before` are the kinds of rows
    that were encoded earlier.
    """
    columns = [dict(zip(samples[0].values, s.values.values(), strict=True)) for s in samples]
    orders: dict[str, tuple[str, ...]] = {}
    for name in samples[0].values:
        held, label = [sample[name] for sample in columns], f"column {name!r}"
        earlier = {before[name]} - {TEXT} if before and name in before else set()
        kinds = frozenset(earlier).union(*(raw.kinds for raw in held))
        require_one_meaning(kinds, label)
        orders[label] = tuple(kinds)
        if any(isinstance(raw, Texts) for raw in held):
            for sample, raw in zip(columns, held, strict=True):
                sample[name] = raw.texts(kinds, label)
            continue
        common = common_kind({*earlier, *(r.kind for r in held if isinstance(r, Numbers))})
        for sample, raw in zip(columns, held, strict=True):
            sample[name] = _rounded(raw, common, name)
    if before is None:
        warn_rounded(orders, stacklevel=6)
    return columns


def stacked(first: Rows | Table, second: Rows | Table) -> Rows | Table:
    """Put the rows of a second sample below those of a first, in its columns."""
    if isinstance(first, Rows) and isinstance(second, Rows) and first.columns == second.columns:
        above, below = unify(first, second)
        return replace(above, values=np.concatenate([above.values, below.values]), frame=None)
    tables = [as_table(first), as_table(second)]
    if first.columns is not None:
        tables[1] = replace(tables[1], values={n: tables[1].values[n] for n in first.columns})
    above_columns, below_columns = aligned(tables)
    columns: dict[str, RawColumn] = {}
    for name, above_raw in above_columns.items():
        below_raw = below_columns[name]
        if isinstance(above_raw, Numbers) and isinstance(below_raw, Numbers):
            values = np.concatenate([above_raw.values, below_raw.values])
            columns[name] = replace(above_raw, values=values)
        elif isinstance(above_raw, Texts) and isinstance(below_raw, Texts):
            shift = len(above_raw.levels)
            below_codes = np.where(below_raw.codes < 0, -1, below_raw.codes + shift)
            codes = np.concatenate([above_raw.codes, below_codes])
            kinds = above_raw.kinds | below_raw.kinds
            columns[name] = Texts.of(codes, [*above_raw.levels, *below_raw.levels], kinds)
    return Table(columns, tables[0].frame, tables[0].contents)


def _rounded(raw: RawColumn, common: str, name: str) -> RawColumn:
    if isinstance(raw, Numbers) and loses_digits(raw.kind, common):
        rounded = round_to(raw.values, common, f"column {name!r}")
        return Numbers(rounded.astype(np.float64) + 0.0, common)
    return replace(raw, kind=common) if isinstance(raw, Numbers) else raw


def _inferred(
    samples: Sequence[Mapping[str, RawColumn]],
    kinds: Mapping[str, Any] | None,
    names: Sequence[str] = ("X_null", "X_test"),
) -> Schema:
    return schema_from(profiles_of(samples, names), kinds, " and ".join(names[:2]))


def _encode(
    null: Table, test: Table, given: Schema | Mapping[str, Any] | None
) -> tuple[Rows, Rows]:
    columns = aligned([null, test])
    schema = given if isinstance(given, Schema) else _inferred(columns, given)
    normals, tests = _all_encoded([null, test], columns, schema, ("X_null", "X_test"))
    return normals, tests


def _all_encoded(
    tables: Sequence[Table],
    columns: Sequence[Mapping[str, RawColumn]],
    schema: Schema,
    names: Sequence[str],
) -> list[Rows]:
    encoder = Encoder(schema)
    encoded = []
    for table, held, name in zip(tables, columns, names, strict=True):
        values = np.stack(encoder.encode(held, name), axis=1)
        require_finite(values, encoder.features, name)
        kinds = encoder.kinds(held)
        encoded.append(Rows(values, encoder.features, table.frame, kinds, encoder, table.contents))
    return encoded
