"""When a payload is coded by compiled loops, and how they take over from a coder.

The loops (:mod:`conovel.models.wire.tree_loops`, :mod:`conovel.models.wire.number_loops`) read and
write the same bytes as the functions in plain Python, and raise the same errors. The functions in
plain Python are used for short payloads, for counting bits, and where numba is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.models.quantized import canonical
from conovel.models.wire.range_coder import Coder, Decoder, Encoder


class Loops:
    """The compiled loops, for one encoder or decoder."""

    def __init__(
        self, by_name: Mapping[str, Callable[..., Any]], coder: Encoder | Decoder
    ) -> None:
        self._by_name, self._coder = by_name, coder

    def run(self, name: str, *arguments: Any) -> Any:
        """Run the loop of this name from the coder's present state, and update that state."""
        coder = self._coder
        writes = isinstance(coder, Encoder)
        data: NDArray[np.uint8]
        if isinstance(coder, Encoder):
            numbers, data = (coder.low, coder.range, len(coder.out), 0), _writable(coder.out)
        else:
            numbers = (coder.code, coder.range, coder.shifts, len(coder.data))
            data = np.frombuffer(coder.data, dtype=np.uint8).copy()
        state = np.array([writes, *numbers], dtype=np.int64)
        data, result = self._by_name[name](state, data, *arguments)
        _, value, coder.range, n_bytes, _ = state.tolist()
        if isinstance(coder, Encoder):
            coder.low, coder.out = value, bytearray(data[:n_bytes].tobytes())
        else:
            coder.code, coder.shifts = value, n_bytes
        return result


def loops_for(coder: Coder, n_items: int) -> Loops | None:
    """Return the compiled loops if numba is installed and so many items repay loading it."""
    if n_items < canonical.WORTH_COMPILING or not isinstance(coder, Encoder | Decoder):
        return None
    by_name = _by_name()
    return None if by_name is None else Loops(by_name, coder)


@cache
def _by_name() -> Mapping[str, Callable[..., Any]] | None:
    try:
        from conovel.models.wire import number_loops, tree_loops  # noqa: PLC0415
    except ImportError:
        return None
    return {
        "code_keys": number_loops.code_keys,
        "code_lists": number_loops.code_lists,
        "code_symbols": number_loops.code_symbols,
        "code_trees": tree_loops.code_trees,
    }


def _writable(out: bytearray) -> NDArray[np.uint8]:
    data = np.zeros(2 * len(out) + (1 << 16), dtype=np.uint8)
    data[: len(out)] = np.frombuffer(out, dtype=np.uint8)
    return data
