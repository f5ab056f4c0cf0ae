"""Rows of the attacks on sums: agents that learn together, and rows that are asked about."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from conovel.experiments.gaussian import centres, novelty_centre
from conovel.learning.together.moments import Whole
from conovel.learning.together.rounds import AgentRows
from conovel.scorers.base import Matrix, Vector

NULL, MIXTURE, KNOWN = ROLES = ("null_train", "mixture", "known")  # of a row


@dataclass(frozen=True)
class Design:
    """Agents of the paper's Gaussian design, each with the same numbers of rows.

    Half of the known normals train. There are a third as many tests, a tenth of them novel. The
    first `n_sharing` agents have known novelties, `n_shared` each.
    """

    n_known: int
    n_agents: int
    shift: float = 2.0
    n_shared: int = 0
    n_sharing: int = 1

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows of null_train, normal rows of the mixture, and novelties, of one agent."""
        n_tests = max(self.n_known // 3, 2)
        n_novel = max(round(n_tests / 10), 1)
        n_train = self.n_known // 2
        return n_train, self.n_known - n_train + n_tests - n_novel, n_novel

    def n_heard(self, role: str, agent: int, n_heard: int) -> int:
        """Return how many rows of a role are at agents of a place, of the first `n_heard` ones."""
        if role == KNOWN:  # novelties are the same everywhere: all are at the first place
            return 0 if agent else self.n_shared * min(n_heard, self.n_sharing)
        n_train, *n_mixture = self.sizes
        n_places = sum(j % 3 == agent for j in range(n_heard))
        return n_places * (n_train if role == NULL else sum(n_mixture))

    def normals_centre(self, agent: int) -> Vector:
        """Return the mean of the normal rows of an agent."""
        centre: Vector = centres(self.shift)[agent % 3]
        return centre

    def normals(self, agent: int, n_rows: int, rng: np.random.Generator) -> Matrix:
        """Draw normal rows of an agent."""
        centre = self.normals_centre(agent)
        return rng.normal(size=(n_rows, centre.size)) + centre

    def novelties(self, n_rows: int, rng: np.random.Generator) -> Matrix:
        """Draw novelties."""
        centre = novelty_centre()
        return rng.normal(size=(n_rows, centre.size)) + centre

    def agent(self, number: int, rng: np.random.Generator, times: int = 1) -> AgentRows:
        """Draw an agent, or one with several times as many rows."""
        n_train, n_normal, n_novel = (times * size for size in self.sizes)
        mixture = [self.normals(number, n_normal, rng), self.novelties(n_novel, rng)]
        null = self.normals(number, n_train, rng)
        has_known = self.n_shared and number < self.n_sharing
        known_rows = self.novelties(times * self.n_shared, rng) if has_known else None
        return AgentRows(null, np.vstack(mixture), known_rows)


@dataclass(eq=False)
class Probe:
    """Rows of one role, of which the attacker wants to know what each would add to the sums.

    Rows differ from each other and from all others of the agent, so whether a row is held back
    follows from the row alone.
    """

    values: Matrix
    role: str
    agent: int = 0
    one_by_one: list[AgentRows] = field(init=False, repr=False)
    all_rows: AgentRows = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.one_by_one = [self._of_role(row[np.newaxis]) for row in self.values]
        self.all_rows = self._of_role(self.values)

    def _of_role(self, rows: Matrix) -> AgentRows:
        return AgentRows(*(rows if role == self.role else rows[:0] for role in ROLES))

    def take_parts(self) -> None:
        """Let each row have its own part of what was computed for all of them."""
        for i, row in enumerate(self.one_by_one):
            row.parts = [part[i : i + 1] for part in self.all_rows.parts]

    def has_centre(self, centre: Whole) -> None:
        """Let the rows be those of an agent whose normals have this centre."""
        for rows in (*self.one_by_one, self.all_rows):
            rows.centre = centre
