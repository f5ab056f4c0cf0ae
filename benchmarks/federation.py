"""A round of counts and the bytes on the wire between real processes, against our own messages.

A whole federation on loopback, every site behind a proxy of its own that counts what passes.
Times are multiples of the same run in one process; bytes are multiples of our payload.
"""

import argparse
import os
import socket
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa

import conovel as cn
from conovel.experiments.gaussian import gaussian_design
from conovel.federation.loopback import Loopback
from conovel.federation.processes import wait_for
from conovel.federation.session import connect, run
from conovel.federation.terms import Terms
from conovel.spec.run_spec import RunSpec

SCORER = "logistic"
MANY_RUNS = "max_runs_per_day = 1000\nmax_runs_per_data = 1000"  # sites agree to ten by default


class CountingProxy:
    """Passes bytes on between a site and the coordinator, and counts them."""

    def __init__(self, port):
        self.to, self.n_bytes = port, 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.to))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                with self._lock:
                    self.n_bytes += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self._listener.close()


def columns(values):
    return {f"x{j}": values[:, j] for j in range(values.shape[1])}


def draw(n_agents):
    sizes = {"n_null": 1000 * n_agents, "n_test": 200 * n_agents}
    drawn = gaussian_design(0.5, 1, n_agents=n_agents, **sizes)
    return {
        f"site-{j}": (columns(agent.X_null), columns(agent.X_test))
        for j, agent in enumerate(drawn)
    }


def put_proxies(federation):
    """Let every site knock at a proxy of its own."""
    proxies = {}
    for site in federation.sites:
        path = federation.folder / site / "kit" / "startup" / "fed_client.json"
        text = path.read_text()
        port = text.partition("localhost:")[2].partition('"')[0]
        proxies[site] = CountingProxy(int(port))
        path.write_text(text.replace(f"localhost:{port}", f"localhost:{proxies[site].port}"))
    return proxies


def seconds_per_round_in_process(rows, regime):
    """Time the counts alone: a run with them, less the same run without."""
    agents = [cn.Agent(n, pa.table(a), pa.table(b)) for n, (a, b) in rows.items()]
    marks = []

    def note(stage):
        if "step" in stage or "outcome" in stage:
            marks.append(time.perf_counter())

    result = cn.Network(agents, regime=regime, composite="mean", bits=4, scorer=SCORER).run(
        on_stage=note
    )
    return (marks[-1] - marks[0]) / result.rounds


def measure(n_agents, regimes, folder, repeat):
    rows = draw(n_agents)
    federation = Loopback(folder, rows, model=f'scorer = "{SCORER}"', consent=MANY_RUNS)
    proxies = put_proxies(federation)
    try:
        federation.bring_up()
        with connect(federation.operator) as session:
            wait_for(lambda: len(session.connected()) == n_agents, 60)
            for regime in regimes:
                for _ in range(repeat):
                    yield measure_one(session, federation, proxies, rows, regime)
    finally:
        federation.stop()
        for proxy in proxies.values():
            proxy.close()


def measure_one(session, federation, proxies, rows, regime):
    before = sum(proxy.n_bytes for proxy in proxies.values())
    account = run(
        session, Terms(federation.sites, RunSpec.of(regime=regime, bits=4)), lambda progress: None
    )
    if account["state"] != "done":
        raise SystemExit(account["message"])
    wire = sum(proxy.n_bytes for proxy in proxies.values()) - before
    moved = account["transcript"]["totals"]["by_agent"]
    payload = sum(sum(moved[site].values()) for site in federation.sites)
    rounds = len(account["transcript"]["rounds"])
    asking = account["seconds"]["asking"] / rounds
    local = min(seconds_per_round_in_process(rows, regime) for _ in range(5))
    n = len(federation.sites)
    cells = [regime, n, rounds, f"{asking:.3f}", f"{asking / local:,.0f}"]
    cells += [f"{payload / n:,.0f}", f"{wire / n:,.0f}", f"{wire / payload:,.0f}"]
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[3, 8])
    parser.add_argument("--regimes", nargs="+", default=["counts", "full"])
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    heads = ["regime", "K", "rounds", "seconds a round", "in one process = 1"]
    heads += ["payload a site", "wire a site", "wire / payload"]
    print(f"| {' | '.join(heads)} |\n|---|{'---:|' * 7}")
    for n_agents in options.agents:
        with tempfile.TemporaryDirectory() as folder:
            list(measure(n_agents, options.regimes, Path(folder) / "f", options.repeat))


if __name__ == "__main__":
    main()
