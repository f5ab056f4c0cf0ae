"""Scorers by name, and what the `scorer` argument may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
from conovel.scorers.automatic import Automatic, shallow_trees
from conovel.scorers.base import OneClass, Scorer, with_seed
from conovel.scorers.compiled_forest import CompiledForest
from conovel.scorers.refined import Refined, linear

NAMED: Mapping[str, Callable[[], Scorer]] = {
    "automatic": Automatic,
    # The best single forest of docs/decisions/0006-default-scorer.md.
    "extra-trees": lambda: ExtraTreesClassifier(300, max_depth=12, min_samples_leaf=5),
    # The reference AdaDetect's forest.
    "random-forest": lambda: RandomForestClassifier(100, max_depth=10),
    # The same kind of forest in a sixth of the time; needs numba.
    "compiled-forest": lambda: CompiledForest(100, 10, n_jobs=-1),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=100, max_leaf_nodes=8),
    "logistic": lambda: linear(C=1.0),
    "mlp": lambda: make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=300)),
    "refined-trees": lambda: Refined(shallow_trees(100), shallow_trees(100)),
    "refined-linear": lambda: Refined(shallow_trees(100), linear()),
    "isolation-forest": lambda: OneClass(IsolationForest(n_estimators=200), higher="normal"),
}


def scorer_by_name(name: str) -> Scorer:
    """Make a scorer of :data:`NAMED`."""
    if name not in NAMED:
        raise ScorerError(f"no scorer is called {name!r}: choose from {', '.join(NAMED)}")
    return NAMED[name]()


def as_candidates(scorer: Scorer | str | list[Scorer | str] | None, seed: int) -> list[Scorer]:
    """Turn the `scorer` argument into seeded candidates; None is :class:`Automatic`."""
    given = scorer if isinstance(scorer, list | tuple) else [scorer]
    if not given:
        raise InputError("scorer is an empty list: name at least one scorer")
    return [
        with_seed(
            Automatic() if s is None else scorer_by_name(s) if isinstance(s, str) else s, seed
        )
        for s in given
    ]
