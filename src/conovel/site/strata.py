"""The work of a site whose rows are compared within strata (docs/theory.md#thm-strata).

Every stratum is a block: its calibration rows are compared with its tests. One score is learnt
for all. Each stratum has cells of its own on the common scale, because a score that was learnt
where the shares of strata differ is shifted between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import SampleError
from conovel.rows.stored import RowSource
from conovel.rows.strata import MOST_STRATA, NO_STRATUM, Strata, find_strata
from conovel.scorers.base import Mixture, ScoreModel, TrainingSet, Vector
from conovel.site.blocks import Ranked, RankedPart, ranks_among
from conovel.site.checks.rows import CheckedRows
from conovel.site.common_scale import CommonScale, fit_scale
from conovel.spec.findings import Finding
from conovel.spec.run_spec import RunSpec
from conovel.spec.strata import StratumPlan, plan_strata
from conovel.spec.training import Numbers, share_that_trains
from conovel.stats.cells import N_CELLS, CellHistogram, reaches
from conovel.stats.resolution import Resolution
from conovel.stats.strata import NO_CELL, StrataHistogram
from conovel.stats.words import counted, listed


class StrataSplit(NamedTuple):
    """Which known normals train and calibrate, and which test rows are tested, by place."""

    train: NDArray[np.intp]
    calibration: NDArray[np.intp]
    tests: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class SiteStrata:
    """The strata of a site in one run, and how each is divided."""

    strata: Strata
    spec: RunSpec
    n_agents: int
    most: int  # how many rows train at most

    @classmethod
    def of(
        cls, null: RowSource, test: RowSource, spec: RunSpec, n_agents: int, most: int
    ) -> SiteStrata:
        """Find the strata of the rows of a site."""
        return cls(find_strata(null, test, spec.strata), spec, n_agents, most)

    @property
    def sizes(self) -> list[Numbers]:
        """Known normals and tests of each stratum."""
        return [Numbers(*one) for one in self.strata.sizes()]

    def plan(self, weight: Fraction = Fraction(0)) -> list[StratumPlan]:
        """Divide each stratum, from numbers of rows alone; `weight` is that of the site's group.

        Which strata are tested does not depend on the weight.
        """
        sizes, spec = self.sizes, self.spec
        n_null, n_test = (sum(n) for n in zip(*sizes, strict=True)) if sizes else (0, 0)
        share = Fraction(1, 2)
        if n_null > 1 and n_test:
            share = share_that_trains(spec, n_null, n_test, self.n_agents)
        return plan_strata(
            sizes,
            share,
            spec.level,
            n_agents=self.n_agents,
            weight=weight,
            is_fixed=spec.train_fraction is not None,
            most=self.most,
        )

    @property
    def tested(self) -> list[int]:
        """The strata that are tested."""
        return [s for s, one in enumerate(self.plan()) if one.is_tested]

    @property
    def n_tested(self) -> int:
        """How many test rows are tested."""
        sizes = self.sizes
        return sum(sizes[s].n_test for s in self.tested)

    def split(self, weight: Fraction) -> StrataSplit:
        """Divide the known normals of each stratum at random.

        Proof: Theorem 22 (docs/theory.md#thm-strata).
        """
        rng = np.random.default_rng(self.spec.seed)
        train, calibration = [], []
        for s, one in enumerate(self.plan(weight)):
            order = self.ordered(np.flatnonzero(self.strata.null == s), rng)
            stop = one.n_train + one.n_calibration
            train.append(order[: one.n_train])
            calibration.append(order[one.n_train : stop])
        tests = np.flatnonzero(np.isin(self.strata.test, self.tested))
        nobody = np.zeros(0, dtype=np.intp)
        places = StrataSplit(
            np.sort(np.concatenate([nobody, *train])),
            np.sort(np.concatenate([nobody, *calibration])),
            tests,
        )
        if not places.tests.size:
            raise SampleError(
                f"no stratum of {self._named()} has both known normals and tests: there is"
                " nothing to compare. Leave strata out, or add known normals"
            )
        if not places.train.size:
            raise SampleError(
                f"the strata of {self._named()} have too few known normals to train on: put"
                " strata together in a new column, or add known normals"
            )
        return places

    def ordered(self, places: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
        """Order the known normals of a stratum: the first ones train, and the next calibrate."""
        return rng.permutation(places)

    def _named(self) -> str:
        return listed(list(self.strata.columns), 5)

    def findings(self) -> list[Finding]:
        """Say which strata are not tested, and why."""
        plan, labels = self.plan(), self.strata.labels
        findings = []
        sizes = self.sizes
        left_out = [s for s, one in enumerate(plan) if sizes[s].n_test and not one.is_tested]
        without = [s for s in left_out if not sizes[s].n_null]
        few = [s for s in left_out if sizes[s].n_null]
        n_together = int(np.count_nonzero(self.strata.test == NO_STRATUM))
        for code, some, why, fix in (
            ("untested_strata", without, "no known normals", "add known normals of them"),
            (
                "thin_strata",
                few,
                "too few known normals for their tests",
                "add known normals of them, or put strata together in a new column",
            ),
        ):
            if some:
                n = sum(sizes[s].n_test for s in some)
                names = listed([labels[s] for s in some], 8)
                word = "1 stratum" if len(some) == 1 else f"{len(some)} strata"
                message = (
                    f"{counted(n, 'row')} in {word} of {self._named()} are not tested:"
                    f" {why} ({names})"
                )
                findings.append(Finding(code, message, fix, numbers={"n_rows": n, "n": len(some)}))
        if n_together:
            rare = f" ({listed(list(self.strata.rare), 8)})" if self.strata.rare else ""
            message = (
                f"{counted(n_together, 'row')} are not tested: their values of {self._named()} are"
                f" rare{rare}, or unknown to the schema, and are no stratum"
            )
            fix = "add known normals with these values, or name them as levels in the schema"
            numbers = {"n_rows": n_together, "n": 0}
            findings.append(Finding("untested_strata", message, fix, numbers=numbers))
        return findings


def matched(checked: CheckedRows, strata: Strata) -> CheckedRows:
    """Give the rows that checks look at the same shares of strata, in both samples.

    Known normals come in the order in which each stratum has them, evenly: a change of the shares
    along the order is no drift.
    """
    codes = strata.null[:: checked.null_stride], strata.test[:: checked.test_stride]
    rate = codes[0].size / max(codes[1].size, 1)
    places: list[list[NDArray[np.intp]]] = [[], []]
    for s in np.unique(np.concatenate(codes)).tolist():
        own = [np.flatnonzero(one == s) for one in codes]
        n_null = min(float(own[0].size), own[1].size * rate)
        for some, rows, n in zip(places, own, (n_null, n_null / rate), strict=True):
            some.append(rows[np.linspace(0, rows.size, round(n), endpoint=False, dtype=np.intp)])
    if not sum(one.size for one in places[0]) or not sum(one.size for one in places[1]):
        return checked
    within = np.concatenate([(np.arange(one.size) + 0.5) / max(one.size, 1) for one in places[0]])
    null = np.concatenate(places[0])[np.argsort(within, kind="stable")]
    return checked._replace(
        null=checked.null[null], test=checked.test[np.sort(np.concatenate(places[1]))]
    )


def checked_within(
    checked: CheckedRows, strata: SiteStrata | None
) -> tuple[CheckedRows, list[Finding]]:
    """Give the rows that checks compare, and what is to be said about strata, if there are any."""
    if strata is None:
        return checked, []
    return matched(checked, strata.strata), strata.findings()


@dataclass(frozen=True, eq=False)
class StrataRows:
    """The strata of the calibration rows and test rows of a block."""

    tested: tuple[int, ...]  # the strata, ascending
    calibration: NDArray[np.int16]  # of shape (ℓ,); the stratum of each calibration row
    tests: NDArray[np.int16]  # of shape (m,); of each test row, tested or not

    def ranked(self, ranked: Ranked) -> Ranked:
        """Rank each test among the calibration rows of its own stratum.

        Proof: Theorem 22 (docs/theory.md#thm-strata), Lemma 2 (docs/theory.md#lem-ranks).
        """
        scores = ranked.calibration_scores
        ordered = {s: np.sort(scores[self.calibration == s]) for s in self.tested}

        def parts(stage: str | None = None, /) -> Iterator[RankedPart]:
            for part in ranked.parts(stage):
                codes, ranks = (
                    self.of_part(part, ranked.tested),
                    np.ones(part.ranks.size, np.int64),
                )
                for s, own in ordered.items():
                    here = codes == s
                    ranks[here] = ranks_among(own, part.scores[here])
                yield part._replace(ranks=ranks)

        return replace(ranked, parts=parts)

    def of_part(self, part: RankedPart, tested: NDArray[np.bool_]) -> NDArray[np.int16]:
        """Return the strata of the tested rows of a part."""
        here = slice(part.start, part.stop)
        return self.tests[here][tested[here]]


@dataclass(frozen=True, eq=False)
class StrataScale:
    """The cells of each stratum, and the floors once they are chosen."""

    scales: dict[int, CommonScale]
    rows: StrataRows
    # Of each tested stratum: the lowest cell whose rows take part, and the lowest rejected cell.
    # Empty before it is decided.
    floors: tuple[int, ...] = ()
    cuts: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, model: ScoreModel, training: TrainingSet, strata: Strata, rows: StrataRows, least: int
    ) -> StrataScale:
        """Learn the cells of each stratum from its rows, whichever of them are calibration rows.

        Proof: Theorem 22 (docs/theory.md#thm-strata), Theorem 10 (docs/theory.md#thm-joint).
        """
        scales = {}
        for s in rows.tested:
            scales[s] = fit_scale(model, training_of(training, strata, s), least)
        return cls(scales, rows)

    def cells(self, codes: NDArray[np.int16], scores: Vector) -> NDArray[np.int64]:
        """Return the cell of each row; below the floor of its stratum a row is in no cell.

        Proof: Theorem 22 (docs/theory.md#thm-strata).
        """
        cells = np.full(scores.size, NO_CELL, dtype=np.int64)
        floors = dict(zip(self.rows.tested, self.floors, strict=bool(self.floors)))
        for s, scale in self.scales.items():
            here = codes == s
            own = scale.cells(scores[here])
            cells[here] = np.where(own >= floors.get(s, 0), own, NO_CELL)
        return cells

    def rejected(self, codes: NDArray[np.int16], cells: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which rows are rejected: those from the lowest rejected cell of their stratum on.

        Proof: Theorem 22 (docs/theory.md#thm-strata).
        """
        cuts = np.full(MOST_STRATA + 1, N_CELLS, dtype=np.int64)  # the last: in no stratum
        cuts[list(self.rows.tested)] = self.cuts
        return reaches(cells, cuts[codes])

    def count(self, ranked: Ranked) -> StrataHistogram:
        """Count the calibration rows and tests of each stratum in its cells."""
        tests = {s: np.zeros(N_CELLS, dtype=np.int64) for s in self.scales}
        for part in ranked.parts():
            codes = self.rows.of_part(part, ranked.tested)
            for s, scale in self.scales.items():
                cells = scale.cells(part.scores[codes == s])
                tests[s] += np.bincount(cells, minlength=N_CELLS)
        counts = []
        for s, scale in self.scales.items():
            own = scale.cells(ranked.calibration_scores[self.rows.calibration == s])
            calibration = np.bincount(own, minlength=N_CELLS)
            counts.append(CellHistogram(calibration, tests[s], scale.likely))
        return StrataHistogram.together(counts)


def training_of(training: TrainingSet, strata: Strata, stratum: int) -> TrainingSet:
    """Take the rows of one stratum; without known normals that train, those of all strata."""
    mixture = training.mixture
    is_here = strata.of_rows(mixture.distinct) == stratum
    place = np.cumsum(is_here) - 1
    position = place[mixture.position[is_here[mixture.position]]]
    of_null = strata.of_rows(training.null_train) == stratum
    null_train = training.null_train[of_null] if of_null.any() else training.null_train
    return TrainingSet(null_train, Mixture(mixture.distinct[is_here], position))


@dataclass(frozen=True, eq=False)
class StrataResult:
    """What became of each stratum of a site: the part of a result that strata add.

    Attributes
    ----------
    columns : tuple of str
        The columns whose values make strata.
    labels : tuple of str
        One for each stratum.
    codes : int array of shape (m,)
        The stratum of each test row; -1 where it is in none.
    n_train, n_calibration, n_test : int arrays, one number for each stratum
    tested : bool array
        Which strata are tested.
    """

    columns: tuple[str, ...]
    labels: tuple[str, ...]
    codes: NDArray[np.int16]
    n_train: NDArray[np.int64]
    n_calibration: NDArray[np.int64]
    n_test: NDArray[np.int64]
    tested: NDArray[np.bool_]

    @classmethod
    def of(cls, own: SiteStrata, weight: Fraction) -> StrataResult:
        """Count the rows of each stratum."""
        strata, plan = own.strata, own.plan(weight)
        return cls(
            strata.columns,
            strata.labels,
            strata.test,
            np.array([one.n_train for one in plan], dtype=np.int64),
            np.array([one.n_calibration for one in plan], dtype=np.int64),
            np.array([size.n_test for size in own.sizes], dtype=np.int64),
            np.array([one.is_tested for one in plan], dtype=np.bool_),
        )

    @property
    def n_calibration_of_rows(self) -> NDArray[np.int64]:
        """How many calibration rows each test row is ranked among."""
        return np.append(self.n_calibration, 0)[self.codes]

    @property
    def label_of_rows(self) -> NDArray[np.object_]:
        """The name of each test row's stratum."""
        return np.array([*self.labels, "(none)"], dtype=object)[self.codes]

    @property
    def name(self) -> str:
        """The columns in words."""
        return ", ".join(self.columns)

    def resolution(self, level: Fraction) -> Resolution:
        """How few rows could have been rejected together: w <= α k at best."""
        sizes = list(zip(self.n_test.tolist(), self.n_calibration.tolist(), strict=True))
        w = max((Fraction(m, n + 1) for m, n in sizes if n), default=Fraction(0))
        n_tests, fewest = sum(m for m, n in sizes if n), math.ceil(w / level)
        rows = max(math.ceil(n_tests / level) - 1, 0)
        return Resolution(max(fewest, 1), math.ceil(1 / level) - 1, rows)

    def n_rejected(self, rejected: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count the rejected rows of each stratum."""
        return np.bincount(self.codes[rejected], minlength=len(self.labels))

    def table(self, n_rejected: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Give one entry for each stratum, by column."""
        return {
            "stratum": np.array(self.labels, dtype=object),
            "n_train": self.n_train,
            "n_calibration": self.n_calibration,
            "n_test": self.n_test,
            "tested": self.tested,
            "n_rejected": n_rejected,
        }

    def to_dict(self, n_rejected: NDArray[np.int64]) -> dict[str, Any]:
        """Give it as JSON types, without the rows."""
        columns = {name: values.tolist() for name, values in self.table(n_rejected).items()}
        rows = [
            dict(zip(columns, one, strict=True)) for one in zip(*columns.values(), strict=True)
        ]
        n_none = int(np.count_nonzero(self.codes == NO_STRATUM))
        return {"columns": list(self.columns), "strata": rows, "n_in_no_stratum": n_none}
