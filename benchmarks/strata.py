"""The mix of rows changes between known normals and tests: FDR and power with and without strata.

Usage: python -m benchmarks strata [--trials N] [--agents 1 3 9] [--kept]

Three strata with means and spreads of their own. Their shares are 70, 20 and 10 % of the known
normals, and 70, 20 and 10 % or 20, 30 and 50 % of the tests, of which one in ten is novel. One
agent is one site with `AdaDetect`; several are a network in the regime `together`. The same rows
are tested plainly and with strata. With --kept a kept detector tests four batches of one site, the
first by itself and all of them with a ledger.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import conovel as cn

LEVEL, SHARE_NOVEL = 0.1, 0.1
NORMAL, CHANGED = (0.7, 0.2, 0.1), (0.2, 0.3, 0.5)
SIZES = {1: (6000, 600), 3: (4000, 300), 9: (3000, 200)}  # known normals and tests of an agent
_CENTRES = np.array([[0.0, 0, 0, 0], [4, 0, 0, 0], [0, 4, 2, 0]])
_SPREADS = np.array([1.0, 1.0, 1.8])
_SHIFT = 3.5 * np.array([0, 0, 0.6, 0.8])  # of novelties, in spreads of their stratum


class Drawn(NamedTuple):
    """The rows of one agent; the first column is the stratum."""

    null: NDArray[np.float64]
    test: NDArray[np.float64]
    is_novel: NDArray[np.bool_]


def draw(
    rng: np.random.Generator, n: int, shares: Sequence[float], share_novel: float = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Draw rows of three strata with these shares."""
    strata = rng.choice(3, size=n, p=shares)
    is_novel = rng.random(n) < share_novel
    rows = rng.normal(size=(n, 4)) + is_novel[:, np.newaxis] * _SHIFT
    rows = rows * _SPREADS[strata, np.newaxis] + _CENTRES[strata]
    return np.column_stack([strata, rows]), is_novel


def draw_agents(seed: int, n_agents: int, shares: Sequence[float]) -> list[Drawn]:
    """Draw the rows of all agents."""
    rng, (n_null, n_test) = np.random.default_rng(seed), SIZES[n_agents]
    return [
        Drawn(draw(rng, n_null, NORMAL)[0], *draw(rng, n_test, shares, SHARE_NOVEL))
        for _ in range(n_agents)
    ]


def flags(agents: Sequence[Drawn], strata: str | None, seed: int) -> NDArray[np.bool_]:
    """Return which tests of all agents are flagged."""
    if len(agents) == 1:
        detector = cn.AdaDetect(level=LEVEL, strata=strata, random_state=seed)
        return detector.detect(agents[0].null, agents[0].test, check=False).rejected
    named = [cn.Agent(f"agent-{j}", one.null, one.test) for j, one in enumerate(agents)]
    network = cn.Network(named, level=LEVEL, strata=strata, random_state=seed)
    return np.concatenate([site.rejected for site in network.run(check=False).values()])


def judge(seed: int, n_agents: int, shares: Sequence[float], strata: str | None) -> list[float]:
    """Return the false discovery proportion and the power of one trial."""
    agents = draw_agents(seed, n_agents, shares)
    flagged = flags(agents, strata, seed)
    is_novel = np.concatenate([one.is_novel for one in agents])
    found = float((flagged & is_novel).sum())
    return [1 - found / flagged.sum() if flagged.any() else 0.0, found / is_novel.sum()]


def judge_kept(seed: int, strata: str | None, scorer: str = "logistic") -> list[float]:
    """Return the rates of a kept detector's first batch, and of its list after four batches."""
    rng, (n_null, n_test) = np.random.default_rng(seed), SIZES[1]
    null, unlabelled = draw(rng, n_null, NORMAL)[0], draw(rng, n_test, CHANGED, SHARE_NOVEL)[0]
    detector = cn.AdaDetect(scorer, LEVEL, strata=strata, random_state=seed)
    kept, ledger = detector.keep(null, unlabelled), cn.Ledger(LEVEL)
    batches = [draw(rng, n_test, CHANGED, SHARE_NOVEL) for _ in range(4)]
    alone = kept.detect(batches[0][0], check=False).rejected
    for rows, _ in batches:
        kept.detect(rows, check=False, ledger=ledger)
    listed = np.concatenate(ledger.decisions())
    found = []
    for flagged, is_novel in (
        (alone, batches[0][1]),
        (listed, np.concatenate([novel for _, novel in batches])),
    ):
        hits = float((flagged & is_novel).sum())
        found += [1 - hits / flagged.sum() if flagged.any() else 0.0, hits / is_novel.sum()]
    return found


def print_kept(n_trials: int) -> None:
    """Print the rates of kept detectors, plainly and with strata."""
    for way, strata in (("plain", None), ("strata", "0")):
        trials = np.array([judge_kept(s, strata) for s in range(n_trials)])
        print(f"{way:<10} {'  '.join(map(spelled, trials.T))}", flush=True)


def spelled(values: NDArray[np.float64]) -> str:
    """Write a mean with its standard error."""
    return f"{values.mean():.3f} ± {values.std(ddof=1) / math.sqrt(values.size):.3f}"


def main() -> None:
    """Print FDR and power for each number of agents, plainly and with strata."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks strata")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--agents", type=int, nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--kept", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore", cn.errors.ConovelWarning)
    if given.kept:
        print(f"{'':<10} {'FDR':<16} {'power':<16} {'FDR of the list':<16} power of the list")
        return print_kept(given.trials)
    print(f"{'agents':>6} {'shares of tests':<16} {'detection':<10} {'FDR':<16} power")
    for n_agents in given.agents:
        for name, shares in (("as normals", NORMAL), ("changed", CHANGED)):
            for way, strata in (("plain", None), ("strata", "0")):
                trials = [judge(s, n_agents, shares, strata) for s in range(given.trials)]
                fdr, power = map(spelled, np.array(trials).T)
                print(f"{n_agents:>6} {name:<16} {way:<10} {fdr:<16} {power}", flush=True)


if __name__ == "__main__":
    main()
