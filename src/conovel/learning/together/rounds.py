"""What a round of sums is, whose rows it counts, and the settings that all agents agree on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from conovel.learning.together import bins as binning
from conovel.learning.together.moments import Whole
from conovel.scorers.base import Matrix, Vector


@dataclass(frozen=True)
class Settings:
    """What all agents agree on: how many trees, how deep, and the smallest leaf."""

    n_trees: int = 100
    n_plain_trees: int = 50  # on columns alone, where normals do not look Gaussian
    depth: int = 8
    least: int = 5


@dataclass(eq=False)
class AgentRows:
    """The rows of one agent, and what it remembers of them from round to round.

    Parameters
    ----------
    null_train, mixture : matrices
        The mixture in any order: only sums over it are used.
    """

    null_train: Matrix
    mixture: Matrix
    standard: Whole = field(init=False)  # rows in standard units, null_train first
    centre: Whole = field(default_factory=lambda: np.zeros(0, dtype=np.int64), init=False)
    codes: Whole = field(init=False)
    nodes: list[Whole] = field(default_factory=list, init=False)  # of each forest, by tree
    own: Vector | None = field(default=None, init=False)  # the own score, where it counts

    def __post_init__(self) -> None:
        self.values = np.vstack([self.null_train, self.mixture])
        self.keys = binning.keys_of(self.values)
        self.is_mixture = np.arange(len(self.values)) >= len(self.null_train)


class Round(NamedTuple):
    """One round: how many numbers it has, what an agent sends, and what the totals mean."""

    n_numbers: int
    answer: Callable[[AgentRows], Whole]
    take: Callable[[Whole], None]
    is_counted: bool = True  # whether all its numbers are numbers of rows
