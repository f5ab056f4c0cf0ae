"""One organisation: its rows, and the work on them. No row leaves it.

Rows are in memory or kept in a folder (:mod:`conovel.rows.stored`); the work is the same. A site
splits its known normals, fits, makes what is sent to peers, scores and ranks. Learning and
deciding ask for this work; the network in one process and a deployment between organisations run
the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ModelRefusedError, SampleError, WireError
from conovel.models.wire import Surrogate, schema_digest
from conovel.rows.frames import with_frames
from conovel.rows.pairs import KnownRows
from conovel.rows.stored import RowSource, StoredRows
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    ScoreModel,
    Selection,
    TrainingSet,
    Vector,
    fit_best,
)
from conovel.site.blocks import Block, Ranked, TrainingRows, mask_of, split_by_number
from conovel.site.common_scale import fit_scale, with_levels
from conovel.site.composite import fit_composite
from conovel.site.explain.explainer import Explainer, views_of
from conovel.site.sent.compact import Bounds, find_bounds, public_ranges, public_units
from conovel.site.sent.private_surrogate import make_private_surrogate
from conovel.site.sent.surrogate import decode, make_surrogate
from conovel.site.stored_blocks import Store, StoredBlock
from conovel.site.strata import SiteStrata, StrataRows, StrataScale
from conovel.site.work import SiteWork
from conovel.spec.facts import Facts
from conovel.spec.regimes import block_sizes, own_block
from conovel.spec.training import least_rows, n_training, needed_calibration, share_that_trains
from conovel.stats.cells import CellHistogram
from conovel.stats.stepup import RankHistogram


class Site:
    """One agent's rows and the work on them.

    Parameters
    ----------
    null, test : RowSource
        Known normals and rows to test, checked.
    work : SiteWork
    store : Store, optional
        Where parts are kept, if the rows are kept in a folder.
    known_rows : KnownRows, optional
        Known novelties, which the site's own score learns from.

    Attributes
    ----------
    columns : tuple of str
        Names of the features.
    choices : dict of Selection
        How the scorer and the composite were chosen, where there was a choice.
    own_block : Block or StoredBlock
        The rows that the site ranks: all, or in `split` the block that it keeps for itself.
    weight : Fraction
        Of the site's group in the regime `joint`, zero where no other site is in it.
    ranked : Ranked or None
        The tested rows, once they are ranked.
    cells_of : callable or None
        The cell of a score, where cells decide.
    cells_by_agent : mapping of int arrays of shape (m,)
        In the regime `consensus`, the cell of each test row by the distance from each agent's
        normals.
    explainer : Explainer or None
        What explains the scores, once there are any.
    """

    def __init__(
        self,
        null: RowSource,
        test: RowSource,
        work: SiteWork,
        store: Store | None = None,
        known_rows: KnownRows | None = None,
    ) -> None:
        self.columns = null.columns or tuple(map(str, range(null.width)))
        is_frame = null.columns is not None
        self.work = with_frames(work, null.columns, null.encoder) if is_frame else work
        self.spec = work.spec
        self.null, self.test, self.store, self.known_rows = null, test, store, known_rows
        self.choices: dict[str, Selection] = {}
        self.weight = Fraction(0)
        self.scale: StrataScale | None = None  # with strata, the cells of each of them
        self.ranked: Ranked | None = None
        self.score: ScoreModel | None = None  # what ranked the rows
        self.cells_of: Callable[[Vector], NDArray[np.int64]] | None = None
        self.cells_by_agent: Mapping[str, NDArray[np.uint8]] = {}
        self.explainer: Explainer | None = None
        self._fitted: FittedScorer | None = None

    # What the regimes ask for ----------------------------------------------------------------

    def models(
        self, index: int, names: Sequence[str], weight: Fraction = Fraction(0)
    ) -> Mapping[str, bytes]:
        """Fit, and make a model for every peer: one for all, or one per block in `split`.

        `index` is the place of the own name. In the regime `joint`, `weight` is that of the
        site's group, zero if it is in a group with no other site. The site then trains on the
        known normals that it need not count.

        Proof: Proposition 2 (docs/theory.md#prop-split), Theorem 5 (docs/theory.md#thm-full).
        """
        self.weight = weight
        if self.spec.regime.n_blocks(len(names)) == 1:
            block = self.own_block
            blob = self.surrogate(block.training, self.fitted, block.n_mixture)
            return {name: blob for i, name in enumerate(names) if i != index}
        blocks = [self.block(*cut) for cut in self.cuts(len(names))]
        self.own_block = blocks[own_block(index)]
        _ = self.fitted
        return {
            name: self.surrogate(block.training, self.fit(block.training), block.n_mixture)
            for i, (name, block) in enumerate(zip(names, blocks, strict=True))
            if i != index
        }

    def ranks(self, models: Mapping[str, bytes]) -> RankHistogram:
        """Score with everybody's models together; count the ranks of the tested rows.

        Proof: Lemma 6 (docs/theory.md#lem-exchangeable), Proposition 2
        (docs/theory.md#prop-split), Theorem 5 (docs/theory.md#thm-full).
        """
        block = self.own_block
        model = self.composite(block.training, self.fitted, models)
        self.explain_by(model, block.null_train)
        self.rank_by(model)
        assert self.ranked is not None  # noqa: S101
        return self.ranked.histogram

    def rank_by(self, model: ScoreModel) -> None:
        """Score and rank the rows of the own block; with strata, within each of them."""
        self.ranked, self.score = self.own_block.rank(model), model
        if self.strata is not None:
            self.ranked = self.strata_rows.ranked(self.ranked)

    def count_cells(self) -> CellHistogram:
        """Count the ranked rows in each cell of a scale that all sites have in common.

        Proof: Theorem 10 (docs/theory.md#thm-joint).
        """
        block, model, ranked = self.own_block, self.score, self.ranked
        if model is None or ranked is None:
            raise SampleError("rows have no cells before they are ranked")
        if self.strata is not None:
            least = self.least_rows(block.training)
            about = model, block.training, self.strata.strata, self.strata_rows, least
            self.scale = StrataScale.of(*about)
            return self.scale.count(ranked)
        scale = fit_scale(model, block.training, self.least_rows(block.training))
        self.cells_of = scale.cells
        return ranked.in_cells(scale.cells, scale.likely)

    # Numbers of rows -------------------------------------------------------------------------

    @property
    def facts(self) -> Facts:
        """Row numbers and columns, as the hello tells them."""
        digest = schema_digest(self.columns, 32)
        n_test = len(self.test) if self.strata is None else self.strata.n_tested
        return Facts(len(self.null), n_test, len(self.columns), digest)

    @property
    def calibrates_with_others(self) -> bool:
        """Whether the calibration rows of other sites count together with its own."""
        return bool(self.weight)

    def training_rows(
        self, n_agents: int, learnt_from: Callable[[int, int], int | None] = int.__add__
    ) -> list[TrainingRows]:
        """Say from how many rows each model will be learnt, where that many agents take part.

        One entry for all rows, or in `split` one for every size of block. `learnt_from` gives
        the mixture rows that a model learns from, of so many calibration and test rows.
        """
        facts, most = self.facts, self.work.max_train_rows
        n_blocks = self.spec.regime.n_blocks(n_agents)
        listed = []
        sizes = zip(*(block_sizes(n, n_blocks) for n in (facts.n_null, facts.n_test)), strict=True)
        for n_null, n_test in sorted(set(sizes)):
            n_train, n_by_rule = (self.n_train(n_null, by_rule=rule) for rule in (False, True))
            n_mixture = learnt_from(n_null - n_train, n_test)
            listed.append(TrainingRows(n_null, n_train, n_by_rule, n_mixture, most))
        return listed

    def n_train(self, n_null: int, *, by_rule: bool = False) -> int:
        """Return how many of so many known normals train, from numbers alone.

        In a group of several sites a site need not count more calibration rows than the weight
        of the group asks for. The coordinator names that weight, so the site never trains on
        fewer rows because of it.
        """
        most, n_agents, n_test = self.work.max_train_rows, self.work.n_agents, len(self.test)
        share = share_that_trains(self.spec, n_null, n_test, n_agents, by_rule=by_rule)
        by_itself = n_training(n_null, share, most)
        if by_rule or not self.weight or self.spec.train_fraction is not None:
            return by_itself
        spared = n_null - needed_calibration(n_test, self.weight)
        return max(by_itself, min(spared, most))

    def n_calibration_planned(self, n_agents: int) -> int:
        """How many calibration rows the tested block will have, before any work."""
        if self.strata is not None:
            return sum(one.n_calibration for one in self.strata.plan())
        n = len(self.null) // self.spec.regime.n_blocks(n_agents)
        return n - self.n_train(n)

    # Rows ------------------------------------------------------------------------------------

    @cached_property
    def strata(self) -> SiteStrata | None:
        """The strata within which rows are compared, if the run has any."""
        if not self.spec.strata:
            return None
        work = self.work
        return SiteStrata.of(self.null, self.test, self.spec, work.n_agents, work.max_train_rows)

    @cached_property
    def strata_rows(self) -> StrataRows:
        """The strata of the calibration rows and test rows."""
        assert self.strata is not None  # noqa: S101  (asked for with strata alone)
        calibration = self.strata.split(self.weight).calibration
        codes = self.strata.strata
        return StrataRows(tuple(self.strata.tested), codes.null[calibration], codes.test)

    def split(self, n_null: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Say which of so many known normals train and which calibrate."""
        return split_by_number(n_null, self.n_train(n_null), self.spec.seed)

    def cuts(self, n_blocks: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Cut known normals and test rows at random into K blocks (the paper's step 1).

        Proof: Proposition 2 (docs/theory.md#prop-split).
        """
        if len(self.test) < n_blocks:
            raise SampleError(f"{len(self.test)} test rows cannot be split among the agents")
        rng = np.random.default_rng([self.spec.seed, n_blocks])
        nulls, tests = (
            np.split(rng.permutation(n), np.cumsum(block_sizes(n, n_blocks))[:-1])
            for n in (len(self.null), len(self.test))
        )
        return [(np.sort(null), np.sort(test)) for null, test in zip(nulls, tests, strict=True)]

    @cached_property
    def own_block(self) -> Block | StoredBlock:
        """The rows that the site ranks; all, unless it is set to another block."""
        if self.strata is not None:
            return self.block_of(*self.strata.split(self.weight))
        return self.block(np.arange(len(self.null)), np.arange(len(self.test)))

    def block(self, nulls: NDArray[np.intp], tests: NDArray[np.intp]) -> Block | StoredBlock:
        """Take the rows at these places together, and split their known normals."""
        train, calibration = self.split(nulls.size)
        return self.block_of(nulls[train], nulls[calibration], tests)

    def block_of(
        self, train: NDArray[np.intp], calibration: NDArray[np.intp], tests: NDArray[np.intp]
    ) -> Block | StoredBlock:
        """Take rows together that train, calibrate and are tested."""
        null, test, most = self.null, self.test, self.work.max_train_rows
        tested = mask_of(tests, len(test))
        known_rows = None if self.known_rows is None else self.known_rows.values
        if self.store and isinstance(null, StoredRows) and isinstance(test, StoredRows):
            trains, calibrates = (mask_of(places, len(null)) for places in (train, calibration))
            return StoredBlock(
                null, test, trains, calibrates, tested, most, self.store, known_rows
            )
        rows = np.concatenate([null.take(calibration), test.take(tests)])
        return Block(null.take(train), rows, calibration.size, tested, most, known_rows)

    # Models ----------------------------------------------------------------------------------

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Fit the scorer, or the best of several."""
        return fit_best(self.work.candidates, training)

    @property
    def fitted(self) -> FittedScorer:
        """The model that stays at the site and ranks its rows, fitted when first asked for."""
        if self._fitted is None:
            training = self.own_block.training
            if self.store:
                self.store.begin("fitting the score model")
            self._fitted = self.fit(training)
            made = {"scorer": self._fitted.selection, "known": self._fitted.by_known}
            self.choices |= {what: choice for what, choice in made.items() if choice}
        return self._fitted

    def surrogate(self, training: TrainingSet, local: FittedScorer, n_mixture: int) -> bytes:
        """Make what peers receive; `n_mixture` is the number of all mixture rows."""
        spec, schema = self.spec, schema_digest(self.columns, 4)
        own: FittedScorer | None = local
        if training.n_known and not self.work.share_known:
            training = replace(training, known_rows=None)
            own = None if isinstance(spec.bits, str) else self.fit(training)
        if spec.privacy is None:
            return make_surrogate(
                spec.bits,
                own,
                training,
                spec.seed,
                schema,
                candidates=self.work.candidates,
                bounds=self.bounds(training.null_train),
            )
        n_learnt = min(n_mixture, self.work.max_train_rows)  # of a sample, on average
        units = public_units(spec.schema, len(self.columns))
        return make_private_surrogate(
            training, n_learnt, units, spec.privacy, self.work.noise, spec.bits, schema
        )

    def bounds(self, null_train: Matrix) -> Bounds:
        """Return the bounds of the features of what is sent."""
        return find_bounds(null_train, public_ranges(self.spec.schema, len(self.columns)))

    def composite(
        self, training: TrainingSet, local: FittedScorer, models: Mapping[str, bytes]
    ) -> ScoreModel:
        """Fit the composite of the own model and the peers' models.

        A peer's model may tell no fewer than k rows of this site from the others.
        """
        least = self.least_rows(training)
        surrogates = [self.decode(peer, blob) for peer, blob in models.items()]
        peers = [with_levels(one, training.mixture, least) for one in surrogates]
        composite = fit_composite(self.spec.composite, local, peers, training)
        if composite.selection:
            self.choices["composite"] = composite.selection
        return composite.model

    def least_rows(self, training: TrainingSet) -> int:
        """Return how many rows a level or a cell holds at least, from numbers of rows alone."""
        n_rows = len(training.null_train) + training.mixture.position.size
        return self.work.group_rows or least_rows(n_rows)

    def decode(self, peer: str, blob: bytes) -> Surrogate:
        """Decode the model of a peer, or say why it is refused."""
        try:
            surrogate = _decode_once(blob, schema_digest(self.columns, 4))
        except WireError as error:
            raise ModelRefusedError(f"the model of {peer} was refused: {error}", peer) from error
        if surrogate.n_features != len(self.columns):
            raise ModelRefusedError(f"the model of {peer} is for other columns", peer)
        return surrogate

    def explain_by(self, model: ScoreModel, null_train: Matrix) -> None:
        """Let decisions be explained by a model and the known normals that trained."""
        views = views_of(self.null.encoder, self.null.columns or range(self.null.width))
        self.explainer = Explainer(model, null_train, views, self.known_rows)

    def close(self) -> None:
        """Remove the folder of the rows, if there is one."""
        if self.store:
            self.store.work.clear()

    # Results ---------------------------------------------------------------------------------

    @property
    def tested(self) -> NDArray[np.bool_]:
        """Which test rows are tested; all but in `split`."""
        none = np.zeros(len(self.test), dtype=np.bool_)
        return none if self.ranked is None else self.ranked.tested

    @property
    def scores(self) -> Vector:
        """The score of each test row, NaN where it is not tested."""
        return np.full(len(self.test), np.nan) if self.ranked is None else self.ranked.scores

    @property
    def test_ranks(self) -> NDArray[np.int64]:
        """The rank of each test row, 0 where it is not tested."""
        none = np.zeros(len(self.test), dtype=np.int64)
        return none if self.ranked is None else self.ranked.ranks

    @property
    def calibration_scores(self) -> Vector:
        """The scores of the calibration rows behind the ranks."""
        return np.zeros(0) if self.ranked is None else self.ranked.calibration_scores

    @property
    def n_calibration(self) -> int:
        """How many calibration rows are behind the ranks."""
        return self.calibration_scores.size

    def cut(self, limit: int, floors: tuple[int, ...]) -> None:
        """With strata, note where rows of each of them take part, and are rejected."""
        if self.scale is not None and floors:
            self.scale = replace(self.scale, floors=floors, cuts=(limit,) * len(floors))

    @property
    def cells(self) -> NDArray[np.int64] | None:
        """The cell of each test row on the common scale, where cells decide."""
        if self.scale is not None and self.strata is not None:
            return self.scale.cells(self.strata.strata.test, self.scores)
        return None if self.cells_of is None else self.cells_of(self.scores)


@lru_cache(maxsize=256)  # agents in one process receive the same bytes; surrogates are immutable
def _decode_once(blob: bytes, schema: bytes) -> Surrogate:
    return decode(blob, schema=schema)
