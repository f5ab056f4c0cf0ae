"""The decisions that checks look at, out of decisions that stream by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from conovel.site.checks.rows import Outcome, check_outcome, check_rows
from conovel.site.checks.sample import Looked
from conovel.spec.findings import Finding


class SeenDecisions:
    """Keeps the decisions on the rows that are looked at, and counts all.

    Parameters
    ----------
    looked : Looked
        The rows.
    """

    def __init__(self, looked: Looked) -> None:
        self.looked = looked
        self._parts: list[pa.Table] = []
        self._n_seen = self._n_tested = self._n_rejected = 0

    def see(self, part: pa.Table) -> pa.Table:
        """Look at decisions, in the order of the rows."""
        stride = self.looked.test_stride
        places = np.arange(-self._n_seen % stride, part.num_rows, stride)
        names = [name for name in ("id", "tested", "rejected") if name in part.column_names]
        self._parts.append(part.select(names).take(pa.array(places)))
        self._n_seen += part.num_rows
        self._n_rejected += int(part["rejected"].to_numpy().sum())
        is_some = "tested" in names
        self._n_tested += int(part["tested"].to_numpy().sum()) if is_some else part.num_rows
        return part

    def findings(
        self, n_smallest: int, known: Sequence[Finding | None], n_agents: int, name: str
    ) -> tuple[Finding, ...]:
        """Look for what speaks against the decisions.

        Parameters
        ----------
        n_smallest : int
            Tested rows with the smallest possible p-value.
        known : sequence of Finding or None
            What is known already.
        n_agents : int
        name : str
            The agent; empty for one site alone.
        """
        seen = pa.concat_tables(self._parts)
        rejected = seen["rejected"].to_numpy()
        tested = np.ones(rejected.size, dtype=np.bool_)
        if "tested" in seen.column_names:
            tested = seen["tested"].to_numpy()
        ids = seen["id"].to_numpy() if "id" in seen.column_names else None
        before = check_rows(self.looked, ids, lambda _: None, *known, n_agents=n_agents)
        counts = self._n_tested, self._n_rejected, n_smallest
        return check_outcome(self.looked, Outcome(rejected, tested, *counts), before, name)
