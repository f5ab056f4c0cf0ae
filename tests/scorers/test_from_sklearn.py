"""Flat models score like the classifiers they come from: trees bit for bit."""

import platform

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from conovel.errors import ModelError
from conovel.models.forest import Forest
from conovel.models.linear import Dense, Linear
from conovel.scorers.from_sklearn import to_flat

# Where compilers fuse "sum += rate * value" (arm64), scikit-learn rounds once and not twice.
UNFUSED = platform.machine().lower() in ("x86_64", "amd64")
SCALES = np.array([1.0, 20.0, 1e-3, 1e5])


def sample(n=400, seed=0):
    """Rows of very different columns, the last with many ties, and noisy labels."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 4))
    Z[:, 3] = Z[:, 3].round(1)
    return Z * SCALES, (Z.sum(axis=1) + rng.normal(size=n) > 0.5).astype(int)


def rows_around(forest, rng):
    """Rows on the thresholds and next to them, in double and in single precision."""
    rows = []
    for column, edges in enumerate(forest.edges):
        t = rng.choice(edges, size=min(len(edges), 150), replace=False)
        s = t.astype(np.float32)
        near = [t, np.nextafter(t, np.inf), np.nextafter(t, -np.inf)]
        near += [s, np.nextafter(s, np.float32(np.inf)), np.nextafter(s, np.float32(-np.inf))]
        values = np.concatenate(near).astype(np.float64)
        block = rng.normal(size=(len(values), 4)) * SCALES
        block[:, column] = values
        rows.append(block)
    return np.concatenate(rows)


def lightgbm(**options):
    library = pytest.importorskip("lightgbm")
    return library.LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1, **options)


TREES = {
    "random forest": lambda: RandomForestClassifier(20, random_state=0),
    "shallow forest": lambda: RandomForestClassifier(20, max_depth=3, random_state=0),
    "weighted forest": lambda: RandomForestClassifier(
        20, class_weight="balanced_subsample", random_state=0
    ),
    "extra trees": lambda: ExtraTreesClassifier(20, random_state=0),
    "decision tree": lambda: DecisionTreeClassifier(random_state=0),
    "extra tree": lambda: ExtraTreeClassifier(random_state=0),
    "hist boosting": lambda: HistGradientBoostingClassifier(max_iter=20),
    "LightGBM": lightgbm,
    "LightGBM dart": lambda: lightgbm(boosting_type="dart"),
    "forest of scaled rows": lambda: make_pipeline(
        StandardScaler(), RandomForestClassifier(20, random_state=0)
    ),
    "hist boosting of scaled rows": lambda: make_pipeline(
        MinMaxScaler(), HistGradientBoostingClassifier(max_iter=20)
    ),
}
BOOSTING = {
    "boosting": dict(),
    "boosting from zero": dict(init="zero"),
    "boosting from the most frequent": dict(init=DummyClassifier(strategy="most_frequent")),
    "AdaBoost loss": dict(loss="exponential"),
    "boosting on subsamples": dict(subsample=0.5, learning_rate=0.3),
}


class TestTrees:
    @pytest.mark.parametrize("name", TREES)
    def test_keep_every_bit(self, name):
        X, y = sample()
        model = TREES[name]().fit(X, y)
        forest = to_flat(model)
        assert isinstance(forest, Forest)
        rng = np.random.default_rng(1)
        for rows in (X, sample(seed=2)[0], rows_around(forest, rng)):
            assert np.array_equal(forest.score(rows), model.predict_proba(rows)[:, 1])

    @pytest.mark.parametrize("name", BOOSTING)
    def test_of_gradient_boosting_keep_every_bit(self, name):
        X, y = sample()
        model = GradientBoostingClassifier(n_estimators=20, random_state=0, **BOOSTING[name])
        forest = to_flat(model.fit(X, y))
        for rows in (X, rows_around(forest, np.random.default_rng(1))):
            expected = model.predict_proba(rows)[:, 1]
            if UNFUSED:
                assert np.array_equal(forest.score(rows), expected)
            else:
                assert forest.score(rows) == pytest.approx(expected, rel=1e-13)

    @pytest.mark.parametrize(
        "name", ["random forest", "decision tree", "hist boosting", "LightGBM"]
    )
    def test_fitted_with_missing_values_score_complete_rows(self, name):
        X, y = sample()
        holes = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
        model = TREES[name]().fit(holes, y)
        assert np.array_equal(to_flat(model).score(X), model.predict_proba(X)[:, 1])

    @given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(2, 30))
    @settings(max_examples=25)
    def test_keep_every_bit_on_few_values(self, seed, d, n_values):
        """Repeated thresholds, constant features and rows that lie on them."""
        rng = np.random.default_rng(seed)
        values = rng.normal(size=n_values) * 10.0 ** rng.integers(-3, 4)
        X = rng.choice(values, size=(60, d))
        y = np.arange(60) % 2
        for model in (
            RandomForestClassifier(4, random_state=0),
            ExtraTreesClassifier(4, random_state=0),
            HistGradientBoostingClassifier(max_iter=4, min_samples_leaf=2),
        ):
            model.fit(X, y)
            assert np.array_equal(to_flat(model).score(X), model.predict_proba(X)[:, 1])

    def test_are_decided_where_the_nearest_float32_would_err(self):
        one, ulp = np.float32(1), np.finfo(np.float32).eps
        model = DecisionTreeClassifier().fit([[one], [one + 3 * ulp]], [0, 1])
        middle = model.tree_.threshold[0]
        assert np.float64(np.float32(middle)) == 1 + 2 * ulp > middle
        assert to_flat(model).threshold[0] == 1 + ulp
        rows = np.float64(one) + ulp * np.arange(4.0)[:, np.newaxis]
        assert to_flat(model).score(rows).tolist() == [0.0, 0.0, 1.0, 1.0]
        assert np.array_equal(to_flat(model).score(rows), model.predict_proba(rows)[:, 1])

    def test_of_one_leaf_score_a_constant(self):
        X = np.zeros((10, 2))
        model = RandomForestClassifier(3, random_state=0).fit(X, [0, 1] * 5)
        assert np.array_equal(to_flat(model).score(X), model.predict_proba(X)[:, 1])
        scaled = make_pipeline(StandardScaler(), model).fit(X, [0, 1] * 5)
        assert np.array_equal(to_flat(scaled).score(X), scaled.predict_proba(X)[:, 1])

    def test_of_lightgbm_read_tiny_numbers_as_zero(self):
        X, y = sample()
        y = (X[:, 0] > 0).astype(int)
        model = lightgbm().fit(X, y)
        tiny = float(np.float32(1e-35))
        values = [0.0, -0.0, tiny, -tiny, np.nextafter(tiny, 1), np.nextafter(-tiny, -1), 1e-36]
        rows = np.repeat(X[:1], len(values), axis=0)
        rows[:, 0] = values
        assert np.array_equal(to_flat(model).score(rows), model.predict_proba(rows)[:, 1])
        assert len(set(to_flat(model).score(rows))) > 1

    def test_of_a_booster_are_those_of_the_classifier(self):
        X, y = sample()
        model = lightgbm().fit(X, y)
        assert np.array_equal(to_flat(model.booster_).score(X), to_flat(model).score(X))

    def test_may_have_been_fitted_on_a_frame(self):
        X, y = sample()
        frame = pd.DataFrame(X, columns=list("abcd"))
        for name in ("random forest", "forest of scaled rows", "hist boosting", "LightGBM"):
            model = TREES[name]().fit(frame, y)
            assert np.array_equal(to_flat(model).score(X), model.predict_proba(frame)[:, 1])

    def test_may_have_boolean_classes(self):
        X, y = sample()
        model = RandomForestClassifier(5, random_state=0).fit(X, y.astype(bool))
        assert np.array_equal(to_flat(model).score(X), model.predict_proba(X)[:, 1])


SCALERS = [None, StandardScaler(), StandardScaler(with_mean=False), RobustScaler(), MaxAbsScaler()]
SMOOTH = [
    LogisticRegression(),
    LogisticRegressionCV(Cs=2, cv=2),
    MLPClassifier((8, 5), max_iter=20, random_state=0),
    MLPClassifier((6,), activation="tanh", max_iter=20, random_state=0),
    MLPClassifier((6,), activation="logistic", max_iter=20, random_state=0),
    MLPClassifier((), activation="identity", max_iter=20, random_state=0),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")  # defaults of LogisticRegressionCV
class TestSmoothModels:
    @pytest.mark.parametrize("scaler", [*SCALERS, MinMaxScaler((-1, 2))], ids=str)
    @pytest.mark.parametrize("classifier", SMOOTH, ids=str)
    def test_agree_to_the_last_bits(self, classifier, scaler):
        X, y = sample()
        X = X / SCALES
        model = make_pipeline(scaler, classifier).fit(X, y)
        flat = to_flat(model)
        assert isinstance(flat, Dense if isinstance(classifier, MLPClassifier) else Linear)
        assert np.max(np.abs(flat.score(X) - model.predict_proba(X)[:, 1])) < 1e-14

    def test_scale_with_the_operations_of_the_scaler(self):
        X, y = sample()
        scaler = StandardScaler().fit(X)
        model = make_pipeline(scaler, LogisticRegression()).fit(X, y)
        bare = to_flat(model[-1])
        assert np.array_equal(to_flat(model).score(X), bare.score(scaler.transform(X)))


class Mine(RandomForestClassifier):
    """A forest that may override anything."""


class TestRefusals:
    def test_name_what_is_supported(self):
        X, y = sample()
        with pytest.raises(ModelError, match=r"CalibratedClassifierCV has no.*RandomForestClass"):
            to_flat(CalibratedClassifierCV(GaussianNB()).fit(X, y))
        with pytest.raises(ModelError, match="Mine has no flat form"):
            to_flat(Mine(2).fit(X, y))
        with pytest.raises(ModelError, match="NoneType"):
            to_flat(None)

    @pytest.mark.parametrize("make", TREES.values(), ids=TREES)
    def test_of_an_unfitted_model(self, make):
        with pytest.raises(ModelError, match="not fitted"):
            to_flat(make())

    @pytest.mark.parametrize(
        "labels", [[0, 0], [1, 1], [1, 2], ["novel", "null"], [0, 1, 2]], ids=str
    )
    def test_of_other_classes(self, labels):
        X, _ = sample(60)
        model = RandomForestClassifier(2).fit(X, np.resize(labels, 60))
        with pytest.raises(ModelError, match=r"classes 0 \(null\) and 1 \(novel\)"):
            to_flat(model)

    def test_of_boosting_that_starts_from_a_model(self):
        X, y = sample()
        model = GradientBoostingClassifier(n_estimators=2, init=GaussianNB()).fit(X, y)
        with pytest.raises(ModelError, match="start from a constant"):
            to_flat(model)

    def test_of_categories(self):
        X, y = sample()
        X[:, 0] = y
        model = HistGradientBoostingClassifier(max_iter=2, categorical_features=[0]).fit(X, y)
        with pytest.raises(ModelError, match="categorical"):
            to_flat(model)
        with pytest.raises(ModelError, match="categories"):
            to_flat(lightgbm(min_data_per_group=1).fit(X, y, categorical_feature=[0]))

    @pytest.mark.filterwarnings("ignore::UserWarning")
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (dict(objective="cross_entropy"), "objective 'binary'"),
            (dict(sigmoid=2.0), "sigmoid=1"),
            (dict(boosting_type="rf", subsample=0.5, subsample_freq=1), "must boost"),
            (dict(zero_as_missing=True), "missing zeros"),
            (dict(linear_tree=True), "linear trees"),
        ],
    )
    def test_of_lightgbm_models_of_another_kind(self, options, message):
        X, y = sample()
        X[::3] = 0
        with pytest.raises(ModelError, match=message):
            to_flat(lightgbm(**options).fit(X, y))

    @pytest.mark.parametrize(
        "steps",
        [
            (PolynomialFeatures(), LogisticRegression()),
            (StandardScaler(), RobustScaler(), LogisticRegression()),
            (MinMaxScaler(clip=True), LogisticRegression()),
            (StandardScaler(), make_pipeline(StandardScaler(), LogisticRegression())),
        ],
        ids=str,
    )
    def test_of_pipelines_with_more_than_a_scaler(self, steps):
        X, y = sample()
        with pytest.raises(ModelError, match="scaler"):
            to_flat(make_pipeline(*steps).fit(X / SCALES, y))

    def test_not_of_flat_models(self):
        for model in (
            Forest([-1], [0.0], [0], [0.5], [0], 1),
            Linear([1.0], 0.0),
            Dense(([[1.0]],), ([0.0],), "relu"),
        ):
            assert to_flat(model) is model
