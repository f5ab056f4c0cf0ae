"""A site's secret: made at its first use, kept beside its records, never sent.

It is mixed into the seed of every run (:func:`conovel.spec.seeds.site_seed`), so that the operator
who submits a run cannot choose which rows of the site train its model.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from conovel.errors import FederationError, FileError
from conovel.federation.paths import OWN_SEED_FILE
from conovel.rows.private_files import FILE_MODE, make_private_folder

N_BYTES = 32


def own_secret(folder: Path) -> bytes:
    """Read the secret of a site from the folder of its records; make one if there is none."""
    path = folder / OWN_SEED_FILE
    try:
        if not path.exists():
            _make(path)
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read or made: {error}") from None
    with suppress(ValueError):
        secret = bytes.fromhex(text)
        if len(secret) == N_BYTES:
            return secret
    raise FederationError(
        f"{path} does not hold {2 * N_BYTES} hexadecimal digits: remove it and a new one is made"
    )


def _make(path: Path) -> None:
    """Make the file in one step; if another process made it first, its secret stays."""
    make_private_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(N_BYTES) + "\n")
            file.flush()
            os.fsync(handle)
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
