"""What a file takes in memory once it is unpacked, measured before its rows are read.

A compressed file of a megabyte may hold gigabytes: equal numbers take next to no bytes in Parquet,
and equal lines in a compressed CSV file. A file that is read as a whole may take :data:`BUDGET`,
or :data:`TIMES` its own size if that is more. Users raise the budget with the environment variable
``CONOVEL_UNPACKED`` or, at a site of a federation, with ``unpacked`` in ``site.toml``. Files that
are read in pieces (``memory``) need no such bound.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pa_parquet

from conovel.errors import FileError, InputError, MissingExtraError
from conovel.rows.dialects import Dialect, squeezed, without_compression
from conovel.spec.exits import NO

BUDGET = 10**9  # bytes of one file
TIMES = 20  # how many times its own size a file may take beyond that
VARIABLE = "CONOVEL_UNPACKED"
_VALUE = 8  # bytes of a number
_CELL = 32  # bytes of a cell of a spreadsheet, also of an empty one
_CHUNK = 1 << 20
_TEXTS_AT_ONCE = 1 << 16
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_PLACE = re.compile(rb'r="([A-Z]{1,3})([0-9]{1,7})"')


def as_bytes(amount: int | str, name: str = "memory") -> int:
    """Read an amount of memory: a number of bytes, or a text such as "800MB" or "1.5 GB".

    Examples
    --------
    >>> as_bytes("1.5GB")
    1500000000
    """
    match = re.fullmatch(
        r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([KMGT]?)i?B?\s*", str(amount), re.IGNORECASE
    )
    if not match:
        raise InputError(f"{name} must be like 800MB or 2GB, not {str(amount)[:80]!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def require_room(
    path: Path, form: str, names: Collection[str], separator: str, option: str | None
) -> None:
    """Refuse a file that takes more memory than the budget when it is unpacked."""
    option = option or os.environ.get(VARIABLE)
    size = path.stat().st_size
    budget = max(BUDGET, TIMES * size) if option is None else as_bytes(option, "unpacked")
    measure: Mapping[str, Callable[[], int]] = {
        "csv": lambda: _csv(path, separator, budget),
        "parquet": lambda: _parquet(path, names, budget),
        "arrow": lambda: _arrow(path),
        "json": lambda: _csv(path, ",", budget),
        "excel": lambda: _excel(path, budget),
    }
    needed = measure[form]()
    if needed > budget:
        raise FileError(
            f"{path} has {size:,} bytes and takes at least {needed / 10**6:,.0f} MB when it is"
            f" unpacked, more than the {budget / 10**6:,.0f} MB that it may. If you trust it, set"
            f" {VARIABLE} (in site.toml: unpacked) to more, such as {needed // 10**9 + 1}GB"
        )


def _csv(path: Path, separator: str, budget: int) -> int:
    """Count the values and the bytes of a compressed file, up to the budget."""
    if without_compression(path) == path.name.lower():
        return 0  # what it takes grows with its size
    n_values = n_bytes = 0
    with pa.input_stream(str(path), compression="detect") as stream:
        while (needed := max(n_bytes, _VALUE * n_values)) <= budget:
            chunk = stream.read(_CHUNK)
            if not chunk:
                break
            n_bytes += len(chunk)
            n_values += chunk.count(separator.encode()) + chunk.count(b"\n")
    return needed


def _parquet(path: Path, names: Collection[str], budget: int) -> int:
    """Add up what the file says of its columns; of texts, what their dictionaries stand for."""
    with pa_parquet.ParquetFile(path) as file:
        about = file.metadata
        needed = _VALUE * about.num_rows * len(names)
        texts: dict[str, int] = {}  # the bytes of the largest chunk, so of the longest text
        for g in range(about.num_row_groups):
            group = about.row_group(g)
            for c in range(group.num_columns):
                chunk = group.column(c)
                name = chunk.path_in_schema
                if name not in names:
                    continue
                needed = max(needed, chunk.total_uncompressed_size)
                if chunk.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
                    texts[name] = max(texts.get(name, 0), chunk.total_uncompressed_size)
        if needed > budget or about.num_rows * sum(texts.values()) <= budget:
            return int(needed)
    with pa_parquet.ParquetFile(path, read_dictionary=list(texts)) as file:
        for batch in file.iter_batches(_TEXTS_AT_ONCE, columns=list(texts)):
            needed += sum(map(_text_bytes, batch.columns))
            if needed > budget:
                break
    return int(needed)


def _text_bytes(column: pa.Array) -> int:
    """Return the bytes of texts, without making them where a dictionary stands for them."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary)
    return pc.sum(lengths.take(column.indices)).as_py() or 0


def _arrow(path: Path) -> int:
    """Add up what the compressed buffers of a file say that they unpack to."""
    needed = 0
    with pa.memory_map(str(path)) as source:
        source.seek(8)  # "ARROW1" and two zeros; the messages follow, as in a stream
        for message in pa.ipc.MessageReader.open_stream(source):
            needed += sum(_buffer_sizes(message))
    return needed


def _buffer_sizes(message: Any) -> list[int]:
    """Read the sizes of the buffers of a message; a compressed one begins with its size.

    The metadata are a flatbuffer (format/Message.fbs of Arrow): a Message has its header in field
    2, a RecordBatch its buffers in field 2 and its compression in field 3, and a DictionaryBatch
    its RecordBatch in field 1.
    """
    data, body = memoryview(message.metadata), memoryview(message.body or b"")
    table = _follow(data, 0)
    header = _field(data, table, 2)
    if header is None or message.type not in ("record batch", "dictionary"):
        return []
    batch = _follow(data, header)
    if message.type == "dictionary":
        inner = _field(data, batch, 1)
        if inner is None:
            return []
        batch = _follow(data, inner)
    buffers, is_compressed = _field(data, batch, 2), _field(data, batch, 3) is not None
    if buffers is None:
        return []
    start = _follow(data, buffers)
    sizes = []
    for i in range(_number(data, start, 4)):
        offset, length = (_number(data, start + 4 + 16 * i + 8 * j, 8) for j in (0, 1))
        if is_compressed and length >= 8:
            length = max(_number(body, offset, 8), length - 8)  # -1: this one is not compressed
        sizes.append(length)
    return sizes


def _number(data: memoryview, at: int, size: int, *, signed: bool = True) -> int:
    if not 0 <= at <= len(data) - size:
        raise pa.ArrowInvalid("a message contradicts itself")
    return int.from_bytes(data[at : at + size], "little", signed=signed)


def _follow(data: memoryview, at: int) -> int:
    return at + _number(data, at, 4, signed=False)


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Return where a field of a table is; None if it is left out."""
    fields = table - _number(data, table, 4)
    at = 4 + 2 * number
    if at >= _number(data, fields, 2, signed=False):
        return None
    offset = _number(data, fields + at, 2, signed=False)
    return table + offset if offset else None


def _excel(path: Path, budget: int) -> int:
    """Count the unpacked bytes, and the cells up to the last one: empty ones are made, too."""
    needed = n_bytes = 0
    try:
        with zipfile.ZipFile(path) as archive:
            for part in archive.infolist():
                row = column = 0
                with archive.open(part) as stream:
                    rest = b""
                    while needed <= budget and (chunk := stream.read(_CHUNK)):
                        n_bytes += len(chunk)
                        for letters, digits in _PLACE.findall(rest + chunk):
                            row, column = max(row, int(digits)), max(column, _column(letters))
                        rest = chunk[-32:]
                        needed = max(needed, n_bytes, _CELL * row * column)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    return needed


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + letter - ord("A") + 1
    return number


SHEET_BYTES = 4 << 30  # memory that reading one sheet may take

# Its exit code is NO if the library has said what is wrong with the file.
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
    sys.exit(int(sys.argv[3]))
with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
    stream.write_table(table)
"""


def read_sheet(path: Path, most: int = SHEET_BYTES) -> pa.Table:
    """Read the first sheet of an Excel file."""
    if find_spec("fastexcel") is None:
        raise MissingExtraError("fastexcel", "excel")
    # -P: no module is taken from the current folder, where files of others may be.
    command = [sys.executable, "-P", "-c", _READ, str(path.absolute()), str(most), str(NO)]
    ended = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
    if ended.returncode == NO:
        lines = ended.stderr.decode(errors="replace").splitlines() or [""]
        raise FileError(f"{path} cannot be read: {lines[0]}")
    if ended.returncode:
        raise FileError(
            f"{path} cannot be read: its sheet needs more than {most >> 20:,} MB, or is none of"
            " Excel; delete cells far from the table, or save it as CSV"
        )
    with pa.ipc.open_stream(ended.stdout) as stream:
        return stream.read_all()


def read_objects(path: Path) -> pa.Table:
    """Read a file of which each line is a JSON object: its keys are the columns."""
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            return pa_json.read_json(stream)
    except (pa.ArrowException, OSError) as error:
        line = (str(error).splitlines() or [""])[0]
        raise FileError(f"{path} cannot be read as one JSON object in each line: {line}") from None


def read_aligned(path: Path, dialect: Dialect) -> pa.Table:
    """Read a text in which any number of spaces stands between two values."""
    with pa.input_stream(str(path), compression="detect") as stream:
        text = squeezed(stream.read().decode(dialect.encoding))
    plain = replace(dialect, encoding="utf-8").options()
    plain["read_options"].block_size = max(len(text), 1)  # all rows decide what a column holds
    return pa_csv.read_csv(io.BytesIO(text.encode()), **plain)
