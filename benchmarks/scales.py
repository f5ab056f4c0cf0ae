"""Common scales of the regime `joint`, compared on recorded scores of networks.

    python -m benchmarks scales [--agents 3 9 30] [--shifts 2 4] [--null-share 0.9] [--trials 6]
        [--out FOLDER]

Networks run on the paper's Gaussian design with default settings. The scores of every agent's
mixture and null_train are kept in FOLDER, a file for each trial; what was broken off goes on from
there. Every scale then decides on the same scores, by the rule of the network with x = 3/20.
In the design *mixed*, agents rank by different kinds of scores: the composite, the mean of
all models, and the own score, in turn. The last table is about the number of cells.
"""

from __future__ import annotations

import argparse
import pickle
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from rich.progress import track
from scipy.stats import norm, rankdata
from sklearn.isotonic import IsotonicRegression

import conovel as cn
from conovel.experiments.gaussian import Labelled, gaussian_design
from conovel.scorers.base import Mixture, log_odds
from conovel.site import common_scale
from conovel.site.composite import all_scores
from conovel.site.site import Site
from conovel.stats.cells import CellHistogram, PooledBlock
from conovel.stats.grouped import pooled_cut

LEVEL, X = Fraction(1, 10), Fraction(3, 20)
KINDS = ("composite", "mean", "own")
CLOSEST = 1e-12  # to 0 and 1, before log-odds are taken


class Scores(NamedTuple):
    """Scores of an agent's mixture, calibration rows first, and of null_train."""

    mixture: np.ndarray
    null_train: np.ndarray


class Recorded(NamedTuple):
    """An agent: calibration rows, which tests are novel, and scores of each kind."""

    n_calibration: int
    is_novel: np.ndarray
    scores: dict[str, Scores]


def record(rows: Sequence[Labelled]) -> list[Recorded]:
    """Run a network, and note the scores of its agents."""
    found: dict[bytes, Recorded] = {}
    novel = {site.X_test.tobytes(): site.is_novel for site in rows}
    fit = Site.composite

    def noted(site, training, local, models):
        model = fit(site, training, local, models)
        peers = [site.decode(peer, blob) for peer, blob in models.items()]
        known = training.null_train

        def mean(X):
            return log_odds(all_scores(local, peers, known, X), 1e-3).mean(axis=0)

        mixture = Mixture.of(site.own_block.rows)
        kinds = zip(KINDS, (model, SimpleNamespace(score=mean), local), strict=True)
        scores = {kind: unbounded(mixture.score(one), one.score(known)) for kind, one in kinds}
        test = np.ascontiguousarray(site.test.values).tobytes()
        n_calibration = site.own_block.n_calibration
        found[test] = Recorded(n_calibration, novel[test], scores)
        return model

    Site.composite = noted
    try:
        agents = [cn.Agent(f"a{i:03d}", a.X_null, a.X_test) for i, a in enumerate(rows)]
        cn.Network(agents, regime="joint").run()
    finally:
        Site.composite = fit
    return [found[site.X_test.tobytes()] for site in rows]


def unbounded(*scores: np.ndarray) -> Scores:
    """Take log-odds of probabilities, as the network's scale does."""
    both = np.concatenate(scores)
    is_probability = both.min() >= 0 and both.max() <= 1
    return Scores(*(log_odds(some, CLOSEST) if is_probability else some for some in scores))


def median_distance(scores: Scores) -> np.ndarray:
    """Take the median off, and divide by the median distance from it."""
    above = scores.mixture - np.median(scores.mixture)
    return above / (np.median(np.abs(above)) or above.std() or 1.0)


def place(scores: Scores) -> np.ndarray:
    """Return the place in the order of the mixture; exponential, to be independent of its size."""
    s = scores.mixture
    return -np.log(1 - (rankdata(s) - 0.5) / s.size)


def increasing(values: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return values that do not fall as the scores rise; where equal, the score decides."""
    order = np.argsort(scores, kind="stable")
    values = values.copy()
    values[order] = np.maximum.accumulate(values[order])
    return values + 1e-9 * scores


def two_normals(scores: Scores) -> np.ndarray:
    """Return log-odds of two normal components, fitted by EM; a few usual rows are added."""
    z = median_distance(scores)
    share, mean0, sd0, mean1, sd1 = 0.05, 0.0, 1.48, np.quantile(z, 0.97), 2.0
    for _ in range(60):
        odds = (
            np.log(share / (1 - share)) + norm.logpdf(z, mean1, sd1) - norm.logpdf(z, mean0, sd0)
        )
        novel = 1 / (1 + np.exp(-np.clip(odds, -50, 50)))
        share = (novel.sum() + 1) / (z.size + 25)
        mean1 = (novel @ z + 20) / (novel.sum() + 4)
        sd1 = max(np.sqrt((novel @ (z - mean1) ** 2 + 16) / (novel.sum() + 4)), 1.0)
        mean0 = (1 - novel) @ z / (1 - novel).sum()
        sd0 = np.sqrt((1 - novel) @ (z - mean0) ** 2 / (1 - novel).sum())
    odds = np.log(share / (1 - share)) + norm.logpdf(z, mean1, sd1) - norm.logpdf(z, mean0, sd0)
    return increasing(odds, z)


def isotonic_ratio(scores: Scores) -> np.ndarray:
    """Return the log density ratio of mixture to null_train, by isotonic regression."""
    both = np.concatenate(scores)
    is_mixture = np.arange(both.size) < scores.mixture.size
    weight = np.where(is_mixture, 1 / scores.mixture.size, 1 / scores.null_train.size)
    fitted = IsotonicRegression(out_of_bounds="clip").fit(both, is_mixture, weight)
    # A block of equal ratios is ordered by the simple scale, else the top block is one cell.
    return log_odds(fitted.predict(scores.mixture)) + 1e-3 * median_distance(scores)


def upper_quantiles(scores: Scores) -> np.ndarray:
    """Return normal scores by a parabola through the upper quantiles of both kinds of rows."""
    probabilities = np.array([0.5, 0.6, 0.7, 0.8, 0.9])
    quantiles = np.quantile(np.concatenate(scores), probabilities)
    if quantiles[-1] <= quantiles[0]:
        return median_distance(scores)
    curve, slope, centre = np.polyfit(norm.ppf(probabilities), quantiles, 2)
    if curve <= 0:
        curve, (slope, centre) = 0.0, np.polyfit(norm.ppf(probabilities), quantiles, 1)
    slope = max(slope, 1e-9)
    above = scores.mixture - centre
    # The root of curve z² + slope z = above; a line below the centre.
    root = np.sqrt(slope**2 + 4 * curve * np.maximum(above, 0))
    return np.where(above > 0, 2 * above / (slope + root), above / slope)


def common(scores: Scores) -> np.ndarray:
    """Return the scale of the network."""
    curve = common_scale.fit_curve(*map(np.sort, scores))
    return np.interp(scores.mixture, curve.knots, curve.values)  # every score is a knot


def log_odds_of_novelty(scores: Scores) -> np.ndarray:
    """Return the network's scale, without the place in the mixture."""
    with patch.object(common_scale, "_PLACE_WEIGHT", 0.0):
        return common(scores)


def by_the_upper_half(scores: Scores) -> np.ndarray:
    """Return the same, with the unit of the upper half alone."""
    upper_half = {"_NORMAL_HIGH": np.inf, "_NORMAL_TAIL": np.inf}
    with patch.multiple(common_scale, **upper_half):
        return log_odds_of_novelty(scores)


def with_pooled_shape(agents: Sequence[Scores]) -> list[np.ndarray]:
    """Return log-odds where one shape, the mean over agents, replaces the normal one.

    The shape is the mean over agents of the upper quantiles of null_train, in the agent's units.
    Beyond the last quantile it goes on as a line.
    """
    grid = np.linspace(0, 2, 9)  # normal scores
    curves, standard = [], []
    for scores in agents:
        both = np.concatenate(scores)
        centre, upper = np.quantile(both, [0.5, 0.8])
        unit = (upper - centre) / norm.ppf(0.8) or both.std() or 1.0
        standard.append(Scores(*((some - centre) / unit for some in scores)))
        curves.append(np.quantile(standard[-1].null_train, norm.cdf(grid)))
    shape = np.maximum.accumulate(np.mean(curves, axis=0)) + 1e-9 * grid
    slope = max((shape[-1] - shape[-3]) / (grid[-1] - grid[-3]), 1e-3)

    def normal_scores(z: np.ndarray) -> np.ndarray:
        inside = np.interp(z, shape, grid)
        return inside + np.minimum(z - shape[0], 0) + np.maximum(z - shape[-1], 0) / slope

    return [log_odds_of_novelty(Scores(*map(normal_scores, scores))) for scores in standard]


def each(scale: Callable[[Scores], np.ndarray]) -> Callable[[Sequence[Scores]], list[np.ndarray]]:
    """Let every agent learn the scale by itself."""
    return lambda agents: [scale(scores) for scores in agents]


OURS = "log-odds and place in the mixture"
SCALES = {
    "median and median distance": each(median_distance),
    "place in the mixture": each(place),
    "two normal components": each(two_normals),
    "isotonic density ratio": each(isotonic_ratio),
    "parabola of normal scores": each(upper_quantiles),
    OURS: each(common),
    "log-odds alone": each(log_odds_of_novelty),
    "log-odds alone, unit of the upper half": each(by_the_upper_half),
    "log-odds alone, pooled shape": with_pooled_shape,
}


def cell_edges() -> dict[str, np.ndarray | None]:
    """Return the edges of 8 to 256 cells on the same range; None: every score is a cell."""
    edges = common_scale.EDGES
    coarse = {str((edges.size + 1) // n): edges[n - 1 :: n] for n in (16, 8, 4, 2, 1)}
    half = np.diff(edges) / 2
    finer = [edges[0] - half[0], *(edges[:-1] + half), edges[-1] + half[-1]]
    return {**coarse, "256": np.sort([*edges, *finer]), "all scores": None}


def decide(
    agents: Sequence[Recorded], scale: Sequence[np.ndarray], edges: np.ndarray | None = None
) -> float:
    """Return the power of the network's rule; without edges every score is a cell."""
    if edges is None:
        edges = np.unique(np.concatenate(scale))
    histograms, cells = [], []
    for agent, values in zip(agents, scale, strict=True):
        known, tests = np.split(
            np.searchsorted(edges, values, side="right"), [agent.n_calibration]
        )
        histograms.append(CellHistogram.of(known, tests, edges.size + 1))
        cells.append(tests)
    floors = [histogram.floor(X) for histogram in histograms]
    blocks = []
    for histogram, floor in zip(histograms, floors, strict=True):
        kept = histogram.above(floor)
        numbers = histogram.size, histogram.n_calibration
        blocks.append(PooledBlock(*numbers, kept.tests, kept.calibration))
    outcome = pooled_cut(blocks, LEVEL, X)
    rejected = [outcome.rejects(*of) for of in zip(cells, floors, strict=True)]
    is_novel = np.concatenate([agent.is_novel for agent in agents])
    return float(np.concatenate(rejected)[is_novel].mean())


def compare(agents: Sequence[Recorded]) -> dict[tuple[str, str, str], float]:
    """Return the power by table, scale or number of cells, and kind of scores."""
    power = {}
    for design in ("composite", "mixed"):
        kinds = KINDS if design == "mixed" else KINDS[:1]
        scores = [Scores(*agent.scores[kinds[j % len(kinds)]]) for j, agent in enumerate(agents)]
        for name, scale in SCALES.items():
            power["scale", name, design] = decide(agents, scale(scores))
        if design == "composite":
            ours = SCALES[OURS](scores)
            for name, edges in cell_edges().items():
                power["cells", name, design] = decide(agents, ours, edges)
    return power


def recorded(options: argparse.Namespace, n_agents: int, shift: float, trial: int):
    """Read the scores of a trial, or run its network and keep them."""
    share = options.null_share
    file = options.out / f"{n_agents}_{shift:g}_{share:g}_{trial}.pkl"
    if not file.exists():
        rng = np.random.default_rng([trial, n_agents])
        agents = record(gaussian_design(shift, rng, n_agents=n_agents, null_share=share))
        plain = [
            (a.n_calibration, a.is_novel, {k: tuple(v) for k, v in a.scores.items()})
            for a in agents
        ]
        file.write_bytes(pickle.dumps(plain))
    return [Recorded(*agent) for agent in pickle.loads(file.read_bytes())]


def main() -> None:
    """Record what is missing, compare the scales and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scales", description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[3, 9, 30])
    parser.add_argument("--shifts", type=float, nargs="+", default=[2.0, 4.0])
    parser.add_argument("--null-share", type=float, default=0.9)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("scales"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    found = defaultdict(list)
    designs = [(k, shift) for k in options.agents for shift in options.shifts]
    for k, shift in track(designs, "designs", transient=True):
        for trial in range(options.trials):
            power = compare(recorded(options, k, shift, trial))
            for (table, name, design), value in power.items():
                found[table, design, k, shift, name].append(value)
    print("Power ± standard error, and the smallest of the trials")
    for table, design in (("scale", "composite"), ("scale", "mixed"), ("cells", "composite")):
        names = list(dict.fromkeys(key[-1] for key in found if key[0] == table))
        print(
            f"\n| {table} ({design}) | " + " | ".join(f"K {k}, δ {s:g}" for k, s in designs) + " |"
        )
        print("|---" + "|---:" * len(designs) + "|")
        for name in names:
            cells = [cell(found[table, design, *where, name]) for where in designs]
            print(f"| {name} | " + " | ".join(cells) + " |")


def cell(values: Sequence[float]) -> str:
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
    return f"{np.mean(values):.3f} ± {error:.3f}, {min(values):.2f}"


if __name__ == "__main__":
    main()
