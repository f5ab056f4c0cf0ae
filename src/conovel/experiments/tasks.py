"""A task: one trial of one design, decided in every cell of a table.

Tasks are plain values, so they can be sent to any machine. Their digest is part of the name of
their result on disk. A cell is decided by a network of :mod:`conovel.runs`. Its sites remember
what those of other cells have fitted: regimes, composites and precisions differ in what comes
later. A message of theirs has the name of a model in place of its bytes: to encode large models
takes ten times as long as all the rest.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.experiments.gaussian import Labelled
from conovel.models import wire
from conovel.models.forest import Forest
from conovel.models.quantized.forest import uniform
from conovel.models.wire import Surrogate
from conovel.rows.tables import Rows
from conovel.runs.agents import Agent, AgentRows, open_sites, read_agents
from conovel.runs.network_run import run_network
from conovel.scorers.base import FittedScorer, TrainingSet
from conovel.scorers.compiled_forest import CompiledForest
from conovel.scorers.estimators import ScorerLike
from conovel.site.blocks import Block
from conovel.site.sent.surrogate import flat_of
from conovel.site.site import Site
from conovel.site.work import SiteWork
from conovel.spec.run_spec import RunSpec
from conovel.spec.settings import Bits
from conovel.spec.version import __version__
from conovel.stats.levels import Level
from conovel.stats.resolution import resolution

_SIDE_BITS = 2.33  # what the paper spends on feature and structure, see wire.paper_bits
_OTHER_ROWS = ("joint", "consensus")  # agents train on other rows than in the other regimes
SIZED = 2  # trials in which large models are encoded to count their bytes; sizes vary little

Row: TypeAlias = dict[str, Any]  # one line of the Parquet file


class RowSource(Protocol):
    """Where the rows of a trial come from."""

    def draw(self, seed: list[int]) -> list[Labelled]:
        """Draw the agents of a trial."""

    def columns(self) -> Row:
        """Name the source in the results."""

    def identity(self) -> dict[str, Any]:
        """Return everything that the rows depend on besides the seed."""


@dataclass(frozen=True)
class Learner:
    """What the agents learn with: the paper's kind of forest, or conovel's default scorer.

    The paper names a random forest and nothing more, but its communication column fixes how
    many numbers a model has: 3962 in the quantization sweep, as forests of 100 trees of depth 5
    have here (docs/reproduction.md). Half of the known normals train. `engine` says what grows
    the trees, "compiled" (see :mod:`conovel.scorers.compiled_forest`) or "scikit-learn".
    """

    name: str = "forest"
    trees: int = 100
    depth: int | None = 5
    train_fraction: str = "1/2"
    engine: str = "compiled"

    @property
    def share(self) -> str | None:
        """The share of the known normals that trains; None for conovel's own choice."""
        return None if self.name == "default" else self.train_fraction

    def columns(self) -> Row:
        """Name the learner in the results."""
        if self.name == "default":
            return {"scorer": self.name, "trees": 0, "depth": 0, "train_fraction": ""}
        shape = {"scorer": self.name, "trees": self.trees, "depth": self.depth or 0}
        return {**shape, "train_fraction": self.train_fraction}

    def scorer(self) -> ScorerLike | None:
        """Return the `scorer` argument of a network."""
        if self.name == "default":
            return None
        if self.engine == "compiled":
            return CompiledForest(self.trees, self.depth)
        from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415

        return RandomForestClassifier(self.trees, max_depth=self.depth)


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
    """What the models of a network cost: bytes of the wire format, and bits by the paper.

    Bytes are None if nobody counted them, and both if no model was made.
    """

    n_bytes: int | None
    paper_bits: float | None


@dataclass(frozen=True, eq=False)
class Decision:
    """What a cell decided, agent by agent; rows that are not tested are not rejected."""

    rejected: list[NDArray[np.bool_]]
    ranks: list[NDArray[np.int64]]
    """0 where a row is not tested."""
    totals: tuple[int, ...]
    """Rejections that FastLSU counted in each round; empty without counts."""
    traffic: Traffic


class _Sent(NamedTuple):
    model: Surrogate
    n_bytes: int | None
    paper_bits: float


@dataclass(frozen=True, eq=False)
class _Memory:
    """What one agent has made; and of all agents the models by name, and those of this cell."""

    made: dict[object, Any]
    models: dict[bytes, _Sent]
    sent: list[_Sent]
    sized: bool

    def once(self, key: object, make: Callable[[], Any]) -> Any:
        """Return what was made for this key, or make it."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]


class _Site(Site):
    """A site that does nothing twice in a trial."""

    def __init__(self, null: Rows, test: Rows, work: SiteWork, memory: _Memory) -> None:
        super().__init__(null, test, work)
        self._memory = memory

    def models(self, *arguments: Any) -> Mapping[str, bytes]:
        names = super().models(*arguments)
        self._memory.sent.extend(self._memory.models[name] for name in names.values())
        return names

    def block_of(self, *places: NDArray[np.intp]) -> Block:
        key = tuple(each.tobytes() for each in places)
        block: Block = self._memory.once(key, lambda: super(_Site, self).block_of(*places))
        return block

    def fit(self, training: TrainingSet) -> FittedScorer:
        fitted: FittedScorer = self._memory.once(
            training, lambda: super(_Site, self).fit(training)
        )
        return fitted

    def surrogate(self, training: TrainingSet, local: FittedScorer, n_mixture: int) -> bytes:
        def make() -> bytes:
            if isinstance(self.spec.bits, str):
                blob = super(_Site, self).surrogate(training, local, n_mixture)
                one = _Sent(self.decode("this site", blob), len(blob), wire.paper_bits(blob))
            else:
                one = self._large(training, local, self.spec.bits)
            name = str(len(self._memory.models)).encode()
            self._memory.models[name] = one
            return name

        name: bytes = self._memory.once((training, self.spec.bits), make)
        return name

    def _large(self, training: TrainingSet, local: FittedScorer, bits: int | None) -> _Sent:
        candidates, seed = self.work.candidates, self.spec.seed
        flat = self._memory.once(
            (training, "flat"), lambda: flat_of(local, training, seed, candidates=candidates)
        )
        model = flat if bits is None else uniform(flat, bits)
        n_bytes = len(wire.encode(model)) if self._memory.sized else None
        # Quantized trees may shrink, and the paper counts them whole.
        numbers = len(flat.feature) if isinstance(flat, Forest) else 0
        return _Sent(model, n_bytes, numbers * ((bits or 64) + _SIDE_BITS))

    def decode(self, peer: str, blob: bytes) -> Surrogate:
        known_model = self._memory.models.get(blob)
        return super().decode(peer, blob) if known_model is None else known_model.model


@dataclass(frozen=True, eq=False)
class _Member(AgentRows):
    memory: _Memory

    def site(self, spec: RunSpec, drawn: int, n_agents: int) -> Site:
        return _Site(self.null, self.test, self.work(spec, drawn, n_agents), self.memory)


class Trial:
    """The agents of one trial, and what they have made so far.

    Parameters
    ----------
    agents : sequence of Labelled
        The truth in it is not looked at.
    scorer, level, train_fraction
        As in :class:`conovel.Network`; its `random_state` is `seed`.
    sized : bool
        Whether to count the bytes of large models; those of compact ones are always counted.

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
        sized: bool = True,
    ) -> None:
        width = len(str(len(agents)))  # agents are sorted by name, as texts
        self._agents = [
            Agent(f"agent {j:0{width}}", rows.X_null, rows.X_test) for j, rows in enumerate(agents)
        ]
        self._scorer = scorer
        self._settings = {"level": level, "train_fraction": train_fraction, "seed": seed}
        models: dict[bytes, _Sent] = {}
        self._sent: list[_Sent] = []
        self._memories = {a.name: _Memory({}, models, self._sent, sized) for a in self._agents}
        self._read: dict[str, dict[str, AgentRows]] = {}

    def decide(self, cell: Cell) -> Decision:
        """Decide as a network of that regime, composite and precision does."""
        self._sent.clear()
        run = run_network(*self._network(cell))
        results = [run[agent.name] for agent in self._agents]
        totals = tuple(sum(one.counts.values()) for one in run.transcript.rounds.values())
        return Decision(
            [one.rejected for one in results],
            [one.ranks for one in results],
            totals,
            self._traffic(cell),
        )

    def resolves(self, cell: Cell) -> bool:
        """Tell, before any fit, whether calibration is fine enough to be worth a try.

        In `split` every agent has a block for each agent. Blocks of many agents are so small that
        a step-up over them rejects more than half of all tests or nothing.
        """
        if cell.regime != "split":
            return True
        spec, members = self._network(cell)
        K = len(members)
        sites = open_sites(spec, members).values()
        m = sum(spec.regime.n_tested(len(site.test), j, K) for j, site in enumerate(sites))
        size = max(site.n_calibration_planned(K) for site in sites)
        return 2 * resolution(size, m, spec.level).fewest <= m

    def _network(self, cell: Cell) -> tuple[RunSpec, dict[str, AgentRows]]:
        """Return the settings of a cell and its agents, whose rows are read once per regime."""
        composite, bits = cell.composite or "mean", cell.bits
        spec = RunSpec.of(regime=cell.regime, composite=composite, bits=bits, **self._settings)
        if cell.regime not in self._read:
            self._read[cell.regime] = read_agents(spec, self._agents, self._scorer)
        members = {name: replace(one, bits=bits) for name, one in self._read[cell.regime].items()}
        if cell.regime in _OTHER_ROWS:
            return spec, members
        return spec, {
            name: _Member(**vars(one), memory=self._memories[name])
            for name, one in members.items()
        }

    def _traffic(self, cell: Cell) -> Traffic:
        if cell.regime in _OTHER_ROWS:
            return Traffic(None, None)
        sizes = [one.n_bytes for one in self._sent if one.n_bytes is not None]
        n_bytes = sum(sizes) if len(sizes) == len(self._sent) else None
        return Traffic(n_bytes, math.fsum(one.paper_bits for one in self._sent))


@dataclass(frozen=True)
class Task:
    """One trial."""

    source: RowSource
    learner: Learner
    cells: tuple[Cell, ...]
    level: str
    seed: int
    trial: int

    @property
    def digest(self) -> str:
        """A digest of everything but the trial: tasks of equal digest belong to one table."""
        text = json.dumps(
            {
                "version": __version__,
                "source": [type(self.source).__name__, self.source.identity()],
                "learner": asdict(self.learner),
                "cells": [asdict(cell) for cell in self.cells],
                "level": self.level,
                "seed": self.seed,
            },
            sort_keys=True,
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def network_seed(self) -> int:
        """Return the ``random_state`` of this trial's networks."""
        return int(np.random.SeedSequence([self.seed, self.trial, 1]).generate_state(1)[0])

    def run(self) -> list[Row]:
        """Decide every cell; the truth is used only to judge the decisions."""
        agents = self.source.draw([self.seed, self.trial])
        trial = Trial(
            agents,
            self.learner.scorer(),
            level=self.level,
            train_fraction=self.learner.share,
            seed=self.network_seed(),
            sized=self.trial < SIZED,
        )
        about = {**self.source.columns(), **self.learner.columns(), "trial": self.trial}
        return [{**about, **_judge(cell, trial, agents)} for cell in self.cells]


def _judge(cell: Cell, trial: Trial, agents: list[Labelled]) -> Row:
    novel = np.concatenate([agent.is_novel for agent in agents])
    if trial.resolves(cell):
        decision = trial.decide(cell)
    else:  # recorded without rejections; models are not sent, so they have no size
        nothing = [np.zeros(agent.is_novel.size, dtype=np.bool_) for agent in agents]
        ranks = [mask.astype(np.int64) for mask in nothing]
        decision = Decision(nothing, ranks, (), Traffic(None, None))
    rejected = np.concatenate(decision.rejected)
    tested = np.concatenate(decision.ranks) > 0
    n_found = int((rejected & novel).sum())
    totals = list(decision.totals)
    model_bits = decision.traffic.paper_bits
    counted = counting_bits(len(totals), [len(agent.X_test) for agent in agents])
    return {
        "regime": cell.regime,
        "composite": cell.composite,
        "precision": cell.precision,
        "tested": int(tested.sum()),
        "novel": int((tested & novel).sum()),
        "rejected": int(rejected.sum()),
        "found": n_found,
        "power": n_found / max(int((tested & novel).sum()), 1),
        "fdp": (int(rejected.sum()) - n_found) / max(int(rejected.sum()), 1),
        "totals": totals,
        "model_bytes": decision.traffic.n_bytes,
        "paper_bits": None if model_bits is None else model_bits + counted,
    }


def counting_bits(rounds: int, n_tests: list[int]) -> float:
    """Return the bits that the paper counts for rounds of FastLSU (section "Baseline 3").

    Examples
    --------
    >>> counting_bits(3, [333, 333, 334])
    171.0
    """
    total = math.ceil(math.log2(sum(n_tests) + 1))
    return float(rounds * sum(math.ceil(math.log2(m + 1)) + total for m in n_tests))
