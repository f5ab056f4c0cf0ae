"""The `scorer` argument: what it may be, and one spelling of it and of other settings.

The same settings have the same text.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from conovel.errors import InputError, ScorerError
from conovel.scorers.all_rows import neighbour_distance
from conovel.scorers.automatic import Automatic
from conovel.scorers.base import Scorer
from conovel.scorers.blend import Refined, shallow_trees, shrunken_logistic
from conovel.scorers.compiled_forest import CompiledForest
from conovel.scorers.estimators import Decode, FrameEstimator, OneClass, ScorerLike, as_scorer
from conovel.stats.levels import Generators, as_seed

NAMED: Mapping[str, Callable[[], ScorerLike]] = {
    "automatic": Automatic,
    # The best single forest of docs/decisions/0006-default-scorer.md.
    "extra-trees": lambda: ExtraTreesClassifier(300, max_depth=12, min_samples_leaf=5),
    # The reference AdaDetect's forest.
    "random-forest": lambda: RandomForestClassifier(100, max_depth=10),
    # The same kind of forest in a sixth of the time.
    "compiled-forest": lambda: CompiledForest(100, 10, n_jobs=-1),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=100, max_leaf_nodes=8),
    "logistic": lambda: shrunken_logistic(C=1.0),
    "mlp": lambda: make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=300)),
    "refined-trees": lambda: Refined(shallow_trees(100), shallow_trees(100)),
    "refined-linear": lambda: Refined(shallow_trees(100), shrunken_logistic()),
    "isolation-forest": lambda: OneClass(IsolationForest(n_estimators=200), higher="normal"),
    "knn": neighbour_distance,
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
    return [
        Automatic(random_state=seed) if one is None else _as_candidate(one).with_seed(seed)
        for one in given
    ]


def _as_candidate(given: ScorerLike | str) -> Scorer:
    """Make a scorer; a generator as `random_state` is replaced by a number drawn from it.

    scikit-learn's classifiers need no such step: each fit is of a clone, and a clone copies the
    generator.
    """
    scorer = as_scorer(scorer_by_name(given) if isinstance(given, str) else given)
    state = getattr(scorer, "random_state", None)
    if isinstance(state, Generators) and is_dataclass(scorer):
        return replace(scorer, random_state=as_seed(state))
    return scorer


def reads_frames(scorer: Any) -> bool:
    """Tell whether a scorer, or a part of it, chooses columns by name or reads categories."""
    if isinstance(scorer, list | tuple):
        return any(map(reads_frames, scorer))
    if isinstance(scorer, Scorer) and is_dataclass(scorer):
        return any(reads_frames(getattr(scorer, field.name)) for field in fields(scorer))
    if not hasattr(scorer, "get_params") or isinstance(scorer, type):
        return False
    parts = [scorer, *scorer.get_params(deep=True).values()]
    return any(_reads_columns(part) for part in parts)


def _reads_columns(part: Any) -> bool:
    if isinstance(part, ColumnTransformer):
        return True
    if isinstance(part, type) or not hasattr(part, "__sklearn_tags__"):
        return False
    tags = get_tags(part).input_tags
    # Trees with native categories take codes, too; only transformers must have the texts.
    return hasattr(part, "transform") and bool(tags.categorical or tags.string)


def on_frames(scorers: Sequence[Scorer], decode: Decode) -> tuple[Scorer, ...]:
    """Give the parts of scorers that read frames a frame, and the others the matrix."""
    return tuple(_adapted(scorer, decode) for scorer in scorers)


def _adapted(thing: Any, decode: Decode) -> Any:
    if not reads_frames(thing):
        return thing
    if isinstance(thing, list | tuple):
        return type(thing)(_adapted(part, decode) for part in thing)
    if isinstance(thing, Scorer):
        parts = {f.name: _adapted(getattr(thing, f.name), decode) for f in fields(thing)}  # type: ignore[arg-type]
        return replace(thing, **parts)  # type: ignore[type-var]
    return FrameEstimator(thing, decode)


DRAWN = "drawn anew"  # what a generator of random numbers, or none, is for each batch
_DEEPEST = 20
# Ledgers hold digests of spellings, so a class that moved keeps the module that it had first.
_FIRST_MODULES = {
    "ClassifierScorer": "classifier",
    "Discriminant": "discriminant",
    "FrameEstimator": "on_frames",
    "MahalanobisDistance": "mahalanobis",
    "Normality": "normality",
    "OneClass": "one_class",
    "RandomisedTrees": "randomised_trees",
    "Refined": "refined",
    "ShrunkenLogistic": "shrunken_logistic",
}


def spell_scorer(scorer: Any) -> str:
    """Spell the `scorer` argument; a list of one is that one, and None is the default.

    Examples
    --------
    >>> spell_scorer(None), spell_scorer(["boosting"])
    ("'automatic'", "'boosting'")
    """
    given = scorer if isinstance(scorer, list | tuple) else [scorer]
    spelled = [spell("automatic" if one is None else one) for one in given]
    return ", ".join(spelled)


def spell_seed(random_state: Any) -> str:
    """Spell a random state: a number, or that each run draws its own."""
    is_drawn = random_state is None or isinstance(random_state, Generators)
    return DRAWN if is_drawn else spell(random_state)


def spell(value: Any, depth: int = 0) -> str:  # noqa: PLR0911  (a table of kinds)
    """Spell a setting, so that equal settings have equal texts in every process.

    Of an estimator, parameters that are as its class has them are left out: another release may
    have more of them.
    """
    inner = depth + 1
    if isinstance(value, np.ndarray | np.generic):
        value = _plain(value)
    if isinstance(value, Generators):
        return DRAWN
    if value is None or isinstance(value, str | bytes | Number):
        return repr(value)
    if hasattr(value, "__qualname__") or depth > _DEEPEST:  # a class or a function
        return _named(value if hasattr(value, "__qualname__") else type(value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(spell(one, inner) for one in value)}]"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(spell(one, inner) for one in value))}}}"
    if isinstance(value, Mapping):
        return _spell_named("", {str(key): one for key, one in value.items()}, inner)
    return _spell_named(_named(type(value)), _parameters(value, inner), inner)


def _plain(value: NDArray[Any] | np.generic) -> Any:
    """Return a number of numpy as it is, and an array by its form and a digest."""
    if isinstance(value, np.generic):
        return value.item()
    content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return ["array", value.dtype.str, value.shape, content]


def _parameters(value: Any, depth: int) -> dict[str, Any]:
    """Return what makes an object what it is: parameters that are not the default, or fields."""
    if hasattr(value, "get_params"):
        usual = inspect.signature(type(value)).parameters
        return {
            name: one
            for name, one in value.get_params(deep=False).items()
            if name not in usual or spell(one, depth) != spell(usual[name].default, depth)
        }
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(getattr(value, "__dict__", {}))


def _spell_named(name: str, parts: Mapping[str, Any], depth: int) -> str:
    spelled = (f"{key}={spell(parts[key], depth)}" for key in sorted(parts))
    return f"{name}({', '.join(spelled)})"


def _named(thing: Any) -> str:
    package, _, module = thing.__module__.rpartition(".")
    if package == "conovel.scorers":
        module = _FIRST_MODULES.get(thing.__qualname__, module)
    return (
        f"{package}.{module}.{thing.__qualname__}" if package else f"{module}.{thing.__qualname__}"
    )
