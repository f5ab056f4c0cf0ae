"""One score of all agents, learnt in rounds: agents send whole numbers, and all get the sums.

A :class:`Learner` is the same at all parties: it is a function of the seed, the number of columns
and the totals so far (Theorem 19, docs/theory.md). It says how many numbers the next round has; an
agent computes its own from its rows; :meth:`Learner.take` goes on with the totals. So the
coordinator chooses nothing: it adds. Nothing is asked of one agent that is not asked of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from conovel.learning.together import bins as binning
from conovel.learning.together import moments
from conovel.learning.together.forest import Forest
from conovel.learning.together.moments import Discriminants, Whole
from conovel.scorers.base import Matrix, Vector
from conovel.stats.cells import N_CELLS

MOST_ROWS = 1 << 31  # of all agents: no sum of theirs is above 2^63
_MOST_MOMENTS = 200  # columns; a table that is wider has no discriminants
# Bins of columns in standard units, and of discriminants.
_RELATIVE = np.rint(np.sinh(np.arange(-31, 32) / 8) * 0.5 * moments.UNIT).astype(np.int64)
_DISCRIMINANT = np.sinh(np.arange(-47, 48) / 12) * 4
# Lowest log-odds of the cells in which rows are counted, beside those of the whole sample.
EDGES = np.arange(-N_CELLS // 4 + 2, 3 * N_CELLS // 4 + 1) / 30
_PLAN = ("relative", "relative", "common", "common", "common")  # which direction is refined
MOMENT_ROUNDS = 2 + 2 * len(_PLAN)
MOST_DERIVED_BINS = max(_RELATIVE.size, _DISCRIMINANT.size) + 1


@dataclass(frozen=True)
class Settings:
    """What all agents agree on: how many trees, how deep, and the smallest leaf."""

    n_trees: int = 100
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
    nodes: Whole = field(init=False)

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


class Learner:
    """The score as far as it is learnt.

    Parameters
    ----------
    n_columns : int
    n_agents : int
        How many agents take part. One agent has no rows of others to be compared with.
    seed : int
    settings : Settings
    """

    def __init__(
        self, n_columns: int, n_agents: int, seed: int, settings: Settings | None = None
    ) -> None:
        self.n_columns, self.n_agents, self.seed = n_columns, n_agents, seed
        self.settings = settings or Settings()
        self.n_rounds = 0
        self.bins: tuple[binning.Bins, ...] = ()
        self.forest: Forest | None = None
        self.likely: int | None = None  # the lowest cell whose rows are likely novelties
        self._cuts = [binning.first_cuts()] * n_columns
        self._n_null = self._n_mixture = 0
        self._refined = 0  # directions so far
        self._discriminants: Discriminants | None = None
        self._round: Round
        self._ask_for_intervals()

    @property
    def is_done(self) -> bool:
        """Whether the score is learnt."""
        return self.likely is not None

    @property
    def n_numbers(self) -> int:
        """How many numbers every agent sends in the next round."""
        return self._round.n_numbers

    def answer(self, rows: AgentRows) -> Whole:
        """Return an agent's numbers of this round: sums over its rows, in no order.

        Proof: Theorem 19 (docs/theory.md#thm-together).
        """
        return self._round.answer(rows)

    def take(self, totals: Whole, own: Whole | None = None) -> None:
        """Go on with the sums over all agents; ValueError for what no rows can have.

        `own` are numbers of an agent, which must be part of the sums.
        """
        if totals.size != self.n_numbers:
            raise ValueError(f"{totals.size} numbers, and not {self.n_numbers}")
        if self._round.is_counted and totals.min(initial=0) < 0:
            raise ValueError("a number of rows is below zero")
        if self._round.is_counted and own is not None and np.any(totals < own):
            raise ValueError("a number of rows is below that of this agent")
        self.n_rounds += 1
        self._round.take(totals)

    # --- bins -----------------------------------------------------------------------------------
    def _ask_for_intervals(self) -> None:
        size = 2 + sum(cuts.size + 1 for cuts in self._cuts)
        self._round = Round(size, self._count_intervals, self._take_intervals)

    def _count_intervals(self, rows: AgentRows) -> Whole:
        head = [np.array([len(rows.null_train), len(rows.mixture)], dtype=np.int64)]
        columns = zip(self._cuts, rows.keys.T, strict=True)
        return np.concatenate(
            head + [binning.counts_between(cuts, keys) for cuts, keys in columns]
        )

    def _take_intervals(self, totals: Whole) -> None:
        self._take_numbers_of_rows(totals)
        stops = np.cumsum([cuts.size + 1 for cuts in self._cuts])[:-1]
        counts = np.split(totals[2:], stops)
        for column in counts:
            _require_rows(column, self._n_null + self._n_mixture)
        least = self.settings.least
        if self.n_rounds < binning.N_ROUNDS:
            self._cuts = [
                binning.refined(cuts, column, least)
                for cuts, column in zip(self._cuts, counts, strict=True)
            ]
            self._ask_for_intervals()
            return
        pairs = zip(self._cuts, counts, strict=True)
        self.bins = tuple(binning.bins_from(cuts, column, least) for cuts, column in pairs)
        if self.n_columns > _MOST_MOMENTS:
            self._begin_trees()
        else:
            size = moments.n_sums(self.n_columns)
            self._round = Round(size, self._sums, self._take_sums, is_counted=False)

    def _take_numbers_of_rows(self, totals: Whole) -> None:
        n_null, n_mixture = (int(n) for n in totals[:2])
        if not 0 < n_null + n_mixture <= MOST_ROWS:
            raise ValueError(f"{n_null + n_mixture} rows, and not 1 to {MOST_ROWS}")
        if self.n_rounds > 1:
            self._require_same(n_null, n_mixture)
        self._n_null, self._n_mixture = n_null, n_mixture

    def _require_same(self, n_null: int, n_mixture: int | None = None) -> None:
        """Check that agents have as many rows as in the first round."""
        if n_null != self._n_null or n_mixture not in (None, self._n_mixture):
            raise ValueError("the numbers of rows are others than before")

    def _of_kinds(self, totals: Whole) -> tuple[Whole, Whole]:
        """Return the counts of null_train and of the mixture; each row is in one cell."""
        null, mixture = np.split(totals, 2)
        _require_rows(null, self._n_null)
        _require_rows(mixture, self._n_mixture)
        return null, mixture

    # --- moments --------------------------------------------------------------------------------
    def standard(self, values: Matrix) -> Whole:
        """Return rows in standard units, as whole numbers."""
        centre = np.array([one.centre for one in self.bins])
        unit = np.array([one.unit for one in self.bins])
        with np.errstate(over="ignore"):
            units = (values - centre) / unit * moments.UNIT
        whole: Whole = np.rint(np.clip(units, -moments.LIMIT, moments.LIMIT)).astype(np.int64)
        return whole

    def _sums(self, rows: AgentRows) -> Whole:
        rows.standard = self.standard(rows.values)
        return moments.sums_of(rows.standard[~rows.is_mixture])

    def _take_sums(self, totals: Whole) -> None:
        self._require_same(int(totals[1]))
        self.centres = moments.centres_from(totals, self.n_columns)
        size = 1 + self.n_columns * (self.n_columns + 1) // 2
        self._round = Round(size, self._products, self._take_products, is_counted=False)

    def _products(self, rows: AgentRows) -> Whole:
        null = rows.standard[~rows.is_mixture]
        rows.centre = self.centres.of_agent(null.sum(axis=0), len(null))
        about = null - rows.centre
        return np.concatenate([[len(null)], moments.packed(about.T @ about)])

    def _take_products(self, totals: Whole) -> None:
        self._require_same(int(totals[0]))
        inverse = moments.covariance_from(totals, self.n_columns)
        self._discriminants = Discriminants(inverse)
        self._ask_for_cells()

    def _ask_for_cells(self) -> None:
        size = 2 * (moments.CELLS.size + 1)
        self._round = Round(size, self._cells, self._take_cells)

    def _cells(self, rows: AgentRows) -> Whole:
        cells = moments.cells_of(self._columns(rows)[:, -1])
        size = moments.CELLS.size + 1
        kinds = (cells[~rows.is_mixture], cells[rows.is_mixture])
        return np.concatenate([np.bincount(kind, minlength=size) for kind in kinds]).astype(
            np.int64
        )

    def _take_cells(self, totals: Whole) -> None:
        self._weights = moments.weights_of(*self._of_kinds(totals))
        size = 1 + self.n_columns
        self._round = Round(size, self._weighted, self._take_weighted, is_counted=False)

    def _weighted(self, rows: AgentRows) -> Whole:
        mixture = rows.standard[rows.is_mixture]
        weight = self._weights[moments.cells_of(self._columns(rows)[rows.is_mixture, -1])]
        if _PLAN[self._refined] == "relative":
            mixture = mixture - rows.centre
        return np.append(weight.sum(), (weight[:, None] * mixture).sum(axis=0)).astype(np.int64)

    def _take_weighted(self, totals: Whole) -> None:
        mean = totals[1:] / max(int(totals[0]), 1)
        old = self._discriminants
        assert old is not None  # noqa: S101  (moments come first)
        if _PLAN[self._refined] == "relative":
            self._discriminants = Discriminants(old.inverse, mean)
        else:
            self._discriminants = Discriminants(old.inverse, old.relative, mean)
        self._refined += 1
        if self._refined < len(_PLAN):
            self._ask_for_cells()
        else:
            self._begin_trees()

    def _columns(self, rows: AgentRows) -> Matrix:
        assert self._discriminants is not None  # noqa: S101
        return self._discriminants.columns(rows.standard, rows.centre)

    # --- trees ----------------------------------------------------------------------------------
    def _begin_trees(self) -> None:
        n_bins = [one.edges.size + 1 for one in self.bins]
        shares = np.ones(self.n_columns)
        if self._discriminants is not None:
            if self.n_agents > 1:
                n_bins += [_RELATIVE.size + 1] * self.n_columns
                shares = np.ones(2 * self.n_columns)
            n_bins += [_DISCRIMINANT.size + 1] * 3
            shares = np.append(shares, np.full(3, max(1.0, self.n_columns / 6)))
        size = self.settings
        self.forest = Forest(
            tuple(n_bins), shares, size.n_trees, size.depth, size.least, self.seed
        )
        self.forest.begin(self._n_null, self._n_mixture)
        self._prior = float(np.log(max(self._n_mixture, 1) / max(self._n_null, 1)))
        self._round = Round(self.forest.n_numbers, self._count_level, self._take_level)

    def codes(self, keys: binning.Keys, standard: Whole, centre: Whole) -> Whole:
        """Return the bins of rows in all columns: their own, relative ones, and discriminants."""
        codes = [one.codes(column) for one, column in zip(self.bins, keys.T, strict=True)]
        if self._discriminants is not None:
            if self.n_agents > 1:
                codes += list(np.searchsorted(_RELATIVE, standard - centre, side="right").T)
            columns = self._discriminants.columns(standard, centre)
            codes += list(np.searchsorted(_DISCRIMINANT, columns, side="right").T)
        return np.stack(codes, axis=1).astype(np.int64)

    def _count_level(self, rows: AgentRows) -> Whole:
        forest = self.forest
        assert forest is not None  # noqa: S101
        if forest.level == 0:
            standard, centre = self._of_agent(rows)
            rows.codes = self.codes(rows.keys, standard, centre)
            rows.nodes = np.zeros((forest.n_trees, len(rows.values)), dtype=np.int64)
        else:
            forest.move(rows.codes, rows.nodes)
        return forest.count(rows.codes, rows.is_mixture, rows.nodes)

    def _take_level(self, totals: Whole) -> None:
        assert self.forest is not None  # noqa: S101
        self.forest.split(totals)
        if self.forest.is_grown:
            self._round = Round(2 * N_CELLS, self._count_scores, self._take_scores)
        else:
            self._round = Round(self.forest.n_numbers, self._count_level, self._take_level)

    def _count_scores(self, rows: AgentRows) -> Whole:
        assert self.forest is not None  # noqa: S101
        cells = self.cells(self.forest.score(rows.codes) - self._prior)
        kinds = (cells[~rows.is_mixture], cells[rows.is_mixture])
        counts = [np.bincount(kind, minlength=N_CELLS) for kind in kinds]
        return np.concatenate(counts).astype(np.int64)

    def _take_scores(self, totals: Whole) -> None:
        self.likely = likely_cell(*self._of_kinds(totals))

    def _of_agent(self, rows: AgentRows) -> tuple[Whole, Whole]:
        none = np.zeros((len(rows.values), 0), dtype=np.int64), np.zeros(0, dtype=np.int64)
        return none if self._discriminants is None else (rows.standard, rows.centre)

    # --- the score ------------------------------------------------------------------------------
    def score(self, values: Matrix, centre: Whole) -> Vector:
        """Score rows of an agent whose normals have this centre.

        The log-odds of the mixture, beside those of the whole sample: 0 is a row that tells
        nothing.
        """
        assert self.forest is not None  # noqa: S101
        standard = np.zeros((len(values), 0), dtype=np.int64)
        if self._discriminants is not None:
            standard = self.standard(values)
        codes = self.codes(binning.keys_of(values), standard, centre)
        return self.forest.score(codes) - self._prior

    @staticmethod
    def cells(scores: Vector, edges: Vector = EDGES) -> Whole:
        """Return the cell of each score, from 0 to N_CELLS - 1."""
        return np.searchsorted(edges, scores, side="right").astype(np.int64)


def _require_rows(counts: Whole, n_rows: int) -> None:
    """Check that each of `n_rows` is counted once."""
    if counts.max(initial=0) > n_rows or int(counts.sum()) != n_rows:
        raise ValueError(f"not each of {n_rows} rows is counted once")


def likely_cell(null: Whole, mixture: Whole) -> int:
    """Return the lowest cell whose rows are likely novelties: three spreads above the middle.

    Rows of null_train score a little lower than normal rows of the mixture, which the score takes
    for what it looks for. So the middle is that of the mixture. The spread is that of the lower
    half of the mixture or of the upper half of null_train, the larger one: novelties are in
    neither.
    """

    def quantile(counts: Whole, share: float) -> float:
        above = np.cumsum(counts)
        place = share * float(above[-1])
        cell = int(np.searchsorted(above, place))
        before = float(above[cell - 1]) if cell else 0.0
        return cell + (place - before) / max(float(counts[min(cell, N_CELLS - 1)]), 1.0)

    middle = quantile(mixture, 0.5)
    lower = middle - quantile(mixture, 0.2)
    upper = quantile(null, 0.8) - quantile(null, 0.5)
    return min(int(middle + 3 * max(lower, upper, 0.5) / 0.8416) + 1, N_CELLS)


def learn(agents: Sequence[AgentRows], seed: int, settings: Settings | None = None) -> Learner:
    """Learn the score of agents in one process, from sums alone."""
    learner = Learner(agents[0].values.shape[1], len(agents), seed, settings)
    while not learner.is_done:
        learner.take(sum_of([learner.answer(rows) for rows in agents]))
    return learner


def sum_of(answers: Sequence[Whole]) -> Whole:
    """Add up the numbers of all agents; whole numbers, so that no order matters."""
    total: Whole = np.sum(np.stack(answers), axis=0, dtype=np.int64)
    return total
