"""The audit log: every change is found, a killed writer is named, and nothing stops the next."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.errors import FederationError, FileError
from conovel.federation.audit_log import MAX_LINE, AuditLog, read_chain
from conovel.rows.chained_lines import INCOMPLETE


def make(path, n=3):
    log = AuditLog(path)
    for number in range(n):
        log.append({"entry": "noted", "run": f"{number:02}" * 16})
    return log


def lines_of(data):
    return data.splitlines(keepends=True)


def test_every_changed_byte_is_found(tmp_path):
    log = make(tmp_path / "audit.jsonl")
    whole = log.path.read_bytes()
    assert not log.read().broken
    at = 0
    for number, line in enumerate(lines_of(whole), 1):
        for place in range(at, at + len(line)):
            for other in (whole[place] ^ 1, ord("\n") if whole[place] != ord("\n") else ord(" ")):
                changed = whole[:place] + bytes([other]) + whole[place + 1 :]
                assert read_chain(lines_of(changed)).broken == number, place
        at += len(line)


def test_lines_that_are_removed_swapped_or_repeated_are_found(tmp_path):
    one, two, three = lines_of(make(tmp_path / "x").path.read_bytes())
    for lines in ([two, three], [one, three], [one, three, two], [one, one, two], [one, b"\n"]):
        assert read_chain(lines).broken, lines
    # What a chain cannot show: that there were more lines. The last hash tells.
    assert not read_chain([one, two]).broken
    assert read_chain([one, two]).last != read_chain([one, two, three]).last


def test_every_cut_within_a_line_is_found_and_gone_on_from(tmp_path):
    log = make(tmp_path / "audit.jsonl", 2)
    whole = log.path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in [*range(1, 30), *range(first - 3, first + 30), len(whole) - 2, len(whole) - 1]:
        log.path.write_bytes(whole[:end])
        found = log.read()
        complete = end in (first - 1, len(whole) - 1)  # nothing is missing but the end of the line
        if end == first:
            assert not found.broken
            continue
        assert found.broken == (1 if end < first else 2)
        assert found.why == "it is incomplete"
        log.append({"entry": "ended"})
        found = log.read()
        assert not found.broken
        assert found.incomplete == ([] if complete else [1 if end < first else 2])
        says = [entry["entry"] for entry in found.entries]
        assert says[-1] == "ended"
        assert (INCOMPLETE in says) is not complete
        assert whole[:end] in log.path.read_bytes()  # it stays


def test_broken_off_twice(tmp_path):
    log = make(tmp_path / "audit.jsonl", 1)
    with log.path.open("ab") as file:
        file.write(b'{"entry":"se\n{"entry":"incompl')
    log.append({"entry": "ended"})
    found = log.read()
    assert (found.broken, found.incomplete, len(found.entries)) == (0, [2, 3], 3)
    changed = log.path.read_bytes().replace(b'"se\n', b'"sa\n')
    assert read_chain(lines_of(changed)).broken == 2


@pytest.mark.parametrize("line", [b"{}\n", b"[[[[\n", b"\xff\n", b"x" * (4 * MAX_LINE)])
def test_a_last_line_that_was_changed_stops_runs(tmp_path, line):
    log = make(tmp_path / "audit.jsonl", 2)
    with log.path.open("ab") as file:
        file.write(line)
    assert log.read().broken == 3
    with pytest.raises(FederationError, match="move the file away"):
        log.append({"entry": "ended"})


def test_an_entry_that_speaks_of_no_incomplete_line_is_wrong(tmp_path):
    log = make(tmp_path / "audit.jsonl", 1)
    log.append({"entry": INCOMPLETE, "sha256": "0" * 64})
    assert log.read().broken == 2


def test_writers_at_once(tmp_path):
    log = AuditLog(tmp_path / "state" / "audit.jsonl")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: log.append({"entry": "noted", "n": n}), range(40)))
    found = log.read()
    assert sorted(entry["n"] for entry in found.entries) == list(range(40))
    assert not found.broken
    assert log.path.stat().st_mode & 0o777 == 0o600


WRITER = """
import sys
from pathlib import Path
from conovel.federation.audit_log import AuditLog
log = AuditLog(Path(sys.argv[1]))
print("up", flush=True)
while True:
    log.append(*({"entry": "filled", "fill": "x" * 20_000} for _ in range(50)), durable=False)
"""


def test_a_writer_that_is_killed_stops_nobody(tmp_path):
    path = tmp_path / "audit.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE
    ) as writer:
        writer.stdout.readline()
        while not path.exists() or path.stat().st_size < 1 << 20:
            assert writer.poll() is None
        os.kill(writer.pid, signal.SIGKILL)
    log = AuditLog(path)
    before = log.read()
    assert not before.broken or before.why == "it is incomplete"
    log.append({"entry": "ended"})
    after = log.read()
    assert not after.broken
    assert after.entries[-1]["entry"] == "ended"
    assert len(after.entries) >= len(before.entries) + 1


def test_an_entry_has_a_largest_size(tmp_path):
    with pytest.raises(FederationError, match="too long"):
        AuditLog(tmp_path / "x").append({"entry": "x" * MAX_LINE})
    assert not AuditLog(tmp_path / "x").read().entries


def test_a_log_that_cannot_be_read_or_written_is_named(tmp_path):
    (tmp_path / "audit.jsonl").mkdir()
    log = AuditLog(tmp_path / "audit.jsonl")
    with pytest.raises(FileError, match="cannot be read"):
        log.read()
    with pytest.raises(FileError, match="cannot be written"):
        log.append({"entry": "x"})


@given(st.binary(max_size=200))
def test_any_bytes_are_read_and_none_are_taken_for_a_log(data):
    found = read_chain(lines_of(data))
    assert found.entries == []
    assert bool(found.broken) is bool(data)
