"""Digests of what the defaults decide: pages of results carry those that they were measured with.

``python -m support.defaults`` (with ``tests`` on the path) prints them for the package on the
path, and ``--write`` records them. They are about ranks and decisions of small fixed samples, and
do not depend on how a machine rounds unless two scores are nearly equal.
"""

import hashlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import conovel as cn

RECORDED = Path(__file__).parents[1] / "defaults.json"
NAMES = ("north", "south", "west")
# From about 1,000 known normals on, how many of them train does not follow from the rule for few.
MANY, FEW = {"gaussian": 1500, "heavy": 1500}, {"gaussian": 400, "heavy": 400, "far": 140}
REGIMES = ("isolated", "counts", "full", "joint", "together", "consensus")


def samples(shape: str, number: int, n: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw known normals, tests of which every eighth is novel, and ten known novelties."""
    rng = np.random.default_rng([41, number])
    X_null, X_test, X_known = (rng.normal(size=(size, 5)) for size in (n, 120, 10))
    if shape == "heavy":
        X_null, X_test, X_known = (np.exp(1.5 * X) for X in (X_null, X_test, X_known))
    if shape == "agents differ":
        X_null, X_test, X_known = (X + number for X in (X_null, X_test, X_known))
    novel = X_test[::8]
    novel[:] = 0.3 * novel + (8.0 if shape == "far" else 2.5)
    X_known[:] = 0.3 * X_known + 2.5
    return X_null, X_test, X_known


def of_site(shapes: dict[str, int], *, known: bool = False) -> Iterator[np.ndarray]:
    """Give ranks and decisions of a site alone, by shapes and numbers of known normals."""
    for shape, n in shapes.items():
        X_null, X_test, X_known = samples(shape, 0, n)
        result = cn.AdaDetect().detect(X_null, X_test, *([X_known] if known else []))
        yield from (result.ranks, result.rejected)


def of_network(regime: str) -> Iterator[np.ndarray]:
    """Give ranks and decisions of three agents that are alike, and of three that differ."""
    for shape in ("gaussian", "agents differ"):
        rows = {name: samples(shape, number) for number, name in enumerate(NAMES)}
        agents = [cn.Agent(name, X_null, X_test) for name, (X_null, X_test, _) in rows.items()]
        run = cn.Network(agents, regime=regime).run()
        yield from (array for name in NAMES for array in (run[name].ranks, run[name].rejected))


def of_kept() -> Iterator[np.ndarray]:
    """Give ranks and decisions of a detector that is kept, with and without unlabelled rows."""
    X_null, X_test, _ = samples("gaussian", 0, 900)
    for unlabelled in (None, samples("gaussian", 1)[1]):
        result = cn.AdaDetect().keep(X_null, unlabelled).detect(X_test)
        yield from (result.ranks, result.rejected)


def groups() -> dict[str, Callable[[], Iterator[np.ndarray]]]:
    """Return what is digested, by the name that pages use."""
    return {
        "detect": lambda: of_site(MANY),
        "few": lambda: of_site(FEW),
        "known": lambda: of_site(MANY, known=True),
        "kept": of_kept,
        **{regime: (lambda name=regime: of_network(name)) for regime in REGIMES},
    }


def digest(name: str) -> str:
    """Digest what a default decides."""
    content = hashlib.sha256()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for array in groups()[name]():
            content.update(
                f"{array.dtype.kind}{array.shape}".encode() + array.astype("<i8").tobytes()
            )
    return content.hexdigest()[:8]


def main() -> None:
    """Print the digests, and record them with ``--write``."""
    digests = {name: digest(name) for name in groups()}
    print(json.dumps(digests, indent=1))
    if "--write" in sys.argv:
        RECORDED.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
