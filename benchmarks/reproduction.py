"""Time of the paper's five tables against a straightforward scikit-learn script.

    python -m benchmarks reproduction [--trials 1] [--trees 100] [--depth 5]

The script is what a reader of the paper would write: a function for each method, called for
each line of each table, forests fitted inside and scored by `predict_proba`. `conovel
reproduce` decides the same cells from shared fits, with forests grown by scikit-learn and by its
own compiled loops. All run in this process, in turn, on the same rows; processor time counts.
Mean power over the lines of the tables is printed too, so that nobody wins by doing something
else.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from conovel.experiments.gaussian import Gaussian
from conovel.experiments.limit import QUANTIZED_AT, SHIFTS
from conovel.experiments.plans import Options, _tasks, merged
from conovel.experiments.tasks import SIZED, Cell, Learner, Task

LEVEL, K = 0.1, 3
BITS = (None, 6, 4, 2, 1)


class Script:
    """The straightforward way."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def trial(self, trial: int) -> list[float]:
        """Run the lines of the five tables one after the other; return their power."""
        power = []
        for delta in SHIFTS:  # global FDR and power: shift sweep
            agents = Gaussian(delta).draw([0, trial])
            power += [self.isolated(agents), self.counts(agents), self.exchange(agents, None)]
        agents = Gaussian(QUANTIZED_AT).draw([0, trial])  # quantization sweep
        power += [self.isolated(agents), self.counts(agents)]
        power += [self.exchange(agents, bits) for bits in BITS]
        for delta in SHIFTS:  # conservative: shift sweep
            power.append(self.conservative(Gaussian(delta).draw([0, trial]), None))
        # conservative: quantization sweep
        return power + [self.conservative(agents, bits) for bits in BITS]

    def isolated(self, agents) -> float:
        found = []
        for agent in agents:
            model, cal, test = self.fit(agent.X_null, agent.X_test)
            p = p_values(score(model, cal), score(model, test))
            found.append(bh(p, LEVEL / K)[agent.is_novel])
        return float(np.concatenate(found).mean())

    def counts(self, agents) -> float:
        p, novel = [], np.concatenate([agent.is_novel for agent in agents])
        for agent in agents:
            model, cal, test = self.fit(agent.X_null, agent.X_test)
            p.append(p_values(score(model, cal), score(model, test)))
        return float(bh(np.concatenate(p), LEVEL)[novel].mean())

    def exchange(self, agents, bits) -> float:
        """Model exchange: K blocks, a model for each peer, the maximum of the scores."""
        blocks = [
            list(zip(*(np.array_split(part, K) for part in rows), strict=True))
            for rows in ((a.X_null, a.X_test, a.is_novel) for a in map(shuffled, agents))
        ]
        fitted = [[self.fit(null, test) for null, test, _ in own] for own in blocks]
        p, novel = [], []
        for j in range(K):
            own, cal, test = fitted[j][j]
            peers = [quantized(fitted[i][j][0], bits) for i in range(K) if i != j]
            p.append(p_values(*(composite(own, peers, rows) for rows in (cal, test))))
            novel.append(blocks[j][j][2])
        return float(bh(np.concatenate(p), LEVEL)[np.concatenate(novel)].mean())

    def conservative(self, agents, bits) -> float:
        fitted = [self.fit(agent.X_null, agent.X_test) for agent in agents]
        found = []
        for j, agent in enumerate(agents):
            own, cal, test = fitted[j]
            peers = [quantized(fitted[i][0], bits) for i in range(K) if i != j]
            p = p_values(*(composite(own, peers, rows) for rows in (cal, test)))
            found.append(bh(p, LEVEL / K)[agent.is_novel])
        return float(np.concatenate(found).mean())

    def fit(self, null, test):
        half = len(null) // 2
        mixture = np.concatenate([null[half:], test])
        labels = np.repeat([0, 1], [half, len(mixture)])
        forest = RandomForestClassifier(self.learner.trees, max_depth=self.learner.depth)
        return forest.fit(np.concatenate([null[:half], mixture]), labels), null[half:], test


def shuffled(agent):
    order = np.random.default_rng(0).permutation(len(agent.X_test))
    return replace(agent, X_test=agent.X_test[order], is_novel=agent.is_novel[order])


def score(model, rows):
    return model.predict_proba(rows)[:, 1]


def composite(own, peers, rows):
    return np.max([score(model, rows) for model in (own, *peers)], axis=0)


def quantized(model, bits):
    """Put thresholds and leaf values on min-max grids."""
    if bits is None:
        return model
    model = deepcopy(model)
    trees = [tree.tree_ for tree in model.estimators_]
    inner = [tree.children_left >= 0 for tree in trees]
    thresholds = np.concatenate([t.threshold[i] for t, i in zip(trees, inner, strict=True)])
    low, high = thresholds.min(), thresholds.max()
    for tree, split in zip(trees, inner, strict=True):
        tree.threshold[split] = on_grid(tree.threshold[split], low, high, bits)
        shares = tree.value[:, 0] / tree.value[:, 0].sum(axis=1, keepdims=True)
        novel = on_grid(shares[:, 1], 0.0, 1.0, bits)
        tree.value[:, 0] = np.column_stack([1 - novel, novel])
    return model


def on_grid(values, low, high, bits):
    steps = 2**bits - 1
    return low + np.round((values - low) / (high - low) * steps) * (high - low) / steps


def p_values(calibration, tests):
    return (1 + (calibration[None, :] >= tests[:, None]).sum(axis=1)) / (len(calibration) + 1)


def bh(p, level):
    order = np.argsort(p)
    below = np.flatnonzero(p[order] <= level * np.arange(1, p.size + 1) / p.size)
    rejected = np.zeros(p.size, dtype=bool)
    rejected[order[: below.max() + 1 if below.size else 0]] = True
    return rejected


def shared(learner: Learner, trials: int) -> list[Task]:
    """Return the same cells as tasks, beyond the trials in which bytes are counted."""
    options = Options(trials=SIZED + trials, learners=(learner,))
    baselines = (Cell("isolated"), Cell("counts"))
    sweeps = _tasks(
        options,
        [Gaussian(delta) for delta in SHIFTS],
        lambda _: (*baselines, Cell("split", "max"), Cell("conservative", "max")),
    )
    precisions = _tasks(
        options,
        [Gaussian(QUANTIZED_AT)],
        lambda _: [Cell(regime, "max", b) for regime in ("split", "conservative") for b in BITS],
    )
    return [task for task in merged([*sweeps, *precisions]) if task.trial >= SIZED]


def lines(tasks: list[Task]) -> list[float]:
    """Run the tasks of a trial and return the power of the lines that the script prints."""
    power = {
        (row["shift"], row["regime"], row["precision"]): row["power"]
        for task in tasks
        for row in task.run()
    }
    names = [Cell("", "max", bits).precision for bits in BITS]
    baselines = [("isolated", ""), ("counts", "")]
    shown = [(d, *c) for d in SHIFTS for c in [*baselines, ("split", "float64")]]
    shown += [(QUANTIZED_AT, *c) for c in [*baselines, *(("split", name) for name in names)]]
    shown += [(d, "conservative", "float64") for d in SHIFTS]
    shown += [(QUANTIZED_AT, "conservative", name) for name in names]
    return [power[line] for line in shown]


def timed(work: Callable[[], list[float]]) -> tuple[float, float]:
    start = time.process_time()
    power = work()
    return time.process_time() - start, float(np.mean(power))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--depth", type=int, default=5)
    args, _ = parser.parse_known_args()
    engines = ["scikit-learn", "compiled"]
    learners = {
        engine: Learner("forest", args.trees, args.depth, engine=engine) for engine in engines
    }
    script = Script(learners["scikit-learn"])
    tasks = {engine: shared(learner, args.trials) for engine, learner in learners.items()}
    for engine in engines:  # first imports and compilations
        tasks[engine][0].run()
    times: dict[str, list[float]] = {"script": [], **{engine: [] for engine in engines}}
    power: dict[str, list[float]] = {name: [] for name in times}
    for trial in range(SIZED, SIZED + args.trials):
        jobs = {"script": lambda t=trial: script.trial(t)}
        for engine in engines:
            mine = [task for task in tasks[engine] if task.trial == trial]
            jobs[engine] = lambda m=mine: lines(m)
        for name, job in jobs.items():
            spent, found = timed(job)
            times[name].append(spent)
            power[name].append(found)
    for engine in engines:
        ratio = np.median(np.divide(times["script"], times[engine]))
        print(
            f"script / conovel, {engine} forests: {ratio:.1f} (aim: 3);"
            f" mean power {np.mean(power['script']):.3f} and {np.mean(power[engine]):.3f}"
        )


if __name__ == "__main__":
    main()
