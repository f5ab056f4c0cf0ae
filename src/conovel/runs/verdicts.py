"""Verdicts: what people found out about flagged rows, kept in one file of the site."""

from __future__ import annotations

import getpass
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError
from conovel.rows.chained_lines import LogEntry, now
from conovel.rows.samples import read_sample
from conovel.runs.spent_rows import row_digests, spent_mask
from conovel.runs.verdict_file import (
    MAX_TEXT,
    WORDS,
    Content,
    Verdict,
    VerdictBatch,
    VerdictFile,
    begin_entry,
    require_readable,
)
from conovel.runs.verdict_rows import (
    given_back,
    judged_places,
    judged_rows,
    recorded,
    require_columns,
    spent_by,
)
from conovel.stats.intervals import exact_interval
from conovel.stats.words import not_there


class Verdicts:
    """The verdicts of a site: which flagged rows were novel, and what that means for later scores.

    Give it to :meth:`conovel.AdaDetect.detect`, as an object or as the path of its file. The batch
    is recorded there. Rows that were judged novel are known novelties of the next scores, and rows
    that were judged normal train them. Known normals of a batch whose verdicts have trained a
    score are *spent*: they train, and never calibrate again (docs/theory.md, "Verdicts").

    Parameters
    ----------
    path : path
        Its file. It is made by the first batch, for its owner alone, and only grows. It holds the
        flagged rows and never leaves the site.
    learn : bool, optional
        Whether verdicts that have not trained yet train the next score. By default they do as soon
        as enough known normals are left to calibrate. With True it is an error if they are not.
        With False new verdicts wait.

    See Also
    --------
    conovel.AdaDetect : Takes it in `detect`.

    Examples
    --------
    >>> import tempfile, conovel as cn
    >>> rng = np.random.default_rng(0)
    >>> X_null, X_test = rng.normal(size=(600, 3)), rng.normal(size=(100, 3))
    >>> X_test[:10] += 5
    >>> folder = tempfile.TemporaryDirectory()
    >>> verdicts = Verdicts(Path(folder.name) / "site.verdicts")
    >>> result = cn.AdaDetect("logistic").detect(X_null, X_test, verdicts=verdicts, name="monday")
    >>> verdicts.add({"0": "novel", "1": "novel"})
    2
    >>> verdicts.known_rows().shape, verdicts.batches[0].name
    ((2, 3), 'monday')
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, learn: bool | None = None) -> None:
        if not isinstance(learn, bool | None):
            raise InputError(f"learn must be True, False or None, not {learn!r}")
        self.path, self.learn = Path(path), learn
        self._file = VerdictFile(self.path)

    def __repr__(self) -> str:
        content = self.read()
        return (
            f"<Verdicts {self.path.name}: {len(content.batches):,} batches,"
            f" {len(content.verdicts):,} rows judged>"
        )

    def read(self) -> Content:
        """Read the file, and check it; one that does not exist is empty."""
        return self._file.content()

    @property
    def batches(self) -> tuple[VerdictBatch, ...]:
        """The batches, the oldest first."""
        return tuple(self.read().batches)

    @property
    def history(self) -> tuple[Verdict, ...]:
        """All verdicts, also those that a later one replaced."""
        return tuple(self.read().history)

    def add(
        self,
        judged: Mapping[Any, str] | Iterable[Mapping[str, Any]],
        *,
        batch: str | None = None,
        who: str | None = None,
    ) -> int:
        """Add verdicts on flagged rows; a later verdict on a row replaces an earlier one.

        Parameters
        ----------
        judged : mapping, or iterable of mappings
            Ids of rows and "novel", "normal" or "unclear"; or records with the keys `id` and
            `verdict`, and if there are any `kind`, `note` and `agent`. A row without an id has its
            position in ``X_test``. Rows with the same id have the same verdict.
        batch : str, optional
            The name of the batch; the latest in which a row was flagged if not given.
        who : str, optional
            Who judged; the user of this process if not given.

        Returns
        -------
        int
            How many verdicts were added.
        """
        if isinstance(judged, Mapping):
            judged = [{"id": name, "verdict": word} for name, word in judged.items()]
        who = _user() if who is None else who
        with self._file.reading() as (chain, new):
            content = self._file.content_of(chain)
            for place, record in enumerate(judged, 1):
                new.append(_verdict_entry(content, dict(record), batch, who, place))
            require_readable(content, new, self.path)
            return len(new)

    def record(self, entries: Iterable[LogEntry], expected: set[int] | None = None) -> None:
        """Add entries, after the first one of a new file.

        With `expected`, refuse if other batches than these have trained in the meantime.
        """
        with self._file.reading() as (chain, new):
            content = self._file.content_of(chain)
            if expected is not None and not content.trained <= expected:
                raise InputError(
                    f"{self.path} was used by another detection in the meantime: run this one"
                    " again"
                )
            new.extend([] if content.key else [begin_entry()])
            for entry in entries:
                is_there = entry["entry"] == "sample" and entry["digest"] in content.samples
                if not is_there:
                    new.append(entry)
            require_readable(content, new, self.path)

    def known_rows(self) -> Any:
        """Return the rows that were judged novel and can train: a frame, or an array."""
        content = self.read()
        return given_back(judged_rows(content, "novel", recorded(content)))

    def train_only_rows(self) -> Any:
        """Return the rows that were judged normal: they train and never calibrate."""
        content = self.read()
        return given_back(judged_rows(content, "normal", recorded(content)))

    def spent(self, X_null: Any) -> NDArray[np.bool_]:
        """Tell which known normals are spent.

        Parameters
        ----------
        X_null : array or frame of shape (n, d)

        Returns
        -------
        bool array of shape (n,)
        """
        content = self.read()
        null = read_sample(X_null, "X_null")
        if not content.trained:
            return np.zeros(len(null), dtype=np.bool_)
        require_columns(content, null)
        return spent_mask(row_digests(null, content.key), spent_by(content, content.trained))

    def summary(self) -> dict[str, Any]:
        """Give the share of false alarms of every batch and agent beside the promise, for JSON."""
        content = self.read()
        held = content.verdicts
        batches: list[dict[str, Any]] = []
        for number, batch in enumerate(content.batches, 1):
            words: list[str] = [held[number, i].verdict for i in batch.ids if (number, i) in held]
            about = {"name": batch.name, "agent": batch.agent, "time": batch.time}
            sizes = {"n_tests": batch.n_tests, "n_flagged": len(batch.ids)}
            promise = {"level": batch.level, "trained": number in content.trained}
            batches.append(about | promise | sizes | _shares(words))
        agents = []
        for agent in dict.fromkeys(batch["agent"] for batch in batches):
            own = [batch for batch in batches if batch["agent"] == agent]
            words = [w for w in WORDS for batch in own for _ in range(batch[f"n_{w}"])]
            levels = list(dict.fromkeys(batch["level"] for batch in own))
            sizes = {key: sum(b[key] for b in own) for key in ("n_tests", "n_flagged")}
            agents.append({"agent": agent, "levels": levels, **sizes, **_shares(words)})
        return {
            "batches": batches,
            "agents": agents,
            "n_verdicts": len(content.history),
            "n_known": len(judged_places(content, "novel", recorded(content))),
        }


def _shares(words: Sequence[str]) -> dict[str, Any]:
    """Count verdicts, and give the share of false alarms with its interval."""
    counts = {f"n_{word}": sum(one == word for one in words) for word in WORDS}
    n_judged = counts["n_novel"] + counts["n_normal"]
    share = counts["n_normal"] / n_judged if n_judged else None
    low, high = exact_interval(counts["n_normal"], n_judged)
    return counts | {"n_judged": n_judged, "share": share, "low": low, "high": high}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        return ""


def _verdict_entry(
    content: Content, record: dict[str, Any], batch: str | None, who: str, place: int
) -> LogEntry:
    name, word = str(record.get("id", "")), str(record.get("verdict") or "").strip().lower()
    if word not in WORDS:
        raise InputError(
            f"verdict {place}, on row {name!r}, is {word[:40]!r}: write novel, normal or unclear"
        )
    agent = record.get("agent")
    batch = record.get("batch") or batch
    numbers = [
        number
        for number, one in enumerate(content.batches, 1)
        if _spelled_in(content.names[number - 1], name) is not None
        and batch in (None, one.name)
        and agent in (None, "", one.agent)
    ]
    if not numbers:
        names = [one.name for one in content.batches]
        if batch is not None and batch not in names:
            raise InputError(f"there is no batch {batch!r}: {not_there(batch, names)}")
        where = "any batch" if batch is None else f"batch {batch!r}"
        raise InputError(f"verdict {place}: row {name!r} was not flagged in {where}")
    texts = {key: str(record.get(key) or "") for key in ("kind", "note")} | {"who": who}
    if long := [key for key, text in texts.items() if len(text) > MAX_TEXT]:
        raise InputError(f"verdict {place}: its {long[0]} is longer than {MAX_TEXT:,} letters")
    name = _spelled_in(content.names[numbers[-1] - 1], name) or name
    about = {"entry": "verdict", "time": now(), "batch": numbers[-1], "id": name}
    return about | {"verdict": word} | texts


def _spelled_in(ids: Collection[str], name: str) -> str | None:
    """Find an id as a file of verdicts may spell it.

    A CSV for spreadsheets has an apostrophe before what begins like a formula, and spreadsheets
    write whole numbers as they like.

    Examples
    --------
    >>> _spelled_in({"=a", "7"}, "'=a"), _spelled_in({"7"}, "007"), _spelled_in({"7"}, "x")
    ('=a', '7', None)
    """
    for spelled in (name, name.removeprefix("'"), name.strip()):
        if spelled in ids:
            return spelled
    if name.strip().isdecimal():
        same = [one for one in ids if one.isdecimal() and int(one) == int(name)]
        return same[0] if len(same) == 1 else None
    return None


def open_verdicts(verdicts: Verdicts | str | Path) -> Verdicts:
    """Read the argument of a detection."""
    if isinstance(verdicts, str | Path):
        return Verdicts(verdicts)
    if not isinstance(verdicts, Verdicts):
        raise InputError(f"verdicts must be a conovel.Verdicts or a path, not {verdicts!r}")
    return verdicts
