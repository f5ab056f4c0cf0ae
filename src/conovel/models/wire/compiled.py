"""Which parts of a payload are coded by compiled loops, and how the coder gets there and back.

The loops (:mod:`conovel.models.wire.loops`, numba) read and write the same bytes as the
descriptions in
plain Python, and end in the same errors. Short payloads, tallies, and machines without numba take
the plain way.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.models.quantized import canonical
from conovel.models.wire.range_coder import Coder, Decoder, Encoder


class Loops:
    """The compiled loops, for one encoder or decoder."""

    def __init__(self, module: ModuleType, coder: Encoder | Decoder) -> None:
        self._module, self._coder = module, coder

    def run(self, name: str, *arguments: Any) -> Any:
        """Code with the loop of this name, from where the coder stands, and move the coder on."""
        coder = self._coder
        writes = isinstance(coder, Encoder)
        data: NDArray[np.uint8]
        if isinstance(coder, Encoder):
            place, data = (coder.low, coder.range, len(coder.out), 0), _writable(coder.out)
        else:
            place = (coder.code, coder.range, coder.shifts, len(coder.data))
            data = np.frombuffer(coder.data, dtype=np.uint8).copy()
        state = np.array([writes, *place], dtype=np.int64)
        data, result = getattr(self._module, name)(state, data, *arguments)
        _, value, coder.range, at, _ = state.tolist()
        if isinstance(coder, Encoder):
            coder.low, coder.out = value, bytearray(data[:at].tobytes())
        else:
            coder.code, coder.shifts = value, at
        return result


def loops_for(coder: Coder, work: int) -> Loops | None:
    """Return the compiled loops where there are any and `work` is worth them."""
    if work < canonical.WORTH_COMPILING or not isinstance(coder, Encoder | Decoder):
        return None
    module = _module()
    return None if module is None else Loops(module, coder)


@cache
def _module() -> ModuleType | None:
    try:
        from conovel.models.wire import loops  # noqa: PLC0415
    except ImportError:
        return None
    return loops


def _writable(out: bytearray) -> NDArray[np.uint8]:
    data = np.zeros(2 * len(out) + (1 << 16), dtype=np.uint8)
    data[: len(out)] = np.frombuffer(out, dtype=np.uint8)
    return data
