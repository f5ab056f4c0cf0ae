"""Real tables with labels: how they are read, and how trials are drawn from them.

Labels decide which rows are normals and which are novelties, never more.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pyarrow import BufferReader
from pyarrow.csv import read_csv
from sklearn.cluster import KMeans

# The default scorer was developed on these; all others show how much of that was over-fitting.
DEVELOPED_ON = (
    "annthyroid",
    "cardio",
    "donors",
    "gasdrift",
    "landsat",
    "magic.gamma",
    "mnist",
    "PageBlocks",
    "satellite",
    "toniot_flows",
)
N_TEST, N_NOVEL = 500, 50  # tests of a site, and the novelties among them
N_LABELLED = 500  # novelties that the supervised ceiling may learn from
N_AGENTS = 3
CONCENTRATION, N_CLUSTERS = 0.3, 10  # of the Dirichlet weights; of the normals
_NOVEL_GASES = ("Ammonia", "Toluene")
_NOT_FEATURES = {
    "toniot_flows": (
        "IPV4_SRC_ADDR",
        "L4_SRC_PORT",
        "IPV4_DST_ADDR",
        "L4_DST_PORT",
        "Label",
        "Attack",
    ),
    "ai4i2020": ("UDI", "Product ID", "Machine_failure", "TWF", "HDF", "PWF", "OSF", "RNF"),
}
_LABELS = {"toniot_flows": "Label", "ai4i2020": "Machine_failure"}
_SITES = {"ai4i2020": "Type"}


class Rows(NamedTuple):
    """A table: rows, which are novel, and the site of each if it has one."""

    X: np.ndarray
    is_novel: np.ndarray
    site: np.ndarray | None


class Site(NamedTuple):
    """What one site has in a trial."""

    X_null: np.ndarray
    X_test: np.ndarray
    is_novel: np.ndarray


class Trial(NamedTuple):
    """The sites of a trial, and novelties that none of them tests."""

    sites: list[Site]
    labelled: np.ndarray


def files(folder: Path) -> dict[str, Path]:
    """Map the name of each table to its file."""
    found = [*folder.rglob("*.npz"), *folder.rglob("*.csv"), *folder.rglob("*.csv.gz")]
    return {file.name.removesuffix(".gz").rpartition(".")[0]: file for file in sorted(found)}


def large(folder: Path) -> dict[str, Path]:
    """Map the name of each table for one site of 500 known normals or more to its file.

    Small tables are measured by ``few``, and tables of several sites by ``together``.
    """
    return {
        name: file
        for name, file in files(folder).items()
        if file.parent.name not in ("small", "multi")
    }


@lru_cache(maxsize=4)
def load(file: Path) -> Rows:
    """Read a table; columns that are constant are left out."""
    rows = _archive(file) if file.suffix == ".npz" else _table(file)
    X = np.asarray(rows.X, dtype=np.float64)
    return rows._replace(X=np.ascontiguousarray(X[:, np.ptp(X, axis=0) > 0]))


def _archive(file: Path) -> Rows:
    with np.load(file, allow_pickle=False) as archive:
        held = {name: archive[name] for name in archive.files}
    if "y" in held:
        return Rows(held["X"], held["y"] == 1, held.get("site"))
    codes = [i for i, gas in enumerate(held["gas_names"]) if str(gas) in _NOVEL_GASES]
    return Rows(held["X"], np.isin(held["gas"], codes), held["batch"])


def _table(file: Path) -> Rows:
    name = file.name.split(".")[0]
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    table = read_csv(BufferReader(content.removeprefix(b"\xef\xbb\xbf")))
    columns = []
    for column in table.column_names:
        if column in _NOT_FEATURES[name]:
            continue
        values = table[column].to_numpy()
        if values.dtype == object:  # a category: one column for each value
            columns += [values == value for value in sorted(set(values))]
        else:
            columns.append(values)
    site = table[_SITES[name]].to_numpy() if name in _SITES else None
    is_novel = table[_LABELS[name]].to_numpy() == 1
    return Rows(np.column_stack(columns).astype(np.float64), is_novel, site)


def kinds(file: Path) -> np.ndarray:
    """Give each novelty of a table one of two kinds: of attack or gas, or clusters of the rows."""
    data = load(file)
    name = file.name.split(".")[0]
    if name == "gasdrift":
        with np.load(file, allow_pickle=False) as archive:
            names = [str(gas) for gas in archive["gas_names"]]
            return archive["gas"][data.is_novel] == names.index(_NOVEL_GASES[0])
    if name == "toniot_flows":
        attack = read_csv(file)["Attack"].to_numpy()[data.is_novel]
        names, counts = np.unique(attack, return_counts=True)
        return np.isin(attack, names[np.argsort(-counts, kind="stable")][::2])
    normal, novel = data.X[~data.is_novel], data.X[data.is_novel]
    centre, scale = np.median(normal, axis=0), normal.std(axis=0).clip(min=1e-12)
    units = np.arcsinh((novel - centre) / scale)
    units /= units.std(axis=0).clip(min=1e-12)
    return KMeans(2, n_init=4, random_state=0).fit_predict(units) == 1


def of_another_kind(file: Path, n: int, trial: int) -> Trial:
    """Draw one site whose tests have novelties of one kind; those of the other are labelled."""
    data, one = load(file), kinds(file)
    rng = np.random.default_rng([trial, n, _number(file)])
    tested = one if trial % 2 else ~one
    places = np.flatnonzero(data.is_novel)
    others, kept = places[~tested], data.is_novel.copy()
    kept[others] = False
    rows = np.flatnonzero(~data.is_novel | kept)
    drawn = one_site(Rows(data.X[rows], kept[rows], None), n, rng)
    return drawn._replace(labelled=data.X[rng.permutation(others)[:N_LABELLED]])


def one_site(data: Rows, n: int, rng: np.random.Generator) -> Trial:
    """Draw n known normals and 500 tests with 50 novelties, fewer where there are fewer."""
    nulls, novel = (rng.permutation(np.flatnonzero(of)) for of in (~data.is_novel, data.is_novel))
    n_novel = min(N_NOVEL, novel.size)
    n = min(n, nulls.size - (N_TEST - n_novel))
    tests = np.concatenate([nulls[n : n + N_TEST - n_novel], novel[:n_novel]])
    site = Site(data.X[nulls[:n]], data.X[tests], data.is_novel[tests])
    return Trial([site], data.X[novel[n_novel : n_novel + N_LABELLED]])


def three_sites(data: Rows, n: int, rng: np.random.Generator) -> Trial:
    """Deal the rows out: sites are agents, or each prefers some clusters of the normals."""
    parts = _by_site(data, rng) if data.site is not None else _by_cluster(data, n, rng)
    sites, left = [], []
    for nulls, novel in parts:
        n_test = min(N_TEST, nulls.size // 3)
        n_novel = min(N_NOVEL, n_test // 10, novel.size)
        n_null = min(n, nulls.size - (n_test - n_novel))
        tests = np.concatenate([nulls[n_null : n_null + n_test - n_novel], novel[:n_novel]])
        sites.append(Site(data.X[nulls[:n_null]], data.X[tests], data.is_novel[tests]))
        left.append(novel[n_novel:])
    return Trial(sites, data.X[rng.permutation(np.concatenate(left))[:N_LABELLED]])


def _by_site(data: Rows, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Take the sites with most normals, if they have twenty novelties, as agents."""
    names = np.unique(data.site)
    enough = [s for s in names if np.count_nonzero(data.is_novel & (data.site == s)) >= 20]
    sizes = [np.count_nonzero(~data.is_novel & (data.site == s)) for s in enough]
    chosen = [enough[i] for i in np.sort(np.argsort(sizes, kind="stable")[-N_AGENTS:])]
    return [
        tuple(
            rng.permutation(np.flatnonzero((data.site == s) & of))
            for of in (~data.is_novel, data.is_novel)
        )
        for s in chosen
    ]


def _by_cluster(
    data: Rows, n: int, rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Let each agent draw from the normals that are left, preferring some clusters."""
    nulls, cluster = np.flatnonzero(~data.is_novel), _clusters(data)
    novel = np.array_split(rng.permutation(np.flatnonzero(data.is_novel)), N_AGENTS)
    n_each = min(n + N_TEST, int(0.9 * nulls.size) // N_AGENTS)
    left = np.arange(nulls.size)
    parts = []
    for own in novel:
        taste = rng.dirichlet(np.full(N_CLUSTERS, CONCENTRATION))
        weight = taste[cluster[left]] + 1e-6  # a preferred cluster may run out
        drawn = rng.choice(left, n_each, replace=False, p=weight / weight.sum())
        left = np.setdiff1d(left, drawn)
        parts.append((rng.permutation(nulls[drawn]), own))
    return parts


def _clusters(data: Rows) -> np.ndarray:
    normal = data.X[~data.is_novel]
    scaled = (normal - normal.mean(axis=0)) / normal.std(axis=0).clip(min=1e-12)
    found = KMeans(N_CLUSTERS, n_init=1, random_state=0)
    return found.fit(scaled[:: max(len(scaled) // 5000, 1)]).predict(scaled)


LAYOUTS: dict[str, Callable[[Rows, int, np.random.Generator], Trial]] = {
    "one site": one_site,
    "three sites": three_sites,
}


def draw(file: Path, layout: str, n: int, trial: int) -> Trial:
    """Draw a trial; the same one for every scorer."""
    return LAYOUTS[layout](load(file), n, np.random.default_rng([trial, n, _number(file)]))


def _number(file: Path) -> int:
    return int.from_bytes(hashlib.sha256(file.name.encode()).digest()[:4])
