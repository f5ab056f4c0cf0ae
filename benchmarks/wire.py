"""What a run costs on the wire between real processes, and how long the counting phase takes.

One federation on loopback. Every site knocks at a proxy that counts bytes in both directions. Rows
are compared with the first: FastLSU's rounds. The bytes of the counting phase are those of a run
less those of a run of `isolated`, which counts nothing. Seconds are the medians of several runs.
"""

import argparse
import os
import tempfile
from dataclasses import fields
from pathlib import Path
from statistics import median

from benchmarks.federation import SCORER, draw, put_proxies
from conovel.drivers.nvflare.loopback import Loopback
from conovel.drivers.nvflare.operator import run
from conovel.drivers.nvflare.processes import wait_for
from conovel.drivers.nvflare.session import connect
from conovel.drivers.nvflare.terms import Terms
from conovel.spec.run_spec import RunSpec

CONSENT = 'regimes = ["joint", "full", "counts", "isolated"]'
COUNTING = ("asking", "committing", "revealing")  # states of the coordinator


def asked():
    """Name what is compared; committed counting where this version has it."""
    has_committed = "counting" in {field.name for field in fields(RunSpec)}
    rounds = {"counting": "rounds"} if has_committed else {}
    found = {
        "`counts`, rounds": {"regime": "counts"} | rounds,
        "`full`, rounds": {"regime": "full"} | rounds,
        "`joint`": {"regime": "joint"} | rounds,
    }
    if has_committed:
        found["`counts`, committed"] = {"regime": "counts", "counting": "committed"}
        found["`full`, committed"] = {"regime": "full", "counting": "committed"}
    return found


class Measured:
    """Medians over the runs of one kind."""

    def __init__(self, runs):
        self.wire = median(one["wire"] for one in runs)
        self.payload = median(one["payload"] for one in runs)
        self.seconds = median(one["seconds"] for one in runs)
        self.rounds = runs[0]["rounds"]


def counting_seconds(account):
    return sum(s for state, s in account["seconds"].items() if state in COUNTING)


def measure_one(session, federation, proxies, spec):
    n = len(federation.sites)
    before = sum(proxy.n_bytes for proxy in proxies.values())
    account = run(session, Terms(federation.sites, RunSpec.of(bits=4, **spec)), lambda _: None)
    if account["state"] != "done":
        raise SystemExit(account["message"])
    moved = account["transcript"]["totals"]["by_agent"]
    return {
        "wire": (sum(proxy.n_bytes for proxy in proxies.values()) - before) / n,
        "payload": sum(sum(moved[site].values()) for site in federation.sites) / n,
        "seconds": counting_seconds(account),
        "rounds": account["outcome"]["rounds"],
    }


def measure(n_agents, repeat, folder):
    federation = Loopback(folder, draw(n_agents), model=f'scorer = "{SCORER}"', consent=CONSENT)
    proxies = put_proxies(federation)
    try:
        federation.bring_up()
        with connect(federation.operator) as session:
            wait_for(lambda: len(session.connected()) == n_agents, 60)
            kinds = {"`isolated`": {"regime": "isolated"}} | asked()
            runs = {kind: [] for kind in kinds}
            for _ in range(repeat):  # in turn, so that a busy machine is busy for all
                for kind, spec in kinds.items():
                    runs[kind].append(measure_one(session, federation, proxies, spec))
            return {kind: Measured(several) for kind, several in runs.items()}
    finally:
        federation.stop()
        for proxy in proxies.values():
            proxy.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.agents, options.repeat, Path(folder) / "f")
    alone = found["`isolated`"]
    first = next(one for kind, one in found.items() if kind != "`isolated`")
    heads = ["run", "rounds", "payload", "wire", "wire, counting", "ratio"]
    heads += ["seconds, counting", "ratio"]
    print(f"| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}")
    for kind, one in found.items():
        extra, least = one.wire - alone.wire, first.wire - alone.wire
        cells = [kind, one.rounds, f"{one.payload:,.0f}", f"{one.wire:,.0f}", f"{extra:,.0f}"]
        cells += [f"{extra / least:.2f}", f"{one.seconds:.2f}"]
        cells += [f"{one.seconds / first.seconds:.2f}"]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
