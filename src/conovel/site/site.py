"""An agent's own work: fit, make models for the peers, score, rank. No row leaves it.

A driver asks for this work (:mod:`conovel.runs.carrying`); the network in one process and a
deployment between organisations run the same code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ModelRefusedError, SampleError, WireError
from conovel.models.wire import Surrogate, schema_digest
from conovel.rows.original import with_frames
from conovel.rows.tables import Rows
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Mixture,
    ScoreModel,
    TrainingSet,
    Vector,
)
from conovel.scorers.selection import Selection, fit_best
from conovel.site.blocks import TrainingRows, split_by_number, training_sample
from conovel.site.common_scale import CommonScale, fit_scale
from conovel.site.composite import fit_composite
from conovel.site.explain.column_views import views_of
from conovel.site.explain.explainer import Explainer
from conovel.site.levels import with_levels
from conovel.site.sent.bounds import Bounds, find_bounds
from conovel.site.sent.private_surrogate import make_private_surrogate
from conovel.site.sent.public_ranges import public_ranges
from conovel.site.sent.public_units import public_units
from conovel.site.sent.surrogate import decode, make_surrogate
from conovel.site.work import SiteWork
from conovel.spec.consensus import fewest_learnt
from conovel.spec.facts import Facts
from conovel.spec.groups import needed_calibration
from conovel.spec.regimes import block_sizes, own_block
from conovel.spec.training import MAX_TRAIN_ROWS, least_rows, n_training, share_that_trains
from conovel.stats.cells import N_CELLS, CellHistogram
from conovel.stats.consensus import FoldHistograms
from conovel.stats.ranks import conformal_ranks
from conovel.stats.stepup import RankHistogram


class Site(ABC):
    """What every site does with models, wherever its rows are.

    Parameters
    ----------
    columns : sequence of str
        Names of the features.
    work : SiteWork

    Attributes
    ----------
    columns : tuple of str
        Names of the features.
    choices : dict of Selection
        How the scorer and the composite were chosen, where there was a choice.
    """

    def __init__(self, columns: Sequence[str], work: SiteWork) -> None:
        self.work, self.spec = work, work.spec
        self.choices: dict[str, Selection] = {}
        self.columns = tuple(columns)
        self._own: FittedScorer | None = None
        self._weight = Fraction(0)  # of the site's group in the regime `joint`

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """Row numbers and columns, as the hello tells them."""

    @abstractmethod
    def models(
        self, index: int, names: Sequence[str], weight: Fraction = Fraction(0)
    ) -> Mapping[str, bytes]:
        """Fit, and make a model for every peer: one for all, or one per block in `split`.

        In the regime `joint`, `weight` is that of the site's group, zero if it is in a group with
        no other site. The site then trains on the known normals that it need not count.
        """

    @abstractmethod
    def ranks(self, models: Mapping[str, bytes]) -> RankHistogram | CellHistogram:
        """Score with everybody's models together; count the ranks of the tested rows.

        In the regime `joint`, count the rows in each cell of the common scale.
        """

    def refit(self, models: Mapping[str, bytes]) -> Sequence[bytes]:
        """Learn again with the peers' first models; in the regime `consensus` alone."""
        raise SampleError(f"the regime {self.spec.regime.name!r} learns once")

    def compare(self, models: Mapping[str, tuple[bytes, ...]]) -> FoldHistograms:
        """Count rows by the score of each fold; in the regime `consensus` alone."""
        raise SampleError(f"the regime {self.spec.regime.name!r} has no folds")

    @property
    def calibrates_with_others(self) -> bool:
        """Whether the calibration rows of other sites count together with its own."""
        return bool(self._weight)

    def training_rows(self, n_agents: int) -> list[TrainingRows]:
        """Say from how many rows each model will be learnt, where that many agents take part.

        One entry for all rows, or in `split` one for every size of block.
        """
        facts, most = self.facts, self.work.max_train_rows
        n_blocks = n_agents if self.spec.regime.splits_rows else 1
        found = []
        sizes = zip(*(block_sizes(n, n_blocks) for n in (facts.n_null, facts.n_test)), strict=True)
        for n_null, n_test in sorted(set(sizes)):
            n_train, n_by_rule = (
                self._n_train(n_null, facts.n_test, by_rule=by_rule) for by_rule in (False, True)
            )
            n_mixture: int | None = n_null - n_train + n_test
            if self.spec.regime.composite_null:  # the test rows of the other fold
                n_mixture = fewest_learnt(n_test)
            found.append(TrainingRows(n_null, n_train, n_by_rule, n_mixture, most))
        return found

    def _facts(self, n_null: int, n_test: int) -> Facts:
        return Facts(n_null, n_test, len(self.columns), schema_digest(self.columns, 32))

    def _split(self, n_null: int, n_test: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Say which known normals train and which calibrate; `n_test` is of the whole site."""
        return split_by_number(n_null, self._n_train(n_null, n_test), self.spec.seed)

    def _n_train(self, n_null: int, n_test: int, *, by_rule: bool = False) -> int:
        """Return how many known normals train, from numbers alone.

        In a group of several sites a site need not count more calibration rows than the weight
        of the group asks for. The coordinator names that weight, so the site never trains on
        fewer rows because of it.
        """
        most, n_agents = self.work.max_train_rows, self.work.n_agents
        share = share_that_trains(self.spec, n_null, n_test, n_agents, by_rule=by_rule)
        by_itself = n_training(n_null, share, most)
        if by_rule or not self._weight or self.spec.train_fraction is not None:
            return by_itself
        spared = n_null - needed_calibration(n_test, self._weight)
        return max(by_itself, min(spared, most))

    def _cuts(
        self, n_null: int, n_test: int, n_blocks: int
    ) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Cut known normals and test rows at random into K blocks (the paper's step 1)."""
        if n_test < n_blocks:
            raise SampleError(f"{n_test} test rows cannot be split among the agents")
        rng = np.random.default_rng([self.spec.seed, n_blocks])
        nulls, tests = (
            np.split(rng.permutation(n), np.cumsum(block_sizes(n, n_blocks))[:-1])
            for n in (n_null, n_test)
        )
        return [(np.sort(null), np.sort(test)) for null, test in zip(nulls, tests, strict=True)]

    def _fit(self, training: TrainingSet) -> FittedScorer:
        """Fit the scorer, or the best of several."""
        return fit_best(self.work.candidates, training)

    def _fit_own(self, training: TrainingSet) -> FittedScorer:
        """Fit the model that stays at the site and ranks its rows."""
        self._own = self._fit(training)
        if self._own.selection:
            self.choices["scorer"] = self._own.selection
        return self._own

    def _surrogate(self, training: TrainingSet, local: FittedScorer, n_mixture: int) -> bytes:
        """Make what peers receive; `n_mixture` is the number of all mixture rows."""
        spec, schema = self.spec, schema_digest(self.columns, 4)
        if spec.privacy is None:
            bounds = self._bounds(training.null_train)
            return make_surrogate(
                spec.bits,
                local,
                training,
                spec.seed,
                schema,
                candidates=self.work.candidates,
                bounds=bounds,
            )
        n_learnt = min(n_mixture, self.work.max_train_rows)  # of a sample, on average
        known = public_units(spec.schema, len(self.columns))
        return make_private_surrogate(
            training, n_learnt, known, spec.privacy, self.work.noise, spec.bits, schema
        )

    def _bounds(self, null_train: Matrix) -> Bounds:
        """Return the bounds of the features of what is sent."""
        return find_bounds(null_train, public_ranges(self.spec.schema, len(self.columns)))

    def _composite(
        self, training: TrainingSet, local: FittedScorer, models: Mapping[str, bytes]
    ) -> ScoreModel:
        """Fit the composite of the own model and the peers' models.

        A peer's model may tell no fewer than k rows of this site from the others.
        """
        least = self._least_rows(training)
        peers = [with_levels(one, training.mixture, least) for one in self._decode(models)]
        found = fit_composite(self.spec.composite, local, peers, training)
        if found.selection:
            self.choices["composite"] = found.selection
        return found.model

    def _scale(self, model: ScoreModel, training: TrainingSet) -> CommonScale:
        """Return the cells in which rows are counted in the regime `joint`."""
        return fit_scale(model, training, self._least_rows(training))

    def _least_rows(self, training: TrainingSet) -> int:
        """Return how many rows a level or a cell holds at least, from numbers of rows alone."""
        n_rows = len(training.null_train) + training.mixture.position.size
        return self.work.group_rows or least_rows(n_rows)

    def _decode(self, models: Mapping[str, bytes]) -> list[Surrogate]:
        """Decode the peers' models, or say whose cannot be."""
        return [self._decode_one(peer, blob) for peer, blob in models.items()]

    def _decode_one(self, peer: str, blob: bytes) -> Surrogate:
        try:
            surrogate = _decode_once(blob, schema_digest(self.columns, 4))
        except WireError as error:
            raise ModelRefusedError(f"the model of {peer} was refused: {error}", peer) from error
        if surrogate.n_features != len(self.columns):
            raise ModelRefusedError(f"the model of {peer} is for other columns", peer)
        return surrogate


class Ranked(NamedTuple):
    """Scores of the calibration rows, and scores and ranks of the tested rows."""

    calibration_scores: Vector
    scores: Vector
    ranks: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Block:
    """Rows that are trained on together: all of an agent's, or 1/K of them in `split`."""

    null_train: Matrix
    mixture: Mixture
    n_calibration: int
    tested: NDArray[np.intp]  # which test rows are in it
    max_train_rows: int = MAX_TRAIN_ROWS

    @cached_property
    def training(self) -> TrainingSet:
        """What is learnt from: of a very large mixture, a sample by content."""
        return TrainingSet(self.null_train, training_sample(self.mixture, self.max_train_rows))

    def rank(self, model: ScoreModel) -> Ranked:
        """Score all rows and rank the tested ones among the calibration rows."""
        calibration, tests = np.split(self.mixture.score(model), [self.n_calibration])
        return Ranked(calibration, tests, conformal_ranks(calibration, tests))


class LocalSite(Site):
    """One agent's rows and the work on them.

    Parameters
    ----------
    null, test : Rows
        Known normals and rows to test, checked.
    work : SiteWork

    Attributes
    ----------
    tested : bool array of shape (m,)
        Which test rows are tested; all but in `split`.
    scores : float array of shape (m,)
        Composite scores, NaN where a row is not tested.
    test_ranks : int array of shape (m,)
        Ranks, 0 where a row is not tested.
    n_calibration : int
        Calibration rows behind the ranks.
    calibration_scores : float array
        Their scores.
    cells : int array of shape (m,) or None
        In the regimes `joint` and `consensus`, the cell of each test row on the common scale.
    folds, cells_by_agent
        In the regime `consensus` alone; see :class:`conovel.site.consensus_site.ConsensusSite`.
    explainer : Explainer or None
        What explains the scores, once there are any.
    """

    def __init__(self, null: Rows, test: Rows, work: SiteWork) -> None:
        columns = null.columns or tuple(map(str, range(null.width)))
        super().__init__(columns, with_frames(work, null.columns, null.encoder))
        self.null, self.test = null, test
        self.tested = np.zeros(len(test), dtype=np.bool_)
        self.scores = np.full(len(test), np.nan)
        self.test_ranks = np.zeros(len(test), dtype=np.int64)
        self.n_calibration = 0
        self.calibration_scores = np.zeros(0)
        self.cells: NDArray[np.int64] | None = None
        self.folds: NDArray[np.int64] | None = None
        self.cells_by_agent: Mapping[str, NDArray[np.uint8]] = {}
        self.explainer: Explainer | None = None

    @property
    def facts(self) -> Facts:
        """Row numbers and columns, as the hello tells them."""
        return self._facts(len(self.null), len(self.test))

    def models(
        self, index: int, names: Sequence[str], weight: Fraction = Fraction(0)
    ) -> Mapping[str, bytes]:
        """Fit, and make a model for every peer: one for all, or one per block in `split`."""
        self._weight = weight
        if not self.spec.regime.splits_rows:
            block = self._tested_block
            n_mixture = block.mixture.position.size
            blob = self._surrogate(block.training, self._fit_own(block.training), n_mixture)
            return {name: blob for i, name in enumerate(names) if i != index}
        blocks = self._blocks(len(names))
        self._tested_block = blocks[own_block(index)]
        self._fit_own(self._tested_block.training)
        return {
            name: self._surrogate(
                block.training, self._fit(block.training), block.mixture.position.size
            )
            for i, (name, block) in enumerate(zip(names, blocks, strict=True))
            if i != index
        }

    def ranks(self, models: Mapping[str, bytes]) -> RankHistogram | CellHistogram:
        """Score with everybody's models together; count the ranks of the tested rows."""
        block = self._tested_block
        model = self._composite(block.training, self.fitted, models)
        ranked = block.rank(model)
        views = views_of(self.null.encoder, self.null.columns or range(self.null.width))
        self.explainer = Explainer(model, block.null_train, views)
        self.take(block.tested, ranked)
        if not self.spec.regime.pools_calibration:
            return RankHistogram(ranked.ranks, block.n_calibration)
        scale = self._scale(model, block.training)
        self.cells = scale.cells(ranked.scores)
        known = scale.cells(ranked.calibration_scores)
        return CellHistogram.of(known, self.cells, N_CELLS, scale.likely)

    @property
    def fitted(self) -> FittedScorer:
        """The model that ranks the rows, fitted when it is first asked for."""
        return self._own or self._fit_own(self._tested_block.training)

    def take(self, tested: NDArray[np.intp], ranked: Ranked) -> None:
        """Note the scores and ranks of the tested rows."""
        self.tested[tested] = True
        self.scores[tested] = ranked.scores
        self.test_ranks[tested] = ranked.ranks
        self.n_calibration = ranked.calibration_scores.size
        self.calibration_scores = ranked.calibration_scores

    def n_calibration_planned(self, n_agents: int) -> int:
        """How many calibration rows the tested block will have, before any work."""
        n = len(self.null)
        n = n // n_agents if self.spec.regime.splits_rows else n
        return n - self._n_train(n, len(self.test))

    @cached_property
    def _tested_block(self) -> Block:
        """All rows; in `split`, the block that this agent keeps for itself."""
        return self._block(np.arange(len(self.null)), np.arange(len(self.test)))

    def _blocks(self, n_blocks: int) -> list[Block]:
        cuts = self._cuts(len(self.null), len(self.test), n_blocks)
        return [self._block(*cut) for cut in cuts]

    def _block(self, nulls: NDArray[np.intp], tests: NDArray[np.intp]) -> Block:
        train, calibration = self._split(nulls.size, len(self.test))
        rows = np.concatenate([self.null.values[nulls[calibration]], self.test.values[tests]])
        null_train = self.null.values[nulls[train]]
        most = self.work.max_train_rows
        return Block(null_train, Mixture.of(rows), calibration.size, tests, most)


@lru_cache(maxsize=256)  # agents in one process receive the same bytes; surrogates are immutable
def _decode_once(blob: bytes, schema: bytes) -> Surrogate:
    return decode(blob, schema=schema)
