"""The numbers of lists that a reader may choose: how many of the first k rows are novel.

All are whole numbers. The commands write those of one site into the file of results; those of a
network follow from its record.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from conovel.errors import InputError
from conovel.protocol.certificates import cell_lists
from conovel.runs.certificates import CONFIDENCE
from conovel.stats.cells import N_CELLS
from conovel.stats.certified import Counts, ListBounds
from conovel.stats.levels import Level, as_level

if TYPE_CHECKING:
    from conovel.protocol.transcript import Transcript
    from conovel.runs.detection import Detection
    from conovel.runs.file_detection import FileDetection

MOST_STEPS = 200  # of a slider, besides some round numbers
_FEWEST_ROWS = 40  # that can be chosen, if there are so many
MOST_NORMALS = 5_000_000  # the bound is computed for every number of calibration rows
MOST_TESTS = 1_000  # for each calibration row: then it takes seconds
ROUND = [a * 10**e for e in range(1, 13) for a in (1, 2, 5)]


def lists_of(result: Detection | FileDetection, confidence: Level | None = None) -> dict[str, Any]:
    """Return the lists of one site as JSON types, or why there are none.

    Parameters
    ----------
    result : Detection or FileDetection
    confidence : float, str or Fraction, optional
        By default that of the result, or 95 %.
    """
    if result.strata is not None:
        return {"why": "Lists of other lengths are not drawn with strata: ask for certificate()."}
    sure = next(c for c in (confidence, result.confidence, CONFIDENCE) if c is not None)
    try:
        refuse_many(result.n_calibration, result.histogram.size)
        certificate = result.certificate(sure)
    except InputError as error:
        return {"why": str(error)}
    pi0 = float(result.stepup.pi0 or 1)
    numbers = certificate.n_test, certificate.n_flagged
    return {"of": [by_rank(certificate.bounds, *numbers, certificate.confidence, pi0)]}


def refuse_many(n_calibration: int, n_test: int) -> None:
    """Refuse numbers of rows for which a page would have to wait long for its lists."""
    if n_calibration > MOST_NORMALS or n_test > MOST_TESTS * n_calibration:
        raise InputError(
            f"lists are computed for at most {MOST_NORMALS:,} calibration rows, and at most"
            f" {MOST_TESTS:,} times as many tests; ask for certificate()"
        )


def by_rank(
    bounds: ListBounds, n_test: int, n_flagged: int, sure: Fraction, pi0: float = 1.0
) -> dict[str, Any]:
    """Return lists of one site as JSON types: the first k rows by rank."""
    rows = _steps(n_test, n_flagged, bounds)
    # Of m normal rows, m r/(ℓ + 1) have a rank of at most r.
    false = np.arange(1.0, bounds.tests.size + 1) * (pi0 * n_test / bounds.tests.size)
    last = np.searchsorted(bounds.tests, rows)
    return {
        "confidence": str(sure),
        "n_test": n_test,
        "n_flagged": n_flagged,
        "rows": rows.tolist(),
        "least": bounds.min_novelties_of_first(rows).tolist(),
        "expected": bounds.expected_of_first(false, rows).tolist(),
        "flagged": np.minimum(rows, n_flagged).tolist(),
        "rank": (last + 1).tolist(),
        "up_to": bounds.tests[last].tolist(),  # rows up to that rank
    }


def by_cell(transcript: Transcript, confidence: Level) -> dict[str, Any]:
    """Return lists of a network as JSON types: all rows from a cell on."""
    lists = cell_lists(transcript, confidence)
    bounds, n_flagged = lists.bounds, int(lists.flagged.max(initial=0))
    ends = np.flatnonzero(np.diff(bounds.tests, prepend=0))
    if not ends.size:
        raise InputError("no test row lies above a floor")
    rows = bounds.tests[ends]
    last = max(_last(lists.n_test, n_flagged, bounds), int(rows[0]))
    ends = ends[rows <= last]
    rows = bounds.tests[ends]
    return {
        "confidence": str(as_level(confidence, "confidence")),
        "n_test": lists.n_test,
        "n_flagged": n_flagged,
        "rows": rows.tolist(),
        "least": bounds.min_novelties_of_first(rows).tolist(),
        "expected": bounds.expected_of_first(lists.false, rows).tolist(),
        "flagged": lists.flagged[ends].tolist(),
        "cell": (N_CELLS - 1 - ends).tolist(),
    }


def _last(n_test: int, n_flagged: int, bounds: ListBounds) -> int:
    """Return the longest list that can be chosen: well beyond what is flagged or proven."""
    proven = bounds.counted - bounds.at_most
    enough = int(bounds.tests[np.argmax(proven)]) if bounds.min_novelties else 0
    return min(n_test, max(_FEWEST_ROWS, 3 * n_flagged, 2 * enough))


def _steps(n_test: int, n_flagged: int, bounds: ListBounds) -> Counts:
    """Return the numbers of rows that can be chosen: at equal steps, and some others."""
    last = _last(n_test, n_flagged, bounds)
    step = next(s for s in [1, *ROUND] if last <= s * MOST_STEPS)
    named = np.array([*ROUND, n_flagged, bounds.telling()[0], last])
    even = np.arange(step, last + 1, step)
    return np.union1d(even, named[(named >= 1) & (named <= last)])
