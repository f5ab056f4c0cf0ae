"""The draws of the contest: sites with known normals and tests, and novelties that some know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks._real_sets import Site, files, load
from conovel.experiments.gaussian import gaussian_design

SETS = ("netflow", "beijing_air", "gas_turbine", "gusto", "gasdrift")
MOST_NULL, MOST_NORMAL, MOST_NOVEL = 600, 180, 20  # of a site; the last two are tested
# How many novelties are known in the whole network, and where.
CELLS = ((0, "none"), (20, "one"), (20, "all"), (100, "one"), (100, "all"))


class Draw(NamedTuple):
    """What all contestants get."""

    sites: list[Site]
    spare: list[np.ndarray]  # novelties of each site that are not tested

    @property
    def X_null(self) -> np.ndarray:
        """The known normals of all sites."""
        return np.vstack([site.X_null for site in self.sites])

    @property
    def X_test(self) -> np.ndarray:
        """The tests of all sites."""
        return np.vstack([site.X_test for site in self.sites])

    @property
    def is_novel(self) -> np.ndarray:
        """Which tests are novel."""
        return np.concatenate([site.is_novel for site in self.sites])

    def known_rows(self, n: int, where: str) -> list[np.ndarray]:
        """Return the known novelties of each site: n in all, at one site or dealt out to all.

        The one is the site with most novelties to spare.
        """
        counts = np.zeros(len(self.sites), dtype=int)
        sizes = np.array([len(rows) for rows in self.spare])
        if where == "one":
            counts[sizes.argmax()] = min(n, sizes.max())
        while where == "all" and counts.sum() < n and (counts < sizes).any():
            counts[np.flatnonzero(counts < sizes)[: n - counts.sum()]] += 1
        return [rows[:count] for rows, count in zip(self.spare, counts, strict=True)]


def real(file: Path, seed: int) -> Draw:
    """Draw from a table with sites of its own; small sites have fewer rows of each kind."""
    data, rng = load(file), np.random.default_rng([17, seed])
    sites, spare = [], []
    for name in np.unique(data.site):
        parts = (data.X[(data.site == name) & of] for of in (~data.is_novel, data.is_novel))
        normal, novel = (part[rng.permutation(len(part))] for part in parts)
        n_normal = min(MOST_NORMAL, len(normal) // 3)
        n_novel = min(MOST_NOVEL, n_normal // 9)
        n_null = min(MOST_NULL, len(normal) - n_normal)
        rows = np.vstack([normal[n_null : n_null + n_normal], novel[:n_novel]])
        order = rng.permutation(len(rows))
        sites.append(Site(normal[:n_null], rows[order], order >= n_normal))
        spare.append(novel[n_novel:])
    return Draw(sites, spare)


def gaussian(seed: int) -> Draw:
    """Draw three sites of the paper's design; its last novelties are known, not tested."""
    sites, spare = [], []
    for one in gaussian_design(2.0, seed):
        novel = np.flatnonzero(one.is_novel)
        kept = np.setdiff1d(np.arange(len(one.X_test)), novel[-MOST_NOVEL // 2 :])
        sites.append(Site(one.X_null[:MOST_NULL], one.X_test[kept], one.is_novel[kept]))
        spare.append(one.X_test[novel[-MOST_NOVEL // 2 :]])
    return Draw(sites, spare)


def designs(folder: Path | None) -> dict[str, Callable[[int], Draw]]:
    """Name what can be drawn: the tables of a folder, or the Gaussian design without one."""
    if folder is None:
        return {"gaussian": gaussian}
    paths = files(folder)
    return {name: _of(paths[name]) for name in SETS if name in paths}


def _of(file: Path) -> Callable[[int], Draw]:
    return lambda seed: real(file, seed)
