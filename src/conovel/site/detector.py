"""AdaDetect at one site: from known normals and unlabelled rows to decisions.

Marandon, Lei, Mary and Roquain (2024), "Adaptive novelty detection with false discovery
rate guarantee". :class:`AdaDetect` has the interface of a scikit-learn outlier detector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.exceptions import NotFittedError

from conovel.errors import ColumnError, InputError
from conovel.scorers.base import Mixture, TrainingSet
from conovel.scorers.classifier import ScorerLike
from conovel.scorers.registry import as_candidates
from conovel.scorers.selection import Selection, fit_best
from conovel.site.sampling import MAX_TRAIN_ROWS, training_sample
from conovel.site.splitting import as_share, split_null
from conovel.site.tables import Rows, as_ids, give_back, read_pair, read_rows, with_ids
from conovel.spec.guarantee import Guarantee, one_site
from conovel.spec.seeds import detector_seeds
from conovel.stats.arguments import RandomState, as_callback, as_whole
from conovel.stats.levels import Level, as_level
from conovel.stats.null_proportion import NullProportion, as_estimator
from conovel.stats.ranks import conformal_ranks
from conovel.stats.resolution import Resolution, resolution, warn_resolution
from conovel.stats.stepup import StepUp, adjusted_pvalues, step_up


class UnfittedError(InputError, NotFittedError):  # type: ignore[misc]
    """`predict` before `fit`; scikit-learn's error and ours."""


@dataclass(frozen=True, eq=False)
class Detection:
    """The decisions on one test sample, one entry per row of ``X_test``.

    Attributes
    ----------
    scores : float array of shape (m,)
        Higher is more novel.
    ranks : int array of shape (m,)
        ``1 + #{calibration scores >= score}``.
    rejected : bool array of shape (m,)
        True where the row is declared a novelty.
    calibration_scores : float array of shape (ℓ,)
        What the test scores were compared with.
    stepup : StepUp
        Level, rounds, threshold and, if asked for, the estimated proportion of nulls.
    n_train : int
        Known normals used for training; the rest calibrated.
    selection : Selection or None
        How the scorer was chosen, when there were several candidates.
    guarantee : Guarantee
        What holds, under which assumptions.

    See Also
    --------
    conovel.AdaDetect : Makes it.
    conovel.NetworkRun : The decisions of several sites together.
    """

    scores: NDArray[np.float64]
    ranks: NDArray[np.int64]
    rejected: NDArray[np.bool_]
    calibration_scores: NDArray[np.float64]
    stepup: StepUp
    n_train: int
    scorer: str
    selection: Selection | None
    guarantee: Guarantee
    test_rows: Rows
    ids: NDArray[Any] | None = None

    @property
    def n_rejected(self) -> int:
        """Number of rows declared novelties."""
        return self.stepup.n_rejected

    @property
    def level(self) -> Fraction:
        """The level α, exact."""
        return self.stepup.level

    @property
    def n_calibration(self) -> int:
        """Size ℓ of the calibration sample."""
        return int(self.calibration_scores.size)

    @property
    def p_values(self) -> NDArray[np.float64]:
        """Conformal p-values, ``ranks / (ℓ + 1)``."""
        return self.ranks / (self.n_calibration + 1)

    @cached_property
    def adjusted(self) -> NDArray[np.float64]:
        """BH-adjusted p-values (plain BH, whatever `pi0`)."""
        return adjusted_pvalues(self.ranks, self.n_calibration)

    @property
    def resolution(self) -> Resolution:
        """How few rows could have been rejected together with this calibration size."""
        return resolution(self.n_calibration, self.ranks.size, self.level)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Per-row results by column name, ids first when there are any."""
        return with_ids(
            self.ids,
            score=self.scores,
            rank=self.ranks,
            p_value=self.p_values,
            adjusted_p_value=self.adjusted,
            rejected=self.rejected,
        )

    def to_frame(self) -> Any:
        """Per-row results as the kind of frame ``X_test`` was, a pandas index kept."""
        return give_back(self.test_rows, self.columns())

    def summary(self) -> dict[str, Any]:
        """Everything but the rows, ready for JSON."""
        return outline(
            self.stepup,
            n_train=self.n_train,
            n_calibration=self.n_calibration,
            n_test=int(self.ranks.size),
            largest_rejected_rank=int(self.ranks[self.rejected].max(initial=0)),
            scorer=self.scorer,
            selection=self.selection,
            guarantee=self.guarantee,
        )


def outline(
    outcome: StepUp,
    *,
    n_train: int,
    n_calibration: int,
    n_test: int,
    largest_rejected_rank: int,
    scorer: str,
    selection: Selection | None,
    guarantee: Guarantee,
) -> dict[str, Any]:
    """Put the summary of a detection together, wherever its rows are."""
    return {
        "level": str(outcome.level),
        "n_train": n_train,
        "n_calibration": n_calibration,
        "n_test": n_test,
        "n_rejected": outcome.n_rejected,
        "largest_rejected_rank": largest_rejected_rank,
        "fewest_rejections_possible": resolution(n_calibration, n_test, outcome.level).fewest,
        "pi0": None if outcome.pi0 is None else float(outcome.pi0),
        "scorer": scorer,
        "selection": selection and selection.to_dict(),
        "guarantee": {
            "statement": guarantee.statement,
            "assumptions": list(guarantee.assumptions),
        },
    }


class AdaDetect(OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """Novelty detection with a guaranteed false discovery rate, at one site.

    :meth:`detect` decides about a batch of rows and returns all there is to know about it.
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
        Share of the known normals used for training; the others calibrate. None weighs
        the two by their numbers, see :func:`conovel.site.splitting.train_share`.
    pi0 : None, "storey", "quantile", Storey or Quantile
        Adapt to the proportion of nulls.
    random_state : int, RandomState, Generator, SeedSequence or None
        Seed of the split and of every scorer that leaves its own open. From a generator of numpy,
        each detection draws its own seed; None draws a fresh one.
    max_train_rows : int
        The scorer learns from no more known normals than this, the others calibrate, and
        from about as many rows of the mixture, a sample by content; see
        :mod:`conovel.site.sampling`.

    Attributes
    ----------
    null_ : Rows
        The known normals given to `fit`.
    n_features_in_ : int
        Number of features seen by `fit`.
    feature_names_in_ : array of str, of shape (n_features_in_,)
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
    ) -> None:
        self.scorer = scorer
        self.level = level
        self.train_fraction = train_fraction
        self.pi0 = pi0
        self.random_state = random_state
        self.max_train_rows = max_train_rows

    def detect(
        self,
        X_null: Any,
        X_test: Any,
        *,
        ids: ArrayLike | None = None,
        on_stage: Callable[[str], None] | None = None,
    ) -> Detection:
        """Decide which rows of `X_test` are novelties.

        Parameters
        ----------
        X_null : array or frame of shape (n, d)
            Known normals.
        X_test : array or frame of shape (m, d)
            Rows to test. A column that has another float type than in `X_null` is rounded to
            the narrower one in both, with a warning; see :mod:`conovel.representation`.
        ids : array of shape (m,), optional
            Row names, given back in ``to_frame()``.
        on_stage : callable, optional
            Told the name of each stage as it begins, for a progress display.
        """
        tell = as_callback(on_stage, "on_stage")
        tell("checking rows")
        alpha, estimator = as_level(self.level), as_estimator(self.pi0)
        null, test = read_pair(X_null, X_test)
        names = as_ids(ids, len(test))
        split_seed, scorer_seed = detector_seeds(self.random_state)
        share = as_share(self.train_fraction, len(null), len(test), alpha)
        most = as_whole(self.max_train_rows, "max_train_rows", least=1)
        train, calibration = split_null(len(null), share, split_seed, most)
        if estimator is None:  # an estimate below m can make up for too few rows
            warn_resolution([(len(test), calibration.size)], alpha)
        candidates = as_candidates(self.scorer, scorer_seed)

        null_train = null.values[train]
        mixture = Mixture.of(np.concatenate([null.values[calibration], test.values]))
        tell("fitting the score model")
        training = TrainingSet(null_train, training_sample(mixture, most))
        model = fit_best(candidates, training)
        tell("scoring")
        scores = mixture.score(model)
        calibration_scores, test_scores = np.split(scores, [calibration.size])
        tell("deciding")
        ranks = conformal_ranks(calibration_scores, test_scores)
        outcome = step_up([(ranks, calibration.size)], alpha, estimator)
        return Detection(
            scores=test_scores,
            ranks=ranks,
            rejected=outcome.rejected[0],
            calibration_scores=calibration_scores,
            stepup=outcome,
            n_train=train.size,
            scorer=model.name,
            selection=model.selection,
            guarantee=one_site(alpha, estimator),
            test_rows=test,
            ids=names,
        )

    def fit(self, X: Any, y: None = None) -> AdaDetect:
        """Keep the known normals; the model itself is fitted when test rows arrive.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            Known normals.
        y : ignored

        Returns
        -------
        AdaDetect
            Itself.
        """
        rows = read_rows(X, "X")
        names = [] if rows.frame is None else rows.frame.columns
        self.null_ = replace(rows, frame=None)
        self.n_features_in_ = rows.values.shape[1]
        if names and all(isinstance(name, str) for name in names):  # scikit-learn's rule
            self.feature_names_in_ = np.asarray(names, dtype=object)
        else:
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
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
        if not hasattr(self, "null_"):
            raise UnfittedError("this AdaDetect has no known normals yet: call fit(X_null) first")
        rows = read_rows(X, "X", self.null_.columns)
        if (n_features := rows.values.shape[1]) != self.n_features_in_:
            raise ColumnError(
                f"X has {n_features} features, but {type(self).__name__} is expecting"
                f" {self.n_features_in_} features as input: give it the columns that fit had"
            )
        return np.where(self.detect(self.null_, rows).rejected, -1, 1)

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
