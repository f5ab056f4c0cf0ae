"""To whose normals rows conform: what the regime `consensus` tells about each row besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Roaming:
    """To whose normals the test rows of one agent conform.

    Examples
    --------
    >>> found = Roaming({"a": np.array([True, True]), "b": np.array([False, True])})
    >>> found.normal_at
    [('a',), ('a', 'b')]
    """

    # Of shape (m,); for each agent of the network, the rows that conform to its normals: by their
    # distance from these, their p-value among its calibration rows is above the level
    conforms: Mapping[str, NDArray[np.bool_]]

    @classmethod
    def of(
        cls, cells_by_agent: Mapping[str, NDArray[np.integer]], limits: Mapping[str, int]
    ) -> Roaming:
        """Compare the cells of rows, by the distance from each agent, with that agent's limit."""
        return cls({name: cells < limits[name] for name, cells in cells_by_agent.items()})

    @property
    def normal_at(self) -> list[tuple[str, ...]]:
        """For each row, the agents to whose normals it conforms."""
        names = sorted(self.conforms)
        table = np.column_stack([self.conforms[name] for name in names])
        return [
            tuple(name for name, here in zip(names, row, strict=True) if here) for row in table
        ]

    @property
    def spelled(self) -> NDArray[np.str_]:
        """The same as one text for each row, names divided by commas."""
        return np.array([", ".join(names) for names in self.normal_at], dtype=np.str_)

    def to_plain(self) -> dict[str, Any]:
        """Give it as JSON types."""
        return {"normal_at": [list(n) for n in self.normal_at]}

    def flow(self, own: str) -> dict[str, int]:
        """Count rows that do not conform to the agent's own normals, by whose they conform to.

        A row that conforms to several others counts at each of them.
        """
        away = ~self.conforms[own]
        return {
            name: int(np.count_nonzero(away & here))
            for name, here in sorted(self.conforms.items())
            if name != own
        }
