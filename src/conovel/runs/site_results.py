"""What was decided about the rows of one site, in memory or in files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError
from conovel.rows.frames import give_back
from conovel.rows.tables import Rows, with_ids
from conovel.runs.explained_rows import ExplainedRows
from conovel.runs.ledger_records import LedgerUpdate
from conovel.runs.pages import Drawn
from conovel.scorers.selection import Selection
from conovel.site.explain.explainer import Explainer
from conovel.site.roaming import Roaming
from conovel.spec.consensus import Agreed
from conovel.spec.findings import Finding, headline
from conovel.spec.guarantee import Guarantee
from conovel.stats.cells import reaches
from conovel.stats.ranks import adjusted_pvalues
from conovel.stats.repeats import Repeated, repeated_resolution
from conovel.stats.resolution import Resolution, resolution
from conovel.stats.stepup import RankHistogram, StepUp, within_limit


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SiteResult(ExplainedRows):
    """The decisions on one test sample, one entry per row of ``X_test``.

    Rows that the regime does not test have `tested` False, rank 0, score and p-value NaN,
    and are never rejected.

    Attributes
    ----------
    name : str
        The agent; empty where one site decides by itself.
    rejected : bool array of shape (m,)
        True where the row is declared a novelty.
    ranks : int array of shape (m,)
        ``1 + #{calibration scores >= score}``.
    scores : float array of shape (m,)
        Higher is more novel.
    tested : bool array of shape (m,)
    n_calibration : int
        Size ℓ of the calibration sample.
    cells : int array of shape (m,) or None
        In the regimes `joint` and `consensus`, the cell of each row on the common scale of all
        agents. The cells decide there, not the ranks.
    floor : int
        In the regime `joint`, the lowest cell of this agent whose rows take part.
    roaming : Roaming or None
        In the regime `consensus`, the fold of each row, and to whose normals it conforms.
    choices : dict of Selection
        How the scorer and the composite were chosen, where there was a choice.
    repeated : Repeated or None
        With `repeats`, which runs rejected which rows, and their e-values. `rejected` then comes
        from e-BH on these. Ranks, scores, p-values, cells and choices are those of the first run
        alone: they do not decide, and :meth:`columns` leaves them out.
    ledger : LedgerUpdate or None
        With a ledger, what the batch changed. `rejected` then says which rows of the batch are on
        the list of all batches so far.
    explainer : Explainer or None
        The fitted score and null_train, for :meth:`explain`. It stays in memory at the site.
    warnings : tuple of Finding
        What speaks against the result: drift, an id or a label among the columns, few calibration
        rows. It changes no decision.

    See Also
    --------
    conovel.NetworkRun : The results of all agents.
    conovel.Detection : The same for one site alone.
    """

    name: str = ""
    rejected: NDArray[np.bool_]
    ranks: NDArray[np.int64]
    scores: NDArray[np.float64]
    tested: NDArray[np.bool_]
    n_calibration: int
    test_rows: Rows
    cells: NDArray[np.int64] | None = None
    floor: int = 0
    roaming: Roaming | None = None
    ids: NDArray[Any] | None = None
    choices: Mapping[str, Selection] = field(default_factory=dict)
    repeated: Repeated | None = None
    ledger: LedgerUpdate | None = None
    explainer: Explainer | None = field(default=None, repr=False)
    warnings: tuple[Finding, ...] = ()

    def _shown(self) -> dict[str, str]:
        told = {"agent": self.name} if self.name else {}
        return told | {
            "flagged": f"{self.n_rejected:,} of {int(self.tested.sum()):,} tested rows",
            "calibration rows": f"{self.n_calibration:,}",
        }

    @property
    def repeats(self) -> int:
        """The number of runs behind the decisions."""
        return 1 if self.repeated is None else self.repeated.repeats

    @property
    def times_flagged(self) -> NDArray[np.int64]:
        """In how many of the runs each row was rejected."""
        if self.repeated is None:
            return self.rejected.astype(np.int64)
        return self.repeated.times_flagged

    @property
    def p_values(self) -> NDArray[np.float64]:
        """Conformal p-values, ``ranks / (ℓ + 1)``; NaN where a row was not tested."""
        return np.where(self.tested, self.ranks / (self.n_calibration + 1), np.nan)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Per-row results by column name, ids first when there are any."""
        if self.repeated is not None:
            return with_ids(
                self.ids,
                times_flagged=self.repeated.times_flagged,
                flagged_in_runs=self.repeated.spelled_flags(),
                e_value=self.repeated.e_values,
                tested=self.tested,
                rejected=self.rejected,
            )
        told = {} if self.roaming is None else {"normal_at": self.roaming.spelled}
        return with_ids(
            self.ids,
            score=self.scores,
            rank=self.ranks,
            p_value=self.p_values,
            tested=self.tested,
            **told,
            rejected=self.rejected,
        )

    @property
    def normal_at(self) -> list[tuple[str, ...]]:
        """In the regime `consensus`, the agents to whose normals each row conforms."""
        if self.roaming is None:
            raise InputError("only the regime 'consensus' tells to whose normals a row conforms")
        return self.roaming.normal_at

    def cells_as_plain(self) -> dict[str, Any]:
        """Give the cells of `joint` and `consensus` as JSON types; nothing in other regimes."""
        if self.cells is None:
            return {}
        if self.roaming is None:
            return {"cells": self.cells.tolist(), "floor": self.floor}
        return {"cells": self.cells.tolist(), **self.roaming.to_plain()}

    def to_frame(self) -> Any:
        """Per-row results as the kind of frame ``X_test`` was, a pandas index kept."""
        return give_back(self.test_rows, self.columns())


class RankedSite(Protocol):
    """A site that has ranked its rows; see :class:`conovel.site.site.LocalSite`."""

    test: Rows
    tested: NDArray[np.bool_]
    scores: NDArray[np.float64]
    test_ranks: NDArray[np.int64]
    n_calibration: int
    cells: NDArray[np.int64] | None
    folds: NDArray[np.int64] | None
    cells_by_agent: Mapping[str, NDArray[np.uint8]]
    choices: dict[str, Selection]
    explainer: Explainer | None


def decide(
    site: RankedSite,
    limit: int,
    ids: NDArray[Any] | None,
    name: str = "",
    floor: int = 0,
    agreed: Agreed | None = None,
) -> SiteResult:
    """Decide about the rows of a site: those up to the largest rejected rank are rejected.

    In the regime `joint` `limit` is the lowest rejected cell. In the regime `consensus` `agreed`
    has that of each fold, and `limit` does not matter.
    """
    ranks, cells, roaming = site.test_ranks, site.cells, None
    rejected = within_limit(ranks, limit) if cells is None else reaches(cells, limit)
    if agreed is not None and cells is not None and site.folds is not None:
        rejected = reaches(cells, np.array(agreed.cells)[site.folds])
        roaming = Roaming.of(site.folds, site.cells_by_agent, agreed)
    return SiteResult(
        name=name,
        rejected=rejected,
        roaming=roaming,
        ranks=ranks,
        scores=site.scores,
        tested=site.tested,
        n_calibration=site.n_calibration,
        test_rows=site.test,
        cells=cells,
        floor=floor,
        ids=ids,
        choices=site.choices,
        explainer=site.explainer,
    )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OneSite(Drawn):
    """What is known of a detection at one site, wherever its rows are.

    Attributes
    ----------
    stepup : StepUp
        Level, rounds, threshold and, if asked for, the estimated proportion of nulls.
    n_train : int
        Known normals used for training; the rest calibrated.
    scorer : str
        Name of the scorer that ranked the rows.
    guarantee : Guarantee
        What holds, under which assumptions.
    choices : dict of Selection
        How the scorer was chosen, when there were several candidates.
    warnings : tuple of Finding
        What speaks against the result. It changes no decision.
    """

    stepup: StepUp
    n_train: int
    scorer: str
    guarantee: Guarantee
    choices: Mapping[str, Selection] = field(default_factory=dict)
    warnings: tuple[Finding, ...] = ()

    def _shown(self) -> dict[str, str]:
        return {
            "result": self.headline,
            "scorer": self.scorer,
            "known normals": f"{self.n_train:,} train, {self.histogram.n_calibration:,} calibrate",
        }

    @property
    @abstractmethod
    def histogram(self) -> RankHistogram:
        """How often each rank occurs."""

    @property
    def level(self) -> Fraction:
        """The level α, exact."""
        return self.stepup.level

    @property
    def n_rejected(self) -> int:
        """Number of rows declared novelties."""
        return self.stepup.n_rejected

    @property
    def selection(self) -> Selection | None:
        """How the scorer was chosen, when there were several candidates."""
        return self.choices.get("scorer")

    @property
    def resolution(self) -> Resolution:
        """How few rows could have been rejected together with this calibration size."""
        return resolution(self.histogram.n_calibration, self.histogram.size, self.level)

    @property
    def headline(self) -> str:
        """What came out, in one sentence; a finding that breaks the promise is named first."""
        return headline(self.n_rejected, self.histogram.size, self.level, self.warnings)

    def summary(self) -> dict[str, Any]:
        """Everything but the rows, ready for JSON."""
        histogram, outcome = self.histogram, self.stepup
        last = np.array([self.n_rejected] if self.n_rejected else [], dtype=np.int64)
        return {
            "level": str(outcome.level),
            "n_train": self.n_train,
            "n_calibration": histogram.n_calibration,
            "n_test": histogram.size,
            "n_rejected": self.n_rejected,
            "largest_rejected_rank": int(histogram.smallest(last).max(initial=0)),
            "fewest_rejections_possible": self.resolution.fewest,
            "pi0": None if outcome.pi0 is None else float(outcome.pi0),
            "scorer": self.scorer,
            "selection": self.selection and self.selection.to_dict(),
            "guarantee": {
                "statement": self.guarantee.statement,
                "assumptions": list(self.guarantee.assumptions),
            },
            "warnings": [finding.to_dict() for finding in self.warnings],
        }


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Detection(OneSite, SiteResult):
    """The decisions of one site alone, one entry per row of ``X_test``.

    It is a :class:`SiteResult` with a step-up, a guarantee and a summary of its own. With
    `repeats` the step-up is that of the first run, at its level. With a ledger it is that of the
    batch by itself, and does not decide.

    Attributes
    ----------
    calibration_scores : float array of shape (ℓ,)
        What the test scores were compared with.

    See Also
    --------
    conovel.AdaDetect : Makes it.
    conovel.NetworkRun : The decisions of several sites together.
    """

    calibration_scores: NDArray[np.float64]

    @cached_property
    def histogram(self) -> RankHistogram:
        """How often each rank occurs."""
        return RankHistogram(self.ranks, self.n_calibration)

    @property
    def level(self) -> Fraction:
        """The level α, exact."""
        return self.stepup.level if self.repeated is None else self.repeated.level

    @property
    def n_rejected(self) -> int:
        """Number of rows declared novelties."""
        return int(self.rejected.sum())

    @property
    def resolution(self) -> Resolution:
        """How few rows could have been rejected together with this calibration size."""
        if self.repeated is None:
            return super().resolution
        return repeated_resolution(self.n_calibration, self.ranks.size, self.level)

    def summary(self) -> dict[str, Any]:
        """Everything but the rows, ready for JSON."""
        summary = super().summary()
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
        if self.repeated is not None:
            return columns
        if self.ledger is not None:  # adjusted p-values are about the batch by itself
            return columns
        rejected = columns.pop("rejected")
        return columns | {"adjusted_p_value": self.adjusted, "rejected": rejected}
