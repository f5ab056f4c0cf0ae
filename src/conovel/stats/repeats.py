"""Several runs on the same rows as one decision: evidence averaged over the runs, then e-BH.

Run b rejects R_b of the m rows that are tested, at level β = 2α/5. Its evidence for row i is
m 1{i rejected}/(β R_b), the evidence of all B runs is the average

    E_i  =  (1/B) Σ_b  m 1{i rejected in run b} / (β R_b),

and e-BH at level α decides (docs/theory.md, Lemma 9). Whoever knows m, R_1..R_B and which runs
rejected its own rows knows the evidence of its own rows. So several agents decide by counts:
:func:`count_rounds`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError
from conovel.stats.evidence import Evidence, averaged
from conovel.stats.resolution import Resolution, resolution

# β/α. docs/results/repeats.md has the measurement behind it.
RUN_SHARE = Fraction(2, 5)


class EvidenceRound(NamedTuple):
    """One question, "how many of your rows have E ≥ m/(αk)?", and everybody's count.

    See Also
    --------
    conovel.NetworkRun : Has all rounds as `evidence_rounds`.
    """

    k: int
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """The counts of all agents together."""
        return sum(self.counts.values())


@dataclass(frozen=True, eq=False)
class Repeated:
    """What B runs say about the rows of one agent.

    Attributes
    ----------
    level : Fraction
        The level α of e-BH.
    seeds : tuple of int
        The seed of each run.
    n_rejected : tuple of int
        R_b, the rejections of each run over all agents that decide together.
    n_tests : int
        m, the tested rows of all agents that decide together.
    flags : bool array of shape (B, number of rows here)
        Whether each run rejected the row.

    Examples
    --------
    >>> flags = np.array([[True, False], [True, True]])
    >>> both = Repeated(Fraction(1, 5), (3, 4), (1, 2), 2, flags)
    >>> both.times_flagged, both.evidence.to_list()
    (array([2, 1]), [Fraction(75, 4), Fraction(25, 4)])
    >>> both.at_least(1)
    array([ True, False])
    """

    level: Fraction
    seeds: tuple[int, ...]
    n_rejected: tuple[int, ...]
    n_tests: int
    flags: NDArray[np.bool_]

    @property
    def repeats(self) -> int:
        """The number B of runs."""
        return len(self.n_rejected)

    @property
    def run_level(self) -> Fraction:
        """The level β of each run."""
        return run_level(self.level)

    @cached_property
    def times_flagged(self) -> NDArray[np.int64]:
        """In how many runs each row was rejected."""
        return np.asarray(self.flags.sum(axis=0), dtype=np.int64)

    @cached_property
    def evidence(self) -> Evidence:
        """The e-value of each row, averaged over the runs."""
        return averaged(
            [
                Evidence((Fraction(0), self._value(size)), mask.astype(np.int64))
                for mask, size in zip(self.flags, self.n_rejected, strict=True)
            ]
        )

    @property
    def e_values(self) -> NDArray[np.float64]:
        """The e-value of each row as a float, for people; decisions use the exact ones."""
        evidence = self.evidence
        return np.array([float(value) for value in evidence.values])[evidence.codes]

    def _value(self, n_rejected: int) -> Fraction:
        return self.n_tests / (self.run_level * n_rejected) if n_rejected else Fraction(0)

    def at_least(self, k: int) -> NDArray[np.bool_]:
        """Tell which rows have E ≥ m/(αk); none for k = 0.

        Proof: Lemma 9 (docs/theory.md#lem-e-bh).
        """
        evidence = self.evidence
        enough = [k > 0 and value * self.level * k >= self.n_tests for value in evidence.values]
        return np.array(enough, dtype=np.bool_)[evidence.codes]

    def spelled_flags(self) -> NDArray[np.str_]:
        """Write for each row one character per run: F where the run rejected it, else a dot.

        Letters, not digits: a CSV file of digits would be read as numbers.
        """
        letters = np.ascontiguousarray(np.where(self.flags.T, "F", "."))
        return letters.view(f"U{self.repeats}").ravel()


def count_rounds(parts: Mapping[str, Repeated]) -> tuple[EvidenceRound, ...]:
    """Run e-BH over several agents by counts; the total of the last round is its k.

    It begins with k = m. Each round asks how many rows have E ≥ m/(αk), and the answer is the
    next k, until it stays (docs/theory.md, "Several splits").

    Proof: Lemma 9 (docs/theory.md#lem-e-bh).
    """
    rounds: list[EvidenceRound] = []
    k = next(iter(parts.values())).n_tests
    while k and (not rounds or rounds[-1].k != k):
        counts = {
            name: int(np.count_nonzero(part.at_least(k))) for name, part in sorted(parts.items())
        }
        rounds.append(EvidenceRound(k, counts))
        k = rounds[-1].total
    return tuple(rounds)


class Combined(NamedTuple):
    """What B runs decide together, by the name of the agent.

    `rounds` are the counts behind it; none where each agent decides for itself.
    """

    parts: dict[str, Repeated]
    rounds: tuple[EvidenceRound, ...]
    rejected: dict[str, NDArray[np.bool_]]


def combine(
    flags: Mapping[str, NDArray[np.bool_]],
    n_tested: Mapping[str, int],
    level: Fraction,
    seeds: Sequence[int],
    *,
    alone: bool = False,
) -> Combined:
    """Decide about the rows of some agents by what B runs rejected: `flags` of shape (B, rows).

    With `alone`, each agent decides for itself, about its own rows only.
    """
    groups = [[name] for name in flags] if alone else [list(flags)]
    parts: dict[str, Repeated] = {}
    rejected: dict[str, NDArray[np.bool_]] = {}
    rounds: tuple[EvidenceRound, ...] = ()
    for group in groups:
        totals = sum(np.count_nonzero(flags[name], axis=1) for name in group)
        sizes, m = tuple(np.asarray(totals).tolist()), sum(n_tested[name] for name in group)
        own = {name: Repeated(level, tuple(seeds), sizes, m, flags[name]) for name in group}
        rounds_of_group = count_rounds(own)
        k = rounds_of_group[-1].total if rounds_of_group else 0
        rejected |= {name: part.at_least(k) for name, part in own.items()}
        parts |= own
        rounds = () if alone else rounds_of_group
    return Combined(parts, rounds, rejected)


def run_level(level: Fraction) -> Fraction:
    """Return the level β of each run."""
    return level * RUN_SHARE


def repeated_resolution(n_calibration: int, m: int, level: Fraction) -> Resolution:
    """Return how few of m rows of one site can be rejected together by the evidence of B runs.

    A run that rejects anything rejects at least f rows, so no row has more evidence than
    m/(βf), and e-BH needs k ≥ βf/α.
    """
    each = resolution(n_calibration, m, run_level(level))
    whole = resolution(n_calibration, m, level)
    fewest = each.fewest if each.fewest > m else math.ceil(each.fewest * RUN_SHARE)
    return whole._replace(fewest=fewest, rows_for_any=each.rows_for_any)


def read_flags(texts: Sequence[str], repeats: int) -> NDArray[np.bool_]:
    """Read what :meth:`Repeated.spelled_flags` wrote; :class:`InputError` for anything else."""
    for row, text in enumerate(texts):
        if not isinstance(text, str) or len(text) != repeats or set(text) - {"F", "."}:
            raise InputError(f"row {row} has no F or dot for each of {repeats} runs, but {text!r}")
    letters = [[letter == "F" for letter in text] for text in texts]
    return np.array(letters, dtype=np.bool_).reshape(len(texts), repeats).T
