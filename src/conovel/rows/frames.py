"""Results as frames, of the kind in which the test rows came."""

from __future__ import annotations

from typing import Any

import narwhals as nw
from numpy.typing import NDArray

from conovel.rows.encoding import pandas_frame
from conovel.rows.tables import Rows


def give_back(test: Rows, data: dict[str, NDArray[Any]]) -> Any:
    """Build a frame of per-row results in the kind of frame the test rows came in.

    A pandas index is kept. Rows that came as an array give a pandas frame.
    """
    result = frame_like(test, data)
    if test.frame is not None and (index := nw.maybe_get_index(test.frame)) is not None:
        result.index = index
    return result


def frame_like(test: Rows, data: dict[str, NDArray[Any]]) -> Any:
    """Build a frame in the kind of frame the test rows came in, with an index of its own."""
    if test.frame is not None:
        return nw.from_dict(data, backend=test.frame.implementation).to_native()
    return pandas_frame(data)
