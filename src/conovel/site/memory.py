"""How a budget of memory is spent."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from conovel.errors import InputError
from conovel.rows.storage import size_of
from conovel.rows.unpacked import as_bytes

DEFAULT_MEMORY = 10**9  # if no budget is asked for; a fit may then take more
_LARGE = 250_000_000  # bytes of files that are read in pieces without being asked
_LEAST = 750_000_000  # the libraries with a fit on few columns take most of it
_LIBRARIES = 300_000_000
# What the default scorers hold at once of each row that they learn from, measured on 10 to 80
# columns: so many copies of its numbers, and so many bytes besides.
_COPIES, _PER_ROW = 8.5, 500
_LARGEST_PIECE = 1 << 16  # rows; larger ones gain nothing


@dataclass(frozen=True)
class MemoryPlan:
    """Sizes of what is held at a time.

    Attributes
    ----------
    piece : int
        Rows that are read and scored together.
    cell_bits : int
        See :func:`conovel.site.stored_blocks.draw_sample`.
    """

    piece: int
    cell_bits: int

    @classmethod
    def of(cls, memory: int, n_features: int) -> MemoryPlan:
        """Divide the budget: a quarter for pieces at work, a sixteenth for cells.

        The rest is left to the libraries, to the rows that the scorer learns from and to
        the calibration scores.
        """
        # About six copies of a row are made on its way, and eight pieces are on it.
        fitting = memory // 4 // (8 * 6 * 8 * (n_features + 2))
        return cls(
            piece=min(max(fitting, 1024), _LARGEST_PIECE),
            cell_bits=min(max((memory // 64).bit_length() - 1, 16), 26),
        )


def release_unused() -> None:
    """Give the memory back that allocators keep after a stage; the next stage needs it.

    Arrow and the C library keep what was freed. Before a fit that is about a fifth of the
    smallest budget.
    """
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # only the GNU C library has it
        ctypes.CDLL(None).malloc_trim(0)


def are_large(*paths: Path) -> bool:
    """Tell whether files are better read in pieces."""
    return sum(map(size_of, paths)) > _LARGE


def require_room_to_fit(n_rows: int, n_features: int, memory: int) -> None:
    """Fail before the work where fitting on so many rows would break the budget."""
    needed = _LIBRARIES + int(n_rows * (_COPIES * 8 * n_features + _PER_ROW))
    if needed > memory:
        raise InputError(
            f"learning from {n_rows} rows of {n_features} columns takes about"
            f" {needed // 10**6}MB: raise the memory to that, or lower max_train_rows"
        )


def as_memory(memory: int | str) -> int:
    """Read an amount of memory: a number of bytes, or a text such as "800MB" or "1.5 GB".

    Examples
    --------
    >>> as_memory("1.5GB")
    1500000000
    """
    n_bytes = as_bytes(memory)
    if n_bytes < _LEAST:
        raise InputError(f"{memory} of memory is too little: give {_LEAST // 10**6}MB or more")
    return n_bytes
