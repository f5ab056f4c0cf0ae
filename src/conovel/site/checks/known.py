"""Known novelties that are also test rows or known normals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from conovel.rows.pairs import KnownRows
from conovel.rows.stored import RowSource
from conovel.scorers.content import content_hash
from conovel.spec.findings import Finding


def known_findings(
    known_rows: KnownRows | None, null: RowSource, test: RowSource
) -> tuple[Finding, ...]:
    """Say which known novelties occur among the other rows of a site, to the last digit."""
    if known_rows is None:
        return ()
    hashes = content_hash(known_rows.values)
    n_normal, n_tested = (_n_among(hashes, rows) for rows in (null, test))
    cases = f"{len(known_rows):,} known novelties" if len(known_rows) > 1 else "1 known novelty"
    findings = []
    if n_normal:
        findings.append(
            Finding(
                "known_among_normals",
                f"{n_normal:,} of {cases} are known normals, too",
                "decide what they are, and remove them from the other file",
                numbers={"n_shared": n_normal},
            )
        )
    if n_tested:
        findings.append(
            Finding(
                "known_among_tests",
                f"{n_tested:,} of {cases} are rows to test, too",
                "if they are the same observations, remove them from the rows to test: flagging"
                " them says nothing new. If they were chosen because they look strange today, the"
                " promise does not hold: take cases of the past",
                numbers={"n_shared": n_tested},
            )
        )
    return tuple(findings)


def _n_among(hashes: NDArray[np.uint64], rows: RowSource) -> int:
    """Count the rows with these hashes that occur in a sample."""
    among = np.zeros(hashes.size, dtype=np.bool_)
    for _, chunk in rows.chunks():
        among |= np.isin(hashes, content_hash(chunk))
    return int(among.sum())
