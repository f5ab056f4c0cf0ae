"""Real data with labels, divided among three agents whose normals differ.

Where the rows name a site, sites are agents. Otherwise the normals are clustered, and each
agent prefers some clusters, by weights from a Dirichlet distribution. Labels are used only to
decide which rows are normals and which are novelties.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import FileError, InputError
from conovel.experiments.gaussian import Labelled
from conovel.experiments.tasks import Row

N_AGENTS = 3
N_NULL, N_TEST, N_NOVEL = 1333, 330, 33  # rows of an agent; fewer if the data set has fewer
CONCENTRATION = 0.3
N_CLUSTERS = 10
BUNDLED = "digits"
_NOVEL_GASES = ("Ammonia", "Toluene")


class LabelledRows(NamedTuple):
    """A data set: rows, whether each is novel, and the site of each if there are sites."""

    X: NDArray[np.float64]
    is_novel: NDArray[np.bool_]
    site: NDArray[np.int64] | None


@dataclass(frozen=True)
class Real:
    """One data set, divided anew in each trial."""

    name: str
    file: str = ""
    content: str = ""

    def draw(self, seed: list[int]) -> list[Labelled]:
        """Divide the rows among the agents of a trial."""
        data = _load(self.file)
        rng = np.random.default_rng(seed)
        return (_by_cluster if data.site is None else _by_site)(data, rng)

    def columns(self) -> Row:
        """Name the source in the results."""
        return {"data": self.name, "shift": None, "agents": N_AGENTS}

    def identity(self) -> dict[str, Any]:
        """Return everything that the rows depend on besides the seed."""
        return {"name": self.name, "content": self.content}


def real_sources(folder: Path | None) -> list[Real]:
    """Return the data sets of a folder, or the one that comes with scikit-learn.

    A set is an ``.npz`` file with rows ``X`` and ``y`` (1 for a novelty), or with ``gas``,
    ``gas_names`` and ``batch`` (the sensor drift data of UCI). It may have a ``site`` for
    each row.
    """
    if folder is None:
        return [Real(BUNDLED)]
    files = sorted(folder.glob("*.npz"))
    if not files:
        raise FileError(f"{folder} has no .npz files: choose another folder")
    return [
        Real(file.stem, str(file), hashlib.sha256(file.read_bytes()).hexdigest()[:16])
        for file in files
    ]


@lru_cache(maxsize=4)
def _load(file: str) -> LabelledRows:
    if not file:
        from sklearn.datasets import load_digits  # noqa: PLC0415

        X, y = load_digits(return_X_y=True)
        return LabelledRows(_informative(X), y >= 8, None)
    try:
        with np.load(file, allow_pickle=False) as archive:
            held = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise FileError(f"{file} cannot be read: {error}") from None
    if "X" not in held or not ({"y", "gas"} & set(held)):
        raise InputError(f"{file} needs arrays X and y (1 for a novelty)")
    site = held.get("site", held.get("batch"))
    if "y" in held:
        is_novel = held["y"] == 1
    else:
        codes = [i for i, gas in enumerate(held["gas_names"]) if str(gas) in _NOVEL_GASES]
        is_novel = np.isin(held["gas"], codes)
    return LabelledRows(_informative(held["X"]), is_novel, site)


def _informative(X: NDArray[Any]) -> NDArray[np.float64]:
    values = np.asarray(X, dtype=np.float64)
    return np.ascontiguousarray(values[:, np.ptp(values, axis=0) > 0])


def _by_site(data: LabelledRows, rng: np.random.Generator) -> list[Labelled]:
    """Take as agents the largest sites that have enough novelties."""
    assert data.site is not None  # noqa: S101
    names, novel = np.unique(data.site[data.is_novel], return_counts=True)
    with_novelties = names[novel >= N_NOVEL]
    sizes = [np.count_nonzero((data.site == name) & ~data.is_novel) for name in with_novelties]
    chosen = with_novelties[np.sort(np.argsort(sizes, kind="stable")[-N_AGENTS:])]
    if chosen.size < N_AGENTS:
        raise InputError(
            f"only {chosen.size} sites have {N_NOVEL} novelties, and {N_AGENTS} are needed"
        )
    agents = []
    for name in chosen:
        at_site = data.site == name
        nulls = rng.permutation(np.flatnonzero(at_site & ~data.is_novel))
        novelties = rng.permutation(np.flatnonzero(at_site & data.is_novel))[:N_NOVEL]
        agents.append(_agent(data, nulls[: N_NULL + N_TEST - N_NOVEL], novelties, N_TEST))
    return agents


def _by_cluster(data: LabelledRows, rng: np.random.Generator) -> list[Labelled]:
    """Let each agent draw from the remaining normals, with its own weights of the clusters."""
    nulls, cluster = np.flatnonzero(~data.is_novel), _clusters(data)
    novelties = rng.permutation(np.flatnonzero(data.is_novel))
    n_each = min(N_NULL + N_TEST - N_NOVEL, int(0.9 * nulls.size) // N_AGENTS)
    n_test = min(N_TEST, n_each // 4)
    n_novel = min(n_test // 10, novelties.size // N_AGENTS)
    left = np.arange(nulls.size)
    agents = []
    for j in range(N_AGENTS):
        preference = rng.dirichlet(np.full(N_CLUSTERS, CONCENTRATION))
        # Every cluster keeps a positive weight, because a preferred one may run out of rows.
        weight = preference[cluster[left]] + 1e-6
        drawn = rng.choice(left, n_each, replace=False, p=weight / weight.sum())
        left = np.setdiff1d(left, drawn)
        own = novelties[j * n_novel : (j + 1) * n_novel]
        agents.append(_agent(data, rng.permutation(nulls[drawn]), own, n_test))
    return agents


def _agent(
    data: LabelledRows, nulls: NDArray[np.intp], novelties: NDArray[np.intp], n_test: int
) -> Labelled:
    n = nulls.size - (n_test - novelties.size)
    tests = np.concatenate([nulls[n:], novelties])
    return Labelled(data.X[nulls[:n]], data.X[tests], data.is_novel[tests])


def _clusters(data: LabelledRows) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans  # noqa: PLC0415

    normal = data.X[~data.is_novel]
    scaled = (normal - normal.mean(axis=0)) / normal.std(axis=0).clip(min=1e-12)
    sample = scaled[:: max(len(scaled) // 5000, 1)]
    means = KMeans(N_CLUSTERS, n_init=1, random_state=0).fit(sample)
    labels: NDArray[np.int64] = means.predict(scaled).astype(np.int64)
    return labels
