"""AdaDetect at one site: from known normals and unlabelled rows to decisions.

Marandon, Lei, Mary and Roquain (2024), "Adaptive novelty detection with false discovery
rate guarantee". :class:`AdaDetect` has the interface of a scikit-learn outlier detector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.exceptions import NotFittedError

from conovel.errors import ColumnError, InputError
from conovel.rows.asked import SchemaLike, as_schema
from conovel.rows.pairs import read_pair
from conovel.rows.samples import Table, read_sample
from conovel.rows.tables import Rows, as_ids
from conovel.runs.ledger import Ledger
from conovel.runs.ledger_file import open_ledger, take_batch, with_update
from conovel.runs.ledger_records import refitted_facts
from conovel.runs.one_site import Detection
from conovel.runs.repeats import in_run, once_warned
from conovel.runs.row_scores import RowScores
from conovel.runs.site_results import decide, with_part
from conovel.scorers.automatic import as_candidates
from conovel.scorers.estimators import ScorerLike, reads_frames
from conovel.scorers.spelling import spell, spell_scorer, spell_seed
from conovel.site.blocks import require_two
from conovel.site.checks.rows import check_rows, with_findings
from conovel.site.checks.sample import Looked
from conovel.site.site import Site
from conovel.site.work import SiteWork
from conovel.spec.findings import Finding
from conovel.spec.guarantee import one_site
from conovel.spec.run_spec import RunSpec
from conovel.spec.schema import Schema
from conovel.spec.seeds import detector_seeds, repeat_seeds
from conovel.spec.thin_calibration import thin_finding
from conovel.spec.training import MAX_TRAIN_ROWS
from conovel.stats.levels import Level, RandomState, as_callback, as_repeats, as_seed, as_whole
from conovel.stats.null_proportion import NullProportion
from conovel.stats.repeats import combine, run_level
from conovel.stats.resolution import warn_resolution
from conovel.stats.stepup import step_up


class UnfittedError(InputError, NotFittedError):  # type: ignore[misc]
    """`predict` before `fit`; scikit-learn's error and ours."""


class AdaDetect(RowScores, OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """Novelty detection with a guaranteed false discovery rate, at one site.

    :meth:`detect` decides about a batch of rows and returns the decisions and their reasons.
    :meth:`fit` and :meth:`predict` do the same in the interface of scikit-learn's outlier
    detectors: `fit` keeps the known normals, and each `predict` is one test of the whole batch.
    Arguments are checked by `detect` and `predict`, not when the object is made.

    Parameters
    ----------
    scorer : classifier, OneClass, Refined, str, list of these, or None
        What tells known normals from the rest; see :mod:`conovel.scorers.base`. A list is
        chosen from, see :mod:`conovel.scorers.selection`; None is :class:`conovel.Automatic`.
    level : float, str or Fraction
        Target false discovery rate α.
    train_fraction : float, str, Fraction or None
        Share of the known normals used for training; the others calibrate. None chooses
        it from numbers of rows alone, see :func:`conovel.spec.training.train_share`.
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
        normals. With B runs, each with a seed of its own and at level 2α/5, evidence is averaged
        and e-BH at level α decides, so that the answer depends less on `random_state`. It takes
        B times as long, and flags nothing where the runs find little. See
        :class:`conovel.SiteResult` for what the result has.
    schema : Schema, path, dict or None
        What the columns are, where they are not all plain numbers: a :class:`conovel.Schema`, a
        file of one, or a dict of some columns to their kinds, such as
        ``{"id": "ignore", "when": "date", "zip": "category"}``. What is not said follows from the
        values of both samples. A schema that was made from one of them alone is refused.

    Attributes
    ----------
    null_ : Rows or Table
        The known normals given to `fit`.
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
    ) -> None:
        self.scorer = scorer
        self.level = level
        self.train_fraction = train_fraction
        self.pi0 = pi0
        self.random_state = random_state
        self.max_train_rows = max_train_rows
        self.repeats = repeats
        self.schema = schema

    def detect(
        self,
        X_null: Any,
        X_test: Any,
        *,
        ids: ArrayLike | None = None,
        on_stage: Callable[[str], None] | None = None,
        ledger: Ledger | str | Path | None = None,
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
            the narrower one in both, with a warning; see :mod:`conovel.rows.representation`.
        ids : array of shape (m,), optional
            Row names, given back in ``to_frame()``.
        on_stage : callable, optional
            Told the name of each stage as it begins, for a progress display. A text that begins
            with "note: " is a finding.
        ledger : Ledger or path, optional
            Decide together with all earlier batches; see :class:`conovel.Ledger`. The score
            learns from this batch alone, so evidence decides. One score that is kept finds more:
            :meth:`keep`.
        name : str, optional
            What the ledger calls the batch.
        check : bool
            Look for what speaks against the result, such as drift or an id among the columns, and
            give it as ``result.warnings``. It changes no decision.
        """
        tell = as_callback(on_stage, "on_stage")
        tell("checking rows")
        work = self.site_work()
        level, pi0 = work.spec.level, work.spec.pi0
        if ledger is not None and (work.spec.repeats > 1 or pi0 is not None):
            raise InputError("a ledger decides by plain BH ranks: leave repeats and pi0 out")
        if work.spec.repeats > 1:
            return self._detect_repeatedly(work.spec, X_null, X_test, ids, tell, check)
        if ledger is not None:  # before columns become features, which follow from the batch
            X_null, X_test = self._read_both(X_null, X_test)
            facts = refitted_facts(X_null, X_test, self._spelled(work))
            open_ledger(ledger, level).require(facts)
        whole = reads_frames(work.candidates)
        null, test = read_pair(X_null, X_test, self.schema, keep_frames=whole)
        names = as_ids(ids, len(test))
        require_two(len(null))
        site = Site(null, test, work)
        if pi0 is None:  # an estimate below m can make up for too few rows
            warn_resolution([(len(test), site.n_calibration_planned(1))], level)
        found: list[Finding] = []
        if check:
            thin = None
            if ledger is None:  # it decides together with earlier batches
                thin = thin_finding(site.n_calibration_planned(1), len(test), level, pi0)
            looked = Looked.of(null, test)
            found = check_rows(looked, looked.some(names), tell, thin)
        tell("fitting the score model")
        model = site.fitted
        tell("scoring")
        site.ranks({})
        tell("deciding")
        outcome = step_up([(site.test_ranks, site.n_calibration)], level, pi0)
        decided = decide(site, outcome.limits[0], names)
        result = Detection(
            **vars(decided),
            calibration_scores=site.calibration_scores,
            stepup=outcome,
            n_train=len(null) - site.n_calibration,
            scorer=model.name,
            guarantee=one_site(level, pi0),
        )
        if ledger is not None:
            ranks, size = site.test_ranks, site.n_calibration
            update = take_batch(ledger, level, ranks, size, facts, names, name)
            result = with_update(result, update)
        return with_findings(result, found, looked) if check else result

    def _spelled(self, work: SiteWork) -> dict[str, str]:
        """Spell what the score of a batch follows from, besides its rows."""
        schema = as_schema(self.schema)
        return {
            "scorer": spell_scorer(self.scorer),
            "seed": spell_seed(self.random_state),
            "train_fraction": spell(work.spec.train_fraction),
            "max_train_rows": spell(work.max_train_rows),
            "schema": spell(schema.digests if isinstance(schema, Schema) else schema),
        }

    def _read_both(self, X_null: Any, X_test: Any) -> tuple[Rows | Table, Rows | Table]:
        said = as_schema(self.schema)
        null = read_sample(X_null, "X_null", None, said)
        return null, read_sample(X_test, "X_test", null.columns, said)

    def _detect_repeatedly(
        self,
        spec: RunSpec,
        X_null: Any,
        X_test: Any,
        ids: ArrayLike | None,
        tell: Callable[[str], None],
        check: bool,
    ) -> Detection:
        """Make every run as a detector of its own, and decide on the averaged evidence."""
        seeds = repeat_seeds(spec.seed, spec.repeats)
        changed = {"level": run_level(spec.level), "repeats": 1}
        settings = self.get_params(deep=False) | changed
        found: list[Finding] = []
        if check:
            with once_warned(1):  # the first run warns
                null, test = read_pair(X_null, X_test, self.schema)
            looked = Looked.of(null, test)
            found = check_rows(looked, looked.some(as_ids(ids, len(test))), tell)
        runs = []
        for b, seed in enumerate(seeds):
            detector = type(self)(**settings | {"random_state": seed})
            with once_warned(b):
                tell_run = in_run(tell, b, spec.repeats)
                run = detector.detect(X_null, X_test, ids=ids, on_stage=tell_run, check=False)
                runs.append(run)
        first = runs[0]
        flags = {first.name: np.array([run.rejected for run in runs])}
        averaged = combine(flags, {first.name: first.rejected.size}, spec.level, seeds)
        result = with_part(
            first,
            "repeats",
            averaged.parts[first.name],
            rejected=averaged.rejected[first.name],
            scorer=", ".join(dict.fromkeys(run.scorer for run in runs)),
            guarantee=one_site(spec.level, spec.pi0, spec.repeats),
        )
        return with_findings(result, found, looked) if check else result

    def site_work(self) -> SiteWork:
        """Say how the site works: as the only agent of a network, without messages."""
        repeats, seed = as_repeats(self.repeats), as_seed(self.random_state)
        split_seed, scorer_seed = detector_seeds(seed)
        spec = RunSpec.of(
            regime="isolated",
            level=self.level,
            pi0=self.pi0,
            seed=seed if repeats > 1 else split_seed,  # each run draws its own split
            train_fraction=self.train_fraction,
            repeats=repeats,
        )
        most = as_whole(self.max_train_rows, "max_train_rows", least=1)
        candidates = tuple(as_candidates(self.scorer, scorer_seed))
        return SiteWork(spec, candidates, max_train_rows=most)

    def fit(self, X: Any, y: None = None, *, X_unlabelled: Any | None = None) -> AdaDetect:
        """Keep the known normals; models are fitted when they are asked for.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            Known normals.
        y : ignored
        X_unlabelled : array or frame of shape (u, d), optional
            Rows that are never tested, from which `score_samples` learns; see :meth:`keep`.

        Returns
        -------
        AdaDetect
            Itself.
        """
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
        self._unlabelled = X_unlabelled
        return self

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
        return np.where(self.detect(self.null_, rows, check=False).rejected, -1, 1)

    def read_fitted(self, X: Any) -> Rows | Table:
        """Check rows against those that `fit` was given."""
        if not hasattr(self, "null_"):
            raise UnfittedError("this AdaDetect has no known normals yet: call fit(X_null) first")
        rows = read_sample(X, "X", self.null_.columns, as_schema(self.schema))
        if rows.width != self.n_features_in_:
            raise ColumnError(
                f"X has {rows.width} features, but {type(self).__name__} is expecting"
                f" {self.n_features_in_} features as input: give it the columns that fit had"
            )
        return rows

    def __sklearn_tags__(self) -> Any:
        """Say to scikit-learn what the rows may hold."""
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
            " fit(X_null).predict(X_test) or detect(X_null, X_test) with rows that are no known"
            " normals"
        )
