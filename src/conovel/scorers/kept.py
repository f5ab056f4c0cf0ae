"""Fitted scores as numbers alone, so that they can be kept in a file and score alike later.

A :class:`Part` names a kind of model and holds its arrays; a score made of several models has
parts of its own. :func:`to_part` takes a fitted scorer apart, :func:`from_part` puts it together
again. The same code scores before and after, so scores keep every bit. Nothing is executed that
a file says, and every array is checked before it is used.

What can be kept: all models with a flat form (:mod:`conovel.scorers.from_sklearn`), isolation
forests, :class:`conovel.Refined`, :class:`conovel.Blend` and :class:`conovel.Automatic`, and what
is added up with known novelties (:mod:`conovel.scorers.known`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ModelError, ScorerError
from conovel.models.forest import Forest
from conovel.models.linear import Dense, Linear
from conovel.models.trees import Tree, join_trees
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    ProbabilityReader,
    Scale,
    Scorer,
    TrainingSet,
    Vector,
    flat_or_none,
)
from conovel.scorers.binned_forest import RandomisedTrees
from conovel.scorers.blend import BlendedFit, Discriminant, MahalanobisDistance
from conovel.scorers.cross_fit import CrossFit, ShrunkenLogistic
from conovel.scorers.estimators import OneClass
from conovel.scorers.known import AddedScores

SCALES = ("probability", "log-odds", "ordinal")
MAX_PARTS = 1000  # of a model, and of those that it is made of


@dataclass(frozen=True, eq=False)
class Part:
    """A model as numbers."""

    kind: str  # one of forest, linear, dense, discriminant, distance, folds, blend and sum
    scale: str  # what its scores are, see :class:`conovel.FittedScorer`
    settings: dict[str, Any] = field(default_factory=dict)  # numbers and words, as JSON has them
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()  # the models that it is made of


@dataclass(frozen=True, eq=False)
class KeptScorer(Scorer):
    """The name of a score that was kept; it cannot be fitted again."""

    name: str

    @property
    def label(self) -> str:
        """The scorer that learnt it."""
        return self.name

    def with_seed(self, seed: int) -> Scorer:
        """Return itself: nothing random is left."""
        return self

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Refuse."""
        raise ScorerError(f"the kept score {self.name} cannot be fitted again")


def to_part(fitted: FittedScorer) -> Part | None:
    """Take a fitted score apart; None if it is not made of numbers that can be kept."""
    read_by = getattr(fitted.read, "__self__", None)
    if isinstance(read_by, CrossFit | AddedScores | KeptModel):
        return _from_models(read_by)
    if isinstance(fitted.scorer, OneClass) and not isinstance(read_by, Forest):
        return _from_one_class(fitted.scorer, fitted.estimator)
    is_reader = isinstance(fitted.read, ProbabilityReader)
    model = cast(ProbabilityReader, fitted.read).model if is_reader else fitted.estimator
    if isinstance(model, Discriminant):
        arrays = {"coef": model.coef_, "middle": model.middle_}
        return Part("discriminant", fitted.scale, {}, arrays)
    if isinstance(model, RandomisedTrees | ShrunkenLogistic):
        model = model.flat_
    flat = flat_or_none(model) if fitted.scale == "probability" else None
    return None if flat is None else flat_part(flat, fitted.scale)


def _from_models(model: CrossFit | AddedScores | KeptModel) -> Part | None:
    if isinstance(model, KeptModel):
        return model.part
    return _from_sum(model) if isinstance(model, AddedScores) else _from_cross_fit(model)


def _from_cross_fit(cross_fit: CrossFit) -> Part | None:
    models = [to_part(model) for model in cross_fit.models]
    inner = (
        [_from_cross_fit(part) for part in cross_fit.parts]
        if isinstance(cross_fit, BlendedFit)
        else []
    )
    if any(part is None for part in [*models, *inner]):
        return None
    parts = cast("tuple[Part, ...]", tuple([*models, *inner]))
    scale = cross_fit.models[0].scale
    if isinstance(cross_fit, BlendedFit):
        return Part("blend", scale, {"n_folds": len(models)}, {"scale": cross_fit.scale}, parts)
    return Part("folds", scale, {}, {}, parts)


def _from_sum(added: AddedScores) -> Part | None:
    """Take added scores apart; None where a part would not keep its bits.

    A forest stands for an isolation forest and orders rows alike, on a scale of its own. It
    cannot stand for one in a sum, unless the sum was made of it (:func:`as_kept`).
    """
    parts = [to_part(part) for part in added.parts]
    if any(
        part is None or _is_on_another_scale(fitted)
        for part, fitted in zip(parts, added.parts, strict=True)
    ):
        return None
    arrays = {name: np.array(getattr(added, name)) for name in _SUM}
    return Part("sum", "log-odds", {}, arrays, cast("tuple[Part, ...]", tuple(parts)))


def _is_on_another_scale(fitted: FittedScorer) -> bool:
    is_read = isinstance(getattr(fitted.read, "__self__", None), KeptModel)
    is_distance = isinstance(fitted.estimator, MahalanobisDistance)
    return (
        isinstance(fitted.scorer, OneClass)
        and fitted.scale == "ordinal"
        and not (is_read or is_distance)
    )


_SUM = ("weights", "centres", "units")


def as_kept(fitted: FittedScorer, n_features: int) -> FittedScorer | None:
    """Return a score as it will be kept; None if it is not made of numbers."""
    part = to_part(fitted)
    if part is None:
        return None
    model = KeptModel(part, from_part(part, n_features, fitted.name))
    return FittedScorer(fitted.scorer, model.score, fitted.scale)


@dataclass(frozen=True, eq=False)
class KeptModel:
    """A score that was put together from its numbers."""

    part: Part
    fitted: FittedScorer

    def score(self, X: Matrix) -> Vector:
        """Score each row."""
        return self.fitted.score(X)


def _from_one_class(scorer: OneClass, model: Any) -> Part | None:
    if isinstance(model, MahalanobisDistance) and scorer.higher == "novel":
        arrays = {"centre": model.centre_, "whitening": model.whitening_}
        return Part("distance", "ordinal", {}, arrays)
    is_forest = type(model).__module__.startswith("sklearn.") and (
        type(model).__name__ == "IsolationForest"
    )
    if is_forest and scorer.higher == "normal":
        return flat_part(isolation_forest(model), "ordinal")
    return None


def isolation_forest(model: Any) -> Forest:
    """Return a forest that orders rows as a fitted isolation forest does.

    The score of an isolation forest falls with the mean path length of a row over the trees. A
    leaf here has the value 1 - path length / longest path, so the mean orders rows alike.
    """
    paths = []
    for tree in (member.tree_ for member in model.estimators_):
        depth = np.zeros(tree.node_count)
        for node in range(tree.node_count):  # parents come before their children
            for child in (tree.children_left[node], tree.children_right[node]):
                if child >= 0:
                    depth[child] = depth[node] + 1
        paths.append(depth + _average_path(tree.n_node_samples))
    longest = max(float(path.max()) for path in paths)
    pairs = zip(model.estimators_, model.estimators_features_, paths, strict=True)
    return join_trees(
        (
            Tree(
                np.where(tree.feature >= 0, features[np.maximum(tree.feature, 0)], -1),
                tree.threshold,
                tree.children_left,
                tree.children_right,
                1 - path / longest if longest else np.zeros(path.size),
            )
            for tree, features, path in ((m.tree_, f, p) for m, f, p in pairs)
        ),
        model.n_features_in_,
    )


def _average_path(n: NDArray[np.integer]) -> Vector:
    """Return the average path length of an isolation tree of n rows (Liu, Ting and Zhou 2008)."""
    size = np.maximum(n.astype(np.float64), 2)
    long = 2 * (np.log(size - 1) + np.euler_gamma) - 2 * (size - 1) / size
    return np.where(n <= 1, 0.0, np.where(n == 2, 1.0, long))


def flat_part(flat: Forest | Linear | Dense, scale: str) -> Part:
    """Return a flat model as a part."""
    if isinstance(flat, Forest):
        arrays = {name: getattr(flat, name) for name in _NODES}
        settings = {name: getattr(flat, name) for name in ("n_features", "link", "base", "single")}
        return Part("forest", scale, settings, arrays)
    scaler = {
        name: getattr(flat, name)
        for name in ("centre", "scale")
        if getattr(flat, name) is not None
    }
    if isinstance(flat, Linear):
        return Part("linear", scale, {"intercept": flat.intercept}, {"coef": flat.coef, **scaler})
    layers = {f"weight {i}": weight for i, weight in enumerate(flat.weights)}
    biases = {f"bias {i}": bias for i, bias in enumerate(flat.biases)}
    return Part("dense", scale, {"activation": flat.activation}, layers | biases | scaler)


_NODES = ("feature", "threshold", "left", "value", "roots")


class _Built(NamedTuple):
    """A score function, and the number of columns of its rows."""

    read: Callable[[Matrix], Vector]
    n_features: int


def from_part(part: Part, n_features: int, name: str) -> FittedScorer:
    """Put a score together again; :class:`ModelError` if the numbers are not those of one.

    A part comes from a file, so every number in it is checked.
    """
    built = _build(part, n_features, name)
    if built.n_features != n_features:
        raise ModelError(f"the model scores rows of {built.n_features} columns, not {n_features}")
    return FittedScorer(KeptScorer(name), built.read, cast(Scale, part.scale))


def _build(part: Part, n_features: int, name: str) -> _Built:
    if part.scale not in SCALES:
        raise ModelError(f"no scores have the scale {part.scale!r}")
    if part.kind in ("folds", "blend"):
        return _Built(_cross_fit(part, n_features, name).score, n_features)
    if part.kind == "sum":
        return _Built(_sum(part, n_features, name).score, n_features)
    if part.parts:
        raise ModelError(f"a model of the kind {part.kind} has no parts")
    build = _BUILDERS.get(part.kind)
    if build is None:
        raise ModelError(f"there is no model of the kind {part.kind!r}")
    try:
        return build(part.settings, part.arrays)
    except ModelError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise ModelError(f"the {part.kind} is not whole: {error}") from None


def _cross_fit(part: Part, n_features: int, name: str) -> CrossFit:
    n_folds = part.settings.get("n_folds") if part.kind == "blend" else len(part.parts)
    if type(n_folds) is not int or not 1 <= n_folds <= len(part.parts) <= MAX_PARTS:
        raise ModelError("a cross-fit has a model for each fold")
    inner = part.parts[n_folds:]
    width = n_features if part.kind == "folds" else len(inner)
    models = tuple(from_part(model, width, name) for model in part.parts[:n_folds])
    none = np.zeros(0)
    if part.kind == "folds":
        return CrossFit(None, none, models)
    if any(fit.kind not in ("folds", "blend") for fit in inner):
        raise ModelError("the parts of a blend are cross-fits")
    scale = _floats(part.arrays, "scale", (len(inner),))
    fits = tuple(_cross_fit(fit, n_features, name) for fit in inner)
    return BlendedFit(None, none, models, fits, scale)


def _sum(part: Part, n_features: int, name: str) -> AddedScores:
    n_parts = len(part.parts)
    if not 1 <= n_parts <= MAX_PARTS or part.scale != "log-odds":
        raise ModelError("a sum has parts, and is on the scale of log-odds")
    if part.arrays.keys() != set(_SUM):
        raise ModelError(f"the sum is not whole: it needs {', '.join(_SUM)}")
    weights, centres, units = (_floats(part.arrays, one, (n_parts,)) for one in _SUM)
    if (weights < 0).any() or (units <= 0).any():
        raise ModelError("the weights of a sum are not negative, and its units are positive")
    fits = tuple(from_part(inner, n_features, name) for inner in part.parts)
    numbers = (tuple(values.tolist()) for values in (weights, centres, units))
    return AddedScores(fits, *numbers)


def _floats(arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> Vector:
    values = arrays[name]
    if values.shape != shape or values.dtype != np.float64 or not np.isfinite(values).all():
        raise ModelError(f"{name} must be finite numbers of shape {shape}")
    return values


def _forest(settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> _Built:
    nodes: dict[str, Any] = {name: arrays[name] for name in _NODES}
    wanted = {"n_features": int, "link": str, "base": float, "single": bool}
    if any(type(settings[name]) is not kind for name, kind in wanted.items()):
        raise ModelError("the settings of a forest are not as expected")
    if not nodes["feature"].size or not nodes["roots"].size:
        raise ModelError("a forest needs at least one tree")
    nodes |= {name: settings[name] for name in wanted}
    forest = Forest(**nodes)
    return _Built(forest.score, forest.n_features)


def _linear(settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> _Built:
    scaler = arrays.get("centre"), arrays.get("scale")
    if type(settings["intercept"]) is not float:
        raise ModelError("the intercept of a linear model is no number")
    linear = Linear(arrays["coef"], settings["intercept"], *scaler)
    return _Built(linear.score, linear.n_features)


def _dense(settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> _Built:
    n_layers = sum(name.startswith("weight ") for name in arrays)
    weights = tuple(arrays[f"weight {i}"] for i in range(n_layers))
    biases = tuple(arrays[f"bias {i}"] for i in range(n_layers))
    scaler = arrays.get("centre"), arrays.get("scale")
    dense = Dense(weights, biases, settings["activation"], *scaler)
    return _Built(dense.score, dense.n_features)


def _discriminant(_: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> _Built:
    d = arrays["coef"].size
    model = Discriminant()
    model.coef_, model.middle_ = _floats(arrays, "coef", (d,)), _floats(arrays, "middle", (d,))
    return _Built(ProbabilityReader(model), d)


def _distance(_: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> _Built:
    d = arrays["centre"].size
    model = MahalanobisDistance()
    model.centre_ = _floats(arrays, "centre", (d,))
    model.whitening_ = _floats(arrays, "whitening", (d, d))
    return _Built(model.score_samples, d)


_BUILDERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, NDArray[Any]]], _Built]] = {
    "forest": _forest,
    "linear": _linear,
    "dense": _dense,
    "discriminant": _discriminant,
    "distance": _distance,
}
