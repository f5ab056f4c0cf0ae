"""Reasons of flagged rows: how often the truth is found, and the speed against the package shap.

    python -m benchmarks reasons [--seeds 3] [--rows 1000] [--columns 100] [--what truth speed]

Truth: novelties are shifted in one of several columns, or have two columns that are usual by
themselves and never together. Counted are flagged novelties whose first reason is that column, or
that pair. Speed: wall-clock time of explanations of so many rows, whatever else the machine does,
and processor time of our exact shares for trees against shap's interventional TreeExplainer with
the same background, in turn in one process and one thread.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier
from threadpoolctl import threadpool_limits

import conovel as cn
from conovel.models.shares import column_shares
from conovel.scorers.from_sklearn import to_flat
from conovel.site.explain.explainer import Explainer, plain_views

SCORERS = {
    "linear": "logistic",
    "forest": "random-forest",
    "boosting": "boosting",
    "refined trees": "refined-trees",
    "blend (default)": "automatic",
}
BACKGROUND = 8


def shifted(rng, d: int, novel: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shift each novelty in one of three columns by 4 standard deviations."""
    X_null, X_test = rng.normal(size=(3000, d)), rng.normal(size=(1200, d))
    column = np.full(1200, -1)
    column[-novel:] = rng.integers(3, size=novel)
    rows = np.flatnonzero(column >= 0)
    X_test[rows, column[rows]] += np.where(column[rows] == 1, -4.0, 4.0)
    return X_null, X_test, column


def paired(rng, d: int, novel: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Break the correlation of the first two columns; both values stay within ±1.8."""
    X_null, X_test = rng.normal(size=(4000, d)), rng.normal(size=(1200, d))
    for X in (X_null, X_test):
        X[:, 1] = 0.97 * X[:, 0] + np.sqrt(1 - 0.97**2) * X[:, 1]
    sign = rng.choice([-1.0, 1.0], novel)
    X_test[-novel:, 0] = sign * rng.uniform(0.8, 1.8, novel)
    X_test[-novel:, 1] = -sign * rng.uniform(0.8, 1.8, novel)
    return X_null, X_test, np.where(np.arange(1200) >= 1200 - novel, 0, -1)


def results(
    scorer: str, draw: Callable, d: int, seed: int
) -> Iterator[tuple[str, object, object]]:
    """Detect at one site, and in a network with the default composite."""
    rng = np.random.default_rng(seed)
    X_null, X_test, truth = draw(rng, d)
    yield "one site", cn.AdaDetect(scorer).detect(X_null, X_test), truth
    drawn = {name: draw(rng, d) for name in ("a", "b")}
    agents = [cn.Agent(name, *rows[:2]) for name, rows in drawn.items()]
    run = cn.Network(agents, scorer=scorer).run()
    for name, (*_, truth_there) in drawn.items():
        yield "composite", run[name], truth_there


def truth_table(seeds: int, console: Console) -> None:
    """Print the share of flagged novelties whose first reason is the truth."""
    table = Table(title="first reason is the truth, % (flagged novelties)", box=None)
    for head in ("scorer", "novelty", "columns", "one site", "composite"):
        table.add_column(head, justify="left" if head in ("scorer", "novelty") else "right")
    for name, scorer in SCORERS.items():
        for kind, draw, d in (
            ("column", shifted, 20),
            ("column", shifted, 100),
            ("pair", paired, 8),
        ):
            if kind == "pair" and name == "linear":  # it cannot see one
                continue
            right: dict[str, list[bool]] = {"one site": [], "composite": []}
            for seed in range(seeds):
                for where, result, truth in results(scorer, draw, d, seed):
                    reasons = result.reasons
                    for i, row in enumerate(reasons.rows.tolist()):
                        if truth[row] < 0:
                            continue
                        first = reasons.of_row(i, 1)[0].columns
                        wanted = (0, 1) if kind == "pair" else (truth[row],)
                        right[where].append(first == wanted)
            cells = [f"{100 * np.mean(r):.1f} ({len(r)})" if r else "–" for r in right.values()]
            table.add_row(name, kind, str(d), *cells)
            console.print(name, kind, d, *cells)
    console.print(table)


def speed_table(n: int, d: int, repeats: int, console: Console) -> None:
    """Print how long explanations take, and our kernel against shap's."""
    rng = np.random.default_rng(0)
    X_null, X_test = rng.normal(size=(3000, d)), rng.normal(size=(1500, d))
    X_test[-300:, :3] += 3
    rows = X_test[rng.integers(1200, 1500, size=n)] + 0.1 * rng.normal(size=(n, d))
    table = Table(title=f"{n:,} explanations on {d} columns, seconds", box=None)
    for head in ("score", "wall clock", "processor"):
        table.add_column(head, justify="left" if head == "score" else "right")
    exponential = np.exp(X_null), np.exp(X_test), np.exp(rows)
    for name, scorer, (null, test, novel) in (
        ("linear", "logistic", (X_null, X_test, rows)),
        ("forest", "random-forest", (X_null, X_test, rows)),
        ("blend (default, Gaussian)", "automatic", (X_null, X_test, rows)),
        ("forests (default, other)", "automatic", exponential),
    ):
        explainer = cn.AdaDetect(scorer).detect(null, test).explainer
        explainer.explain(novel[:5])  # loads and compiles
        fresh = Explainer(explainer.model, explainer.null_train, plain_views(range(d)))
        wall, processor = timed(lambda e=fresh, r=novel: e.explain(r), repeats)
        table.add_row(name, f"{wall:.2f}", f"{processor:.2f}")
    console.print(table)
    model = RandomForestClassifier(100, max_depth=8, random_state=0)
    labels = np.arange(4500) >= 3000
    model.fit(np.concatenate([X_null, X_test]), labels)
    flat, background = to_flat(model), X_null[:BACKGROUND]
    column_shares(flat, rows[:5], background)
    _, ours = timed(lambda: column_shares(flat, rows, background), repeats)
    try:
        import shap
    except ImportError:
        console.print("shap is not installed: pip install 'conovel[bench]'")
        return
    explainer = shap.TreeExplainer(model, background, feature_perturbation="interventional")
    _, theirs = timed(lambda: explainer.shap_values(rows, check_additivity=False), repeats)
    found = explainer.shap_values(rows[:50], check_additivity=False)[..., 1]
    console.print(
        f"100 trees of depth 8, {BACKGROUND} known normals: ours {ours:.2f} s of processor time,"
        f" shap {theirs:.2f} s, ratio {ours / theirs:.2f}; largest difference"
        f" {np.abs(found - column_shares(flat, rows[:50], background)).max():.1e}"
    )


def timed(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return medians of wall-clock and processor time."""
    walls, processors = [], []
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return median(walls), median(processors)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--what", nargs="+", default=["truth", "speed"])
    options = parser.parse_args()
    console = Console(width=100)
    with threadpool_limits(1):
        if "speed" in options.what:
            speed_table(options.rows, options.columns, options.repeats, console)
        if "truth" in options.what:
            truth_table(options.seeds, console)


if __name__ == "__main__":
    main()
