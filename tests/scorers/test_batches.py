"""A row has one score, to the last bit, whatever rows are scored with it and however they lie."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from support.scorers import fit_scorer

from conovel.models.linear import Linear
from conovel.models.quantized.forest import uniform
from conovel.scorers.argument import NAMED, as_candidates
from conovel.scorers.automatic import Automatic, mahalanobis_distance
from conovel.scorers.base import Mixture, TrainingSet, add_up, is_by_row, mean_of
from conovel.scorers.blend import Blend, Discriminant, Refined, shrunken_logistic
from conovel.site.composite import fit_composite
from conovel.site.sent.compact import PROFILES, fit_compact
from conovel.spec.settings import COMPOSITES

D = 11  # from 8 columns on, numpy adds in another order where they are contiguous
SIZES = (1, 2, 7, 8, 9, 64)
RNG = np.random.default_rng(5)
TRAIN, MIXED = RNG.normal(size=(60, D)), RNG.normal(size=(90, D))
MIXED[:15] += 1.5
MIXTURE = Mixture.of(MIXED)
ROWS = np.concatenate([RNG.normal(size=(70, D)), MIXED[:30]])
OTHERS = {
    "ellipse": mahalanobis_distance(),
    "discriminant": Discriminant(),
    "automatic, two folds": Automatic(n_folds=2),
    "blend": Blend(
        [shrunken_logistic(), mahalanobis_distance()],
        [shrunken_logistic(), Discriminant()],
        n_folds=2,
    ),
    "refined from one class": Refined(
        mahalanobis_distance(), shrunken_logistic(), n_folds=2, n_refits=1
    ),
    "neighbours": KNeighborsClassifier(9),
    "support vectors": SVC(),
    "naive Bayes": GaussianNB(),
}
SLOW = ("automatic", "refined-trees", "refined-linear")
# What is known of them is that a test found no difference.
BY_BATCH = ("neighbours", "support vectors", "naive Bayes")


def batches(rows):
    """Slices of every size, then the same rows in other places of memory."""
    for size in SIZES:
        yield rows, slice(3, 3 + size)
    spaced = np.full((2 * len(rows), 2 * D), np.nan)
    spaced[::2, ::2] = rows
    by_columns = np.asfortranarray(rows)
    for lying in (by_columns, spaced[::2, ::2], rows[::-1].copy()[::-1]):
        yield lying, slice(None)
    yield from ((by_columns, slice(5, 6)), (by_columns, slice(5, 14)))


def require_one_score(model, rows=ROWS):
    whole = model.score(rows)
    for lying, part in batches(rows):
        assert model.score(lying[part]).tobytes() == whole[part].tobytes(), part


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in (*NAMED, *OTHERS)
    ],
)
def test_every_scorer_gives_a_row_one_score(name):
    (scorer,) = as_candidates(OTHERS.get(name, name), 0)
    fitted = fit_scorer(scorer, TRAIN, MIXTURE)
    require_one_score(fitted)
    assert is_by_row(fitted) == (name not in BY_BATCH)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", sorted({*NAMED, *OTHERS} - {*SLOW, *BY_BATCH}))
def test_what_says_that_it_scores_by_rows_does_so_in_large_batches(name):
    """As many rows as those from which on the flat form of trees scores."""
    (scorer,) = as_candidates(OTHERS.get(name, name), 0)
    fitted = fit_scorer(scorer, TRAIN, MIXTURE)
    assert is_by_row(fitted)
    rows = np.random.default_rng(3).normal(size=(5000, D))
    whole = fitted.score(rows)
    for part in (slice(0, 1), slice(1, 800), slice(800, 5000)):
        assert fitted.score(rows[part]).tobytes() == whole[part].tobytes()


def peers(n):
    """Linear models that disagree, every second one quantized."""
    models = [Linear(row, 0.1) for row in np.random.default_rng(n).normal(size=(n, D))]
    return [uniform(model, 6) if i % 2 else model for i, model in enumerate(models)]


LOCALS = {
    "classifier": LogisticRegression(),
    "one class": mahalanobis_distance(),
    "log-odds": SVC(),
    "refining": OTHERS["refined from one class"],
}


@pytest.mark.parametrize(
    "n_opinions",
    [2, pytest.param(8, marks=pytest.mark.slow), 9, pytest.param(16, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("name", LOCALS)
def test_every_composite_gives_a_row_one_score(name, n_opinions):
    local = fit_scorer(LOCALS[name], TRAIN, MIXTURE)
    for composite in (*COMPOSITES, "local"):
        training = TrainingSet(TRAIN, MIXTURE)
        model = fit_composite(composite, local, peers(n_opinions - 1), training).model
        require_one_score(model)
        assert is_by_row(model) == (name != "log-odds")


@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_every_compact_model_gives_a_row_one_score(profile):
    local = fit_scorer(LogisticRegression(), TRAIN, MIXTURE)
    require_one_score(fit_compact(local, TrainingSet(TRAIN, MIXTURE), 0, profile))


@pytest.mark.parametrize("k", [1, 2, 7, 8, 9, 16, 130])
def test_vectors_are_added_in_their_order_whatever_their_length(k):
    parts = np.random.default_rng(k).normal(size=(k, 40))
    # Since Python 3.12 `sum` of floats corrects its rounding.
    one_by_one = [reduce(add, column) for column in parts.T.tolist()]
    assert add_up(parts).tolist() == one_by_one
    assert mean_of(np.asfortranarray(parts)).tolist() == [total / k for total in one_by_one]
    alone = [add_up(parts[:, [i]]).item() for i in range(40)]
    assert alone == one_by_one
    # Fewer than 8 have the bits of numpy's own mean of a batch.
    if k < 8:
        assert mean_of(parts).tobytes() == parts.mean(axis=0).tobytes()


def test_adding_up_changes_nothing_that_is_added():
    parts = [np.ones(2), np.ones(2)]
    add_up(parts)
    assert parts[0].tolist() == [1.0, 1.0]
