"""A folder that remembers what is done, so that a run can go on.

Everything in it is written whole or not at all. A file that is there can be relied on, as long
as the inputs, the settings and the fitted model are those it was made with.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import feather

from conovel.errors import FileError
from conovel.rows.datafiles import first_line
from conovel.rows.private_files import make_private_folder
from conovel.rows.storage import read_json, write_json

_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class WorkFolder:
    """The folder."""

    folder: Path
    key: str  # digest of inputs and settings

    @classmethod
    def at(cls, folder: Path, key: str) -> WorkFolder:
        """Take the work up again, or begin anew if it was another."""
        work = cls(folder, key)
        try:
            if read_json(work.folder / _MANIFEST).get("key") == key:
                return work
        except FileError:
            pass
        work.clear()
        make_private_folder(work.folder)
        write_json(work.folder / _MANIFEST, {"key": key})
        return work

    def clear(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def save(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep some arrays."""
        temporary = self.folder / f".{name}.npz"
        np.savez(temporary, **dict[str, Any](arrays))
        os.replace(temporary, self.folder / f"{name}.npz")

    def load(self, name: str) -> dict[str, NDArray[Any]] | None:
        """Give back what was kept, if it was."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            return None
        with np.load(path) as arrays:
            return dict(arrays)

    def insist(self, model: str) -> None:
        """Forget parts that another model has scored.

        Models are fitted again when a run goes on, and fitting is only as repeatable as the
        libraries that do it.
        """
        note = self.folder / "model.json"
        if not note.exists() or read_json(note).get("model") != model:
            for kind in ("null", "test", "round"):
                for part in self.folder.glob(f"{kind}-*.arrow"):
                    part.unlink()
            write_json(note, {"model": model})

    def part(self, kind: str, start: int) -> Path:
        """Name the part that begins with a row."""
        return self.folder / f"{kind}-{start:012d}.arrow"

    def has(self, kind: str, start: int) -> bool:
        """Tell whether a part is done."""
        return self.part(kind, start).exists()

    def write(self, kind: str, start: int, columns: Mapping[str, Any]) -> None:
        """Keep a part; as it is in memory, because it is soon read again."""
        temporary = self.folder / f".{kind}"
        feather.write_feather(pa.table(dict(columns)), str(temporary), compression="uncompressed")
        os.replace(temporary, self.part(kind, start))

    def read(self, kind: str, start: int) -> pa.Table:
        """Read a part."""
        path = self.part(kind, start)
        try:
            return feather.read_table(str(path), memory_map=False)
        except (pa.ArrowException, OSError) as error:
            path.unlink(missing_ok=True)  # a second start makes it again
            raise FileError(f"{path} cannot be read, start again: {first_line(error)}") from None
