"""What the pages promise is run, and what they name exists."""

import re
import shlex
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conovel.cli import app
from conovel.spec.findings import KINDS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [page for page in DOCS.rglob("*.md") if not {"_build", "_generated"} & set(page.parts)]

NUMBERS = {9: "nine", 10: "ten", 11: "eleven", 12: "twelve", 13: "thirteen"}

# Page -> what its blocks must print.
RUN = {
    "promises.md": [
        "nothing speaks against these known normals",
        "promised is at most 0.1",
        "With 95 % probability at most",
        "and follow from the ranks",
        "the same again",
        "the outcome follows from the transcript",
        "34 verdicts added to bank.verdicts",
        "≤ 0.1",
        "rows that train",
    ],
    "start.md": [
        "rows: amount high",
        "nothing speaks against",
        "30 of the 30 novelties",
        "needs: the known normals",
        "together: ",
    ],
    "adding.md": ["distance from the middle 20 of 20"],
    "how-to/arrays-and-frames.md": ["rows declared novel", "part-18", "'t18", "True"],
    "how-to/tables.md": ["--exclude 'serial'", "rows declared novel", '[columns."speed"]'],
    "how-to/files.md": ["'rank'", "rows declared novel", "separator semicolon, decimal comma"],
    "how-to/large-files.md": ["rows declared novel", "True"],
    "how-to/own-scorer.md": ["LogisticRegression", "IsolationForest", "say which way"],
    "how-to/choose.md": ["RandomForestClassifier: "],
    "how-to/resolution.md": ["Resolution(fewest=60", "9989", "at least"],
    "how-to/known.md": [
        "of 20 novelties found",
        "known novelties has a share of",
        "what known novelties are worth",
        "known: ",
        "joint {'north': ",
    ],
    "how-to/certificates.md": [
        "flagged rows are false at most",
        "with 95 % probability at most 20 % of them are false alarms",
        "the outcome follows from the transcript",
    ],
    "how-to/findings.md": [
        "not like today's rows",
        "drift ('heat',)",
        "0.001",
        "True",
        "'drift': 1",
    ],
    "how-to/null-proportion.md": ["storey", "quantile", "π0 = 0."],
    "how-to/repeats.md": ["in each of the runs", "flagged_in_runs", "EvidenceRound(k=120"],
    "how-to/every-day.md": [
        "<KeptDetector",
        "rows on the list;",
        "<Ledger",
        "friday.csv: 300 rows",
    ],
    "how-to/clean.md": [
        "No single row can be flagged",
        "30 rows of 50 judged rows",
        "known novelties: novel.csv",
    ],
    "how-to/desk.md": [],
    "how-to/strata.md": ["of them novel", "north", "tested"],
    "how-to/verdicts.md": [
        "rows were judged novel",
        "1000 known normals spent, 500 left",
        "verdicts added to bank.verdicts, on today.csv",
        "≤ 0.1",
    ],
    "how-to/networks.md": [
        "of them in the north",
        "'messages': 6",
        "('south',)",
        "if at most 1 members lie about their counts",
        "isolated",
    ],
    "how-to/results.md": ["adjusted_p_value", "rows at level 0.05"],
    "how-to/verify.md": ["MODEL", "the outcome follows from the transcript", "[]\n['"],
    "how-to/weights.md": [
        "without weights: ",
        "with weights: ",
        "calibration rows of equal weight",
        "needs_flagged",
        "Approximate:",
    ],
    "how-to/why.md": ["country new", "tax", "share"],
    "how-to/models-as-bytes.md": ["bytes: [", "TruncatedError", "model.bin"],
    "how-to/upgrades.md": ["conovel 0.", "messages 6, models 1", "conovel-outcome-2"],
    # Commands for several machines are not run; tests/test_operations_pages.py checks these pages.
    "how-to/backup.md": [],
    "how-to/containers.md": [],
    "how-to/metrics.md": [],
    "how-to/troubleshooting.md": [],
}


@pytest.fixture
def extensions(monkeypatch):
    """The modules that make pages at build time."""
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    yield import_module
    for name in ("api_pages", "cli_page", "layers", "paths", "walk"):
        sys.modules.pop(name, None)


def run_command(line):
    """Run a ``conovel`` command in this process and print what it prints."""
    program, *arguments = shlex.split(line)
    assert program == "conovel", line
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    print(result.output)
    assert result.exit_code == 0, line


@pytest.mark.parametrize("page", RUN)
def test_code_blocks_run_one_after_the_other(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / page).read_text(encoding="utf-8")
    names = {}
    for language, code in re.findall(r"```(python|bash)\n(.*?)```", text, flags=re.DOTALL):
        if language == "python":
            exec(compile(code, page, "exec"), names)
        else:
            for line in code.splitlines():
                run_command(line)
    printed = capsys.readouterr().out
    assert [words for words in RUN[page] if words not in printed] == []


def test_every_how_to_page_is_run_and_listed():
    pages = {f"how-to/{page.name}" for page in (DOCS / "how-to").glob("*.md")}
    assert pages == set(RUN) - {"start.md", "promises.md", "adding.md"}
    listed = re.findall(r"^how-to/[\w-]+$", (DOCS / "how-to.md").read_text(), re.MULTILINE)
    assert {f"{page}.md" for page in listed} == pages


def resolves(name):
    """Tell whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        try:
            thing = import_module(".".join(parts[:i]))
        except ImportError:
            continue
        for attribute in parts[i:]:
            if not hasattr(thing, attribute):
                return False
            thing = getattr(thing, attribute)
        return True
    return False


def named(page):
    """Give a page its test id."""
    return pytest.param(page, id=page.relative_to(DOCS).as_posix())


@pytest.mark.parametrize("page", [named(page) for page in PAGES])
def test_names_and_paths_on_the_pages_exist(page):
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"`(conovel(?:\.\w+)+)", text))
    paths = set(re.findall(r"`((?:attacks|benchmarks|docs|packaging|src|tests)/[\w./-]+)`", text))
    paths |= {f"src/conovel/{path}" for path in re.findall(r"`(\w+/[\w/]+\.py)`", text)} - {
        f"src/conovel/{path}" for path in paths
    }
    assert [name for name in sorted(names) if not resolves(name)] == []
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_every_module_has_a_layer_and_a_summary(extensions):
    layers = extensions("layers")
    listed = {module.path: module for module in layers.modules()}
    found = {path.relative_to(layers.PACKAGE).as_posix() for path in layers.PACKAGE.rglob("*.py")}
    assert {path for path in found - set(listed) if not path.endswith("__init__.py")} == set()
    assert [module.path for module in listed.values() if not module.summary] == []
    assert "models/wire/__init__.py" in listed  # a package that holds code
    table = layers.table()
    assert all(f"| `{path}` |" in table for path in listed)


# Default run -> most files it may enter, and most returns to a file that it left. They only fall,
# but for what a run does besides: since 0.3 `conovel detect` writes how many novelties lists have.
WALKS = {"detect_run": (32, 15), "files_run": (57, 75), "network_run": (60, 147)}
MOST_FLAG_READS = 0
MOST_LINES = 66_162


@pytest.mark.parametrize("run", WALKS)
def test_a_default_run_enters_few_files_and_seldom_comes_back(extensions, run):
    walk = extensions("walk")
    steps = walk.walk(getattr(walk, run))
    n_files, n_returns = walk.count(steps)
    most_files, most_returns = WALKS[run]
    assert n_files <= most_files, sorted({step.file for step in steps})
    assert n_returns <= most_returns, [step for step in steps if step.is_return]
    order = list(dict.fromkeys(step.file for step in steps))
    places = [order.index(file) for file in ("rows/tables.py", "scorers/base.py")]
    assert places == sorted(places)


def test_a_regime_is_asked_about_by_its_two_folders_alone(extensions):
    places = extensions("walk").flag_reads()
    assert len(places) <= MOST_FLAG_READS, places


def test_the_package_does_not_grow(extensions):
    assert extensions("walk").n_lines() <= MOST_LINES


def test_the_drawing_names_the_layers_of_the_import_contract(extensions):
    layers = extensions("layers")
    order = [name for row in layers.layers() for name in row]
    assert sorted(order) == sorted(layers.RULES)
    drawn = re.findall(r'font-weight="bold">(\w+)<', layers.drawing())
    assert drawn == order
    assert re.findall(r"^### (\w+)", layers.table(), re.MULTILINE) == order
    architecture = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert [name for name in order if f"`{name}`" not in architecture] == []


def test_every_public_name_and_command_is_in_the_reference(extensions):
    import conovel
    from conovel.cli import app as commands

    pages = extensions("api_pages").pages()
    documented = [
        name
        for page in pages.values()
        for name in re.findall(r"^\.\. auto\w+:: conovel\.([\w.]+)", page, re.MULTILINE)
    ]
    moved = [f"{home}.{name}" for name, home in conovel._MOVED.items()]
    assert sorted(documented) == sorted([*conovel.__all__, *moved])
    reference = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert set(re.findall(r"_generated/api/([\w-]+)", reference)) == set(pages)

    text = extensions("cli_page").text()
    for command in commands.registered_commands:
        assert f"## `conovel {command.name}`" in text


def test_the_decisions_are_all_listed_and_say_what_replaced_them():
    folder = DOCS / "decisions"
    index = (folder / "index.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| \[\d+\. [^\]]+\]\((\d{4}-[\w-]+\.md)\) \| (.+) \|$", index, re.MULTILINE
    )
    assert sorted(name for name, _ in rows) == sorted(p.name for p in folder.glob("0*.md"))
    evidence = re.findall(r"\(evidence/([\w-]+\.md)\)", index)
    assert sorted(evidence) == sorted(p.name for p in (folder / "evidence").glob("*.md"))
    for name, status in rows:
        top = "".join((folder / name).read_text(encoding="utf-8").splitlines()[2:8])
        later = re.findall(r"\((\S+\.md)\)", status)
        assert [page for page in later if f"({page})" not in top] == [], name
        has_changed = top.startswith("*") and not top.startswith(("**", "*Replaces"))
        assert has_changed == (status != "in force"), name


def test_the_page_of_dependencies_names_each_package_and_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (DOCS / "decisions" / "0001-dependencies.md").read_text(encoding="utf-8")
    core = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}
    part = page.split("## Extras")[0]
    assert [name for name in sorted(core) if f"\n| {name} |" not in part] == []
    extras = project["optional-dependencies"]
    assert [name for name in extras if f"\n| `{name}` |" not in page] == []


def test_the_page_of_findings_lists_every_kind_those_against_the_promise_first():
    page = (DOCS / "how-to" / "findings.md").read_text(encoding="utf-8")
    kinds = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(kinds) == sorted(KINDS)
    against = [KINDS[kind] is not None for kind in kinds]
    assert against == sorted(against, reverse=True)
    assert f"The first {NUMBERS[sum(against)]} speak against a result" in page
