"""Pipelines that read frames: names, types and values as the user has them, and blind to roles."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from support.roles import assert_roles_do_not_matter, in_detector, in_network, numbered, of_tables
from support.roles import in_files as roles_in_files

import conovel as cn
from conovel.errors import InputError
from conovel.rows.pieces import FileSource
from conovel.rows.storage import pick_features, read_pair_of_files, write_table
from conovel.rows.tables import numbered as with_numbers
from conovel.runs.file_detection import detect_files
from conovel.scorers.argument import reads_frames
from conovel.scorers.estimators import FrameEstimator
from conovel.site.engines import MemoryPlan
from conovel.site.open_files import codec_from_files

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.DataWarning")

N = 120
RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "x": np.where(RNG.random(N) < 0.2, np.nan, RNG.normal(size=N).round(2)),
        "n": RNG.poisson(3, N),
        "on": RNG.random(N) < 0.5,
        "size": pd.Categorical(RNG.choice(["L", "M", "H"], N), ["L", "M", "H"], ordered=True),
        "mark": RNG.choice(["a", "b", "?"], N),
        "note": [" ".join(RNG.choice(["red", "green", "blue"], 3)) + f" {i}" for i in range(N)],
        "when": pd.Timestamp("2026-01-01") + pd.to_timedelta(RNG.integers(0, 10**6, N), "s"),
    }
)
NULL, TEST = ROWS[:90].reset_index(drop=True), ROWS[90:].reset_index(drop=True)


class Seen(TransformerMixin, BaseEstimator):
    """Notes the frames that it is given."""

    frames = ()

    def fit(self, X, y=None):
        Seen.frames = (*Seen.frames, X)
        return self

    def transform(self, X):
        return X


def columns(seen=False):
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    transformer = make_column_transformer(
        (numbers, ["x", "n"]),
        (OneHotEncoder(handle_unknown="ignore"), ["size", "mark"]),
        (CountVectorizer(), "note"),
    )
    steps = [Seen(), transformer] if seen else [transformer]
    return make_pipeline(*steps, LogisticRegression())


def test_a_pipeline_gets_the_frame_with_names_types_and_values():
    Seen.frames = ()
    cn.AdaDetect(columns(seen=True)).detect(NULL, TEST)
    frame = Seen.frames[0]
    assert frame.dtypes.to_dict() == ROWS.dtypes.to_dict()
    key = ["note"]  # each row has its own
    expected = ROWS.sort_values(key).reset_index(drop=True)
    pd.testing.assert_frame_equal(frame.sort_values(key).reset_index(drop=True), expected)


@pytest.mark.parametrize("make", [pl.from_pandas, pa.Table.from_pandas])
def test_other_libraries_give_the_same_scores(make):
    expected = cn.AdaDetect(columns()).detect(NULL, TEST)
    found = cn.AdaDetect(columns()).detect(make(NULL), make(TEST))
    assert np.allclose(found.scores, expected.scores)


def test_roles_do_not_matter():
    run = of_tables(in_detector(level="1/5"), ROWS)
    assert_roles_do_not_matter(run, numbered((90, 30)), columns())


def test_roles_do_not_matter_where_samples_have_other_types():
    def texts_in_one(frame):
        return frame.assign(mark=frame["mark"].astype("category"), n=frame["n"].astype("float32"))

    run = of_tables(in_detector(level="1/5"), ROWS.assign(mark=ROWS["mark"]), texts_in_one)
    assert_roles_do_not_matter(run, numbered((90, 30)), columns())


@pytest.mark.parametrize("bits", ["compact"])
def test_agents_with_pipelines_send_models_of_the_features(bits):
    table = ROWS[["x", "n", "size", "mark"]]
    schema = cn.infer_schema(table)
    transformer = ColumnTransformer(
        [
            ("numbers", SimpleImputer(), make_column_selector(dtype_include="number")),
            ("texts", OneHotEncoder(handle_unknown="ignore"), ["size", "mark"]),
        ]
    )
    pipeline = make_pipeline(transformer, LogisticRegression())
    run = of_tables(in_network(regime="full", bits=bits, level="1/5", schema=schema), table)
    assert_roles_do_not_matter(run, numbered((40, 20), (40, 20)), pipeline)


def test_plain_numbers_by_name_are_those_by_place():
    plain = ROWS[["n"]].assign(y=RNG.normal(size=N))
    by_name = make_pipeline(
        make_column_transformer((StandardScaler(), ["y", "n"])), LogisticRegression()
    )
    by_place = make_pipeline(
        make_column_transformer((StandardScaler(), [1, 0])), LogisticRegression()
    )
    found = cn.AdaDetect(by_name).detect(plain[:90], plain[90:])
    array = plain.to_numpy(float)
    placed = cn.AdaDetect(by_place).detect(array[:90], array[90:])
    # Other layouts in memory are added up in another order: the last bit may differ.
    np.testing.assert_allclose(found.scores, placed.scores, rtol=1e-13)
    assert np.array_equal(found.ranks, placed.ranks)


def test_one_class_models_candidates_and_fit_predict():
    numbers = make_column_transformer((SimpleImputer(), ["x", "n"]))
    one_class = cn.OneClass(
        make_pipeline(numbers, IsolationForest(n_estimators=20)), higher="normal"
    )
    assert (
        cn.AdaDetect(one_class).detect(NULL, TEST).scorer == "ColumnTransformer + IsolationForest"
    )
    several = cn.AdaDetect([one_class, "logistic", columns()]).detect(NULL, TEST)
    assert len(several.selection.names) == 3
    detector = cn.AdaDetect(columns())
    expected = detector.detect(NULL, TEST).rejected
    assert ((detector.fit(NULL).predict(TEST) == -1) == expected).all()


def test_columns_are_left_out_before_the_pipeline():
    Seen.frames = ()
    cn.AdaDetect(columns(seen=True), schema={"when": "ignore"}).detect(NULL, TEST)
    assert "when" not in Seen.frames[0]


@pytest.mark.parametrize(
    ("scorer", "expected"),
    [
        (columns(), True),
        (cn.OneClass(columns(), higher="normal"), True),
        ([LogisticRegression(), columns()], True),
        (make_pipeline(OneHotEncoder(), RandomForestClassifier()), True),
        (make_pipeline(SimpleImputer(), RandomForestClassifier()), False),
        (cn.Automatic(), False),
        ("logistic", False),
        (None, False),
    ],
)
def test_which_scorers_read_frames(scorer, expected):
    assert reads_frames(scorer) is expected


def dense(last):
    """Give a pipeline whose features are a plain matrix: products of BLAS depend on the batch."""
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    texts = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_pipeline(make_column_transformer((numbers, ["x", "n"]), (texts, ["mark"])), last)


def in_files(folder, ending="parquet"):
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}.{ending}" for name in ("null", "test")]
    for path, frame in zip(paths, (NULL, TEST), strict=True):
        if ending == "csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path)
    return paths


ONE_CLASS = make_pipeline(
    make_column_transformer((SimpleImputer(), ["x", "n"])), IsolationForest(n_estimators=5)
)


@pytest.mark.parametrize(
    ("scorer", "ending"),
    [
        (columns(), "parquet"),
        (columns(), "csv"),
        (dense(LogisticRegression()), "parquet"),
        (dense(RandomForestClassifier(5)), "csv"),
        (cn.OneClass(ONE_CLASS, higher="normal"), "parquet"),
    ],
)
def test_pieces_have_the_bytes_of_memory(tmp_path, monkeypatch, scorer, ending):
    paths, out = in_files(tmp_path, ending), tmp_path / "out.parquet"
    known, tests = read_pair_of_files(*paths, None, None)
    found = cn.AdaDetect(scorer, "1/5").detect(known.features, tests.features)
    write_table(out, with_numbers(found.columns(), found.rejected.size))
    expected = out.read_bytes()
    for piece in (7, 50):
        monkeypatch.setattr(MemoryPlan, "of", classmethod(lambda cls, *_, n=piece: cls(n, 16)))
        detect_files(cn.AdaDetect(scorer, "1/5"), *paths, out)
        assert out.read_bytes() == expected


def test_a_pipeline_gets_the_same_frame_from_pieces(tmp_path):
    paths, frames = in_files(tmp_path), []
    known, tests = read_pair_of_files(*paths, None, None)
    for work in (
        lambda: cn.AdaDetect(columns(seen=True)).detect(known.features, tests.features),
        lambda: detect_files(cn.AdaDetect(columns(seen=True)), *paths, tmp_path / "out.parquet"),
    ):
        Seen.frames = ()
        work()
        frames.append(Seen.frames[0])
    pd.testing.assert_frame_equal(*frames)


def as_arrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


@pytest.mark.parametrize("last", [None, LogisticRegression()])
def test_roles_do_not_matter_in_files(tmp_path, last):
    run = of_tables(roles_in_files(tmp_path, level="1/5"), ROWS, as_arrow)
    scorer = columns() if last is None else dense(last)
    assert_roles_do_not_matter(run, numbered((90, 30)), scorer)


def test_more_values_than_fit_into_memory_are_refused_by_name(tmp_path):
    paths = in_files(tmp_path)
    types = pick_features(*paths, None, None)
    sources = [FileSource(path, types=types) for path in paths]
    with pytest.raises(InputError, match=r"column 'note' has more than .*--exclude"):
        codec_from_files(sources, 16, 10_000)


def test_roles_do_not_matter_in_files_where_a_pipeline_scores_by_batch(tmp_path):
    class ByBatch(LogisticRegression):
        def predict_proba(self, X):
            return super().predict_proba(X - X.mean(axis=0))

    run = of_tables(roles_in_files(tmp_path, level="1/5"), ROWS, as_arrow)
    assert_roles_do_not_matter(run, numbered((90, 30)), dense(ByBatch()))


def test_a_row_has_the_same_probability_in_any_batch():
    rows = RNG.normal(size=(300, 40))
    pipeline = make_pipeline(
        make_column_transformer((StandardScaler(), list(range(40)))), LogisticRegression()
    )
    model = FrameEstimator(pipeline, pd.DataFrame).fit(rows, (rows[:, 0] > 0).astype(int))
    together = model.predict_proba(rows)[:, 1]
    apart = np.array([model.predict_proba(rows[i : i + 1])[0, 1] for i in range(300)])
    assert np.array_equal(together, apart)
    assert np.allclose(together, model.model_.predict_proba(pd.DataFrame(rows))[:, 1])
