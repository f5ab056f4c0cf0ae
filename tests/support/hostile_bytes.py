"""Messages of many models, and what becomes of them when bytes are changed."""

import struct
import zlib

from hypothesis import strategies as st

from conovel.models.quantized.forest import per_feature, uniform
from conovel.models.wire import encode
from support.random_models import random_forest, random_network

MODELS = [
    random_forest(1, n_trees=6),
    random_forest(2, n_trees=3, max_depth=7, distinct=3),
    uniform(random_forest(3, n_trees=6), 1),
    uniform(random_forest(4, n_trees=6), 4),
    uniform(random_forest(5, n_trees=9, max_depth=6), 9),
    per_feature(random_forest(6, n_trees=6), 4, 3),
    per_feature(random_forest(7, n_trees=4, max_depth=6), 6, 2),
    uniform(random_forest(8, n_trees=5, max_depth=0), 4),
    random_network(1),
    random_network(2, hidden=(3,)),
    uniform(random_network(3), 5),
    uniform(random_network(4, hidden=(4, 2), activation="tanh"), 3),
]
MESSAGES = [encode(model) for model in MODELS]


def reseal(message):
    """Make length and checksum valid again, so that a reader gets to the payload."""
    if len(message) < 28:
        return message
    message = message[:16] + struct.pack("<I", len(message) - 28) + message[20:]
    checksum = zlib.crc32(message[:24] + message[28:])
    return message[:24] + struct.pack("<I", checksum) + message[28:]


@st.composite
def mutated(draw):
    message = bytearray(draw(st.sampled_from(MESSAGES)))
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["flip", "set", "cut", "insert", "splice"]))
        if not message:
            break
        at = draw(st.integers(0, len(message) - 1))
        if kind == "flip":
            message[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set":
            message[at] = draw(st.sampled_from([0, 1, 127, 128, 255]))
        elif kind == "cut":
            del message[at : at + draw(st.integers(1, 8))]
        elif kind == "insert":
            message[at:at] = draw(st.binary(min_size=1, max_size=8))
        else:
            other = draw(st.sampled_from(MESSAGES))
            message[at:] = other[draw(st.integers(0, len(other) - 1)) :]
    return bytes(message)
