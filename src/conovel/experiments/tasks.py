"""A task: one trial of one design, decided in every cell of a table.

Tasks are plain values, so they can be sent to any machine. Their digest is part of the name of
their result on disk. A cell is decided by a network of :mod:`conovel.runs`. Cells that train on
the same rows fit a model once: the scorer that their networks get remembers what it has fitted.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.experiments.gaussian import Labelled, gaussian_design
from conovel.runs.agents import Agent
from conovel.runs.network import Network
from conovel.scorers.base import FittedScorer, Scorer, TrainingSet
from conovel.scorers.compiled_forest import CompiledForest
from conovel.scorers.estimators import ScorerLike, as_scorer
from conovel.spec.settings import Bits
from conovel.spec.version import __version__
from conovel.stats.levels import Level, as_level
from conovel.stats.resolution import resolution

_SIDE_BITS = 2.33  # what the paper spends on feature and structure, see wire.paper_bits
_AROUND = 40  # bytes of a message around its model, besides the names of the two agents

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
class Gaussian:
    """The paper's Gaussian design; every shift has the same noise in the same trial."""

    shift: float
    n_agents: int = 3
    n_null: int = 3000
    n_test: int = 1000

    def draw(self, seed: list[int]) -> list[Labelled]:
        """Draw the agents of a trial."""
        return gaussian_design(
            self.shift,
            np.random.default_rng(seed),
            n_agents=self.n_agents,
            n_null=self.n_null,
            n_test=self.n_test,
        )

    def columns(self) -> Row:
        """Name the source in the results."""
        return {"data": "gaussian", "shift": float(self.shift), "agents": self.n_agents}

    def identity(self) -> dict[str, Any]:
        """Return everything that the rows depend on besides the seed."""
        return asdict(self)


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
    """What the models of a network cost: bytes of the wire format, and bits by the paper."""

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


@dataclass(frozen=True, eq=False)
class _FittedOnce(Scorer):
    """A scorer that fits the same rows with the same seed once."""

    scorer: Scorer
    seed: int | None = None
    fits: dict[tuple[int | None, bytes], FittedScorer] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.scorer.label

    def with_seed(self, seed: int) -> Scorer:
        return _FittedOnce(self.scorer.with_seed(seed), seed, self.fits)

    def fit(self, training: TrainingSet) -> FittedScorer:
        rows, labels = training.labelled()
        digest = hashlib.sha256(rows.tobytes() + labels.tobytes()).digest()
        if (self.seed, digest) not in self.fits:
            self.fits[self.seed, digest] = self.scorer.fit(training)
        return self.fits[self.seed, digest]


class Trial:
    """The agents of one trial, and the models that they have fitted so far.

    Examples
    --------
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
    ) -> None:
        self.level = as_level(level)
        width = len(str(len(agents)))  # agents are sorted by name, as texts
        self._agents = [
            Agent(f"agent {j:0{width}}", rows.X_null, rows.X_test) for j, rows in enumerate(agents)
        ]
        if scorer is not None and not isinstance(scorer, str):
            scorer = _FittedOnce(as_scorer(scorer))
        self._settings: Mapping[str, Any] = {
            "level": level,
            "train_fraction": train_fraction,
            "scorer": scorer,
            "random_state": seed,
        }
        self._unquantized: dict[str, float] = {}  # the paper's bits at 64 bits, by regime

    def decide(self, cell: Cell) -> Decision:
        """Decide as a network of that regime, composite and precision does."""
        run = Network(
            self._agents,
            regime=cell.regime,
            composite=cell.composite or "mean",
            bits=cell.bits,
            **self._settings,
        ).run(check=False)
        results = [run[agent.name] for agent in self._agents]
        models = [entry for entry in run.transcript.entries if entry.kind == "MODEL"]
        around = sum(_AROUND + len(entry.sender) + len(entry.receiver) for entry in models)
        traffic = Traffic(
            sum(entry.n_bytes for entry in models) - around,
            math.fsum(entry.paper_bits or 0 for entry in models),
        )
        if cell.bits is None and traffic.paper_bits:
            self._unquantized[cell.regime] = traffic.paper_bits
        if isinstance(cell.bits, int):  # quantized trees shrink, and the paper counts them whole
            if cell.regime not in self._unquantized:
                self.decide(Cell(cell.regime, cell.composite))
            share = (cell.bits + _SIDE_BITS) / (64 + _SIDE_BITS)
            traffic = traffic._replace(paper_bits=self._unquantized[cell.regime] * share)
        return Decision(
            [one.rejected for one in results],
            [one.ranks for one in results],
            tuple(sum(one.counts.values()) for one in run.transcript.rounds.values()),
            traffic,
        )

    def resolves(self, cell: Cell) -> bool:
        """Tell, before any fit, whether calibration is fine enough to be worth a try.

        In `split` every agent has a block for each agent. Blocks of many agents are so small that
        a step-up over them rejects more than half of all tests or nothing.
        """
        share = self._settings["train_fraction"]
        if cell.regime != "split" or share is None:
            return True
        K = len(self._agents)
        m = sum(math.ceil(len(agent.X_test) / K) for agent in self._agents)
        block = math.ceil(max(len(agent.X_null) for agent in self._agents) / K)
        size = math.ceil(block * (1 - Fraction(as_level(share))))
        return 2 * resolution(size, m, self.level).fewest <= m


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
