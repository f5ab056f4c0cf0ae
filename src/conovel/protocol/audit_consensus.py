"""Deriving again what a run of the regime `consensus` decided, from its counts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from conovel.deciding.folds import check_counts, check_score, decide_consensus, told_limits
from conovel.errors import InputError
from conovel.protocol.transcript import Sizes, Transcript
from conovel.spec.bodies import Kind, Outcome
from conovel.spec.consensus import N_FOLDS, fold_sizes, told_types, types_of
from conovel.spec.groups import Numbers
from conovel.stats.cells import N_CELLS, reaches


def planned_types(transcript: Transcript, outcome: Outcome) -> tuple[str, ...]:
    """Derive who is a type from the hellos of everybody on the roster."""
    sizes = {name: transcript.agents[name] for name in transcript.roster}
    numbers = {name: Numbers(one.n_null, one.n_test) for name, one in sizes.items()}
    if not all(0 <= n < 1 << 64 for rows in numbers.values() for n in rows):
        raise InputError("a number of rows is negative, or too large for a HELLO")
    n_invited = len({*outcome.participants, *outcome.left_out, *outcome.dropped})
    return types_of(numbers, transcript.settings, n_invited)


def outcome_findings(
    transcript: Transcript, sizes: Mapping[str, Sizes], outcome: Outcome
) -> Iterator[str]:
    """Check that types, the lowest rejected cells and the number of rejections follow."""
    n_tests = sum(s.n_tested for s in sizes.values())
    if transcript.rounds or transcript.histograms or transcript.rooms:
        yield "consensus has counts of folds, and no other counts"
    if any(one.n_wanted for one in transcript.agents.values()):
        yield "consensus has no floors, and an agent asks for room above one"
    if any(transcript.left.values()) or set(transcript.left) & set(transcript.roster):
        yield "consensus needs every agent of the roster, and one left"
    yield from _seal_findings(transcript, sizes)
    if transcript.n_tests != n_tests:
        yield f"the counts began with {transcript.n_tests} tests, not {n_tests}"
    types = planned_types(transcript, outcome)
    told = dict(zip(transcript.roster, told_types(types, transcript.roster), strict=True))
    if transcript.weights != told:
        yield "the types of the roster are not those that follow from the hellos"
    yield from _count_findings(transcript, sizes, outcome, types)


def _seal_findings(transcript: Transcript, names: Collection[str]) -> Iterator[str]:
    """Check that each agent sealed its second models once, and was told all seals once."""
    sent = [e.sender for e in transcript.entries if e.kind == Kind.SEAL.name]
    told = [e.receiver for e in transcript.entries if e.kind == Kind.SEALED.name]
    if not sorted(sent) == sorted(told) == sorted(names):
        yield "not every agent sealed its second models and was told all seals"


def _count_findings(
    transcript: Transcript, sizes: Mapping[str, Sizes], outcome: Outcome, types: Sequence[str]
) -> Iterator[str]:
    """Check the counts of all agents and what follows from them."""
    folds = {name: transcript.folds.get(name, []) for name in sizes}
    if set(transcript.folds) != set(sizes) or any(len(both) != N_FOLDS for both in folds.values()):
        yield "the counts of some fold are missing"
        return
    ready = {name: s.ready for name, s in sizes.items()}
    for name, both in folds.items():
        for fold, counts in enumerate(both):
            check_counts(name, ready[name], counts, fold)
    check_score(folds)
    found = decide_consensus(folds, ready, types, transcript.settings.level)
    n_rejected = sum(found.n_rejected)
    if (outcome.n_rejected, outcome.slope, outcome.rounds) != (n_rejected, Fraction(0), N_FOLDS):
        yield f"the outcome has {outcome.n_rejected} rejections, the counts {n_rejected}"
    if outcome.cells != found.cells:
        yield f"the lowest rejected cells are {outcome.cells}, and follow to be {found.cells}"
    if outcome.conforms != told_limits(folds, outcome.participants):
        yield "the limits of conforming are not those that the agents told"


def foreign_findings(transcript: Transcript) -> Iterator[str]:
    """Check that a run of another regime has nothing that only `consensus` has."""
    conforms = transcript.outcome.conforms if transcript.outcome else ()
    seals = {Kind.SEAL.name, Kind.SEALED.name} & {entry.kind for entry in transcript.entries}
    if seals:
        yield f"{transcript.settings.regime.name} seals no models, and here are seals"
    if transcript.folds or conforms:
        yield f"{transcript.settings.regime.name} has no folds, and here are some"


def decision_findings(
    transcript: Transcript, outcome: Outcome, name: str, decisions: Mapping[str, Any]
) -> Iterator[str]:
    """Check that an agent's counts and decisions follow from the cells of its rows."""
    cells, folds = (np.asarray(decisions[key]) for key in ("cells", "folds"))
    if any(a.dtype.kind not in "iu" or a.ndim != 1 for a in (cells, folds) if a.size):
        yield f"the cells or folds of {name} are no whole numbers"
        return
    is_here = cells.size and (0 <= cells.min() <= cells.max() < N_CELLS)
    if folds.size != cells.size or (cells.size and not is_here):
        yield f"a row of {name} is in a cell that does not exist, or in no fold"
        return
    sizes = tuple(int(np.count_nonzero(folds == fold)) for fold in range(N_FOLDS))
    if sizes != fold_sizes(folds.size):
        yield f"the folds of {name} have {sizes} rows"
        return
    counts = transcript.folds.get(name, [])
    for fold, told in enumerate(counts):
        own = np.bincount(cells[folds == fold], minlength=N_CELLS)
        if own.tolist() != list(told.tests):
            yield f"the counts of {name} in fold {fold + 1} are not those of its rows"
    expected = reaches(cells, np.array(outcome.cells)[folds])
    if not np.array_equal(np.asarray(decisions["rejected"]), expected):
        yield f"{name} did not reject exactly its rows from cells {outcome.cells} on"
    members = set(outcome.participants)
    if not all(set(names) <= members for names in decisions["normal_at"]):
        yield f"a row of {name} conforms to an agent that did not take part"
