"""Fuzz `conovel.models.wire.decode`: ``python -m fuzz.decode -runs=1000000``.

Arguments go to libFuzzer as they are. Every input has to end in a `WireError` or in a model
whose only spelling it is and whose scores are finite, within the memory stated below.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import atheris
import numpy as np

with atheris.instrument_imports(include=["conovel"]):
    from conovel.errors import WireError
    from conovel.models.wire import decode, encode
    from conovel.models.wire.header import SIZE

HERE = Path(__file__).parent
LIMITS = ["-rss_limit_mb=1024", "-timeout=60", "-max_len=256"]
REPORT = 100_000
# Large counts are slow to read and rarely show anything new: masks for the high bytes of
# features, of trees or layers, and of nodes or weights.
SMALL = {9: 0, 11: 0, 13: 1, 14: 0, 15: 0}

outcomes: Counter[str] = Counter()


def reseal(message: bytes) -> bytes:
    """Put payload length and checksum right, so that the payload is looked at."""
    if len(message) < SIZE:
        return message
    message = b"cnv\x01" + message[4:16] + struct.pack("<I", len(message) - SIZE) + message[20:]
    checksum = zlib.crc32(message[: SIZE - 4] + message[SIZE:])
    return message[: SIZE - 4] + struct.pack("<I", checksum) + message[SIZE:]


def mutate(message: bytes, size: int, seed: int) -> bytes:
    """Change a message; all but one in sixteen keep a valid outside, most stay small."""
    changed = bytearray(atheris.Mutate(message, size))
    draw = seed % 16
    if draw > 1 and len(changed) >= SIZE:
        for offset, mask in SMALL.items():
            changed[offset] &= mask
    return reseal(bytes(changed)) if draw else bytes(changed)


def fuzz(message: bytes) -> None:
    """Decode one message, and say now and then how messages end."""
    outcomes[check(message)] += 1
    if (runs := outcomes.total()) % REPORT == 0:
        print(f"{runs} runs:", dict(outcomes.most_common()), file=sys.stderr)


def check(message: bytes) -> str:
    """Return the name of the error or of the model that a message ends in."""
    try:
        model = decode(message)
    except WireError as error:
        return type(error).__name__
    if encode(model, schema=message[20:24]) != message:
        raise AssertionError("decoded to a model with another spelling")
    if not np.isfinite(model.score(np.zeros((1, model.n_features)))).all():
        raise AssertionError("a score that is not finite")
    return type(model).__name__


def main() -> None:
    """Run until the arguments say to stop; new inputs are kept in a temporary folder."""
    finds = Path(tempfile.gettempdir()) / "conovel-fuzz"
    finds.mkdir(exist_ok=True)
    arguments = [*LIMITS, *sys.argv[1:], str(finds), str(HERE / "corpus")]
    atheris.Setup([sys.argv[0], *arguments], fuzz, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
