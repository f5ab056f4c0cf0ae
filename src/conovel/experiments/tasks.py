"""A task: one trial of one design, decided in every cell of a table.

Tasks are plain values, so they can be sent to any machine. Their digest is part of the name of
their result on disk.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from conovel.experiments.gaussian import Labelled, gaussian_design
from conovel.experiments.shared import Cell, Decision, Traffic, Trial
from conovel.scorers.compiled_forest import CompiledForest
from conovel.scorers.estimators import ScorerLike
from conovel.spec.version import __version__

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
    found = int((rejected & novel).sum())
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
        "found": found,
        "power": found / max(int((tested & novel).sum()), 1),
        "fdp": (int(rejected.sum()) - found) / max(int(rejected.sum()), 1),
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
