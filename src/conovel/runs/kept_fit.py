"""Fitting a detector that is kept.

The rows that train are known normals and, where there are any, known novelties, and unlabelled
rows that are never tested. The calibration rows are known normals that do not train. So the score
is fixed before any calibration row or test row is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ColumnError, InputError, SampleError, ScorerError
from conovel.rows.encoding import Encoder
from conovel.rows.pairs import KnownRows, encode_samples, infer_from, known_features, without_kinds
from conovel.rows.samples import Table, part_of, read_sample
from conovel.rows.schemas import SchemaLike, as_schema
from conovel.rows.strata import NO_STRATUM, find_strata
from conovel.rows.tables import Rows, unify, warn_constant, warn_shared_rows
from conovel.runs.kept import KeptDetector
from conovel.runs.ledger_records import content_digest
from conovel.runs.one_site import OneSiteSettings
from conovel.scorers.argument import reads_frames
from conovel.scorers.automatic import Automatic
from conovel.scorers.base import FittedScorer, Matrix, Mixture, Scorer, TrainingSet, fit_best
from conovel.scorers.estimators import OneClass
from conovel.scorers.kept import Part, as_kept, flat_part, from_part, to_part
from conovel.scorers.known import add_likeness
from conovel.site.blocks import require_two, split_by_number, training_sample
from conovel.site.kept_strata import KeptStrata
from conovel.site.sent.compact import imitate
from conovel.spec.made_from import require_made_for_later
from conovel.spec.schema import Schema
from conovel.spec.strata import balanced
from conovel.spec.training import ANY_SHARE
from conovel.spec.version import __version__
from conovel.stats.conditional import price
from conovel.stats.levels import Level, as_level

MOST_NORMALS = 2000  # that are kept to explain flagged rows


class _Samples(NamedTuple):
    """Rows of features: normals that train, normals that calibrate, and others that train."""

    train: Rows
    calibration: Rows
    unlabelled: Rows | None
    novelties: KnownRows | None


def keep(
    settings: OneSiteSettings,
    X_null: Any,
    X_unlabelled: Any | None,
    X_known: Any | None,
    schema: SchemaLike,
    tell: Callable[[str], None],
    *,
    explain: bool = False,
    confidence: Level | None = None,
) -> KeptDetector:
    """Fit a score, calibrate it, and take it apart; see :meth:`conovel.AdaDetect.keep`."""
    tell("checking rows")
    _require_keepable(settings)
    sure = None if confidence is None else as_level(confidence, "confidence")
    # More rows calibrate where a rank counts for more; it follows from numbers of rows alone.
    level = settings.level if sure is None else settings.level / price(sure)
    planned = replace(settings, level=level, least=ANY_SHARE)
    samples = _read(planned, X_null, X_unlabelled, X_known, schema)
    if settings.strata:
        samples, keys, codes = _within_strata(samples, settings)
    null_train, unlabelled, novelties = samples.train.values, samples.unlabelled, samples.novelties
    tell("fitting the score model")
    fitted, training = _fit(settings, samples)
    part, imitated = _as_part(fitted, training, settings.seed)
    tell("scoring")
    calibration, encoder = samples.calibration, samples.calibration.encoder
    score, strata = from_part(part, calibration.width, fitted.name).score, None
    scores = score(calibration.values)
    if settings.strata:
        both = np.concatenate([score(null_train), scores])
        strata = KeptStrata(settings.strata, len(null_train), keys, both, codes)
    return KeptDetector(
        level=settings.level,
        scorer=fitted.name,
        imitated=imitated,
        schema=encoder.schema if isinstance(encoder, Encoder) else None,
        columns=calibration.columns,
        kinds=calibration.kinds,
        n_features=calibration.width,
        n_train=len(null_train),
        n_unlabelled=0 if unlabelled is None else len(unlabelled),
        unlabelled="" if unlabelled is None else content_digest(unlabelled.values),
        calibration_scores=np.sort(scores),
        model=part,
        normals=null_train[:: -(-len(null_train) // MOST_NORMALS)] if explain else null_train[:0],
        software=__version__,
        n_known=0 if novelties is None else len(novelties),
        novelties=novelties if explain else None,
        confidence=sure,
        strata=strata,
    )


def _require_keepable(settings: OneSiteSettings) -> None:
    """Refuse what a kept detector does not have."""
    if settings.repeats > 1 or settings.pi0 is not None or settings.lots is not None:
        raise InputError(
            "a kept detector has one score and plain BH: leave repeats, pi0 and ties out"
        )
    if settings.chance is not None:
        raise InputError(
            "a kept detector does not know the rows of its batches, whose weights would decide:"
            " leave weights out, or call detect(X_null, X_test)"
        )
    if settings.confidence is not None:
        raise InputError("confidence is about one list: leave it out for a kept detector")
    if settings.train_fraction == 0:
        raise InputError(
            "a kept detector learns before its batches come, and some known normals must train:"
            " give a train_fraction above 0, or leave it out"
        )
    if not all(one.learns for one in settings.candidates):
        raise ScorerError(
            "a model that was trained elsewhere is kept in its own file, and nothing that could be"
            " kept is fitted here: call detect with each batch"
        )
    if reads_frames(settings.candidates):
        raise ScorerError(
            "a pipeline that chooses columns by name has no form that can be kept: leave that part"
            " out, categories become numbers by the schema of the detector"
        )


def _within_strata(
    samples: _Samples, settings: OneSiteSettings
) -> tuple[_Samples, Matrix, NDArray[np.int32]]:
    """Keep the known normals of strata, and say which one each is in.

    Calibration rows are put into a random order, of which a batch uses the first ones. Of a
    stratum with few unlabelled rows not all known normals train.

    Proof: Theorem 22 (docs/theory.md#thm-strata).
    """
    train, calibration = samples.train, samples.calibration
    both = replace(train, values=np.concatenate([train.values, calibration.values]))
    strata = find_strata(both, samples.unlabelled or calibration, settings.strata)
    rng, labels = np.random.default_rng(settings.seed), range(len(strata.labels))
    order = rng.permutation(len(both))
    order = order[strata.null[order] != NO_STRATUM]
    of_train = [order[(order < len(train)) & (strata.null[order] == s)] for s in labels]
    if samples.unlabelled is not None:
        mixture = {s: n for s, (_, n) in enumerate(strata.sizes()) if n and of_train[s].size}
        if mixture:
            n_train = balanced([one.size for one in of_train], mixture)
            of_train = [one[:n] for one, n in zip(of_train, n_train, strict=True)]
    parts = np.sort(np.concatenate([order[:0], *of_train])), order[order >= len(train)]
    if not all(part.size for part in parts):
        raise SampleError(
            f"the strata of {', '.join(settings.strata)} have too few known normals to train and"
            " to calibrate: put strata together in a new column, or add known normals"
        )
    own_train, own = (replace(train, values=both.values[part]) for part in parts)
    kept = {key: s for key, s in strata.codes.items() if s != NO_STRATUM}
    keys = np.array(sorted(kept, key=kept.__getitem__))
    codes = strata.null[np.concatenate(parts)].astype(np.int32)
    return samples._replace(train=own_train, calibration=own), keys, codes


def _fit(settings: OneSiteSettings, samples: _Samples) -> tuple[FittedScorer, TrainingSet | None]:
    """Learn a score from the rows that train; and say from which, where there were others."""
    null_train, novelties = samples.train.values, samples.novelties
    values = None if novelties is None else novelties.values
    candidates = settings.candidates
    if samples.unlabelled is not None:
        unlabelled = Mixture.of(samples.unlabelled.values)
        mixture = training_sample(unlabelled, settings.max_train_rows)
        training = TrainingSet(null_train, mixture, values)
        return fit_best(candidates, training), training
    if values is not None and not learns_from_normals(candidates):
        training = TrainingSet(null_train, Mixture.of(values))  # what is told from known normals
        return fit_best(candidates, training), training
    fitted = _one_class(candidates, null_train).fit_nulls(null_train)
    if values is None:
        return fitted, None
    kept = as_kept(fitted, null_train.shape[1])
    if kept is None:
        raise _no_form(fitted)
    return add_likeness(kept, null_train, values), None


def _read(
    settings: OneSiteSettings,
    X_null: Any,
    X_unlabelled: Any | None,
    X_known: Any | None,
    schema: SchemaLike,
) -> _Samples:
    """Check the samples and divide the known normals.

    A schema that was not given follows from the rows that train, known novelties among them,
    never from calibration rows: their features must be made as those of rows that come later.
    """
    kinds = as_schema(schema)
    X_known, kinds_of_known = without_kinds(X_known, X_null)
    null = read_sample(X_null, "X_null", None, kinds)
    n, others = len(null), None
    require_two(n)
    if X_unlabelled is not None:
        others = read_sample(X_unlabelled, "X_unlabelled", null.columns, kinds)
    if isinstance(kinds, Schema):  # rows that come later are not among those it was made from
        require_made_for_later(
            kinds.made_from, null.contents, None if others is None else others.contents
        )
    # How many rows a batch will have is not known: as many as there are unlabelled rows, or as
    # known normals. A poor guess costs resolution, never validity.
    n_train = settings.n_train(n, n if others is None else len(others))
    parts = [part_of(null, rows) for rows in split_by_number(n, n_train, settings.seed)]
    samples = parts if others is None else [*parts, others]
    if not all(isinstance(sample, Rows) for sample in samples) or kinds is not None:
        learnt_from = [parts[0], parts[0] if others is None else others]
        fixed = infer_from(learnt_from if X_known is None else [*learnt_from, X_known], kinds)
        names = ["X_null", "X_null", "X_unlabelled"][: len(samples)]
        samples = list(encode_samples(samples, fixed, names))
    elif others is not None:
        _require_width(parts[0], others)
    train, calibration, *last = unify(*(s for s in samples if isinstance(s, Rows)))
    if last:
        warn_constant(train, last[0])
        warn_shared_rows(calibration, last[0])
    novelties = None
    if X_known is not None:
        novelties = KnownRows(known_features(X_known, train, kinds), kinds_of_known)
    return _Samples(train, calibration, last[0] if last else None, novelties)


def _require_width(normals: Rows | Table, others: Rows | Table) -> None:
    if normals.width != others.width:
        raise ColumnError(
            f"X_null has {normals.width} columns and X_unlabelled {others.width}: both must hold"
            " the same features in the same order"
        )


def learns_from_normals(candidates: Sequence[Scorer]) -> bool:
    """Tell whether a score can be learnt without unlabelled rows."""
    return len(candidates) == 1 and isinstance(candidates[0], OneClass | Automatic)


def _one_class(candidates: Sequence[Scorer], null_train: Matrix) -> OneClass:
    """Return the scorer that learns from known normals alone."""
    only = candidates[0]
    if not learns_from_normals(candidates) or not isinstance(only, OneClass | Automatic):
        names = ", ".join(candidate.label for candidate in candidates)
        raise ScorerError(
            f"{names} learns from unlabelled rows: give X_unlabelled (--unlabelled), rows that are"
            " never tested, or X_known (--known), known novelties, or a single one-class scorer"
            " such as 'isolation-forest'"
        )
    return only if isinstance(only, OneClass) else only.one_class(null_train)


def _as_part(fitted: FittedScorer, training: TrainingSet | None, seed: int) -> tuple[Part, bool]:
    """Take a score apart, or let a forest imitate it; tell which."""
    part = to_part(fitted)
    if part is not None:
        return part, False
    if training is None:
        raise _no_form(fitted)
    return flat_part(imitate(fitted, training, seed), "probability"), True


def _no_form(fitted: FittedScorer) -> ScorerError:
    return ScorerError(
        f"{fitted.name} has no form that can be kept: use 'isolation-forest', or give"
        " X_unlabelled, on which a forest learns to imitate it"
    )
