"""AdaDetect on files of any size: the same decisions, in bounded memory.

The path: survey both samples → gather what the scorer learns from → fit → score the
calibration rows → score and rank the test rows, part by part → count the ranks → decide →
write. Parts are kept until the output is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.errors import FileError, InputError
from conovel.rows.dialects import AS_FOUND, ReadingOptions
from conovel.rows.known_files import KnownFile
from conovel.rows.storage import require_writable
from conovel.runs.certificates import certificate_of_files
from conovel.runs.detection import facts_of, headline_of, summary_of, with_resolution
from conovel.runs.detector import AdaDetect
from conovel.runs.one_site import OneSiteSettings
from conovel.runs.pages import write_report
from conovel.runs.strata import decide_site, step_of, strata_work
from conovel.scorers.automatic import at_one_site
from conovel.scorers.base import Selection
from conovel.site.checks.known import known_findings
from conovel.site.engines import Engine, release_unused
from conovel.site.explain.reasons import Reasons
from conovel.site.open_files import open_files_site
from conovel.site.output import DecisionFile, Sketch, explain_files
from conovel.site.stored_blocks import Progress, silent
from conovel.site.strata import StrataResult
from conovel.site.work import SiteWork
from conovel.spec.findings import Finding
from conovel.spec.guarantee import Guarantee, this_list
from conovel.spec.run_spec import RunSpec
from conovel.spec.shown import Shown
from conovel.spec.training import thin_finding
from conovel.stats.certified import site_bounds
from conovel.stats.resolution import Resolution, resolution, warn_resolution
from conovel.stats.stepup import RankHistogram, StepUp, step_up_counts


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FileDetection(Shown):
    """The decisions of one site on rows that are in files; the rows are in `out`.

    Attributes
    ----------
    out : Path
        The file of decisions.
    sketch : Sketch
        What a report draws of the rows.
    histogram : RankHistogram
        How often each rank occurs.
    limit : int
        The largest rejected rank.
    reasons : Reasons or None
        Why the most novel of the rejected rows were rejected.
    n_known : int
        Number of known novelties.
    columns_used : tuple of str
        The columns that the score used.
    stepup, n_train, scorer, guarantee, choices, warnings
        As of :class:`conovel.Detection`.
    """

    out: Path
    sketch: Sketch
    histogram: RankHistogram
    stepup: StepUp
    n_train: int
    scorer: str
    guarantee: Guarantee
    choices: Mapping[str, Selection]
    limit: int
    confidence: Fraction | None = None
    warnings: tuple[Finding, ...] = ()
    n_known: int = 0
    columns_used: tuple[str, ...] = ()
    strata: StrataResult | None = None  # with strata, what became of each of them
    n_flagged: NDArray[np.int64] | None = None  # of each stratum
    reasons: Reasons | None = field(default=None, repr=False)

    report = write_report
    certificate = certificate_of_files
    _shown = facts_of

    def summary(self) -> dict[str, Any]:
        """Everything but the rows, ready for JSON."""
        summary = summary_of(self)
        if self.strata is not None and self.n_flagged is not None:
            summary["strata"] = self.strata.to_dict(self.n_flagged)
            del summary["largest_rejected_rank"]  # cells decide
        return summary

    @property
    def n_calibration(self) -> int:
        """Size ℓ of the calibration sample."""
        return self.histogram.n_calibration

    @property
    def level(self) -> Fraction:
        """The level α, exact."""
        return self.stepup.level

    @property
    def n_rejected(self) -> int:
        """Number of rows declared novelties."""
        if self.n_flagged is not None:
            return int(self.n_flagged.sum())
        return self.histogram.at_most(self.limit)

    @property
    def selection(self) -> Selection | None:
        """How the scorer was chosen, when there were several candidates."""
        return self.choices.get("scorer")

    @property
    def headline(self) -> str:
        """What came out, in one sentence; a finding that breaks the promise is named first."""
        return headline_of(self)

    @property
    def resolution(self) -> Resolution:
        """How few rows could have been rejected together with this calibration size."""
        if self.strata is not None:
            return self.strata.resolution(self.level)
        return resolution(self.n_calibration, self.histogram.size, self.level)


def detect_files(
    detector: AdaDetect,
    null: Path,
    test: Path,
    out: Path,
    *,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    reading: ReadingOptions = AS_FOUND,
    memory: int | str | None = None,
    engine: Engine | None = None,
    on_progress: Progress | None = None,
    check: bool = True,
    most_reasons: int | None = 0,
    keep_columns: bool = False,
    known_file: KnownFile | None = None,
) -> FileDetection:
    """Decide which rows of files are novelties, and write the decisions.

    The output has the bytes that reading everything into memory gives, whatever the budget
    and the engine. If it is broken off, the same call goes on where it stopped.

    Parameters
    ----------
    detector : AdaDetect
        Scorer, level and all other settings. `repeats` must be 1.
    null, test, columns, id_column, reading, memory, engine, on_progress, known_file
        As of :func:`conovel.site.open_files.open_files_site`.
    out : Path
        File of decisions: .csv, .parquet, .jsonl or .xlsx.
    most_reasons : int
        How many of the rejected rows are explained at most, the most novel first; None: a number
        by how many are rejected.
    keep_columns : bool
        Whether to copy the columns of the test files into `out`.
    check : bool
        Look for what speaks against the result, as of :meth:`conovel.AdaDetect.detect`.
    """
    require_writable(out)
    settings = detector.settings()
    _require_pieces(settings)
    level, pi0, sure = settings.level, settings.pi0, settings.confidence
    promise = settings.guarantee(0)
    site = open_files_site(
        null,
        test,
        strata_work(settings) if settings.strata else _work(settings),
        out.with_name(f".{out.name}.work"),
        columns=columns,
        id_column=id_column,
        reading=reading,
        schema=detector.schema,
        memory=memory,
        engine=engine,
        on_progress=on_progress or silent,
        known_file=known_file,
    )
    try:
        if settings.strata:
            outcome = step_of(decide_site(site, settings), level)
            assert site.ranked is not None  # noqa: S101
            histogram = site.ranked.histogram
        else:
            if pi0 is None:
                warn_resolution([(len(site.test), site.n_calibration_planned(1))], level)
            histogram = site.ranks({})
            outcome = step_up_counts([histogram], level, pi0)
        limit = outcome.limits[0]
        if sure is not None:
            limit = 1 + site_bounds(histogram, sure).last_place(level)
        reasons = explain_files(site, limit, most_reasons) if most_reasons != 0 else None
        written = DecisionFile(site, limit)
        written.write_alone(out, reasons, keep_columns)
    except (InputError, FileError):
        site.close()  # the same inputs would only fail again
        raise
    sizes = histogram.n_calibration, histogram.size
    thin = None if settings.strata else thin_finding(*sizes, level, pi0)
    of_known = (
        known_findings(site.known_rows, site.null, site.test) if check and site.known_rows else ()
    )
    findings = written.findings(thin, *of_known) if check else ()
    assert site.explainer is not None  # noqa: S101  (rows are ranked)
    used = site.explainer.names
    n_train = len(site.null) - site.n_calibration
    if settings.strata:  # some known normals are not used
        n_train = len(site.own_block.null_train)
    site.close()
    release_unused()
    result = FileDetection(
        out=out,
        n_train=n_train,
        strata=written.strata,
        n_flagged=written.n_flagged,
        histogram=histogram,
        sketch=written.sketch,
        stepup=outcome,
        scorer=site.fitted.name,
        choices=site.choices,
        guarantee=promise if sure is None else this_list(promise, level, sure),
        limit=limit,
        confidence=sure,
        columns_used=used,
        reasons=reasons,
        warnings=findings,
        n_known=0 if site.known_rows is None else len(site.known_rows),
    )
    return replace(result, warnings=tuple(with_resolution(result, findings))) if check else result


def _require_pieces(settings: OneSiteSettings) -> None:
    """Refuse settings that need all rows in memory."""
    refused = {
        "repeats": settings.repeats > 1,
        "train_fraction=0": settings.train_fraction == 0,
        "ties='random'": settings.lots is not None,
        "weights": settings.chance is not None,
        "confidence with strata": bool(settings.strata) and settings.confidence is not None,
    }
    for name, is_given in refused.items():
        if is_given:
            raise InputError(
                f"{name} is for rows in memory, and these files are read in pieces: leave it out,"
                " or give the detector rows that are in memory"
            )


def _work(settings: OneSiteSettings) -> SiteWork:
    """Say how the site works: as the only agent of a network, without messages."""
    spec = RunSpec.of(
        regime="isolated",
        level=settings.level,
        pi0=settings.pi0,
        seed=settings.seed,
        train_fraction=settings.train_fraction,
    )
    return SiteWork(spec, at_one_site(settings.candidates), max_train_rows=settings.max_train_rows)
