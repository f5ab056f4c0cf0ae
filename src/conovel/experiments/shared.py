"""One trial, every regime: each model is fitted once and each score computed once.

`counts`, `isolated`, `full` and `conservative` differ in what is sent and at which level is
decided, not in what an agent learns, and precisions and composites differ later still. So every
cell of a table is a run of the protocol, and its sites take blocks, fits and scores from the cells
before. A message then has the name of a model in place of its bytes, as nobody counts those of
large models in most trials. In `joint` and `consensus` agents train on other rows than in these
regimes, so a whole network runs, with rows of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.experiments.gaussian import Labelled
from conovel.models import wire
from conovel.models.quantized.forest import uniform
from conovel.rows.tables import Rows, read_rows, unify
from conovel.runs.agents import Agent
from conovel.runs.network import Network, run_on_sites
from conovel.scorers.automatic import as_candidates
from conovel.scorers.base import FittedScorer, Matrix, TrainingSet, Vector
from conovel.scorers.estimators import ScorerLike
from conovel.site.sent.surrogate import flat_of
from conovel.site.site import Block, LocalSite
from conovel.site.work import SiteWork
from conovel.spec.regimes import as_regime
from conovel.spec.run_spec import RunSpec
from conovel.spec.seeds import agent_seeds
from conovel.spec.settings import Bits
from conovel.stats.levels import Level, as_level
from conovel.stats.resolution import resolution

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
        As in :class:`conovel.runs.network.Network`.
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
        self.sized = sized
        width = len(str(len(agents)))  # agents are sorted by name, as texts
        self._agents = [
            Agent(f"agent {j:0{width}}", rows.X_null, rows.X_test) for j, rows in enumerate(agents)
        ]
        self._settings: Mapping[str, Any] = {
            "level": level,
            "train_fraction": train_fraction,
            "scorer": scorer,
            "random_state": seed,
        }
        self._rows = [
            unify(read_rows(a.X_null, "X_null"), read_rows(a.X_test, "X_test")) for a in agents
        ]
        seeds = agent_seeds(seed, len(agents))
        self._learners = [(tuple(as_candidates(scorer, own)), own) for own in seeds]
        self._models: dict[bytes, _Sent] = {}
        self._known: dict[object, dict[object, Any]] = {}

    def decide(self, cell: Cell) -> Decision:
        """Decide as a network of that regime, composite and precision would."""
        network = self._network(cell)
        spec = network.spec()
        if spec.regime.decides_by_cells:
            run, traffic = network.run(check=False), Traffic(None, None)
        else:
            sites = self._sites(spec)
            run = run_on_sites(spec, self._agents, sites, {}, lambda text: None)
            traffic = self._traffic([one for site in sites.values() for one in site.sent])
        results = [run[agent.name] for agent in self._agents]
        totals = tuple(sum(one.counts.values()) for one in run.transcript.rounds.values())
        return Decision(
            [one.rejected for one in results], [one.ranks for one in results], totals, traffic
        )

    def resolves(self, cell: Cell) -> bool:
        """Tell, before any fit, whether calibration is fine enough to be worth a try.

        Blocks of many agents are so small that a step-up over them rejects more than half of
        all tests or nothing.
        """
        regime, K = as_regime(cell.regime), len(self._rows)
        if not regime.splits_rows:
            return True
        m = sum(regime.n_tested(len(test), j, K) for j, (_, test) in enumerate(self._rows))
        sites = self._sites(self._network(cell).spec()).values()
        size = max(site.n_calibration_planned(K) for site in sites)
        return 2 * resolution(size, m, self.level).fewest <= m

    def _network(self, cell: Cell) -> Network:
        composite = cell.composite or "mean"
        regime, bits = cell.regime, cell.bits
        return Network(
            self._agents, regime=regime, composite=composite, bits=bits, **self._settings
        )

    def _sites(self, spec: RunSpec) -> dict[str, _Site]:
        """Return sites of one cell; those of regimes that learn alike know the same."""
        key: tuple[object, ...] = (spec.regime.splits_rows,)
        if spec.train_fraction is None:  # then the split follows from what is decided together
            key = (*key, spec.regime.uses_counts, spec.regime.divides_level)
        sites = {}
        for agent, (null, test), (candidates, seed) in zip(
            self._agents, self._rows, self._learners, strict=True
        ):
            work = SiteWork(replace(spec, seed=seed), candidates, len(self._rows), group_rows=1)
            known = self._known.setdefault((agent.name, *key), {})
            sites[agent.name] = _Site(null, test, work, known, self._models)
        return sites

    def _traffic(self, names: Sequence[bytes]) -> Traffic:
        """Add up what models cost."""
        for name in names:
            one = self._models[name]
            if self.sized and one.n_bytes is None:
                n_bytes = len(wire.encode(one.model.model))
                self._models[name] = one._replace(n_bytes=n_bytes)
        sent = [self._models[name] for name in names]
        sizes = [one.n_bytes for one in sent if one.n_bytes is not None]
        return Traffic(
            sum(sizes) if len(sizes) == len(sent) else None,
            math.fsum(one.paper_bits for one in sent),
        )


class _Sent(NamedTuple):
    model: _Remembered
    n_bytes: int | None
    paper_bits: float


class _Site(LocalSite):
    """A site of one cell: it does nothing that is `known` from a cell before.

    Attributes
    ----------
    sent : list of bytes
        The name of each model that was sent, once for each peer.
    """

    def __init__(
        self,
        null: Rows,
        test: Rows,
        work: SiteWork,
        known: dict[object, Any],
        models: dict[bytes, _Sent],
    ) -> None:
        super().__init__(null, test, work)
        self._known, self._models = known, models
        self.sent: list[bytes] = []

    def models(self, *arguments: Any) -> Mapping[str, bytes]:
        """Make a model for every peer, and note which."""
        models = super().models(*arguments)
        self.sent = list(models.values())
        return models

    def _once(self, key: object, make: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _block(self, nulls: NDArray[np.intp], tests: NDArray[np.intp]) -> Block:
        key = nulls.tobytes(), tests.tobytes()
        block: Block = self._once(key, lambda: super(_Site, self)._block(nulls, tests))
        return block

    def _fit(self, training: TrainingSet) -> FittedScorer:
        def fit() -> FittedScorer:
            fitted = super(_Site, self)._fit(training)
            return replace(fitted, read=_Memory(fitted.score))

        fitted: FittedScorer = self._once(training, fit)
        return fitted

    def _surrogate(self, training: TrainingSet, local: FittedScorer, n_mixture: int) -> bytes:
        def make() -> bytes:
            name = str(len(self._models)).encode()
            self._models[name] = self._make(training, local, n_mixture)
            return name

        name: bytes = self._once((training, self.spec.bits), make)
        return name

    def _make(self, training: TrainingSet, local: FittedScorer, n_mixture: int) -> _Sent:
        bits = self.spec.bits
        if isinstance(bits, str):
            blob = super()._surrogate(training, local, n_mixture)
            model = super()._decode_one("this site", blob)
            return _Sent(_Remembered(model), len(blob), wire.paper_bits(blob))
        flat = self._once(
            (training, "flat"),
            lambda: flat_of(local, training, self.spec.seed, candidates=self.work.candidates),
        )
        numbers = len(flat.feature) if hasattr(flat, "feature") else 0
        sent = flat if bits is None else uniform(flat, bits)
        return _Sent(_Remembered(sent), None, numbers * ((bits or 64) + _SIDE_BITS))

    def _decode_one(self, peer: str, blob: bytes) -> Any:
        return self._models[blob].model


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
        self.score = _Memory(model.score)
