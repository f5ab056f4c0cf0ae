"""What a site tells about itself before a run."""

from __future__ import annotations

from typing import NamedTuple


class Facts(NamedTuple):
    """What a site tells about itself in its hello."""

    n_null: int
    n_test: int
    n_features: int
    schema: bytes  # 32 bytes that are equal where the columns are
