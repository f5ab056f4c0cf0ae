"""What is built, cited, checked before a commit and run by workflows agrees with the project."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
import yaml
from support.paths import ROOT

from conovel.spec.version import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read_yaml(path):
    # YAML 1.1 reads the key `on` as true.
    return yaml.safe_load(path.read_text(encoding="utf-8").replace("\non:", "\n'on':"))


def supported():
    """The versions of Python that the classifiers name."""
    found = (
        re.fullmatch(r".*Python :: (3\.\d+)", one) for one in PROJECT["project"]["classifiers"]
    )
    return [one[1] for one in found if one]


def test_the_version_is_the_same_everywhere():
    citation = read_yaml(ROOT / "CITATION.cff")
    assert PROJECT["project"]["version"] == __version__
    assert str(citation["version"]) == __version__
    assert citation["license"] == PROJECT["project"]["license"]


def test_the_wheel_and_the_sdist_take_what_exists():
    targets = PROJECT["tool"]["hatch"]["build"]["targets"]
    (package,) = targets["wheel"]["packages"]
    assert (ROOT / package / "py.typed").exists()
    assert [one for one in targets["sdist"]["include"] if not (ROOT / one[1:]).exists()] == []


@pytest.mark.slow
def test_the_files_that_make_dist_builds(tmp_path):
    subprocess.run([shutil.which("make"), "dist", f"DIST={tmp_path}/dist"], cwd=ROOT, check=True)
    (wheel,), (sdist,) = (sorted(tmp_path.glob(f"dist/*{end}")) for end in (".whl", ".tar.gz"))
    with zipfile.ZipFile(wheel) as file:
        packed = set(file.namelist())
        metadata = file.read(f"conovel-{__version__}.dist-info/METADATA").decode()
    modules = {f"conovel/{p.relative_to(ROOT / 'src/conovel')}" for p in package_files()}
    assert packed == modules | {name for name in packed if ".dist-info/" in name}
    assert "conovel/py.typed" in packed
    assert "Description-Content-Type: text/markdown" in metadata
    with tarfile.open(sdist) as file:
        inside = {name.partition("/")[2] for name in file.getnames()}
    needed = "LICENSE CHANGELOG.md CITATION.cff constraints.txt hashes.txt Makefile docs/conf.py"
    assert set(needed.split()) <= inside
    assert "tests/test_packaging.py" in inside
    odd = [n for n in inside if re.search(r"_build/|_generated/|__pycache__|\.venv|\.npz$", n)]
    assert odd == []


def hashes_module():
    spec = importlib.util.spec_from_file_location("hashes", ROOT / "packaging" / "hashes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_version_that_make_installs_has_hashes():
    module = hashes_module()
    known = module.known_hashes()
    assert set(known) == set(module.pins(module.CONSTRAINTS).items())
    assert all(known.values())
    text = (ROOT / "hashes.txt").read_text()
    assert "://" not in text  # names, versions and hashes; where pip looks is its own setting


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"version": "9.9"}, "numpy 9.9 is not in hashes.txt"),
        ({"name": "nunpy"}, "nunpy .* is not in hashes.txt"),
        ({"sha256": "0" * 64}, "numpy .* was installed from a file with another hash"),
        ({"sha256": None}, "numpy .* was installed from a file with another hash: None"),
    ],
)
def test_what_pip_installed_is_compared_with_the_hashes(change, words):
    module = hashes_module()
    known = module.known_hashes()
    version = module.pins(module.CONSTRAINTS)["numpy"]
    right = {"name": "numpy", "version": version, "sha256": min(known["numpy", version])}
    about = right | change
    archive = {"hashes": {"sha256": about["sha256"]}} if about["sha256"] else {}
    report = {
        "install": [
            {"metadata": {"name": "conovel", "version": "1"}, "download_info": {"dir_info": {}}},
            {"metadata": about, "download_info": {"archive_info": archive}},
        ]
    }
    found = module.objections(report, known)
    assert len(found) == (words is not None)
    assert words is None or re.match(words, found[0])


def test_pip_accepts_the_hashes():
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--no-index"]
    command += ["--require-hashes", "-r", ROOT / "hashes.txt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "Invalid requirement" not in said
    assert "hashes are required" not in said.lower()


def test_next_major_releases_are_not_taken_unseen():
    extras = PROJECT["project"]["optional-dependencies"]
    of_users = ("fast", "polars", "excel", "lightgbm", "nvflare", "metrics", "privacy")
    listed = PROJECT["project"]["dependencies"] + [
        one for name in of_users for one in extras[name]
    ]
    free = {re.match(r"[\w-]+", one)[0] for one in listed if not re.search(r"<\d|==", one)}
    assert free == {"pyarrow"}  # whose every release has a number of its own


def test_the_lowest_versions_are_the_lower_bounds():
    """`make lowest` tries what pyproject.toml allows, and pip compares its hashes."""
    module = hashes_module()
    pinned = module.pins(ROOT / "packaging" / "lowest.txt")
    extras = PROJECT["project"]["optional-dependencies"]
    listed = PROJECT["project"]["dependencies"] + extras["fast"] + extras["polars"]
    bounds = dict(re.match(r"([\w-]+)>=([\d.]+)", one).groups() for one in listed)

    def parts(version):
        numbers = [int(part) for part in version.split(".")]
        return numbers + [0] * (3 - len(numbers))

    assert {n: parts(pinned[n]) for n in bounds} == {n: parts(v) for n, v in bounds.items()}
    known = module.known_hashes(ROOT / "packaging" / "lowest.txt")
    assert set(known) == set(pinned.items())
    assert all(known.values())


def package_files():
    folder = ROOT / "src" / "conovel"
    return [p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_make_with_few_rights(path):
    flow = read_yaml(path)
    assert flow["permissions"] == {"contents": "read"}
    assert "group" in flow["concurrency"]
    steps = [step for job in flow["jobs"].values() for step in job["steps"]]
    for step in steps:
        if "run" in step:
            program, target = step["run"].split(" ")
            assert program == "make"
            assert target in TARGETS
        else:
            assert re.fullmatch(r"(actions|pypa)/[\w-]+@[0-9a-f]{40}", step["uses"])
            # A person reads the version, and the digest decides.
            assert re.search(rf"{step['uses']}  # v\d+\.\d+\.\d+\n", path.read_text())
    rights = [job["permissions"] for job in flow["jobs"].values() if "permissions" in job]
    assert rights == ([{"id-token": "write"}] if path.stem == "release" else [])
    assert all(job["timeout-minutes"] <= 360 for job in flow["jobs"].values())


def test_the_classifiers_name_the_system_that_workflows_run():
    """`Operating System :: OS Independent` would need runs on Windows and macOS."""
    jobs = [job for path in WORKFLOWS for job in read_yaml(path)["jobs"].values()]
    assert {job["runs-on"] for job in jobs} == {"ubuntu-latest"}
    systems = [one for one in PROJECT["project"]["classifiers"] if "Operating System" in one]
    assert systems == ["Operating System :: POSIX :: Linux"]


def test_the_workflows_that_there_are():
    assert [path.stem for path in WORKFLOWS] == ["docs", "release", "slow", "test"]
    flow = read_yaml(ROOT / ".github" / "workflows" / "test.yml")
    assert flow["jobs"]["test"]["strategy"]["matrix"]["python"] == supported()
    makefile = (ROOT / "Makefile").read_text()
    named = re.search(r"^INTERPRETERS \?= (.*)$", makefile, re.MULTILINE)
    assert named[1].split() == [f"python{version}" for version in supported()]
    for name, job in (("test", "package"), ("release", "build")):
        flow = read_yaml(ROOT / ".github" / "workflows" / f"{name}.yml")
        (setup,) = [s for s in flow["jobs"][job]["steps"] if "setup-python" in s.get("uses", "")]
        assert setup["with"]["python-version"].split() == supported()
    for page in ("README.md", "docs/start.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert f"Python {supported()[0]} to {supported()[-1]}" in text


def test_hooks_fetch_nothing_and_refuse_data_files():
    (repo,) = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repo["repo"] == "local"
    hooks = {hook["id"]: hook for hook in repo["hooks"]}
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    tools = set(re.findall(r"\$\(BIN\)/([\w-]+)", check[1]))
    called = {h["entry"].split()[0] for h in hooks.values() if h["language"] == "system"}
    assert called == {f".venv/bin/{tool}" for tool in tools}
    data = hooks["no-data"]

    def is_refused(name):
        return bool(re.search(data["files"], name)) and not re.search(data["exclude"], name)

    assert is_refused("north/normal.parquet")
    assert is_refused("docs/results/rows/bank.CSV")
    assert not is_refused("docs/results/joint.csv")
    assert not is_refused("src/conovel/cli/tables.py")
