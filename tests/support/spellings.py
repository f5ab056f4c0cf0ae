"""Role swaps on pairs of forms of one column, in memory and in files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as pa_feather
import pyarrow.parquet as pa_parquet

from conovel.errors import ConovelError
from support.forms import FAMILIES, OTHER, NotHeldError
from support.roles import (
    Run,
    Sample,
    Seen,
    assert_roles_do_not_matter,
    in_detector,
    in_files,
    numbered,
)

SIZES = (60, 24)


@dataclass(frozen=True)
class Case:
    """A pair of forms of one family.

    Attributes
    ----------
    others : int
        How many of the test rows hold the text "other".
    gone : float
        Which share of the values is missing.
    endings : tuple of str or None
        Of files; None is in memory.
    """

    family: str
    null: str
    test: str
    asked: str | None = None
    others: int = 1
    gone: float = 0.0
    endings: tuple[str, str] | None = None

    def __str__(self) -> str:
        where = "memory" if self.endings is None else " and ".join(self.endings)
        return (
            f"{self.family}: {self.null} | {self.test}, {self.asked or 'inferred'},"
            f" {self.others} other, {self.gone:.0%} missing, {where}"
        )


def pairs(family: str) -> Iterator[Case]:
    """Give all ordered pairs of the forms of a family."""
    forms = FAMILIES[family].forms
    for null, test in itertools.product(forms, forms):
        pair = forms[null], forms[test]
        apart = [form for form in pair if form.has_feature_per_level]
        if len(apart) == 1 and null != test:
            if not any(form.takes_texts for form in pair if not form.has_feature_per_level):
                yield Case(family, null, test, others=0)
        elif not apart or null == test:
            yield Case(family, null, test)


def try_case(case: Case, folder: Path, seed: int = 0) -> str:
    """Exchange roles, and say how it ended: "same", "refused" or "FAILED: ..."."""
    rng = np.random.default_rng(seed)
    family = FAMILIES[case.family]
    n = sum(SIZES)
    values = [family.values[i] for i in rng.integers(0, len(family.values), n)]
    values = [
        None if gone else v for v, gone in zip(values, rng.random(n) < case.gone, strict=True)
    ]
    for i in range(case.others):
        values[SIZES[0] + i] = OTHER
    x = rng.normal(size=n).round(1)
    forms = family.forms[case.null], family.forms[case.test]

    def as_samples(sample: Sample) -> Sample:
        return Sample(
            *(
                _frame(x[rows[:, 0]], form.column([values[i] for i in rows[:, 0]]))
                for rows, form in zip(sample, forms, strict=True)
            )
        )

    options = {"level": "1/5", "schema": case.asked and {"c": case.asked}}
    if case.endings is None:
        run = in_detector(**options)
    else:
        write = FileWriter(case.endings)
        run = in_files(folder, write=write, **options)
    try:
        assert_roles_do_not_matter(held(run, as_samples), numbered(SIZES), "logistic", seed=seed)
    except ConovelError as error:
        return f"refused: {error}"
    except NotHeldError:
        return "not held"
    except AssertionError as error:
        return f"FAILED: {error}"
    except Exception as error:  # what is no ConovelError is a finding
        return f"FAILED: {type(error).__name__}: {error}"
    return "same"


def held(run: Run, as_samples: Callable[[Sample], Sample]) -> Run:
    """Give a run the samples that are made of numbers of rows."""

    def run_held(samples: Sequence[Sample], scorer: Any, blocks: Any) -> Seen | None:
        made = samples if blocks is None else list(map(as_samples, samples))
        return run(made, scorer, blocks)

    return run_held


def _frame(x: Any, column: Any) -> Any:
    if isinstance(column, pl.Series):
        return pl.DataFrame({"x": x, "c": column})
    if isinstance(column, pa.ChunkedArray):
        return pa.table({"x": x, "c": column})
    return pd.DataFrame({"x": x, "c": column})


class FileWriter:
    """Writes the two samples as files with these endings."""

    def __init__(self, endings: tuple[str, str]) -> None:
        self._endings = endings

    def __call__(self, folder: Path, sample: Sample) -> tuple[Path, Path]:
        folder.mkdir(parents=True)
        found = []
        for name, rows, ending in zip(("null", "test"), sample, self._endings, strict=True):
            found.append(folder / f"{name}{ending}")
            write_frame(found[-1], rows)
        return found[0], found[1]


def write_frame(path: Path, rows: Any) -> None:
    """Write a frame of any library, or a matrix, as its ending says."""
    try:
        table = _as_arrow(rows)
        if path.suffix == ".csv":
            pa_csv.write_csv(table, path)
        elif path.suffix == ".feather":
            pa_feather.write_feather(table, str(path))
        else:
            pa_parquet.write_table(table, path)
    except pa.ArrowException as error:
        raise NotHeldError from error


def _as_arrow(rows: Any) -> pa.Table:
    if isinstance(rows, np.ndarray):
        return pa.table({f"x{j}": column for j, column in enumerate(rows.T)})
    if isinstance(rows, pd.DataFrame):
        return pa.Table.from_pandas(rows, preserve_index=False)
    return rows.to_arrow() if isinstance(rows, pl.DataFrame) else rows


def some_of(cases: Sequence[Case], n: int, seed: int) -> list[Case]:
    """Draw cases, with what they leave open drawn as well."""
    rng = np.random.default_rng(seed)
    endings = [None, (".parquet", ".csv"), (".csv", ".parquet"), (".parquet", ".parquet")]
    endings += [(".feather", ".parquet"), (".csv", ".csv")]
    found = []
    for i in rng.choice(len(cases), min(n, len(cases)), replace=False):
        case = cases[i]
        asked = FAMILIES[case.family].asked
        drawn = replace(
            case,
            asked=asked[rng.integers(len(asked))],
            others=int(rng.integers(0, 3)) if case.others else 0,
            gone=float(rng.choice([0.0, 0.1])),
            endings=endings[rng.integers(len(endings))],
        )
        # A CSV file has no types by which a text could be refused.
        without = not case.others or case.family in ("durations", "times")
        if without and ".csv" in (drawn.endings or ()):
            drawn = replace(drawn, endings=None)
        found.append(drawn)
    return found
