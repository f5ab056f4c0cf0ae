"""Any table in any file: in pieces the bytes of memory, and of the frame itself."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import conovel as cn
from conovel.errors import ConovelError
from conovel.rows.dialects import AS_FOUND
from conovel.rows.schemas import columns_read
from conovel.rows.storage import read_pair_of_files, write_table
from conovel.rows.tables import numbered
from conovel.runs.file_detection import detect_files
from conovel.site.engines import MemoryPlan

N_NULL, N_TEST = 30, 12
N = N_NULL + N_TEST
NUMBERS = st.floats(-1e6, 1e6, width=32).map(lambda x: round(x, 2))
COLUMNS = {
    "number": NUMBERS,
    "whole": st.integers(-50, 50),
    "text": st.sampled_from(["red", "green, dark", 'say "no"', "Größe", "?", "NA", " blue "]),
    "many": st.integers(0, 30).map(lambda i: f"v{i}"),
    "truth": st.booleans(),
    "spelled": st.sampled_from(["1", "2.5", "?", "-3", "1e3"]),
    "date": st.sampled_from(["2026-01-05", "2026-02-28T10:30:00", "2025-12-31 23:59:59"]),
}


@st.composite
def tables(draw):
    """Draw two to four columns, in each of which some values are missing."""
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3))
    columns = {"x": draw(st.lists(NUMBERS, min_size=N, max_size=N))}
    for j, kind in enumerate(kinds):
        values = draw(st.lists(COLUMNS[kind], min_size=N, max_size=N))
        gone = draw(st.sets(st.integers(0, N - 1), max_size=8))
        held = [None if i in gone else value for i, value in enumerate(values)]
        columns[f"{kind}, {j}"] = pd.Series(held, dtype=object)
    return pd.DataFrame(columns).infer_objects()


def detector(frame):
    dates = {name: "date" for name in frame if name.startswith("date")}
    return cn.AdaDetect("logistic", "1/5", schema=dates)


def outcome(work):
    """Return what comes of some work: its bytes, or the kind of error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return work()
        except ConovelError as error:
            return type(error)


@given(
    frame=tables(),
    how=st.sampled_from(
        [
            {"sep": ","},
            {"sep": ";", "decimal": ","},
            {"sep": "\t", "encoding": "utf-16"},
            {"sep": "|", "encoding": "cp1252"},
            {},  # Parquet
        ]
    ),
    piece=st.integers(3, 50),
)
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_pieces_have_the_bytes_of_memory(tmp_path_factory, monkeypatch, frame, how, piece):
    folder = tmp_path_factory.mktemp("mixed")
    paths = []
    for name, rows in (("null", frame[:N_NULL]), ("test", frame[N_NULL:])):
        paths.append(folder / f"{name}.{'csv' if how else 'parquet'}")
        if how:
            rows.to_csv(paths[-1], index=False, na_rep="NA", **how)
        else:
            pa_parquet.write_table(pa.Table.from_pandas(rows, preserve_index=False), paths[-1])
    detect = detector(frame)
    reading, _ = columns_read(detect.schema, AS_FOUND, None)

    def in_memory():
        known, tests = read_pair_of_files(*paths, None, None, reading)
        found = detect.detect(known.features, tests.features)
        columns = numbered(found.columns(), found.rejected.size)
        write_table(folder / "memory.parquet", columns)
        return (folder / "memory.parquet").read_bytes()

    def in_pieces():
        detect_files(detect, *paths, folder / "pieces.parquet")
        return (folder / "pieces.parquet").read_bytes()

    expected = outcome(in_memory)
    monkeypatch.setattr(MemoryPlan, "of", classmethod(lambda cls, *_: cls(piece, 16)))
    assert outcome(in_pieces) == expected
    if not how and isinstance(expected, bytes):
        scores = detect.detect(frame[:N_NULL], frame[N_NULL:]).scores
        written = pa_parquet.read_table(folder / "memory.parquet")["score"].to_numpy()
        assert np.array_equal(scores, written)
