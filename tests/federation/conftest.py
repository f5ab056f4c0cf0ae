"""One federation of three sites on loopback for all tests here: real processes, real kits."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare")

from support.federation import SCORER, SITES, give_secret
from support.terms import make_terms

from conovel.experiments.gaussian import gaussian_design
from conovel.federation.loopback import Loopback
from conovel.federation.processes import wait_for
from conovel.federation.session import connect, run

PATIENT = {"call_seconds": 20.0, "stage_seconds": 120.0, "run_seconds": 240.0}


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.path).parents:
            item.add_marker(pytest.mark.federation)


def columns(values):
    return {f"x{j}": values[:, j] for j in range(values.shape[1])}


@pytest.fixture(scope="session")
def rows():
    """Known normals and test rows of every site, by column."""
    drawn = gaussian_design(0.5, 1, n_agents=3, n_null=3000, n_test=600)
    return {
        name: (columns(agent.X_null), columns(agent.X_test))
        for name, agent in zip(SITES, drawn, strict=True)
    }


@pytest.fixture(scope="session")
def loopback(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("federation")
    sabotage = folder / "sabotage"
    sabotage.mkdir()
    environment = {
        "CONOVEL_SABOTAGE": str(sabotage),
        "PYTHONPATH": os.pathsep.join(
            [
                str(Path(__file__).parent / "saboteur"),
                *filter(None, [os.environ.get("PYTHONPATH")]),
            ]
        ),
        "OMP_NUM_THREADS": "1",
    }
    federation = Loopback(
        folder / "hospitals",
        rows,
        model=f'scorer = "{SCORER}"',
        consent='regimes = ["joint", "full", "counts", "split", "conservative", "consensus", '
        '"together"]\n'
        "max_level = 0.2\nmax_runs_per_day = 1000\nmax_runs_per_data = 1000",
        environment=environment,
    )
    # So that a test finds today what it found yesterday. Bytes of zero would be in any message.
    for number, name in enumerate(SITES, 0xA1):
        give_secret(folder / "hospitals" / name / "state", number)
    federation.sabotage = sabotage
    try:
        yield federation
    finally:
        federation.stop()


@pytest.fixture(scope="session")
def connection(loopback):
    """An operator's session that outlives single tests; made again when it breaks."""
    holder = SimpleNamespace(manager=None, session=None)

    def get(fresh=False):
        if holder.manager is None or fresh:
            close()
            holder.manager = connect(loopback.operator)
            holder.session = holder.manager.__enter__()
        return holder.session

    def close():
        if holder.manager is not None:
            holder.manager.__exit__(None, None, None)
            holder.manager = None

    yield get
    close()


@pytest.fixture
def submit(loopback, connection):
    """Submit a run by an operator and wait for its account."""

    loopback.bring_up()

    def submit(**more):
        session = connection()
        assert wait_for(lambda: set(session.connected()) == set(SITES), 60)
        return run(session, make_terms(SITES, **(PATIENT | more)), lambda progress: None)

    return submit


@pytest.fixture
def sabotage(loopback):
    """Let a party misbehave; with nothing said, and after the test, none does any more."""
    plan, reached = loopback.sabotage / "plan.json", loopback.sabotage / "reached"

    def arrange(**what):
        reached.unlink(missing_ok=True)
        plan.write_text(json.dumps(what))
        return reached

    yield arrange
    plan.unlink(missing_ok=True)
