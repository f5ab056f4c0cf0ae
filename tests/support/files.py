"""Two samples in files, and detection on them in memory and in pieces."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from sklearn.ensemble import ExtraTreesClassifier

import conovel as cn
from conovel.rows.storage import write_table
from conovel.runs.file_detection import detect_files
from conovel.site.engines import MemoryPlan

N_NULL, N_TEST, WIDTH = 900, 600, 3


def draw(seed=0):
    """Rows with novelties, with one row that occurs very often in both samples."""
    rng = np.random.default_rng(seed)
    null, test = rng.normal(size=(N_NULL, WIDTH)), rng.normal(size=(N_TEST, WIDTH))
    test[:80] += 3
    null[100:200] = test[200:260] = 0.25
    return null, test


def named(rows):
    return {f"x{i}": column for i, column in enumerate(rows.T)}


def write_folder(folder, columns, n_files, ending):
    folder.mkdir()
    table = pa.table(columns)
    write = pa_csv.write_csv if ending == "csv" else pa_parquet.write_table
    for i, rows in enumerate(np.array_split(np.arange(table.num_rows), n_files)):
        write(table.take(rows), folder / f"{i}.{ending}")


def make_files(folder, ending="parquet"):
    null, test = draw()
    names = np.array([f"row {i}" for i in range(N_TEST)])
    write_folder(folder / "null", named(null), 2, ending)
    write_folder(folder / "test", {"name": names, **named(test)}, 3, ending)
    return folder


def trees(**settings):
    return cn.AdaDetect(ExtraTreesClassifier(8, max_depth=4), max_train_rows=300, **settings)


def in_memory(detector, out):
    null, test = draw()
    names = np.array([f"row {i}" for i in range(N_TEST)])
    result = detector.detect(pa.table(named(null)), pa.table(named(test)), ids=names)
    write_table(out, result.columns())
    return result


def in_pieces(detector, folder, out, **options):
    return detect_files(
        detector, folder / "null", folder / "test", out, id_column="name", **options
    )


def cut(monkeypatch, piece, cell_bits=16):
    monkeypatch.setattr(MemoryPlan, "of", classmethod(lambda cls, *_: cls(piece, cell_bits)))


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())
