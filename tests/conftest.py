"""What all tests share: a Hypothesis profile, the command line, and a cheap default scorer.

Every run draws the same examples and has no deadline; `HYPOTHESIS_PROFILE=explore` draws
fresh examples, and more of them. `mutants` draws few: each change of the code runs the tests anew.
"""

import os
import sys
from types import SimpleNamespace

import pytest
from hypothesis import settings
from support.few_trees import few_candidates
from support.reports import CHROMIUM

from conovel.cli import main
from conovel.scorers.automatic import Automatic

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.register_profile("mutants", derandomize=True, deadline=None, max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Files that take longest come first: a worker that ended with one would keep the others waiting.
LONGEST = (
    "test_real_faults.py",
    "test_dask.py",
    "test_network.py",
    "test_reproduce.py",
    "test_roles.py",
    "test_base.py",
    "test_browser.py",
    "test_docs.py",
    "test_bare.py",
)


# The tests on the real federation: one worker has all of them, so there is one federation.
ON_FEDERATION = (
    "test_asked_sites.py",
    "test_equality.py",
    "test_liars.py",
    "test_questions.py",
    "test_real_faults.py",
)


def group_of(nodeid):
    """Name the group of a test: its file, or the federation."""
    file = nodeid.partition("::")[0]
    return "federation" if file.endswith(ON_FEDERATION) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each group to one worker, so that what a module prepares is prepared once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    return ByGroup(config, log)


def pytest_collection_modifyitems(items):
    """Let what takes longest begin first; what uses the one federation is in its group."""
    on_it = {item.path.name for item in items if "loopback" in getattr(item, "fixturenames", ())}
    assert on_it <= set(ON_FEDERATION)
    places = {name: place for place, name in enumerate(("federation", *LONGEST))}
    items.sort(key=lambda item: places.get(group_of(item.nodeid).rpartition("/")[2], len(places)))


@pytest.fixture
def conovel(monkeypatch, capsys):
    """Run the command line in this process; give back its exit code and what it printed."""

    def run(*args, cwd=None):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["conovel", *map(str, args)])
            if cwd is not None:
                patch.chdir(cwd)
            with pytest.raises(SystemExit) as exited:
                main()
        printed = capsys.readouterr()
        return SimpleNamespace(
            returncode=exited.value.code or 0, stdout=printed.out, stderr=printed.err
        )

    return run


@pytest.fixture
def few_trees(monkeypatch):
    """Make the default scorer cheap: all its steps, but few trees, rounds and folds.

    For tests of what holds whatever the trees are. Tests of what it finds use it as it is.
    """
    monkeypatch.setattr(Automatic, "candidates", few_candidates)


@pytest.fixture(scope="module")
def browser():
    """A real Chromium, where there is one."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (extra dev)")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM)
        yield chromium
        chromium.close()
