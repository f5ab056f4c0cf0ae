"""The steps of a run at one site: read, plan, check, learn and rank, decide; and its result.

:class:`conovel.AdaDetect` calls them once, or B times with `repeats`; a kept detector and files
of any size have their own way to learn and rank, and share the decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.rows.frames import on_frames_of
from conovel.rows.pairs import read_pair
from conovel.rows.schemas import SchemaLike
from conovel.rows.tables import Rows, as_ids
from conovel.runs.site_results import SiteResult
from conovel.scorers.automatic import reads_frames
from conovel.scorers.base import Mixture, Scorer, TrainingSet, Vector, fit_best
from conovel.scorers.selection import Selection
from conovel.site.blocks import require_two, split_by_number, training_sample
from conovel.site.explain.explainer import Explainer, views_of
from conovel.spec.findings import headline
from conovel.spec.guarantee import Guarantee, one_site
from conovel.spec.training import as_share, n_training
from conovel.stats.null_proportion import NullProportion
from conovel.stats.ranks import adjusted_pvalues, conformal_ranks
from conovel.stats.repeats import repeated_resolution
from conovel.stats.resolution import Resolution, resolution, warn_resolution
from conovel.stats.stepup import RankHistogram, StepUp, step_up

if TYPE_CHECKING:
    from conovel.runs.file_detection import FileDetection


@dataclass(frozen=True)
class OneSiteSettings:
    """What one site detects with, checked; no network needs to agree on it.

    Attributes
    ----------
    candidates : tuple of Scorer
        What is fitted; the best one where there are several.
    level : Fraction
        Target false discovery rate α.
    seed : int
        Of the split; with `repeats`, what the seeds of the runs follow from.
    train_fraction : Fraction or None
        Share of the known normals that train; None follows from numbers of rows.
    pi0 : NullProportion or None
        Estimator of the proportion of nulls.
    max_train_rows : int
        How many rows of either kind are learnt from at most.
    repeats : int
        How many runs are averaged.
    """

    candidates: tuple[Scorer, ...]
    level: Fraction
    seed: int
    train_fraction: Fraction | None
    pi0: NullProportion | None
    max_train_rows: int
    repeats: int

    def n_train(self, n_null: int, n_test: int) -> int:
        """Return how many known normals train, from numbers of rows alone."""
        share = as_share(self.train_fraction, n_null, n_test, self.level)
        return n_training(n_null, share, self.max_train_rows)


class Samples(NamedTuple):
    """The rows of a detection, read and checked, with the names of the test rows."""

    null: Rows
    test: Rows
    ids: NDArray[Any] | None

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of known normals and of test rows."""
        return len(self.null), len(self.test)


def read_samples(
    X_null: Any, X_test: Any, ids: ArrayLike | None, schema: SchemaLike, keep_frames: bool
) -> Samples:
    """Read both samples and bring them to the same columns and types."""
    null, test = read_pair(X_null, X_test, schema, keep_frames=keep_frames)
    names = as_ids(ids, len(test))
    require_two(len(null))
    return Samples(null, test, names)


def plan_calibration(samples: Samples, settings: OneSiteSettings) -> int:
    """Return how many rows will calibrate; warn, before any work, if they are too few."""
    n_null, n_test = samples.sizes
    n_calibration = n_null - settings.n_train(n_null, n_test)
    if settings.pi0 is None:  # an estimate below m can make up for too few rows
        warn_resolution([(n_test, n_calibration)], settings.level)
    return n_calibration


def detect_once(
    samples: Samples, settings: OneSiteSettings, tell: Callable[[str], None]
) -> Detection:
    """Split, learn, rank and decide; rows are read and checked before."""
    null, test, ids = samples
    train, calibration = split_by_number(
        len(null), settings.n_train(*samples.sizes), settings.seed
    )
    candidates, null_train = settings.candidates, null.values[train]
    if reads_frames(candidates):
        candidates = on_frames_of(candidates, null.columns, null.encoder)
    tell("fitting the score model")
    mixture = Mixture.of(np.concatenate([null.values[calibration], test.values]))
    learnt_from = training_sample(mixture, settings.max_train_rows)
    fitted = fit_best(candidates, TrainingSet(null_train, learnt_from))
    tell("scoring")
    known_scores, scores = np.split(mixture.score(fitted), [calibration.size])
    views = views_of(null.encoder, null.columns or range(null.width))
    tell("deciding")
    return decide_alone(
        test,
        ids,
        Scored(known_scores, scores, conformal_ranks(known_scores, scores)),
        settings.level,
        settings.pi0,
        n_train=train.size,
        scorer=fitted.name,
        guarantee=one_site(settings.level, settings.pi0),
        choices={"scorer": fitted.selection} if fitted.selection else {},
        explainer=Explainer(fitted, null_train, views),
    )


class Scored(NamedTuple):
    """The scores of the calibration rows, and the scores and ranks of the test rows."""

    calibration_scores: Vector
    scores: Vector
    ranks: NDArray[np.int64]


def decide_alone(
    rows: Rows,
    ids: NDArray[Any] | None,
    scored: Scored,
    level: Fraction,
    pi0: NullProportion | None = None,
    **about: Any,
) -> Detection:
    """Reject by the step-up, and give the result; `about` are its other fields."""
    n_calibration = scored.calibration_scores.size
    outcome = step_up([(scored.ranks, n_calibration)], level, pi0)
    return Detection(
        rejected=outcome.rejected[0],
        ranks=scored.ranks,
        scores=scored.scores,
        tested=np.ones(len(rows), dtype=np.bool_),
        n_calibration=n_calibration,
        test_rows=rows,
        ids=ids,
        calibration_scores=scored.calibration_scores,
        stepup=outcome,
        **about,
    )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Detection(SiteResult):
    """The decisions of one site alone, one entry per row of ``X_test``.

    It is a :class:`SiteResult` with a step-up, a guarantee and a summary of its own. With
    `repeats` the step-up is that of the first run, at its level. With a ledger it is that of the
    batch by itself, and does not decide.

    Attributes
    ----------
    calibration_scores : float array of shape (ℓ,)
        What the test scores were compared with.
    stepup : StepUp
        Level, rounds, threshold and, if asked for, the estimated proportion of nulls.
    n_train : int
        Known normals used for training; the rest calibrated.
    scorer : str
        Name of the scorer that ranked the rows.
    guarantee : Guarantee
        What holds, under which assumptions.

    See Also
    --------
    conovel.AdaDetect : Makes it.
    conovel.NetworkRun : The decisions of several sites together.
    """

    calibration_scores: NDArray[np.float64]
    stepup: StepUp
    n_train: int
    scorer: str
    guarantee: Guarantee

    def _shown(self) -> dict[str, str]:
        return facts_of(self)

    @cached_property
    def histogram(self) -> RankHistogram:
        """How often each rank occurs."""
        return RankHistogram(self.ranks, self.n_calibration)

    @property
    def level(self) -> Fraction:
        """The level α, exact."""
        return self.stepup.level if self.repeated is None else self.repeated.level

    @property
    def selection(self) -> Selection | None:
        """How the scorer was chosen, when there were several candidates."""
        return self.choices.get("scorer")

    @property
    def headline(self) -> str:
        """What came out, in one sentence; a finding that breaks the promise is named first."""
        return headline(self.n_rejected, self.ranks.size, self.level, self.warnings)

    @property
    def resolution(self) -> Resolution:
        """How few rows could have been rejected together with this calibration size."""
        fewest = resolution if self.repeated is None else repeated_resolution
        return fewest(self.n_calibration, self.ranks.size, self.level)

    def summary(self) -> dict[str, Any]:
        """Everything but the rows, ready for JSON."""
        summary = summary_of(self)
        if self.ledger is not None:
            summary["ledger"] = self.ledger.summary()
        if self.repeated is None:
            return summary
        for of_one_run in ("largest_rejected_rank", "pi0", "selection"):
            del summary[of_one_run]
        return summary | {
            "level": str(self.level),
            "repeats": {
                "level": str(self.repeated.run_level),
                "seeds": list(self.repeated.seeds),
                "n_rejected": list(self.repeated.n_rejected),
            },
        }

    @cached_property
    def adjusted(self) -> NDArray[np.float64]:
        """BH-adjusted p-values (plain BH, whatever `pi0`)."""
        return adjusted_pvalues(self.ranks, self.n_calibration)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Per-row results by column name, ids first when there are any."""
        columns = super().columns()
        del columns["tested"]  # every row is
        if self.repeated is not None or self.ledger is not None:
            return columns  # adjusted p-values are about one run, and the batch by itself
        rejected = columns.pop("rejected")
        return columns | {"adjusted_p_value": self.adjusted, "rejected": rejected}


def facts_of(result: Detection | FileDetection) -> dict[str, str]:
    """Return what a detection at one site shows of itself."""
    sizes = f"{result.n_train:,} train, {result.n_calibration:,} calibrate"
    return {"result": result.headline, "scorer": result.scorer, "known normals": sizes}


def summary_of(result: Detection | FileDetection) -> dict[str, Any]:
    """Return what both kinds of a detection at one site tell besides their rows, for JSON."""
    histogram, outcome = result.histogram, result.stepup
    last = np.array([result.n_rejected] if result.n_rejected else [], dtype=np.int64)
    return {
        "level": str(outcome.level),
        "n_train": result.n_train,
        "n_calibration": histogram.n_calibration,
        "n_test": histogram.size,
        "n_rejected": result.n_rejected,
        "largest_rejected_rank": int(histogram.smallest(last).max(initial=0)),
        "fewest_rejections_possible": result.resolution.fewest,
        "pi0": None if outcome.pi0 is None else float(outcome.pi0),
        "scorer": result.scorer,
        "selection": result.selection and result.selection.to_dict(),
        "guarantee": {
            "statement": result.guarantee.statement,
            "assumptions": list(result.guarantee.assumptions),
        },
        "warnings": [finding.to_dict() for finding in result.warnings],
    }
