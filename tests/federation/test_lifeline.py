"""A process ends with the one that started it, also if that one is killed by SIGKILL."""

import os
import signal
import subprocess
import sys

import pytest

from conovel.federation import processes
from conovel.federation.processes import PARENT

SECONDS = 20.0

# A supervisor starts a party, which starts a run, which starts a helper of its own.
CHAIN = """
import os, subprocess, sys, time
from conovel.federation import processes
if sys.argv[3] == "looking":
    del os.pidfd_open
role, folder, how = sys.argv[1:]
if role != "supervisor":
    processes.end_with_parent()
following = {"supervisor": "party", "party": "run"}.get(role)
if following:
    os.environ.setdefault(processes.PARENT, str(os.getpid()))
    command = [sys.executable, __file__, following, folder, how]
    subprocess.Popen(command, start_new_session=True)
else:
    subprocess.Popen(["sleep", "3600"])
open(os.path.join(folder, role), "w").close()
while True:
    if role != "run":  # a run computes, and waits for nothing
        time.sleep(1)
"""


@pytest.fixture(params=["told", "looking"])
def chain(request, tmp_path):
    """Start three processes and the helper; end what is left of them."""
    path = tmp_path / "chain.py"
    path.write_text(CHAIN)
    environment = {key: value for key, value in os.environ.items() if key != PARENT}
    command = [sys.executable, str(path), "supervisor", str(tmp_path), request.param]
    supervisor = subprocess.Popen(command, env=environment)
    started = []
    try:
        assert processes.wait_for((tmp_path / "run").exists, SECONDS)
        assert processes.wait_for(lambda: len(processes.descendants(supervisor.pid)) == 3, SECONDS)
        started = processes.descendants(supervisor.pid)
        yield supervisor, started
    finally:
        supervisor.kill()
        supervisor.wait()
        for pid in started:
            if processes.is_running(pid):
                os.kill(pid, signal.SIGKILL)


def test_all_end_with_a_supervisor_that_is_killed(chain):
    supervisor, started = chain
    assert not processes.all_gone(started)
    supervisor.kill()
    supervisor.wait()
    assert processes.wait_for(lambda: processes.all_gone(started), SECONDS)


LATE = "from conovel.federation.processes import end_with_parent as e; e(); print('goes on')"


@pytest.mark.parametrize(
    ("parent", "said", "code"),
    [("own", "goes on\n", 0), ("gone", "", -signal.SIGKILL), (None, "goes on\n", 0)],
)
def test_a_process_whose_parent_is_gone_ends_at_once(parent, said, code):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    environment = {key: value for key, value in os.environ.items() if key != PARENT}
    if parent is not None:
        environment[PARENT] = str(os.getpid() if parent == "own" else gone.pid)
    command = [sys.executable, "-c", LATE]
    ended = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert (ended.stdout, ended.returncode) == (said, code)
