"""Models to bytes and back."""

import dataclasses
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.hostile_bytes import MODELS
from support.random_models import (
    forests,
    networks,
    plain_sums,
    random_forest,
    random_network,
    rows_for,
)

from conovel.errors import InputError, LimitError, ModelError, SchemaError
from conovel.models import wire
from conovel.models.forest import Forest
from conovel.models.linear import Dense
from conovel.models.quantized.forest import QuantizedForest, per_feature, quantized_forest, uniform
from conovel.models.wire import decode, describe, encode, schema_digest
from conovel.models.wire.header import SIZE
from conovel.models.wire.range_coder import BitCounter
from conovel.scorers.from_sklearn import to_flat

GOLDEN = Path(__file__).parent / "golden"


@st.composite
def quantized_forests(draw):
    model = draw(forests())
    if draw(st.booleans()):
        return uniform(model, draw(st.integers(1, 16)))
    return per_feature(model, draw(st.integers(1, 16)), draw(st.integers(1, 16)))


@given(quantized_forests(), st.binary(min_size=4, max_size=4))
def test_quantized_round_trip(model, schema):
    message = encode(model, schema=schema)
    read = decode(message, schema=schema)
    assert encode(read, schema=schema) == message
    assert read.trees == model.trees
    assert read.grids == model.grids
    assert (read.link, read.base, read.n_features) == (model.link, model.base, model.n_features)
    X = np.random.default_rng(0).normal(size=(50, model.n_features))
    assert (read.score(X) == model.score(X)).all()


@given(forests())
def test_exact_round_trip(model):
    message = encode(model)
    read = decode(message)
    assert isinstance(read, Forest)
    assert encode(read) == message
    assert (read.link, read.n_features) == (model.link, model.n_features)
    assert read.single == model.single
    assert read.base == (model.base if model.link == "logistic" else 0.0)
    X = rows_for(model)
    assert (plain_sums(read, X) == plain_sums(model, X)).all()
    assert (read.score(X) == model.score(X)).all()


@given(networks(), st.integers(1, 16))
def test_network_round_trip(model, bits):
    X = np.random.default_rng(0).normal(size=(20, model.n_features))
    for sent in (model, uniform(model, bits)):
        message = encode(sent)
        read = decode(message)
        assert type(read) is type(sent)
        assert encode(read) == message
        assert (read.score(X) == sent.score(X)).all()


def test_a_network_without_hidden_layers_is_linear():
    linear = random_network(0)
    weights, biases = (linear.coef[:, np.newaxis],), (np.array([linear.intercept]),)
    network = Dense(weights, biases, "tanh", linear.centre, linear.scale)
    assert encode(network) == encode(linear)
    assert encode(network, bits=5) == encode(linear, bits=5)


@given(forests(), st.integers(1, 16))
def test_bits_are_the_papers_quantizer(model, bits):
    assert encode(model, bits=bits) == encode(uniform(model, bits))


def test_quantizing_twice_is_refused():
    with pytest.raises(InputError, match="already"):
        encode(uniform(random_forest(0), 4), bits=4)


def test_single_precision_thresholds_round_down():
    """x <= t for every float32 x exactly as before, with half the bytes."""
    model = dataclasses.replace(random_forest(1, max_depth=1, split=1.0, n_trees=1), single=True)
    t = np.nextafter(np.float32(0.1), np.float32(1)).astype(np.float64) - 1e-12
    model = dataclasses.replace(model, threshold=np.where(model.feature >= 0, t, 0.0))
    read = decode(encode(model))
    assert read.threshold[0] == np.float32(0.1)
    double = dataclasses.replace(model, single=False)
    assert decode(encode(double)).threshold[0] == t
    assert len(encode(double)) == len(encode(model)) + 4


def test_a_deep_chain_keeps_its_order():
    """Full depth, every threshold different: codes are positions in sorted lists."""
    model = random_forest(11, n_trees=3, max_depth=60, split=0.55, n_features=4)
    read = decode(encode(model))
    X = rows_for(model, count=100)
    assert (plain_sums(read, X) == plain_sums(model, X)).all()


def test_schema():
    message = encode(uniform(random_forest(0), 4), schema=schema_digest(["a", "b", "c"]))
    decode(message)
    decode(message, schema=schema_digest(["a", "b", "c"]))
    with pytest.raises(SchemaError):
        decode(message, schema=schema_digest(["a", "c", "b"]))
    with pytest.raises(SchemaError):
        decode(encode(random_forest(0)), schema=schema_digest(["a", "b", "c"]))
    with pytest.raises(InputError):
        encode(random_forest(0), schema=b"long name")
    assert schema_digest(["ab", "c"]) != schema_digest(["a", "bc"])


def test_any_buffer_is_read():
    message = encode(random_forest(0))
    assert encode(decode(bytearray(message))) == message
    assert encode(decode(memoryview(message))) == message
    with pytest.raises(InputError, match="a model is bytes, not int"):
        decode(10**12)


def test_only_models_are_written():
    with pytest.raises(ModelError, match="str"):
        encode("a model")


def chain(depth):
    """One tree that splits to the right, each time on the next feature."""
    feature = np.array([i // 2 if i % 2 == 0 else -1 for i in range(2 * depth)] + [-1])
    inner = feature >= 0
    nodes = np.arange(len(feature))
    return Forest(
        feature=feature.astype(np.int32),
        threshold=np.zeros(len(feature)),
        left=np.where(inner, nodes + 1, nodes).astype(np.int32),
        value=np.where(inner, 0.0, nodes / len(nodes)),
        roots=np.array([0], dtype=np.int32),
        n_features=depth,
    )


def test_caps_on_what_is_sent(monkeypatch):
    assert encode(decode(encode(chain(256)))) == encode(chain(256))
    with pytest.raises(ModelError, match="deeper than 256"):
        encode(chain(257))
    with pytest.raises(ModelError, match="features"):
        encode(dataclasses.replace(random_forest(0), n_features=1 << 16))
    monkeypatch.setattr(wire.header, "MAX_ITEMS", 10)
    with pytest.raises(ModelError, match="nodes"):
        encode(random_forest(0, n_trees=20))
    monkeypatch.setattr(wire.header, "MAX_ITEMS", 1 << 20)
    monkeypatch.setattr(wire.header, "MAX_BYTES", 100)
    with pytest.raises(ModelError, match="bytes"):
        encode(random_forest(0, n_trees=20))


class Counting(BitCounter):
    """Counts decisions, not their bits."""

    n_decisions = 0

    def bit(self, table, slot, bit):
        self.n_decisions += 1
        return bit

    def uniform(self, value, total, stream):
        self.n_decisions += 1
        return value


@pytest.mark.parametrize("model", MODELS, ids=range(len(MODELS)))
def test_the_header_bounds_the_decisions_of_a_reader(model):
    coder = Counting()
    about = wire.write(coder, model)
    assert 0 < coder.n_decisions <= wire.header.most_decisions(about)


def test_a_model_of_more_decisions_than_a_reader_makes(monkeypatch):
    model = random_forest(0, n_trees=20)
    message = encode(model)
    about = wire.write(Counting(), model)
    monkeypatch.setattr(wire.header, "MAX_DECISIONS", wire.header.most_decisions(about))
    assert encode(decode(message)) == message
    monkeypatch.setattr(wire.header, "MAX_DECISIONS", wire.header.most_decisions(about) - 1)
    with pytest.raises(ModelError, match="decisions to read it are more than"):
        encode(model)
    monkeypatch.setattr(wire, "_read", None)  # refused before anything is read
    with pytest.raises(LimitError, match="decisions are more than"):
        decode(message)


def test_a_model_that_would_keep_readers_busy():
    """Thousands of equal trees cost next to nothing to send, but much to read."""
    stump = random_forest(1, n_trees=1, max_depth=1, split=1.0)
    grids = uniform(stump, 1).grids
    trees = uniform(stump, 1).trees
    encode(quantized_forest(trees * 1300, 3, grids, stump.link))
    with pytest.raises(ModelError, match="all the same"):
        encode(quantized_forest(trees * 10_000, 3, grids, stump.link))


def test_header_bytes():
    """The table of docs/wire.md, byte by byte."""
    model = per_feature(random_forest(4, n_trees=300, n_features=3), 4, 3)
    message = encode(model, schema=b"abcd")
    assert message[:3] == b"cnv"
    assert message[3:8] == bytes([1, 1, 2 | (model.link == "logistic"), 4, 3])
    assert int.from_bytes(message[8:10], "little") == 3
    assert int.from_bytes(message[10:12], "little") == 300
    assert int.from_bytes(message[12:16], "little") == len(model.feature)
    assert int.from_bytes(message[16:20], "little") == len(message) - 28
    assert message[20:24] == b"abcd"
    assert int.from_bytes(message[24:28], "little") == zlib.crc32(message[:24] + message[28:])


@given(quantized_forests())
@settings(max_examples=30)
def test_describe(model):
    about = model.describe()
    message = encode(model)
    assert about["kind"] == "forest"
    assert about["trees"] == model.n_trees
    assert about["nodes"] == len(model.feature) == 2 * about["leaves"] - about["trees"]
    assert about["bytes"] == {"header": SIZE, "payload": len(message) - SIZE}
    spent = sum(about["bits_per_node"].values()) * about["nodes"] / 8
    assert spent - 3 <= about["bytes"]["payload"] <= spent + 2
    t, v = about["bits"]
    n = about["leaves"]
    assert about["paper_bytes"] == pytest.approx(
        ((n - about["trees"]) * (t + 2.33) + n * (v + 2.33)) / 8
    )


def test_describe_network():
    about = describe(uniform(random_network(0, n_features=3, hidden=(5,)), 6))
    assert (about["kind"], about["layers"], about["weights"]) == ("dense", 2, 26)
    assert about["bits_per_weight"]["weight"] == pytest.approx(6, abs=1)
    assert about["paper_bytes"] == 26 * 6 / 8
    assert describe(random_network(0))["kind"] == "linear"


def test_describe_exact():
    about = describe(random_forest(2))
    assert about["bits"] is None
    n = 2 * about["leaves"] - about["trees"]
    assert about["paper_bytes"] == pytest.approx(n * 66.33 / 8)


@pytest.mark.parametrize("name", sorted(p.stem for p in GOLDEN.glob("*.cnv")))
def test_golden(name):
    """The bytes of version 1 and the scores they give never change."""
    message = (GOLDEN / f"{name}.cnv").read_bytes()
    model = decode(message)
    assert encode(model) == message
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    scores = model.score(np.array(expected["rows"])).tolist()
    if expected["scores"] is not None:
        assert [float.hex(s) for s in scores] == expected["scores"]


def test_golden_files_exist():
    assert len(list(GOLDEN.glob("*.cnv"))) == len(list(GOLDEN.glob("*.json"))) == 15


def test_tally_agrees_with_the_encoder():
    model = uniform(random_forest(8, n_trees=30, max_depth=6), 5)
    tally = BitCounter()
    wire.write(tally, model)
    entropy = tally.entropy()
    assert set(entropy) == {"grid", "structure", "feature", "threshold", "leaf"}
    assert all(entropy[stream] <= tally.bits[stream] for stream in entropy)
    assert isinstance(decode(encode(model)), QuantizedForest)


@pytest.mark.parametrize(
    ("source", "target", "quantize"),
    [
        ("forest-exact", "forest-4-bit", lambda model: uniform(model, 4)),
        ("forest-exact", "forest-16-bit", lambda model: uniform(model, 16)),
        ("forest-exact", "forest-compact", lambda model: per_feature(model, 4, 3)),
        ("forest-exact-deep", "forest-1-bit", lambda model: uniform(model, 1)),
        ("forest-exact-deep", "forest-compact-deep", lambda model: per_feature(model, 6, 5)),
        ("linear-exact", "linear-6-bit", lambda model: uniform(model, 6)),
        ("dense-exact", "dense-4-bit", lambda model: uniform(model, 4)),
    ],
)
def test_golden_quantizers(source, target, quantize):
    """Quantizers are fixed: the same model becomes the same bytes for ever."""
    model = decode((GOLDEN / f"{source}.cnv").read_bytes())
    assert encode(quantize(model)) == (GOLDEN / f"{target}.cnv").read_bytes()


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(10, random_state=0),
        ExtraTreesClassifier(10, max_depth=5, random_state=0),
        GradientBoostingClassifier(n_estimators=10, random_state=0),
        HistGradientBoostingClassifier(max_iter=10, random_state=0),
        LogisticRegression(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), MLPClassifier((5,), max_iter=50, random_state=0)),
    ],
    ids=lambda estimator: repr(estimator).partition("(")[0] + str(len(repr(estimator))),
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fitted_models_survive_the_wire(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)) * [1, 10, 0.1, 5]
    flat = to_flat(estimator.fit(X, X[:, 0] + rng.normal(size=300) > 0))
    rows = rng.normal(size=(500, 4)) * [1, 10, 0.1, 5]
    assert (decode(encode(flat)).score(rows) == flat.score(rows)).all()
    surrogate = decode(encode(flat, bits=12))
    assert np.corrcoef(surrogate.score(rows), flat.score(rows))[0, 1] > 0.99
