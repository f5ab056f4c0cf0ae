"""A second reader, written from docs/wire.md alone, and held against the library.

Nothing above the line of dashes imports conovel. It trusts its input: refusing bad bytes is
the business of the library and of `test_attacks.py`.
"""

import math
import struct
import zlib
from collections import defaultdict
from itertools import pairwise


class Reader:
    def __init__(self, payload):
        self.payload, self.shifts = payload, 0
        self.code = int.from_bytes((payload + bytes(4))[:4], "big")
        self.range = 2**32

    def normalise(self):
        while self.range < 2**24:
            self.shifts += 1
            assert self.shifts < len(self.payload)
            following = self.payload[self.shifts + 3 : self.shifts + 4] or b"\0"
            self.code = self.code * 256 + following[0]
            self.range *= 256

    def bit(self, table, slot):
        zeros, ones = table[slot]
        split = self.range * zeros // (zeros + ones)
        b = int(self.code >= split)
        if b:
            self.code, self.range = self.code - split, self.range - split
        else:
            self.range = split
        if zeros + ones + 1 >= 2**16:
            zeros, ones = (zeros + 1) // 2, (ones + 1) // 2
        table[slot] = (zeros, ones + 1) if b else (zeros + 1, ones)
        self.normalise()
        return b

    def uniform(self, total):
        v = ((self.code + 1) * total - 1) // self.range
        start = self.range * v // total
        self.code, self.range = self.code - start, self.range * (v + 1) // total - start
        self.normalise()
        return v

    def symbol(self, table, n, possible=None, slots=256):
        possible = [range(2**n)] if possible is None else possible
        p = 1

        def some(start, stop):
            return any(max(r.start, start) < min(r.stop, stop) for r in possible)

        for level in range(n - 1, -1, -1):
            start = (p << (level + 1)) - 2**n
            middle = start + 2**level
            if not some(middle, middle + 2**level):
                b = 0
            elif not some(start, middle):
                b = 1
            else:
                b = self.bit(table, p) if p < slots else self.uniform(2)
            p = 2 * p + b
        assert some(p - 2**n, p - 2**n + 1)
        return p - 2**n

    def raw(self, n):
        value = 0
        while n:
            piece = min(n, 16)
            value, n = value << piece | self.uniform(2**piece), n - piece
        return value

    def integer(self, table):
        k = self.symbol(table, 7, [range(65)])
        return 2 ** (k - 1) + self.raw(k - 1) if k else 0

    def signed(self, table):
        u = self.integer(table)
        return -(u + 1) // 2 if u % 2 else u // 2

    def float(self, w):
        return number(self.raw(w), w)

    def floats(self, n):
        w = (64, 32)[self.uniform(2)]
        return [self.float(w) for _ in range(n)]

    def list(self, table, widths):
        n = self.integer(table) + 1
        w = widths[self.uniform(len(widths))]
        u = [self.raw(w)]
        while len(u) < n:
            u.append(u[-1] + self.integer(table) + 1)
        return [number(each, w) for each in u]


def number(u, w):
    if w == 24:
        n = (math.isqrt(8 * u + 9) - 1) // 2
        return (u - (n - 1) * (n + 2) // 2) / n
    bits = u ^ 2 ** (w - 1) if u >> (w - 1) else u ^ (2**w - 1)
    return struct.unpack(">f" if w == 32 else ">d", bits.to_bytes(w // 8, "big"))[0]


def new_table():
    return defaultdict(lambda: (1, 1))


def width(last):
    return max(last, 0).bit_length()


def shared(reader, bits):
    low, high = reader.float(32), reader.float(32)
    if low == high:
        return [low], lambda total, count: count * low + 0.0 * total
    steps = 2**bits - 1
    values = [low + (high - low) * t / steps for t in range(2**bits)]
    return values, lambda total, count: count * low + (high - low) * total / steps


def lattice(reader, step, tables, bits):
    step += reader.signed(tables[0])
    first = reader.signed(tables[1]) - 2 ** (bits - 1)
    size = (8 + step % 8) * 2.0 ** (step // 8 - 131)
    values = [(first + t) * size for t in range(2**bits)]
    return step, values, lambda total, count: (count * first + total) * size


def read_trees(reader, n_trees, sizes, n_values, ordered):
    structure, advance, roots, others = (new_table() for _ in range(4))
    thresholds, leaves = defaultdict(new_table), defaultdict(new_table)
    n = width(n_values - 1)
    trees, previous = [], None
    splits = 0

    def node(depth, bounds, side, sibling, owed):
        nonlocal splits
        alive = [range(f, f + 1) for f, (low, high) in enumerate(bounds) if low <= high]
        before = previous if depth == 0 else None
        if not alive:
            split = False
        elif before is not None and before[0] != "leaf":
            split = True
        elif splits < 16:
            split = reader.bit(structure, 4 * splits + min(owed, 3))
        else:
            kind = 0 if side == "left" else 1 if sibling[0] == "leaf" else 2
            split = reader.bit(structure, 64 + 3 * min(depth, 15) + kind)
        if not split:
            barred = sibling[1] if sibling and sibling[0] == "leaf" else None
            least = before[1] if before else 0
            if barred is None:
                which, possible = 16, [range(least, n_values)]
            else:
                which = barred >> max(n - 4, 0)
                possible = [range(barred), range(barred + 1, n_values)]
            return ("leaf", reader.symbol(leaves[which], n, possible, 2 ** min(n, 16)))
        splits += 1
        if depth == 0 and ordered:
            f = before[0] if before and before[0] != "leaf" else 0
            while f < len(sizes) - 1 and reader.bit(advance, 0):
                f += 1
        else:
            f = reader.symbol(others if depth else roots, width(len(sizes) - 1), alive)
        low, high = bounds[f]
        least = before[1] if before and before[0] == f else low
        t = reader.symbol(thresholds[f], width(sizes[f] - 1), [range(least, high + 1)])
        inside = [*bounds[:f], (low, t - 1), *bounds[f + 1 :]]
        left = node(depth + 1, inside, "left", None, owed + 1)
        inside[f] = (t + 1, high)
        return (f, t, left, node(depth + 1, inside, "right", left, owed))

    for _ in range(n_trees):
        splits = 0
        trees.append(node(0, [(0, size - 1) for size in sizes], "root", None, 0))
        previous = trees[-1] if ordered else None
    return trees


def leaf_code(tree, row, used, edges):
    while tree[0] != "leaf":
        f, t, left, right = tree
        tree = left if row[used[f]] <= edges[f][t] else right
    return tree[1]


def decay(x):
    x = -min(x, 708.0)
    k = round(x * float.fromhex("0x1.71547652b82fep+0"))
    high, low = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
    r = (x - k * high) - k * low
    s = 0.0
    for n in range(13, -1, -1):
        s = s * r + 1 / math.factorial(n)
    return math.ldexp(s, k)


def logistic(x):
    z = decay(abs(x))
    return (1.0 if x >= 0 else z) / (1.0 + z)


def tanh(x):
    z = decay(2 * abs(x))
    return (1.0 if x >= 0 else -1.0) * ((1.0 - z) / (1.0 + z))


def read_forest(reader, flags, b, c, features, n_trees):
    table = new_table()
    used = [f for f in range(features) if reader.bit(table, 0)]
    base = 0.0
    if b:
        if flags & 2:
            step, tables, edges = 1024, (new_table(), new_table()), []
            for _ in used:
                step, values, _ = lattice(reader, step, tables, b)
                edges.append(values)
            _, values, margin = lattice(reader, step, tables, c)
        else:
            edges = [shared(reader, b)[0]] * len(used) if used else []
            values, margin = shared(reader, c)
        if flags & 1:
            base = reader.float(32)
    else:
        if flags & 1:
            base = reader.float(64)
        table = new_table()
        edges = [reader.list(table, [64, 32]) for _ in used]
        values = reader.list(new_table(), [64, 32, 24])
    trees = read_trees(reader, n_trees, [len(e) for e in edges], len(values), b > 0)

    def score(row):
        if not b and flags & 4:
            row = [struct.unpack("f", struct.pack("f", x))[0] for x in row]
        codes = [leaf_code(tree, row, used, edges) for tree in trees]
        if b:
            total = margin(sum(codes), n_trees)
        else:
            total = base
            for t in codes:
                total += values[t]
        if not flags & 1:
            return total / n_trees
        return logistic(base + total) if b else logistic(total)

    return score


def read_network(reader, flags, b, features, n_layers):
    exponents = shifts = [0] * features
    if b:
        table = new_table()
        exponents = [reader.signed(table) for _ in range(features)]
        table = new_table()
        shifts = [reader.signed(table) for _ in range(features)]
    table, sizes = new_table(), [features]
    sizes += [reader.integer(table) + 1 for _ in range(n_layers - 1)] + [1]
    shapes = list(pairwise(sizes))
    table = new_table()

    def array(count):
        low = high = reader.float(32)
        if count > 1:
            high = reader.float(32)
        codes = [reader.symbol(table, b, slots=2**b) if low < high else 0 for _ in range(count)]
        return [low + (high - low) * t / (2**b - 1) for t in codes]

    centre, scale = [0.0] * features, [1.0] * features
    if b:
        pairs = [(array(p * q), array(q)) for p, q in shapes]
        weights, biases = zip(*pairs, strict=True)
    else:
        centre = reader.floats(features) if flags & 4 else centre
        scale = reader.floats(features) if flags & 8 else scale
        weights = [reader.floats(p * q) for p, q in shapes]
        biases = [reader.floats(q) for _, q in shapes]
    activation = [lambda x: x, lambda x: max(x, 0.0), logistic, tanh][flags & 3]

    def score(row):
        z = [(x - m) / s for x, m, s in zip(row, centre, scale, strict=True)]
        if b:
            z = [x * 2.0**-e - s / 16 for x, e, s in zip(row, exponents, shifts, strict=True)]
        for i, (p, q) in enumerate(shapes):
            if i:
                z = [activation(x) for x in z]
            total = [0.0] * q
            for j in range(p):
                total = [t + z[j] * w for t, w in zip(total, weights[i][j * q :], strict=False)]
            z = [t + bias for t, bias in zip(total, biases[i], strict=True)]
        return logistic(z[0])

    return score


def read(message):
    """Return the function from rows to scores that a message describes."""
    fields = struct.unpack("<3sBBBBBHHII4sI", message[:28])
    magic, version, kind, flags, b, c, features, parts, _, length, _, checksum = fields
    assert (magic, version, length) == (b"cnv", 1, len(message) - 28)
    assert checksum == zlib.crc32(message[:24] + message[28:])
    reader = Reader(message[28:])
    if kind == 1:
        score = read_forest(reader, flags, b, c, features, parts)
    else:
        score = read_network(reader, flags, b, features, parts)
    assert reader.shifts + 1 == length
    return score


# --------------------------------------------------------------------------------------------

from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from support.random_models import forests, networks, random_forest  # noqa: E402

from conovel.models.quantized.forest import per_feature, uniform  # noqa: E402
from conovel.models.wire import decode, encode  # noqa: E402


def compare(message, exact):
    model, score = decode(message), read(message)
    X = np.random.default_rng(1).normal(size=(15, model.n_features))
    theirs = [score(row) for row in X.tolist()]
    if exact:
        np.testing.assert_allclose(theirs, model.score(X), rtol=1e-9, atol=1e-300)
    else:
        assert theirs == model.score(X).tolist()


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "golden").glob("*.cnv")))
def test_golden_files(path):
    compare(path.read_bytes(), exact="exact" in path.stem)


@given(forests() | networks(), st.integers(1, 9))
@settings(max_examples=60)
def test_every_family(model, bits):
    compare(encode(model), exact=True)
    compare(encode(model, bits=bits), exact=False)


@given(forests(), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=60)
def test_lattices(model, bits, leaf_bits):
    compare(encode(per_feature(model, bits, leaf_bits)), exact=False)


def test_wide_codes_and_many_splits():
    model = random_forest(9, n_trees=3, max_depth=7, split=0.95)
    compare(encode(uniform(model, 11)), exact=False)
    compare(encode(model), exact=True)
