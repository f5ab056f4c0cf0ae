"""How a site works in one run: what it learns with, and what holds for what leaves it."""

from __future__ import annotations

from dataclasses import dataclass, field

from conovel.scorers.base import Scorer
from conovel.site.sent.private_surrogate import NoiseSource, SecretNoise
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import MAX_TRAIN_ROWS


@dataclass(frozen=True)
class SiteWork:
    """How a site works in one run.

    Attributes
    ----------
    spec : RunSpec
        The settings of the run, with the seed and the precision of this site.
    candidates : tuple of Scorer
        What is fitted; the best one where there are several.
    n_agents : int
        How many agents were invited to the run.
    max_train_rows : int
        How many rows of either kind are learnt from at most.
    group_rows : int or None
        How many of the site's rows each level of a peer's score, and each cell of counts, hold at
        least. None follows :func:`conovel.spec.training.least_rows`.
    columns_fixed : bool
        Whether how columns become numbers must have been fixed before any row was read.
    noise : NoiseSource
        Of models with differential privacy; not secret in tests alone.
    """

    spec: RunSpec
    candidates: tuple[Scorer, ...]
    n_agents: int = 1
    max_train_rows: int = MAX_TRAIN_ROWS
    group_rows: int | None = None
    columns_fixed: bool = False
    noise: NoiseSource = field(default_factory=SecretNoise, repr=False, compare=False)
