"""One site with runs and verdicts for the pages; tests that write take a copy of it."""

import shutil

import pytest

pytest.importorskip("nvflare")  # the records of runs are of a federation
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from support.desk import judge_batches, run_once, write_sites

from conovel.federation.settings import read_site


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Run twice, and judge three batches of one site."""
    files = write_sites(tmp_path_factory.mktemp("desk"))
    runs = [run_once(files), run_once(files)]
    judge_batches(files["west"])
    return files["west"].path.parent, runs


@pytest.fixture
def site(made, tmp_path):
    """Give a copy of the site."""
    shutil.copytree(made[0], tmp_path / "west")
    return read_site(tmp_path / "west" / "site.toml")


@pytest.fixture
def run_id(made):
    return made[1][-1]
