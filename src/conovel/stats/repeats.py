"""Several runs on the same rows as one decision: evidence averaged over the runs, then e-BH.

Run b rejects R_b of the m rows that are tested, at level β. The evidence of all B runs for row i
is the average

    E_i  =  (1/B) Σ_b  e_b 1{i rejected in run b}.

Where ranks decide and the nulls are not estimated, e_b = (ℓ+1)/L_b, with L_b = floor(β R_b(ℓ+1)/m)
the largest rank that the run allows. Elsewhere e_b = m/(β R_b), which is not larger. One site
decides by closed e-BH at level α, and several that count together by e-BH (docs/theory.md, Lemmas
9 and 11). Whoever knows m, R_1..R_B and which runs rejected its own rows knows the evidence of its
own rows. So several agents decide by counts: :func:`count_rounds`.
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
from conovel.stats.evidence import Evidence, averaged, closed_e_bh
from conovel.stats.resolution import Resolution, rank_limit, resolution


class Averaging(NamedTuple):
    """How the evidence of several runs decides."""

    by_limit: bool  # the evidence of a run is (ℓ+1)/L, not m/(βR)
    closed: bool  # closed e-BH decides, not e-BH
    share: Fraction  # β/α; docs/results/repeats.md has the measurements behind it

    @property
    def name(self) -> str:
        """What decides, in words."""
        return "closed e-BH" if self.closed else "e-BH"


FEW_NORMALS = 60  # α times the known normals of a site: below, its runs have a larger level
ALONE = Averaging(True, True, Fraction(3, 5))  # whoever decides about its own rows only
COUNTED = Averaging(True, False, Fraction(2, 5))  # several agents, by counts of ranks
PLAIN = Averaging(False, False, Fraction(2, 5))  # everything else with a proven bound


def averaging(deciding: str, *, estimates_nulls: bool) -> Averaging:
    """Choose how several runs decide together, from the way in which each decides.

    Proof: Lemma 9 (docs/theory.md#lem-e-bh), Lemma 11 (docs/theory.md#lem-closed).

    Examples
    --------
    >>> averaging("isolated", estimates_nulls=False).name
    'closed e-BH'
    """
    if estimates_nulls:
        return PLAIN
    return {"isolated": ALONE, "counts": COUNTED}.get(deciding, PLAIN)


def averaging_alone(level: Fraction, n_null: int, *, estimates_nulls: bool) -> Averaging:
    """Choose how several runs at one site decide together, from numbers of rows alone.

    With few known normals a run rejects many rows or none, and a larger level helps most.

    Examples
    --------
    >>> [str(averaging_alone(Fraction(1, 10), n, estimates_nulls=False).share) for n in (599, 600)]
    ['3/5', '1/2']
    """
    rule = averaging("isolated", estimates_nulls=estimates_nulls)
    if rule.closed and level * n_null >= FEW_NORMALS:
        return rule._replace(share=Fraction(1, 2))
    return rule


def averaging_of(level: Fraction, run_level: Fraction) -> Averaging:
    """Return how several runs of this level decide together at one site."""
    share = run_level / level
    return PLAIN if share == PLAIN.share else ALONE._replace(share=share)


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
    run_level : Fraction
        The level β of each run.
    n_calibration : int or None
        ℓ, if the evidence of a run is (ℓ+1)/L; None if it is m/(βR).

    Examples
    --------
    >>> flags = np.array([[True, False], [True, True]])
    >>> both = Repeated(Fraction(1, 5), (3, 4), (1, 2), 2, flags, Fraction(2, 25))
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
    run_level: Fraction
    n_calibration: int | None = None

    @property
    def repeats(self) -> int:
        """The number B of runs."""
        return len(self.n_rejected)

    @cached_property
    def times_flagged(self) -> NDArray[np.int64]:
        """In how many runs each row was rejected."""
        return np.asarray(self.flags.sum(axis=0), dtype=np.int64)

    @cached_property
    def evidence(self) -> Evidence:
        """The e-value of each row, averaged over the runs."""
        return averaged(
            [
                Evidence((Fraction(0), self._of_run(size)), mask.astype(np.int64))
                for mask, size in zip(self.flags, self.n_rejected, strict=True)
            ]
        )

    @property
    def e_values(self) -> NDArray[np.float64]:
        """The e-value of each row as a float, for people; decisions use the exact ones."""
        evidence = self.evidence
        return np.array([float(value) for value in evidence.values])[evidence.codes]

    def _of_run(self, n_rejected: int) -> Fraction:
        """Return the evidence of a run with R rejections about a row that it rejects here.

        Proof: Lemma 9 (docs/theory.md#lem-e-bh).
        """
        if not n_rejected:
            return Fraction(0)
        slope = self.run_level / self.n_tests
        if self.n_calibration is None:
            return 1 / (slope * n_rejected)
        limit = rank_limit(slope, n_rejected, self.n_calibration)
        return Fraction(self.n_calibration + 1, limit) if limit else Fraction(0)

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
    rule: Averaging,
    n_calibration: Mapping[str, int],
    *,
    alone: bool = False,
) -> Combined:
    """Decide about the rows of some agents by what B runs rejected: `flags` of shape (B, rows).

    With `alone`, each agent decides for itself, about its own rows only. `n_calibration`, the same
    in all runs, is used if the evidence follows from limits on ranks.
    """
    groups = [[name] for name in flags] if alone else [list(flags)]
    parts: dict[str, Repeated] = {}
    rejected: dict[str, NDArray[np.bool_]] = {}
    rounds: tuple[EvidenceRound, ...] = ()
    beta = run_level(level, rule)
    for group in groups:
        totals = sum(np.count_nonzero(flags[name], axis=1) for name in group)
        sizes, m = tuple(np.asarray(totals).tolist()), sum(n_tested[name] for name in group)
        sizes_of_limits = {name: n_calibration[name] if rule.by_limit else None for name in group}
        own = {
            name: Repeated(level, tuple(seeds), sizes, m, flags[name], beta, sizes_of_limits[name])
            for name in group
        }
        parts |= own
        if rule.closed:
            rejected |= {name: closed_e_bh(part.evidence, level) for name, part in own.items()}
            continue
        rounds_of_group = count_rounds(own)
        k = rounds_of_group[-1].total if rounds_of_group else 0
        rejected |= {name: part.at_least(k) for name, part in own.items()}
        rounds = () if alone else rounds_of_group
    return Combined(parts, rounds, rejected)


def run_level(level: Fraction, rule: Averaging) -> Fraction:
    """Return the level β of each run."""
    return level * rule.share


def repeated_resolution(
    n_calibration: int, m: int, level: Fraction, rule: Averaging
) -> Resolution:
    """Return how few of m rows of one site can be rejected together by the evidence of B runs.

    A run that rejects anything rejects at least f rows. With the evidence m/(βR) no row has more
    than m/(βf), and e-BH needs k ≥ βf/α. Closed e-BH has no such limit: it can reject one row.
    """
    each = resolution(n_calibration, m, run_level(level, rule))
    whole = resolution(n_calibration, m, level)
    fewest = each.fewest
    if fewest <= m:
        fewest = 1 if rule.closed else math.ceil(fewest * rule.share)
    return whole._replace(fewest=fewest, rows_for_any=each.rows_for_any)


def read_flags(texts: Sequence[str], repeats: int) -> NDArray[np.bool_]:
    """Read what :meth:`Repeated.spelled_flags` wrote; :class:`InputError` for anything else."""
    for row, text in enumerate(texts):
        if not isinstance(text, str) or len(text) != repeats or set(text) - {"F", "."}:
            raise InputError(f"row {row} has no F or dot for each of {repeats} runs, but {text!r}")
    letters = [[letter == "F" for letter in text] for text in texts]
    return np.array(letters, dtype=np.bool_).reshape(len(texts), repeats).T
