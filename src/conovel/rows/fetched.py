"""Tables that are no files of this machine: at an address, or on standard input.

They are copied into a private folder before they are read, because a table is read more than once.
A copy may take :data:`MOST` bytes, or what the environment variable ``CONOVEL_FETCHED`` says. An
address with a password, a key or a signature is shown without them.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.error import URLError
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname, urlopen

import pyarrow as pa
import pyarrow.fs as pa_fs

from conovel.errors import FileError, MissingExtraError
from conovel.rows.datafiles import ENDINGS, first_line, format_of
from conovel.rows.dialects import ReadingOptions
from conovel.rows.private_files import make_private_file
from conovel.rows.storage import read_table
from conovel.rows.unpacked import as_bytes

_log = logging.getLogger(__name__)

MOST = "2GB"
VARIABLE = "CONOVEL_FETCHED"
_CHUNK = 1 << 20
_SECONDS = 60  # without an answer
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_OF_ARROW = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")  # pyarrow reads them itself
_OF_FSSPEC = ("sftp", "ssh", "smb", "az", "adl", "webhdfs")
_HERE = ("localhost", "127.0.0.1", "::1")
# How files of a format begin, where no name tells the format.
_BEGINNINGS = {
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"PK\x03\x04": ".xlsx",
    b"\x1f\x8b": ".csv.gz",
    b"{": ".jsonl",
}


class Bytes(Protocol):
    """What is read from beginning to end."""

    def read(self, size: int, /) -> bytes:
        """Give at most so many bytes; none at the end."""


def is_address(text: str) -> bool:
    """Tell an address from the path of a file.

    Examples
    --------
    >>> is_address("s3://bucket/today.parquet"), is_address("data/today.parquet")
    (True, False)
    """
    return bool(_ADDRESS.match(text))


def without_secrets(address: str) -> str:
    """Give an address as it may be shown and written down.

    Examples
    --------
    >>> without_secrets("https://me:secret@host/today.csv?token=1")
    'https://host/today.csv'
    """
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def fetch(address: str, folder: Path) -> Path:
    """Copy the table at an address into a folder; what is on this machine stays where it is."""
    parts, shown = urlsplit(address), without_secrets(address)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    name = Path(unquote(parts.path)).name
    if format_of(Path(name)) is None:
        raise FileError(f"{shown} is no address of a table: expected one that ends in {ENDINGS}")
    try:
        with _opened(address, shown) as stream:
            return _copied(stream, folder / name, shown)
    except (FileError, MissingExtraError):
        raise
    except (OSError, URLError, ValueError, ImportError, pa.ArrowException) as error:
        # What a library says may repeat the address with its secrets.
        problem = first_line(error).replace(address, shown)
        raise FileError(f"{shown} cannot be read: {problem}") from None


def copy_input(stream: Bytes, folder: Path) -> Path:
    """Copy standard input into a folder, with the ending of its format."""
    path = _copied(stream, folder / "stdin", "standard input")
    with path.open("rb") as file:
        head = file.read(8).lstrip()
    ending = next((end for start, end in _BEGINNINGS.items() if head.startswith(start)), ".csv")
    return path.rename(path.with_name(f"stdin{ending}"))


@contextmanager
def _opened(address: str, shown: str) -> Iterator[Any]:
    scheme, host = urlsplit(address).scheme, urlsplit(address).hostname
    if scheme in ("http", "https"):
        _require_secret(scheme, host, shown)
        with urlopen(address, timeout=_SECONDS) as answer:  # noqa: S310  (http or https)
            _require_secret(urlsplit(answer.url).scheme, urlsplit(answer.url).hostname, shown)
            yield answer
    elif scheme in _OF_ARROW:
        system, path = pa_fs.FileSystem.from_uri(address)
        with system.open_input_stream(path) as stream:
            yield stream
    elif scheme in _OF_FSSPEC and "::" not in address:
        try:
            import fsspec  # noqa: PLC0415
        except ImportError:
            raise MissingExtraError("fsspec", "remote") from None
        with fsspec.open(address, "rb") as stream:
            yield stream
    else:
        schemes = ", ".join(("https", *_OF_ARROW, *_OF_FSSPEC))
        raise FileError(
            f"{shown} cannot be read: tables are read from {schemes}; copy it to this machine"
        )


def _require_secret(scheme: str, host: str | None, shown: str) -> None:
    """Refuse a connection that others can read and change, but for one within this machine."""
    if scheme != "https" and host not in _HERE:
        raise FileError(f"{shown} cannot be read: others can change what http brings, use https")


def _copied(stream: Bytes, path: Path, shown: str) -> Path:
    most = as_bytes(os.environ.get(VARIABLE, MOST), VARIABLE)
    make_private_file(path)
    n_bytes = 0
    with path.open("wb") as file:
        while chunk := stream.read(_CHUNK):
            n_bytes += len(chunk)
            if n_bytes > most:
                path.unlink()
                raise FileError(
                    f"{shown} has more than the {most / 10**6:,.0f} MB that a copy may have: set"
                    f" {VARIABLE} to more, such as 10GB, or copy it to this machine"
                )
            file.write(chunk)
    if not n_bytes:
        raise FileError(f"{shown} is empty")
    _log.info("copied %s: %d bytes", shown, n_bytes)
    return path


def read(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    header: bool = True,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    na: Sequence[str] = (),
) -> pa.Table:
    r"""Read a table as the command line does, to give it to a detector.

    Parameters
    ----------
    path : str or Path
        A CSV, Parquet, Arrow, JSON lines or Excel file, a folder of files of one format, or an
        address such as ``"s3://bucket/today.parquet"``.
    columns : sequence of str, optional
        Columns to read; all of them by default. Without a header, what all columns are called.
    exclude : sequence of str
        Columns to leave out.
    header : bool
        Whether the first line of a CSV file has the names. If not, and without `columns`, they
        are x1, x2 and so on.
    separator, decimal, encoding : str, optional
        How a CSV file is written; found out if not given.
    na : sequence of str
        Further texts that stand for a missing value.

    Returns
    -------
    pyarrow.Table

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "today.data")
    ...     _ = path.write_text("1.5,a\n2.5,b\n")
    ...     read(path, header=False, columns=["amount", "kind"]).to_pydict()
    {'amount': [1.5, 2.5], 'kind': ['a', 'b']}
    """
    options = ReadingOptions(
        separator,
        decimal,
        encoding,
        tuple(na),
        tuple(exclude),
        header=header,
        names=() if header else tuple(columns or ()),
    )
    wanted = columns if header else None
    if not is_address(str(path)):
        return read_table(Path(path), options, wanted)
    with tempfile.TemporaryDirectory(prefix="conovel-") as folder:
        return read_table(fetch(str(path), Path(folder)), options, wanted)
