"""From a fitted model to bytes and back, for every family that can be sent."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC, OneClassSVM
from sklearn.tree import DecisionTreeClassifier
from support.scorers import fit_scorer

import conovel as cn
from conovel.errors import InputError, ModelError
from conovel.experiments.gaussian import gaussian_design
from conovel.models import wire
from conovel.models.wire import header
from conovel.rows.tables import Rows
from conovel.scorers.automatic import mahalanobis_distance
from conovel.scorers.base import Mixture, TrainingSet
from conovel.scorers.estimators import as_scorer
from conovel.site.sent.surrogate import make_surrogate
from conovel.site.site import Site
from conovel.site.work import SiteWork
from conovel.spec.run_spec import RunSpec
from conovel.spec.settings import as_bits

TREES = [
    RandomForestClassifier(5, random_state=0),
    ExtraTreesClassifier(5, max_depth=4, random_state=0),
    DecisionTreeClassifier(max_depth=4, random_state=0),
    GradientBoostingClassifier(n_estimators=5, random_state=0),
    HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=6, random_state=0),
    make_pipeline(StandardScaler(), RandomForestClassifier(5, max_depth=3, random_state=0)),
]
SMOOTH = [
    LogisticRegression(),
    make_pipeline(StandardScaler(), LogisticRegression()),
    MLPClassifier((4,), max_iter=20, random_state=0),
]


def name(model):
    steps = getattr(model, "steps", [("", model)])
    return "+".join(type(step).__name__ for _, step in steps)


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).normal(size=(300, 4))
    return X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(int)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", TREES + SMOOTH, ids=name)
def test_float64_scores_like_the_model_and_bits_come_closer(model, rows):
    X, y = rows
    wanted = model.fit(X, y).predict_proba(X)[:, 1]
    exact = cn.decode(cn.encode(model)).score(X)
    if any(model is tree for tree in TREES):
        assert np.array_equal(exact, wanted)
    else:
        np.testing.assert_allclose(exact, wanted, rtol=1e-12)
    blobs = {bits: cn.encode(model, bits=bits) for bits in (2, 4, 12)}
    errors = [np.abs(cn.decode(blob).score(X) - wanted).mean() for blob in blobs.values()]
    assert errors[2] < 0.01
    assert errors[2] < min(errors[:2])
    sizes = [*map(len, blobs.values()), len(cn.encode(model))]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("bits", [None, 1, 16, np.int64(4), "compact", "compact:28"])
def test_precisions_that_exist(bits):
    assert as_bits(bits) == bits


@pytest.mark.parametrize(
    "bits",
    [0, 17, -1, 4.0, True, "4", "", "tiny", "Compact", b"compact", "compact:", "compact:0"],
)
def test_precisions_that_do_not(bits):
    with pytest.raises(InputError, match="bits must be"):
        as_bits(bits)


@pytest.mark.parametrize("budget", ["-9", "3.5", " 300", "300:4", "²", "few"])
def test_budgets_that_are_no_number_of_bytes(budget):
    with pytest.raises(InputError, match=f"not 'compact:{re.escape(budget)}'"):
        as_bits(f"compact:{budget}")


def test_a_network_says_before_any_work_that_bits_are_wrong(rows):
    X, _ = rows
    with pytest.raises(InputError, match="not 'compact:few'"):
        cn.Network([cn.Agent("a", X, X), cn.Agent("b", X, X)], bits="compact:few").run()


def test_what_is_sent_follows_from_bits(rows):
    X, _ = rows
    mixture = Mixture.of(X[100:])
    given = fit_scorer(TREES[0], X[:100], mixture), TrainingSet(X[:100], mixture), 0
    candidates = [as_scorer(TREES[0])]
    for bits in (None, 3):
        sent = make_surrogate(bits, *given, candidates=candidates)
        assert sent == cn.encode(given[0].estimator, bits=bits)
    compact = make_surrogate("compact", *given, b"abcd", candidates=candidates)
    assert wire.decode(compact, schema=b"abcd").link == "logistic"
    assert len(make_surrogate("compact:100", *given, candidates=candidates)) <= 100


SMALL_TREES = ExtraTreesClassifier(10, max_depth=3, random_state=0)
BLEND = cn.Blend(
    [SMALL_TREES, mahalanobis_distance()], [LogisticRegression(), SMALL_TREES], n_folds=2
)
IMITATED = {
    "blend": BLEND,
    "blend of a blend": cn.Blend(BLEND, [LogisticRegression(), SMALL_TREES], n_folds=2),
    "refined one-class": cn.Refined(mahalanobis_distance(), n_folds=2, n_refits=0),
    "one-class": cn.OneClass(IsolationForest(n_estimators=20, random_state=0), "normal"),
    "one-class pipeline": cn.OneClass(make_pipeline(StandardScaler(), OneClassSVM()), "normal"),
    "naive Bayes": GaussianNB(),
    "neighbours": KNeighborsClassifier(9),
    "support vectors": SVC(),
    "linear support vectors": LinearSVC(random_state=0),
    "pipeline": make_pipeline(PCA(2), LogisticRegression()),
    "two scalers": make_pipeline(StandardScaler(), MinMaxScaler(), LogisticRegression()),
}
ALL_BITS = [None, *range(1, 17), "compact", "compact:120"]


def mixed(seed=1, n=90):
    """Known normals, then calibration and test rows, some of them novel and some equal."""
    rng = np.random.default_rng(seed)
    train, rows = rng.normal(size=(n, 4)), rng.normal(size=(n, 4))
    rows[-n // 4 :] += 2.0
    return train, np.concatenate([rows, rows[:5]])


def require_imitations(scorer, every_bits):
    train, rows = mixed()
    mixture = Mixture.of(rows)
    local = fit_scorer(scorer, train, mixture)
    for bits in every_bits:
        given = bits, local, TrainingSet(train, mixture), 0
        surrogate = cn.decode(make_surrogate(*given, candidates=[as_scorer(scorer)]))
        assert surrogate.n_features == 4
        if not isinstance(bits, str):
            assert surrogate.n_trees == 100
            assert len(surrogate.feature) <= 100 * (2 * 20 - 1)
        if bits is None or bits == 16:
            order = [model.score(mixture.distinct) for model in (local, surrogate)]
            assert spearmanr(*order).statistic > 0.8


@pytest.mark.parametrize("name", IMITATED)
def test_a_model_without_a_flat_form_is_imitated(name):
    require_imitations(IMITATED[name], [2, "compact"])


def test_it_is_imitated_at_other_precisions():
    require_imitations(GaussianNB(), [None, 1, "compact:120"])


@pytest.mark.slow
@pytest.mark.parametrize("name", IMITATED)
def test_every_model_is_imitated_at_every_precision(name):
    require_imitations(IMITATED[name], ALL_BITS)


@pytest.mark.parametrize("name", ["blend", "one-class", "linear support vectors"])
def test_what_imitates_does_not_know_which_rows_are_calibration_rows(name):
    """Swap calibration rows and test rows of a whole site: every byte that is sent stays."""
    rng = np.random.default_rng(0)
    null, test = rng.normal(size=(80, 3)).round(1), rng.normal(size=(40, 3)).round(1)
    test[:10] += 2.0
    spec = RunSpec.of(composite="mean", bits=None, seed=7)
    work = SiteWork(spec, (as_scorer(IMITATED[name]),), n_agents=2)
    site = Site(Rows(null), Rows(test), work)
    _, calibration = site.split(len(null))
    pool = rng.permutation(np.concatenate([null[calibration], test]))
    swapped = null.copy()
    swapped[calibration], test = np.split(pool, [len(calibration)])
    other = Site(Rows(swapped), Rows(test), work)
    assert site.models(0, ("a", "b")) == other.models(0, ("a", "b"))


def test_the_default_scorer_sends_at_a_precision_of_the_paper():
    drawn = gaussian_design(1.0, 0, n_agents=2, n_null=160, n_test=80)
    first, second = (cn.Agent(n, a.X_null, a.X_test) for n, a in zip("ab", drawn, strict=True))
    agents = [replace(first, scorer=cn.Automatic(n_folds=2)), second]
    run = cn.Network(agents, bits=4, composite="mean", scorer="logistic").run()
    assert run["a"].choices["scorer"].winner == "blend"
    assert not run.lost


@pytest.mark.slow
def test_the_default_scorer_sends_at_all_precisions_of_the_paper():
    drawn = gaussian_design(1.0, 0, n_agents=5, n_null=400, n_test=200)
    agents = [
        cn.Agent(str(i), a.X_null, a.X_test, bits=bits)
        for i, (a, bits) in enumerate(zip(drawn, (None, 6, 4, 2, 1), strict=True))
    ]
    run = cn.Network(agents).run()
    assert {site.choices["scorer"].winner for site in run.values()} == {"blend"}
    assert not run.lost


def test_a_model_of_more_numbers_than_a_message_may_hold_is_imitated(rows, monkeypatch):
    X, _ = rows
    mixture = Mixture.of(X[100:])
    scorer = as_scorer(RandomForestClassifier(120, random_state=0))
    local = fit_scorer(scorer, X[:100], mixture)
    monkeypatch.setattr(header, "MAX_ITEMS", 4000)
    with pytest.raises(ModelError, match="more than the 4000 that can be sent"):
        cn.encode(local.estimator)
    given = 3, local, TrainingSet(X[:100], mixture), 0
    assert cn.decode(make_surrogate(*given, candidates=[scorer])).n_trees == 100


def test_encode_says_how_a_model_without_a_flat_form_is_sent(rows):
    X, y = rows
    with pytest.raises(ModelError, match=r"GaussianNB has no flat form.*Network.*imitates it"):
        cn.encode(GaussianNB().fit(X, y), bits=4)
    forest = TREES[0].fit(X, y)
    with pytest.raises(InputError, match=r"encode cannot make a 'compact' model.*no rows"):
        cn.encode(forest, bits="compact")
    with pytest.raises(InputError, match="bits must be"):
        cn.encode(forest, bits=17)


@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parametrize(
    "model",
    [RandomForestClassifier(3, max_depth=2, random_state=0), LogisticRegression()],
    ids=["forest", "linear"],
)
def test_every_decoded_surrogate_describes_itself(model, bits):
    X = np.random.default_rng(0).normal(size=(60, 3))
    blob = cn.encode(model.fit(X, X[:, 0] > 0), bits=bits)
    facts = cn.decode(blob).describe()
    assert facts["bytes"]["header"] + facts["bytes"]["payload"] == len(blob)
