"""The steps of a run at one site: read, plan, check, learn and rank, decide; and its result.

:class:`conovel.AdaDetect` calls them once, or B times with `repeats`; a kept detector and files
of any size have their own way to learn and rank, and share the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.rows.frames import on_frames_of
from conovel.rows.pairs import KnownRows, read_with_known
from conovel.rows.schemas import SchemaLike
from conovel.rows.tables import Rows, as_ids
from conovel.runs.certificates import flag_certified
from conovel.runs.detection import Detection, with_resolution
from conovel.runs.judged import Judged
from conovel.runs.site_results import with_part
from conovel.runs.strata import compared_rows, detect_strata, find_site
from conovel.runs.weighted import ESTIMATED, RowWeights, decide_weighted
from conovel.scorers.all_rows import require_no_training
from conovel.scorers.argument import as_candidates
from conovel.scorers.automatic import at_one_site
from conovel.scorers.base import Mixture, Scorer, TrainingSet, Vector, fit_and_score
from conovel.scorers.fixed import FixedScore
from conovel.site.blocks import require_two, split_by_number, split_fresh, training_sample
from conovel.site.checks.known import known_findings
from conovel.site.checks.rows import CheckedRows, check_rows, with_findings
from conovel.site.explain.explainer import Explainer, views_of
from conovel.spec.findings import Finding
from conovel.spec.guarantee import Guarantee, one_site, with_lots, with_needs, within_strata
from conovel.spec.run_spec import detector_seeds, repeat_seeds
from conovel.spec.training import HALF, as_share, n_training, thin_finding
from conovel.stats.conditional import Conditional
from conovel.stats.levels import ties_seed
from conovel.stats.null_proportion import NullProportion
from conovel.stats.ranks import break_ties, conformal_ranks
from conovel.stats.repeats import Averaging, averaging, averaging_alone, combine, run_level
from conovel.stats.resolution import warn_resolution
from conovel.stats.stepup import step_up


@dataclass(frozen=True)
class OneSiteSettings:
    """What one site detects with, checked; no network needs to agree on it."""

    scorer: Any  # as the user gave it; each run makes its candidates of it
    candidates: tuple[Scorer, ...]  # what is fitted; the best one where there are several
    keep_frames: bool  # whether a candidate reads frames
    level: Fraction  # target false discovery rate α
    seed: int  # of the split; with `repeats`, what the seeds of the runs follow from
    # Share of the known normals that train; None follows from numbers of rows
    train_fraction: Fraction | None
    pi0: NullProportion | None  # estimator of the proportion of nulls
    max_train_rows: int  # how many rows of either kind are learnt from at most
    repeats: int  # how many runs are averaged
    confidence: Fraction | None = None  # of the promise about this list; None: on average
    lots: int | None = None  # seed of the order of equal scores; None counts ties against a row
    chance: Fraction | None = None  # with weights, the number by which rows are pruned
    least: Fraction = HALF  # share of the known normals that trains at least, where none is given
    strata: tuple[str, ...] = ()  # columns within whose values rows are compared

    def averaging(self, n_null: int) -> Averaging:
        """Choose how several runs decide together, from numbers of rows alone."""
        if self.strata:
            return averaging("cells", estimates_nulls=False)
        return averaging_alone(self.level, n_null, estimates_nulls=self.pi0 is not None)

    def runs(self, n_null: int) -> list[OneSiteSettings]:
        """Give the settings of each run: with `repeats`, its own seeds, and the level β."""
        if self.repeats == 1:
            return [self]
        level, runs = run_level(self.level, self.averaging(n_null)), []
        for seed in repeat_seeds(self.seed, self.repeats):
            split_seed, scorer_seed = detector_seeds(seed)
            candidates = tuple(as_candidates(self.scorer, scorer_seed))
            one = replace(self, level=level, seed=split_seed, candidates=candidates, repeats=1)
            runs.append(replace(one, lots=None if self.lots is None else ties_seed(seed)))
        return runs

    def guarantee(self, n_null: int) -> Guarantee:
        """State what these settings promise."""
        if self.strata:
            return within_strata(self.level, self.strata, self.repeats)
        several = () if self.repeats == 1 else (self.repeats, self.averaging(n_null))
        plain = one_site(self.level, self.pi0, *several)
        plain = with_needs(plain, [one.assumption for one in self.candidates])
        return plain if self.lots is None else with_lots(plain)

    def n_train(self, n_null: int, n_test: int) -> int:
        """Return how many known normals train, from numbers of rows alone."""
        learns = any(one.learns for one in self.candidates)
        if self.train_fraction == 0 or (self.train_fraction is None and not learns):
            return 0
        share = as_share(self.train_fraction, n_null, n_test, self.level, self.least)
        return n_training(n_null, share, self.max_train_rows)


class Samples(NamedTuple):
    """The rows of a detection, read and checked, with the names of the test rows."""

    null: Rows
    test: Rows
    ids: NDArray[Any] | None
    known_rows: KnownRows | None = None  # known novelties
    train_only: NDArray[np.bool_] | None = None  # known normals that never calibrate
    weights: RowWeights | None = None  # where normal tests are not like the known normals

    def split(self, settings: OneSiteSettings) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Say which known normals train and which calibrate."""
        n_train, seed = settings.n_train(*self.sizes), settings.seed
        if self.train_only is None:
            return split_by_number(len(self.null), n_train, seed)
        return split_fresh(self.train_only, n_train, seed, settings.max_train_rows)

    def without_seen(self, candidates: Sequence[Scorer]) -> Samples:
        """Let no known normal calibrate that a candidate had learnt from before this run.

        Proof: Theorem 1 (docs/theory.md#thm-valid).
        """
        values, never = self.null.values, self.train_only
        for one in candidates:
            if isinstance(one, FixedScore) and (seen := one.has_seen(values)).any():
                never = seen if never is None else never | seen
        return self._replace(train_only=never)

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of known normals and of test rows."""
        return len(self.null), len(self.test)


def silent(_: Any) -> None:
    """Tell nobody."""


def detect_rows(
    X_null: Any,
    X_test: Any,
    ids: ArrayLike | None,
    schema: SchemaLike,
    settings: OneSiteSettings,
    listeners: tuple[Callable[[str], None], Callable[[Finding], None]] = (silent, silent),
    check: bool = True,
    with_earlier: Callable[[Detection], Detection] | None = None,
    X_known: Any = None,
    judged: Judged | None = None,
    weights: RowWeights | None = None,
) -> Detection:
    """Read rows, check them, learn and decide; see :meth:`conovel.AdaDetect.detect`.

    `listeners` are called with each stage and with each finding; `with_earlier` decides about the
    batch together with earlier ones. `judged` says what earlier verdicts mean for these rows, and
    `weights` how much more often they occur among the tests.
    """
    tell, note = listeners
    tell("checking rows")
    if judged is not None:
        tell(judged.stage)
        X_known = judged.known_with(X_known, schema)
    samples = read_samples(X_null, X_test, ids, schema, settings.keep_frames, X_known)
    samples = samples._replace(weights=weights)
    if judged is not None:
        samples = samples._replace(train_only=judged.train_only)
    samples = samples.without_seen(settings.candidates)
    runs = settings.runs(len(samples.null))
    thin = None if settings.strata else plan_calibration(samples, runs[0])
    if check:
        if with_earlier is not None or len(runs) > 1:  # other batches or runs decide, too
            thin = None
        checked = CheckedRows.of(samples.null, samples.test)
        others = _about_novelties(samples, judged)
        compared, of_strata = (
            compared_rows(checked, samples, settings) if settings.strata else (checked, ())
        )
        others = *others, *of_strata
        names, is_like = checked.entries_of(samples.ids), weights is None
        findings = check_rows(compared, names, note, thin, *others, presumes_alike=is_like)
    if len(runs) > 1:
        result = detect_repeatedly(samples, settings, runs, tell)
    else:
        result = detect_once(samples, settings, tell)
    if judged is not None:
        judged.note_training()
    if settings.confidence is not None:
        result = flag_certified(result, settings.confidence)
    if with_earlier is not None:
        result = with_earlier(result)
    if judged is not None:
        result = judged.record(result)
    return with_findings(result, with_resolution(result, findings), checked) if check else result


def _about_novelties(samples: Samples, judged: Judged | None) -> tuple[Finding, ...]:
    """Say what speaks against known novelties and verdicts, where there are any."""
    findings: tuple[Finding, ...] = ()
    if samples.known_rows is not None:
        findings = known_findings(samples.known_rows, samples.null, samples.test)
    if samples.weights is not None and samples.weights.null is None:
        findings += (ESTIMATED,)
    return findings if judged is None else findings + judged.findings()


def read_samples(
    X_null: Any,
    X_test: Any,
    ids: ArrayLike | None,
    schema: SchemaLike,
    keep_frames: bool,
    X_known: Any = None,
) -> Samples:
    """Read all samples and bring them to the same columns and types."""
    null, test, known_rows = read_with_known(
        X_null, X_test, X_known, schema, keep_frames=keep_frames
    )
    names = None if ids is None else as_ids(ids, len(test))
    if len(null) < 2:
        require_two(len(null))
    return Samples(null, test, names, known_rows)


def plan_calibration(samples: Samples, settings: OneSiteSettings) -> Finding | None:
    """Warn, before any work, if too few rows will calibrate; return what to say if few will."""
    n_null, n_test = samples.sizes
    n_calibration = n_null - settings.n_train(n_null, n_test)
    if samples.train_only is not None:
        n_calibration = samples.split(settings)[1].size
    trains = n_calibration < n_null
    thin = thin_finding(n_calibration, n_test, settings.level, settings.pi0, trains=trains)
    if settings.pi0 is None:  # an estimate below m can make up for too few rows
        warn_resolution([(n_test, n_calibration)], settings.level, trains=trains)
    return thin


def detect_once(
    samples: Samples, settings: OneSiteSettings, tell: Callable[[str], None]
) -> Detection:
    """Split, learn, rank and decide; rows are read and checked before."""
    if settings.strata:
        return detect_strata(find_site(samples, settings), samples, settings, tell)
    null, test, ids, known_rows, _, row_weights = samples
    train, calibration = samples.split(settings)
    candidates, null_train = at_one_site(settings.candidates), null.values[train]
    if not train.size:
        require_no_training(candidates)
    if settings.keep_frames:
        candidates = on_frames_of(candidates, null.columns, null.encoder)
    tell("fitting the score model")
    mixture = Mixture.of(np.concatenate([null.values[calibration], test.values]))
    learnt_from = mixture
    if len(mixture.position) > settings.max_train_rows:
        learnt_from = training_sample(mixture, settings.max_train_rows)
    if row_weights is not None:
        weights = row_weights.of(null_train, mixture, train, calibration)
        null_train = weights.like_mixture(null_train, settings.seed)
    training = TrainingSet(
        null_train, learnt_from, None if known_rows is None else known_rows.values
    )
    fitted, all_scores = fit_and_score(candidates, training, mixture, tell)
    known_scores, scores = np.split(all_scores, [calibration.size])
    views = views_of(null.encoder, null.columns or range(null.width))
    made = {"scorer": fitted.selection, "known": fitted.by_known}
    tell("deciding")
    order = all_scores if settings.lots is None else break_ties(all_scores, settings.lots)
    ranks = conformal_ranks(*np.split(order, [calibration.size]))
    result = decide_alone(
        test,
        ids,
        Scored(known_scores, scores, ranks),
        settings.level,
        settings.pi0,
        n_train=train.size,
        scorer=fitted.scorer.label,
        guarantee=settings.guarantee(len(null)),
        choices={what: one for what, one in made.items() if one is not None},
        explainer=Explainer(fitted, null_train if train.size else null.values, views, known_rows),
        parts={} if settings.lots is None else {"ties": "random"},
    )
    if row_weights is None or settings.chance is None:
        return result
    return decide_weighted(result, row_weights, weights.mixture, settings.chance)


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
    conditional: Conditional | None = None,
    **about: Any,
) -> Detection:
    """Reject by the step-up, and give the result; `about` are its other fields."""
    n_calibration = scored.calibration_scores.size
    if conditional is None:
        outcome = step_up([(scored.ranks, n_calibration)], level, pi0)
    else:
        outcome = conditional.step_up(scored.ranks, level)
        about["parts"] = {"conditional": conditional}
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


def detect_repeatedly(
    samples: Samples,
    settings: OneSiteSettings,
    runs: Sequence[OneSiteSettings],
    tell: Callable[[str], None],
) -> Detection:
    """Let one site run B times on rows that are read, and decide on the averaged evidence."""
    seeds = repeat_seeds(settings.seed, settings.repeats)
    results = [detect_once(samples, one, in_run(tell, b, len(runs))) for b, one in enumerate(runs)]
    first = results[0]
    flags = {first.name: np.array([one.rejected for one in results])}
    averaged = combine(
        flags,
        {first.name: first.rejected.size},
        settings.level,
        seeds,
        settings.averaging(len(samples.null)),
        {first.name: first.n_calibration},
    )
    return with_part(
        first,
        "repeats",
        averaged.parts[first.name],
        rejected=averaged.rejected[first.name],
        scorer=", ".join(dict.fromkeys(one.scorer for one in results)),
        guarantee=settings.guarantee(len(samples.null)),
    )


def in_run(tell: Callable[[str], None], b: int, repeats: int) -> Callable[[str], None]:
    """Name the run before each stage of it.

    Examples
    --------
    >>> in_run(print, 0, 5)("scoring")
    run 1 of 5: scoring
    """
    return lambda stage: tell(f"run {b + 1} of {repeats}: {stage}")
