"""AdaDetect at one site: from known normals and unlabelled rows to decisions.

Marandon, Lei, Mary and Roquain (2024), "Adaptive novelty detection with false discovery
rate guarantee". :class:`AdaDetect` has the interface of a scikit-learn outlier detector.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if

from conovel.errors import ColumnError, InputError
from conovel.rows.pairs import without_kinds
from conovel.rows.samples import Table, raw_numbers, read_sample
from conovel.rows.schemas import SchemaLike, as_schema
from conovel.rows.strata import StrataLike, as_strata
from conovel.rows.tables import Rows
from conovel.runs.certificates import as_certain
from conovel.runs.detection import Detection
from conovel.runs.judged import plan_judged
from conovel.runs.kept import KeptDetector
from conovel.runs.kept_fit import keep, learns_from_normals
from conovel.runs.ledger import Ledger
from conovel.runs.ledger_file import open_ledger, take_batch, with_update
from conovel.runs.ledger_records import BatchFacts, content_digest, refitted_facts
from conovel.runs.one_site import OneSiteSettings, detect_rows
from conovel.runs.strata import refuse_with_strata
from conovel.runs.verdicts import Verdicts
from conovel.runs.weighted import ESTIMATE, WeightsLike, require_plain, take_weights
from conovel.scorers.argument import as_candidates, reads_frames, spell, spell_scorer, spell_seed
from conovel.scorers.estimators import ScorerLike
from conovel.spec.findings import Finding
from conovel.spec.run_spec import detector_seeds
from conovel.spec.schema import Schema
from conovel.spec.training import ANY_SHARE, MAX_TRAIN_ROWS, as_train_fraction
from conovel.stats.levels import (
    Level,
    RandomState,
    as_callback,
    as_level,
    as_repeats,
    as_seed,
    as_ties,
    as_whole,
    chance_seed,
    ties_seed,
)
from conovel.stats.null_proportion import NullProportion, as_estimator
from conovel.stats.weighted import draw_chance

_log = logging.getLogger(__name__)


class UnfittedError(InputError, NotFittedError):  # type: ignore[misc]
    """`predict` before `fit`; scikit-learn's error and ours."""


class AdaDetect(OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """Novelty detection with a guaranteed false discovery rate, at one site.

    :meth:`detect` decides about a batch of rows and returns the decisions and their reasons.
    :meth:`fit` and :meth:`predict` do the same in the interface of scikit-learn's outlier
    detectors: each `predict` is one test of the whole batch. What the command ``conovel fit``
    writes is `kept_` after `fit`. Arguments are checked by `detect` and `predict`.

    Parameters
    ----------
    scorer : classifier, OneClass, Refined, str, list of these, or None
        What tells known normals from the rest; see :mod:`conovel.scorers.base`. A list is
        chosen from, see :mod:`conovel.scorers.selection`; None is :class:`conovel.Automatic`.
    level : float, str or Fraction
        Target false discovery rate α.
    train_fraction : float, str, Fraction or None
        Share of the known normals used for training; the others calibrate. None chooses
        it from numbers of rows alone, see :func:`conovel.spec.training.train_share`. With 0 all
        calibrate, and the score learns from all rows together (:mod:`conovel.scorers.all_rows`).
    pi0 : None, "storey", "quantile", Storey or Quantile
        Adapt to the proportion of nulls.
    random_state : int, RandomState, Generator, SeedSequence or None
        Seed of the split and of every scorer that leaves its own open. From a generator of numpy,
        each detection draws its own seed; None draws a fresh one.
    max_train_rows : int
        The scorer learns from no more known normals than this, the others calibrate, and
        from about as many rows of the mixture, a sample by content; see
        :mod:`conovel.site.blocks`.
    repeats : int
        The number B of runs, from 1 to 100. One run depends on its random split of the known
        normals. With B runs, each with a seed of its own and at level α/2 or 3α/5, evidence is
        averaged and closed e-BH at level α decides (with `pi0` 2α/5 and e-BH), so that the answer
        depends less on `random_state`. It takes B times as long, and flags less where the runs
        find little.
    schema : Schema, path, dict or None
        What the columns are, where they are not all plain numbers: a :class:`conovel.Schema`, a
        file of one, or a dict of some columns to their kinds, such as
        ``{"id": "ignore", "when": "date", "zip": "category"}``. What is not said follows from the
        values of both samples. A schema that was made from one of them alone is refused.
    confidence : float, str, Fraction or None
        Flag the longest list of which at most `level` is false with this probability.
    strata : str, int, list of these, or None
        A column, or several, within whose values rows are compared: a branch, a machine type, a
        month. Known normals and normal tests need be exchangeable within each stratum only, so
        that the shares of strata may have changed. Tests of a stratum without known normals are
        not tested.
    ties : {"against", "random"}
        Whether calibration rows with the score of a test row count against it, or equal scores are
        ordered at random, by a seed of its own. Random finds more where many scores are equal, and
        equal rows may get different answers.
    weights : function, str or None
        How much more often a normal row occurs among the tests than among the known normals, where
        these are distributed differently: a function that is given rows and returns a number above
        0 for each, or the name of a column that has it and that the score does not use. Weights
        that are known in advance are exact. "estimate" estimates them from the rows, and the
        guarantee is then approximate.

    Attributes
    ----------
    null_ : Rows or Table
        The known normals given to `fit`.
    kept_ : KeptDetector
        The detector that `fit` makes of its rows, for batches that come later. It is made when it
        is first used: `predict` learns from its batch and does not need it.
    n_features_in_ : int
        Number of columns seen by `fit`.
    feature_names_in_ : array of str, of shape (d,)
        Their names, if `fit` was given a frame whose column names are all strings.

    See Also
    --------
    conovel.Network : The same for several sites that do not pool their rows.

    Notes
    -----
    The answer for a row depends on the other rows of its batch: the level is shared among them,
    and the score learns from them. So rows given one by one get other answers than rows given
    together, and the guarantee is about each batch as a whole. The order of the rows does not
    matter. There is no `fit_predict`: the rows to test must be others than the known normals.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X_null = rng.normal(size=(1000, 3))
    >>> X_test = np.vstack([rng.normal(size=(90, 3)), rng.normal(4, 1, size=(10, 3))])
    >>> result = AdaDetect(level=0.1).detect(X_null, X_test)
    >>> int(result.rejected[90:].sum())
    10

    As an estimator, -1 for a novelty and +1 otherwise:

    >>> labels = AdaDetect(level=0.1).fit(X_null).predict(X_test)
    >>> bool(((labels == -1) == result.rejected).all())
    True
    """

    def __init__(
        self,
        scorer: ScorerLike | str | list[ScorerLike | str] | None = None,
        level: Level = 0.1,
        train_fraction: Level | None = None,
        pi0: str | NullProportion | None = None,
        random_state: RandomState = 0,
        max_train_rows: int = MAX_TRAIN_ROWS,
        repeats: int = 1,
        schema: SchemaLike = None,
        confidence: Level | None = None,
        ties: str = "against",
        strata: StrataLike = None,
        weights: WeightsLike = None,
    ) -> None:
        self.scorer = scorer
        self.level = level
        self.train_fraction = train_fraction
        self.pi0 = pi0
        self.random_state = random_state
        self.max_train_rows = max_train_rows
        self.repeats = repeats
        self.schema = schema
        self.confidence = confidence
        self.ties = ties
        self.strata = strata
        self.weights = weights

    def detect(
        self,
        X_null: Any,
        X_test: Any,
        X_known: Any = None,
        *,
        ids: ArrayLike | None = None,
        on_stage: Callable[[str], None] | None = None,
        on_finding: Callable[[Finding], None] | None = None,
        ledger: Ledger | str | Path | None = None,
        verdicts: Verdicts | str | Path | None = None,
        name: str | None = None,
        check: bool = True,
    ) -> Detection:
        """Decide which rows of `X_test` are novelties.

        Parameters
        ----------
        X_null : array or frame of shape (n, d)
            Known normals. Frames may have numbers, booleans, categories, texts of few values and
            missing values; dates only if `schema` asks for them.
        X_test : array or frame of shape (m, d)
            Rows to test. A column that has another float type than in `X_null` is rounded to
            the narrower one in both, with a warning; see :mod:`conovel.rows.tables`.
        X_known : array or frame of shape (k, d), optional
            Known novelties: confirmed cases of the same columns. The score learns from them, and
            the guarantee stays. They are neither tested nor calibration rows. A frame may have one
            column more, `kind`, which reasons then name.
        ids : array of shape (m,), optional
            Row names, given back in ``to_frame()``.
        on_stage : callable, optional
            Called with the name of each stage as it begins, for a progress display.
        on_finding : callable, optional
            Called with each :class:`conovel.Finding` about the rows before the score is learnt.
        ledger : Ledger or path, optional
            Decide together with all earlier batches; see :class:`conovel.Ledger`. The score
            learns from this batch alone, so evidence decides. One score that is kept finds more:
            :meth:`keep`.
        verdicts : Verdicts or path, optional
            Record the batch, and learn from verdicts on earlier ones: :class:`conovel.Verdicts`.
        name : str, optional
            What the ledger and the verdicts call the batch.
        check : bool
            Look for what speaks against the result, such as drift or an id among the columns, and
            give it as ``result.warnings``. It changes no decision.
        """
        tell = _log.info if on_stage is None else as_callback(on_stage, "on_stage")
        note = _log.warning if on_finding is None else as_callback(on_finding, "on_finding")
        settings = self.settings()
        if ledger is not None:  # many batches need finer ranks than one
            settings = replace(settings, least=ANY_SHARE)
        if settings.strata:
            refuse_with_strata(verdicts=verdicts is not None)
        judged = weighted = None
        if self.weights is not None:
            refused = {"a ledger": ledger is not None, "verdicts": verdicts is not None}
            require_plain(self.weights, refused)
            X_null, X_test, X_known, weighted = take_weights(self.weights, X_null, X_test, X_known)
        if verdicts is not None:
            judged = plan_judged(verdicts, X_null, X_test, self.schema, settings, name)
            X_null, X_test = judged.null, judged.test
        together: Callable[[Detection], Detection] | None = None
        if ledger is not None:  # before columns become features, which follow from the batch
            if settings.confidence is not None:
                as_certain(settings.confidence, 1, None, ledger)
            if settings.repeats > 1 or settings.pi0 is not None or settings.lots is not None:
                raise InputError(
                    "a ledger decides by plain BH ranks: leave repeats, pi0 and ties out"
                )
            X_null, X_test, facts = self._batch_facts(X_null, X_test, X_known, settings)
            if judged is not None:  # each epoch has known normals of its own
                facts = facts._replace(source=judged.source)
            open_ledger(ledger, settings.level).require(facts)

            def decide_together(result: Detection) -> Detection:
                batch = result.ranks, result.n_calibration, facts, result.ids, name
                evidence = result.parts.get("decided")
                return with_update(result, take_batch(ledger, settings.level, *batch, evidence))

            together = decide_together

        rows = X_null, X_test, ids, self.schema, settings, (tell, note)
        return detect_rows(*rows, check, together, X_known, judged, weighted)

    def _batch_facts(
        self, X_null: Any, X_test: Any, X_known: Any, settings: OneSiteSettings
    ) -> tuple[Rows | Table, Rows | Table, BatchFacts]:
        """Read both samples as they are, and say what the score follows from, for a ledger."""
        schema = as_schema(self.schema)
        null = read_sample(X_null, "X_null", None, schema)
        test = read_sample(X_test, "X_test", null.columns, schema)
        spelled = {
            "scorer": spell_scorer(self.scorer),
            "seed": spell_seed(self.random_state),
            "train_fraction": spell(settings.train_fraction),
            "max_train_rows": spell(settings.max_train_rows),
            "schema": spell(schema.digests if isinstance(schema, Schema) else schema),
        }
        if settings.strata:
            spelled["strata"] = spell(settings.strata)
        cases, _ = without_kinds(X_known, null)
        if cases is not None:  # rows judged after an earlier list would break the guarantee
            rows = read_sample(cases, "X_known", null.columns, schema)
            spelled["X_known"] = content_digest(raw_numbers(rows))
        return null, test, refitted_facts(null, test, spelled)

    def settings(self) -> OneSiteSettings:
        """Check the settings and give them in one form."""
        repeats, seed = as_repeats(self.repeats), as_seed(self.random_state)
        share, pi0, sure = self.train_fraction, self.pi0, self.confidence
        drawn = as_ties(self.ties) == "random"
        if drawn and sure is not None:
            raise InputError("with confidence ties count against a row: leave ties out")
        chance = None
        if self.weights is not None:
            of_estimate = share is not None and not share and self.weights == ESTIMATE
            others = {
                "pi0": pi0 is not None,
                "repeats": repeats > 1,
                "confidence": sure is not None,
                "strata": self.strata is not None,
            }
            others |= {"ties='random'": drawn, "train_fraction=0": of_estimate}
            require_plain(self.weights, others)
            chance = draw_chance(chance_seed(seed))
        level, most = as_level(self.level), as_whole(self.max_train_rows, "max_train_rows", 1)
        train_fraction = None if share is None else as_train_fraction(share)
        split_seed, scorer_seed = detector_seeds(seed)
        candidates = tuple(as_candidates(self.scorer, scorer_seed))
        strata = () if self.strata is None else as_strata(self.strata)
        if (strata or self.weights is not None) and not all(one.learns for one in candidates):
            raise InputError(
                "a score that was learnt elsewhere goes with neither strata nor weights: leave"
                " these out, or let conovel learn the score"
            )
        if strata:
            refuse_with_strata(pi0=pi0 is not None, ties=drawn, train_fraction=train_fraction == 0)
        return OneSiteSettings(
            scorer=self.scorer,
            candidates=candidates,
            keep_frames=reads_frames(candidates),
            level=level,
            seed=seed if repeats > 1 else split_seed,  # each run draws its own split
            train_fraction=train_fraction,
            pi0=None if pi0 is None else as_estimator(pi0),
            max_train_rows=most,
            repeats=repeats,
            confidence=sure if sure is None else as_certain(sure, repeats, pi0),
            lots=ties_seed(seed) if drawn else None,
            chance=chance,
            strata=strata,
        )

    def keep(
        self,
        X_null: Any,
        X_unlabelled: Any | None = None,
        X_known: Any | None = None,
        *,
        explain: bool = False,
        confidence: Level | None = None,
        on_stage: Callable[[str], None] | None = None,
    ) -> KeptDetector:
        """Fit a detector once, to be saved and used on batches that come later.

        Parameters
        ----------
        X_null : array or frame of shape (n, d)
            Known normals. Some train, the others calibrate.
        X_unlabelled : array or frame of shape (u, d), optional
            Rows like those that will be tested, novelties among them, but never tested
            themselves: those of last week, say. The score learns to tell them from known
            normals. Without them it learns from known normals alone, and usually finds less.
        X_known : array or frame of shape (k, d), optional
            Known novelties, as in :meth:`detect`; none of them may be tested. Without unlabelled
            rows the score tells them from known normals; where it is one that learns from known
            normals alone, likeness with them is added to it.
        explain : bool
            Whether up to 2,000 of the known normals that trained, and the known novelties, are
            kept, too, by which ``result.explain()`` explains flagged rows. The file then
            holds rows.
        confidence : float, str or Fraction, optional
            With at least this probability, 0.95 say, the long-run share of false alarms of this
            very detector is at most the level. Without it the guarantee is an average over
            calibration samples, of which the detector has one. It finds less, and needs more
            known normals.
        on_stage : callable, optional
            Called with the name of each stage as it begins.
        """
        tell = _log.info if on_stage is None else as_callback(on_stage, "on_stage")
        samples, settings = (X_null, X_unlabelled, X_known), self.settings()
        if settings.strata:
            refuse_with_strata(confidence=confidence is not None)
        about = settings, *samples, self.schema, tell
        return keep(*about, explain=explain, confidence=confidence)

    def fit(
        self, X: Any, y: None = None, *, X_unlabelled: Any = None, X_known: Any = None
    ) -> AdaDetect:
        """Take the known normals; `kept_` is then the detector that :meth:`keep` makes of them.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            Known normals.
        y : ignored
        X_unlabelled : array or frame of shape (u, d), optional
            Rows that are never tested, from which `kept_` learns; see :meth:`keep`.
        X_known : array or frame of shape (k, d), optional
            Known novelties, from which `kept_` and :meth:`predict` learn.

        Returns
        -------
        AdaDetect
            Itself.
        """
        if self.weights is not None:
            raise InputError(
                "weights are about the rows of one detection: call detect(X_null, X_test)"
            )
        rows = read_sample(X, "X", None, as_schema(self.schema))
        names = [] if rows.frame is None else rows.frame.columns
        is_plain = isinstance(rows, Rows) and not reads_frames(self.scorer)
        self.null_ = replace(rows, frame=None) if is_plain else rows
        self.n_features_in_ = rows.width
        if names and all(isinstance(name, str) for name in names):  # scikit-learn's rule
            self.feature_names_in_ = np.asarray(names, dtype=object)
        else:
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        self.__dict__.pop("kept_", None)
        self._unlabelled, self._known = X_unlabelled, X_known
        return self

    @cached_property
    def kept_(self) -> KeptDetector:
        """The detector that `fit` makes of its rows; see :meth:`keep`."""
        self._require_fitted()
        return self.keep(self.null_, self._unlabelled, self._known)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Test a batch of rows: -1 for a novelty, +1 otherwise.

        The batch is one test sample: the guarantee holds for it as a whole, and the answer
        for a row depends on the others. Give all rows of a batch in one call.

        Parameters
        ----------
        X : array or frame of shape (m, d)
            Rows to test, others than the known normals. The columns of a frame are taken by name.

        Returns
        -------
        int array of shape (m,)
        """
        rows = self.read_fitted(X)
        result = self.detect(self.null_, rows, self._known, check=False)
        return np.where(result.rejected, -1, 1)

    def read_fitted(self, X: Any) -> Rows | Table:
        """Check rows against those that `fit` was given."""
        self._require_fitted()
        rows = read_sample(X, "X", self.null_.columns, as_schema(self.schema))
        if rows.width != self.n_features_in_:
            raise ColumnError(
                f"X has {rows.width} features, but {type(self).__name__} is expecting"
                f" {self.n_features_in_} features as input: give it the columns that fit had"
            )
        return rows

    def _require_fitted(self) -> None:
        if not hasattr(self, "null_"):
            raise UnfittedError("this AdaDetect has no known normals yet: call fit(X_null) first")

    def _can_score(self) -> bool:
        """Tell whether there is a score of a row apart from its batch."""
        has_rows = any(self.__dict__.get(name) is not None for name in ("_unlabelled", "_known"))
        return has_rows or learns_from_normals(as_candidates(self.scorer, 0))

    @available_if(_can_score)  # type: ignore[untyped-decorator]
    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Score rows by `kept_`; lower is more novel, as in scikit-learn.

        The score of a row does not depend on the other rows, and decides nothing.

        Parameters
        ----------
        X : array or frame of shape (m, d)

        Returns
        -------
        float array of shape (m,)
        """
        return np.asarray(-self.kept_.score(self.read_fitted(X)))

    @available_if(_can_score)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score rows by `kept_`, below zero for rows with a p-value of at most `level`.

        One row in 1/`level` known normals is below zero. :meth:`predict` decides about a batch as
        a whole, so its answers differ.

        Parameters
        ----------
        X : array or frame of shape (m, d)

        Returns
        -------
        float array of shape (m,)
        """
        return self.kept_.margins(self.read_fitted(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def fit_predict(self) -> NoReturn:
        """Not available: the rows to test must be others than the known normals.

        scikit-learn's `LocalOutlierFactor` with `novelty=True` has none either.
        """
        raise AttributeError(
            "fit_predict would test the known normals themselves, and find nothing: use"
            " fit(X_null).predict(X_test) or detect(X_null, X_test) with other rows"
        )
