"""Scores of rows in files by a model that may score a row in another way in another batch.

Calibration rows and test rows lie in different files, so batches made of consecutive rows would
say which rows are calibration rows. Here a batch is a function of the mixture as a multiset: rows
go to rounds by a hash of their content, whichever sample they are in, and the distinct rows of a
round are scored in one call, in canonical order. With one round this is the call that is made in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.rows.pieces import FileSource
from conovel.rows.work_folder import Work
from conovel.scorers.base import Matrix, Mixture, ScoreModel, Vector
from conovel.site.engines import Engine

# Rounds whose rows are gathered in one pass over the files. The plan of memory has room for eight
# pieces at work, and a round is as large as a piece.
_PER_PASS = 4


class Sample(NamedTuple):
    """One of the two samples.

    Attributes
    ----------
    source : FileSource
    scored : bool array of shape (n,)
        Which of its rows are scored.
    """

    source: FileSource
    scored: NDArray[np.bool_]


class _Gathered(NamedTuple):
    """Rows of one round from one piece: distinct ones, and for each place which of them it has."""

    distinct: Matrix
    places: NDArray[np.intp]
    position: NDArray[np.intp]


def scores_by_rounds(
    model: ScoreModel,
    samples: Sequence[Sample],
    size: int,
    engine: Engine,
    work: Work,
    tell: Callable[[int], None],
) -> list[Vector]:
    """Score the rows of both samples; each by its content and the mixture as a multiset.

    Parameters
    ----------
    model : ScoreModel
    samples : sequence of Sample
    size : int
        About so many rows are scored together. Only their number in all decides how many rounds
        there are.
    engine : Engine
        Who scores.
    work : Work
        Where finished rounds are kept.
    tell : callable
        Told how many more rows are scored.

    Returns
    -------
    list of arrays
        For each sample the scores by place; NaN where a row is not scored.
    """
    n_rounds = -(-sum(int(sample.scored.sum()) for sample in samples) // size)
    for first in range(0, n_rounds, _PER_PASS):
        wanted = range(first, min(first + _PER_PASS, n_rounds))
        missing = [one for one in wanted if not work.has("round", one)]
        if missing:
            gathered = _gather(samples, size, n_rounds, missing)
            for one, (places, position), scores in _scored(model, gathered, engine):
                work.write("round", one, {"place": places, "score": scores[position]})
                tell(places.size)
    return _by_place(samples, work, n_rounds)


def _gather(
    samples: Sequence[Sample], size: int, n_rounds: int, wanted: Sequence[int]
) -> dict[int, list[_Gathered]]:
    """Read both samples once, and keep the rows of some rounds."""
    found: dict[int, list[_Gathered]] = {one: [] for one in wanted}
    before = 0  # places of the second sample follow those of the first
    for source, scored in samples:
        for piece in source.pieces(size):
            own = scored[piece.start : piece.start + len(piece)]
            rounds = (piece.hashes % np.uint64(n_rounds)).astype(np.intp)
            for one in wanted:
                chosen = own & (rounds == one)
                if chosen.any():
                    part = Mixture.of(piece.rows(chosen))
                    places = before + piece.start + np.flatnonzero(chosen)
                    found[one].append(_Gathered(part.distinct, places, part.position))
        before += scored.size
    return found


def _scored(
    model: ScoreModel, gathered: dict[int, list[_Gathered]], engine: Engine
) -> Iterator[tuple[int, tuple[NDArray[np.intp], NDArray[np.intp]], Vector]]:
    """Score the distinct rows of each round in one call; give the places of its rows, too."""

    def batches() -> Iterator[tuple[tuple[int, NDArray[np.intp], NDArray[np.intp]], Matrix]]:
        for one, parts in gathered.items():
            if not parts:
                continue  # no row has a hash of this round
            mixture = Mixture.of(np.concatenate([part.distinct for part in parts]))
            ends = np.cumsum([len(part.distinct) for part in parts])
            apart = np.split(mixture.position, ends[:-1])
            position = [of[part.position] for of, part in zip(apart, parts, strict=True)]
            places = np.concatenate([part.places for part in parts])
            yield (one, places, np.concatenate(position)), mixture.distinct

    for (one, places, position), scores in engine.scores(model, batches()):
        yield one, (places, position), scores


def _by_place(samples: Sequence[Sample], work: Work, n_rounds: int) -> list[Vector]:
    """Put the scores of all rounds where their rows are."""
    sizes = [sample.scored.size for sample in samples]
    scores = np.full(sum(sizes), np.nan)
    for one in range(n_rounds):
        if work.has("round", one):
            part = work.read("round", one)
            scores[part["place"].to_numpy()] = part["score"].to_numpy()
    return np.split(scores, np.cumsum(sizes)[:-1])
