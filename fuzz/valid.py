"""Valid inputs of every format, as conovel itself makes them: small, so that a change matters."""

from __future__ import annotations

import base64
import json
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    from conovel.federation.kits import FederationPlan

RUNS: tuple[dict[str, Any], ...] = (
    {"regime": "full"},
    {"regime": "counts"},
    {"regime": "joint"},
    {"regime": "counts", "counting": "rounds"},
    {"regime": "counts", "liars": 1},
    # Numbers under masks are other bytes each time; no parser looks into them.
    {"regime": "together", "masks": True},
)


def _rows(seed: int, n: int, novel: int = 0) -> np.ndarray[Any, Any]:
    rows = np.random.default_rng(seed).normal(size=(n, 2)).round(3)
    rows[:novel] += 5
    return rows


@cache
def _captured() -> tuple[list[bytes], list[Any]]:
    """Run small networks; keep a message of every kind and length, and the runs."""
    import conovel as cn  # noqa: PLC0415
    from conovel.protocol import messages as wire  # noqa: PLC0415
    from conovel.protocol.agent import Agent  # noqa: PLC0415
    from conovel.protocol.coordinator import Coordinator  # noqa: PLC0415

    found: dict[tuple[str, int], bytes] = {}
    takes = {cls: cls.take for cls in (Agent, Coordinator)}

    def listening(take: Any) -> Any:
        def listen(self: Any, message: Any, *more: Any) -> Any:
            data = wire.encode(message)
            found.setdefault((message.body.kind.name, len(data).bit_length()), data)
            return take(self, message, *more)

        return listen

    runs = []
    for cls, take in takes.items():
        cls.take = listening(take)  # type: ignore[method-assign]
    try:
        for options in RUNS:
            agents = [cn.Agent(f"a{k}", _rows(k, 80), _rows(9 + k, 30, 8)) for k in range(4)]
            run = cn.Network(agents, scorer="logistic", level=0.2, **options).run()
            runs.append(json.loads(json.dumps(run.to_dict())))
    finally:
        for cls, take in takes.items():
            cls.take = take  # type: ignore[method-assign]
    return [data for _, data in sorted(found.items())], runs


def messages() -> list[bytes]:
    """Messages of all kinds that a run sends."""
    return _captured()[0]


def runs() -> list[Any]:
    """Return runs as JSON."""
    return _captured()[1]


@cache
def detectors() -> list[bytes]:
    """Detectors that were kept: a linear one, a forest, a blend, one with known novelties."""
    from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415

    import conovel as cn  # noqa: PLC0415

    scorers = "logistic", RandomForestClassifier(3, max_depth=2), "refined-linear"
    made = [
        cn.AdaDetect(scorer, 0.2, random_state=0).keep(_rows(0, 120), _rows(1, 60, 9)).to_bytes()
        for scorer in scorers
    ]
    one_class = cn.AdaDetect("isolation-forest", 0.2, random_state=0)
    samples = _rows(0, 120), None, _rows(1, 9, 9)
    made.append(one_class.keep(*samples, explain=True, confidence=0.9).to_bytes())
    return [*made, _kept_with_strata().to_bytes()]


def _kept_with_strata() -> Any:
    import conovel as cn  # noqa: PLC0415

    rows = [np.column_stack([_rows(i, n), np.arange(n) % 2]) for i, n in ((0, 160), (1, 60))]
    return cn.AdaDetect("logistic", 0.2, strata=str(rows[0].shape[1] - 1)).keep(*rows)


@cache
def ledgers() -> list[Any]:
    """Ledgers of kept and of refitted scores, final or not, and of a network."""
    import conovel as cn  # noqa: PLC0415
    from conovel.runs.ledger_file import _checksum, ledger_as_plain  # noqa: PLC0415

    made = []
    kept = cn.AdaDetect("logistic", 0.2, random_state=0).keep(_rows(0, 120), _rows(1, 60, 9))
    for final in (False, True):
        ledger = cn.Ledger(0.2, final)
        for day in (2, 3):
            kept.detect(_rows(day, 40, 9), ledger=ledger, ids=[f"r{i}" for i in range(40)])
        made.append(ledger_as_plain(ledger))
    network = json.loads(json.dumps(made[0]))
    network["facts"]["score"] = "network"
    for batch in network["batches"]:
        batch["ranks"] = [1] * len(batch["ranks"])
        batch["network"] = [100, len(batch["rows"]) + 5]
    network.pop("checksum")
    network["checksum"] = _checksum(network)
    with_strata = cn.Ledger(0.2)
    rows = np.column_stack([_rows(2, 40, 9), np.arange(40) % 2])
    _kept_with_strata().detect(rows, ledger=with_strata)
    made.append(ledger_as_plain(with_strata))
    return [*json.loads(json.dumps(made)), network]


def known_normals(*, is_frame: bool) -> Any:
    """Return the known normals of a file of verdicts: numbers, or a frame with texts."""
    return _framed(_rows(0, 300)) if is_frame else _rows(0, 300)


def _framed(rows: np.ndarray[Any, Any]) -> Any:
    import pandas as pd  # noqa: PLC0415

    return pd.DataFrame(rows, columns=["a", "b"]).assign(c=["x", "y"] * (len(rows) // 2))


@cache
def verdicts() -> list[Any]:
    """Return the entries of a file of verdicts: of numbers, and of a frame with texts."""
    import tempfile  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    import conovel as cn  # noqa: PLC0415

    made = []
    for as_sample in (np.asarray, _framed):
        with tempfile.TemporaryDirectory() as folder:
            book = cn.Verdicts(Path(folder) / "site.verdicts")
            detector, normals = cn.AdaDetect("logistic", 0.2), _rows(0, 300)
            detector.detect(as_sample(normals), as_sample(_rows(1, 40, 9)), verdicts=book)
            book.add({name: "novel" for name in book.batches[0].ids[:3]}, who="ana")
            book.add({book.batches[0].ids[0]: "normal"}, who="ana")
            more = np.concatenate([normals, _rows(2, 300)])
            detector.detect(as_sample(more), as_sample(_rows(3, 40, 9)), verdicts=book)
            made.append([json.loads(line) for line in book.path.read_text().splitlines()])
    chain = ("hash", "line", "previous")
    return [[{k: v for k, v in one.items() if k not in chain} for one in own] for own in made]


def verdict_tables() -> list[str]:
    """CSV files of verdicts."""
    return [
        'id,verdict,kind,note\r\nt1,novel,mule account,\r\n\'=2,normal,,"a, b"\r\n',
        "row;verdict;site\n7;unclear;north\n",
    ]


def clean_normals() -> dict[str, Any]:
    """Return known normals as columns of texts, of which a list names some rows."""
    return {name: pa.chunked_array([["0.5", "-1", "=x"]]) for name in ("a", "verdict")}


def clean_lists() -> list[str]:
    """Return lists of known normals to look at, filled in."""
    from conovel.runs.clean_list import digest_of  # noqa: PLC0415

    ids = [f"row{row}-{digest_of(clean_normals(), row)}" for row in range(3)]
    return [
        "id,verdict,kind,note,suspicion,reasons,a\n"
        f'{ids[0]},novel,mule,"a, b",0.9,,0.5\n{ids[2]},,,,,,\n',
        f"verdict;id\nNormal;{ids[1]}\n unclear;{ids[0]}\n",
    ]


SITE = """\
[site]
name = "north"
kit = "kit"
results = "results"
keep_runs = 10
[data]
null = "normal.csv"
test = "today.csv"
columns = ["a", "b"]
id = "row"
memory = "1GB"
unpacked = "2GB"
exclude = ["c"]
set = "2026"
separator = ";"
decimal = ","
encoding = "cp1252"
na = ["-999"]
check = true
[model]
scorer = ["logistic"]
bits = "compact:300"
[list]
name = "month"
ledger = "month.json"
[consent]
regimes = ["full", "counts"]
max_level = "1/5"
min_agents = 2
max_bytes_in = 1000000
max_seconds = 100.5
min_train_rows = 20
max_bits = 4
max_peer_share = 2.5
max_epsilon = "4"
[metrics]
port = 9100
address = "127.0.0.1"
"""
FEDERATION = """\
[federation]
name = "hospitals"
sites = ["north", "south"]
[coordinator]
kit = "kit"
keep_runs = 10
[operator]
name = "ana@example.org"
kit = "operator"
[metrics]
port = 9100
"""
SCHEMA = """\
[columns.age]
kind = "number"
missing = true
fill = 0.5
low = 0.0
high = 120.0
[columns."big city"]
kind = "category"
levels = ["yes", "no"]
rare = ["perhaps"]
[columns.code]
kind = "category"
buckets = 8
[columns.when]
kind = "date"
parts = ["hour"]
[columns.id]
kind = "ignore"
"""


def sites() -> list[str]:
    """Return settings of a site."""
    return [SITE]


def federations() -> list[str]:
    """Return settings of a federation."""
    return [FEDERATION]


def schemas() -> list[str]:
    """Return a schema."""
    return [SCHEMA]


def records() -> list[str]:
    """Write limits of sites as JSON."""
    limits: list[dict[str, Any]] = [
        {"regimes": ["full", "joint"], "max_level": 0.1, "min_agents": 3},
        {"max_bits": "compact", "model_families": ["forest"], "max_peer_share": 2.5},
        {"max_epsilon": "1/2", "min_train_share": "own rule", "reveal_to": "members"},
    ]
    return [json.dumps(one) for one in limits]


def terms() -> list[Any]:
    """Terms of runs."""
    from conovel.federation.terms import Terms  # noqa: PLC0415
    from conovel.spec.run_spec import RunSpec  # noqa: PLC0415
    from conovel.spec.schema import Schema  # noqa: PLC0415

    specs = (
        RunSpec.of(regime="counts", level="1/10"),
        RunSpec.of(regime="full", bits=4, schema=Schema.from_toml(SCHEMA)),
        RunSpec.of(regime="full", privacy="4,1/1000000"),
    )
    return [json.loads(json.dumps(Terms(("north", "south"), spec).to_dict())) for spec in specs]


@cache
def _key() -> RSAPrivateKey:
    from cryptography.hazmat.primitives.asymmetric.rsa import (  # noqa: PLC0415
        generate_private_key,
    )

    return generate_private_key(public_exponent=65537, key_size=2048)


@cache
def root() -> x509.Certificate:
    """Return the certificate of an authority, which has the key of all parties here."""
    return _issue("authority", is_authority=True)


def _name(name: str) -> x509.Name:
    from cryptography import x509  # noqa: PLC0415

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _issue(name: str, *, is_authority: bool = False) -> x509.Certificate:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415

    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name("authority"))
        .public_key(_key().public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("north.example")]), False)
    )
    return built.sign(_key(), SHA256())


@cache
def certificates() -> list[bytes]:
    """Certificates of a site and of an authority."""
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    return [one.public_bytes(Encoding.DER) for one in (_issue("north"), root())]


@cache
def requests() -> list[bytes]:
    """Return a request for a certificate."""
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    kind = x509.NameAttribute(x509.NameOID.UNSTRUCTURED_NAME, "site")
    subject = x509.Name([*_name("north"), kind])
    built = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return [built.sign(_key(), SHA256()).public_bytes(Encoding.DER)]


@cache
def revoked() -> list[bytes]:
    """Return a list of revoked certificates."""
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    now = datetime.now(UTC)
    built = x509.CertificateRevocationListBuilder().issuer_name(_name("authority"))
    built = built.last_update(now).next_update(now + timedelta(days=30))
    for serial in (1, 2**90):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        built = built.add_revoked_certificate(entry.build())
    return [built.sign(_key(), SHA256()).public_bytes(Encoding.DER)]


def plan() -> FederationPlan:
    """Return the plan that a request is compared with."""
    from conovel.federation.kits import FederationPlan  # noqa: PLC0415

    return FederationPlan("hospitals", "localhost", ("north", "south"), ("ana@example.org",))


def as_pem(data: bytes, label: str) -> bytes:
    """Write DER as PEM."""
    lines = "\n".join(textwrap.wrap(base64.b64encode(data).decode(), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n".encode()


def signed_again(der: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Change what is signed of a certificate, a request or a list, and sign it again."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415

    outer = _value(der)
    content = _value(outer)
    rest = outer[len(_tagged(0x30, content)) :]
    algorithm = _tagged(0x30, _value(rest))
    body = _tagged(0x30, change(content))
    signature = _key().sign(body, PKCS1v15(), SHA256())
    return _tagged(0x30, body + algorithm + _tagged(0x03, b"\0" + signature))


def _value(der: bytes) -> bytes:
    """Return the content of the first element in DER."""
    size, start = der[1], 2
    if size & 0x80:
        start = 2 + (size & 0x7F)
        size = int.from_bytes(der[2:start], "big")
    return der[start : start + size]


def _tagged(tag: int, content: bytes) -> bytes:
    """Return an element in DER."""
    size = len(content)
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    head = bytes([size]) if size < 0x80 else bytes([0x80 | len(length)]) + length
    return bytes([tag]) + head + content


def logs() -> list[Any]:
    """Return the entries of an audit log."""
    about = {"run": "ab" * 16, "time": "2026-01-01T00:00:00+00:00"}
    return [
        [
            {**about, "entry": "begin", "operator": "ana", "terms": terms()[2]},
            {**about, "entry": "data", "data": "d", "n_null": 100, "n_test": 50, "set": "s"},
            {**about, "entry": "sent", "kind": "HELLO", "to": "coordinator", "bytes": 90},
            {**about, "entry": "sent", "kind": "MODEL", "to": "b", "bytes": 9, "n_train": 40},
            {**about, "entry": "received", "kind": "MODEL", "from": "b", "bytes": 9},
            {**about, "entry": "sent", "kind": "COUNT", "to": "coordinator", "bytes": 60},
            {**about, "entry": "end", "state": "done", "reason": ""},
            {**about, "entry": "refused", "run": "cd" * 16, "reason": "too high a level"},
        ]
    ]
