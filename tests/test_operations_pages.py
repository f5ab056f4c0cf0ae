"""The pages for operations say what the code does: messages, versions, files, containers."""

import ast
import json
import re
import tomllib

import pytest
import typer
from support.paths import DOCS, ROOT

from conovel.cli import app
from conovel.cli.explain import read_records
from conovel.federation import processes

HOW_TO = DOCS / "how-to"
TROUBLES = (HOW_TO / "troubleshooting.md").read_text(encoding="utf-8")


def templates(tree):
    """Give every text of a module but its docstrings, with … for what is filled in."""
    nodes = list(ast.walk(tree))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if id(node) in docstrings:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(v.value if isinstance(v, ast.Constant) else "…" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.fixture(scope="module")
def texts():
    sources = sorted((ROOT / "src" / "conovel").rglob("*.py"))
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in sources)
    return "\0".join(text for tree in trees for text in templates(tree))


def test_the_page_on_troubles_leads_to_every_error_that_a_user_meets():
    led = set(re.findall(r"\[(CN-\d{3})\]\(\.\./errors\.md#(cn-\d{3})\)", TROUBLES))
    assert all(code.lower() == anchor for code, anchor in led)
    codes = {code for code, _ in led}
    records = read_records()
    assert codes <= records.keys()
    never_alone = {code for code, one in records.items() if not one["cases"]}
    by_hand = {code for code in records if code[3] == "6"} | {"CN-108", "CN-702", "CN-703"}
    by_hand.add("CN-102")  # calls from Python
    assert records.keys() - codes == never_alone | by_hand
    assert "“" not in TROUBLES  # messages stand on one page only


# Options of other programs: podman and tar.
FOREIGN = {
    *("build-arg", "cap-drop", "create", "exclude", "file", "format", "gzip", "name"),
    *("read-only", "security-opt", "tmpfs"),
}
OPERATIONS = [
    *(
        HOW_TO / f"{one}.md"
        for one in ["backup", "containers", "metrics", "troubleshooting", "upgrades"]
    ),
    DOCS / "errors.md",
]


@pytest.mark.parametrize("page", OPERATIONS, ids=lambda page: page.stem)
def test_every_command_and_option_on_the_page_exists(page):
    text = page.read_text(encoding="utf-8")
    group = typer.main.get_command(app)
    federation = group.commands["federation"]
    commands = {*group.commands, *federation.commands}
    known = {"help", *(flag[2:] for flag in all_options(group))}
    called = set(re.findall(r"(?:`|^)conovel ([a-z]+)", text, re.MULTILINE))
    assert [name for name in sorted(called) if name not in commands] == []
    options = set(re.findall(r"(?<![\w-])--([a-z][\w-]+)", text))
    assert [name for name in sorted(options - FOREIGN) if name not in known] == []


def all_options(command):
    for parameter in command.params:
        flags = (*parameter.opts, *parameter.secondary_opts)  # --learn and --no-learn
        yield from (flag for flag in flags if flag.startswith("--"))
    for inner in getattr(command, "commands", {}).values():
        yield from all_options(inner)


def test_the_page_on_upgrades_has_the_numbers_of_the_code():
    from conovel.models.wire.header import VERSION as MODELS
    from conovel.protocol.messages import VERSION as MESSAGES
    from conovel.protocol.not_checked import FORMATS
    from conovel.runs.kept_file import VERSION as DETECTORS
    from conovel.runs.ledger_file import FORMAT as LEDGERS
    from conovel.runs.ledger_file import PREPARED_FORMAT as PREPARED

    text = (HOW_TO / "upgrades.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE))
    assert told["messages between parties"] == str(MESSAGES)
    assert told["models as bytes"] == str(MODELS)
    assert told["ledgers"] == str(LEDGERS)
    assert told["prepared batches of ledgers"] == str(PREPARED)
    assert told["kept detectors (`.conovel`)"] == str(DETECTORS)
    assert told["accounts of runs, `run.json` of a site"] == ", ".join(FORMATS.values())


@pytest.mark.parametrize("page", ["upgrades", "backup"])
def test_quotes_on_other_pages_are_messages_too(page, texts):
    text = (HOW_TO / f"{page}.md").read_text(encoding="utf-8")
    quoted = re.findall(r"“(.+?)”", text)
    assert quoted
    assert [said for said in quoted if said not in texts] == []


def test_the_page_on_backups_names_every_file_of_a_party():
    text = (HOW_TO / "backup.md").read_text(encoding="utf-8")
    files = {name: value for name, value in vars(processes).items() if name.endswith("_FILE")}
    assert len(files) > 6
    assert [value for value in files.values() if value not in text] == []


def test_the_page_on_metrics_lists_all_of_them(tmp_path):
    pytest.importorskip("prometheus_client")
    from conovel.federation.audit_log import AuditLog
    from conovel.federation.metrics import PartyMetrics, RunTotals, Volume

    totals = RunTotals(1, {("done", ""): 1}, {("in", "HELLO"): Volume(1, 2)}, {"fit": (1, 2.0)})
    folders = {"state": tmp_path}
    page = PartyMetrics("site", tmp_path, folders, AuditLog(tmp_path / "log"), 1.0, totals)
    given = {}
    for family in page.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        given[name] = set().union(*(sample.labels for sample in family.samples))
    text = (HOW_TO / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(conovel_\w+)` \| ([^|]*)\|", text, re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows} == given


@pytest.mark.parametrize("party", ["site", "coordinator"])
def test_what_a_containerfile_names_exists(party):
    text = (ROOT / "containers" / f"{party}.Containerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    of = {
        word: [line.partition(" ")[2] for line in lines if line.startswith(word + " ")]
        for word in ("ARG", "COPY", "RUN", "CMD", "ENTRYPOINT", "VOLUME", "USER", "EXPOSE")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = re.fullmatch(r"BASE=python:(3\.\d+)-slim-bookworm", of["ARG"][0])[1]
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    sources = of["COPY"][0].split()[:-1]
    assert sources == ["constraints.txt", "dist/*.whl"]  # the second is made by make dist
    assert (ROOT / sources[0]).exists()
    extras = re.search(r"\$\{wheel\}\[([\w,]+)\]", of["RUN"][0])[1].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    made = set(re.findall(r"/srv/conovel/\w+", of["RUN"][1]))
    assert set(json.loads(of["VOLUME"][0])) == made
    assert of["USER"] == ["10001:10001"]
    assert "--uid 10001" in of["RUN"][1]
    health = re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", "\n".join(lines), re.MULTILINE)
    program, *check = json.loads(health[1])
    assert [program] == json.loads(of["ENTRYPOINT"][0]) == [*project["scripts"]]
    for arguments in (check, json.loads(of["CMD"][0])):
        command = typer.main.get_command(app).commands[arguments[0]]
        context = command.make_context(arguments[0], arguments[1:])  # raises for a wrong option
        assert str(context.params["settings"]).startswith("/srv/conovel/")
    page = (HOW_TO / "containers.md").read_text(encoding="utf-8")
    assert all(f"`{folder}`" in page for folder in made)
    if party == "coordinator":
        from conovel.federation.kits import FederationPlan

        ports = FederationPlan("f", "localhost", ("a", "b"), ("a@example.org",))
        assert of["EXPOSE"][0].split() == [str(ports.port), str(ports.admin_port)]
