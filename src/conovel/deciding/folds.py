"""The regime `consensus` in messages: rounds, checked counts of folds, and the decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from conovel.errors import CountOutOfRangeError, OutcomeMismatchError
from conovel.spec.bodies import FoldCounts, Outcome, Ready
from conovel.spec.consensus import N_FOLDS, Agreed, fold_sizes
from conovel.stats.cells import N_CELLS
from conovel.stats.consensus import (
    Calibration,
    Consensus,
    Fold,
    FoldHistograms,
    decide_folds,
)
from conovel.stats.levels import Level

COUNT_ROUNDS = tuple(range(1, 1 + N_FOLDS))


def check_counts(agent: str, ready: Ready, counts: FoldCounts, fold: int) -> None:
    """Check the counts of one fold against the numbers that an agent gave before.

    Raises
    ------
    CountOutOfRangeError
        If they are about other numbers of rows, or name a cell that does not exist.
    """
    sizes = fold_sizes(ready.n_tested)
    expected = (ready.n_calibration, sizes[fold], sizes[1 - fold])
    found = tuple(map(sum, (counts.calibration, counts.tests, counts.others)))
    if found != expected or counts.conforms > N_CELLS:
        raise CountOutOfRangeError(
            f"{agent} counts {found} rows in fold {fold + 1}, and has {expected}: calibration"
            " rows, tests of this fold, tests of the other",
            agent,
        )


def check_score(counts: Mapping[str, Sequence[FoldCounts]]) -> None:
    """Check that all agents scored with the same models; blame the first that did not."""
    digests = {name: [one.score for one in both] for name, both in sorted(counts.items())}
    every = [digest for both in digests.values() for digest in both]
    usual = max(sorted(set(every)), key=every.count)
    for name, both in digests.items():
        if any(digest != usual for digest in both):
            raise OutcomeMismatchError(
                f"{name} scored its rows with other models than the others: a peer sent it"
                " another model",
                name,
            )


def joined_folds(
    counts: Mapping[str, Sequence[FoldCounts]], ready: Mapping[str, Ready], types: Sequence[str]
) -> list[Fold]:
    """Add up the test rows of all agents in each fold; calibration rows stay apart by type.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    sizes = [fold_sizes(one.n_tested) for one in ready.values()]
    totals = [sum(size[fold] for size in sizes) for fold in range(N_FOLDS)]
    folds = []
    for fold in range(N_FOLDS):
        own = {name: both[fold] for name, both in counts.items()}
        tests, others = (
            tuple(map(sum, zip(*(getattr(one, kind) for one in own.values()), strict=True)))
            for kind in ("tests", "others")
        )
        known = tuple(
            Calibration(ready[name].n_calibration, own[name].calibration) for name in types
        )
        folds.append(Fold(totals[fold], totals[1 - fold], tests, others, known))
    return folds


def decide_consensus(
    counts: Mapping[str, Sequence[FoldCounts]],
    ready: Mapping[str, Ready],
    types: Sequence[str],
    level: Level,
) -> Consensus:
    """Decide over both folds of all agents.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    if not any(one.n_tested for one in ready.values()):
        return Consensus((N_CELLS,) * N_FOLDS, (0,) * N_FOLDS, (None,) * N_FOLDS)
    return decide_folds(joined_folds(counts, ready, types), level)


def told_limits(
    counts: Mapping[str, Sequence[FoldCounts]], participants: Sequence[str]
) -> tuple[int, ...]:
    """Return the limits of conforming of all participants, as an outcome has them."""
    return tuple(counts[name][fold].conforms for fold in range(N_FOLDS) for name in participants)


def fold_counts(histograms: FoldHistograms, score: bytes) -> Iterator[tuple[int, FoldCounts]]:
    """Give what an agent sends to the coordinator, with the round of each message."""
    for round_, fold in zip(COUNT_ROUNDS, histograms.folds, strict=True):
        counts = (fold.calibration, fold.tests, fold.others)
        yield round_, FoldCounts(*counts, fold.conforms, score)


def agreed_of(outcome: Outcome) -> Agreed | None:
    """Return what all agents agreed on; None in other regimes than `consensus`."""
    if not outcome.conforms:
        return None
    return Agreed(outcome.cells, {name: outcome.limits_of(name) for name in outcome.participants})


def fold_faults(
    histograms: FoldHistograms, outcome: Outcome, agent: str, n_tests: int
) -> Iterator[str]:
    """Name what in an outcome contradicts what an agent knows of its own folds."""
    n_folds, cells, limits = len(histograms.folds), outcome.cells, outcome.conforms
    if outcome.n_tests != n_tests:
        yield "another number of tests"
    if len(cells) != n_folds or max(cells) > N_CELLS:
        yield "cells that do not exist"
    if len(limits) != n_folds * len(outcome.participants) or max(limits) > N_CELLS:
        yield "not one limit for every agent"
    if outcome.limits_of(agent) != tuple(fold.conforms for fold in histograms.folds):
        yield "another limit than this agent's"
    if histograms.n_rejected(cells) > outcome.n_rejected:
        yield "fewer rejections than at this agent"
