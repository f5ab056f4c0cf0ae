"""From fitted classifiers to flat models.

Trees keep every bit of ``predict_proba(X)[:, 1]``: scikit-learn's forests, extra trees,
single trees and both kinds of gradient boosting, and LightGBM, also behind a scaler.
Logistic regressions and perceptrons sum in a fixed order where scikit-learn leaves the
order to BLAS, so that their scores may differ in the last bits.

Estimators are recognised by the name of their class, so that neither library is imported;
a subclass, which may score in its own way, is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ModelError
from conovel.models.forest import Forest
from conovel.models.linear import Dense, Linear
from conovel.models.trees import Tree, join_trees

Flat: TypeAlias = Forest | Linear | Dense
Scaling: TypeAlias = tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]

_LARGEST = np.finfo(np.float64).max
_LARGEST_SINGLE = float(np.finfo(np.float32).max)
_LIGHTGBM_ZERO = float(np.float32(1e-35))  # its predictor reads smaller values as 0


def to_flat(estimator: Any) -> Flat:
    """Return the flat model whose ``score(X)`` is ``estimator.predict_proba(X)[:, 1]``.

    The classes are 0 (null) and 1 (novel). A flat model is returned as it is.
    """
    if isinstance(estimator, Forest | Linear | Dense):
        return estimator
    convert = _CONVERTERS.get(_kind(estimator))
    if convert is None:
        names = ", ".join(sorted(name for _, name in _CONVERTERS))
        raise ModelError(f"{type(estimator).__name__} has no flat form; these have: {names}")
    return convert(estimator)


def _kind(estimator: Any) -> tuple[str, str]:
    """Return the library and the name of an estimator's class."""
    return type(estimator).__module__.partition(".")[0], type(estimator).__name__


def _require_binary(estimator: Any) -> None:
    name = type(estimator).__name__
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        raise ModelError(f"the {name} is not fitted")
    if not np.array_equal(classes, [0, 1]):
        raise ModelError(f"the {name} must have classes 0 (null) and 1 (novel), got {classes}")


# scikit-learn's trees


def _sklearn_tree(tree: Any, value: NDArray[np.float64]) -> Tree:
    # Splits on missing values have an infinite threshold: all numbers go left.
    threshold = np.minimum(tree.threshold, _LARGEST_SINGLE)
    return Tree(tree.feature, threshold, tree.children_left, tree.children_right, value)


def _from_trees(estimator: Any) -> Forest:
    _require_binary(estimator)
    trees = [member.tree_ for member in getattr(estimator, "estimators_", [estimator])]
    return join_trees(
        (_sklearn_tree(tree, tree.value[:, 0, 1]) for tree in trees), estimator.n_features_in_
    )


def _from_gradient_boosting(estimator: Any) -> Forest:
    _require_binary(estimator)
    start = estimator.init_
    if start != "zero" and getattr(start, "strategy", None) not in _CONSTANT_STRATEGIES:
        raise ModelError("a GradientBoostingClassifier must start from a constant: init=None")
    # The exponential loss reads expit(2 raw); doubling every term loses no bit.
    factor = 2.0 if estimator.loss == "exponential" else 1.0
    n_features = estimator.n_features_in_
    trees = [member.tree_ for member in estimator.estimators_[:, 0]]
    return join_trees(
        (
            _sklearn_tree(tree, factor * (estimator.learning_rate * tree.value[:, 0, 0]))
            for tree in trees
        ),
        n_features,
        link="logistic",
        base=factor * float(estimator._raw_predict_init(np.zeros((1, n_features)))[0, 0]),
    )


def _from_hist_gradient_boosting(estimator: Any) -> Forest:
    _require_binary(estimator)
    if estimator.is_categorical_ is not None:
        raise ModelError("a HistGradientBoostingClassifier must have no categorical features")
    members = [predictor.nodes for (predictor,) in estimator._predictors]
    return join_trees(
        (
            Tree(
                nodes["feature_idx"],
                np.minimum(nodes["num_threshold"], _LARGEST),
                np.where(nodes["is_leaf"], -1, nodes["left"].astype(np.int64)),
                nodes["right"].astype(np.int64),
                nodes["value"],
            )
            for nodes in members
        ),
        estimator.n_features_in_,
        link="logistic",
        base=float(estimator._baseline_prediction.item()),
        single=False,
    )


# LightGBM


def _from_lightgbm_classifier(estimator: Any) -> Forest:
    _require_binary(estimator)
    return _from_booster(estimator.booster_)


def _from_booster(booster: Any) -> Forest:
    dump = booster.dump_model()
    if dump.get("objective") != "binary sigmoid:1" or dump.get("average_output"):
        raise ModelError(
            "a LightGBM model must boost the objective 'binary' with sigmoid=1, "
            f"got {dump.get('objective')!r}"
        )
    return join_trees(
        (_lightgbm_tree(tree["tree_structure"]) for tree in dump["tree_info"]),
        booster.num_feature(),
        link="logistic",
        single=False,
    )


def _lightgbm_tree(root: dict[str, Any]) -> Tree:
    nodes = [root]
    rows = []
    for node in nodes:  # grows while it is read
        if "split_index" not in node:
            if "leaf_coeff" in node:
                raise ModelError("a LightGBM model must not have linear trees")
            rows.append((-1, 0.0, -1, -1, node["leaf_value"]))
            continue
        if node["decision_type"] != "<=" or node["missing_type"] == "Zero":
            raise ModelError("a LightGBM model must not split on categories or missing zeros")
        rows.append((node["split_feature"], node["threshold"], len(nodes), len(nodes) + 1, 0.0))
        nodes += [node["left_child"], node["right_child"]]
    feature, threshold, left, right, value = map(np.array, zip(*rows, strict=True))
    return Tree(feature, _outside_zero(threshold), left, right, value)


def _outside_zero(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move thresholds out of the interval that LightGBM reads as 0, to the same decisions."""
    below, above = np.nextafter(-_LIGHTGBM_ZERO, -np.inf), _LIGHTGBM_ZERO
    inside = np.abs(threshold) <= _LIGHTGBM_ZERO
    return np.where(inside, np.where(threshold < 0, below, above), threshold)


# Logistic regression and perceptron


def _from_logistic_regression(estimator: Any) -> Linear:
    _require_binary(estimator)
    if getattr(estimator, "multi_class", None) == "multinomial":
        raise ModelError("a LogisticRegression must not be fitted as multinomial")
    return Linear(estimator.coef_[0], float(estimator.intercept_[0]))


def _from_perceptron(estimator: Any) -> Dense:
    _require_binary(estimator)
    return Dense(tuple(estimator.coefs_), tuple(estimator.intercepts_), estimator.activation)


# Pipelines


def _from_pipeline(pipeline: Any) -> Flat:
    *before, (_, last) = pipeline.steps
    scalers = [step for _, step in before if step not in (None, "passthrough")]
    model = to_flat(last)
    if not scalers:
        return model
    read = _SCALERS.get(_kind(scalers[0]))
    if read is None or len(scalers) > 1 or getattr(scalers[0], "clip", False):
        names = ", ".join(name for _, name in _SCALERS)
        raise ModelError(f"before the model, a pipeline may have one scaler: {names}")
    if isinstance(model, Forest):
        return _before_scaler(model, scalers[0].transform)
    if model.centre is not None or model.scale is not None:
        raise ModelError("a pipeline in a pipeline may not have a second scaler")
    centre, scale = read(scalers[0])
    return replace(model, centre=centre, scale=scale)


def _before_scaler(forest: Forest, transform: Callable[[Any], Any]) -> Forest:
    """Return the forest that takes unscaled rows and decides every split alike.

    A scaler is increasing, rounding included, so the rows that go left are those up to a
    largest float64, which bisection over the floats finds exactly.
    """
    longest = max(map(len, forest.edges))
    if not longest:
        return forest
    edges = np.zeros((longest, forest.n_features))
    for column, values in zip(edges.T, forest.edges, strict=True):
        column[: len(values)] = values
    low = np.full(edges.shape, _to_ordinal(np.array(-_LARGEST)))
    high = np.full(edges.shape, _to_ordinal(np.array(_LARGEST)))
    with warnings.catch_warnings(), np.errstate(over="ignore"):
        warnings.simplefilter("ignore", UserWarning)  # the scaler may know names of columns
        for _ in range(64):
            middle = (low | high) - ((low ^ high) >> 1)  # rounded up, without overflow
            scaled = transform(_to_float(middle))
            left = (scaled.astype(np.float32) if forest.single else scaled) <= edges
            low, high = np.where(left, middle, low), np.where(left, high, middle - 1)
    threshold = _to_float(low)[forest.threshold_code, np.maximum(forest.feature, 0)]
    return replace(forest, threshold=np.where(forest.feature < 0, 0.0, threshold), single=False)


def _to_ordinal(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the position of each float among all floats, 0.0 being 0."""
    bits = values.view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def _to_float(ordinals: NDArray[np.int64]) -> NDArray[np.float64]:
    return (ordinals ^ ((ordinals >> 63) & np.int64(2**63 - 1))).view(np.float64)


_CONSTANT_STRATEGIES = ("prior", "most_frequent", "constant")

_SCALERS: dict[tuple[str, str], Callable[[Any], Scaling]] = {
    ("sklearn", "StandardScaler"): lambda scaler: (
        scaler.mean_ if scaler.with_mean else None,
        scaler.scale_ if scaler.with_std else None,
    ),
    ("sklearn", "RobustScaler"): lambda scaler: (scaler.center_, scaler.scale_),
    ("sklearn", "MaxAbsScaler"): lambda scaler: (None, scaler.scale_),
    ("sklearn", "MinMaxScaler"): lambda scaler: (
        -scaler.min_ / scaler.scale_,
        1.0 / scaler.scale_,
    ),
}

_CONVERTERS: dict[tuple[str, str], Callable[[Any], Flat]] = {
    ("sklearn", "RandomForestClassifier"): _from_trees,
    ("sklearn", "ExtraTreesClassifier"): _from_trees,
    ("sklearn", "DecisionTreeClassifier"): _from_trees,
    ("sklearn", "ExtraTreeClassifier"): _from_trees,
    ("sklearn", "GradientBoostingClassifier"): _from_gradient_boosting,
    ("sklearn", "HistGradientBoostingClassifier"): _from_hist_gradient_boosting,
    ("sklearn", "LogisticRegression"): _from_logistic_regression,
    ("sklearn", "LogisticRegressionCV"): _from_logistic_regression,
    ("sklearn", "MLPClassifier"): _from_perceptron,
    ("sklearn", "Pipeline"): _from_pipeline,
    ("lightgbm", "LGBMClassifier"): _from_lightgbm_classifier,
    ("lightgbm", "Booster"): _from_booster,
}
