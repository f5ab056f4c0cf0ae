"""What is fuzzed: for every format valid inputs, changes with right checksums, and a judge.

A judge returns a word for how an input ended, a named error or what was read. Anything else that
is raised is a fault. A change of bytes alone would end at a checksum, so checksums, hashes and
lengths are made right again in most inputs, and the parsers behind them are reached.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from conovel.errors import (
    ConovelError,
    FederationError,
    InputError,
    MalformedMessageError,
    SavedFileError,
    VersionMismatchError,
    WireError,
)
from conovel.models.wire import decode, encode
from conovel.models.wire.header import SIZE
from fuzz import mutation, valid

CORPUS = Path(__file__).parent / "corpus"
# Large counts are slow to read and rarely show anything new: masks for the high bytes of
# features, of trees or layers, and of nodes or weights.
SMALL = {9: 0, 11: 0, 13: 1, 14: 0, 15: 0}


@dataclass(frozen=True)
class Format:
    """One format."""

    inputs: Callable[[], list[Any]]  # valid ones
    change: Callable[[Random, Any], Any]
    judge: Callable[[Any], str]


def reseal_model(message: bytes) -> bytes:
    """Put payload length and checksum of a model right."""
    if len(message) < SIZE:
        return message
    message = b"cnv\x01" + message[4:16] + struct.pack("<I", len(message) - SIZE) + message[20:]
    checksum = zlib.crc32(message[: SIZE - 4] + message[SIZE:])
    return message[: SIZE - 4] + struct.pack("<I", checksum) + message[SIZE:]


def keep_small(message: bytes) -> bytes:
    """Take the high bytes of the counts of a model away."""
    changed = bytearray(message)
    if len(changed) >= SIZE:
        for offset, mask in SMALL.items():
            changed[offset] &= mask
    return bytes(changed)


def change_model(random: Random, message: bytes) -> bytes:
    """Change bytes of a model; one in sixteen keeps a wrong checksum."""
    changed = keep_small(mutation.of_bytes(random, message))
    return reseal_model(changed) if random.randrange(16) else changed


def judge_model(message: bytes) -> str:
    """Decode to an error, or to the model whose only spelling this is."""
    try:
        model = decode(message)
    except WireError as error:
        return type(error).__name__
    if encode(model, schema=message[20:24]) != message:
        raise AssertionError("decoded to a model with another spelling")
    if not np.isfinite(model.score(np.zeros((1, model.n_features)))).all():
        raise AssertionError("a score that is not finite")
    return type(model).__name__


def change_message(random: Random, data: bytes) -> bytes:
    """Change bytes of a message, and put length and checksum right in most."""
    from conovel.protocol.messages import CHECKED_BYTES, HEADER  # noqa: PLC0415

    changed = mutation.of_bytes(random, data)
    if len(changed) < HEADER.size or not random.randrange(16):
        return changed
    *fields, _, _ = HEADER.unpack(changed[: HEADER.size])
    payload = changed[HEADER.size :]
    head = HEADER.pack(*fields, len(payload), 0)
    checksum = zlib.crc32(payload, zlib.crc32(head[:CHECKED_BYTES]))
    return HEADER.pack(*fields, len(payload), checksum) + payload


def judge_message(data: bytes) -> str:
    """Decode to an error, or to a message that has these very bytes."""
    from conovel.protocol import messages  # noqa: PLC0415

    try:
        message = messages.decode(data)
    except (MalformedMessageError, VersionMismatchError) as error:
        return type(error).__name__
    if messages.encode(message) != data:
        raise AssertionError("decoded to a message with another spelling")
    return message.body.kind.name


def judge_run(plain: Any) -> str:
    """Verify a run: sentences, and nothing raised."""
    from conovel.protocol.not_checked import not_checked  # noqa: PLC0415
    from conovel.protocol.replay import verify  # noqa: PLC0415

    found = verify(plain)
    if not all(isinstance(one, str) and one for one in found):
        raise AssertionError("a finding that is no sentence")
    if found:
        return "does not hold"
    list(not_checked(plain))
    return "holds"


def change_detector(random: Random, data: bytes) -> bytes:
    """Change the header as a tree, or bytes anywhere; length and checksum are right."""
    from conovel.runs.kept_file import _START  # noqa: PLC0415

    content = data[:-32]
    magic, version, size = _START.unpack_from(content)
    header, body = content[_START.size : _START.size + size], content[_START.size + size :]
    if random.randrange(4):
        header = mutation.as_json(mutation.of_tree(random, json.loads(header)))
        if not random.randrange(4):
            body = mutation.of_bytes(random, body)
        content = _START.pack(magic, version, len(header)) + header + body
    else:
        content = mutation.of_bytes(random, content)
    return content + hashlib.sha256(content).digest()


def judge_detector(data: bytes) -> str:
    """Read a detector and score a row, or get an error."""
    from conovel.runs.kept import KeptDetector  # noqa: PLC0415

    try:
        kept = KeptDetector.from_bytes(data)
        scores = kept.fitted.score(np.zeros((2, kept.n_features)))
    except (SavedFileError, InputError) as error:
        return type(error).__name__
    if not np.isfinite(scores).all():
        return "scores that are not finite"
    return "read"


def change_ledger(random: Random, plain: Any) -> Any:
    """Change a ledger as a tree, with the right checksum in most."""
    from conovel.runs.ledger_file import _checksum  # noqa: PLC0415

    changed = mutation.of_tree(random, plain)
    if isinstance(changed, dict) and random.randrange(16):
        changed.pop("checksum", None)
        changed["checksum"] = _checksum(changed)
    return changed


def judge_ledger(plain: Any) -> str:
    """Read a ledger and its list, or get an error."""
    from conovel.runs.ledger_file import ledger_of_plain, list_columns  # noqa: PLC0415

    try:
        ledger = ledger_of_plain(json.loads(json.dumps(plain)), Path("ledger.json"))
    except SavedFileError:
        return "SavedFileError"
    list_columns(ledger)
    return "read"


def change_verdicts(random: Random, entries: Any) -> Any:
    """Change entries as trees; digests of samples are right in most."""
    from conovel.runs.verdict_file import _unpacked, sample_digest  # noqa: PLC0415

    changed = mutation.of_tree(random, entries)
    for entry in changed if isinstance(changed, list) and random.randrange(8) else ():
        if isinstance(entry, dict) and entry.get("entry") == "sample":
            try:
                entry["digest"] = sample_digest(_unpacked(entry["rows"]))
            except (SavedFileError, KeyError, TypeError):
                continue
    return changed if isinstance(changed, list) else entries


def judge_verdicts(entries: Any) -> str:
    """Chain entries with right hashes, read them, and ask for all that they say."""
    from conovel.report.verdicts import picture_of  # noqa: PLC0415
    from conovel.rows.chained_lines import START, as_line  # noqa: PLC0415
    from conovel.runs.verdicts import Verdicts  # noqa: PLC0415

    lines, previous = [], START
    for number, entry in enumerate(entries, 1):
        try:
            lines.append(as_line(entry if isinstance(entry, dict) else {}, number, previous))
        except ValueError:  # no JSON
            return "not written"
        previous = lines[-1][9:73].decode()

    def read(path: Path) -> None:
        verdicts = Verdicts(path)
        picture_of(verdicts.summary())
        verdicts.known_rows(), verdicts.train_only_rows()
        is_frame = any(one.columns is not None for one in verdicts.batches)
        verdicts.spent(valid.known_normals(is_frame=is_frame))

    return _judge_file("site.verdicts", b"".join(lines), read)


def judge_verdict_table(text: str) -> str:
    """Read a CSV of verdicts."""
    from conovel.runs.verdict_tables import read_verdicts  # noqa: PLC0415

    return _judge_file("verdicts.csv", text.encode(errors="replace"), read_verdicts)


def judge_clean_list(text: str) -> str:
    """Read a list of known normals to look at."""
    from conovel.runs.clean_list import read_list  # noqa: PLC0415

    table = valid.clean_normals()
    data = text.encode(errors="replace")
    return _judge_file("look.csv", data, lambda path: read_list(path, table, 3).verdicts)


def judge_site(text: str) -> str:
    """Read a site.toml."""
    from conovel.federation.settings import read_site  # noqa: PLC0415

    return _judge_file("site.toml", text.encode(errors="replace"), read_site)


def judge_federation(text: str) -> str:
    """Read a federation.toml."""
    from conovel.federation.settings import read_federation  # noqa: PLC0415

    return _judge_file("federation.toml", text.encode(errors="replace"), read_federation)


def judge_schema(text: str) -> str:
    """Read a schema, and write it again."""
    from conovel.spec.schema import Schema  # noqa: PLC0415

    try:
        schema = Schema.from_toml(text)
    except InputError:
        return "InputError"
    if Schema.from_toml(schema.to_toml()) != schema:
        raise AssertionError("another schema when it is written and read again")
    return "read"


def judge_terms(plain: Any) -> str:
    """Read the terms of a run, and write them again."""
    from conovel.federation.terms import Terms  # noqa: PLC0415

    try:
        terms = Terms.from_dict(json.loads(json.dumps(plain)))
    except InputError:
        return "InputError"
    if Terms.from_dict(terms.to_dict()) != terms:
        raise AssertionError("other terms when they are written and read again")
    return "read"


def judge_json(text: str) -> str:
    """Parse JSON, and make the limits of a site of it."""
    from conovel.federation.consent import Limits  # noqa: PLC0415
    from conovel.spec.records import as_record, read_json  # noqa: PLC0415

    try:
        as_record(Limits, read_json(text.encode(errors="replace"), "consent.json"))
    except InputError as error:
        str(error)
        return "InputError"
    return "read"


def change_signed(random: Random, der: bytes) -> bytes:
    """Change what an authority or a party has signed, and sign it again in most."""
    if not random.randrange(4):
        return mutation.of_bytes(random, der)
    return valid.signed_again(der, lambda content: mutation.of_bytes(random, content))


def judge_certificate(data: bytes) -> str:
    """Read a certificate, and look for objections to it."""
    from conovel.federation.certificates import (  # noqa: PLC0415
        NO_ROLE,
        Authority,
        load_certificate,
    )

    try:
        certificate = load_certificate(data)
    except InputError:
        return "InputError"
    objection = Authority(valid.root()).objection(certificate, "north", NO_ROLE)
    return "read" if not objection else "objection"


def judge_request(data: bytes) -> str:
    """Read a request for a certificate."""
    from conovel.federation.enrolment import read_request  # noqa: PLC0415

    pem = valid.as_pem(data, "CERTIFICATE REQUEST")
    return _judge_file("north.csr", pem, lambda path: read_request(path, valid.plan()))


def judge_revoked(data: bytes) -> str:
    """Read a list of revoked certificates."""
    from conovel.federation.certificates import read_revoked  # noqa: PLC0415

    pem = valid.as_pem(data, "X509 CRL")
    return _judge_file("revoked.pem", pem, lambda path: read_revoked(path, valid.root()))


def change_log(random: Random, entries: Any) -> Any:
    """Change entries as trees."""
    changed = mutation.of_tree(random, entries)
    return changed if isinstance(changed, list) else entries


def judge_log(entries: Any) -> str:
    """Chain entries with right hashes, read them, and add up what they say."""
    from conovel.cli.audit import _content, _facts, _table  # noqa: PLC0415
    from conovel.federation.audit_log import as_line, read_chain  # noqa: PLC0415
    from conovel.federation.exposure import (  # noqa: PLC0415
        exposure_of,
        runs_of,
        runs_spent,
        spent_by_set,
    )
    from conovel.rows.chained_lines import START  # noqa: PLC0415

    lines, previous = [], START
    for number, entry in enumerate(entries, 1):
        try:
            lines.append(as_line(entry if isinstance(entry, dict) else {}, number, previous))
        except (ValueError, FederationError):  # no JSON, or too long for a line
            return "not written"
        previous = lines[-1][9:73].decode()
    chain = read_chain(lines)
    found, runs = exposure_of(chain.entries), runs_of(chain.entries)
    spent = spent_by_set(runs)
    runs_spent(runs, "")
    json.dumps(_content("north", chain, found, runs, "", spent))
    _facts("north", Path("audit.jsonl"), chain, found, "")
    _table(runs)
    [str(one) for one in spent.values()]
    return "broken" if chain.broken else "read"


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


def _judge_file(name: str, data: bytes, read: Callable[[Path], object]) -> str:
    path = Path(_folder().name) / name
    path.write_bytes(data)
    try:
        read(path)
    except ConovelError as error:
        str(error)
        return type(error).__name__
    return "read"


def _models() -> list[bytes]:
    return [path.read_bytes() for path in sorted(CORPUS.glob("*.cnv"))]


FORMATS: dict[str, Format] = {
    "models": Format(_models, change_model, judge_model),
    "messages": Format(valid.messages, change_message, judge_message),
    "transcripts": Format(valid.runs, mutation.of_tree, judge_run),
    "detectors": Format(valid.detectors, change_detector, judge_detector),
    "ledgers": Format(valid.ledgers, change_ledger, judge_ledger),
    "verdicts": Format(valid.verdicts, change_verdicts, judge_verdicts),
    "verdict-tables": Format(valid.verdict_tables, mutation.of_text, judge_verdict_table),
    "clean-lists": Format(valid.clean_lists, mutation.of_text, judge_clean_list),
    "site": Format(valid.sites, mutation.of_text, judge_site),
    "federation": Format(valid.federations, mutation.of_text, judge_federation),
    "schemas": Format(valid.schemas, mutation.of_text, judge_schema),
    "records": Format(valid.records, mutation.of_text, judge_json),
    "terms": Format(valid.terms, mutation.of_tree, judge_terms),
    "certificates": Format(valid.certificates, change_signed, judge_certificate),
    "requests": Format(valid.requests, change_signed, judge_request),
    "revoked": Format(valid.revoked, change_signed, judge_revoked),
    "audit-log": Format(valid.logs, change_log, judge_log),
}
