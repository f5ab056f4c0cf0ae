"""Shadow agents: sites drawn at random from a pool of rows, and the models that they send.

Each row of the pool is at a shadow agent with chance one half. Half of the shadow agents also have
one outlying row, a canary: six standard deviations away in one or in five features, either among
the known normals that train or among the tests. So it is known of every model which rows are
behind it. Known novelties are drawn from the pool in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from conovel.experiments.attacks import Mask
from conovel.models.wire import Surrogate
from conovel.scorers.argument import as_candidates
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Mixture,
    Scorer,
    TrainingSet,
    Vector,
    fit_best,
)
from conovel.site.sent.compact import find_bounds, public_ranges, public_units
from conovel.site.sent.private_surrogate import SecretNoise, make_private_surrogate
from conovel.site.sent.surrogate import decode, make_surrogate
from conovel.spec.schema import Schema, SchemaDigest
from conovel.spec.settings import COMPACT, Bits, Privacy

OUTLYING = 6.0  # standard deviations
WIDTHS = (1, 5)  # features in which a canary is outlying
ROLES = ("trains", "is tested")
_NORMAL_WIDTH = 1.349  # between the quartiles, in standard deviations


@dataclass(frozen=True)
class Exchange:
    """A way to send a model."""

    name: str
    scorer: Any = None
    bits: Bits = COMPACT
    n_runs: int = 1  # models of the same rows, each with a seed and a split of its own
    privacy: Privacy | None = None
    known_seed: bool = False  # whether the attacker knows the site's seed, a secret elsewhere


@dataclass(frozen=True, eq=False)
class Canary:
    """An outlying row, the features in which it is one, and its role."""

    row: Vector
    features: tuple[int, ...]
    role: str

    @property
    def name(self) -> str:
        """The canary in a few words."""
        n = len(self.features)
        return f"outlier in {n} column{'s' * (n > 1)} that {self.role}"


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows from which shadow agents are drawn."""

    normals: Matrix
    tests: Matrix
    is_novel: Mask | None = None
    schema: Schema | SchemaDigest | None = None
    known_rows: Matrix | None = None  # novelties that a site knows, where it shares what they say

    @cached_property
    def centre(self) -> Vector:
        """The median of each feature."""
        return np.asarray(np.median(self.normals, axis=0))

    @cached_property
    def unit(self) -> Vector:
        """The standard deviation of each feature as its quartiles tell it."""
        low, high = np.quantile(self.normals, [0.25, 0.75], axis=0)
        unit = (high - low) / _NORMAL_WIDTH
        spread = self.normals.std(axis=0)
        return np.where(unit > 0, unit, np.where(spread > 0, spread, 1.0))

    @cached_property
    def canaries(self) -> tuple[Canary, ...]:
        """One outlying row for each role and number of features."""
        rng = np.random.default_rng(self.normals.shape)
        canaries = []
        for role in ROLES:
            for width in WIDTHS:
                row = self.normals[rng.integers(len(self.normals))].copy()
                chosen = rng.choice(row.size, size=min(width, row.size), replace=False)
                row[chosen] = self.centre[chosen] + OUTLYING * self.unit[chosen]
                canaries.append(Canary(row, tuple(sorted(chosen.tolist())), role))
        return tuple(canaries)


@dataclass(frozen=True, eq=False)
class Shadow:
    """A shadow agent."""

    normals: Mask
    tests: Mask
    trains: Mask  # which known normals trained its first model
    canary: int  # -1 if none
    rows: Matrix
    models: list[tuple[Surrogate, ...]] = field(repr=False)
    sizes: list[int]
    known_rows: Mask  # which known novelties of the pool it has


def draw_shadow(pool: Pool, exchanges: Sequence[Exchange], index: int, seed: int) -> Shadow:
    """Draw the shadow agent of a number, fit its models and send them."""
    rng = np.random.default_rng([seed, index])
    in_normals, tests = (rng.random(len(rows)) < 0.5 for rows in (pool.normals, pool.tests))
    # Attacks teach on even numbers and attack odd ones, so a canary has both.
    turn = index // 2
    canary = turn // 2 % len(pool.canaries) if turn % 2 else -1
    n_runs = max(one.n_runs for one in exchanges)
    splits = [_split(in_normals, rng) for _ in range(n_runs)]
    in_known = rng.random(0 if pool.known_rows is None else len(pool.known_rows)) < 0.5
    drawn = [
        _training(pool, in_normals & ~split, split, tests, canary, in_known) for split in splits
    ]
    # A site of a deployment mixes a secret into the seed of a run, so an attacker has other seeds.
    own = seed if all(one.known_seed for one in exchanges) else seed + index
    seeds = [own + 1_000_003 * run for run in range(n_runs)]
    models, sizes = _send(exchanges, drawn, seeds, pool.schema)
    rows = drawn[0].labelled()[0]
    return Shadow(in_normals, tests, splits[0], canary, rows, models, sizes, in_known)


def _split(in_normals: Mask, rng: np.random.Generator) -> Mask:
    """Choose half of the known normals of an agent: they train, the others calibrate."""
    here = rng.permutation(np.flatnonzero(in_normals))
    trains = np.zeros(in_normals.size, dtype=np.bool_)
    trains[here[: here.size // 2]] = True
    return trains


def _training(
    pool: Pool, calibrates: Mask, trains: Mask, tests: Mask, canary: int, in_known: Mask
) -> TrainingSet:
    null_train = pool.normals[trains]
    mixture = np.concatenate([pool.normals[calibrates], pool.tests[tests]])
    if canary >= 0:
        one = pool.canaries[canary]
        target = null_train if one.role == ROLES[0] else mixture
        target[0] = one.row  # in the place of another, so that numbers of rows say nothing
    known_rows = None if pool.known_rows is None else pool.known_rows[in_known]
    return TrainingSet(null_train, Mixture.of(mixture), known_rows)


def _send(
    exchanges: Sequence[Exchange],
    drawn: Sequence[TrainingSet],
    seeds: Sequence[int],
    schema: Schema | SchemaDigest | None,
) -> tuple[list[tuple[Surrogate, ...]], list[int]]:
    """Make the models of all exchanges; what learns with one scorer learns once."""
    fitters: dict[tuple[int, int], _Fitter] = {}
    models, sizes = [], []
    for exchange in exchanges:
        blobs = []
        for training, seed in list(zip(drawn, seeds, strict=True))[: exchange.n_runs]:
            key = id(exchange.scorer), seed
            if key not in fitters:
                candidates = tuple(as_candidates(exchange.scorer, seed))
                fitters[key] = _Fitter(candidates, training, schema)
            blobs.append(fitters[key].send(exchange, seed))
        models.append(tuple(map(decode, blobs)))
        sizes.append(len(blobs[0]))
    return models, sizes


class _Fitter:
    """Fits a scorer once for all exchanges."""

    def __init__(
        self,
        candidates: tuple[Scorer, ...],
        training: TrainingSet,
        schema: Schema | SchemaDigest | None,
    ) -> None:
        self.candidates, self.training, self.schema = candidates, training, schema

    @cached_property
    def local(self) -> FittedScorer:
        """The model of the rows as they are."""
        return fit_best(self.candidates, self.training)

    def send(self, exchange: Exchange, seed: int) -> bytes:
        """Make what peers receive."""
        n_features = self.training.null_train.shape[1]
        if exchange.privacy is not None:
            return make_private_surrogate(
                self.training,
                self.training.mixture.position.size,
                public_units(self.schema, n_features),
                exchange.privacy,
                SecretNoise(),
                exchange.bits,
            )
        ranges = public_ranges(self.schema, n_features)
        return make_surrogate(
            exchange.bits,
            None if isinstance(exchange.bits, str) else self.local,
            self.training,
            seed,
            candidates=self.candidates,
            bounds=find_bounds(self.training.null_train, ranges),
        )
