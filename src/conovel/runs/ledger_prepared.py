"""A batch that is prepared: on the disk of its site, and not yet in the ledger.

Between organisations a batch enters the ledgers of all sites or of none. Every site first writes
the ledger with the batch to a file beside the old one, and confirms. When all have confirmed, each
replaces the old ledger. So if one site has the batch in its ledger, every site has it at least
prepared, and a site that was killed in between can still take it.

Layout of the file::

    {"conovel": "prepared ledger", "format": 1, "run_id": 32 hexadecimal digits,
     "agents": ["north", "south"], "ledger": the ledger with the batch}
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from conovel.errors import SavedFileError
from conovel.runs.ledger import Ledger
from conovel.runs.ledger_file import (
    ledger_as_plain,
    ledger_of_plain,
    read_plain,
    write_ledger,
    write_plain,
)

FORMAT = 1
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_MAX_AGENTS = 200


class Prepared(NamedTuple):
    """A ledger with one batch more than the file has.

    Attributes
    ----------
    run_id : str
        Of the run of the batch.
    agents : tuple of str
        Who took part in it.
    ledger : Ledger
    """

    run_id: str
    agents: tuple[str, ...]
    ledger: Ledger


def prepared_path(path: Path) -> Path:
    """Name the file of the prepared batch that belongs to a ledger.

    Examples
    --------
    >>> prepared_path(Path("april.json")).name
    'april.json.prepared'
    """
    return path.with_name(f"{path.name}.prepared")


def write_prepared(prepared: Prepared, path: Path) -> None:
    """Write a prepared batch beside the ledger at `path`, whole or not at all."""
    content = {
        "conovel": "prepared ledger",
        "format": FORMAT,
        "run_id": prepared.run_id,
        "agents": list(prepared.agents),
        "ledger": ledger_as_plain(prepared.ledger),
    }
    write_plain(prepared_path(path), content)


def read_prepared(path: Path, ledger: Ledger) -> Prepared | None:
    """Read the batch that is prepared for a ledger; None if there is none.

    Parameters
    ----------
    path : Path
        Of the ledger.
    ledger : Ledger
        What is in that file. A batch that it has already is not prepared any more.
    """
    beside = prepared_path(path)
    if not beside.exists():
        return None
    found = _as_prepared(read_plain(beside), beside)
    earlier, later = ([e.content for e in one.entries] for one in (ledger, found.ledger))
    if earlier == later:
        return None
    if earlier != later[:-1] or ledger.level != found.ledger.level:
        raise SavedFileError(
            f"{beside} is not about the next batch of {path}: bring back the ledger that belongs"
            " to it, or delete it to give its batch up"
        )
    return found


def take_prepared(path: Path, prepared: Prepared) -> None:
    """Put a prepared batch into the ledger."""
    write_ledger(prepared.ledger, path)
    drop_prepared(path)


def drop_prepared(path: Path) -> None:
    """Give a prepared batch up, or remove what is left of one that was taken."""
    prepared_path(path).unlink(missing_ok=True)


def _as_prepared(content: Any, path: Path) -> Prepared:
    match content:
        case {
            "conovel": "prepared ledger",
            "format": 1,
            "run_id": str(run_id),
            "agents": [*agents],
            "ledger": ledger,
            **others,
        } if not others and _RUN_ID.fullmatch(run_id) and len(agents) <= _MAX_AGENTS:
            if all(isinstance(name, str) for name in agents):
                found = Prepared(run_id, tuple(agents), ledger_of_plain(ledger, path))
                if found.ledger.in_network and found.ledger.entries:
                    return found
    raise SavedFileError(f"{path} is not a prepared ledger: fields are missing, unknown or wrong")
