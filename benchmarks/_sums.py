"""What the sums of the regime `together` say about single rows: an attacker listens to a run.

The attacker hears the sum of the numbers of some agents in every round: of one agent (a
coordinator without masks, or a peer of one other), of several (a peer that subtracts its own
numbers), or of all (whoever sees totals only). It knows the seed and how rows are distributed. So
it knows what any row would add to each number, and draws *reference rows* to learn the mean and
the covariance of what the other rows add. The log-likelihood ratio of two normal distributions,
with and without the row, is its statistic (after Homer et al. 2008, who found persons in sums of
genotypes). The attacker is told the centre of the target's normals, which only a coordinator
without masks sees.

Known novelties are counted in one forest only, and there by themselves: the part `known` of what
is heard is these counts, and no other row adds to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from benchmarks._sums_rows import KNOWN, MIXTURE, NULL, Design, Probe
from conovel.learning.together import bins as binning
from conovel.learning.together import moments
from conovel.learning.together.forest import Forest
from conovel.learning.together.known import N_COUNTS
from conovel.learning.together.learner import Learner
from conovel.learning.together.moments import Whole
from conovel.learning.together.rounds import AgentRows, Settings, sum_of
from conovel.scorers.base import Matrix, Vector

PARTS = ("bins", "moments", "trees", "known")  # of what is heard
_RIDGE = 0.5  # variance of a scaled number that no reference row explains
_BIG = 8  # rows that the mean is learnt from, for one row of an agent
_BIG_KNOWN = 50  # the same, for one known novelty


class Round(NamedTuple):
    """One round, or a part of it, as the attacker hears it."""

    part: str
    sums: Whole  # of each agent, of shape (n_agents, n_numbers)
    expected: NDArray[np.float64]  # of each agent
    added: list[sparse.csr_matrix]  # by each row of each probe


class Ear:
    """Follows a run of sums: what is sent, what is expected, and what each probe would add."""

    def __init__(
        self,
        learner: Learner,
        design: Design,
        probes: Sequence[Probe],
        is_known_only: bool = False,
    ) -> None:
        self.learner, self.design, self.probes = learner, design, probes
        self._is_known_only = is_known_only
        self._cuts = [binning.first_cuts()] * learner.n_columns

    def rounds(self, agents: Sequence[AgentRows], seed: int) -> Iterator[Round]:
        """Run all rounds."""
        learner, rng = self.learner, np.random.default_rng([seed, 99])
        some, times = [self.design.agent(j, rng, _BIG) for j in range(min(len(agents), 3))], _BIG
        if self._is_known_only:
            rows = self.design.novelties(_BIG_KNOWN * self.design.n_shared, rng)
            some, times = [AgentRows(rows[:0], rows[:0], rows)], _BIG_KNOWN
        place = [j % len(some) for j in range(len(agents))]
        has_known = np.arange(len(agents)) < self.design.n_sharing
        while not learner.is_done:
            sums = np.stack([learner.answer(rows) for rows in agents])
            expected = np.stack([learner.answer(rows) for rows in some])[place] / times
            part, added = self._added()
            of_known = self._of_known(sums.shape[1])
            # Of the agents at one place some have known novelties, and some have none.
            expected[:, of_known] = np.multiply.outer(has_known, expected[0, of_known])
            chosen = self._linear(sums.shape[1], of_known)
            for name, at in ((part, chosen), (KNOWN, of_known)):
                if at.any() and (name == KNOWN or not self._is_known_only):
                    yield Round(name, sums[:, at], expected[:, at], [z[:, at] for z in added])
            totals = sum_of(list(sums))
            self._follow(totals)
            learner.take(totals)
            self._agree_on_centres(agents, some)

    def _added(self) -> tuple[str, list[sparse.csr_matrix]]:
        """Return the part of the run, and what each row of each probe adds in this round."""
        learner = self.learner
        if learner.n_rounds < binning.N_ROUNDS:
            head = head_of(self._cuts, learner.n_numbers)
            return "bins", [_in_intervals(self._cuts, p, head) for p in self.probes]
        for p in self.probes:
            learner.answer(p.all_rows)  # remembers them, and moves them to their nodes
        if not learner.forests:
            return "moments", self._one_by_one()
        if self._is_growing:
            return "trees", [self._counted(p) for p in self.probes]
        if not self._counts_scores:  # spreads of the parts, which are left out
            for p in self.probes:
                p.take_parts()
            none = [(len(p.values), learner.n_numbers) for p in self.probes]
            return "trees", [sparse.csr_matrix(shape) for shape in none]
        return "trees", self._one_by_one()

    def _one_by_one(self) -> list[sparse.csr_matrix]:
        answer = self.learner.answer
        answers = ([answer(row) for row in p.one_by_one] for p in self.probes)
        return [sparse.csr_matrix(np.stack(some)) for some in answers]

    @property
    def _is_growing(self) -> bool:
        known_part = self.learner.known_part
        all_grown = all(forest.is_grown for forest in self.learner.forests)
        return not all_grown or (known_part is not None and not known_part.forest.is_grown)

    @property
    def _counts_scores(self) -> bool:
        """Whether all trees are grown, and rows are counted by their scores."""
        return self.learner.is_scaled or self.learner.n_numbers == N_COUNTS

    def _counted(self, p: Probe) -> sparse.csr_matrix:
        """Return at which candidates of this level of all forests each row is counted."""
        rows, known_part, parts = p.all_rows, self.learner.known_part, []
        n_rows = len(p.values)
        for forest, nodes in zip(self.learner.forests, rows.nodes, strict=True):
            if not forest.is_grown:
                at = np.arange(len(rows.values))
                parts.append(counted_by(forest, rows.codes, nodes, p.role == MIXTURE, at, n_rows))
        if known_part is not None and not known_part.forest.is_grown:
            is_there = ~rows.is_held if p.role == NULL else np.full(n_rows, p.role == KNOWN)
            own = rows.known_codes, rows.known_nodes, p.role == KNOWN
            parts.append(counted_by(known_part.forest, *own, np.flatnonzero(is_there), n_rows))
        return sparse.hstack(parts, format="csr")

    def _of_known(self, n_numbers: int) -> NDArray[np.bool_]:
        """Mark the counts of known novelties: every second number of their forest."""
        known_part = self.learner.known_part
        marks = np.zeros(n_numbers, dtype=np.bool_)
        if known_part is not None and not known_part.forest.is_grown:
            marks[n_numbers - known_part.forest.n_numbers + 1 :: 2] = True
        return marks

    def _linear(self, n_numbers: int, of_known: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Leave out what is no sum over rows: numbers of rows, their squares, squares of sums.

        Counts of known novelties are a part of their own.
        """
        size, chosen = self.learner.n_columns, ~of_known
        n_products = size * (size + 1) // 2
        if self.learner.n_rounds < binning.N_ROUNDS:
            chosen[: head_of(self._cuts, n_numbers)] = False
        elif not self.learner.forests and n_numbers == moments.n_sums(size):
            chosen[:3] = chosen[3 + size + n_products :] = False
        elif not self.learner.forests and n_numbers == 1 + n_products + 4 * size:
            # Products follow from the sums before and the centres. Third and fourth powers of
            # each column are left out.
            chosen[:] = False
        elif self.learner.forests and not (self._is_growing or self._counts_scores):
            chosen[:] = False  # a few numbers of all rows together
        return chosen

    def _follow(self, totals: Whole) -> None:
        """Follow how the intervals are divided, as every party does."""
        if self.learner.n_rounds < binning.N_ROUNDS:
            stops = np.cumsum([cuts.size + 1 for cuts in self._cuts])[:-1]
            head = head_of(self._cuts, totals.size)
            pairs = zip(self._cuts, np.split(totals[head:], stops), strict=True)
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


def head_of(cuts: Sequence[binning.Keys], n_numbers: int) -> int:
    """Return how many numbers of a round of bins come before the counts in intervals."""
    return n_numbers - sum(one.size + 1 for one in cuts)


def _in_intervals(cuts: Sequence[binning.Keys], p: Probe, head: int) -> sparse.csr_matrix:
    sizes = [one.size + 1 for one in cuts]
    starts = head + np.cumsum([0, *sizes])
    keys = p.all_rows.keys.T
    at_columns = [
        start + np.searchsorted(one, column, side="right")
        for start, one, column in zip(starts, cuts, keys, strict=False)
    ]
    if p.role == KNOWN:  # not counted in intervals
        return sparse.csr_matrix((len(p.values), int(starts[-1])))
    return one_hot(np.stack(at_columns, axis=1), int(starts[-1]))


def counted_by(
    forest: Forest,
    codes: Whole,
    nodes: Whole,
    is_second: bool,
    lines_of: NDArray[np.intp],
    n_lines: int,
) -> sparse.csr_matrix:
    """Return at which candidates of this level each row is counted.

    Parameters
    ----------
    forest : Forest
    codes, nodes : arrays
        Bins of the rows, and their nodes in each tree.
    is_second : bool
        Whether the rows are counted as those of the second kind.
    lines_of : array
        The line of each row in what is returned.
    n_lines : int
    """
    places = forest.places()
    lines, columns = [], []
    n_candidates = forest.candidates.shape[1]
    for tree, own in enumerate(nodes):
        place = places[tree, own]
        at = np.flatnonzero(place >= 0)
        column, cut = np.moveaxis(forest.candidates[place[at]], 2, 0)
        bins = np.take_along_axis(codes[at], np.maximum(column, 0), axis=1)
        row, candidate = np.nonzero((column >= 0) & (bins <= cut))
        lines.append(lines_of[at[row]])
        columns.append((place[at][row] * n_candidates + candidate) * 2 + is_second)
    line, numbers = np.concatenate(lines), np.concatenate(columns)
    ones = np.ones(line.size, dtype=np.float32)
    return sparse.csr_matrix((ones, (line, numbers)), shape=(n_lines, forest.n_numbers))


class Products(NamedTuple):
    """Inner products of what probes add with each other and with the sums, in scaled numbers."""

    of_probes: Matrix  # of shape (n_probes, n_probes)
    with_sums: Matrix  # of shape (n_probes, n_agents)
    with_expected: Matrix  # of the same shape


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
    *,
    is_known_only: bool = False,
) -> dict[str, Products]:
    """Run the rounds of these agents; return what is heard in each part of the run."""
    learner = Learner(agents[0].values.shape[1], len(agents), seed, settings)
    probes = [*references, *attacked]
    is_reference = reference_mask(references, probes)
    heard: dict[str, Products] = {}
    for one in Ear(learner, design, probes, is_known_only).rounds(agents, seed):
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
    gap = (total.with_sums - total.with_expected)[:, :n_heard].sum(axis=1)
    probes = [*references, *attacked]
    stops = np.cumsum([len(p.values) for p in probes])
    spans = [slice(stop - len(p.values), stop) for stop, p in zip(stops, probes, strict=True)]
    by_group = {(p.agent, p.role): k for k, p in enumerate(references)}
    rows, weights, n_all = [], [], 0  # of reference rows, what they stand for, and all rows
    centring = np.eye(stops[-1])
    for probe, span in zip(probes, spans, strict=True):
        group = spans[by_group[probe.agent, probe.role]]
        centring[span, group] -= 1 / (group.stop - group.start)
    for probe, span in zip(references, spans, strict=False):
        n_rows = design.n_heard(probe.role, probe.agent, n_heard)
        if n_rows and np.diag(total.of_probes)[span].any():  # others add nothing in these parts
            n_all += n_rows
            rows.append(np.arange(span.start, span.stop))
            weights.append(np.full(rows[-1].size, np.sqrt(n_rows / rows[-1].size)))
    if not rows:
        return [np.zeros(len(p.values)) for p in attacked]
    inner, surprise = centring @ total.of_probes @ centring.T, centring @ gap
    at, weight = np.concatenate(rows), np.concatenate(weights)
    explained = inner[np.ix_(at, at)] * np.multiply.outer(weight, weight)
    ridge = _RIDGE * n_all
    factor = cho_factor(explained + ridge * np.eye(at.size))
    statistics = []
    for span in spans[len(references) :]:
        across = inner[span, at] * weight
        solved = cho_solve(factor, across.T)
        to_sums = (surprise[span] - solved.T @ (surprise[at] * weight)) / ridge
        to_self = (np.diag(inner)[span] - (solved.T * across).sum(axis=1)) / ridge
        statistics.append(to_sums - to_self / 2)
    return statistics
