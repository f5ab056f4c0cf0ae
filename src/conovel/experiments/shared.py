"""One trial, every regime: each model is fitted once and each score computed once.

`counts`, `isolated`, `full` and `conservative` differ in what is sent and at which level is
decided, not in what an agent learns, and precisions and composites differ later still. So all
cells of a table share the fits of a trial. The steps are those of
:class:`conovel.drivers.network.Network`, and so are the decisions, bit for bit; only the wire is
skipped where nobody counts its bytes. In `joint` and `consensus` agents train on other rows than
in these regimes, so a whole network runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.drivers.agents import Agent
from conovel.drivers.network import Network
from conovel.experiments.gaussian import Labelled
from conovel.models import wire
from conovel.models.quantized.forest import uniform
from conovel.scorers.base import Matrix, ScoreModel, Vector
from conovel.scorers.classifier import ScorerLike
from conovel.scorers.from_sklearn import Flat
from conovel.scorers.registry import as_candidates
from conovel.scorers.selection import fit_best
from conovel.site.composite import fit_composite
from conovel.site.site import Block, LocalSite
from conovel.site.surrogate import decode, flat_of, make_surrogate
from conovel.site.tables import pool_pairs, read_rows, unify
from conovel.site.work import SiteWork
from conovel.spec.precision import Bits
from conovel.spec.regimes import Regime, as_regime, own_block
from conovel.spec.run_spec import RunSpec
from conovel.spec.seeds import agent_seeds
from conovel.stats.levels import Level, as_level
from conovel.stats.resolution import resolution
from conovel.stats.stepup import StepUp, step_up

_SIDE_BITS = 2.33  # what the paper spends on feature and structure, see wire.paper_bits


@dataclass(frozen=True)
class Cell:
    """One way to decide: a regime, and for an exchange the composite and the precision."""

    regime: str
    composite: str = ""
    bits: Bits = None

    @property
    def precision(self) -> str:
        """The precision in a word, empty without an exchange."""
        return str(self.bits or "float64") if self.composite else ""


class Traffic(NamedTuple):
    """What the models of a network cost."""

    n_bytes: int | None
    """Messages of the wire format over all peers; None when nobody counted."""
    paper_bits: float | None
    """The same by the paper's formula; None when nothing was made."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What a cell decided, agent by agent; rows that are not tested are not rejected."""

    rejected: list[NDArray[np.bool_]]
    ranks: list[NDArray[np.int64]]
    """0 where a row is not tested."""
    totals: tuple[int, ...]
    """Rejections that FastLSU counted in each round; empty without counts."""
    traffic: Traffic


class Trial:
    """The agents of one trial and everything they have learned so far.

    Parameters
    ----------
    agents : sequence of Labelled
        The truth in it is not looked at.
    scorer : classifier, str or None
        As in :class:`conovel.drivers.network.Network`.
    level : float, str or Fraction
    train_fraction : float, str, Fraction or None
    seed : int
        The network's ``random_state``.
    sized : bool
        Whether to count the bytes of large models; compact ones are always counted.

    Examples
    --------
    >>> from conovel.experiments.gaussian import gaussian_design
    >>> trial = Trial(gaussian_design(2.0, 0), "logistic", seed=0)
    >>> for regime in ("isolated", "counts"):
    ...     print(sum(int(mask.sum()) for mask in trial.decide(Cell(regime)).rejected))
    30
    86
    """

    def __init__(
        self,
        agents: Sequence[Labelled],
        scorer: ScorerLike | str | None,
        *,
        level: Level = 0.1,
        train_fraction: Level | None = 0.5,
        seed: int = 0,
        sized: bool = False,
    ) -> None:
        self.level = as_level(level)
        self.train_fraction = (
            None if train_fraction is None else as_level(train_fraction, "train_fraction")
        )
        self.sized = sized
        self._agents, self._scorer, self._seed = agents, scorer, seed
        self._rows = [
            unify(read_rows(a.X_null, "X_null"), read_rows(a.X_test, "X_test")) for a in agents
        ]
        seeds = agent_seeds(seed, len(agents))
        self._learners = [(tuple(as_candidates(scorer, own)), own) for own in seeds]
        self._known_sites: dict[tuple[bool, ...], list[_Site]] = {}
        self._known_ranks: dict[tuple[object, ...], list[tuple[NDArray[np.int64], int]]] = {}

    def decide(self, cell: Cell) -> Decision:
        """Decide as a network of that regime, composite and precision would."""
        regime = as_regime(cell.regime)
        if not regime.deployable:
            return self._decide_pooled(regime)
        if regime.decides_by_cells:
            return self._decide_by_cells(cell)
        ranks = self._ranks(cell, regime)
        level = regime.test_level(self.level, len(self._rows))
        totals: tuple[int, ...] = ()
        if regime.divides_level:
            masks = [step_up([pair], level, None).rejected[0] for pair in ranks]
        else:
            outcome = step_up(ranks, level, None)
            masks, totals = list(outcome.rejected), _totals(outcome)
        sizes = [len(test) for _, test in self._rows]
        rejected = [np.zeros(m, dtype=np.bool_) for m in sizes]
        all_ranks = [np.zeros(m, dtype=np.int64) for m in sizes]
        for j, (mask, (own, _)) in enumerate(zip(masks, ranks, strict=True)):
            rows = self._learned(j, j, regime).block.tested
            rejected[j][rows], all_ranks[j][rows] = mask, own
        return Decision(rejected, all_ranks, totals, self._traffic(cell, regime))

    def resolves(self, cell: Cell) -> bool:
        """Tell, before any fit, whether calibration is fine enough to be worth a try.

        Blocks of many agents are so small that a step-up over them rejects more than half of
        all tests or nothing.
        """
        regime, K = as_regime(cell.regime), len(self._rows)
        if not regime.splits_rows:
            return True
        m = sum(regime.n_tested(len(test), j, K) for j, (_, test) in enumerate(self._rows))
        size = max(site.n_calibration_planned(K) for site in self._sites(regime))
        return 2 * resolution(size, m, self.level).fewest <= m

    def _sites(self, regime: Regime) -> list[_Site]:
        """Return sites that learn as this regime asks; regimes that learn alike share them."""
        key: tuple[bool, ...] = (regime.splits_rows,)
        if self.train_fraction is None:  # then the split follows from what is decided together
            key = (*key, regime.uses_counts, regime.divides_level)
        if key not in self._known_sites:
            spec = RunSpec(regime, self.level, train_fraction=self.train_fraction)
            self._known_sites[key] = [
                _Site(null, test, SiteWork(replace(spec, seed=seed), candidates, len(self._rows)))
                for (null, test), (candidates, seed) in zip(
                    self._rows, self._learners, strict=True
                )
            ]
        return self._known_sites[key]

    def _decide_pooled(self, regime: Regime) -> Decision:
        null, test = pool_pairs(self._rows)
        pool = _Site(null, test, replace(self._sites(regime)[0].work, n_agents=1))
        learned = pool.whole()
        ranks = learned.block.rank(learned.local).ranks
        size = learned.block.n_calibration
        outcome = step_up([(ranks, size)], self.level, None)
        stops = np.cumsum([len(test) for _, test in self._rows])[:-1]
        rejected = np.split(outcome.rejected[0], stops)
        return Decision(rejected, np.split(ranks, stops), (), Traffic(0, 0.0))

    def _decide_by_cells(self, cell: Cell) -> Decision:
        """Run a network; the bytes of its models are not counted."""
        width = len(str(len(self._agents)))  # agents are sorted by name, as texts
        agents = [
            Agent(f"agent {j:0{width}}", rows.X_null, rows.X_test)
            for j, rows in enumerate(self._agents)
        ]
        run = Network(
            agents,
            regime=cell.regime,
            composite=cell.composite or "mean",
            bits=cell.bits,
            level=self.level,
            scorer=self._scorer,
            random_state=self._seed,
            train_fraction=self.train_fraction,
        ).run(check=False)
        sites = [run[agent.name] for agent in agents]
        rejected, ranks = [site.rejected for site in sites], [site.ranks for site in sites]
        return Decision(rejected, ranks, (), Traffic(None, None))

    def _learned(self, i: int, j: int, regime: Regime) -> _Learned:
        """Return what agent i learned for agent j."""
        site = self._sites(regime)[i]
        return site.blocks(len(self._rows))[own_block(j)] if regime.splits_rows else site.whole()

    def _ranks(self, cell: Cell, regime: Regime) -> list[tuple[NDArray[np.int64], int]]:
        key = (id(self._sites(regime)), cell.composite, cell.bits)
        if key not in self._known_ranks:
            ranks = [self._rank_agent(j, cell, regime) for j in range(len(self._rows))]
            self._known_ranks[key] = ranks
        return self._known_ranks[key]

    def _rank_agent(self, j: int, cell: Cell, regime: Regime) -> tuple[NDArray[np.int64], int]:
        own = self._learned(j, j, regime)
        peers = range(len(self._rows)) if regime.exchanges_models else ()
        surrogates = [
            self._learned(i, j, regime).sent(cell.bits, self.sized).model for i in peers if i != j
        ]
        composite = cell.composite or "mean"
        found = fit_composite(composite, own.local, surrogates, own.block.training)
        return own.block.rank(found.model).ranks, own.block.n_calibration

    def _traffic(self, cell: Cell, regime: Regime) -> Traffic:
        if not regime.exchanges_models:
            return Traffic(0, 0.0)
        K = len(self._rows)
        sent = [
            self._learned(i, j, regime).sent(cell.bits, self.sized)
            for i in range(K)
            for j in range(K)
            if i != j
        ]
        sizes = [one.n_bytes for one in sent]
        known = [size for size in sizes if size is not None]
        return Traffic(
            sum(known) if len(known) == len(sizes) else None,
            math.fsum(one.paper_bits for one in sent),
        )


class _Sent(NamedTuple):
    model: ScoreModel
    n_bytes: int | None
    paper_bits: float


class _Learned:
    """A block, the model fitted on it, and the surrogates made from that model."""

    def __init__(self, block: Block, work: SiteWork) -> None:
        self.block, self.work, self.seed = block, work, work.spec.seed
        fitted = fit_best(work.candidates, block.training)
        self.local = replace(fitted, read=_Memory(fitted.score))
        self._sent: dict[Bits, _Sent] = {}

    def sent(self, bits: Bits, sized: bool) -> _Sent:
        """Return what peers receive at this precision."""
        if bits not in self._sent:
            self._sent[bits] = self._compact(bits) if isinstance(bits, str) else self._exact(bits)
        one = self._sent[bits]
        if sized and one.n_bytes is None:
            one = one._replace(n_bytes=len(wire.encode(one.model.model)))  # type: ignore[attr-defined]
            self._sent[bits] = one
        return one

    def _compact(self, bits: str) -> _Sent:
        blob = make_surrogate(
            bits, self.local, self.block.training, self.seed, candidates=self.work.candidates
        )
        return _Sent(_Remembered(decode(blob)), len(blob), wire.paper_bits(blob))

    @cached_property
    def _flat(self) -> Flat:
        return flat_of(self.local, self.block.training, self.seed, candidates=self.work.candidates)

    def _exact(self, bits: int | None) -> _Sent:
        flat = self._flat
        numbers = len(flat.feature) if hasattr(flat, "feature") else 0
        model = flat if bits is None else uniform(flat, bits)
        return _Sent(_Remembered(model), None, numbers * ((bits or 64) + _SIDE_BITS))


class _Site(LocalSite):
    """A site that keeps what it learned, on all rows and block by block."""

    _whole: _Learned | None = None
    _parts: list[_Learned] | None = None

    def whole(self) -> _Learned:
        if self._whole is None:
            self._whole = _Learned(self._tested_block, self.work)
        return self._whole

    def blocks(self, n_blocks: int) -> list[_Learned]:
        if self._parts is None:
            self._parts = [_Learned(block, self.work) for block in self._blocks(n_blocks)]
        return self._parts


class _Memory:
    """A score function that computes once for each matrix it is given."""

    def __init__(self, read: Callable[[Matrix], Vector]) -> None:
        self._read = read
        self._known: dict[int, tuple[Matrix, Vector]] = {}

    def __call__(self, X: Matrix) -> Vector:
        # The matrix is kept beside its scores, so that no other can take over its identity.
        if id(X) not in self._known:
            self._known[id(X)] = X, self._read(X)
        return self._known[id(X)][1]


class _Remembered:
    """A surrogate that scores each matrix once."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._memory = _Memory(model.score)

    def score(self, X: Matrix) -> Vector:
        return self._memory(X)


def _totals(outcome: StepUp) -> tuple[int, ...]:
    return tuple(sum(counts) for counts in outcome.counts)
