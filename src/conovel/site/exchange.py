"""A site's work where models are exchanged, or none: one model for all peers, or one per block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from conovel.errors import SampleError
from conovel.site.common_scale import fit_scale
from conovel.spec.regimes import own_block
from conovel.stats.cells import N_CELLS, CellHistogram
from conovel.stats.stepup import RankHistogram

if TYPE_CHECKING:
    from conovel.site.site import Site


def models(site: Site, index: int, names: Sequence[str], weight: Fraction) -> dict[str, bytes]:
    """Fit, and make a model for every peer: one for all, or one per block in `split`.

    In the regime `joint`, `weight` is that of the site's group, zero if it is in a group with no
    other site. The site then trains on the known normals that it need not count.

    Proof: Proposition 2 (docs/theory.md#prop-split), Theorem 5 (docs/theory.md#thm-full).
    """
    site.weight = weight
    if site.spec.regime.n_blocks(len(names)) == 1:
        block = site.own_block
        blob = site.surrogate(block.training, site.fitted, block.n_mixture)
        return {name: blob for i, name in enumerate(names) if i != index}
    cuts = site.cuts(len(names))
    blocks = [site.block(*cut) for cut in cuts]
    site.own_block = blocks[own_block(index)]
    _ = site.fitted
    return {
        name: site.surrogate(block.training, site.fit(block.training), block.n_mixture)
        for i, (name, block) in enumerate(zip(names, blocks, strict=True))
        if i != index
    }


def ranks(site: Site, models: Mapping[str, bytes]) -> RankHistogram:
    """Score with everybody's models together; count the ranks of the tested rows.

    Proof: Lemma 6 (docs/theory.md#lem-exchangeable), Proposition 2 (docs/theory.md#prop-split),
    Theorem 5 (docs/theory.md#thm-full).
    """
    block = site.own_block
    model = site.composite(block.training, site.fitted, models)
    site.explain_by(model, block.null_train)
    site.ranked, site.score = block.rank(model), model
    return site.ranked.histogram


def count_cells(site: Site) -> CellHistogram:
    """Count the ranked rows in each cell of a scale that all sites have in common."""
    block, model, ranked = site.own_block, site.score, site.ranked
    if model is None or ranked is None:
        raise SampleError("rows have no cells before they are ranked")
    scale = fit_scale(model, block.training, site.least_rows(block.training))
    site.cells_of = scale.cells
    tests = np.zeros(N_CELLS, dtype=np.int64)
    for part in ranked.parts():
        tests += np.bincount(scale.cells(part.scores), minlength=N_CELLS)
    calibration = np.bincount(scale.cells(ranked.calibration_scores), minlength=N_CELLS)
    return CellHistogram(calibration, tests, scale.likely)
