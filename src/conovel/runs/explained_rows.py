"""What results say about the reasons of their rejected rows."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError
from conovel.rows.frames import frame_like
from conovel.rows.tables import Rows
from conovel.runs.pages import Drawn, plot_scores
from conovel.site.explain.explainer import Explainer
from conovel.site.explain.reasons import MOST_EXPLAINED, TOP, Reasons, most_novel


class ExplainedRows(Drawn):
    """Base of results: explains the rejected rows when it is asked to."""

    rejected: NDArray[np.bool_]
    ranks: NDArray[np.int64]
    scores: NDArray[np.float64]
    test_rows: Rows
    ids: NDArray[Any] | None
    explainer: Explainer | None

    @property
    def n_rejected(self) -> int:
        """Number of rows declared novelties."""
        return int(self.rejected.sum())

    @cached_property
    def reasons(self) -> Reasons:
        """Why the rejected rows were rejected; see :meth:`explain`."""
        return self.most_novel_reasons(self.n_rejected)

    def most_novel_reasons(self, most: int = MOST_EXPLAINED) -> Reasons:
        """Explain at most so many of the rejected rows, those of the smallest ranks."""
        if self.explainer is None:
            raise InputError(
                "this result has no score to explain it by: its agent dropped out before it scored"
                " its rows"
            )
        rows = np.flatnonzero(self.rejected)
        chosen, novelty = most_novel(rows, self.ranks[rows], self.scores[rows], most)
        found = Reasons.of(self.explainer, self.test_rows, chosen, self.ids)
        return replace(found, novelty=novelty)

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
            raises the score of the row.
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
        found = self.reasons.patterns(top)
        return frame_like(
            self.test_rows,
            {
                "pattern": np.array([pattern.text for pattern in found], dtype=object),
                "rows": np.array([len(pattern.members) for pattern in found], dtype=np.int64),
                "first_row": np.array(
                    [self.reasons.rows[pattern.members[0]] for pattern in found], dtype=np.int64
                ),
            },
        )
