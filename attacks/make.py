"""Write the hostile inputs of this folder.

Run ``python attacks/make.py`` from the root of the repository. Each file is made by one
function below; its name begins with the error that it must raise, as in
``Checksum--one-bit.bin`` for `conovel.errors.ChecksumError`.
"""

from __future__ import annotations

import math
import pickle
import struct
import zlib
from collections.abc import Callable
from functools import partial
from itertools import permutations
from pathlib import Path

import numpy as np

from conovel.errors import NonCanonicalError, WireError
from conovel.models.forest import Forest
from conovel.models.linear import Linear
from conovel.models.quantized.forest import QuantizedForest, quantized_forest, uniform
from conovel.models.quantized.grids import SharedGrids, Uniform
from conovel.models.wire import decode, encode, forests
from conovel.models.wire.forests import Shape, code_trees
from conovel.models.wire.numbers import STREAM, code_float, code_list, code_uniform, code_used
from conovel.models.wire.range_coder import Encoder, FrequencyTable, integer, raw, signed, symbol

HERE = Path(__file__).parent
FOREST, NETWORK = 1, 2
LOGISTIC, PER_FEATURE = 1, 2
LEAF = -1
STUMP = [(0, 0), (LEAF, 0), (LEAF, 1)]
UNIT = Uniform(0.0, 1.0, 2)

ATTACKS: dict[str, Callable[[], bytes]] = {}


def attack(error: str, name: str) -> Callable[[Callable[[], bytes]], Callable[[], bytes]]:
    """Register a function that returns hostile bytes."""

    def register(make: Callable[[], bytes]) -> Callable[[], bytes]:
        ATTACKS[f"{error}--{name}.bin"] = make
        return make

    return register


def seal(  # the header once more, straight from docs/wire.md
    payload: bytes,
    *,
    magic: bytes = b"cnv",
    version: int = 1,
    kind: int = FOREST,
    flags: int = 0,
    bits: tuple[int, int] = (2, 2),
    features: int = 1,
    parts: int = 1,
    items: int = 3,
    size: int | None = None,
) -> bytes:
    """Return a message with a valid checksum, whatever the rest says."""
    size = len(payload) if size is None else size
    head = magic + struct.pack(
        "<BBBBBHHII", version, kind, flags, *bits, features, parts, items, size
    )
    head += bytes(4)
    return head + struct.pack("<I", zlib.crc32(head + payload)) + payload


def forest(tree_list: list[list[tuple[int, int]]] | None = None) -> QuantizedForest:
    """Return a valid forest on one feature."""
    return quantized_forest(tree_list or [STUMP], 1, SharedGrids(UNIT, UNIT))


def valid() -> bytes:
    """Return a valid message."""
    return encode(forest())


def payload(
    tree_list: list[list[tuple[int, int]]],
    *,
    used: tuple[int, ...] = (0,),
    features: int = 1,
    thresholds: Uniform | None = UNIT,
    leaves: Uniform = UNIT,
    ordered: bool = True,
) -> bytes:
    """Write a shared-grid forest without any of the checks of the library."""
    coder = Encoder()
    code_used(coder, used, features, most=features)
    if thresholds:
        code_float(coder, thresholds.low, 32)
        code_float(coder, thresholds.high, 32)
    code_float(coder, leaves.low, 32)
    code_float(coder, leaves.high, 32)
    shape = Shape(
        len(tree_list),
        sum(map(len, tree_list)),
        [thresholds.n_codes if thresholds else 1] * len(used),
        leaves.n_codes,
        ordered,
    )
    code_trees(coder, shape, tree_list)
    return coder.finish()


def floats(*numbers: float, width: int = 32) -> bytes:
    """Write the flag of one used feature and then numbers as raw bits, finite or not."""
    coder = Encoder()
    code_used(coder, (0,), 1, most=1)
    for number in numbers:
        data = struct.pack(">f" if width == 32 else ">d", number)
        bits, sign = int.from_bytes(data, "big"), 1 << (width - 1)
        raw(coder, bits ^ (2 * sign - 1) if bits & sign else bits | sign, width, STREAM)
    for _ in range(40):
        coder.uniform(0, 2, STREAM)
    return coder.finish()


def one_leaf(width: int, key: int) -> bytes:
    """Return an exact forest of one leaf, whose value has this key."""
    coder, table = Encoder(), FrequencyTable(STREAM)
    code_used(coder, (), 1, most=1)
    integer(coder, table, 0)
    coder.uniform((64, 32, 24).index(width), 3, STREAM)
    raw(coder, key, width, STREAM)
    code_trees(coder, Shape(1, 1, [], 1, False), [[(LEAF, 0)]])
    return seal(coder.finish(), bits=(0, 0), items=1)


# What one expression can say.

PLAIN: dict[str, Callable[[], bytes]] = {
    "Truncated--empty": lambda: b"",
    "Truncated--magic-only": lambda: b"cnv",
    "Magic--zeros": lambda: bytes(64),
    "Magic--capitals": lambda: b"CNV" + valid()[3:],
    "Magic--gzip-bomb": lambda: zlib.compress(bytes(1 << 20), 9),
    "Truncated--half-a-header": lambda: valid()[:14],
    "Truncated--one-byte-short": lambda: valid()[:-1],
    "Trailing--one-byte-more": lambda: valid() + b"\0",
    "Trailing--two-models": lambda: valid() * 2,
    "Truncated--no-payload": lambda: seal(b""),
    "Limit--more-decisions-than-a-reader-makes": lambda: seal(
        bytes(1 << 12), bits=(16, 16), items=2**17 - 1
    ),
    "Trailing--payload-with-more-than-its-end": lambda: seal(payload([STUMP]) + bytes(4)),
    "Structure--grid-with-exchanged-ends": lambda: seal(floats(1.0, 0.0)),
    "Structure--mean-of-values-above-one": lambda: seal(
        payload([STUMP], leaves=Uniform(0.0, 7.0, 2))
    ),
    "Structure--more-features-than-splits": lambda: seal(
        payload([STUMP], used=(0, 1), features=2), features=2
    ),
    "NonFinite--threshold-grid-from-nan": lambda: seal(floats(math.nan, 1.0)),
    "NonFinite--threshold-grid-to-infinity": lambda: seal(floats(0.0, math.inf)),
    "NonFinite--leaf-grid-from-minus-infinity": lambda: seal(floats(0.0, 1.0, -math.inf, 1.0)),
    "NonFinite--base-nan": lambda: seal(floats(0.0, 1.0, 0.0, 1.0, math.nan), flags=LOGISTIC),
    "NonCanonical--double-where-single-is-enough": lambda: one_leaf(64, 0xBFE0 << 48),  # 0.5
    "NonCanonical--fraction-where-single-is-enough": lambda: one_leaf(24, 1),  # 1 / 1
    "NonCanonical--fraction-not-in-lowest-terms": lambda: one_leaf(
        24, (6 - 1) * (6 + 2) // 2 + 2
    ),  # 2 / 6
    "NonCanonical--negative-zero": lambda: one_leaf(32, 2**31 - 1),
}
for _name, _make in PLAIN.items():
    attack(*_name.split("--"))(_make)


@attack("Magic", "pickle-that-runs-a-command")
def _() -> bytes:
    class Command:
        def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
            import os  # noqa: PLC0415

            return os.system, ("touch pwned",)

    return pickle.dumps(Command())


# Headers that lie about a valid payload, under a valid checksum.

LIES = {
    "Version--next": {"version": 2},
    "Version--zero": {"version": 0},
    "Truncated--payload-of-4-gigabytes": {"size": 2**32 - 1},
    "Header--unknown-kind": {"kind": 9},
    "Header--unknown-flag": {"flags": 0x80},
    "Header--flag-of-another-kind": {"flags": 4},
    "Header--network-flag-of-exact-models": {"kind": NETWORK, "flags": 8},
    "Header--activation-of-a-linear-model": {"kind": NETWORK, "flags": 1},
    "Header--network-of-two-widths": {"kind": NETWORK, "bits": (2, 3)},
    "Header--17-bits": {"bits": (17, 2)},
    "Header--half-exact": {"bits": (0, 2)},
    "Header--no-features": {"features": 0},
    "Header--no-trees": {"parts": 0},
    "Header--no-nodes": {"items": 0},
    "Header--more-trees-than-nodes": {"parts": 5},
    "Header--even-number-of-nodes": {"items": 4},
    "Limit--4-billion-nodes": {"items": 2**32 - 1},
    "Limit--a-million-nodes-in-few-bytes": {"items": 2**20 - 1},
    "Limit--nine-layers": {"kind": NETWORK, "parts": 9, "items": 99},
    "Structure--fewer-nodes-than-announced": {"items": 5},
}
for _name, _lie in LIES.items():
    attack(*_name.split("--"))(partial(lambda lie: seal(valid()[28:], **lie), _lie))


# Damaged messages.


@attack("Checksum", "one-bit")
def _() -> bytes:
    data = bytearray(valid())
    data[-1] ^= 1
    return bytes(data)


@attack("Checksum", "zero")
def _() -> bytes:
    data = valid()
    return data[:24] + bytes(4) + data[28:]


@attack("Limit", "257-levels")
def _() -> bytes:
    depth, cap = 257, forests.MAX_DEPTH
    chain = [node for f in range(depth) for node in ((f, 0), (LEAF, f % 2))] + [(LEAF, 2)]
    forests.MAX_DEPTH = depth + 1
    try:
        data = payload([chain], used=tuple(range(depth)), features=depth)
    finally:
        forests.MAX_DEPTH = cap
    return seal(data, features=depth, items=len(chain))


# Payloads that contradict their header or themselves.


@attack("Truncated", "payload-without-its-end")
def _() -> bytes:
    long = [[(0, 1), (0, 0), (LEAF, 0), (LEAF, 1), (0, 2), (LEAF, 2), (LEAF, 3)]] * 9
    return seal(payload(long)[:-2], parts=9, items=63)


@attack("Structure", "more-nodes-than-announced")
def _() -> bytes:
    deeper = [(0, 1), (0, 0), (LEAF, 0), (LEAF, 1), (LEAF, 2)]
    return seal(payload([deeper]), items=3)


@attack("Structure", "siblings-that-can-only-be-equal")
def _() -> bytes:
    # One leaf value, and a split all the same.
    coder, one = Encoder(), Uniform(1.0, 1.0, 2)
    code_used(coder, (0,), 1, most=1)
    code_uniform(coder, UNIT, 2)
    code_uniform(coder, one, 2)
    structure = FrequencyTable("structure")
    coder.bit(structure, 0, 1)
    symbol(coder, FrequencyTable("threshold"), 1, 2)
    for slot in (1 * 4 + 1, 1 * 4):
        coder.bit(structure, slot, 0)
    return seal(coder.finish())


@attack("Structure", "exact-mean-of-values-below-zero")
def _() -> bytes:
    coder, table = Encoder(), FrequencyTable(STREAM)
    code_used(coder, (), 1, most=1)
    code_list(coder, [-1.0], table, 1)
    code_trees(coder, Shape(1, 1, [], 1, False), [[(LEAF, 0)]])
    return seal(coder.finish(), bits=(0, 0), items=1)


@attack("Structure", "lattice-with-an-impossible-step")
def _() -> bytes:
    coder = Encoder()
    code_used(coder, (0,), 1, most=1)
    signed(coder, FrequencyTable(STREAM), 1 << 40)
    signed(coder, FrequencyTable(STREAM), 0)
    return seal(coder.finish(), flags=PER_FEATURE)


@attack("Structure", "lattice-far-from-home")
def _() -> bytes:
    coder = Encoder()
    code_used(coder, (0,), 1, most=1)
    signed(coder, FrequencyTable(STREAM), 0)
    signed(coder, FrequencyTable(STREAM), -(1 << 30))
    return seal(coder.finish(), flags=PER_FEATURE)


@attack("Structure", "list-longer-than-the-forest")
def _() -> bytes:
    coder, table = Encoder(), FrequencyTable(STREAM)
    code_used(coder, (0,), 1, most=1)
    integer(coder, table, 2**64 - 1)
    return seal(coder.finish(), bits=(0, 0))


@attack("Structure", "list-beyond-the-largest-number")
def _() -> bytes:
    coder, table = Encoder(), FrequencyTable(STREAM)
    code_used(coder, (0,), 1, most=1)
    integer(coder, table, 1)
    coder.uniform(0, 2, STREAM)
    code_float(coder, 1.0, 64)
    integer(coder, table, 2**63)
    return seal(coder.finish(), bits=(0, 0), items=5)


@attack("Structure", "network-with-too-few-weights")
def _() -> bytes:
    return seal(
        encode(uniform(Linear([1.0, 2.0], 0.0), 2))[28:], kind=NETWORK, features=2, items=4
    )


@attack("Structure", "network-with-2-to-the-64-units")
def _() -> bytes:
    coder = Encoder()
    signed(coder, FrequencyTable(STREAM), 0)
    signed(coder, FrequencyTable(STREAM), 0)
    integer(coder, FrequencyTable(STREAM), 2**64 - 1)
    return seal(coder.finish(), kind=NETWORK, parts=2, items=4)


@attack("Structure", "network-with-an-impossible-exponent")
def _() -> bytes:
    coder = Encoder()
    signed(coder, FrequencyTable(STREAM), 4000)
    return seal(coder.finish() + bytes(9), kind=NETWORK, items=2)


@attack("Structure", "scale-of-zero")
def _() -> bytes:
    coder = Encoder()
    for number in (0.0, 1.0, 0.0):  # scale, weight, bias
        coder.uniform(1, 2, STREAM)
        code_float(coder, number, 32)
    return seal(coder.finish(), kind=NETWORK, flags=8, bits=(0, 0), items=2)


# Numbers that are none.


@attack("NonFinite", "listed-infinity")
def _() -> bytes:
    coder, table = Encoder(), FrequencyTable(STREAM)
    code_used(coder, (0,), 1, most=1)
    integer(coder, table, 1)
    coder.uniform(1, 2, STREAM)
    largest = float(np.finfo(np.float32).max)
    code_float(coder, largest, 32)
    integer(coder, table, 0)
    return seal(coder.finish(), bits=(0, 0), items=5)


@attack("NonFinite", "weight-nan")
def _() -> bytes:
    coder = Encoder()
    coder.uniform(1, 2, STREAM)
    raw(coder, 2**32 - 1, 32, STREAM)
    return seal(coder.finish() + bytes(4), kind=NETWORK, bits=(0, 0), items=2)


# Valid models in another spelling.


@attack("NonCanonical", "trees-out-of-order")
def _() -> bytes:
    # Equal roots, so the coder itself lets them stand in either order.
    pair = [[(0, 1), (LEAF, 2), (LEAF, 1)], [(0, 1), (LEAF, 0), (LEAF, 1)]]
    return seal(payload(pair), parts=2, items=6)


@attack("NonCanonical", "feature-used-nowhere")
def _() -> bytes:
    two = [[(0, 1), (LEAF, 2), (LEAF, 1)], [(0, 2), (LEAF, 0), (LEAF, 1)]]
    return seal(payload(two, used=(0, 1), features=2), parts=2, items=6, features=2)


@attack("NonCanonical", "width-of-absent-thresholds")
def _() -> bytes:
    data = payload([[(LEAF, 3)]], used=(), thresholds=None)
    return seal(data, bits=(7, 2), items=1)


@attack("NonCanonical", "another-last-byte")
def _() -> bytes:
    # The last range holds several values; the first that ends in zeros is the legal one.
    for left, right in permutations(range(4), 2):
        data = bytearray(payload([[(0, 0), (LEAF, left), (LEAF, right)]]))
        data[-1] = (data[-1] + 1) % 256
        try:
            decode(seal(bytes(data)))
        except NonCanonicalError:
            return seal(bytes(data))
        except WireError:
            continue
    raise AssertionError("every last range is too narrow")


@attack("NonCanonical", "listed-number-used-nowhere")
def _() -> bytes:
    coder, table = Encoder(), FrequencyTable(STREAM)
    code_used(coder, (), 1, most=1)
    code_list(coder, [0.25, 0.5], table, 2)
    code_trees(coder, Shape(2, 2, [], 2, False), [[(LEAF, 0)], [(LEAF, 0)]])
    return seal(coder.finish(), bits=(0, 0), parts=2, items=2)


@attack("Structure", "bomb-in-a-blanket")
def _() -> bytes:
    # Numbers that nobody uses make the payload long enough for 10,000 equal trees.
    coder = Encoder()
    code_used(coder, (), 1, most=1)
    code_list(coder, [i / 512 for i in range(100)], FrequencyTable(STREAM), 100)
    code_trees(coder, Shape(10_000, 10_000, [], 100, False), [[(LEAF, 0)]] * 10_000)
    return seal(coder.finish(), bits=(0, 0), parts=10_000, items=10_000)


@attack("NonCanonical", "single-threshold-in-double")
def _() -> bytes:
    # No row of single precision can tell this threshold from the float32 below it.
    model = Forest([0, -1, -1], [0.1, 0, 0], [1, 1, 2], [0, 0.25, 0.5], [0], 1, single=False)
    return seal(encode(model)[28:], flags=4, bits=(0, 0))


def main() -> None:
    """Write every file and remove those that no function makes any more."""
    for path in HERE.glob("*.bin"):
        path.unlink()
    for name, make in ATTACKS.items():
        (HERE / name).write_bytes(make())


if __name__ == "__main__":
    main()
