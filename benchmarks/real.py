"""Power on real tables: the default, its candidates, plain scorers and the supervised ceiling.

    CONOVEL_DATA=FOLDER python -m benchmarks real [--data FOLDER] [--trials 4] [--out FILE]
        [--only NAME ...] [--sizes 500 1500] [--scorers NAME ...] [--layouts "one site" ...]

Tables are all ``.npz``, ``.csv`` and ``.csv.gz`` files below FOLDER. One site has 500 or 1500
known normals, and 500 tests with 50 novelties, fewer where there are fewer. Three sites are those
that the table names, or each prefers some clusters of the normals; they share counts. Every
scorer sees the same draws. *supervised* is a random forest that learns from null_train and up to
500 labelled novelties that no site tests: about what the columns can give. Results are appended to
FILE, a line each; what was broken off goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import conovel as cn
from benchmarks._real_sets import DEVELOPED_ON, LAYOUTS, Trial, draw, large
from conovel.scorers.automatic import Automatic
from conovel.scorers.base import FittedScorer, Scorer, TrainingSet, classifier_score

FOLDER = "CONOVEL_DATA"
SUPERVISED = "supervised"


@dataclass(frozen=True, eq=False)
class Only(Automatic):
    """One candidate of the default, with the random numbers that it has there."""

    name: str = ""

    def fit(self, training: TrainingSet) -> FittedScorer:
        return self.candidates()[self.name].fit(training)


class Neighbours(NearestNeighbors):
    """The distance from the fifth nearest known normal."""

    def decision_function(self, X):
        return self.kneighbors(X, 5)[0][:, -1]


@dataclass(frozen=True, eq=False)
class Supervised(Scorer):
    """A random forest that was told some novelties."""

    labelled: Any
    random_state: int = 0

    @property
    def label(self) -> str:
        return SUPERVISED

    def with_seed(self, seed: int) -> Scorer:
        return replace(self, random_state=seed)

    def fit(self, training: TrainingSet) -> FittedScorer:
        rows = np.concatenate([training.null_train, self.labelled])
        labels = np.arange(len(rows)) >= len(training.null_train)
        model = RandomForestClassifier(300, min_samples_leaf=2, random_state=self.random_state)
        return classifier_score(model.fit(rows, labels.astype(int)), self)


def plain() -> dict[str, Callable[[], Any]]:
    """Return what the default is compared with, by name."""
    scaled = lambda model: make_pipeline(StandardScaler(), model)  # noqa: E731
    return {
        "random forest d10": lambda: RandomForestClassifier(100, max_depth=10),
        "forest leaf 3": lambda: RandomForestClassifier(200, min_samples_leaf=3),
        "extra-trees": lambda: ExtraTreesClassifier(300, max_depth=12, min_samples_leaf=5),
        "boosting": lambda: HistGradientBoostingClassifier(max_leaf_nodes=15),
        "k-NN": lambda: cn.OneClass(scaled(Neighbours()), higher="novel"),
        "LOF": lambda: cn.OneClass(scaled(LocalOutlierFactor(novelty=True)), higher="normal"),
    }


def scorers() -> dict[str, Callable[[], Any]]:
    """Return the default, each of its candidates, and plain scorers."""
    ours = {name: (lambda name=name: Only(name=name)) for name in Automatic().candidates()}
    return {"default": lambda: None, **ours, **plain()}


def run(trial: Trial, scorer: Any, number: int) -> tuple[float, float]:
    """Return the share of novelties that are found, and of what is found that is false."""
    if len(trial.sites) == 1:
        site = trial.sites[0]
        result = cn.AdaDetect(scorer, random_state=number).detect(site.X_null, site.X_test)
        rejected = [result.rejected]
    else:
        agents = [cn.Agent(f"site-{j}", s.X_null, s.X_test) for j, s in enumerate(trial.sites)]
        network = cn.Network(agents, scorer=scorer, regime="counts", random_state=number)
        rejected = [one.rejected for one in network.run().values()]
    found = np.concatenate(rejected)
    is_novel = np.concatenate([site.is_novel for site in trial.sites])
    power = found[is_novel].mean() if is_novel.any() else 0.0
    return float(power), float((found & ~is_novel).sum() / max(found.sum(), 1))


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run what is not in the file yet, and return all rows that were asked for."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = options.out.read_text("utf-8").splitlines() if options.out.exists() else []
    done = {_key(row): row for row in map(json.loads, lines)}
    tables, makers = large(options.data), scorers()
    names = options.only or list(tables)
    wanted = [
        {"set": name, "layout": layout, "n": n, "scorer": scorer, "trial": trial}
        for trial in range(options.trials)
        for layout in options.layouts
        for n in options.sizes
        for name in names
        for scorer in options.scorers or [*makers, SUPERVISED]
    ]
    with options.out.open("a", encoding="utf-8") as out:
        for row in track(wanted, "trials", transient=True):
            if _key(row) in done:
                continue
            trial = draw(tables[row["set"]], row["layout"], row["n"], row["trial"])
            supervised = row["scorer"] == SUPERVISED
            if supervised and not len(trial.labelled):
                continue
            scorer = Supervised(trial.labelled) if supervised else makers[row["scorer"]]()
            start = time.process_time()
            power, fdp = run(trial, scorer, row["trial"])
            row |= {"power": power, "fdp": fdp, "seconds": time.process_time() - start}
            done[_key(row)] = row
            print(json.dumps(row), file=out, flush=True)
    return [done[_key(row)] for row in wanted if _key(row) in done]


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("set", "layout", "n", "scorer", "trial"))


def table(rows: Sequence[dict[str, Any]], what: str) -> list[str]:
    """Return one line for each table of data and one column for each scorer."""
    found = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["set"]][row["scorer"]].append(row[what])
    ways = list(dict.fromkeys(row["scorer"] for row in rows))
    lines = ["| set | " + " | ".join(ways) + " |", "|---" + "|---:" * len(ways) + "|"]
    for name, by_scorer in found.items():
        cells = [_cell(by_scorer[way]) if way in by_scorer else "–" for way in ways]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    complete = [name for name in found if SUPERVISED in found[name]] or list(found)
    for title, sets in (("**mean**", list(found)), ("**mean, with a ceiling**", complete)):
        means = [
            [np.mean(found[name][way]) for name in sets if way in found[name]] for way in ways
        ]
        lines.append(f"| {title} | " + " | ".join(f"{np.mean(m):.3f}" for m in means) + " |")
    if what == "power" and SUPERVISED in ways:
        captured = [
            np.mean([np.mean(found[name][way]) for name in complete]) if complete else 0.0
            for way in ways
        ]
        top = captured[ways.index(SUPERVISED)]
        lines.append("| **captured** | " + " | ".join(f"{c / top:.2f}" for c in captured) + " |")
    return lines


def _cell(values: Iterable[float]) -> str:
    values = list(values)
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{np.mean(values):.3f} ± {error:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get(FOLDER))
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1500])
    parser.add_argument("--layouts", nargs="+", choices=[*LAYOUTS], default=[*LAYOUTS])
    parser.add_argument("--only", nargs="+", help="tables of data")
    parser.add_argument("--scorers", nargs="+", choices=[*scorers(), SUPERVISED])
    parser.add_argument("--out", type=Path, default=Path("real.jsonl"))
    options = parser.parse_args()
    if options.data is None:
        parser.error(f"name the folder of the tables by --data or {FOLDER}")
    options.data = Path(options.data)
    warnings.simplefilter("ignore")
    rows = measure(options)
    for layout in options.layouts:
        for n in options.sizes:
            here = [row for row in rows if row["layout"] == layout and row["n"] == n]
            parts = {
                "developed on": [row for row in here if row["set"] in DEVELOPED_ON],
                "others": [row for row in here if row["set"] not in DEVELOPED_ON],
            }
            for part, some in parts.items():
                for what in ("power", "fdp", "seconds") if some else ():
                    print(f"\n{layout}, {n} known normals, {part}: {what}\n")
                    print("\n".join(table(some, what)), flush=True)


if __name__ == "__main__":
    main()
