"""The Gaussian design with roaming rows: normal rows that are tested at another agent.

A share ρ of the normal test rows of each agent is drawn from the normals of the other agents. For
the composite null these are nulls, too. :func:`composite_limit` is the best power that a rule with
one threshold for the worst case over agents can have, when all densities are known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError
from conovel.experiments.gaussian import DIMENSION, centres, novelty_centre
from conovel.stats.levels import Level, as_level

NOVEL = -1
_DRAWS = 400_000  # of each kind, for the limit: its error is below .001


@dataclass(frozen=True, eq=False)
class Typed:
    """The rows of one agent, and whose normal each test row is; no procedure may use the latter.

    Attributes
    ----------
    X_null, X_test : arrays of shape (n, d) and (m, d)
    origin : int array of shape (m,)
        The agent whose normals a test row is drawn from, or -1 for a novelty.
    """

    X_null: NDArray[np.float64]
    X_test: NDArray[np.float64]
    origin: NDArray[np.int64]

    @property
    def is_novel(self) -> NDArray[np.bool_]:
        """Which test rows are novel to everybody."""
        return np.asarray(self.origin == NOVEL)


def roaming_design(
    delta: float,
    share: float,
    random_state: int | np.random.Generator,
    *,
    n_agents: int = 3,
    n_null: int = 3000,
    n_test: int = 1000,
    null_share: float = 0.9,
) -> list[Typed]:
    """Draw the paper's Gaussian design with a share of roaming rows among the normal tests.

    Agents beyond the third take the triangle's corners in turn; a roaming row comes from an agent
    at another corner.

    Parameters
    ----------
    delta : float
        Distance of the null centres from the origin.
    share : float
        Share ρ of the normal tests of each agent that are from other agents.
    random_state : int or Generator
    n_agents, n_null, n_test, null_share
        As in :func:`conovel.experiments.gaussian.gaussian_design`.

    Examples
    --------
    >>> agents = roaming_design(2.0, 0.1, 0)
    >>> [int((a.origin == j).sum()) for j, a in enumerate(agents)]
    [271, 270, 270]
    >>> [int(a.is_novel.sum()) for a in agents]
    [33, 33, 33]
    """
    if not 0 <= share <= 1:
        raise InputError(f"share must be from 0 to 1, not {share}")
    if min(n_null, n_test) < n_agents or n_agents < 2:
        raise InputError("roaming rows need at least two agents, each with at least one row")
    rng = np.random.default_rng(random_state)
    corners, novel = centres(delta), novelty_centre()
    agents = []
    for j in range(n_agents):
        n, m = (total // n_agents + (j < total % n_agents) for total in (n_null, n_test))
        n_normal = round(null_share * m)
        others = [k for k in range(n_agents) if k % 3 != j % 3] or [
            k for k in range(n_agents) if k != j
        ]
        origin = np.full(m, j, dtype=np.int64)
        n_roaming = round(share * n_normal)
        origin[:n_roaming] = rng.choice(others, size=n_roaming)
        origin[n_normal:] = NOVEL
        means = np.where((origin == NOVEL)[:, None], novel, corners[origin % 3])
        X_test = rng.normal(size=(m, DIMENSION)) + means
        agents.append(Typed(rng.normal(size=(n, DIMENSION)) + corners[j % 3], X_test, origin))
    return agents


def composite_limit(delta: float, level: Level = 0.1, null_share: float = 0.9) -> float:
    """Return the power of the smallest log-likelihood ratio over agents, all densities known.

    The score of a row is min_k log(f_alt/f_k), and its p-value is the largest over agents of the
    share of that agent's normals with a score at least as large. BH at level α stops where the
    p-value is α times the share of rejected rows. Shares are those of 400,000 draws of each kind.

    Parameters
    ----------
    delta : float
        Shift of the agents' normals.
    level : float, str or Fraction
    null_share : float
        Share π0 of tests that are normal at some agent, all agents alike.

    Examples
    --------
    >>> round(composite_limit(2.0), 2)
    0.98
    """
    alpha = float(as_level(level))
    corners, novel = centres(delta), novelty_centre()
    # Scores are functions of the inner products with the differences of means.
    slopes = novel - corners
    offsets = (novel @ novel - (corners**2).sum(axis=1)) / 2
    basis = np.linalg.qr(np.column_stack([slopes.T, novel]))[0]
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(_DRAWS, basis.shape[1])) @ (basis.T @ slopes.T)

    def scores(mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.sort((drawn + slopes @ mean - offsets).min(axis=1))

    found = scores(novel)
    thresholds = found[:: _DRAWS // 4000]

    def beyond(ordered: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1 - np.searchsorted(ordered, thresholds) / _DRAWS

    false = np.array([beyond(scores(mean)) for mean in corners])
    true = beyond(found)
    rejected = null_share * false.mean(axis=0) + (1 - null_share) * true
    allowed = false.max(axis=0) <= alpha * rejected
    return float(true[np.argmax(allowed)]) if allowed.any() else 0.0
