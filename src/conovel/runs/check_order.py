"""Are the known normals exchangeable in their order? A rehearsal before anything is tested.

Two tests, each exact if all orders of the rows are equally likely. The columns are compared along
the order (:mod:`conovel.site.checks.drift`). And the latest rows are tested against the earlier
ones as if they were new, with the same scorer as later: their scores are compared with those of
the calibration rows. The scorer does not know which is which, so one fit is enough.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from conovel.errors import ColumnError, SampleError
from conovel.rows.pairs import read_pair
from conovel.rows.samples import as_frame, collected
from conovel.rows.schemas import SchemaLike
from conovel.runs.detection import Detection
from conovel.runs.detector import AdaDetect
from conovel.runs.pages import axes_or_new
from conovel.runs.repeats import once_warned
from conovel.scorers.estimators import ScorerLike
from conovel.site.checks.columns import column_findings
from conovel.site.checks.drift import (
    ColumnDrift,
    Drift,
    find_drift,
    permutation_p_value,
    stride_of,
)
from conovel.site.checks.rows import CheckedRows
from conovel.spec.findings import Finding, named, verdict_of
from conovel.stats.levels import Level, RandomState, as_level
from conovel.stats.ranks import as_array
from conovel.stats.words import counted, not_there

LEVEL = Fraction(1, 100)  # below, the order is taken for no random one
_DRAWS = 1999
_LATEST = 5  # the last fifth is the latest
_FEWEST_ROWS = 40
_MOST_REHEARSED = 1 << 13  # rows of the rehearsal
_DRAWN = 3  # columns in a picture


@dataclass(frozen=True, eq=False)
class Check:
    """What a rehearsal on the known normals showed.

    Attributes
    ----------
    p_value : float
        Small if the known normals are not exchangeable in their order. Valid for every number of
        rows: if they are exchangeable, it is at most t with probability at most t.
    columns : tuple of ColumnDrift
        The columns that drift, those that change most first; the chance that any is named in
        error is at most 1 in 100.
    since : object or None
        The value of the order, or else the row, from which on the first of these columns differs
        most from before.
    n_rows, n_latest : int
        Rows, and how many of them were tested as if they were new.
    n_flagged : int
        How many of these were flagged. All of them are false alarms.
    level : Fraction
        At which level.
    drift : Drift
        How every column changes along the order.
    p_columns, p_rehearsal : float
        The p-values of the two tests; `p_value` is twice the smaller one.
    warnings : tuple of Finding
        Mistakes that are seen in the columns, such as a row number: it is left out here.

    See Also
    --------
    conovel.check : Makes it.
    """

    p_value: float
    columns: tuple[ColumnDrift, ...]
    since: Any
    n_rows: int
    n_latest: int
    n_flagged: int
    level: Fraction
    drift: Drift
    p_columns: float
    p_rehearsal: float
    warnings: tuple[Finding, ...] = ()

    @property
    def exchangeable(self) -> bool:
        """Whether nothing speaks against it: the p-value is above 1/100."""
        return self.p_value > LEVEL

    def __str__(self) -> str:
        verdict = verdict_of(self.exchangeable, self.warnings)
        rehearsed = (
            f"Tested as if they were new, {self.n_flagged:,} of the latest {self.n_latest:,} known"
            f" normals are flagged at level {self.level}; each is a false alarm."
        )
        if self.exchangeable:
            return f"{verdict} (p = {self.p_value:.2g}). {rehearsed}"
        text = f"{verdict} (p = {self.p_value:.2g})."
        if self.columns:
            one, others = self.columns[0], len(self.columns) - 1
            change = f"and {others:,} more change" if others else "changes"
            text += (
                f" {named(one.column)[:1].upper()}{named(one.column)[1:]} {change}, most at"
                f" {self.since}: mean {one.before:.4g} before, {one.after:.4g} after."
            )
        return f"{text} {rehearsed}"

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON types; ``conovel report`` reads it."""
        return {
            "command": "check",
            "p_value": self.p_value,
            "p_columns": self.p_columns,
            "p_rehearsal": self.p_rehearsal,
            "exchangeable": self.exchangeable,
            "n_rows": self.n_rows,
            "n_latest": self.n_latest,
            "n_flagged": self.n_flagged,
            "level": str(self.level),
            "warnings": [finding.to_dict() for finding in self.warnings],
            "columns": [
                one._asdict() | {"trace": [list(at) for at in self.drift.trace(one.column)]}
                for one in self.columns
            ],
        }

    def plot(self, ax: Any = None) -> Any:
        """Draw the columns that drift most along the order of the rows.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; new ones if not given.

        Returns
        -------
        matplotlib Axes
        """
        ax = axes_or_new(ax)
        shown = self.columns or self.drift.columns
        for i, one in enumerate(shown[:_DRAWN]):
            places, means = zip(*self.drift.trace(one.column), strict=True)
            middle, spread = np.mean(means), np.std(means) or 1.0
            ax.plot(places, (np.array(means) - middle) / spread, marker="o", label=one.column)
            if self.columns:
                ax.axvline(one.since, linestyle="--", color=f"C{i}", alpha=0.6)
        ax.set_xlabel("row, in order")
        ax.set_ylabel("mean of a segment, standardised")
        ax.set_title(f"known normals along their order (p = {self.p_value:.2g})")
        ax.legend()
        return ax


def check(
    X_null: Any,
    order: Any = None,
    *,
    level: Level = 0.1,
    scorer: ScorerLike | str | list[ScorerLike | str] | None = None,
    random_state: RandomState = 0,
    schema: SchemaLike = None,
) -> Check:
    """Test whether known normals are exchangeable in their order, before they are relied on.

    Parameters
    ----------
    X_null : array or frame of shape (n, d)
        Known normals; at least 40.
    order : None, str or array of shape (n,)
        By what the rows are ordered: as they are, by a column of the frame, which is then no
        feature, or by these values. Equal values keep their order.
    level : float, str or Fraction
        Level of the rehearsal.
    scorer : as of AdaDetect
        Scorer of the rehearsal.
    random_state : int, RandomState, Generator, SeedSequence or None
        Seed of the rehearsal.
    schema : Schema, path, mapping or None
        What the columns are, as of AdaDetect.

    Returns
    -------
    Check

    See Also
    --------
    conovel.AdaDetect.detect : Looks for drift by itself.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X_null = rng.normal(size=(600, 2))
    >>> check(X_null, scorer="logistic").exchangeable
    True
    >>> X_null[400:, 1] += 2
    >>> found = check(X_null, scorer="logistic")
    >>> found.p_value, found.columns[0].column, found.since
    (0.001, '1', 390)
    """
    rows, keys = _in_order(X_null, order)
    n = _n_rows(rows)
    if n < _FEWEST_ROWS:
        raise SampleError(f"X_null has {counted(n, 'row')}: a check needs at least {_FEWEST_ROWS}")
    earlier, latest = np.split(np.arange(n), [n - n // _LATEST])
    with once_warned(1):  # the rehearsal warns
        pair = read_pair(take(rows, earlier), take(rows, latest), schema)
    checked = CheckedRows.of(*pair)
    names, sources = checked.features, checked.sources
    mistakes = column_findings(checked.null, checked.test, names, sources)
    left_out = {column for finding in mistakes for column in finding.columns}
    rest = [j for j, source in enumerate(sources) if source not in left_out]
    values = np.concatenate([part.values for part in pair])[:, rest]
    outcome = find_drift(values, [names[j] for j in rest], _DRAWS)
    if outcome is None:
        raise ColumnError(
            "X_null has no column to check: all are constant, or look like row numbers"
        )
    detector = AdaDetect(scorer, level, random_state=random_state, schema=schema)
    rehearsed = _rehearse(_without(rows, left_out), detector, n)
    p_rehearsal = _rank_sum_p_value(rehearsed)
    p_value = min(1.0, 2 * float(min(outcome.p_value, p_rehearsal)))
    columns = outcome.drifting(LEVEL / 2)
    since = columns[0].since if columns else None
    return Check(
        p_value=p_value,
        columns=columns,
        since=since if since is None or keys is None else _plain(keys[since]),
        n_rows=n,
        n_latest=rehearsed.rejected.size,
        n_flagged=rehearsed.n_rejected,
        level=as_level(level),
        drift=outcome,
        p_columns=float(outcome.p_value),
        p_rehearsal=float(p_rehearsal),
        warnings=tuple(mistakes),
    )


def _plain(key: Any) -> Any:
    """Return a value of the order as a Python object; NumPy has none for nanoseconds."""
    if isinstance(key, np.datetime64 | np.timedelta64):
        key = key.astype(f"{key.dtype.kind}8[us]")
    return key.item() if isinstance(key, np.generic) else key


def _rehearse(rows: Any, detector: AdaDetect, n: int) -> Detection:
    """Test the latest rows against the earlier ones; of many rows every 2^k-th."""
    places = np.arange(0, n, stride_of(n, _MOST_REHEARSED))
    earlier, latest = np.split(places, [places.size - places.size // _LATEST])
    return detector.detect(take(rows, earlier), take(rows, latest), check=False)


def _rank_sum_p_value(rehearsed: Detection) -> Fraction:
    """Compare the scores of the latest rows with those of calibration rows, by their ranks."""
    latest = rehearsed.scores.size
    ranks = rankdata(np.concatenate([rehearsed.scores, rehearsed.calibration_scores]))
    rng = np.random.default_rng(0)
    observed = np.array([ranks[:latest].sum()])
    return permutation_p_value(
        observed, lambda: float(ranks[rng.permutation(ranks.size)[:latest]].sum()), _DRAWS
    ).p_value


def _in_order(X_null: Any, order: Any) -> tuple[Any, NDArray[Any] | None]:
    """Return the rows in their order, without the column that orders them, and its values."""
    X_null = collected(X_null)
    if order is None:
        return X_null, None
    frame = as_frame(X_null, "X_null")
    if isinstance(order, str):
        if frame is None or order not in frame.columns:
            instead = "" if frame is None else f": {not_there(order, frame.columns)}"
            raise ColumnError(f"X_null has no column {order!r} to order by{instead}")
        keys = frame[order].to_numpy()
        X_null = frame.drop(order).to_native()
    else:
        keys = as_array(order, "order")
    n = _n_rows(X_null)
    if keys.shape != (n,):
        raise SampleError(f"order has shape {keys.shape}, but there are {n} rows")
    places = order_of(keys)
    return take(X_null, places), keys[places]


def order_of(keys: NDArray[Any]) -> NDArray[np.intp]:
    """Return the places of the rows in ascending order of their keys; equal ones as they are."""
    if keys.dtype.kind in "OUS":
        keys = _numbers_or_dates(keys)
    if keys.dtype.kind not in "biufMm" or np.isnan(keys.astype(np.float64)).any():
        raise ColumnError("order has values that are missing or cannot be compared: fill them in")
    return np.argsort(keys, kind="stable")


def _numbers_or_dates(keys: NDArray[Any]) -> NDArray[Any]:
    """Read texts and objects as numbers, or as dates in ISO 8601; other texts have no order."""
    for kind in (np.float64, "datetime64[us]"):
        try:
            return np.asarray([str(key) for key in keys.tolist()]).astype(kind)
        except ValueError:
            continue
    raise ColumnError(
        f"order has the value {str(keys[0])!r}, which is no number and no date like 2026-11-17:"
        " convert it first"
    )


def take(rows: Any, places: NDArray[np.intp]) -> Any:
    """Take rows of an array or a frame of any library."""
    frame = as_frame(rows, "X_null")
    return np.asarray(rows)[places] if frame is None else frame[places.tolist()].to_native()


def _n_rows(rows: Any) -> int:
    frame = as_frame(rows, "X_null")
    return len(as_array(rows, "X_null") if frame is None else frame)


def _without(rows: Any, names: Collection[str]) -> Any:
    """Leave columns out: of a frame by name, of an array by place."""
    frame = as_frame(rows, "X_null")
    if frame is None:
        array = np.asarray(rows)
        return array[:, [j for j in range(array.shape[1]) if str(j) not in names]]
    return frame.drop([name for name in frame.columns if str(name) in names]).to_native()
