"""Digests of what fixed runs give: models, scores, ranks, counts, decisions, choices.

``python -m support.recording`` (with ``tests`` on the path) records all cases anew. A change that
keeps every number keeps every digest, so a case is recorded anew only in a commit that says why.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import conovel as cn
from conovel.protocol.agent import Agent
from conovel.spec.bodies import Model

RECORDED = Path(__file__).parents[1] / "recorded.json"
NAMES = ("north", "south", "west")
BITS = (None, 1, 4, 16, "compact", "compact:200")
COMPOSITES = ("auto", "mean", "max", "min", "stacked")
REGIMES = ("isolated", "counts", "split", "conservative", "full")


def trees() -> RandomForestClassifier:
    """Return a classifier whose numbers do not depend on BLAS."""
    return RandomForestClassifier(12, max_depth=4)


def rows(seed: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Draw known normals and test rows; every tenth test row is novel, some rows are equal."""
    rng = np.random.default_rng([20, seed])
    X_null, X_test = rng.normal(shift, 1, (160, 4)), rng.normal(shift, 1, (60, 4))
    X_test[::10] += 3.0
    X_null, X_test = X_null.round(1), X_test.round(1)
    X_test[1:4] = X_null[:3]
    return X_null, X_test


def digest(*parts: object) -> str:
    """Digest arrays by their bytes and everything else by its JSON text."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype}{part.shape}".encode() + part.tobytes())
        elif isinstance(part, bytes):
            found.update(part)
        else:
            found.update(json.dumps(part, sort_keys=True).encode())
    return found.hexdigest()[:16]


@contextmanager
def sent_models() -> Iterator[list[bytes]]:
    """Collect the bytes of every model that an agent receives, in the order of arrival."""
    found: list[bytes] = []
    take = Agent.take

    def listening(self, message, peer=""):
        if isinstance(message.body, Model):
            found.append(message.body.blob)
        return take(self, message, peer)

    Agent.take = listening
    try:
        yield found
    finally:
        Agent.take = take


def detection(**options: object) -> dict[str, object]:
    """Run AdaDetect at one site."""
    X_null, X_test = rows(0)
    result = cn.AdaDetect(**options).detect(X_null, X_test)
    selection = result.selection and result.selection.to_dict()
    return {
        "n_rejected": result.n_rejected,
        "scores": digest(result.scores, result.calibration_scores),
        "ranks": digest(result.ranks, result.rejected),
        "choices": digest(selection),
    }


def network(shift: float = 1.0, **options: object) -> dict[str, object]:
    """Run a network of three agents in one process, in the regime `full` if none is named."""
    options = {"regime": "full"} | options
    agents = [cn.Agent(name, *rows(i, shift * i)) for i, name in enumerate(NAMES)]
    with sent_models() as models:
        run = cn.Network(agents, **options).run()
    sites = [run[name] for name in NAMES]
    counts = [dict(at.counts) for _, at in sorted(run.transcript.rounds.items())]
    return {
        "n_rejected": run.n_rejected,
        "models": digest(len(models), *models),
        "scores": digest(*(site.scores for site in sites)),
        "ranks": digest(*(a for s in sites for a in (s.ranks, s.rejected, s.tested))),
        "counts": digest(counts),
        "choices": digest([{k: c.to_dict() for k, c in s.choices.items()} for s in sites]),
    }


def fingerprint() -> str:
    """Digest what BLAS, LAPACK and numpy make of fixed numbers: machines round differently."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 7))
    model = LogisticRegression().fit(X, X[:, 0] + rng.normal(size=200) > 0)
    return digest(X.T @ X, np.linalg.eigh(X.T @ X)[1], model.coef_, np.exp(X), np.log(abs(X)))


def cases() -> dict[str, tuple[bool, Callable[[], dict[str, object]]]]:
    """Return every case by name: whether its numbers depend on the machine, and how to run it.

    Stacking fits a linear model, and the composite "auto" usually chooses it.
    """
    found: dict[str, tuple[bool, Callable[[], dict[str, object]]]] = {}

    def add(name: str, blas: bool, run: Callable[..., dict[str, object]], **options: object):
        found[name] = blas, lambda: run(**options)

    add("one site, trees", False, detection, scorer=trees())
    add("one site, trees, storey", False, detection, scorer=trees(), pi0="storey")
    add("one site, trees, quantile", False, detection, scorer=trees(), pi0="quantile")
    one_class = cn.OneClass(IsolationForest(n_estimators=20), higher="normal")
    add("one site, one class", True, detection, scorer=one_class, level=0.2)
    add("one site, boosting", False, detection, scorer="boosting")
    add("one site, two candidates", False, detection, scorer=[trees(), "boosting"])
    add("one site, refined trees", False, detection, scorer=cn.Refined(trees(), trees()))
    blend = cn.Blend(trees(), [LogisticRegression()])
    add("one site, blend", True, detection, scorer=blend, train_fraction="7/20")
    add("one site, default", True, detection)
    for regime in REGIMES:
        blas = regime not in ("isolated", "counts")
        add(f"{regime}, trees", blas, network, scorer=trees(), regime=regime)
        add(f"{regime}, storey", blas, network, scorer=trees(), regime=regime, pi0="storey")
    for composite in COMPOSITES:
        for bits in BITS:
            options = {"scorer": trees(), "composite": composite, "bits": bits}
            add(f"full, {composite}, {bits}", composite in ("auto", "stacked"), network, **options)
    for bits in BITS[:-1]:
        add(f"split, {bits}", True, network, scorer=trees(), regime="split", bits=bits)
    add("full, linear", True, network, scorer="logistic", level=0.2)
    add("full, refined, stacked", True, network, scorer="refined-linear", composite="stacked")
    for regime in ("counts", "full"):
        add(f"{regime}, default", True, network, regime=regime)
    add("full, default, 4 bits", True, network, bits=4)
    return found


def record() -> None:
    """Run all cases and write what they give."""
    found = {name: run() for name, (_, run) in cases().items()}
    content = {"fingerprint": fingerprint(), "cases": found}
    RECORDED.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(record())
