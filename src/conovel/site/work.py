"""How a site works in one run: what it learns with, and what holds for what leaves it."""

from __future__ import annotations

from dataclasses import dataclass, field

from conovel.scorers.base import Scorer
from conovel.site.sent.private_surrogate import NoiseSource, SecretNoise
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import MAX_TRAIN_ROWS


@dataclass(frozen=True)
class SiteWork:
    """How a site works in one run."""

    spec: RunSpec  # the settings of the run, with the seed and the precision of this site
    candidates: tuple[Scorer, ...]  # what is fitted; the best one where there are several
    n_agents: int = 1  # how many agents were invited to the run
    max_train_rows: int = MAX_TRAIN_ROWS  # how many rows of either kind are learnt from at most
    # How many of the site's rows each level of a peer's score, and each cell of counts, hold at
    # least. None follows conovel.spec.training.least_rows.
    group_rows: int | None = None
    # Whether how columns become numbers must have been fixed before any row was read
    columns_fixed: bool = False
    # Whether what leaves the site may be learnt from its known novelties
    share_known: bool = True
    # Of models with differential privacy; not secret in tests alone
    noise: NoiseSource = field(default_factory=SecretNoise, repr=False, compare=False)
