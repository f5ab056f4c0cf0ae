"""What the models that a site sends give away about its rows, measured by attacks.

Examples
--------
>>> from conovel.experiments.gaussian import gaussian_design
>>> pool = design_pool(2.0, seed=0, n_known=200, n_tests=100)
>>> found = measure_privacy(pool, [Exchange("compact")], n_shadows=8)
>>> found[0].target, 0 <= found[0].leakage.auc <= 1
('rows that train', True)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conovel.experiments.attacks import (
    FALSE_ALARMS,
    Leakage,
    Mask,
    discriminate,
    leakage,
    likelihood_ratio,
    log_odds_of,
    midpoints,
    named_values,
    reading,
)
from conovel.experiments.gaussian import gaussian_design, novelty_centre
from conovel.experiments.shadows import Exchange, Pool, Shadow, draw_shadow
from conovel.rows.encoding import Encoder
from conovel.rows.pairs import read_pair
from conovel.scorers.base import Matrix, Vector, mean_of

MOST_ROWS = 150  # of each kind that are attacked
_MOST_MODELS = 8  # of which thresholds are compared with values of rows
MOST_IN_POOL = 4000, 1500  # known normals and tests of a site's own rows
TRAINING, TESTS, NORMAL_TESTS, NOVELTIES, KNOWN = (
    "rows that train",
    "test rows",
    "normal test rows",
    "novelties",
    "known novelties",
)


@dataclass(frozen=True)
class Measured:
    """What one attack found."""

    exchange: str
    n_bytes: int  # mean size of a model
    target: str
    attack: str
    leakage: Leakage

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain JSON types; None is a number that could not be measured."""
        one = self.leakage
        numbers = {"auc": one.auc, "auc_error": one.auc_error}
        for rate, share, error in zip(FALSE_ALARMS, one.detected, one.detected_error, strict=True):
            numbers |= {f"detected_at_{rate:g}": share, f"detected_at_{rate:g}_error": error}
        plain = {name: None if math.isnan(x) else round(x, 4) for name, x in numbers.items()}
        return {
            "exchange": self.exchange,
            "bytes": self.n_bytes,
            "target": self.target,
            "attack": self.attack,
            **plain,
            "members": one.n_members,
            "others": one.n_others,
        }


@dataclass(frozen=True)
class Reading:
    """What the bytes of an exchange name, without any attack on rows."""

    exchange: str
    extremes: float  # mean correlation of the greatest named value with the rows' greatest value
    midpoints: float  # share of thresholds in the middle of two rows' values; NaN if not sent

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain JSON types; None is a number that could not be measured."""
        share = None if math.isnan(self.midpoints) else round(self.midpoints, 4)
        return {"exchange": self.exchange, "extremes": round(self.extremes, 4), "midpoints": share}

    @property
    def in_words(self) -> str:
        """The reading in a sentence."""
        words = f"the greatest value that it names follows that of the rows ({self.extremes:.2f})"
        if self.extremes < 0.5:
            words = f"it does not name the greatest values of the rows ({self.extremes:.2f})"
        if not math.isnan(self.midpoints):
            words += f"; {self.midpoints:.0%} of its thresholds are the middle of two rows' values"
        return words


def pool_of(X_null: Any, X_test: Any, schema: Any = None, seed: int = 0) -> Pool:
    """Make a pool of a site's own rows; of very many, a random part."""
    normals, tests = read_pair(X_null, X_test, schema)
    agreed = normals.encoder.schema if isinstance(normals.encoder, Encoder) else None
    rng = np.random.default_rng([seed, normals.width])
    chosen = [
        np.sort(rng.permutation(len(rows))[:most])
        for rows, most in zip((normals, tests), MOST_IN_POOL, strict=True)
    ]
    return Pool(normals.values[chosen[0]], tests.values[chosen[1]], schema=agreed)


def design_pool(
    shift: float, seed: int, n_known: int = 1000, n_tests: int = 333, n_shared: int = 0
) -> Pool:
    """Draw a pool of the paper's design, so that a shadow agent has about these many rows.

    `n_shared` is the number of known novelties.
    """
    totals = {"n_null": 6 * n_known, "n_test": 6 * n_tests}
    agent = gaussian_design(shift, seed, n_agents=3, **totals)[0]
    if not n_shared:
        return Pool(agent.X_null, agent.X_test, agent.is_novel)
    centre = novelty_centre()
    rng = np.random.default_rng([seed, n_shared])
    known_rows = rng.normal(size=(2 * n_shared, centre.size)) + centre
    return Pool(agent.X_null, agent.X_test, agent.is_novel, known_rows=known_rows)


def measure_privacy(
    pool: Pool,
    exchanges: Sequence[Exchange],
    n_shadows: int = 200,
    seed: int = 0,
    on_shadow: Callable[[int], None] | None = None,
) -> list[Measured]:
    """Attack what shadow agents send; see :mod:`conovel.experiments.attacks`."""
    shadows = draw_shadows(pool, exchanges, n_shadows, seed, on_shadow)
    return attack_all(pool, shadows, exchanges)


def attack_all(
    pool: Pool,
    shadows: Sequence[Shadow],
    exchanges: Sequence[Exchange],
    on_exchange: Callable[[int], None] | None = None,
) -> list[Measured]:
    """Run all attacks on all exchanges."""
    measured: list[Measured] = []
    for number, exchange in enumerate(exchanges):
        measured += _attack(pool, shadows, number, exchange)
        if on_exchange is not None:
            on_exchange(number + 1)
    return measured


def seconds_to_draw(
    pool: Pool, exchanges: Sequence[Exchange], n_shadows: int, seed: int = 0
) -> float:
    """Estimate how long :func:`draw_shadows` takes, from one agent after a first one.

    The first one also loads and compiles.
    """
    for index in range(2):
        started = time.monotonic()
        draw_shadow(pool, exchanges, index, seed)
    return n_shadows * (time.monotonic() - started)


def draw_shadows(
    pool: Pool,
    exchanges: Sequence[Exchange],
    n_shadows: int,
    seed: int = 0,
    on_shadow: Callable[[int], None] | None = None,
) -> list[Shadow]:
    """Draw shadow agents with their models."""
    shadows = []
    for index in range(n_shadows):
        shadows.append(draw_shadow(pool, exchanges, index, seed))
        if on_shadow is not None:
            on_shadow(index + 1)
    return shadows


def read_bytes(
    pool: Pool, shadows: Sequence[Shadow], exchanges: Sequence[Exchange]
) -> list[Reading]:
    """Say what the bytes of each exchange name of the extremes and values of rows."""
    readings = []
    plain = [shadow for shadow in shadows if shadow.canary < 0]
    for number, exchange in enumerate(exchanges):
        correlations = []
        for f in range(pool.normals.shape[1]):
            named = np.array([named_values(s.models[number][0], f) for s in plain])
            used = named[:, 2] > 0
            largest = np.array([shadow.rows[:, f].max() for shadow in plain])
            pair = named[used, 1], largest[used]
            if used.sum() > 2 and pair[0].std() > 0 and pair[1].std() > 0:
                correlations.append(float(np.corrcoef(*pair)[0, 1]))
        shares = [midpoints(s.models[number][0], s.rows) for s in plain[:_MOST_MODELS]]
        measured = [share for share in shares if not math.isnan(share)]
        extremes = float(np.mean(correlations)) if correlations else 0.0
        readings.append(
            Reading(exchange.name, extremes, float(np.mean(measured)) if measured else math.nan)
        )
    return readings


def _attack(
    pool: Pool, shadows: Sequence[Shadow], number: int, exchange: Exchange
) -> Iterator[Measured]:
    """Run all attacks on one exchange."""
    n_bytes = round(float(np.mean([shadow.sizes[number] for shadow in shadows])))

    def measured(target: str, attack: str, leakage_found: Leakage) -> Measured:
        return Measured(exchange.name, n_bytes, target, attack, leakage_found)

    for target, rows, members, others, sign in _groups(pool, shadows, exchange):
        scores = np.array([_mean_log_odds(s.models[number], rows) for s in shadows])
        ratio = likelihood_ratio(scores, members, others)
        yield measured(target, "likelihood ratio", leakage(ratio, members, others))
        yield measured(target, "threshold", leakage(sign * scores, members, others))
    for c, canary in enumerate(pool.canaries):
        chosen = [shadow for shadow in shadows if shadow.canary in (-1, c)]
        is_member = np.array([shadow.canary == c for shadow in chosen])
        if is_member.sum() < 4:
            continue
        readings = np.array(
            [
                reading(s.models[number][0], canary.row, pool.centre, canary.features)
                for s in chosen
            ]
        )
        statistic = discriminate(readings, is_member)[:, np.newaxis]
        inside, outside = is_member[:, np.newaxis], ~is_member[:, np.newaxis]
        yield measured(canary.name, "reading", leakage(statistic, inside, outside))


def _groups(
    pool: Pool, shadows: Sequence[Shadow], exchange: Exchange
) -> Iterator[tuple[str, Matrix, Mask, Mask, float]]:
    """Return what is attacked, its rows, who is a member and who is not, and the sign of members.

    Rows that train have low scores, rows of the mixture high ones.
    """
    first = slice(MOST_ROWS)
    here = np.array([shadow.normals[first] for shadow in shadows])
    # With several runs a known normal trains in some of them.
    name = "trains" if exchange.n_runs == 1 else "normals"
    trains = np.array([getattr(shadow, name)[first] for shadow in shadows])
    yield TRAINING, pool.normals[first], trains, ~here, -1.0
    tests = np.array([shadow.tests for shadow in shadows])
    kinds = {TESTS: np.ones(len(pool.tests), dtype=np.bool_)}
    if pool.is_novel is not None:
        kinds = {NORMAL_TESTS: ~pool.is_novel, NOVELTIES: pool.is_novel}
    for target, kind in kinds.items():
        chosen = np.flatnonzero(kind)[first]
        members = tests[:, chosen]
        yield target, pool.tests[chosen], members, ~members, 1.0
    if pool.known_rows is not None:
        members = np.array([shadow.known_rows[first] for shadow in shadows])
        yield KNOWN, pool.known_rows[first], members, ~members, 1.0


def _mean_log_odds(models: Sequence[Any], rows: Matrix) -> Vector:
    """Return the mean of the log-odds that several models give each row."""
    return mean_of([log_odds_of(model, rows) for model in models])
