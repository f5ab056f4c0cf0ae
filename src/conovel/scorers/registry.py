"""Scorers by name, and what the `scorer` argument may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from typing import Any

from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from conovel.errors import InputError, ScorerError
from conovel.scorers.automatic import Automatic
from conovel.scorers.base import Scorer
from conovel.scorers.classifier import ScorerLike, as_scorer
from conovel.scorers.compiled_forest import CompiledForest
from conovel.scorers.one_class import OneClass
from conovel.scorers.refined import Refined, shallow_trees, shrunken_logistic
from conovel.stats.levels import Generators, as_seed

NAMED: Mapping[str, Callable[[], ScorerLike]] = {
    "automatic": Automatic,
    # The best single forest of docs/decisions/0006-default-scorer.md.
    "extra-trees": lambda: ExtraTreesClassifier(300, max_depth=12, min_samples_leaf=5),
    # The reference AdaDetect's forest.
    "random-forest": lambda: RandomForestClassifier(100, max_depth=10),
    # The same kind of forest in a sixth of the time; needs numba.
    "compiled-forest": lambda: CompiledForest(100, 10, n_jobs=-1),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=100, max_leaf_nodes=8),
    "logistic": lambda: shrunken_logistic(C=1.0),
    "mlp": lambda: make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=300)),
    "refined-trees": lambda: Refined(shallow_trees(100), shallow_trees(100)),
    "refined-linear": lambda: Refined(shallow_trees(100), shrunken_logistic()),
    "isolation-forest": lambda: OneClass(IsolationForest(n_estimators=200), higher="normal"),
}


def scorer_by_name(name: str) -> ScorerLike:
    """Make a scorer of :data:`NAMED`."""
    if name not in NAMED:
        raise ScorerError(f"no scorer is called {name!r}: choose from {', '.join(NAMED)}")
    return NAMED[name]()


def as_candidates(
    scorer: ScorerLike | str | list[ScorerLike | str] | None, seed: int
) -> list[Scorer]:
    """Turn the `scorer` argument into seeded candidates; None is :class:`Automatic`.

    Call it once for each detection. All fits of a candidate must have the same seed, so a scorer
    whose `random_state` is a generator gets a number drawn from it here.
    """
    given = scorer if isinstance(scorer, list | tuple) else [scorer]
    if not given:
        raise InputError("scorer is an empty list: name at least one scorer")
    return [_with_drawn_seed(_as_candidate(one)).with_seed(seed) for one in given]


def _as_candidate(scorer: ScorerLike | str | None) -> Scorer:
    if scorer is None:
        return Automatic()
    return as_scorer(scorer_by_name(scorer) if isinstance(scorer, str) else scorer)


def _with_drawn_seed(scorer: Any) -> Scorer:
    """Replace a generator as `random_state` by a number drawn from it.

    scikit-learn's classifiers need no such step: each fit is of a clone, and a clone copies the
    generator.
    """
    state = getattr(scorer, "random_state", None)
    if isinstance(state, Generators) and is_dataclass(scorer):
        return replace(scorer, random_state=as_seed(state))  # type: ignore[type-var, return-value]
    return scorer  # type: ignore[no-any-return]
