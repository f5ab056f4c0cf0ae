"""One score of all agents, learnt in rounds: agents send whole numbers, and all get the sums.

A :class:`Learner` is the same at all parties: it is a function of the seed, the number of columns
and the totals so far (Theorem 19, docs/theory.md). It says how many numbers the next round has; an
agent computes its own from its rows; :meth:`Learner.take` goes on with the totals. So the
coordinator chooses nothing: it adds. Nothing is asked of one agent that is not asked of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conovel.errors import ColumnError
from conovel.learning.together import bins as binning
from conovel.learning.together import moments
from conovel.learning.together.forest import Forest, forests_of
from conovel.learning.together.known import N_COUNTS, KnownPart
from conovel.learning.together.moments import Discriminants, Whole
from conovel.learning.together.rounds import (
    AgentRows,
    Round,
    Settings,
    by_kind,
    require_rows,
    sum_of,
)
from conovel.learning.together.scale import (
    N_NARROW,
    edges_from,
    likely_from,
    narrow_cells,
    own_weight,
)
from conovel.scorers.base import Matrix, Vector

MOST_ROWS = 1 << 31  # of all agents: no sum of theirs is above 2^63
_MOST_MOMENTS = 200  # columns; a table that is wider has no discriminants
# Bins of columns in standard units, and of discriminants.
_RELATIVE = np.rint(np.sinh(np.arange(-31, 32) / 8) * 0.5 * moments.UNIT).astype(np.int64)
_DISCRIMINANT = np.sinh(np.arange(-47, 48) / 12) * 4
_PLAN = ("relative", "relative", "common", "common", "common")  # which direction is refined
_SECOND_WEIGHT = 0.5  # of the second part of the score, in standard units
_MOST_RATIO = 50.0  # log-likelihood ratios of the common direction are clipped there
# Log-odds and ratios are added up in such parts: the squares of 2^31 rows stay below 2^59.
_STEP = 256.0
MOMENT_ROUNDS = 2 + 2 * len(_PLAN)
SCORE_ROUNDS = 3  # spreads of the parts, what known novelties lift, counts by the whole score
_HEAD = 4  # numbers of rows: null_train, mixture, held back of null_train, known novelties
MOST_DERIVED_BINS = max(_RELATIVE.size, _DISCRIMINANT.size) + 1


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
        if n_columns > binning.MOST_COLUMNS:
            raise ColumnError(
                f"agents learn together from at most {binning.MOST_COLUMNS:,} columns, not"
                f" {n_columns:,}: leave some out, or use the regime 'joint'"
            )
        self.n_columns, self.n_agents = n_columns, n_agents
        self.seed = seed % 2**64  # the loops have numbers of 64 bits
        self.settings = settings or Settings()
        self.n_rounds = 0
        self.bins: tuple[binning.Bins, ...] = ()
        self.forests: tuple[Forest, ...] = ()
        self.edges: Vector | None = None  # the lowest score of each cell but the first
        self.likely = 0  # the lowest cell whose rows are likely novelties
        self._cuts = [binning.first_cuts()] * n_columns
        self._n_null = self._n_mixture = self._n_held = self._n_known = 0
        self.known_part: KnownPart | None = None  # what is learnt from known novelties
        self._refined = 0  # directions so far
        self._discriminants: Discriminants | None = None
        self._is_gaussian = True
        self._units: list[tuple[float, float, float]] = []  # mean, spread, weight of each part
        # Whether an agent's own score is due: the last round counts rows by the whole score.
        self.is_scaled = False
        self._round: Round
        self._ask_for_intervals()

    @property
    def is_done(self) -> bool:
        """Whether the score is learnt."""
        return self.edges is not None

    def own_weight(self, n_rows: int) -> float:
        """Return how much the own score of an agent with so many rows counts.

        Proof: Theorem 19 (docs/theory.md#thm-together).
        """
        if self.n_agents == 1 or self._discriminants is None:
            return own_weight(n_rows, np.inf)
        return own_weight(n_rows, float(self.centres.between.max(initial=0.0)))

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
        size = _HEAD + sum(cuts.size + 1 for cuts in self._cuts)
        self._round = Round(size, self._count_intervals, self._take_intervals)

    def _count_intervals(self, rows: AgentRows) -> Whole:
        numbers = len(rows.null_train), len(rows.mixture), rows.is_held.sum(), rows.n_known
        head = [np.array(numbers, dtype=np.int64)]
        columns = zip(self._cuts, rows.keys.T, strict=True)
        return np.concatenate(
            head + [binning.counts_between(cuts, keys) for cuts, keys in columns]
        )

    def _take_intervals(self, totals: Whole) -> None:
        self._take_numbers_of_rows(totals)
        stops = np.cumsum([cuts.size + 1 for cuts in self._cuts])[:-1]
        counts = np.split(totals[_HEAD:], stops)
        for column in counts:
            require_rows(column, self._n_null + self._n_mixture)
        least, is_fine = self.settings.least, self.n_columns <= binning.MOST_FINE
        if self.n_rounds < binning.N_ROUNDS:
            self._cuts = [
                binning.refined(cuts, column, least, is_fine=is_fine)
                for cuts, column in zip(self._cuts, counts, strict=True)
            ]
            self._ask_for_intervals()
            return
        pairs = zip(self._cuts, counts, strict=True)
        self.bins = tuple(binning.bins_from(*one, least, is_fine=is_fine) for one in pairs)
        if self.n_columns > _MOST_MOMENTS:
            self._begin_trees()
        else:
            size = moments.n_sums(self.n_columns)
            self._round = Round(size, self._sums, self._take_sums, is_counted=False)

    def _take_numbers_of_rows(self, totals: Whole) -> None:
        n_null, n_mixture, n_held, n_known = (int(n) for n in totals[:_HEAD])
        if not 0 < n_null + n_mixture <= MOST_ROWS or n_held > n_null or n_known > MOST_ROWS:
            raise ValueError(f"{n_null + n_mixture} rows, and not 1 to {MOST_ROWS}")
        if self.n_rounds > 1:
            self._require_same(n_null, n_mixture)
            if (n_held, n_known) != (self._n_held, self._n_known):
                raise ValueError("the numbers of known novelties are others than before")
        self._n_null, self._n_mixture = n_null, n_mixture
        self._n_held, self._n_known = n_held, n_known

    def _require_same(self, n_null: int, n_mixture: int | None = None) -> None:
        """Check that agents have as many rows as in the first round."""
        if n_null != self._n_null or n_mixture not in (None, self._n_mixture):
            raise ValueError("the numbers of rows are others than before")

    def _of_kinds(self, totals: Whole) -> tuple[Whole, Whole]:
        """Return the counts of null_train and of the mixture; each row is in one cell."""
        null, mixture = np.split(totals, 2)
        require_rows(null, self._n_null)
        require_rows(mixture, self._n_mixture)
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
        size = 1 + 4 * self.n_columns + self.n_columns * (self.n_columns + 1) // 2
        self._round = Round(size, self._products, self._take_products, is_counted=False)

    def _centre_of(self, null: Whole) -> Whole:
        return self.centres.of_agent(null.sum(axis=0), len(null))

    def _products(self, rows: AgentRows) -> Whole:
        null = rows.standard[~rows.is_mixture]
        rows.centre = self._centre_of(null)
        about = null - rows.centre
        crossed = moments.packed(about.T @ about)
        return np.concatenate([moments.powers_of(about), [len(null)], crossed])

    def _take_products(self, totals: Whole) -> None:
        powers, totals = np.split(totals, [4 * self.n_columns])
        self._require_same(int(totals[0]))
        self._is_gaussian = moments.look_gaussian(powers, self._n_null)
        inverse = moments.covariance_from(totals, self.n_columns)
        self._discriminants = Discriminants(inverse)
        self._ask_for_cells()

    def _ask_for_cells(self) -> None:
        size = 2 * (moments.CELLS.size + 1)
        self._round = Round(size, self._cells, self._take_cells)

    def _cells(self, rows: AgentRows) -> Whole:
        cells = moments.cells_of(self._columns(rows)[:, -1])
        return by_kind(cells, rows.is_mixture, moments.CELLS.size + 1)

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
        """Open the forests: one that draws all columns, and one without discriminants.

        Discriminants are nearly the best score where normals are Gaussian, so there the common
        one is the second part of the score. Elsewhere trees that never see discriminants err in
        other rows than those that do, and the sum of both finds more.
        """
        n_bins = [one.edges.size + 1 for one in self.bins]
        shares, n_hidden = np.ones(self.n_columns), 0
        if self._discriminants is not None:
            if self.n_agents > 1:
                n_bins += [_RELATIVE.size + 1] * self.n_columns
                shares = np.ones(2 * self.n_columns)
            n_bins += [_DISCRIMINANT.size + 1] * 3
            shares = np.append(shares, np.full(3, max(1.0, self.n_columns / 6)))
            n_hidden = 0 if self._is_gaussian else 3
        self.forests = forests_of(tuple(n_bins), shares, self.settings, self.seed, n_hidden)
        for forest in self.forests:
            forest.begin(self._n_null, self._n_mixture)
        if self._n_known >= self.settings.least and min(self._n_held, self._n_null - self._n_held):
            numbers = self._n_null, self._n_held, self._n_known, self._n_mixture
            # Known novelties of one agent are compared with the rows of others as they are.
            plain = np.append(np.ones(self.n_columns), np.zeros(len(n_bins) - self.n_columns))
            self.known_part = KnownPart(tuple(n_bins), plain, self.settings, self.seed, numbers)
        self._ask_for_level()

    def codes(self, keys: binning.Keys, standard: Whole, centre: Whole) -> Whole:
        """Return the bins of rows in all columns: their own, relative ones, and discriminants."""
        codes = [one.codes(column) for one, column in zip(self.bins, keys.T, strict=True)]
        if self._discriminants is not None:
            if self.n_agents > 1:
                codes += list(np.searchsorted(_RELATIVE, standard - centre, side="right").T)
            columns = self._discriminants.columns(standard, centre)
            codes += list(np.searchsorted(_DISCRIMINANT, columns, side="right").T)
        return np.stack(codes, axis=1).astype(np.int64)

    def _ask_for_level(self) -> None:
        all_forests = (
            self.forests if self.known_part is None else (*self.forests, self.known_part.forest)
        )
        self._growing = [forest for forest in all_forests if not forest.is_grown]
        if self._growing:
            size = sum(forest.n_numbers for forest in self._growing)
            self._round = Round(size, self._count_level, self._take_level)
        else:
            size = 2 * (len(self.forests) + self._adds_ratio + (self.known_part is not None))
            self._round = Round(size, self._spreads, self._take_spreads, is_counted=False)

    def _place(self, rows: AgentRows) -> None:
        """Bring an agent's rows to the bins of all columns, and to the roots of all trees."""
        if not rows.nodes:
            standard, centre = self._of_agent(rows)
            rows.codes = self.codes(rows.keys, standard, centre)
            n_rows = len(rows.values)
            rows.nodes = [np.zeros((one.n_trees, n_rows), dtype=np.int64) for one in self.forests]
            if self.known_part is not None:
                self.known_part.place(rows, self._codes_of_known(rows))

    def _codes_of_known(self, rows: AgentRows) -> Whole:
        values = np.zeros((0, self.n_columns)) if rows.known_rows is None else rows.known_rows
        return self._coded(values, self._of_agent(rows)[1])[0]

    def _coded(self, values: Matrix, centre: Whole) -> tuple[Whole, Whole]:
        """Return the bins of rows in all columns, and the rows in standard units."""
        standard = np.zeros((len(values), 0), dtype=np.int64)
        if self._discriminants is not None:
            standard = self.standard(values)
        return self.codes(binning.keys_of(values), standard, centre), standard

    def _count_level(self, rows: AgentRows) -> Whole:
        self._place(rows)
        counts = []
        for forest, nodes in zip(self.forests, rows.nodes, strict=True):
            if not forest.is_grown:
                if forest.level:
                    forest.move(rows.codes, nodes)
                counts.append(forest.count(rows.codes, rows.is_mixture, nodes))
        if self.known_part is not None and not self.known_part.forest.is_grown:
            counts.append(self.known_part.count(rows))
        return np.concatenate(counts)

    def _take_level(self, totals: Whole) -> None:
        stops = np.cumsum([forest.n_numbers for forest in self._growing])[:-1]
        for forest, counts in zip(self._growing, np.split(totals, stops), strict=True):
            forest.split(counts)
        self._ask_for_level()

    # --- one scale ------------------------------------------------------------------------------
    @property
    def _adds_ratio(self) -> bool:
        return self._discriminants is not None and self._is_gaussian

    def _parts(self, codes: Whole, standard: Whole, centre: Whole) -> list[Vector]:
        """Return the parts of the score of each row: log-odds, and where it helps a ratio."""
        parts = [forest.score(codes) for forest in self.forests]
        if self._adds_ratio and self._discriminants is not None:
            ratio = self._discriminants.columns(standard, centre)[:, -1]
            parts.append(np.clip(ratio, -_MOST_RATIO, _MOST_RATIO))
        if self.known_part is not None:
            parts.append(self.known_part.forest.score(codes))
        return parts

    def _spreads(self, rows: AgentRows) -> Whole:
        """Add up each part of the score over the mixture, and its squares."""
        self._place(rows)
        rows.parts = self._parts(rows.codes, *self._of_agent(rows))
        parts = [np.rint(one[rows.is_mixture] * _STEP) for one in rows.parts]
        whole = [one.astype(np.int64) for one in parts]
        return np.array([total for one in whole for total in (one.sum(), (one * one).sum())])

    def _take_spreads(self, totals: Whole) -> None:
        n_rows, most = max(self._n_mixture, 1), (_MOST_RATIO * _STEP) ** 2
        for place, (first, second) in enumerate((totals.reshape(-1, 2) / n_rows).tolist()):
            if not first * first <= second + 1 <= most + 1:
                raise ValueError(f"scores of rows cannot have mean squares of {second}")
            spread = float(np.sqrt(max(second - first * first, 1.0)))
            weight = _SECOND_WEIGHT if place else 1.0
            self._units.append((first / _STEP, spread / _STEP, weight))
        if self.known_part is None:
            self._ask_for_scores()
        else:
            self._round = Round(N_COUNTS, self._compare, self._take_comparison)

    def _compare(self, rows: AgentRows) -> Whole:
        """Count the rows without known novelties, and by them alone."""
        assert self.known_part is not None  # noqa: S101  (what this round is for)
        mean, spread, _ = self._units[-1]
        return self.known_part.compare(
            rows, self._added(rows.parts[:-1]), (rows.parts[-1] - mean) / spread
        )

    def _take_comparison(self, totals: Whole) -> None:
        assert self.known_part is not None  # noqa: S101
        self._units[-1] = (*self._units[-1][:2], self.known_part.weight_from(totals))
        self._ask_for_scores()

    def _ask_for_scores(self) -> None:
        self.is_scaled = True
        self._round = Round(2 * N_NARROW, self._count_scores, self._take_scores)

    def _count_scores(self, rows: AgentRows) -> Whole:
        scores = self._added(rows.parts)
        if rows.own is not None:
            scores = scores + rows.own
        return by_kind(narrow_cells(scores), rows.is_mixture, N_NARROW)

    def _take_scores(self, totals: Whole) -> None:
        null, mixture = self._of_kinds(totals)
        self.edges, self.is_scaled = edges_from(mixture), False
        self.likely = int(self.cells(np.array([likely_from(null, mixture)]))[0])

    def _of_agent(self, rows: AgentRows) -> tuple[Whole, Whole]:
        none = np.zeros((len(rows.values), 0), dtype=np.int64), np.zeros(0, dtype=np.int64)
        return none if self._discriminants is None else (rows.standard, rows.centre)

    # --- the score ------------------------------------------------------------------------------
    def score(self, values: Matrix, centre: Whole) -> Vector:
        """Score rows of an agent whose normals have this centre, without its own score.

        Its parts in standard units, added up.
        """
        return self._added(self._parts(*self._coded(values, centre), centre))

    def _added(self, parts: Sequence[Vector]) -> Vector:
        total: Vector = np.zeros(len(parts[0]))
        units = self._units[: len(parts)]
        for scores, (mean, spread, weight) in zip(parts, units, strict=True):
            total += weight * ((scores - mean) / spread)
        return total

    def cells(self, scores: Vector, edges: Vector | None = None) -> Whole:
        """Return the cell of each score, from 0 to N_CELLS - 1."""
        edges = self.edges if edges is None else edges
        assert edges is not None  # noqa: S101  (the score is learnt)
        return np.searchsorted(edges, scores, side="right").astype(np.int64)


def learn(agents: Sequence[AgentRows], seed: int, settings: Settings | None = None) -> Learner:
    """Learn the score of agents in one process, from sums alone."""
    learner = Learner(agents[0].values.shape[1], len(agents), seed, settings)
    while not learner.is_done:
        learner.take(sum_of([learner.answer(rows) for rows in agents]))
    return learner
