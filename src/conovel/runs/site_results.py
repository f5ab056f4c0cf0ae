"""What was decided about the rows of one site, in memory or in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError
from conovel.rows.frames import frame_like, give_back
from conovel.rows.tables import Rows, with_ids
from conovel.runs.certificates import certificate_of_site
from conovel.runs.ledger_records import LedgerUpdate
from conovel.runs.pages import plot_scores, write_report
from conovel.scorers.base import Selection
from conovel.site.explain.explainer import Explainer
from conovel.site.explain.reasons import TOP, Reasons, most_novel, n_explained
from conovel.site.roaming import Roaming
from conovel.site.site import Site
from conovel.site.strata import StrataResult
from conovel.spec.findings import Finding
from conovel.spec.shown import Shown
from conovel.stats.cells import reaches
from conovel.stats.repeats import Repeated
from conovel.stats.stepup import within_limit

Result = TypeVar("Result", bound="SiteResult")


class Cells(NamedTuple):
    """The part of a result in which cells of a common scale decide."""

    cells: NDArray[np.int64]  # the cell of each row
    floor: int  # the lowest cell of this agent whose rows take part


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SiteResult(Shown):
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
    choices : dict of Selection
        How the scorer and the composite were chosen, where there was a choice.
    explainer : Explainer or None
        The fitted score and null_train, for :meth:`explain`. It stays in memory at the site.
    warnings : tuple of Finding
        What speaks against the result: drift, an id or a label among the columns, few calibration
        rows. It changes no decision.
    parts : dict
        What a mode adds: "cells" in the regimes `joint` and `consensus`, "consensus", "repeats",
        "ledger", "verdicts", "strata". The properties of these names read it.

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
    ids: NDArray[Any] | None = None
    choices: Mapping[str, Selection] = field(default_factory=dict)
    explainer: Explainer | None = field(default=None, repr=False)
    warnings: tuple[Finding, ...] = ()
    parts: Mapping[str, Any] = field(default_factory=dict)

    report = write_report
    certificate = certificate_of_site

    def _shown(self) -> dict[str, str]:
        agent = {"agent": self.name} if self.name else {}
        return agent | {
            "flagged": f"{self.n_rejected:,} of {int(self.tested.sum()):,} tested rows",
            "calibration rows": f"{self.n_calibration:,}",
        }

    @property
    def n_rejected(self) -> int:
        """Number of rows declared novelties."""
        return int(self.rejected.sum())

    @property
    def cells(self) -> NDArray[np.int64] | None:
        """In the regimes `joint` and `consensus`, the cell of each row; cells decide there."""
        return self.parts["cells"].cells if "cells" in self.parts else None

    @property
    def floor(self) -> int:
        """In the regime `joint`, the lowest cell of this agent whose rows take part."""
        return self.parts["cells"].floor if "cells" in self.parts else 0

    @property
    def roaming(self) -> Roaming | None:
        """In the regime `consensus`, to whose normals each row conforms."""
        return self.parts.get("consensus")

    @property
    def normal_at(self) -> list[tuple[str, ...]]:
        """In the regime `consensus`, the agents to whose normals each row conforms."""
        if self.roaming is None:
            raise InputError("only the regime 'consensus' tells to whose normals a row conforms")
        return self.roaming.normal_at

    @property
    def strata(self) -> StrataResult | None:
        """With strata, what became of each of them."""
        return self.parts.get("strata")

    def by_stratum(self) -> Any:
        """Give one line for each stratum, as a frame of the kind that ``X_test`` was.

        Returns
        -------
        frame
            `stratum`; `n_train` and `n_calibration`, its known normals; `n_test`; `tested`;
            `n_rejected`.
        """
        if self.strata is None:
            raise InputError("there are no strata: give strata=, a column or several")
        n_rejected = self.strata.n_rejected(self.rejected)
        return frame_like(self.test_rows, self.strata.table(n_rejected))

    @property
    def ledger(self) -> LedgerUpdate | None:
        """With a ledger, what the batch changed; `rejected` says which rows are on the list."""
        return self.parts.get("ledger")

    @property
    def repeated(self) -> Repeated | None:
        """With `repeats`, which runs rejected which rows, and their e-values.

        `rejected` then comes from e-BH on these. Ranks, scores, p-values, cells and choices are
        those of the first run alone: they do not decide, and :meth:`columns` leaves them out.
        """
        return self.parts.get("repeats")

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
        """Conformal p-values, ``ranks / (ℓ + 1)``; NaN where a row was not tested.

        With strata ℓ is the number of calibration rows of the row's own stratum.
        """
        strata = self.strata
        size = self.n_calibration if strata is None else strata.n_calibration_of_rows
        return np.where(self.tested, self.ranks / (size + 1), np.nan)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Per-row results by column name, ids first when there are any."""
        strata = {} if self.strata is None else {"stratum": self.strata.label_of_rows}
        if self.repeated is not None:
            return with_ids(
                self.ids,
                **strata,
                times_flagged=self.repeated.times_flagged,
                flagged_in_runs=self.repeated.spelled_flags(),
                e_value=self.repeated.e_values,
                tested=self.tested,
                rejected=self.rejected,
            )
        elsewhere = {} if self.roaming is None else {"normal_at": self.roaming.spelled}
        return with_ids(
            self.ids,
            **strata,
            score=self.scores,
            rank=self.ranks,
            p_value=self.p_values,
            tested=self.tested,
            **elsewhere,
            rejected=self.rejected,
        )

    def cells_as_plain(self) -> dict[str, Any]:
        """Give the cells of `joint` and `consensus` as JSON types; nothing in other regimes."""
        if self.cells is None:
            return {}
        if self.roaming is None:
            return {"cells": self.cells.tolist(), "floor": self.floor}
        return {"cells": self.cells.tolist(), **self.roaming.to_plain()}

    def strata_as_plain(self) -> dict[str, Any]:
        """Give the strata as JSON types; nothing where there are none."""
        if self.strata is None:
            return {}
        return {"strata": self.strata.to_dict(self.strata.n_rejected(self.rejected))}

    def to_frame(self) -> Any:
        """Per-row results as the kind of frame ``X_test`` was, a pandas index kept."""
        return give_back(self.test_rows, self.columns())

    def plot(self, ax: Any = None) -> Any:
        """Draw how the scores are distributed, those of rejected rows apart; needs matplotlib.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; new axes if not given.

        Returns
        -------
        matplotlib axes
        """
        tested = np.isfinite(self.scores)
        calibration = getattr(self, "calibration_scores", None)
        return plot_scores(ax, self.scores[tested], self.rejected[tested], calibration)

    @property
    def columns_used(self) -> tuple[str, ...]:
        """The columns that the score used; empty where there is no score."""
        return () if self.explainer is None else self.explainer.names

    @cached_property
    def reasons(self) -> Reasons:
        """Why the rejected rows were rejected; see :meth:`explain`."""
        return self.most_novel_reasons(self.n_rejected)

    def most_novel_reasons(self, most: int | None = None) -> Reasons:
        """Explain at most so many of the rejected rows, those of the smallest ranks.

        Without a number these are up to 10,000 rows, or 1,000 where reasons say little: more than
        half of the rows are flagged, or drift was found.
        """
        if self.explainer is None:
            raise InputError(
                "this result has no score to explain it by: its agent dropped out before it scored"
                " its rows, or its detector was kept without explain=True"
            )
        rows = np.flatnonzero(self.rejected)
        if most is None:
            drift = any(finding.kind == "drift" for finding in self.warnings)
            most = n_explained(rows.size, self.rejected.size, drift)
        chosen, novelty = most_novel(rows, self.ranks[rows], self.scores[rows], most)
        reasons = Reasons.of(self.explainer, self.test_rows, chosen, self.ids)
        return replace(reasons, novelty=novelty)

    def explain(self, top: int = TOP) -> Any:
        """Say why the rejected rows were rejected: a frame of the kind that ``X_test`` was.

        The frame has one line for each rejected row and reason, the largest share first. A reason
        is a column; or two columns whose values are usual by themselves but seldom together, with
        a line for each. An explanation is made after the decision and does not change it.

        Parameters
        ----------
        top : int
            How many reasons of each row, 1 to 10.

        Returns
        -------
        frame
            `id` if there are ids; `row`, the position in ``X_test``; `reason`, from 1; `column`;
            `how`, such as "high" or "combination"; `with`, the other column of a combination;
            `value`; `normal_low` and `normal_high`, between which 98 % of null_train lie;
            `nearest_normal`, the value of the nearest known normal; `share`, what part of all that
            raises the score of the row. With known novelties, `known` says how many of them
            have the same reasons, and `known_kind` of which kind most of these are.
        """
        return frame_like(self.test_rows, self.reasons.lines(top))

    def patterns(self, top: int = TOP) -> Any:
        """Group the rejected rows by the reasons that they share: a frame, the largest first.

        Parameters
        ----------
        top : int
            How many reasons of each row are compared, 1 to 10.

        Returns
        -------
        frame
            `pattern`, such as "amount high, hour low"; `rows`, how many rows have it; `first_row`,
            the position of one of them in ``X_test``.
        """
        groups, rows = self.reasons.patterns(top), self.reasons.rows
        columns = {
            "pattern": np.array([group.text for group in groups], dtype=object),
            "rows": np.array([len(group.members) for group in groups], dtype=np.int64),
            "first_row": np.array([rows[group.members[0]] for group in groups], dtype=np.int64),
        }
        return frame_like(self.test_rows, columns)


def with_part(result: Result, name: str, part: Any, **changed: Any) -> Result:
    """Give a result the part that a mode adds, and what it changes besides."""
    return replace(result, parts={**result.parts, name: part}, **changed)


def decide(
    site: Site,
    limit: int,
    ids: NDArray[Any] | None,
    name: str = "",
    floor: int = 0,
    conforming: Mapping[str, int] = MappingProxyType({}),
    floors: tuple[int, ...] = (),
) -> SiteResult:
    """Decide about the rows of a site: those up to the largest rejected rank are rejected.

    Where cells decide, `limit` is the lowest rejected one. In the regime `consensus`, `conforming`
    says from which cell of distances on rows do not conform to each agent's normals. With strata,
    `floors` are those of each of them.
    """
    site.cut(limit, floors)
    ranks, cells = site.test_ranks, site.cells
    parts: dict[str, Any] = {}
    rejected = within_limit(ranks, limit) if cells is None else reaches(cells, limit)
    if site.scale is not None and site.strata is not None and cells is not None:
        rejected = site.scale.rejected(site.strata.strata.test, cells)
    if cells is not None:
        parts["cells"] = Cells(cells, floor)
    if site.strata is not None and site.ranked is not None:
        parts["strata"] = StrataResult.of(site.strata, site.weight)
    if conforming:
        parts["consensus"] = Roaming.of(site.cells_by_agent, conforming)
    return SiteResult(
        name=name,
        rejected=rejected,
        ranks=ranks,
        scores=site.scores,
        tested=site.tested,
        n_calibration=site.n_calibration,
        test_rows=site.test.in_memory(),
        ids=ids,
        choices=site.choices,
        explainer=site.explainer,
        parts=parts,
    )
