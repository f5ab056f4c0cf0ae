"""A detector that is kept: fitted once, used on batches that it has not seen.

The score learns from known normals and, if there are any, from unlabelled rows that are never
tested. The other known normals calibrate. So a batch is ranked without a fit, in milliseconds,
and the guarantee of one batch is that of one site whose score is fixed (docs/theory.md,
Section 14).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import BatchRefusedError, ColumnError, ConovelError, InputError, SavedFileError
from conovel.rows.encoding import Encoder
from conovel.rows.pairs import KnownRows, encode_rows
from conovel.rows.samples import read_rows
from conovel.rows.storage import read_bytes, write_durably
from conovel.rows.tables import (
    Rows,
    as_ids,
    column_label,
    common_kind,
    loses_digits,
    require_kept_kind,
    round_to,
)
from conovel.runs.detection import Detection, with_resolution
from conovel.runs.kept_file import FIRST_SETTINGS, MAX_BYTES, pack, read_detector
from conovel.runs.ledger import Ledger
from conovel.runs.ledger_file import open_ledger, take_batch, with_update
from conovel.runs.ledger_records import (
    BatchFacts,
    columns_digest,
    content_digest,
    settings_digests,
)
from conovel.runs.one_site import Scored, decide_alone
from conovel.runs.strata import decide_kept
from conovel.scorers.base import FittedScorer, Matrix, Vector
from conovel.scorers.kept import Part, from_part
from conovel.site.checks.columns import batch_findings
from conovel.site.checks.rows import clipped_findings, with_outcome_findings
from conovel.site.explain.explainer import Explainer, views_of
from conovel.site.kept_strata import KeptStrata
from conovel.spec.findings import Finding
from conovel.spec.guarantee import kept_score, within_strata
from conovel.spec.schema import Schema
from conovel.spec.training import thin_finding
from conovel.stats.conditional import Conditional, LongRun, long_run
from conovel.stats.levels import Level, as_callback, as_level
from conovel.stats.ranks import conformal_ranks
from conovel.stats.resolution import rank_limit, warn_resolution

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class KeptDetector:
    """A fitted score with its calibration scores; :meth:`conovel.AdaDetect.keep` makes it.

    Attributes
    ----------
    level : Fraction
        The level at which it was made; `detect` may be given another.
    scorer : str
        Name of the scorer that learnt the score.
    imitated : bool
        Whether a forest imitates that score, because it has no form that can be kept. The
        guarantee is the same; it may find less.
    schema : Schema or None
        What the columns are, where they are not plain numbers. It follows from rows that train.
    columns : tuple of str or None
        Names of the features.
    kinds : tuple of str or None
        The type of each feature, as in :class:`conovel.rows.tables.Rows`.
    n_features, n_train, n_unlabelled : int
        Numbers of columns, of known normals that trained, and of unlabelled rows.
    unlabelled : str
        Digest of the unlabelled rows, which must not be tested; empty if there were none.
    calibration_scores : float array of shape (ℓ,)
        Increasing.
    model : Part
        The score as numbers.
    normals : float array of shape (k, d)
        Some known normals that trained, by which flagged rows are explained; none if not asked
        for.
    n_known : int
        Number of known novelties from which the score learnt.
    novelties : KnownRows or None
        The known novelties, by which flagged rows are explained; None if not asked for.
    confidence : Fraction or None
        With this probability the detector's own long-run share of false alarms is at most the
        level; None if the guarantee is an average over calibration samples.
    strata : KeptStrata or None
        With strata, the columns, and the stratum of each calibration score.

    See Also
    --------
    conovel.AdaDetect : Makes it, and tests rows with a score that learns from them.
    conovel.Ledger : One guarantee for many batches.

    Examples
    --------
    >>> import conovel as cn
    >>> rng = np.random.default_rng(0)
    >>> X_null, yesterday = rng.normal(size=(1500, 3)), rng.normal(size=(300, 3))
    >>> yesterday[:30] += 4
    >>> detector = cn.AdaDetect("logistic").keep(X_null, yesterday)
    >>> today = rng.normal(size=(100, 3))
    >>> today[:10] += 4
    >>> int(detector.detect(today).rejected[:10].sum())
    10
    """

    level: Fraction
    scorer: str
    imitated: bool
    schema: Schema | None
    columns: tuple[str, ...] | None
    kinds: tuple[str, ...] | None
    n_features: int
    n_train: int
    n_unlabelled: int
    unlabelled: str
    calibration_scores: Vector
    model: Part
    normals: Matrix
    software: str
    n_known: int = 0
    novelties: KnownRows | None = None
    confidence: Fraction | None = None
    strata: KeptStrata | None = None

    def __repr__(self) -> str:
        novelties = f", {self.n_known:,} known novelties" if self.n_known else ""
        return (
            f"<KeptDetector {self.scorer}, {self.n_features} features: {self.n_train:,} known"
            f" normals{novelties} and {self.n_unlabelled:,} unlabelled rows train,"
            f" {self.n_calibration:,} calibrate; {self.in_the_long_run}>"
        )

    @property
    def in_the_long_run(self) -> str:
        """What is known about the false alarms of this one detector over its life."""
        if self.confidence is not None:
            sure, alpha = float(self.confidence), float(self.level)
            return f"with probability {sure:g} its own long-run rate is at most {alpha:g}"
        if self.strata is not None:
            return f"rows are compared within strata of {', '.join(self.strata.columns)}"
        rate = self.long_run
        if rate is None:
            return "no row can be flagged by itself"
        return f"90 % of such detectors flag a row by itself {rate}"

    @property
    def long_run(self) -> LongRun | None:
        """Between which rates detectors with as many calibration rows lie, without confidence."""
        return None if self.strata is not None else long_run(self.n_calibration, self.level)

    @cached_property
    def conditional(self) -> Conditional | None:
        """The p-values that hold given the calibration sample, where it has a confidence."""
        if self.confidence is None:
            return None
        return Conditional(self.n_calibration, self.confidence)

    @property
    def n_calibration(self) -> int:
        """Size ℓ of the calibration sample."""
        return int(self.calibration_scores.size)

    @cached_property
    def fitted(self) -> FittedScorer:
        """The score."""
        return from_part(self.model, self.n_features, self.scorer)

    @cached_property
    def explainer(self) -> Explainer | None:
        """What explains flagged rows, if known normals were kept for it."""
        if not len(self.normals):
            return None
        encoder = None if self.schema is None else Encoder(self.schema)
        views = views_of(encoder, self.columns or range(self.n_features))
        return Explainer(self.fitted, self.normals, views, self.novelties)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the detector's bytes: what a ledger knows it by."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def score(self, X: Any) -> Vector:
        """Score rows; higher is more novel. The score of a row does not depend on the others."""
        return self.fitted.score(self.read(X).values)

    def margins(self, X: Any) -> Vector:
        """Score rows, below zero for rows with a p-value of at most the level."""
        scores = self.score(X)
        if self.strata is not None:
            return self.strata.margins(self.read(X), scores, self.level)
        limit = rank_limit(self.level, 1, self.n_calibration)  # p ≤ α iff rank ≤ limit
        if self.conditional is not None:
            limit = self.conditional.limit(self.level, 1)
        if not limit:
            return np.full(len(scores), np.inf)
        return np.asarray(self.calibration_scores[-limit] - scores)

    def read(self, X: Any, name: str = "X") -> Rows:
        """Check rows to score, and bring them to the columns and types of the known normals."""
        plain = ("float64",) * self.n_features
        if self.schema is not None:
            return encode_rows(X, self.schema, name, self.kinds or plain)
        rows = read_rows(X, name, self.columns)
        if (width := rows.values.shape[1]) != self.n_features:
            raise ColumnError(
                f"{name} has {width} columns, and the detector was made for {self.n_features}:"
                " give it the same columns"
            )
        values = rows.values
        for j, (kept, new) in enumerate(
            zip(self.kinds or plain, rows.kinds or plain, strict=True)
        ):
            label, common = column_label(self.columns, j), common_kind((kept, new))
            require_kept_kind(kept, new, label, name)
            if kept == common and kept.startswith("float") and loses_digits(new, kept):
                values = values.copy() if values is rows.values else values
                values[:, j] = round_to(values[:, j], kept, label) + 0.0
        return replace(rows, values=values, kinds=self.kinds)

    def detect(
        self,
        X_test: Any,
        *,
        ids: ArrayLike | None = None,
        level: Level | None = None,
        on_stage: Callable[[str], None] | None = None,
        ledger: Ledger | str | Path | None = None,
        name: str | None = None,
        check: bool = True,
    ) -> Detection:
        """Decide which rows of a batch are novelties, without a fit.

        Parameters
        ----------
        X_test : array or frame of shape (m, d)
            Rows to test; none of them may have been among the rows that the detector learnt from.
        ids : array of shape (m,), optional
            Row names.
        level : float, str or Fraction, optional
            Another level than the one that the detector was made with.
        on_stage : callable, optional
            Told the name of each stage as it begins.
        ledger : Ledger or path, optional
            Decide together with all earlier batches; see :class:`conovel.Ledger`.
        name : str, optional
            What the ledger calls the batch.
        check : bool
            Look for what speaks against the result. A kept detector has no known normals to
            compare with: the outcome, the ids, columns without values and the number of
            calibration rows are looked at.
        """
        tell = _log.info if on_stage is None else as_callback(on_stage, "on_stage")
        tell("checking rows")
        rows = self.read(X_test, "X_test")
        names = as_ids(ids, len(rows))
        alpha = self.level if level is None else as_level(level)
        columns = columns_digest(self.columns, self.n_features)
        facts = BatchFacts("kept", self.digest, columns, content_digest(rows.values))
        if self.strata is not None:
            facts = facts._replace(settings=settings_digests({"strata": str(self.strata.columns)}))
        if facts.content == self.unlabelled:
            raise BatchRefusedError(
                "these are the unlabelled rows that the detector learnt from, and the guarantee is"
                " about rows that it has not seen: test other rows"
            )
        if ledger is None:
            findings = [self._thin(len(rows), alpha)]
        elif self.conditional is not None:
            raise InputError(
                "a ledger decides by plain BH ranks: leave the ledger out, or make a detector"
                " without confidence"
            )
        else:
            open_ledger(ledger, alpha).require(facts)
            findings = []
        tell("scoring")
        scores = self.fitted.score(rows.values)
        tell("deciding")
        result = self._decide(rows, names, scores, alpha)
        if self.strata is not None:
            strata = self.strata.in_batch(rows, alpha)
            result = decide_kept(strata, scores, alpha, result)
            findings += strata.findings()
        if ledger is not None:
            batch = result.ranks, self.n_calibration, facts, names, name
            update = take_batch(ledger, alpha, *batch, result.parts.get("decided"))
            result = with_update(result, update)
        if not check:
            return result
        features = rows.columns or tuple(map(str, range(rows.width)))
        sources = features if rows.encoder is None else rows.encoder.source
        clipped = clipped_findings(rows.chunks(), "test rows", sources)
        gone = batch_findings(rows.values, features, sources) if rows.encoder else []
        before = [one for one in (*findings, *clipped, *gone) if one is not None]
        return with_outcome_findings(result, *with_resolution(result, before))

    def _thin(self, n_tests: int, level: Fraction) -> Finding | None:
        """Warn if too few rows calibrate for a batch by itself; with strata that depends."""
        if self.conditional is not None:
            self.conditional.warn_resolution(n_tests, level)
        elif self.strata is None:
            warn_resolution([(n_tests, self.n_calibration)], level)
            return thin_finding(self.n_calibration, n_tests, level)
        return None

    def _decide(
        self, rows: Rows, names: NDArray[Any] | None, scores: Vector, level: Fraction
    ) -> Detection:
        """Compare rows with all calibration rows."""
        guarantee = kept_score(level, self.n_calibration, self.confidence)
        if self.strata is not None:
            guarantee = within_strata(level, self.strata.columns, is_kept=True)
        known_scores = self.calibration_scores
        return decide_alone(
            rows,
            names,
            Scored(known_scores, scores, conformal_ranks(known_scores, scores)),
            level,
            n_train=self.n_train,
            scorer=self.scorer,
            guarantee=guarantee,
            explainer=self.explainer,
            conditional=self.conditional,
        )

    def to_bytes(self) -> bytes:
        """Write the detector as bytes, see :mod:`conovel.runs.kept_file`."""
        values = {name: getattr(self, name) for name in FIRST_SETTINGS}
        values |= {
            "level": str(self.level),
            "schema": None if self.schema is None else self.schema.to_dict(),
        }
        if not self.n_known and self.confidence is None and self.strata is None:
            return pack(values, self.model, self.calibration_scores, self.normals)
        sure = None if self.confidence is None else str(self.confidence)
        kinds = None if self.novelties is None else self.novelties.kinds
        values |= {"n_known": self.n_known, "known_kinds": kinds, "confidence": sure}
        novelties = self.normals[:0] if self.novelties is None else self.novelties.values
        arrays: tuple[NDArray[Any], ...] = ()
        if self.strata is not None:
            own = self.strata
            values["strata"], arrays = own.columns, (own.keys, own.scores, own.codes)
        return pack(values, self.model, self.calibration_scores, self.normals, novelties, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> KeptDetector:
        """Read what :meth:`to_bytes` wrote; :class:`SavedFileError` for anything else."""
        detector = cls(**read_detector(data))
        try:
            scores = detector.fitted.score(np.zeros((1, detector.n_features)))
        except ConovelError as error:
            raise SavedFileError(f"its model is not one: {error}") from None
        if not np.isfinite(scores).all():
            raise SavedFileError("its model is not one: its scores are not finite")
        return detector

    def save(self, path: str | Path) -> None:
        """Write the detector to a file, whole or not at all."""
        write_durably(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> KeptDetector:
        """Read what :meth:`save` wrote, and check it."""
        try:
            return cls.from_bytes(read_bytes(Path(path), MAX_BYTES))
        except SavedFileError as error:
            raise SavedFileError(f"{path} is not a detector: {error}") from None
