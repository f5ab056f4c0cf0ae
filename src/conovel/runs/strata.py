"""One site whose rows are compared within strata: learn one score, decide by cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from conovel.deciding.strata import StrataOutcome, decide_strata
from conovel.errors import InputError
from conovel.runs.detection import Detection
from conovel.runs.site_results import decide
from conovel.site.checks.rows import CheckedRows
from conovel.site.site import Site
from conovel.site.strata import checked_within
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
        "ledger": "a ledger decides by ranks among all calibration rows",
        "keep": "a kept detector has one calibration sample; use detect, which fits to each batch",
        "verdicts": "which known normals are spent is not counted by stratum",
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


def step_of(outcome: StrataOutcome, settings: OneSiteSettings) -> StepUp:
    """Give the decision in the form of a step-up; no rank is a limit."""
    n = outcome.n_rejected
    return StepUp(n, (), ((n,),), (0,), settings.level, None)


def detect_strata(
    site: Site, samples: Samples, settings: OneSiteSettings, tell: Callable[[str], None]
) -> Detection:
    """Decide about rows in memory; they are read and checked before.

    Proof: Theorem 22 (docs/theory.md#thm-strata).
    """
    tell("fitting the score model")
    outcome = decide_site(site, settings)
    tell("deciding")
    result = decide(site, N_CELLS, samples.ids)
    own = {part.name: getattr(result, part.name) for part in fields(result)}
    own["parts"] = {**result.parts, "strata_counts": (outcome.above, outcome.blocks)}
    return Detection(
        **own,
        calibration_scores=site.calibration_scores,
        stepup=step_of(outcome, settings),
        n_train=len(site.own_block.null_train),
        scorer=site.fitted.name,
        guarantee=within_strata(settings.level, settings.strata),
    )
