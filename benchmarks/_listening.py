"""Measure what sums give away: rows that took part, secret values, and a row more in a second run.

Everything here is one *trial*: agents are drawn, learn together, and the first one is attacked.

Examples
--------
>>> from benchmarks._sums_rows import Design
>>> found = trial(Design(30, 3), [3], seed=0, n_references=20)
>>> sorted(found.members) == sorted(found.others), len(found.secrets)
(True, 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from benchmarks._private_sums import listen_private
from benchmarks._sums import head_of, listen, ratios
from benchmarks._sums_rows import KNOWN, MIXTURE, NULL, Design, Probe
from conovel.learning.together import bins as binning
from conovel.learning.together import moments
from conovel.learning.together.learner import Learner
from conovel.learning.together.rounds import AgentRows, Settings, sum_of
from conovel.scorers.base import Matrix, Vector
from conovel.spec.settings import Privacy

ALL = "all"
KINDS = ("trains", "normal test", "novelty", "outlier trains", "outlier tested")
# Known novelties are told from novelties and from normal rows that nobody has.
KNOWN_KINDS = ("known", "known or normal", "outlier known")
_OUTLYING, _WIDTHS = 6.0, (1, 5)  # standard deviations, and columns of an outlier
_MOST = 30  # rows of a kind that are attacked in a trial
_N_SECRETS, _N_VALUES = 8, 8  # rows whose first column is secret, and values to choose from
_N_OTHERS = _N_SECRETS * _N_VALUES
_FAR = 8.0  # standard deviations: wider intervals count as so wide


Pairs: TypeAlias = dict[str, tuple[Probe, Probe]]  # by kind: rows of the target, and of nobody


@dataclass(eq=False)
class Trial:
    """Statistics of one trial, by (agents that are heard, part of the run, kind of row)."""

    members: dict[tuple[int, str, str], Vector] = field(default_factory=dict)
    others: dict[tuple[int, str, str], Vector] = field(default_factory=dict)
    secrets: dict[int, float] = field(default_factory=dict)  # share that is right, by agents heard

    def take(self, n_heard: int, part: str, pairs: Pairs, statistics: Sequence[Vector]) -> None:
        """Keep the statistics of all pairs, and of the rows with a secret, which are last."""
        for k, kind in enumerate(pairs):
            self.members[n_heard, part, kind] = statistics[2 * k]
            self.others[n_heard, part, kind] = statistics[2 * k + 1]
        guess = statistics[-1].reshape(-1, _N_VALUES).argmax(axis=1)
        self.secrets[n_heard] = float((guess == _N_VALUES - 1).mean())


def planted(rows: Matrix, rng: np.random.Generator) -> Matrix:
    """Move rows six standard deviations away in one column, or in five."""
    moved = rows.copy()
    for i, row in enumerate(moved):
        width = _WIDTHS[i % len(_WIDTHS)]
        row[rng.choice(row.size, width, replace=False)] += _OUTLYING
    return moved


def trial(
    design: Design,
    heard: Sequence[int],
    seed: int,
    n_references: int = 150,
    settings: Settings | None = None,
    privacy: Privacy | None = None,
) -> Trial:
    """Attack one network, with the sums of the first so many agents, for each of `heard`."""
    rng = np.random.default_rng([seed, design.n_known, design.n_agents])
    agents = [design.agent(j, rng) for j in range(design.n_agents)]
    null, mixture, n_planted = agents[0].null_train, agents[0].mixture, len(_WIDTHS)
    # In the place of others, so that numbers of rows say nothing.
    outliers = planted(design.normals(0, 2 * n_planted, rng), rng)
    null[:n_planted], mixture[:n_planted] = np.split(outliers, 2)
    agents[0] = AgentRows(null, mixture, agents[0].known_rows)
    references = _references(design, n_references, rng)
    pairs = _candidates(design, agents[0], rng)
    secret = _variants(null[n_planted:], design.normals(0, _N_OTHERS, rng), NULL)
    attacked = [*(one for pair in pairs.values() for one in pair), secret]
    some = agents, design, references, attacked, seed
    run = listen(*some, settings) if privacy is None else {}
    results = Trial()
    for n_heard in heard:
        if privacy is not None:
            run = listen_private(*some, privacy, n_heard)
        for part in (*run, ALL):
            parts = list(run.values()) if part == ALL else [run[part]]
            statistics = ratios(parts, n_heard, design, references, attacked)
            results.take(n_heard, part, pairs, statistics)
    return results


def known_trial(
    design: Design,
    heard: Sequence[int],
    seed: int,
    n_references: int = 150,
    settings: Settings | None = None,
) -> Trial:
    """Attack the known novelties of the first agent of one network, as :func:`trial` does rows.

    Only counts of known novelties are heard: they add to no other number.
    """
    rng = np.random.default_rng([seed, design.n_known, design.n_agents, design.n_shared])
    agents = [design.agent(j, rng) for j in range(design.n_agents)]
    own, n_planted = agents[0], len(_WIDTHS)
    assert own.known_rows is not None
    own.known_rows[:n_planted] = planted(design.novelties(n_planted, rng), rng)
    references = [Probe(design.novelties(n_references, rng), KNOWN)]
    pairs = _known_candidates(design, own.known_rows, rng)
    others = design.novelties(_N_OTHERS, rng)
    attacked = [one for pair in pairs.values() for one in pair]
    attacked.append(_variants(own.known_rows[n_planted:], others, KNOWN))
    run = listen(agents, design, references, attacked, seed, settings, is_known_only=True)
    results = Trial()
    for n_heard in heard:
        statistics = ratios([run[KNOWN]], n_heard, design, references, attacked)
        results.take(n_heard, KNOWN, pairs, statistics)
    return results


def _references(design: Design, n_rows: int, rng: np.random.Generator) -> list[Probe]:
    """Draw the attacker's own rows, of the role and the place of each agent."""
    _, n_normal, n_novel = design.sizes
    novel = max(round(n_rows * n_novel / (n_normal + n_novel)), 1)
    probes = []
    for agent in range(min(design.n_agents, 3)):
        probes.append(Probe(design.normals(agent, n_rows, rng), NULL, agent))
        mixture = [design.normals(agent, n_rows - novel, rng), design.novelties(novel, rng)]
        probes.append(Probe(np.vstack(mixture), MIXTURE, agent))
    return probes


def _candidates(design: Design, target: AgentRows, rng: np.random.Generator) -> Pairs:
    """Return rows of each kind that the target has, and as many that nobody has, or more."""
    n_planted = len(_WIDTHS)
    n_normal = design.sizes[1]
    null, mixture = target.null_train, target.mixture
    inside = (
        null[n_planted:][:_MOST],
        mixture[n_planted:n_normal][:_MOST],
        mixture[n_normal:][:_MOST],
        null[:n_planted],
        mixture[:n_planted],
    )
    outside = (
        design.normals(0, _MOST, rng),
        design.normals(0, _MOST, rng),
        design.novelties(_MOST, rng),
        planted(design.normals(0, _MOST, rng), rng),
        planted(design.normals(0, _MOST, rng), rng),
    )
    roles = (NULL, MIXTURE, MIXTURE, NULL, MIXTURE)
    rows = zip(KINDS, inside, outside, roles, strict=True)
    return {kind: (Probe(here, role), Probe(away, role)) for kind, here, away, role in rows}


def _known_candidates(design: Design, known_rows: Matrix, rng: np.random.Generator) -> Pairs:
    """Return known novelties of the target, with novelties and normal rows that nobody has."""
    n_planted = len(_WIDTHS)
    usual, moved = known_rows[n_planted:][:_MOST], known_rows[:n_planted]
    inside = usual, usual, moved
    outside = (
        design.novelties(_MOST, rng),
        design.normals(0, _MOST, rng),
        planted(design.novelties(_MOST, rng), rng),
    )
    rows = zip(KNOWN_KINDS, inside, outside, strict=True)
    return {kind: (Probe(here, KNOWN), Probe(away, KNOWN)) for kind, here, away in rows}


def _variants(rows: Matrix, others: Matrix, role: str) -> Probe:
    """Return rows with other values of their first column, the true one last."""
    wide = np.repeat(rows[:_N_SECRETS], _N_VALUES, axis=0)
    is_other = np.arange(len(wide)) % _N_VALUES < _N_VALUES - 1
    wide[is_other, 0] = others[: len(wide)][is_other, 0]
    return Probe(wide, role)


# --- values --------------------------------------------------------------------------------------


@dataclass(eq=False)
class Published:
    """What everybody learns of the columns: numbers of rows below each cut, in all rounds."""

    below: list[dict[int, int]]  # by column; a cut's key and the number of rows below it
    sums: Vector  # of null_train, in the columns' own units
    cuts: list[binning.Keys]  # of the last round


def publish(agents: Sequence[AgentRows], seed: int = 0) -> Published:
    """Run the rounds of the bins and the first one of the moments."""
    n_columns = agents[0].values.shape[1]
    learner = Learner(n_columns, len(agents), seed)
    cuts = [binning.first_cuts()] * n_columns
    below: list[dict[int, int]] = [{} for _ in range(n_columns)]
    for number in range(binning.N_ROUNDS):
        totals = sum_of([learner.answer(rows) for rows in agents])
        stops = np.cumsum([one.size + 1 for one in cuts])[:-1]
        of_intervals = totals[head_of(cuts, totals.size) :]
        for column, counts in enumerate(np.split(of_intervals, stops)):
            below[column].update(
                zip(cuts[column].tolist(), np.cumsum(counts)[:-1].tolist(), strict=True)
            )
            if number + 1 < binning.N_ROUNDS:
                cuts[column] = binning.refined(cuts[column], counts, learner.settings.least)
        learner.take(totals)
    totals = sum_of([learner.answer(rows) for rows in agents])
    centre = np.array([one.centre for one in learner.bins])
    unit = np.array([one.unit for one in learner.bins])
    in_units = totals[3 : 3 + n_columns] / moments.UNIT
    return Published(below, in_units * unit + int(totals[1]) * centre, cuts)


def brackets(published: Published, rows: Matrix) -> Matrix:
    """Return how wide the narrowest interval is in which each value of each row is counted."""
    widths = []
    for below, column in zip(published.below, rows.T, strict=True):
        marks = np.sort(np.array(list(below), dtype=np.uint64))
        at = np.searchsorted(marks, binning.keys_of(column), side="right")
        ends = np.concatenate([[-np.inf], binning.values_of(marks), [np.inf]])
        widths.append(np.nan_to_num(ends[at + 1] - ends[at], nan=np.inf))
    narrow: Matrix = np.minimum(np.stack(widths, axis=1), _FAR)
    return narrow


@dataclass(frozen=True, eq=False)
class Difference:
    """What two runs tell that differ in one row: how wide each value is known, and a guess."""

    widths: Vector
    guess: Vector  # from the sums


def difference(first: Published, second: Published) -> Difference:
    """Compare two runs, of which the second has one row more."""
    widths = []
    for a, b in zip(first.below, second.below, strict=True):
        common = np.array(sorted(a.keys() & b.keys()), dtype=np.uint64)
        more = np.array([b[key] - a[key] for key in common.tolist()])
        ends = np.concatenate([[-np.inf], binning.values_of(common), [np.inf]])
        at = int(np.searchsorted(more, 1))  # cuts above the row count one row more
        widths.append(float(np.nan_to_num(ends[at + 1] - ends[at], nan=np.inf)))
    return Difference(np.minimum(widths, _FAR), second.sums - first.sums)


def one_row_more(design: Design, seed: int, *, is_split_again: bool) -> tuple[Difference, Vector]:
    """Run twice, the second time with one more known normal at the first agent; return its row.

    `is_split_again` says whether other known normals train in the second run, as in a deployment.
    """
    rng = np.random.default_rng([seed, design.n_known, design.n_agents, 1])
    agents = [design.agent(j, rng) for j in range(design.n_agents)]
    row = design.normals(0, 1, rng)
    n_train, n_normal, n_novel = design.sizes
    n_tests = max(design.n_known // 3, 2)
    n_calibration = n_normal + n_novel - n_tests
    again = []
    for j, one in enumerate(agents):
        null, mixture = one.null_train, one.mixture
        if is_split_again:
            normals = rng.permutation(np.vstack([null, mixture[:n_calibration]]))
            null = normals[:n_train]
            mixture = np.vstack([normals[n_train:], mixture[n_calibration:]])
        again.append(AgentRows(np.vstack([null, row]) if j == 0 else null, mixture))
    return difference(publish(agents, seed), publish(again, seed)), row[0]


def steered(design: Design, seed: int, *, is_there: bool) -> int:
    """Let the last agent claim many rows with a person's values, so that bins are finest there.

    Return in how many columns the others have a row in the person's interval: the totals minus
    the liar's own numbers.
    """
    rng = np.random.default_rng([seed, design.n_known, design.n_agents, 2])
    agents = [design.agent(j, rng) for j in range(design.n_agents - 1)]
    person = design.normals(0, 1, rng)
    if is_there:
        mixture = agents[0].mixture
        mixture[0] = person
        agents[0] = AgentRows(agents[0].null_train, mixture)
    n_claimed = 10 * sum(len(one.values) for one in agents)
    claimed = AgentRows(person[:0], np.repeat(person, n_claimed, axis=0))
    published = publish([*agents, claimed], seed)
    honest = np.vstack([one.values for one in agents])
    hits = 0
    for cuts, value, column in zip(published.cuts, person[0], honest.T, strict=True):
        place, others = (
            np.searchsorted(cuts, binning.keys_of(some), side="right")
            for some in (np.array([value]), column)
        )
        hits += bool((others == place).any())
    return hits
