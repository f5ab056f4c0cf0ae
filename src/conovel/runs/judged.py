"""What earlier verdicts mean for a detection: who trains, who calibrates, what is written down.

Known normals have one of three roles. Fresh ones are split as ever. Spent ones, and rows that were
tested in a batch whose verdicts have trained, train only. Rows that were tested in another batch
are left out: who takes them for normal learns from a decision about them.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import BatchRefusedError, InputError, SpentRowsError
from conovel.rows.chained_lines import LogEntry, now
from conovel.rows.pairs import stacked, without_kinds
from conovel.rows.samples import Table, part_of, read_sample
from conovel.rows.schemas import SchemaLike, as_schema
from conovel.rows.tables import Rows
from conovel.runs.detection import Detection
from conovel.runs.site_results import with_part
from conovel.runs.spent_rows import Copies, first_copies, row_digests, same_rows, spent_mask
from conovel.runs.verdict_file import Content, Digests, sample_digest, sample_entry
from conovel.runs.verdict_rows import (
    judged_batches,
    judged_rows,
    recorded,
    require_columns,
    rows_tested_in,
    spent_by,
    stored_rows,
    usable_rows,
)
from conovel.runs.verdicts import Verdicts, open_verdicts
from conovel.spec.findings import Finding
from conovel.spec.guarantee import with_verdicts
from conovel.stats.words import counted

_SAME = Fraction(1, 10)  # with so many of its rows, a batch is tested again

if TYPE_CHECKING:
    from conovel.runs.one_site import OneSiteSettings

_FEW = Fraction(1, 20)  # with so many calibration rows, this share of the rows can be flagged


def enough_rows(level: Fraction) -> int:
    """Return how many fresh known normals are left, at least, before new verdicts train.

    Examples
    --------
    >>> enough_rows(Fraction(1, 10))
    199
    """
    return math.ceil(1 / (level * _FEW)) - 1


@dataclass(frozen=True)
class VerdictUpdate:
    """What verdicts did in a detection: the part "verdicts" of a result.

    Attributes
    ----------
    file : str
        The file of verdicts.
    batch : str
        What it calls the batch of this detection.
    batches : tuple of str
        The batches from which the score may have learnt: their known normals are spent.
    waiting : tuple of str
        Judged batches from which it did not, because too few known normals would be left.
    n_novel, n_normal : int
        Rows with a verdict that trained the score.
    n_spent, n_left, n_left_out : int
        Known normals that are spent, that may still calibrate or train, and that were tested in
        an earlier batch and have no part.
    n_fresh : int
        Known normals that no earlier batch had. So many would be left if all verdicts trained.
    """

    file: str
    batch: str
    batches: tuple[str, ...]
    waiting: tuple[str, ...]
    n_novel: int
    n_normal: int
    n_spent: int
    n_left: int
    n_left_out: int
    n_fresh: int


@dataclass(frozen=True, eq=False)
class Judged:
    """A detection with verdicts, before it is made."""

    verdicts: Verdicts
    content: Content
    trains: frozenset[int]  # numbers of the batches whose verdicts train
    waiting: tuple[int, ...]
    known_normals: Digests  # of all rows that were given
    tested: Digests
    null: Rows | Table  # without rows that have no part; then the rows that were judged normal
    test: Rows | Table
    train_only: NDArray[np.bool_]  # which rows of `null` never calibrate
    novel: Rows | Table | None  # rows that were judged novel
    update: VerdictUpdate = field(repr=False)
    name: str | None = None  # what the batch is to be called

    @property
    def source(self) -> str:
        """What a ledger compares: batches of one list have one file of verdicts."""
        return hashlib.sha256(b"verdicts" + self.content.key.encode()).hexdigest()

    @property
    def stage(self) -> str:
        """What a progress display shows."""
        update = self.update
        n_rows = update.n_novel + update.n_normal
        return (
            f"learning from {counted(n_rows, 'verdict')};"
            f" {counted(update.n_left, 'known normal')} left to calibrate"
        )

    def known_with(self, X_known: Any, schema: SchemaLike) -> Any:
        """Return known novelties that were given, and below them rows that were judged novel."""
        if X_known is None:
            return self.novel
        rows, _ = without_kinds(X_known, self.null)
        given = read_sample(rows, "X_known", self.null.columns, as_schema(schema))
        others = recorded(self.content) - self.trains
        tested = rows_tested_in(self.content, others)
        if again := int(same_rows(row_digests(given, self.content.key), tested).sum()):
            raise InputError(
                f"{counted(again, 'row')} of X_known were tested in a batch from which the score"
                " does not learn yet: leave them out. Verdicts bring them when they may train"
            )
        return X_known if self.novel is None else stacked(given, self.novel)

    def findings(self) -> tuple[Finding, ...]:
        """Say how many known normals are left, and what has no part."""
        update, listed = self.update, []
        numbers = {"n_spent": update.n_spent, "n_left": update.n_left, "n_fresh": update.n_fresh}
        fresh = "append fresh known normals to the others"
        if update.batches:
            message = (
                f"{counted(update.n_spent, 'known normal')} spent, because verdicts that they"
                f" decided train the score; {update.n_left:,} left to calibrate"
            )
            fix = f"{fresh} before further verdicts train: they will spend those of today"
            listed.append(Finding("spent", message, fix, numbers=numbers))
        if update.waiting:
            message = (
                f"verdicts on {counted(len(update.waiting), 'batch')} wait: if the score learnt"
                f" from them, {counted(update.n_fresh, 'known normal')} would be left to calibrate"
            )
            listed.append(Finding("spent", message, fresh, numbers=numbers))
        if update.n_left_out:
            message = (
                f"{counted(update.n_left_out, 'known normal')} left out: an earlier batch tested"
                " them, and it has not trained the score"
            )
            fix = "leave tested rows out of the known normals"
            listed.append(Finding("spent", message, fix, numbers={"n": update.n_left_out}))
        return tuple(listed)

    def note_training(self) -> None:
        """Write down that verdicts train, before anybody sees what came of it."""
        new = sorted(self.trains - self.content.trained)
        entries: list[LogEntry] = []
        if new:
            entries.append({"entry": "trained", "time": now(), "batches": new})
        self.verdicts.record(entries, expected=set(self.trains))

    def record(self, result: Detection) -> Detection:
        """Write the batch down, and say in the result what verdicts did."""
        rows = np.flatnonzero(result.rejected)
        names = [str(i) if result.ids is None else str(result.ids[i]) for i in rows.tolist()]
        samples = self.known_normals, self.tested
        digests = tuple(map(sample_digest, samples))
        content = self.verdicts.read()
        for one in reversed(content.batches):
            if (one.normals, one.tested, one.ids) == (*digests, names):
                title = one.name  # the same detection again
                break
        else:
            title = free_title(content, self.name)
            batch: LogEntry = {"entry": "batch", "time": now(), "name": title}
            batch["agent"] = result.name
            about = {"level": str(result.level), "n_tests": result.rejected.size, "ids": names}
            batch |= (
                {"normals": digests[0], "tested": digests[1]}
                | about
                | stored_rows(self.test, rows)
            )
            self.verdicts.record([*map(sample_entry, samples), batch])
        part = replace(self.update, batch=title)
        guarantee = with_verdicts(result.guarantee) if self.trains else result.guarantee
        return with_part(result, "verdicts", part, guarantee=guarantee)


def free_title(content: Content, name: str | None) -> str:
    """Return a name for a batch that no other has."""
    number = len(content.batches) + 1
    title = f"batch {number}" if name is None else name[:4000]
    if any(one.name == title for one in content.batches):
        title = f"{title} (batch {number})"
    return title


def plan_judged(
    given: Verdicts | str | Path,
    X_null: Any,
    X_test: Any,
    schema: SchemaLike,
    settings: OneSiteSettings,
    name: str | None = None,
) -> Judged:
    """Say who trains and who calibrates, from the content of rows and numbers alone.

    Proof: Theorem 20 (docs/theory.md#thm-verdicts).
    """
    verdicts, given_schema = open_verdicts(given), as_schema(schema)
    null = read_sample(X_null, "X_null", None, given_schema)
    test = read_sample(X_test, "X_test", null.columns, given_schema)
    content = verdicts.read()
    if not content.key:
        verdicts.record([])  # begins the file, with its key
        content = verdicts.read()
    require_columns(content, null)
    digests, tested = (row_digests(sample, content.key) for sample in (null, test))
    n_fresh = _n_fresh(content, digests)
    trains, waiting = _training_batches(verdicts, content, n_fresh, settings.level)
    _require_new_tests(content, trains, tested)
    roles = _roles_of(content, digests, trains)
    if not roles.n_left:
        raise _none_left(int(roles.spent.sum()), verdicts, waiting)
    kept = np.flatnonzero(~roles.left_out)
    rows = null if kept.size == len(null) else part_of_sample(null, kept)
    train_only = (roles.spent | roles.judged)[kept]
    # Within an epoch no verdict may follow from what its batches flagged.
    held = content.verdicts if trains > content.trained else content.settled
    novel = usable_rows(judged_rows(content, "novel", trains, held), null, test)
    normal = judged_rows(content, "normal", trains, held)
    if normal is not None and not settings.keep_frames:  # a pipeline has the rows of one frame
        own = row_digests(normal, content.key)
        extra = np.flatnonzero(~first_copies(own, Copies.of(digests)))
        rows = stacked(rows, part_of(normal, extra)) if extra.size else rows
        train_only = np.append(train_only, np.ones(extra.size, dtype=np.bool_))
    names = [one.name for one in content.batches]
    update = VerdictUpdate(
        file=str(verdicts.path),
        batch="",
        batches=tuple(names[number - 1] for number in sorted(trains)),
        waiting=tuple(names[number - 1] for number in waiting),
        n_novel=0 if novel is None else len(novel),
        n_normal=0 if normal is None else len(normal),
        n_spent=int(roles.spent.sum()),
        n_left=roles.n_left,
        n_left_out=int(roles.left_out.sum()),
        n_fresh=n_fresh,
    )
    return Judged(
        verdicts=verdicts,
        content=content,
        trains=frozenset(trains),
        waiting=waiting,
        known_normals=digests,
        tested=tested,
        null=rows,
        test=test,
        train_only=train_only,
        novel=novel,
        update=update,
        name=name,
    )


class _Roles(NamedTuple):
    """Which known normals are spent, were tested in a batch that trains, and have no part."""

    spent: NDArray[np.bool_]
    judged: NDArray[np.bool_]
    left_out: NDArray[np.bool_]

    @property
    def n_left(self) -> int:
        return int((~self.spent & ~self.judged & ~self.left_out).sum())


def _roles_of(content: Content, digests: Digests, trains: set[int]) -> _Roles:
    spent = spent_mask(digests, spent_by(content, trains))
    judged = same_rows(digests, rows_tested_in(content, trains)) & ~spent
    others = set(range(1, len(content.batches) + 1)) - trains
    left_out = same_rows(digests, rows_tested_in(content, others)) & ~spent & ~judged
    return _Roles(spent, judged, left_out)


def _n_fresh(content: Content, digests: Digests) -> int:
    """Count the known normals that no earlier batch had; none is if that cannot be told."""
    try:
        used = spent_mask(digests, spent_by(content, recorded(content)))
    except SpentRowsError:
        return 0
    return int((~used).sum())


def _training_batches(
    verdicts: Verdicts, content: Content, n_fresh: int, level: Fraction
) -> tuple[set[int], tuple[int, ...]]:
    """Say which batches train, and which wait because too few rows would be left.

    Where new verdicts train, a new epoch begins: whatever batches came before may train, and all
    their known normals are spent. When it begins does not follow from what was flagged, if rows
    are judged at times that do not.
    """
    before = set(content.trained)
    new = recorded(content) - before
    waiting = tuple(sorted(new & judged_batches(content)))
    begins = verdicts.learn
    if begins is None:
        begins = bool(waiting) and n_fresh >= enough_rows(level)
    return (before | new, ()) if begins else (before, waiting)


def _require_new_tests(content: Content, trains: set[int], tested: Digests) -> None:
    """Refuse the rows of a batch from which the score learns; a few may agree by chance."""
    for number in sorted(trains):
        again = int(same_rows(tested, rows_tested_in(content, {number})).sum())
        if again > _SAME * tested.size:
            raise BatchRefusedError(
                f"{counted(again, 'row')} of X_test were tested in batch"
                f" {content.batches[number - 1].name!r}, and verdicts on that batch train the"
                " score: test new rows, or take another file of verdicts and fresh known normals"
            )


def _none_left(n_spent: int, verdicts: Verdicts, waiting: tuple[int, ...]) -> SpentRowsError:
    advice = "collect fresh known normals and append them to the others"
    if verdicts.learn and not waiting:
        advice += "; or give Verdicts(path, learn=False), or --no-learn, so that new verdicts wait"
    return SpentRowsError(
        f"no known normal is left to calibrate: {n_spent:,} are spent, because verdicts that they"
        f" decided train the score: {advice}"
    )


def part_of_sample(sample: Rows | Table, places: NDArray[np.intp]) -> Rows | Table:
    """Take some rows of a sample, and of its frame."""
    part = part_of(sample, places)
    frame = None if sample.frame is None else sample.frame[places.tolist()]
    return replace(part, frame=frame, contents=sample.contents)
