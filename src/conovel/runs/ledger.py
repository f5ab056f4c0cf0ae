"""A ledger: batches that arrive over time, and one guarantee for all of them.

It holds the ranks that can still matter, and what each batch must have in common with the others.
What is listed follows from these alone (:mod:`conovel.stats.batches`, docs/theory.md, "Over
time"). :mod:`conovel.runs.ledger_file` reads and writes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.errors import BatchRefusedError, InputError
from conovel.runs.certificates import certificate_of_list
from conovel.runs.ledger_records import BatchFacts, Entry, LedgerUpdate, ListedRow, Needs
from conovel.spec.guarantee import Guarantee, over_time
from conovel.stats.batches import (
    LIST_MOST,
    LIST_SHARE,
    Batch,
    final_by_evidence,
    final_by_ranks,
    final_share,
    largest_listed_rank,
    level_share,
    list_by_evidence,
    list_by_ranks,
    rejections_reach,
)
from conovel.stats.levels import Level, as_level, as_whole
from conovel.stats.words import counted

MAX_BATCHES = 100_000
# From a level, and a share of the rows, to the place of each row's e-value, and the e-values
GiveEvidence: TypeAlias = Callable[
    [Fraction, Fraction], tuple[NDArray[np.int64], tuple[Fraction, ...]]
]


class Ledger:
    """Batches over time with one guarantee for the list of all flagged rows.

    Give it to `detect` with each batch, as an object or as the path of its file. With
    :meth:`conovel.AdaDetect.detect` every batch gets a score of its own. With
    :meth:`conovel.KeptDetector.detect` one kept score ranks all batches, and the list is that of
    BH on all rows so far, without loss.

    Parameters
    ----------
    level : float, str or Fraction
        At most this share of the list is expected to be false alarms, after any number of
        batches that is fixed in advance.
    final : bool
        Whether decisions are final. By default the list is decided anew after each batch: rows
        may join or leave it later. With `final` they stay as they are, and the bound holds at
        every time at once. It finds far fewer novelties.
    n_batches : int
        With `final`, the number of batches that share the level. One more is refused.

    Attributes
    ----------
    entries : list of Entry
        The batches so far.

    See Also
    --------
    conovel.AdaDetect : Takes it in `detect`.
    conovel.KeptDetector : One score for all batches.

    Examples
    --------
    >>> import conovel as cn
    >>> rng = np.random.default_rng(0)
    >>> detector = cn.AdaDetect("isolation-forest").keep(rng.normal(size=(2000, 3)))
    >>> ledger = cn.Ledger(level=0.1)
    >>> for day in range(3):
    ...     X = rng.normal(size=(100, 3))
    ...     X[:10] += 5
    ...     result = detector.detect(X, ledger=ledger)
    >>> [int(mask[:10].sum()) for mask in ledger.decisions()]
    [10, 10, 10]
    """

    certificate = certificate_of_list

    def __init__(self, level: Level = 0.1, final: bool = False, n_batches: int = 30) -> None:
        self.level = as_level(level)
        if not isinstance(final, bool | np.bool_):
            raise InputError(f"final must be True or False, not {final!r}")
        self.final = bool(final)
        self.n_batches = as_whole(n_batches, "n_batches", 1, MAX_BATCHES)
        self.entries: list[Entry] = []
        self.facts: BatchFacts | None = None
        self.list_size = 0  # in a network, the rows on the list over all agents
        self._known_limits: list[int] = []

    def __repr__(self) -> str:
        kind = f"final=True, n_batches={self.n_batches}" if self.final else "final=False"
        return (
            f"<Ledger level={self.level} {kind}: {counted(len(self.entries), 'batch')},"
            f" {counted(self.n_tests, 'row')} tested, {self.n_listed:,} listed>"
        )

    @property
    def n_tests(self) -> int:
        """Rows tested in all batches."""
        return sum(entry.batch.n_tests for entry in self.entries)

    @property
    def n_listed(self) -> int:
        """Rows on the list."""
        return len(self.listed())

    def decisions(self) -> list[NDArray[np.bool_]]:
        """Tell for every row of every batch whether it is on the list now."""
        return [
            entry.batch.mask(limit)
            for entry, limit in zip(self.entries, self._limits(), strict=True)
        ]

    def listed(self) -> list[ListedRow]:
        """Name the rows on the list, batch after batch."""
        pairs = zip(self.entries, self._limits(), strict=True)
        return [row for entry, limit in pairs for row in entry.listed(limit)]

    def _limits(self) -> list[int]:
        """Return for every batch the largest rank that is listed."""
        if self.in_network or len(self._known_limits) != len(self.entries):
            self._known_limits = self._decide([entry.batch for entry in self.entries])
        return self._known_limits

    def _decide(self, batches: list[Batch]) -> list[int]:
        if self.in_network:
            return [int(self.reaches(self.list_size, entry)) for entry in self.entries]
        if self.final:  # only what was rejected is held
            return [int(batch.ranks.max(initial=0)) for batch in batches]
        by_rank = self.facts is not None and self.facts.by_rank
        return (list_by_ranks if by_rank else list_by_evidence)(batches, self.level)

    @property
    def in_network(self) -> bool:
        """Whether several agents decide together about its batches."""
        return self.facts is not None and self.facts.score == "network"

    @property
    def history(self) -> list[tuple[int, int]]:
        """In a network, the tests and the rejections of every batch over all agents."""
        return [entry.network for entry in self.entries if entry.network is not None]

    def reaches(self, k: int, entry: Entry) -> bool:
        """Tell whether the rejected rows of a batch of a network have E ≥ M/(αk)."""
        total = sum(n_tests for n_tests, _ in self.history)
        return entry.network is not None and rejections_reach(k, *entry.network, total)

    def count(self, k: int) -> int:
        """Count the own rows, of all batches of a network, with E ≥ M/(αk)."""
        return sum(entry.batch.rows.size for entry in self.entries if self.reaches(k, entry))

    def needs(self, n_tests: int, n_calibration: int | None = None) -> Needs | None:
        """Say what a next batch of so many rows needs before any row can be flagged.

        None if the ledger is full and takes no further batch, in a network, and with strata.

        Parameters
        ----------
        n_tests : int
            Rows of the next batch.
        n_calibration : int, optional
            Calibration rows behind its ranks; those of the last batch if not given.
        """
        n_tests = as_whole(n_tests, "n_tests", 1)
        if self.in_network or (self.facts is not None and self.facts.strata):
            return None  # it depends on the other agents, or on the strata of its rows
        if n_calibration is None:
            n_calibration = self.entries[-1].batch.n_calibration if self.entries else 0
        if self.is_full:
            return None
        # A row of rank 1 is listed iff K ≥ m/(α(ℓ+1)), with all rows so far or, for final
        # decisions, with the rows of the batch and its share of the level.
        m, level = self.n_tests + n_tests, self.level
        if self.final:
            m, level = n_tests, level * level_share(len(self.entries) + 1, self.n_batches)
        return Needs(n_tests, math.ceil(m / (level * (n_calibration + 1))), self.n_listed)

    @property
    def is_full(self) -> bool:
        """Whether all batches that share the level are there."""
        return self.final and len(self.entries) >= self.n_batches

    def require(self, facts: BatchFacts) -> None:
        """Refuse a batch that the ledger must not take."""
        if self.is_full:
            raise BatchRefusedError(
                f"the ledger is full: its level was shared among {self.n_batches} batches with"
                " final decisions. Begin a new ledger"
            )
        if len(self.entries) >= MAX_BATCHES:
            raise BatchRefusedError(f"a ledger holds at most {MAX_BATCHES:,} batches: begin anew")
        for number, entry in enumerate(self.entries, 1):
            if entry.content == facts.content:
                raise BatchRefusedError(
                    f"the ledger has seen these rows: they are batch {number}, {entry.name!r}."
                    " A batch is counted once"
                )
        if self.facts is not None:
            _require_same(self.facts, facts)

    def add(
        self,
        ranks: NDArray[np.int64],
        n_calibration: int,
        facts: BatchFacts,
        ids: Sequence[Any] | NDArray[Any] | None = None,
        name: str | None = None,
        evidence: GiveEvidence | None = None,
    ) -> LedgerUpdate:
        """Take a batch and decide about all rows so far; see :meth:`require`.

        Parameters
        ----------
        ranks : int array of shape (m,)
        n_calibration : int
        facts : BatchFacts
        ids : sequence, optional
            Names of the rows.
        name : str, optional
            Of the batch; "batch 3" if not given.
        evidence : callable, optional
            With strata, gives the e-values of rows in the place of ranks.
        """
        self.require(facts)
        before, values = self.listed(), tuple[Fraction, ...]()
        self.facts = facts._replace(content="")
        if evidence is not None:
            number = len(self.entries) + 1
            plain = LIST_SHARE * self.level, LIST_MOST
            final = final_share(self.level, number, self.n_batches)
            ranks, values = evidence(*(final if self.final else plain))
        batch = Batch.of(ranks, n_calibration, n_calibration + 1, values)
        most = self._rank_to_hold(batch, len(before))
        self._append(Batch.of(ranks, n_calibration, most, values), facts, ids, name)
        return self.update_since(before)

    def add_of_network(
        self,
        rejected: NDArray[np.bool_],
        network: tuple[int, int],
        facts: BatchFacts,
        ids: Sequence[Any] | NDArray[Any] | None = None,
        name: str | None = None,
    ) -> None:
        """Take a batch of a network; all agents then agree on :attr:`list_size`.

        Parameters
        ----------
        rejected : bool array of shape (m,)
            What the run of the batch, at half the level, rejected here.
        network : (int, int)
            Its tests and its rejections over all agents.
        facts, ids, name
            As in :meth:`add`.
        """
        if self.final:
            raise InputError("a ledger of a network has no final decisions: take final=False")
        self.require(facts)
        self.facts = facts._replace(content="")
        rows = np.flatnonzero(rejected)
        batch = Batch(rejected.size, 1, rows, np.ones(rows.size, dtype=np.int64))
        self._append(batch, facts, ids, name, network)

    def _append(
        self,
        batch: Batch,
        facts: BatchFacts,
        ids: Sequence[Any] | NDArray[Any] | None,
        name: str | None,
        network: tuple[int, int] | None = None,
    ) -> None:
        names = None if ids is None else tuple(str(ids[i]) for i in batch.rows.tolist())
        number = len(self.entries) + 1
        title = f"batch {number}" if name is None else name
        if any(entry.name == title for entry in self.entries):
            title = f"{title} (batch {number})"
        self.entries.append(Entry(title, facts.content, batch, names, network))

    def update_since(self, before: Sequence[ListedRow]) -> LedgerUpdate:
        """Say what the last batch changed on a list."""
        after, last = self.listed(), self.entries[-1]
        earlier, later = set(before), set(after)
        return LedgerUpdate(
            number=len(self.entries),
            name=last.name,
            rejected=self.decisions()[-1],
            n_listed=len(after),
            n_tests=self.n_tests,
            joined=tuple(row for row in after if row not in earlier),
            left=tuple(row for row in before if row not in later),
            needs=self.needs(last.batch.n_tests),
            guarantee=self.guarantee,
            is_full=self.is_full,
        )

    @property
    def guarantee(self) -> Guarantee:
        """What holds for the list."""
        score = "kept" if self.facts is None else self.facts.score
        within = self.facts is not None and self.facts.strata
        return over_time(self.level, score, final=self.final, within=bool(within))

    def _rank_to_hold(self, batch: Batch, n_before: int) -> int:
        """Return the largest rank that can still matter once the batch is decided."""
        if not self.final:
            size = batch.n_calibration
            return len(batch.values) - 1 if batch.values else largest_listed_rank(self.level, size)
        return final_limit(self, batch, n_before)

    def save(self, path: str | Path) -> None:
        """Write the ledger to a file, whole or not at all."""
        from conovel.runs.ledger_file import write_ledger  # noqa: PLC0415  (it imports this)

        write_ledger(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Ledger:
        """Read what :meth:`save` wrote, and check it."""
        from conovel.runs.ledger_file import read_ledger  # noqa: PLC0415

        return read_ledger(Path(path))


def final_limit(ledger: Ledger, batch: Batch, n_before: int) -> int:
    """Decide the next batch for good: return the largest rank that is rejected."""
    by_rank = ledger.facts is not None and ledger.facts.by_rank
    decide = final_by_ranks if by_rank else final_by_evidence
    return decide(batch, n_before, ledger.level, len(ledger.entries) + 1, ledger.n_batches)


def _require_same(before: BatchFacts, facts: BatchFacts) -> None:
    if before.score != facts.score:
        raise BatchRefusedError(
            f"the ledger has {before.score} scores, and this batch a {facts.score} one: go on as"
            " it was begun, or begin a new ledger"
        )
    if before.schema != facts.schema:
        raise BatchRefusedError(
            "this batch has other columns than the earlier ones: give the same columns, or begin a"
            " new ledger"
        )
    if before.source != facts.source:
        others = {"kept": "another detector", "refitted": "other known normals"}
        what = others.get(before.score, "other known normals, or other settings of the network,")
        raise BatchRefusedError(
            f"this batch was scored with {what} than the earlier ones: use the same, or begin a"
            " new ledger"
        )
    changed = sorted({name for name, _ in {*before.settings} ^ {*facts.settings}})
    if before.settings and changed:  # files of format 1 have none
        raise BatchRefusedError(
            f"this batch has another {', '.join(changed)} than the earlier ones: a setting that"
            " was changed because of a list breaks the guarantee. Go on as it was begun, or begin"
            " a new ledger"
        )
