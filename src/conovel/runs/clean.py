"""Known normals that may be novelties: which to look at, and what is left after verdicts.

Only rows that somebody judged novel are removed. Rows that look strange and are normal must stay:
without them normal test rows look stranger than they are (docs/theory.md, "Contaminated normals").
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.errors import DataWarning, InputError, SampleError
from conovel.rows.pairs import read_pair
from conovel.rows.samples import as_frame
from conovel.rows.schemas import SchemaLike
from conovel.rows.tables import Rows
from conovel.runs.check_order import take
from conovel.runs.verdict_file import WORDS
from conovel.scorers.automatic import mahalanobis_distance
from conovel.scorers.suspicion import suspicion
from conovel.site.explain.explainer import Explainer, views_of
from conovel.site.explain.reasons import Reasons
from conovel.spec.findings import percent
from conovel.stats.contamination import level_with_novelties
from conovel.stats.levels import Level, RandomState, as_level, as_seed, as_whole
from conovel.stats.words import counted

FEWEST_ROWS = 20
NOVEL = "novel"


@dataclass(frozen=True, eq=False)
class Suspicious:
    """Known normals to look at, the most suspicious first.

    Attributes
    ----------
    rows : int array of shape (k,)
        Where they stand in the known normals, from 0.
    scores : float array of shape (k,)
        How suspicious each is, from 0 to 1: 0.99 says that a hundredth of the rows is more so.
    reasons : tuple of tuple of str
        For each, in which columns it is unusual among the known normals.

    See Also
    --------
    conovel.suspicious_normals : Makes it.
    """

    rows: NDArray[np.intp]
    scores: NDArray[np.float64]
    reasons: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Cleaned:
    """Known normals without the rows that were judged novel.

    Attributes
    ----------
    X_null : array or frame
        The rows that are left, as they were given.
    X_known : array or frame
        The rows that were judged novel; the next detection can learn from them as `X_known`.
    n_judged, n_novel, n_left : int
        Rows with a verdict, rows judged novel, and rows that are left.

    See Also
    --------
    conovel.clean_normals : Makes it.
    """

    X_null: Any
    X_known: Any
    n_judged: int
    n_novel: int
    n_left: int

    def bound(self, level: Level, still_novel: float) -> Fraction:
        """Return what the level becomes if this share of the rows that are left is still novel.

        The calibration rows are taken to hold the same share. The bound holds whatever the scores
        of these rows are. If they score as high as other novelties do, the level itself holds.
        """
        share = Fraction(str(still_novel))
        if not 0 <= share < 1:
            raise InputError(f"still_novel is a share from 0 to below 1, not {still_novel}")
        return level_with_novelties(level, self.n_left, int(share * self.n_left))

    def __str__(self) -> str:
        return " ".join(self.words())

    def words(self, level: Level = 0.1) -> tuple[str, str]:
        """Say what was done, and what it does to the promise."""
        promise, hundredth = percent(as_level(level)), percent(self.bound(level, 0.01))
        return (
            f"{counted(self.n_novel, 'row')} of {counted(self.n_judged, 'judged row')} are novel"
            f" and removed, {counted(self.n_left, 'known normal')} are left, among them all that"
            " were judged normal or unclear.",
            "The promise stays what it was, and more can be found. Novelties that are still among"
            f" the known normals shorten the list of flagged rows. At level {promise} false alarms"
            f" are at most {promise} of it on average, if the tests hold no smaller a share of"
            " novelties than the known normals. Whatever the tests hold: with 1 % of novelties"
            f" among the known normals they are at most {hundredth}. This presumes that no normal"
            " row was judged novel.",
        )


def suspicious_normals(
    X_null: Any,
    budget: int = 10,
    X_test: Any = None,
    *,
    verdicts: Mapping[int, str] | None = None,
    schema: SchemaLike = None,
    random_state: RandomState = 0,
) -> Suspicious:
    """List the known normals that are most worth a look, because they may be novelties.

    Look at a few, say what they are, and ask again with all verdicts so far: rows like those that
    were judged novel come next. Give the verdicts to :func:`conovel.clean_normals`.

    Parameters
    ----------
    X_null : array or frame of shape (n, d)
        Known normals, of which some may be novelties.
    budget : int
        How many rows to list.
    X_test : array or frame, optional
        Rows to test. Known normals that look like them come first, which finds novelties sooner.
    verdicts : mapping of a row to "novel", "normal" or "unclear", optional
        What is known of rows that somebody looked at, by their place in `X_null`. They are not
        listed again.
    schema : Schema, mapping or path, optional
        What the columns are.
    random_state : int, optional
        Seed of the forests.

    Returns
    -------
    Suspicious

    See Also
    --------
    conovel.clean_normals : Removes the rows that were judged novel.

    Examples
    --------
    >>> import numpy as np
    >>> import conovel as cn
    >>> rng = np.random.default_rng(0)
    >>> X_null = rng.normal(size=(500, 4))
    >>> X_null[:15] += 4  # novelties that nobody noticed
    >>> verdicts = {}
    >>> for _ in range(3):
    ...     looked_at = cn.suspicious_normals(X_null, 10, verdicts=verdicts)
    ...     verdicts |= {int(i): "novel" if i < 15 else "normal" for i in looked_at.rows}
    >>> cn.clean_normals(X_null, verdicts).n_novel
    15
    """
    number = as_whole(budget, "budget", 1)
    rows, tests = _read(X_null, X_test, schema)
    words = checked_verdicts(verdicts or {}, len(rows))
    is_novel, is_judged = np.zeros((2, len(rows)), dtype=np.bool_)
    is_judged[list(words)] = True
    is_novel[[row for row, word in words.items() if word == NOVEL]] = True
    values = None if tests is None else tests.values
    scores = suspicion(rows.values, values, is_novel, as_seed(random_state))
    # Equal scores in the order of the values, so that the order of the rows does not matter.
    by_value = np.lexsort(rows.values.T[::-1])
    order = by_value[np.argsort(-scores[by_value], kind="stable")]
    places = order[~is_judged[order]][:number]
    return Suspicious(places, scores[places], _reasons(rows, places))


def clean_normals(X_null: Any, verdicts: Mapping[int, str]) -> Cleaned:
    """Remove the known normals that were judged novel, and no others.

    Parameters
    ----------
    X_null : array or frame of shape (n, d)
        Known normals.
    verdicts : mapping of a row to "novel", "normal" or "unclear"
        By the place of the row in `X_null`.

    Returns
    -------
    Cleaned
        Its `X_null` are the known normals of the next detection.

    Proof: Theorem 25(c) (docs/theory.md#thm-contaminated).

    See Also
    --------
    conovel.suspicious_normals : Lists the rows to look at.

    Examples
    --------
    >>> import numpy as np
    >>> import conovel as cn
    >>> cleaned = cn.clean_normals(np.arange(8.0).reshape(4, 2), {3: "novel", 1: "normal"})
    >>> cleaned.X_null.tolist(), cleaned.X_known.tolist()
    ([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], [[6.0, 7.0]])
    """
    frame = as_frame(X_null, "X_null")
    n = len(np.asarray(X_null) if frame is None else frame)
    words = checked_verdicts(verdicts, n)
    novel = np.zeros(n, dtype=np.bool_)
    novel[[row for row, word in words.items() if word == NOVEL]] = True
    n_novel = int(novel.sum())
    if n - n_novel < 2:
        raise SampleError(f"of {counted(n, 'known normal')} {n_novel:,} are novel: none is left")
    left, removed = (take(X_null, np.flatnonzero(which)) for which in (~novel, novel))
    return Cleaned(left, removed, len(words), n_novel, n - n_novel)


def checked_verdicts(verdicts: Mapping[int, str], n: int) -> dict[int, str]:
    """Check verdicts on n rows."""
    checked = {}
    for row, word in verdicts.items():
        place = as_whole(row, "a row of the verdicts", 0, n - 1)
        if word not in WORDS:
            raise InputError(f"the verdict on row {place} is {word!r}: write {', '.join(WORDS)}")
        checked[place] = word
    return checked


def _read(X_null: Any, X_test: Any, schema: SchemaLike) -> tuple[Rows, Rows | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # about two samples; here may be one
        rows, tests = read_pair(X_null, X_null if X_test is None else X_test, schema)
    if len(rows) < FEWEST_ROWS:
        raise SampleError(
            f"there are {counted(len(rows), 'known normal')}: with fewer than {FEWEST_ROWS}, look"
            " at all of them"
        )
    return rows, None if X_test is None else tests


def _reasons(rows: Rows, places: NDArray[np.intp]) -> tuple[tuple[str, ...], ...]:
    """Say in which columns some rows are unusual among all of them."""
    model = mahalanobis_distance().fit_nulls(rows.values)
    views = views_of(rows.encoder, rows.columns or range(rows.width))
    explainer = Explainer(model, rows.values, views)
    return tuple(tuple(texts) for texts in Reasons.of(explainer, rows, places).texts())
