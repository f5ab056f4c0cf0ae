"""What a run costs on the wire between real processes, and how long the counting phase takes.

One federation on loopback. Every site knocks at a proxy that counts bytes in both directions. Rows
are compared with the first: FastLSU's rounds. The bytes of the counting phase are those of a run
less those of a run that counts nothing and is else alike: `isolated`, or `conservative` where
models are exchanged. All numbers are medians of several runs.
"""

import argparse
import os
import tempfile
from dataclasses import fields
from pathlib import Path
from statistics import median

from benchmarks.federation import MANY_RUNS, SCORER, draw, put_proxies
from conovel.federation.loopback import Loopback
from conovel.federation.processes import OWN_SEED_FILE, wait_for
from conovel.federation.session import connect, run
from conovel.federation.terms import Terms
from conovel.spec.run_spec import RunSpec

CONSENT = f'regimes = ["joint", "full", "counts", "isolated", "conservative"]\n{MANY_RUNS}'
COUNTING = ("asking", "committing", "revealing")  # states of the coordinator
WITHOUT_COUNTS = {
    "`isolated`": {"regime": "isolated"},
    "`conservative`": {"regime": "conservative"},
}


def asked():
    """Name what is compared; committed counting where this version has it."""
    has_committed = "counting" in {field.name for field in fields(RunSpec)}
    rounds = {"counting": "rounds"} if has_committed else {}
    found = {}
    for regime in ("counts", "full", "joint"):
        found[f"`{regime}`, rounds"] = {"regime": regime} | rounds
    if has_committed:
        for regime in ("counts", "full", "joint"):
            found[f"`{regime}`, committed"] = {"regime": regime, "counting": "committed"}
    return found


def alike(kind):
    """Name the run that is alike, but for the counts."""
    return "`isolated`" if "counts" in kind or "isolated" in kind else "`conservative`"


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
    for number, site in enumerate(federation.sites):  # so that rounds are the same every time
        state = folder / site / "state"
        state.mkdir(mode=0o700, exist_ok=True)
        (state / OWN_SEED_FILE).write_text(f"{number:02x}" * 32)
    try:
        federation.bring_up()
        with connect(federation.operator) as session:
            wait_for(lambda: len(session.connected()) == n_agents, 60)
            kinds = WITHOUT_COUNTS | asked()
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
    first = next(iter(asked()))
    least = found[first].wire - found[alike(first)].wire
    heads = ["run", "rounds", "payload", "wire", "wire, counting", "ratio"]
    heads += ["seconds, counting", "ratio"]
    print(f"| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}")
    for kind, one in found.items():
        extra = one.wire - found[alike(kind)].wire
        cells = [kind, one.rounds, f"{one.payload:,.0f}", f"{one.wire:,.0f}", f"{extra:,.0f}"]
        cells += [f"{extra / least:.2f}", f"{one.seconds:.2f}"]
        cells += [f"{one.seconds / found[first].seconds:.2f}"]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
