"""A person's consent to a run: a question in the record of the run, an answer in a file beside it.

A site with `ask_seconds` in its consent waits for a person before it sends its first message. The
question is a digest of the terms, of who signed them, and of a random number that is drawn when it
is put. An answer names its question, so none can be prepared, or used for another run. The first
answer counts. Question and answer go into the audit log.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from conovel.errors import ConovelError, FileError, InputError
from conovel.federation.run_records import RUN_ID, RUNNING, Record
from conovel.protocol.states import as_text
from conovel.rows.chained_lines import now, sha256
from conovel.rows.private_files import FILE_MODE
from conovel.spec.records import Digest, as_record, read_json
from conovel.spec.run_spec import canonical_json
from conovel.stats.words import counted

MAX_WHO = 200  # letters of the name of a person
_MOST_BYTES = 4096
# The coordinator gives a site up after stage_seconds. A site that says no in time is better.
_OF_STAGE = 0.9


@dataclass(frozen=True)
class Answer:
    """What a person answered."""

    question: Digest
    agrees: bool
    who: Annotated[str, Meta(min_length=1, max_length=4 * MAX_WHO)]
    time: Annotated[str, Meta(max_length=40)]


@dataclass(frozen=True)
class Question:
    """The question of a run that waits for a person."""

    digest: Digest
    until: float  # seconds since 1970
    seconds: float  # that a person has, at most

    def heard(self, state: Path, record: Record) -> str | None:
        """Return why the run is refused; empty if a person agreed, None while nobody answered."""
        path = answer_file(state, str(record.content["run_id"]))
        answer, why = self._answer(path)
        if answer is None and not why:
            return None
        about: dict[str, Any] = {"question": self.digest, "agrees": False, "who": ""}
        if answer is not None:
            who = as_text(answer.who, MAX_WHO)
            about |= {"agrees": answer.agrees, "who": who, "answered": answer.time}
        record.tell("consent", **about)
        record.note(consent=about)
        path.unlink(missing_ok=True)  # it is in the record and in the audit log
        return why

    def _answer(self, path: Path) -> tuple[Answer | None, str]:
        """Return the answer to this question, if there is one, and why the run is refused."""
        try:
            answer = _read(path)
        except InputError:
            return None, "the answer of a person at the site cannot be read"
        if answer is None:
            late = (
                f"nobody at the site agreed within {self.seconds:g} s: arrange a time, and give"
                " the run more of it with --stage-seconds and --run-seconds"
            )
            return None, "" if self.is_open else late
        if answer.question != self.digest:
            return None, "the answer of a person at the site is about another question"
        return answer, "" if answer.agrees else "a person at the site did not agree to this run"

    @property
    def is_open(self) -> bool:
        """Whether there is still time."""
        return time.time() < self.until


def ask_person(record: Record, ask_seconds: float, stage_seconds: float) -> Question:
    """Put the question of a run into its record, and into the audit log."""
    seconds = min(ask_seconds, _OF_STAGE * stage_seconds)
    content = record.content
    about = [content["run_id"], content.get("operator"), content.get("terms")]
    digest = sha256(canonical_json([*about, secrets.token_hex(16)]))
    question = Question(digest, float(content["began"]) + seconds, seconds)
    record.tell("asked", question=digest)
    record.note(question=asdict(question))
    return question


def question_of(run: Mapping[str, Any]) -> Question | None:
    """Return the question of a run that waits for a person; None if it does not."""
    if run.get("state") != RUNNING or "consent" in run or "question" not in run:
        return None
    try:
        question = as_record(Question, run["question"], "the question of a run")
    except ConovelError:
        return None
    return question if question.is_open else None


def waiting_runs(runs: Iterable[dict[str, Any]], state: Path) -> list[dict[str, Any]]:
    """Return the runs that wait for a person, and were not answered yet."""
    return [
        run
        for run in runs
        if question_of(run) is not None and not answer_file(state, str(run["run_id"])).exists()
    ]


def answer_file(state: Path, run_id: str) -> Path:
    """Return where the answer of a run is, until the site has read it."""
    if not RUN_ID.fullmatch(run_id):
        raise InputError("a run has an id of 32 hexadecimal digits")
    return state / f"{run_id}.answer"


def write_answer(
    state: Path, run: Mapping[str, Any], question: str, *, agrees: bool, who: str
) -> None:
    """Answer the question of a run, once; :class:`InputError` if it is not the one that is open.

    The file appears as a whole, and never replaces another answer.
    """
    own = question_of(run)
    if own is None:
        raise InputError("this run does not wait for an answer any more")
    if own.digest != question:
        raise InputError("the answer is about another question: read the terms again")
    name = as_text(who, MAX_WHO).strip()
    if not name:
        raise InputError("write your name: it goes into the audit log with your answer")
    path = answer_file(state, str(run["run_id"]))
    answer = Answer(own.digest, agrees, name, now())
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(answer), file)
            file.flush()
            os.fsync(handle)
        os.link(temporary, path)
    except FileExistsError:
        raise InputError("somebody has answered this run already") from None
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error}") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _read(path: Path) -> Answer | None:
    """Read an answer; None if there is none, :class:`InputError` if it is none."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{path} is too large for an answer")
    return as_record(Answer, read_json(data, str(path)), str(path))


def time_left(question: Question) -> str:
    """Say how long a person can still answer."""
    minutes = max(question.until - time.time(), 0.0) / 60
    return counted(round(minutes), "minute") if minutes >= 1.5 else "about a minute"
