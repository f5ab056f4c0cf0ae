"""The contestants: each has the settings of its own documentation, and none is tuned.

A contestant gets the sites of a draw and what each site knows, and says how it ranks the tests of
all sites, which of them it flags by its own rule, and how many bytes leave a site on average.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import conovel as cn
from benchmarks._contest_draws import Draw

LEVEL = 0.1
ROUNDS = 20  # of federated averaging, one pass over the rows of a site in each
TREES = 100  # rounds of boosting in the example of NVFlare's recipe
# The example of NVFlare's recipe; one thread, so that processor seconds can be compared.
XGBOOST = {
    "max_depth": 8,
    "eta": 0.1,
    "objective": "binary:logistic",
    "eval_metric": "auc",
    "tree_method": "hist",
    "nthread": 1,
}


@dataclass(frozen=True, eq=False)
class Answer:
    """What a contestant says about the tests of all sites."""

    keys: tuple[np.ndarray, ...]  # higher is more novel; a later key decides between equal ones
    flags: np.ndarray  # by the contestant's own rule
    n_bytes: float  # that leave a site, the mean over sites
    seconds: float


@dataclass(frozen=True)
class Contestant:
    """A method, what it takes, and what leaves a site."""

    name: str
    run: Callable[[Draw, list[np.ndarray], int], Answer | None]
    needs: tuple[str, ...] = ()  # modules
    takes_known: bool = False
    leaves: str = "nothing"
    in_a_process: bool = False  # of its own

    @property
    def missing(self) -> list[str]:
        """What is not installed."""
        return [module for module in self.needs if find_spec(module) is None]


def _timed(run: Callable[..., tuple[Any, ...]]) -> Callable[..., Answer | None]:
    def timed(draw: Draw, known_rows: list[np.ndarray], seed: int) -> Answer | None:
        start = time.process_time()
        parts = run(draw, known_rows, seed)
        return Answer(*parts, time.process_time() - start) if parts else None

    return timed


@_timed
def federated_xgboost(draw: Draw, known_rows: list[np.ndarray], seed: int) -> tuple[Any, ...]:
    """NVFlare's horizontal XGBoost, as the same histograms of pooled rows; needs labels.

    Histograms of sites are added, so the trees are those of pooled rows (``--nvflare`` compares
    them). The rule is that of a classifier: a probability above one half.
    """
    import xgboost

    labelled = np.vstack(known_rows)
    if not len(labelled):
        return ()
    normal = draw.X_null
    rows = xgboost.DMatrix(
        np.vstack([normal, labelled]), np.repeat([0, 1], [len(normal), len(labelled)])
    )
    model = xgboost.train({**XGBOOST, "seed": seed}, rows, TREES)
    scores = model.predict(xgboost.DMatrix(draw.X_test))
    # For each node but the deepest, one child's histogram is added up over sites: two numbers of
    # 8 bytes for each bin; the other child's is the difference.
    n_bins = int(rows.get_quantile_cut()[0][-1])
    nodes = model.trees_to_dataframe()
    n_built = TREES + int((nodes["Feature"] != "Leaf").sum())
    return (scores,), scores > 0.5, n_built * n_bins * 16


@_timed
def averaged_autoencoder(draw: Draw, known_rows: list[np.ndarray], seed: int) -> tuple[Any, ...]:
    """A dense autoencoder by federated averaging, in one process: weights are those of rows.

    Size, rate and batches are PyOD's defaults, and so is the rule: the highest tenth of the
    errors of the rows that trained. Columns are in standard units of all sites.
    """
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    normal = draw.X_null
    centre, unit = normal.mean(axis=0), normal.std(axis=0)
    unit[unit == 0] = 1.0

    def tensor(X: np.ndarray) -> Any:
        return torch.tensor((X - centre) / unit, dtype=torch.float32)

    parts = [tensor(site.X_null) for site in draw.sites]
    sizes = [normal.shape[1], 64, 32, 64, normal.shape[1]]
    layers: list[Any] = []
    for a, b in pairwise(sizes):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    common = {name: value.clone() for name, value in model.state_dict().items()}
    for _ in range(ROUNDS):
        added = {name: torch.zeros_like(value) for name, value in common.items()}
        for part in parts:
            model.load_state_dict(common)
            adam = torch.optim.Adam(model.parameters(), lr=1e-3)
            for batch in torch.from_numpy(rng.permutation(len(part))).split(32):
                loss = torch.nn.functional.mse_loss(model(part[batch]), part[batch])
                adam.zero_grad()
                loss.backward()
                adam.step()
            for name, value in model.state_dict().items():
                added[name] += value * (len(part) / len(normal))
        common = added
    model.load_state_dict(common)

    def errors(rows: Any) -> np.ndarray:
        with torch.no_grad():
            return ((model(rows) - rows) ** 2).mean(dim=1).double().numpy()

    scores = errors(tensor(draw.X_test))
    threshold = np.quantile(errors(torch.cat(parts)), 1 - LEVEL)
    n_numbers = sum(value.numel() for value in common.values())
    return (scores,), scores > threshold, ROUNDS * n_numbers * 4


@_timed
def ecod(draw: Draw, known_rows: list[np.ndarray], seed: int) -> tuple[Any, ...]:
    """PyOD's ECOD at each site, with its default contamination of 0.1."""
    from pyod.models.ecod import ECOD

    scores, flags = [], []
    for site in draw.sites:
        model = ECOD().fit(site.X_null)
        scores.append(model.decision_function(site.X_test))
        flags.append(scores[-1] > model.threshold_)
    return (np.concatenate(scores),), np.concatenate(flags), 0


@_timed
def pooled_adadetect(draw: Draw, known_rows: list[np.ndarray], seed: int) -> tuple[Any, ...]:
    """AdaDetect with its paper's forest on the rows of all sites in one place."""
    scorer = "random-forest"
    detector = cn.AdaDetect(scorer=scorer, level=LEVEL, random_state=seed, train_fraction="4/5")
    result = detector.detect(draw.X_null, draw.X_test, check=False)
    n_numbers = np.mean([site.X_null.size + site.X_test.size for site in draw.sites])
    return (result.scores,), result.rejected, 8 * n_numbers


def conovel_alone(shared: bool) -> Callable[..., Answer | None]:
    """conovel at each site by itself, at level α or, if the level is shared out, at α/K."""

    @_timed
    def run(draw: Draw, known_rows: list[np.ndarray], seed: int) -> tuple[Any, ...]:
        level = Fraction(1, 10 * len(draw.sites)) if shared else LEVEL
        results = [
            cn.AdaDetect(level=level, random_state=seed).detect(
                site.X_null, site.X_test, rows if len(rows) else None, check=False
            )
            for site, rows in zip(draw.sites, known_rows, strict=True)
        ]
        keys = [-np.concatenate([one.p_values for one in results])]
        keys.append(np.concatenate([one.scores for one in results]))
        return tuple(keys), np.concatenate([one.rejected for one in results]), 0

    return run


@_timed
def conovel_together(draw: Draw, known_rows: list[np.ndarray], seed: int) -> tuple[Any, ...]:
    """conovel's default for several sites; what it flags comes first, then cells decide."""
    agents = [
        cn.Agent(f"{i:03d}", site.X_null, site.X_test, X_known=rows if len(rows) else None)
        for i, (site, rows) in enumerate(zip(draw.sites, known_rows, strict=True))
    ]
    run = cn.Network(agents, level=LEVEL, random_state=seed).run(check=False)
    results = [run[agent.name] for agent in agents]
    flags = np.concatenate([one.rejected for one in results])
    cells = np.concatenate([one.cells for one in results])
    scores = np.concatenate([one.scores for one in results])
    names = {agent.name for agent in agents}
    sent = sum(entry.n_bytes for entry in run.transcript.entries if entry.sender in names)
    return (flags, cells, scores), flags, sent / len(agents)


def with_nonconform(detector: str, python: str) -> Callable[..., Answer | None]:
    """A detector at each site with p-values of nonconform, in an interpreter that has it."""

    def run(draw: Draw, known_rows: list[np.ndarray], seed: int) -> Answer:
        rows = {}
        for i, site in enumerate(draw.sites):
            rows |= {f"null_{i}": site.X_null, f"test_{i}": site.X_test}
        script = Path(__file__).with_name("_contest_nonconform.py")
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "rows.npz"), Path(folder, "answers.npz")
            np.savez(source, **rows)
            command = [python, str(script), str(source), str(target), str(seed), detector]
            subprocess.run(command, check=True)
            with np.load(target, allow_pickle=False) as archive:
                held = {name: archive[name] for name in archive.files}
        keys = (-held["p_values"], held["scores"])
        return Answer(keys, held["flags"], 0, float(held["seconds"]))

    return run


def contestants(python: str = sys.executable) -> list[Contestant]:
    """List all; `python` is an interpreter with nonconform."""
    own = python == sys.executable
    peer = ("nonconform", "pyod") if own else ()
    return [
        Contestant(
            "federated XGBoost", federated_xgboost, ("xgboost", "pandas"), True, "histograms"
        ),
        Contestant("averaged autoencoder", averaged_autoencoder, ("torch",), False, "weights"),
        Contestant(
            "isolation forest, nonconform",
            with_nonconform("forest", python),
            peer,
            in_a_process=True,
        ),
        Contestant("k-NN, nonconform", with_nonconform("knn", python), peer, in_a_process=True),
        Contestant("ECOD", ecod, ("pyod",)),
        Contestant("AdaDetect, pooled", pooled_adadetect, leaves="all rows"),
        Contestant("conovel alone", conovel_alone(False), (), True),
        Contestant("conovel alone, α/K", conovel_alone(True), (), True),
        Contestant("conovel together", conovel_together, (), True, "sums and counts"),
    ]
