"""The spelling of settings: equal ones are spelled alike, others are not."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import conovel as cn
from conovel.scorers.argument import DRAWN, NAMED, spell, spell_seed

ALIKE = [
    LogisticRegression,
    lambda: LogisticRegression(C=2.0),
    lambda: RandomForestClassifier(50),
    lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    lambda: make_pipeline(StandardScaler(with_mean=False), LogisticRegression()),
    lambda: make_pipeline(FunctionTransformer(np.log1p), LogisticRegression()),
    lambda: cn.OneClass(IsolationForest(), higher="normal"),
    lambda: cn.OneClass(IsolationForest(), higher="novel"),
    lambda: ["logistic", "boosting"],
    lambda: ["boosting", "logistic"],
    lambda: np.arange(3),
    lambda: np.arange(3.0),
    lambda: {"b": 1, "a": {2, 3}},
    lambda: None,
    *NAMED.values(),
]


def test_equal_settings_are_spelled_alike_and_others_are_not():
    spelled = [(spell(make()), spell(make())) for make in ALIKE]
    assert all(one == two for one, two in spelled)
    assert len({one for one, _ in spelled}) == len(ALIKE)


def test_defaults_are_left_out():
    assert spell(LogisticRegression(C=1.0)) == spell(LogisticRegression())
    assert "C=" not in spell(LogisticRegression(C=1.0))


@pytest.mark.parametrize("state", [None, np.random.default_rng(0), np.random.RandomState(0)])
def test_generators_are_spelled_as_what_they_are(state):
    assert spell_seed(state) == DRAWN
    assert spell_seed(np.int64(3)) == spell_seed(3) == "3"


def test_an_object_that_holds_itself_has_an_end():
    @dataclass
    class Knot:
        inner: object = None

    knot = Knot()
    knot.inner = knot
    assert spell(knot) == spell(knot)


def test_another_process_spells_alike():
    code = (
        "import numpy as np; from conovel.scorers.argument import spell;"
        "from sklearn.preprocessing import FunctionTransformer;"
        "print(spell([FunctionTransformer(np.log1p), {'b', 'a', 'c'}]))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert told.strip() == spell([FunctionTransformer(np.log1p), {"a", "b", "c"}])


def test_a_class_that_moved_keeps_its_spelling():
    """Ledgers hold digests of it."""
    assert spell(cn.Refined(None)) == (
        "conovel.scorers.refined.Refined(first=None, n_folds=5, n_refits=3, second=None)"
    )
    one_class = cn.OneClass(None, higher="novel")
    assert spell(one_class).startswith("conovel.scorers.one_class.OneClass(higher='novel'")
