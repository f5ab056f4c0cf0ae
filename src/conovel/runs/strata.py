"""One site whose rows are compared within strata: learn one score, decide by cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.deciding.strata import StrataOutcome, decide_strata
from conovel.errors import InputError
from conovel.rows.strata import MOST_STRATA
from conovel.runs.detection import Detection
from conovel.runs.site_results import Cells, decide
from conovel.scorers.base import Vector
from conovel.site.blocks import Ranked
from conovel.site.checks.rows import CheckedRows
from conovel.site.kept_strata import BatchStrata
from conovel.site.site import Site
from conovel.site.strata import StrataResult, StrataRows, StrataScale, checked_within
from conovel.site.work import SiteWork
from conovel.spec.findings import Finding
from conovel.spec.guarantee import within_strata
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import N_CELLS
from conovel.stats.stepup import StepUp
from conovel.stats.strata import StrataHistogram

if TYPE_CHECKING:
    from conovel.runs.one_site import OneSiteSettings, Samples


def refuse_with_strata(**settings: Any) -> None:
    """Refuse settings that are not proven or not built for strata."""
    reasons = {
        "pi0": "an estimate of the share of normal rows is not proven for them",
        "ties": "rows of one cell are flagged together, so that there are no ties to break",
        "train_fraction": "each stratum needs known normals that train: leave it out",
        "verdicts": "which known normals are spent is not counted by stratum",
        "confidence": "p-values that hold for one calibration sample are not proven for cells",
    }
    for name, is_given in settings.items():
        if is_given:
            raise InputError(f"strata and {name} do not go together: {reasons[name]}")


def strata_work(settings: OneSiteSettings) -> SiteWork:
    """Say how the site works: as the only agent of a network, without messages."""
    spec = RunSpec.of(
        regime="joint",
        level=settings.level,
        seed=settings.seed,
        train_fraction=settings.train_fraction,
        strata=settings.strata,
    )
    most = settings.max_train_rows
    return SiteWork(spec, settings.candidates, max_train_rows=most, group_rows=1)


def find_site(samples: Samples, settings: OneSiteSettings) -> Site:
    """Make the site of rows in memory."""
    work = strata_work(settings)
    return Site(samples.null, samples.test, work, known_rows=samples.known_rows)


def compared_rows(
    checked: CheckedRows, samples: Samples, settings: OneSiteSettings
) -> tuple[CheckedRows, list[Finding]]:
    """Give the rows that checks compare, and what is to be said about strata."""
    return checked_within(checked, find_site(samples, settings).strata)


class CellEvidence(NamedTuple):
    """The rows of one site in the cells of their strata: gives e-values to a ledger."""

    decided: StrataOutcome
    scale: StrataScale
    codes: NDArray[np.int16]  # of shape (m,); the stratum of each row
    scores: Vector  # of shape (m,)

    def __call__(
        self, level: Fraction, most: Fraction
    ) -> tuple[NDArray[np.int64], tuple[Fraction, ...]]:
        """Return the place of each row's e-value, from 1, and the e-values, descending to 0.

        Proof: Lemma 12 (docs/theory.md#lem-block-evidence).
        """
        counts, groups = self.decided.counts, self.decided.groups
        outcome = decide_strata(counts, groups, level, most)
        cells = replace(self.scale, floors=(), cuts=()).cells(self.codes, self.scores)
        rejected = replace(self.scale, cuts=outcome.cuts).rejected(self.codes, cells)
        # Rows that are not tested are rows of the batch, too, and have no evidence.
        worth = [e * self.codes.size / counts.size for e in outcome.evidence]
        values = (*sorted({e for e in worth if e}, reverse=True), Fraction(0))
        places = np.full(MOST_STRATA + 1, len(values))
        places[list(self.scale.rows.tested)] = [values.index(e) + 1 for e in worth]
        return np.where(rejected, places[self.codes], len(values)), values


def decide_kept(
    strata: BatchStrata, scores: Vector, level: Fraction, result: Detection
) -> Detection:
    """Decide about a batch of a kept detector; `result` is what is said besides.

    Proof: Theorem 22 (docs/theory.md#thm-strata), Theorem 12 (docs/theory.md#thm-groups).
    """
    split, codes = strata.split(Fraction(0)), strata.strata.test
    tested = np.zeros(codes.size, dtype=np.bool_)
    tested[split.tests] = True
    calibration = strata.kept.scores[split.calibration]
    rows = StrataRows(tuple(strata.tested), strata.strata.null[split.calibration], codes)
    scale = strata.scale(split, rows, scores)
    own = scores[tested]
    ranked = rows.ranked(Ranked.of(tested, calibration, own, np.ones(own.size, np.int64)))
    groups = [one.group for one in strata.plan() if one.is_tested]
    outcome = decide_strata(scale.count(ranked), groups, level)
    scale = replace(scale, floors=outcome.floors, cuts=outcome.cuts)
    cells = scale.cells(codes, ranked.scores)
    parts = {
        "cells": Cells(cells, 0),
        "strata": StrataResult.of(strata, Fraction(0)),
        "decided": CellEvidence(outcome, scale, codes, ranked.scores),
    }
    return replace(
        result,
        rejected=scale.rejected(codes, cells),
        ranks=ranked.ranks,
        scores=ranked.scores,
        tested=tested,
        n_calibration=calibration.size,
        calibration_scores=calibration,
        stepup=step_of(outcome, level),
        parts={**result.parts, **parts},
    )


def decide_site(site: Site, settings: OneSiteSettings) -> StrataOutcome:
    """Learn, score and count the rows of a site, and decide; note the floors at the site."""
    site.ranks({})
    counts = site.count_cells()
    assert isinstance(counts, StrataHistogram)  # noqa: S101  (the site has strata)
    assert site.scale is not None and site.strata is not None  # noqa: S101, PT018
    groups = [one.group for one in site.strata.plan() if one.is_tested]
    outcome = decide_strata(counts, groups, settings.level)
    site.scale = replace(site.scale, floors=outcome.floors, cuts=outcome.cuts)
    return outcome


def step_of(outcome: StrataOutcome, level: Fraction) -> StepUp:
    """Give the decision in the form of a step-up; no rank is a limit."""
    n = outcome.n_rejected
    return StepUp(n, (), ((n,),), (0,), level, None)


def detect_strata(
    site: Site, samples: Samples, settings: OneSiteSettings, tell: Callable[[str], None]
) -> Detection:
    """Decide about rows in memory; they are read and checked before.

    Proof: Theorem 22 (docs/theory.md#thm-strata).
    """
    tell("fitting the score model")
    outcome = decide_site(site, settings)
    assert site.scale is not None and site.strata is not None  # noqa: S101, PT018
    decided = CellEvidence(outcome, site.scale, site.strata.strata.test, site.scores)
    tell("deciding")
    result = decide(site, N_CELLS, samples.ids)
    own = {part.name: getattr(result, part.name) for part in fields(result)}
    own["parts"] = {**result.parts, "decided": decided}
    return Detection(
        **own,
        calibration_scores=site.calibration_scores,
        stepup=step_of(outcome, settings.level),
        n_train=len(site.own_block.null_train),
        scorer=site.fitted.name,
        guarantee=within_strata(settings.level, settings.strata),
    )
