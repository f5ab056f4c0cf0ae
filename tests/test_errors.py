"""Every error and warning has a number that stays, a record, and a place where it is raised."""

import ast
import copy
import inspect
import json
import pickle
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache

import joblib
import numpy as np
import pandas as pd
import pytest
from support.commands import invoke
from support.paths import DOCS, ROOT

from conovel import errors
from conovel.cli.explain import is_like, meant, read_records
from conovel.federation.audit_log import AuditLog
from conovel.federation.run_records import FAILED, RunRecords, account_of

# A number never changes its meaning: lines are added here, and none is changed or removed.
NUMBERS = """
CN-000 ConovelError CN-001 - CN-100 InputError CN-101 LevelError CN-102 SampleError
CN-103 ColumnError CN-104 ValueTypeError CN-105 MissingValueError CN-106 ScorerError
CN-107 ModelError CN-108 PrivacyError CN-109 BatchRefusedError CN-110 SpentRowsError
CN-200 FileError CN-201 RunFileError CN-202 SavedFileError
CN-301 MissingExtraError CN-302 ClusterError CN-400 FederationError
CN-500 ProtocolError CN-501 LocalProtocolError CN-502 SiteFailedError
CN-510 RemoteProtocolError CN-511 MalformedMessageError CN-512 VersionMismatchError
CN-513 ReplayedMessageError CN-514 MisroutedMessageError CN-515 UnknownSenderError
CN-516 ForgedSenderError CN-517 SignatureError CN-518 DuplicateMessageError
CN-519 UnexpectedMessageError CN-520 SpecMismatchError CN-521 SchemaMismatchError
CN-522 ModelRefusedError CN-523 KeyRefusedError CN-524 CountOutOfRangeError
CN-525 CountRisingError CN-526 CommitmentError CN-527 OutcomeMismatchError
CN-528 SiteVanishedError CN-529 RefusedError CN-530 RunAbortedError
CN-600 WireError CN-601 MagicError CN-602 VersionError CN-603 HeaderError CN-604 LimitError
CN-605 TruncatedError CN-606 TrailingError CN-607 ChecksumError CN-608 SchemaError
CN-609 StructureError CN-610 NonFiniteError CN-611 NonCanonicalError
CN-700 ConovelWarning CN-701 ResolutionWarning CN-702 DataWarning CN-703 GuaranteeWarning
"""
NUMBER_OF = dict(zip(NUMBERS.split()[1::2], NUMBERS.split()[::2], strict=True))
BASES = {"ConovelError", "RemoteProtocolError", "WireError", "ConovelWarning"}
CLASSES = {
    name: thing
    for name, thing in vars(errors).items()
    if inspect.isclass(thing) and issubclass(thing, Exception)
}
SOURCES = sorted((ROOT / "src" / "conovel").rglob("*.py"))
RECORDS = read_records()
CASES = [(code, case) for code, record in RECORDS.items() for case in record["cases"]]


def an_error(name):
    """An error of a class, as it is raised."""
    return CLASSES[name]("matplotlib", "plots") if "Extra" in name else CLASSES[name]("a reason")


def test_the_numbers_are_those_that_were_given():
    assert {name: thing.code for name, thing in CLASSES.items()} == {
        name: code for name, code in NUMBER_OF.items() if name != "-"
    }
    assert len(set(NUMBER_OF.values())) == len(NUMBER_OF)
    assert NUMBER_OF["-"] == errors.UNFORESEEN
    assert CLASSES.keys() <= errors.CODES.keys()


def test_every_number_has_a_record_and_every_record_a_number():
    assert {code: record.get("class", "-") for code, record in RECORDS.items()} == {
        code: name for name, code in NUMBER_OF.items()
    }
    assert list(RECORDS) == sorted(RECORDS)
    for code, record in RECORDS.items():
        assert record["means"].endswith(".")
        is_base = not record["cases"]
        assert is_base == (record.get("class") in {*BASES, "ProtocolError"}), code
        assert is_base or any(is_like(c["message"], record["example"]) for c in record["cases"])
    for code, case in CASES:
        assert {"message", "cause", "fix"} <= case.keys() <= {"message", "cause", "fix", "see"}
        assert "the same" not in {case["cause"].lower(), case["fix"].lower()}, code
        assert (DOCS / case.get("see", "errors.md")).exists()


def template(node):
    """The text of an expression, with … for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "…" for v in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


@cache
def trees():
    """The modules of the package, but for those that name neither errors nor exits."""
    texts = (path.read_text(encoding="utf-8") for path in SOURCES)
    return [ast.parse(text) for text in texts if re.search(r"Error|Warning|xit\(|refus", text)]


@cache
def code_texts():
    """Where classes are used but to catch them, what they are made with, and all texts."""
    used, made, texts = set(), defaultdict(set), set()
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr | ast.Constant) and (text := template(node)):
                texts.add(text)
            if not isinstance(node, ast.Call):
                continue
            arguments = [*node.args, *(one.value for one in node.keywords)]
            names = {one.id for one in (node.func, *arguments) if isinstance(one, ast.Name)}
            if getattr(node.func, "id", "") in ("isinstance", "issubclass", "suppress"):
                continue
            for name in names & CLASSES.keys():
                used.add(name)
                for text in filter(None, map(template, arguments)):
                    made[text].add(name)
    return used, made, texts


def test_every_class_is_raised_somewhere():
    used, _, _ = code_texts()
    assert CLASSES.keys() - used == BASES - {"ConovelWarning"}  # whose filter is set


def test_every_message_of_a_record_is_one_of_its_class():
    _, made, texts = code_texts()
    wrong = []
    for code, case in CASES:
        matches = {text for text in texts if case["message"] in text}
        # A text that is in no call of a class is handed on to where an error is made.
        classes = (
            set().union(*(made[text] for text in matches)) if matches <= made.keys() else None
        )
        if not matches or (classes is not None and RECORDS[code]["class"] not in classes):
            wrong.append((code, case["message"], classes))
    assert wrong == []


@pytest.mark.parametrize("through", ["pickle", "copy", "joblib"])
def test_a_number_survives_a_copy(through, tmp_path):
    for name in CLASSES:
        error = an_error(name)
        if through == "pickle":
            got = pickle.loads(pickle.dumps(error))
        elif through == "copy":
            got = copy.deepcopy(error)
        else:
            joblib.dump(error, tmp_path / "error")
            got = joblib.load(tmp_path / "error")
        assert (type(got), str(got), got.code) == (type(error), str(error), NUMBER_OF[name])


def test_a_class_says_its_number_and_one_of_users_has_that_of_its_base():
    class OfUsers(errors.ColumnError):
        """Too many columns."""

    assert inspect.getdoc(errors.LevelError).startswith("CN-101: A level")
    assert OfUsers("x").code == "CN-103"
    assert "OfUsers" not in errors.CODES


def test_importing_conovel_does_not_read_the_records():
    code = (
        "import sys; opened = []\n"
        "sys.addaudithook(lambda event, of: event == 'open' and opened.append(str(of[0])))\n"
        "import conovel, conovel.errors, conovel.cli\n"
        "assert any('errors' in name for name in opened)\n"
        "print([name for name in opened if name.endswith('errors.toml')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_page_is_made_from_the_records(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    import error_pages

    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert page == error_pages.text(), "run python docs/_ext/error_pages.py"
    assert re.findall(r"^### (CN-\d{3})$", page, re.MULTILINE) == list(RECORDS)
    assert re.findall(r"^\| \[(CN-\d{3})\]\(#cn-", page, re.MULTILINE) == list(RECORDS)
    for name in ("error_pages", "paths"):
        sys.modules.pop(name)


def exits(tree):
    """What is given to typer.Exit and sys.exit."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("Exit", "exit"):
            yield from ast.walk(ast.Module([ast.Expr(one) for one in node.args], []))


def test_processes_end_with_named_codes():
    given = [node for tree in trees() for node in exits(tree)]
    assert not [node for node in given if isinstance(node, ast.Constant)]
    assert {"NO", "ERROR", "YES"} <= {n.id for n in given if isinstance(n, ast.Name)}
    assert [*exits(ast.parse("sys.exit(3)"))][-1].value == 3


# One real message of each family, and what `conovel explain` says of it.


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"]).assign(c=1.0)
    frame[:40].to_csv("null.csv", index=False)
    frame[40:].to_csv("test.csv", index=False)
    (tmp_path / "model").write_bytes(b"no model of ours, but long enough for a header" * 3)
    (tmp_path / "site.toml").write_text(
        '[site]\nname = "north"\nkit = "kit"\n[data]\nnull = "null.csv"\ntest = "test.csv"\n'
        "[consent]\n"
    )
    record = RunRecords(tmp_path / "state").open("a" * 32, 60.0)
    record.finish(FAILED, "south did not answer within 9 s", **errors.SiteVanishedError.named())
    return tmp_path


DETECT = "detect --null null.csv --test test.csv --scorer logistic --out out.csv"
FAMILIES = [
    (f"{DETECT} --level 10", 2, "CN-101", "a percentage"),
    ("detect --null none.csv --test test.csv", 2, "CN-200", "a wrong path"),
    pytest.param(
        f"{DETECT} --engine dask --scheduler tcp://nobody:1",
        *(2, "CN-302", "the scheduler is down"),
        marks=pytest.mark.slow,  # it waits for the scheduler; test_bare.py has CN-301
    ),
    ("federation renew nowhere", 2, "CN-400", "another folder"),
    ("status site.toml", 0, "CN-528", "lost its connection"),
    ("inspect model", 2, "CN-601", "another file"),
    (DETECT, 0, "CN-702", "a constant column"),
]


@pytest.mark.parametrize(("line", "exit_code", "code", "words"), FAMILIES)
def test_a_message_leads_to_its_record(line, exit_code, code, words, folder, capsys, monkeypatch):
    done = invoke(capsys, monkeypatch, *line.split())
    assert done.code == exit_code, done.err
    [printed] = [one for one in (done.out + done.err).splitlines() if f"explain {code}]" in one]
    monkeypatch.setenv("COLUMNS", "1000")
    for about in (code, code[-3:], printed, printed.rpartition(" [")[0]):
        shown = invoke(capsys, monkeypatch, "explain", about)
        assert (shown.code, shown.out.startswith(code), words in shown.out) == (0, True, True), (
            about
        )


def test_a_message_is_found_by_its_words_alone():
    """Each example leads to its own record, also without its number."""
    shared = {"CN-512": "CN-521", "CN-605": "CN-606"}  # two numbers have one message
    for code, record in RECORDS.items():
        if "example" in record:
            both = {code, *(of for pair in shared.items() if code in pair for of in pair)}
            # Of a run that another party broke off, the number of the cause is explained.
            wanted = {"CN-528"} if code == "CN-530" else both
            assert {code} == (got := meant(RECORDS, record["example"]).keys()) or got == wanted


def test_all_numbers_are_listed_and_others_refused(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    listed = invoke(capsys, monkeypatch, "explain").out
    assert [line.split()[0] for line in listed.splitlines()] == list(RECORDS)
    assert "LevelError" in invoke(capsys, monkeypatch, "explain", "LevelError").out
    for unknown in ("CN-999", "nothing of ours", "[b]"):
        done = invoke(capsys, monkeypatch, "explain", unknown)
        assert (done.code, "lists them [conovel explain CN-100]" in done.err) == (2, True)


def test_a_fault_of_ours_says_how_to_report_it(folder):
    code = (
        "import sys, conovel.cli, conovel.rows.storage as storage\n"
        "storage.read_bytes = None\n"
        "sys.argv = ['conovel', 'inspect', 'model']; conovel.cli.main()\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert (done.returncode, lines[-2].startswith("TypeError")) == (1, True)
    assert lines[-1].endswith(f"[conovel explain {errors.UNFORESEEN}]")
    assert "no file and no row" in lines[-1]


def test_records_accounts_and_the_audit_log_have_the_number(tmp_path):
    log = AuditLog(tmp_path / "audit.log")
    records = RunRecords(tmp_path / "state", log)
    records.refuse("b" * 32, "no", **errors.RefusedError.named())
    record = records.open("a" * 32, 60.0)
    record.finish(FAILED, "gone", **errors.SiteVanishedError.named())
    assert record.content["code"] == "CN-528"
    numbered = {entry["entry"]: entry.get("code") for entry in log.read().entries}
    assert numbered == {"refused": "CN-529", "begin": None, "end": "CN-528"}
    account = account_of(errors.SignatureError("no", "south"), {})
    assert (account["fault"], account["code"]) == ("SignatureError", "CN-517")
    assert json.loads(json.dumps(account_of(None, {})))["code"] == ""
