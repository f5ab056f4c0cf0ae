"""The first sheet of an Excel file, read in a process of its own with bounded memory.

A file of a kilobyte can name a cell in the last row and the last column. The library that reads it
makes room for all cells before it, and ends its process when there is none.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

from conovel.errors import FileError, MissingExtraError

SHEET_BYTES = 4 << 30  # memory that reading one sheet may take

# Exit code 3 means that the library has said what is wrong with the file.
_READ = """
import sys
import fastexcel, pyarrow as pa
try:
    import resource
    most = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
except (ImportError, OSError, ValueError):
    pass
try:
    book = fastexcel.read_excel(sys.argv[1])
    table = pa.table(book.load_sheet(0, schema_sample_rows=None).to_arrow())
except fastexcel.FastExcelError as error:
    sys.stderr.write(str(error))
    sys.exit(3)
with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
    stream.write_table(table)
"""


def read_sheet(path: Path, most: int = SHEET_BYTES) -> pa.Table:
    """Read the first sheet of an Excel file."""
    if find_spec("fastexcel") is None:
        raise MissingExtraError("fastexcel", "excel")
    # -P: no module is taken from the current folder, where files of others may be.
    command = [sys.executable, "-P", "-c", _READ, str(path.absolute()), str(most)]
    ended = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
    if ended.returncode == 3:
        said = ended.stderr.decode(errors="replace").splitlines() or [""]
        raise FileError(f"{path} cannot be read: {said[0]}")
    if ended.returncode:
        raise FileError(
            f"{path} cannot be read: its sheet needs more than {most >> 20:,} MB, or is none of"
            " Excel; delete cells far from the table, or save it as CSV"
        )
    with pa.ipc.open_stream(ended.stdout) as stream:
        return stream.read_all()
