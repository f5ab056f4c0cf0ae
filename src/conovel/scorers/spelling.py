"""One spelling of a scorer or of another setting: the same settings have the same text."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.stats.levels import Generators

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
    """Spell a random state: a number, or that each run draws its own.

    Examples
    --------
    >>> spell_seed(7), spell_seed(None)
    ('7', 'drawn anew')
    """
    is_drawn = random_state is None or isinstance(random_state, Generators)
    return DRAWN if is_drawn else spell(random_state)


def spell(value: Any, depth: int = 0) -> str:  # noqa: PLR0911  (a table of kinds)
    """Spell a setting, so that equal settings have equal texts in every process.

    Of an estimator, parameters that are as its class has them are left out: another release may
    have more of them.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> spell([LogisticRegression(C=2.0), "boosting"])
    "[sklearn.linear_model._logistic.LogisticRegression(C=2.0), 'boosting']"
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
