"""From scored parts to decisions: counts first, then the rows once more, in their order."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from conovel.errors import FileError
from conovel.rows.datafiles import first_line
from conovel.rows.private_files import keep_mode, make_private_file
from conovel.rows.spreadsheets import neutral_table
from conovel.site.explain.reasons import Reasons
from conovel.stats.stepup import RankHistogram, within_limit

_GROUP = 1 << 20  # rows of a Parquet row group: pyarrow's own default, whatever the pieces


class Writer(Protocol):
    """What pyarrow's writers of both formats have in common."""

    def write_table(self, table: pa.Table) -> None:
        """Append some rows."""


def count_ranks(parts: Iterator[pa.Table], n_calibration: int) -> RankHistogram:
    """Count how often each rank occurs, in memory that grows with ℓ only."""
    counts = np.zeros(n_calibration + 2, dtype=np.int64)
    for part in parts:
        np.add.at(counts, part["rank"].to_numpy(), 1)
    return RankHistogram.of_counts(counts, n_calibration)


class Decider:
    """Turns a part into rows of the output.

    Parameters
    ----------
    histogram : RankHistogram
        All ranks.
    limit : int
        The largest rejected rank.
    """

    def __init__(self, histogram: RankHistogram, limit: int) -> None:
        self.n_calibration, self.limit = histogram.n_calibration, limit
        ranks, adjusted = histogram.adjusted()
        self._adjusted = np.zeros(histogram.n_calibration + 2)  # by rank
        self._adjusted[ranks] = adjusted

    def decide(self, part: pa.Table) -> pa.Table:
        """Add p-values and the decision to scores and ranks."""
        ranks: NDArray[np.int64] = part["rank"].to_numpy()
        return (
            part.append_column("p_value", pa.array(ranks / (self.n_calibration + 1)))
            .append_column("adjusted_p_value", pa.array(self._adjusted[ranks]))
            .append_column("rejected", pa.array(within_limit(ranks, self.limit)))
        )


def with_reasons(tables: Iterator[pa.Table], reasons: Reasons | None) -> Iterator[pa.Table]:
    """Add the reasons of the rows to tables that follow one another."""
    start = 0
    for table in tables:
        stop = start + table.num_rows
        columns = {} if reasons is None else reasons.file_columns(start, stop)
        for name, values in columns.items():
            table = table.append_column(name, values)  # noqa: PLW2901
        yield table
        start = stop


def with_originals(decided: pa.Table, originals: pa.Table) -> pa.Table:
    """Add the columns that the rows came with; one of a name that is taken gets another name."""
    for name in originals.column_names:
        decided = decided.append_column(free_name(name, decided.column_names), originals[name])
    return decided


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name for an original column.

    Examples
    --------
    >>> free_name("amount", ["score"]), free_name("score", ["score"])
    ('amount', 'original score')
    """
    while name in taken:
        name = f"original {name}"
    return name


def write_rows(path: Path, tables: Iterator[pa.Table], beside: Path) -> None:
    """Write tables as one CSV or Parquet file, whole or not at all.

    The bytes depend on the rows only, not on how they are spread over the tables; they are
    those of :func:`conovel.rows.storage.write_table`. Until it is whole, the file is in the folder
    `beside`, on the same disk.
    """
    temporary = beside / path.name
    if _is_csv(path):
        tables = map(neutral_table, tables)
    try:
        make_private_file(temporary)
        first = next(tables)
        with _writer(temporary, first.schema) as writer:
            waiting = first.slice(0, 0)
            for table in chain([first], tables):
                waiting = pa.concat_tables([waiting, table])
                while waiting.num_rows >= _GROUP:
                    writer.write_table(waiting.slice(0, _GROUP).combine_chunks())
                    waiting = waiting.slice(_GROUP)
            if waiting.num_rows:
                writer.write_table(waiting.combine_chunks())
        keep_mode(path, temporary)
        os.replace(temporary, path)
    except (OSError, pa.ArrowException) as error:
        raise FileError(f"{path} cannot be written: {first_line(error)}") from None


@contextmanager
def _writer(path: Path, schema: pa.Schema) -> Iterator[Writer]:
    kind: Any = pa_csv.CSVWriter if _is_csv(path) else pa_parquet.ParquetWriter
    with kind(str(path), schema) as writer:
        yield writer


def _is_csv(path: Path) -> bool:
    return path.suffix.lower() == ".csv"
