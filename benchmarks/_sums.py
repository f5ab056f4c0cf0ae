"""What the sums of the regime `together` say about single rows: an attacker listens to a run.

The attacker hears the sum of the numbers of some agents in every round: of one agent (a
coordinator without masks, or a peer of one other), of several (a peer that subtracts its own
numbers), or of all (whoever sees totals only). It knows the seed and how rows are distributed. So
it knows what any row would add to each number, and draws *reference rows* to learn the mean and
the covariance of what the other rows add. The log-likelihood ratio of two normal distributions,
with and without the row, is its statistic (after Homer et al. 2008, who found persons in sums of
genotypes). The attacker is told the centre of the target's normals, which only a coordinator
without masks sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from conovel.experiments.gaussian import centres, novelty_centre
from conovel.learning.together import bins as binning
from conovel.learning.together import moments
from conovel.learning.together.forest import Forest
from conovel.learning.together.learner import Learner
from conovel.learning.together.moments import Whole
from conovel.learning.together.rounds import AgentRows, Settings, sum_of
from conovel.learning.together.scale import N_NARROW, narrow_cells
from conovel.scorers.base import Matrix, Vector

PARTS = ("bins", "moments", "trees")  # the rounds in which numbers are heard
_RIDGE = 0.5  # variance of a scaled number that no reference row explains
_BIG = 8  # rows that the mean is learnt from, for one row of an agent


@dataclass(frozen=True)
class Design:
    """Agents of the paper's Gaussian design, each with the same numbers of rows.

    Half of the known normals train. There are a third as many tests, a tenth of them novel.
    """

    n_known: int
    n_agents: int
    shift: float = 2.0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows of null_train, normal rows of the mixture, and novelties, of one agent."""
        n_tests = max(self.n_known // 3, 2)
        n_novel = max(round(n_tests / 10), 1)
        n_train = self.n_known // 2
        return n_train, self.n_known - n_train + n_tests - n_novel, n_novel

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
        return AgentRows(self.normals(number, n_train, rng), np.vstack(mixture))


@dataclass(eq=False)
class Probe:
    """Rows of one role, of which the attacker wants to know what each would add to the sums."""

    values: Matrix
    is_mixture: bool
    agent: int = 0
    one_by_one: list[AgentRows] = field(init=False, repr=False)
    all_rows: AgentRows = field(init=False, repr=False)

    def __post_init__(self) -> None:
        none = self.values[:0]
        pairs = ((row[np.newaxis], none) for row in self.values)
        self.one_by_one = [AgentRows(*(p[::-1] if self.is_mixture else p)) for p in pairs]
        both = (none, self.values) if self.is_mixture else (self.values, none)
        self.all_rows = AgentRows(*both)

    def has_centre(self, centre: Whole) -> None:
        """Let the rows be those of an agent whose normals have this centre."""
        for rows in (*self.one_by_one, self.all_rows):
            rows.centre = centre


class Round(NamedTuple):
    """One round as the attacker hears it."""

    part: str
    sums: Whole  # of each agent, of shape (n_agents, n_numbers)
    expected: NDArray[np.float64]  # of an agent of each of the first three places
    added: list[sparse.csr_matrix]  # by each row of each probe


class Ear:
    """Follows a run of sums: what is sent, what is expected, and what each probe would add."""

    def __init__(self, learner: Learner, design: Design, probes: Sequence[Probe]) -> None:
        self.learner, self.design, self.probes = learner, design, probes
        self._cuts = [binning.first_cuts()] * learner.n_columns

    def rounds(self, agents: Sequence[AgentRows], seed: int) -> Iterator[Round]:
        """Run all rounds."""
        learner, rng = self.learner, np.random.default_rng([seed, 99])
        some = [self.design.agent(j, rng, _BIG) for j in range(min(len(agents), 3))]
        while not learner.is_done:
            sums = np.stack([learner.answer(rows) for rows in agents])
            expected = np.stack([learner.answer(rows) for rows in some]) / _BIG
            part, added = self._added()
            chosen = self._linear(sums.shape[1])
            yield Round(part, sums[:, chosen], expected[:, chosen], [z[:, chosen] for z in added])
            totals = sum_of(list(sums))
            self._follow(totals)
            learner.take(totals)
            self._agree_on_centres(agents, some)

    def _added(self) -> tuple[str, list[sparse.csr_matrix]]:
        """Return the part of the run, and what each row of each probe adds in this round."""
        learner = self.learner
        if learner.n_rounds < binning.N_ROUNDS:
            return "bins", [
                one_hot(_places(self._cuts, p), _width(self._cuts)) for p in self.probes
            ]
        for p in self.probes:
            learner.answer(p.all_rows)  # remembers them, and moves them to their nodes
        if not learner.forests:
            return "moments", [
                sparse.csr_matrix(np.stack([learner.answer(row) for row in p.one_by_one]))
                for p in self.probes
            ]
        growing = [k for k, forest in enumerate(learner.forests) if not forest.is_grown]
        if growing:
            return "trees", [
                sparse.hstack(
                    [counted_by(learner.forests[k], p.all_rows, p.is_mixture, k) for k in growing],
                    format="csr",
                )
                for p in self.probes
            ]
        if not learner.is_scaled:
            return "trees", [  # spreads of the forests, which are left out
                sparse.csr_matrix((len(p.values), learner.n_numbers)) for p in self.probes
            ]
        cells_of_probes = []
        for p in self.probes:
            cells = narrow_cells(learner.score(p.values, p.all_rows.centre))
            cells_of_probes.append(
                one_hot(cells[:, np.newaxis] + N_NARROW * p.is_mixture, 2 * N_NARROW)
            )
        return "trees", cells_of_probes

    def _linear(self, n_numbers: int) -> slice:
        """Leave out what is no sum over rows: numbers of rows, their squares, squares of sums."""
        size = self.learner.n_columns
        if self.learner.n_rounds < binning.N_ROUNDS:
            return slice(2, None)
        n_products = size * (size + 1) // 2
        if n_numbers == moments.n_sums(size):
            return slice(3, 3 + size + n_products)
        if not self.learner.forests and n_numbers == 1 + n_products + 4 * size:
            # Products follow from the sums before and the centres. Third and fourth powers of
            # each column are left out.
            return slice(0, 0)
        if all(forest.is_grown for forest in self.learner.forests) and n_numbers <= 4:
            return slice(0, 0)  # a few numbers of all rows together
        return slice(None)

    def _follow(self, totals: Whole) -> None:
        """Follow how the intervals are divided, as every party does."""
        if self.learner.n_rounds < binning.N_ROUNDS:
            stops = np.cumsum([cuts.size + 1 for cuts in self._cuts])[:-1]
            pairs = zip(self._cuts, np.split(totals[2:], stops), strict=True)
            least = self.learner.settings.least
            self._cuts = [binning.refined(cuts, counts, least) for cuts, counts in pairs]

    def _agree_on_centres(self, agents: Sequence[AgentRows], some: Sequence[AgentRows]) -> None:
        """Tell the attacker the target's centre; others have the one that is expected."""
        if not agents[0].centre.size:
            return
        n_train = self.design.sizes[0]
        for j, rows in enumerate(some):
            rows.centre = agents[0].centre
            if j:
                mean = rows.standard[~rows.is_mixture].mean(axis=0)
                total = np.rint(mean * n_train).astype(np.int64)
                rows.centre = self.learner.centres.of_agent(total, n_train)
        for probe in self.probes:
            probe.has_centre(some[probe.agent].centre)


def one_hot(places: NDArray[np.int64], width: int) -> sparse.csr_matrix:
    """Return a row with ones at the places of each row."""
    n_rows, n_places = places.shape
    starts = np.arange(0, n_rows * n_places + 1, n_places)
    ones = np.ones(places.size, dtype=np.float32)
    return sparse.csr_matrix((ones, places.ravel(), starts), shape=(n_rows, width))


def _width(cuts: Sequence[binning.Keys]) -> int:
    return 2 + sum(one.size + 1 for one in cuts)


def _places(cuts: Sequence[binning.Keys], probe: Probe) -> NDArray[np.int64]:
    starts = 2 + np.cumsum([0, *(one.size + 1 for one in cuts)])[:-1]
    keys = probe.all_rows.keys.T
    at_columns = [
        start + np.searchsorted(one, column, side="right")
        for start, one, column in zip(starts, cuts, keys, strict=True)
    ]
    return np.stack(at_columns, axis=1)


def counted_by(
    forest: Forest, rows: AgentRows, is_mixture: bool, number: int = 0
) -> sparse.csr_matrix:
    """Return at which candidates of this level each row is counted."""
    places = forest.places()
    lines, columns = [], []
    n_candidates = forest.candidates.shape[1]
    for tree, nodes in enumerate(rows.nodes[number]):
        place = places[tree, nodes]
        at = np.flatnonzero(place >= 0)
        column, cut = np.moveaxis(forest.candidates[place[at]], 2, 0)
        codes = np.take_along_axis(rows.codes[at], np.maximum(column, 0), axis=1)
        row, candidate = np.nonzero((column >= 0) & (codes <= cut))
        lines.append(at[row])
        columns.append((place[at][row] * n_candidates + candidate) * 2 + is_mixture)
    line, numbers = np.concatenate(lines), np.concatenate(columns)
    ones = np.ones(line.size, dtype=np.float32)
    shape = (len(rows.values), forest.n_numbers)
    return sparse.csr_matrix((ones, (line, numbers)), shape=shape)


class Products(NamedTuple):
    """Inner products of what probes add with each other and with the sums, in scaled numbers."""

    of_probes: Matrix  # of shape (n_probes, n_probes)
    with_sums: Matrix  # of shape (n_probes, n_agents)
    with_expected: Matrix  # of shape (n_probes, number of different agents)


def products_of(one: Round, is_reference: NDArray[np.bool_], noise: float = 0.0) -> Products:
    """Scale the numbers of a round to equal spread over reference rows, and multiply.

    `noise` is the variance of what is added to each number, divided by the number of rows.
    """
    added = sparse.vstack(one.added, format="csr")
    references = added[is_reference]
    mean = np.asarray(references.mean(axis=0)).ravel()
    variance = np.asarray(references.multiply(references).mean(axis=0)).ravel() - mean**2
    # A number to which no reference row adds may still have a row in many.
    unit = 1 / np.sqrt(np.maximum(variance, 0) + 1 / references.shape[0] + noise)
    scaled = (added @ sparse.diags(unit)).tocsr()
    return Products(
        (scaled @ scaled.T).toarray(),
        scaled @ (one.sums * unit).T,
        scaled @ (one.expected * unit).T,
    )


def reference_mask(references: Sequence[Probe], probes: Sequence[Probe]) -> NDArray[np.bool_]:
    """Return which rows of the probes are reference rows, which come first."""
    n_references = sum(len(probe.values) for probe in references)
    return np.arange(sum(len(probe.values) for probe in probes)) < n_references


def listen(
    agents: Sequence[AgentRows],
    design: Design,
    references: Sequence[Probe],
    attacked: Sequence[Probe],
    seed: int,
    settings: Settings | None = None,
) -> dict[str, Products]:
    """Run the rounds of these agents; return what is heard in each part of the run."""
    learner = Learner(agents[0].values.shape[1], len(agents), seed, settings)
    probes = [*references, *attacked]
    is_reference = reference_mask(references, probes)
    heard: dict[str, Products] = {}
    for one in Ear(learner, design, probes).rounds(agents, seed):
        new = products_of(one, is_reference)
        old = heard.get(one.part)
        heard[one.part] = Products(*map(np.add, old, new)) if old else new
    return heard


def ratios(
    heard: Sequence[Products],
    n_heard: int,
    design: Design,
    references: Sequence[Probe],
    attacked: Sequence[Probe],
) -> list[Vector]:
    """Return the log-likelihood ratio of each attacked row, by the sums of the first agents.

    With s the sums minus their mean, z what a row adds minus its mean and C the covariance of what
    all other rows add, it is z' C^-1 s - z' C^-1 z / 2. C is estimated by reference rows, with a
    ridge for what they do not explain. So all is in inner products with them.
    """
    total = Products(*(np.sum(some, axis=0) for some in zip(*heard, strict=True)))
    place = [j % 3 for j in range(n_heard)]
    gap = total.with_sums[:, :n_heard].sum(axis=1) - total.with_expected[:, place].sum(axis=1)
    probes = [*references, *attacked]
    stops = np.cumsum([len(p.values) for p in probes])
    spans = [slice(stop - len(p.values), stop) for stop, p in zip(stops, probes, strict=True)]
    n_train, *n_mixture = design.sizes
    sizes = n_train, sum(n_mixture)
    by_group = {(p.agent, p.is_mixture): k for k, p in enumerate(references)}
    rows, weights = [], []  # of reference rows: how to centre them, and what they stand for
    centring = np.eye(stops[-1])
    for probe, span in zip(probes, spans, strict=True):
        group = spans[by_group[probe.agent, probe.is_mixture]]
        centring[span, group] -= 1 / (group.stop - group.start)
    for probe, span in zip(references, spans, strict=False):
        n_rows = sizes[probe.is_mixture] * place.count(probe.agent)
        if n_rows:
            rows.append(np.arange(span.start, span.stop))
            weights.append(np.full(rows[-1].size, np.sqrt(n_rows / rows[-1].size)))
    inner, surprise = centring @ total.of_probes @ centring.T, centring @ gap
    at, weight = np.concatenate(rows), np.concatenate(weights)
    explained = inner[np.ix_(at, at)] * np.multiply.outer(weight, weight)
    ridge = _RIDGE * sum(sizes) * n_heard
    factor = cho_factor(explained + ridge * np.eye(at.size))
    statistics = []
    for span in spans[len(references) :]:
        across = inner[span, at] * weight
        solved = cho_solve(factor, across.T)
        to_sums = (surprise[span] - solved.T @ (surprise[at] * weight)) / ridge
        to_self = (np.diag(inner)[span] - (solved.T * across).sum(axis=1)) / ridge
        statistics.append(to_sums - to_self / 2)
    return statistics
