"""Nothing but a ConovelError leaves a public function for bad input, and it says what to do."""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression

import conovel as cn
from conovel.errors import ColumnError, InputError, LevelError, SampleError, ScorerError, WireError

RNG = np.random.default_rng(0)
NULL, TEST = RNG.normal(size=(60, 2)), RNG.normal(size=(20, 2))
LINEAR = LogisticRegression()
FITTED = LogisticRegression().fit(NULL, (NULL[:, 0] > 0).astype(int))
ISOLATION = IsolationForest(n_estimators=5)


def twice(make):
    return make([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])


SAMPLES = {
    "None": (
        None,
        SampleError,
        "array or a frame of shape (rows, columns), not a None",
    ),
    "text": (
        "rows",
        SampleError,
        "array or a frame of shape (rows, columns), not a str",
    ),
    "number": (3, SampleError, "must be an array or a frame"),
    "set": ({1, 2}, SampleError, "must be an array or a frame"),
    "dict": ({"a": [1.0]}, SampleError, "must be an array or a frame"),
    "lazy frame without rows": (pl.LazyFrame({"a": []}), SampleError, "has no rows"),
    "generator": ((x for x in [1]), SampleError, "not a generator"),
    "ragged": ([[1, 2], [3]], SampleError, "every row the same number of columns"),
    "one dimension": ([1.0, 2.0], SampleError, "reshape(-1, 1)"),
    "series": (pd.Series([1.0, 2.0]), SampleError, "reshape(-1, 1)"),
    "three dimensions": (np.zeros((2, 2, 2)), SampleError, "must have shape (rows, columns)"),
    "empty list": ([], SampleError, "must have shape (rows, columns)"),
    "no rows": (np.zeros((0, 2)), SampleError, "no rows"),
    "no columns": (np.zeros((3, 0)), SampleError, "no columns"),
    "frame without columns": (pd.DataFrame(index=[1, 2]), SampleError, "no columns"),
    "texts": ([["a", "b"]], ColumnError, "encode them as numbers"),
    "complex": (np.zeros((3, 2), complex), ColumnError, "encode them as numbers"),
    "dates": (np.zeros((3, 2), "M8[s]"), ColumnError, "encode them as numbers"),
    "an object": ([[{}, 1], [2, 3]], ColumnError, "column 0, first in row 0: float() argument"),
    "huge integers": ([[10**400, 1]] * 3, ColumnError, "encode them as numbers"),
    "nothing but NaN": ([[1, np.nan]] * 3, ColumnError, "entirely missing"),
    "empty column": (
        pd.DataFrame({"a": [None] * 3, "b": [1] * 3}),
        ColumnError,
        "missing, in all",
    ),
    "null column": (pa.table({"a": pa.nulls(3), "b": [1] * 3}), ColumnError, "missing, in all 3"),
    "polars null": (
        pl.DataFrame({"a": [None] * 3, "b": [1, 2, 3]}),
        ColumnError,
        "entirely missing",
    ),
    "same names": (pd.DataFrame(NULL, columns=["a", "a"]), ColumnError, "called 'a': rename"),
    "same names in arrow": (twice(pa.table), ColumnError, "called 'a': rename"),
    "names that read alike": (pd.DataFrame(NULL, columns=[1, "1"]), ColumnError, "called '1'"),
    "structs": (pa.table({"a": [{"x": 1}], "b": [1]}), ColumnError, "column 'a' holds values"),
    "lists": (pl.DataFrame({"a": [[1]], "b": [1]}), ColumnError, "column 'a' holds values"),
    "sets": (pd.DataFrame({"a": [{1}], "b": [1]}), ColumnError, "of type set, which are no"),
    "other columns": (NULL[:, :1], ColumnError, "columns"),
}


def as_network(null, test):
    agents = [cn.Agent("a", null, test), cn.Agent("b", NULL, TEST)]
    return cn.Network(agents, regime="counts", scorer="logistic").run()


@pytest.mark.parametrize("which", ["null", "test"])
@pytest.mark.parametrize(
    "run",
    [
        lambda null, test: cn.AdaDetect("logistic").detect(null, test),
        lambda null, test: cn.AdaDetect("logistic").fit(null).predict(test),
        as_network,
    ],
    ids=["detect", "fit-predict", "network"],
)
@pytest.mark.parametrize(("sample", "error", "words"), SAMPLES.values(), ids=SAMPLES)
def test_samples(run, sample, error, words, which):
    with pytest.raises(error) as raised:
        run(*((sample, TEST) if which == "null" else (NULL, sample)))
    assert words in str(raised.value)


@pytest.mark.parametrize("which", ["null", "test"])
@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (pd.DataFrame({"a": [1, "x"], "b": [1, 2]}), "not numeric: 'a'"),
        (pd.DataFrame({"a": pd.Categorical(["u", "v"]), "b": [1, 2]}), "not numeric: 'a'"),
    ],
)
def test_agents_need_a_schema_for_what_is_no_plain_number(sample, words, which):
    with pytest.raises(ColumnError) as raised:
        as_network(*((sample, TEST) if which == "null" else (NULL, sample)))
    assert words in str(raised.value)
    assert "from both samples of one agent" in str(raised.value)


@pytest.mark.parametrize("null", [pd.DataFrame(NULL), pd.DataFrame(NULL, columns=[1, "x"])])
def test_names_of_columns_need_not_be_texts(null):
    test = pd.DataFrame(TEST, columns=null.columns)
    found = cn.AdaDetect("logistic").detect(null, test.iloc[:, ::-1])
    assert np.array_equal(found.scores, cn.AdaDetect("logistic").detect(NULL, TEST).scores)


def detect(**settings):
    return lambda: cn.AdaDetect(**{"scorer": "logistic"} | settings).detect(NULL, TEST)


def scorer(make):
    """Detect with a scorer that is made late, so that its making is part of the test."""
    return lambda: cn.AdaDetect(make()).detect(NULL, TEST)


def agents(**more):
    return [cn.Agent("a", NULL, TEST, **more), cn.Agent("b", NULL + 0.1, TEST)]


def network(members=None, dropouts=None, **settings):
    members = agents() if members is None else members
    return lambda: cn.Network(members, **{"scorer": "logistic"} | settings).run(dropouts=dropouts)


class Odd:
    """Something that is nothing in particular."""

    def __repr__(self):
        return "ODD"


ODD = Odd()
PAIR = np.array([1, 2])

CALLS = {
    # AdaDetect
    **{
        f"random_state={value!r}": (detect(random_state=value), InputError, "random_state")
        for value in ("x", 1.5, -1, [1], PAIR, ODD)
    },
    **{
        f"max_train_rows={value!r}": (detect(max_train_rows=value), InputError, "max_train_rows")
        for value in (None, "x", 1.5, -1, 0, float("nan"), PAIR, True)
    },
    "max_train_rows=1": (detect(max_train_rows=1), SampleError, "raise max_train_rows"),
    **{
        f"level={value!r}": (detect(level=value), LevelError, "level must")
        for value in (None, "x", 0, 1, -0.1, float("nan"), float("inf"), [0.1], ODD)
    },
    "train_fraction": (detect(train_fraction="half"), LevelError, "train_fraction must"),
    "pi0": (detect(pi0=0.5), InputError, "pi0 must be"),
    "scorer by no name": (detect(scorer="magic"), ScorerError, "no scorer is called 'magic'"),
    "no scorer": (detect(scorer=[]), InputError, "name at least one scorer"),
    **{
        f"scorer={value!r}": (detect(scorer=value), ScorerError, "not a scikit-learn classifier")
        for value in (3, {}, ODD, PAIR, LinearRegression())
    },
    "one class without polarity": (detect(scorer=ISOLATION), ScorerError, "higher='normal'"),
    "predict before fit": (
        lambda: cn.AdaDetect().predict(TEST),
        InputError,
        "call fit(X_null) first",
    ),
    "too few known normals": (
        lambda: cn.AdaDetect("logistic").detect(NULL[:1], TEST),
        SampleError,
        "at least 2 are needed",
    ),
    **{
        f"ids={value!r}": (
            partial(lambda ids: cn.AdaDetect("logistic").detect(NULL, TEST, ids=ids), value),
            SampleError,
            "ids",
        )
        for value in ("x", 3, [1, 2], [[1], [2, 3]] * 10, np.zeros((20, 1)), ODD)
    },
    "on_stage": (
        lambda: cn.AdaDetect("logistic").detect(NULL, TEST, on_stage="x"),
        InputError,
        "on_stage must be a function",
    ),
    # Scorers
    "OneClass of nothing": (scorer(lambda: cn.OneClass(None, "normal")), ScorerError, "no fit"),
    "OneClass higher": (scorer(lambda: cn.OneClass(ISOLATION, PAIR)), ScorerError, "'novel'"),
    "OneClass method": (scorer(lambda: cn.OneClass(ISOLATION, "normal", "x")), ScorerError, "'x'"),
    "OneClass no text": (scorer(lambda: cn.OneClass(ISOLATION, "normal", 3)), ScorerError, "3"),
    "Refined of nothing": (scorer(lambda: cn.Refined([])), ScorerError, "at least one scorer"),
    **{
        f"Refined({value!r})": (scorer(partial(cn.Refined, value)), ScorerError, "classifier")
        for value in (None, "logistic", 3, {}, PAIR, ODD)
    },
    **{
        f"Refined second {value!r}": (
            scorer(partial(cn.Refined, LINEAR, value)),
            ScorerError,
            "classifier",
        )
        for value in ("logistic", {}, PAIR)
    },
    **{
        f"{name}={value!r}": (
            scorer(partial(cn.Refined, LINEAR, **{name: value})),
            InputError,
            f"{name} must be a whole number",
        )
        for name in ("n_folds", "n_refits")
        for value in (-1, 1.5, "x", None, 10**30)
    },
    "Blend of nothing": (scorer(lambda: cn.Blend(LINEAR, [])), ScorerError, "members must be"),
    "Blend of one": (scorer(lambda: cn.Blend(LINEAR, LINEAR)), ScorerError, "members must be"),
    "Blend of texts": (scorer(lambda: cn.Blend(LINEAR, ["x"])), ScorerError, "classifier"),
    "Blend refits": (scorer(lambda: cn.Blend(LINEAR, [LINEAR], (1, 2))), InputError, "n_refits"),
    "Blend refits array": (scorer(lambda: cn.Blend(LINEAR, [LINEAR], PAIR)), InputError, "tuple"),
    "Blend lead": (scorer(lambda: cn.Blend(LINEAR, [LINEAR], lead="x")), InputError, "lead must"),
    "Automatic folds": (scorer(lambda: cn.Automatic("x")), InputError, "n_folds must"),
    "Automatic seed": (scorer(lambda: cn.Automatic(4, "x")), InputError, "random_state must"),
    "Automatic negative": (scorer(lambda: cn.Automatic(4, -1)), InputError, "random_state must"),
    # Networks
    **{
        f"agents={value!r}": (network(value), InputError, "agents must be a list of Agent")
        for value in (3, "ab", [None, None], [("a", NULL, TEST)] * 2, ODD)
    },
    "no agents": (network([]), InputError, "2 to 200 agents"),
    "one agent": (network(agents()[:1]), InputError, "2 to 200 agents"),
    "agents of one name": (network(agents()[:1] * 2), InputError, "of different names"),
    **{
        f"name {value!r}": (
            network([cn.Agent(value, NULL, TEST), *agents()]),
            InputError,
            "cannot be the name of an agent",
        )
        for value in (None, 3, "", " ", "coordinator", "x" * 100, "a\nb", b"a", PAIR, [])
    },
    **{
        f"network {name}={value!r}": (network(**{name: value}), InputError, name)
        for name in ("regime", "composite", "bits", "on_dropout", "random_state")
        for value in ("x", 1.5, [1], PAIR, {}, ODD)
    },
    "network level": (network(level="x"), LevelError, "level must"),
    "network train_fraction": (network(train_fraction=2), LevelError, "train_fraction must"),
    "network pi0": (network(pi0="x"), InputError, "pi0 must be"),
    "network scorer": (network(scorer=3), ScorerError, "agent a: int is not a scikit-learn"),
    "agent scorer": (network(agents(scorer="x")), ScorerError, "agent a: no scorer is called 'x'"),
    "agent bits": (network(agents(bits=99)), InputError, "agent a: bits must be"),
    "agent ids": (network(agents(ids=[[1], [2, 3]])), SampleError, "agent a: ids"),
    "agents with other columns": (
        network([cn.Agent("a", NULL[:, :1], TEST[:, :1]), agents()[1]]),
        ColumnError,
        "do not have the same columns",
    ),
    **{
        f"dropouts={value!r}": (network(dropouts=value), InputError, "dropouts must map")
        for value in ("a", 3, ["a"], PAIR, {"a": "never"}, {"a": None}, {"a": []}, {"a": PAIR})
    },
    **{
        f"dropouts of {name!r}": (network(dropouts={name: "hello"}), InputError, "no agent called")
        for name in ("z", None, 3)
    },
    # Statistics
    **{
        f"{name} {which} {value!r}": (
            partial(function, *((value, [1.0]) if which == "cal" else ([1.0], value))),
            InputError,
            "_scores",
        )
        for name, function in (
            ("conformal_ranks", cn.conformal_ranks),
            ("conformal_pvalues", cn.conformal_pvalues),
            ("reject", partial(cn.reject, level=0.1)),
        )
        for which in ("cal", "test")
        for value in (None, "x", 3, [], [np.nan], ["a"], [[1.0]], [[1], [2, 3]], ODD, [1j])
    },
    **{
        f"{function.__name__} ranks {value!r}": (partial(call, value), InputError, "ranks")
        for function, call in (
            (cn.benjamini_hochberg, lambda ranks: cn.benjamini_hochberg(ranks, 9, 0.1)),
            (cn.fast_lsu, lambda ranks: cn.fast_lsu([(ranks, 9), ([1], 9)], 0.1)),
            (cn.adjusted_pvalues, lambda ranks: cn.adjusted_pvalues(ranks, 9)),
        )
        for value in (None, "x", 3, [1.5], [0], [11], ["a"], [[1]], [[1], [2, 3]], ODD)
    },
    **{
        f"{function.__name__} sizes {value!r}": (partial(call, value), InputError, "n_calibration")
        for function, call in (
            (cn.benjamini_hochberg, lambda sizes: cn.benjamini_hochberg([1, 2], sizes, 0.1)),
            (cn.fast_lsu, lambda sizes: cn.fast_lsu([([1, 2], sizes)], 0.1)),
            (cn.adjusted_pvalues, lambda sizes: cn.adjusted_pvalues([1, 2], sizes)),
            (cn.resolution, lambda sizes: cn.resolution(sizes, 9, 0.1)),
        )
        for value in (None, "x", 1.5, -1, [1], ["a", "b"], [[1], [2, 3]], float("nan"), ODD)
    },
    **{
        f"blocks {value!r}": (partial(cn.fast_lsu, value, 0.1), InputError, "list of pairs")
        for value in (None, 3, "x", [None], [3], [[1]], PAIR, ODD)
    },
    "no blocks": (lambda: cn.fast_lsu([], 0.1), SampleError, "nothing to test"),
    "resolution m": (lambda: cn.resolution(9, "x", 0.1), InputError, "m must be"),
    "resolution level": (lambda: cn.resolution(9, 9, "x"), LevelError, "level must"),
    "Storey": (lambda: cn.Storey("x"), LevelError, "Storey(at=...)"),
    "Quantile": (lambda: cn.Quantile(1), LevelError, "Quantile(at=...)"),
    # Models as bytes
    **{
        f"encode {value!r}": (partial(cn.encode, value), InputError, "no flat form")
        for value in (None, 3, "x", ODD)
    },
    "encode what is not fitted": (lambda: cn.encode(LINEAR), InputError, "is not fitted"),
    **{
        f"encode bits {value!r}": (partial(cn.encode, FITTED, bits=value), InputError, "bits must")
        for value in ("x", 1.5, 0, 17, True, PAIR, ODD)
    },
    **{
        f"schema {value!r} of {name}": (partial(call, value), InputError, "a schema digest")
        for name, call in (
            ("encode", lambda schema: cn.encode(FITTED, schema=schema)),
            ("decode", lambda schema: cn.decode(cn.encode(FITTED), schema=schema)),
        )
        for value in ("x", 3, b"x", PAIR, ODD)
    },
    **{
        f"decode {value!r}": (partial(cn.decode, value), InputError, "a model is bytes")
        for value in (None, 3, "x", [1], ODD)
    },
    "decode other bytes": (
        lambda: cn.decode(b"x"),
        WireError,
        "do not begin like a model",
    ),
}


@pytest.mark.parametrize(("call", "error", "words"), CALLS.values(), ids=CALLS)
def test_calls(call, error, words):
    with pytest.raises(error) as raised:
        call()
    assert isinstance(raised.value, cn.ConovelError)
    assert words in str(raised.value)


def test_values_of_another_type_are_a_type_error_too():
    with pytest.raises(TypeError, match="column 1, first in row 1: could not convert"):
        cn.AdaDetect().fit(np.array([[1, 2], [3, "x"]], dtype=object))


def test_predict_before_fit_is_scikit_learns_error_too():
    with pytest.raises(NotFittedError):
        cn.AdaDetect().predict(TEST)
