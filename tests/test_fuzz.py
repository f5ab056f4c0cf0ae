"""Hostile inputs of every format, a few with fixed seeds; see fuzz/README.md."""

import json
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest

import conovel as cn
from conovel.errors import (
    FederationError,
    InputError,
    ModelError,
    SavedFileError,
)
from conovel.federation.audit_log import as_line, read_chain
from conovel.federation.certificates import read_revoked
from conovel.federation.enrolment import read_request
from conovel.rows.chained_lines import START
from conovel.rows.dialects import ReadingOptions
from conovel.runs import kept_file
from conovel.runs.ledger_file import _checksum, ledger_of_plain
from conovel.scorers.kept import Part, from_part
from conovel.spec.records import MAX_BYTES, read_toml
from conovel.spec.run_spec import RunSpec
from conovel.spec.schema import Schema
from fuzz import mutation, valid
from fuzz.formats import FORMATS
from fuzz.run import try_one

INPUTS = 250
# Words of which a run of so many inputs must have at least one: the parser was reached and passed.
PASSED = {"read", "holds", "Forest", "QuantizedForest", "HELLO", "HISTOGRAM", "CELLS", "objection"}


@pytest.mark.parametrize("name", FORMATS)
def test_changed_inputs_end_in_named_errors(name):
    outcomes = {try_one(name, seed) for seed in range(INPUTS)}
    assert len(outcomes) > 1  # some are refused, and some are read
    assert outcomes & PASSED


@pytest.mark.parametrize("name", FORMATS)
def test_the_inputs_that_are_changed_are_valid(name):
    ends = {FORMATS[name].judge(one) for one in FORMATS[name].inputs()}
    assert not {end for end in ends if end.endswith("Error")}
    assert ends.isdisjoint({"does not hold", "broken"})


def test_the_fuzzer_would_find_a_fault(monkeypatch):
    """With one check of the reader taken out, some input is no named error any more."""
    unchecked = lambda kind, plain, *_: SimpleNamespace(**plain)  # noqa: E731
    monkeypatch.setattr("conovel.runs.ledger_file.as_record", unchecked)

    def try_all():
        return [try_one("ledgers", seed) for seed in range(1000)]

    with pytest.raises((TypeError, AttributeError)):
        try_all()


# What was found, one test each.


@pytest.mark.parametrize("intercept", ["text", "1.5", None, True, 10**400, [1.0]])
def test_a_linear_detector_whose_intercept_is_no_number(intercept):
    part = Part("linear", "probability", {"intercept": intercept}, {"coef": np.zeros(2)})
    with pytest.raises(ModelError, match="intercept"):
        from_part(part, 2, "logistic")


def test_a_detector_of_very_many_parts_is_refused_before_any_is_built(monkeypatch):
    def nested(width, depth):
        inner = [nested(width, depth - 1) for _ in range(width)] if depth else []
        return {"kind": "folds", "scale": "ordinal", "settings": {}, "arrays": {}, "parts": inner}

    header = {
        "settings": {},
        "model": nested(12, 3),
        "arrays": [["f8", [1]], *[["f8", [0, 2]]] * 2],
    }
    data = mutation.as_json(header)
    content = kept_file._START.pack(kept_file.MAGIC, 2, len(data)) + data
    content += bytes(8)
    sealed = content + kept_file.hashlib.sha256(content).digest()
    monkeypatch.setattr(kept_file, "_part", lambda *_: pytest.fail("built"))
    with pytest.raises(SavedFileError, match="more than 1,000 parts"):
        kept_file.unpack(sealed)


@pytest.mark.parametrize("network", [[], [1], [1, 2, 3], [2, 10**6]])
def test_a_ledger_of_a_network_has_two_numbers(network, tmp_path):
    plain = json.loads(json.dumps(valid.ledgers()[-1]))
    plain["batches"][0]["network"] = network
    plain.pop("checksum")
    plain["checksum"] = _checksum(plain)
    with pytest.raises(SavedFileError, match="batch 1"):
        ledger_of_plain(plain, tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = " + "9" * 5000, "is not TOML: Exceeds the limit"),
        ("x = 0x" + "f" * 5000, "more than 64 bits"),
        ("x = 9223372036854775808", "more than 64 bits"),
        ("x = " + "[" * 5000, "is not TOML"),
        ("a." * 16 + "a = 1", "a key of more than 16 parts"),
        ("a . " * 16 + "a = 1", "a key of more than 16 parts"),
        ("['a'." + '"b\\"" .' * 16 + "c]", "a key of more than 16 parts"),
        ("x = {" + "a." * 16 + "a = 1}", "a key of more than 16 parts"),
        ("#" * (MAX_BYTES + 1), "more than 4,194,304 bytes"),
        (b"x = '\xff'", "not in UTF-8"),
    ],
)
def test_toml_is_bounded(text, words):
    with pytest.raises(InputError, match=words):
        read_toml(text, "site.toml")


def test_dots_in_texts_and_comments_separate_no_keys():
    dots = "a." * 40
    text = f"""# {dots}
x = "{dots}\\"{dots}" # {dots}
'{dots}' = '''
{dots}
'''
y = [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5]
{".".join("abcdefghijklmnop")} = 1
"""
    assert read_toml(text, "site.toml") == tomllib.loads(text)


def test_numbers_that_no_float_can_hold():
    with pytest.raises(InputError, match="fill must be a number, not a whole number of"):
        Schema.from_dict({"age": {"kind": "number", "fill": 10**400}})


@pytest.mark.parametrize("encoding", ["utf\0", "undefined", "no such"])
def test_an_encoding_that_is_none(encoding):
    with pytest.raises(InputError, match="no character encoding is called"):
        ReadingOptions(encoding=encoding)


@pytest.mark.parametrize(
    "settings",
    [
        {"bits": "compact:" + "9" * 5000},
        {"bits": 1 << 60_000},
        {"seed": 1 << 60_000},
        {"level": 1 << 60_000},
        {"liars": 1 << 60_000},
        {"regime": 1 << 60_000},
        {"on_dropout": 1 << 60_000},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_long_numbers_in_settings(settings):
    with pytest.raises(InputError, match=r"must|level"):
        RunSpec.of(**settings)


def test_a_long_seed_of_one_site():
    rows = np.zeros((20, 2))
    with pytest.raises(InputError, match="random_state must have at most 128 bits, not 60,001"):
        cn.AdaDetect(random_state=1 << 60_000).detect(rows, rows)


def with_version(der, at):
    """Set the version of a request or of a list, which is the first integer of the body."""
    start = der.index(at)
    return der[:start] + at[:-1] + b"\x07" + der[start + len(at) :]


def test_a_request_of_an_unknown_version(tmp_path):
    path = tmp_path / "north.csr"
    der = with_version(valid.requests()[0], b"\x02\x01\x00")
    path.write_bytes(valid.as_pem(der, "CERTIFICATE REQUEST"))
    with pytest.raises(FederationError, match="is not a request for a certificate"):
        read_request(path, valid.plan())


def test_a_list_of_revoked_certificates_of_an_unknown_version(tmp_path):
    path = tmp_path / "revoked.pem"
    der = with_version(valid.revoked()[0], b"\x02\x01\x01")
    path.write_bytes(valid.as_pem(der, "X509 CRL"))
    with pytest.raises(FederationError, match="is not a list of revoked certificates"):
        read_revoked(path, valid.root())


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (1, {"terms": 3}),
        (1, {"time": "yesterday"}),
        (1, {"time": "2026-01-01T00:00:00"}),
        (2, {"n_null": "many"}),
        (2, {"data": None}),
        (4, {"bytes": "9"}),
        (4, {"n_train": None}),
        (4, {"to": ["b"]}),
        (7, {"state": 0}),
        (8, {"run": {}}),
        (8, {"entry": 5}),
        (8, {"entry": "another", "run": {}}),
    ],
)
def test_an_entry_with_the_right_hash_and_wrong_fields(number, change):
    entries = json.loads(json.dumps(valid.logs()[0]))
    entries[number - 1] |= change
    lines, previous = [], START
    for n, entry in enumerate(entries, 1):
        lines.append(as_line(entry, n, previous))
        previous = lines[-1][9:73].decode()
    chain = read_chain(lines)
    assert (chain.broken, chain.why) == (number, "its fields are not those of an entry")
    assert len(chain.entries) == number - 1
