"""Detection on files that are read in pieces: the same bytes as in memory, whatever happens."""

import json
import os
import signal
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import ExtraTreesClassifier
from support.files import (
    N_NULL,
    N_TEST,
    cut,
    draw,
    in_memory,
    in_pieces,
    left_in,
    make_files,
    trees,
)
from support.scorers import fit_scorer
from typer.testing import CliRunner

import conovel as cn
from conovel.cli import app
from conovel.errors import ColumnError, FileError, InputError, ScorerError
from conovel.report import of_detection, of_files
from conovel.scorers.base import Mixture
from conovel.scorers.refined import shrunken_logistic
from conovel.site.files import LocalEngine
from conovel.site.files.gather import Cells, Early, Gathering, RowCounter, gather, survey
from conovel.site.files.memory import MemoryPlan, as_memory
from conovel.site.files.source import FileSource, Piece
from conovel.site.files.stream import Stream
from conovel.site.sampling import training_sample
from conovel.site.site import SiteWork
from conovel.stats.rank_counts import RankHistogram
from conovel.stats.stepup import adjusted_pvalues

THREADED = ExtraTreesClassifier(40, max_depth=6, n_jobs=2)  # whose trees add up in any order


@pytest.fixture
def files(tmp_path):
    return make_files(tmp_path)


# Equality


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize(("piece", "threads"), [(37, 1), (64, 3), (10_000, 2)])
def test_any_piece_and_any_number_of_threads_gives_the_bytes_of_memory(
    tmp_path, monkeypatch, ending, piece, threads
):
    files = make_files(tmp_path, ending)
    cut(monkeypatch, piece)
    expected, out = tmp_path / f"memory.{ending}", tmp_path / f"pieces.{ending}"
    result = in_memory(trees(pi0="storey"), expected)
    streamed = in_pieces(trees(pi0="storey"), files, out, engine=LocalEngine(threads))
    assert out.read_bytes() == expected.read_bytes()
    assert streamed.summary() == result.summary()
    assert of_files(streamed) == of_detection(result)
    assert 0 < result.n_rejected < N_TEST
    assert result.n_train == 300


@pytest.mark.parametrize(
    "scorer",
    [
        shrunken_logistic(),
        "mlp",
        "isolation-forest",
        "boosting",
        "compiled-forest",
        THREADED,
        None,
    ],
    ids=["linear", "mlp", "one-class", "boosting", "compiled", "threads", "automatic"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_kind_of_scorer_scores_alike_in_pieces(files, monkeypatch, scorer):
    cut(monkeypatch, 128)
    detector = cn.AdaDetect(scorer, max_train_rows=300)
    in_memory(detector, files / "memory.parquet")
    in_pieces(detector, files, files / "pieces.parquet")
    assert (files / "pieces.parquet").read_bytes() == (files / "memory.parquet").read_bytes()


def test_row_groups_do_not_follow_the_pieces(tmp_path, monkeypatch):
    from conovel.site.files import decisions

    monkeypatch.setattr(decisions, "_GROUP", 100)
    table = pa.table({"score": np.arange(450.0)})
    for size in (1, 30, 99, 100, 170, 1000):
        slices = (table.slice(i, size) for i in range(0, 450, size))
        decisions.write_rows(tmp_path / f"{size}.parquet", slices, _folder(tmp_path / "work"))
    pa_parquet.write_table(table, tmp_path / "whole.parquet", row_group_size=100)
    written = {path.read_bytes() for path in tmp_path.glob("*.parquet")}
    assert len(written) == 1


def _folder(path):
    path.mkdir(exist_ok=True)
    return path


class Centred(ClassifierMixin, BaseEstimator):
    """A classifier whose probabilities depend on the rows around a row."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        p = 1 / (1 + np.exp(-(X - X.mean(axis=0)).sum(axis=1)))
        return np.column_stack([1 - p, p])


def test_a_scorer_that_looks_at_neighbours_is_refused(files):
    with pytest.raises(ScorerError, match="Centred scores a row in another way"):
        in_pieces(cn.AdaDetect(Centred()), files, files / "out.parquet")
    assert left_in(files) == ["null", "test"]


# What is learnt from


def mapped(rows, size):
    pieces = [Piece(i, rows[i : i + size].T) for i in range(0, len(rows), size)]
    return lambda work: map(work, pieces)


coarse = arrays(
    np.float64,
    st.tuples(st.integers(2, 60), st.just(2)),
    elements=st.sampled_from([0.0, 1.0, 2.5]),
)


@given(
    coarse,
    coarse,
    st.integers(1, 80),
    st.integers(1, 70),
    st.integers(4, 20),
    st.integers(1, 50),
    st.sampled_from([9, 1000]),
)
def test_gathering_in_pieces_is_sampling_in_memory(null, test, most, size, cell_bits, few, room):
    is_train = np.arange(len(null)) % 2 == 0
    mixture = Mixture.of(np.concatenate([null[~is_train], test]))
    expected = training_sample(mixture, most)
    rate = most / mixture.position.size
    cells = Cells(cell_bits)
    constant = lambda hashes: np.full(hashes.size, few)  # noqa: E731
    early = Early(is_train, rate, constant, copies=few, room=room)
    for sample, known in ((null, True), (test, False)):
        seen = survey(mapped(sample, size), cells, lambda n: None, early, known=known)
        assert seen.n == len(sample)
    if expected.position.size == 0:
        return
    late = Gathering(is_train, rate, cells.bound)
    found = [gather(mapped(null, size), mapped(test, size), late, lambda n: None)]
    found.append(early.settled(cells))
    if few == 50 and room == 1000 and cells.most <= 50:
        assert found[-1] is not None
    for training in filter(None, found):
        assert np.array_equal(training.null_train, null[is_train])
        assert np.array_equal(training.mixture.rows, expected.rows)


@pytest.mark.parametrize(("few", "again"), [(160, False), (159, True)])
def test_a_second_pass_is_made_only_where_rows_may_occur_too_often(
    files, tmp_path, monkeypatch, few, again
):
    """One row occurs 160 times; the bytes are the same either way."""
    monkeypatch.setattr(Stream, "_few_copies", lambda self, most: few)
    expected, out, begun = tmp_path / "memory.csv", tmp_path / "pieces.csv", set()
    in_memory(trees(), expected)
    in_pieces(trees(), files, out, on_progress=lambda stage, *_: begun.add(stage))
    assert ("choosing what to learn from" in begun) == again
    assert out.read_bytes() == expected.read_bytes()


@given(coarse, st.integers(1, 80), st.randoms(use_true_random=False))
def test_a_sample_knows_the_multiset_only(rows, most, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    sample = training_sample(Mixture.of(rows), most)
    again = training_sample(Mixture.of(rows[order]), most)
    assert np.array_equal(sample.rows, again.rows)
    # Each distinct row is represented by its share, rounded up or down.
    mixture = Mixture.of(rows)
    taken = [np.count_nonzero((sample.rows == row).all(axis=1)) for row in mixture.distinct]
    fair = np.bincount(mixture.position) * min(1, most / len(rows))
    assert np.all(np.abs(taken - fair) < 1)


def test_a_sample_of_distinct_rows_has_about_the_size_asked_for():
    rows = np.random.default_rng(0).normal(size=(50_000, 4))
    sizes = [training_sample(Mixture.of(rows), most).position.size for most in (500, 5000)]
    assert abs(sizes[0] - 500) < 5 * 500**0.5
    assert abs(sizes[1] - 5000) < 5 * 5000**0.5


def test_whoever_calibrates_the_scores_are_the_same():
    """Equivariance: swap calibration and test rows, and every row keeps its score."""
    null, test = draw()
    train, calibration = null[:400], null[400:]
    scorer = ExtraTreesClassifier(8, max_depth=4, random_state=0)

    def score(first, second):
        mixture = Mixture.of(np.concatenate([first, second]))
        sample = training_sample(mixture, 200)
        assert sample.position.size < mixture.position.size
        return np.split(mixture.score(fit_scorer(scorer, train, sample)), [len(first)])

    rng = np.random.default_rng(1)
    swapped = rng.permutation(np.arange(500))[:50]
    other_calibration, other_test = calibration.copy(), test.copy()
    other_calibration[swapped], other_test[swapped] = test[swapped], calibration[swapped]
    of_calibration, of_test = score(calibration, test)
    of_other_calibration, of_other_test = score(other_calibration, other_test)
    assert np.array_equal(of_other_test[swapped], of_calibration[swapped])
    assert np.array_equal(of_other_calibration[swapped], of_test[swapped])
    kept = np.setdiff1d(np.arange(500), swapped)
    assert np.array_equal(of_other_test[kept], of_test[kept])


def test_below_the_cap_nothing_changes():
    null, test = draw()
    with_cap, without = (
        cn.AdaDetect(ExtraTreesClassifier(8), max_train_rows=n).detect(null, test)
        for n in (N_NULL + N_TEST, 10**9)
    )
    assert np.array_equal(with_cap.scores, without.scores)
    assert with_cap.n_train == without.n_train


def test_spared_training_rows_calibrate():
    null, test = draw()
    result = trees().detect(null, test)
    assert result.n_train == 300
    assert result.n_calibration == N_NULL - 300


def test_a_row_that_fills_the_files_takes_no_memory():
    tally = RowCounter()
    for _ in range(50):
        tally.add(np.ones((10_000, 2)))
    assert sum(map(len, tally.rows)) <= 1 << 17
    distinct, copies = tally.joined()
    assert distinct.tolist() == [[1.0, 1.0]]
    assert copies.tolist() == [500_000]


# An agent with many rows


@pytest.mark.parametrize("composite", ["mean", "stacked", "auto"])
def test_an_agent_with_more_rows_than_are_learnt_from_takes_part(monkeypatch, composite):
    """Counts, roster and messages are those of any run; only what is learnt from is a sample."""
    null, test = draw()
    agents = [cn.Agent("big", null, test), cn.Agent("small", null[:200], test[:150])]
    scorer = ExtraTreesClassifier(8, max_depth=4)
    monkeypatch.setattr("conovel.drivers.network.SiteWork", partial(SiteWork, max_train_rows=250))
    run = cn.Network(agents, scorer=scorer, composite=composite, bits=None).run()
    assert run["big"].n_calibration == N_NULL - 250
    assert run["small"].n_calibration < 200
    ranks = [(run[name].ranks, run[name].n_calibration) for name in ("big", "small")]
    outcome = cn.fast_lsu(ranks, 0.1)
    assert outcome.n_rejected == run.n_rejected > 0
    assert outcome.counts[-1] == tuple(run[name].n_rejected for name in ("big", "small"))


# Counts


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40))
def test_a_histogram_gives_what_the_ranks_give(ranks):
    ranks = np.array(ranks)
    histogram = RankHistogram.of_counts(np.bincount(ranks, minlength=13), 11)
    assert [histogram.at_most(r) for r in range(14)] == [(ranks <= r).sum() for r in range(14)]
    assert histogram.smallest(np.arange(1, ranks.size + 1)).tolist() == sorted(ranks)
    values, adjusted = histogram.adjusted()
    assert np.array_equal(adjusted[np.searchsorted(values, ranks)], adjusted_pvalues(ranks, 11))


# Being broken off


def run_in_child(files, out, die_at, hook):
    """Run in a forked process that kills itself at the given call of the hook."""
    child = os.fork()
    if child == 0:
        try:
            hook(die_at)
            in_pieces(trees(), files, out)
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return status


def die_at_replace(nth, after=False):
    """Kill this process right before, or after, a file gets its name."""
    replace, calls = os.replace, [0]

    def dying(*names):
        calls[0] += 1
        if calls[0] == nth and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*names)
        if calls[0] == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = dying


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_anywhere_and_started_again_gives_the_same_bytes(files, monkeypatch):
    cut(monkeypatch, 250)
    in_memory(trees(), files / "memory.parquet")
    expected = (files / "memory.parquet").read_bytes()
    out, n_kills = files / "out.parquet", 0
    while True:  # manifest, sample, model, 4 + 3 parts, output
        out.unlink(missing_ok=True)
        status = run_in_child(files, out, n_kills + 1, die_at_replace)
        if os.waitstatus_to_exitcode(status) == 0:
            break
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        assert not out.exists()
        n_kills += 1
        in_pieces(trees(), files, out)
        assert out.read_bytes() == expected
        assert left_in(files) == ["memory.parquet", "null", "out.parquet", "test"]
    assert n_kills == 11


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_again_and_again_it_still_gets_there(files, monkeypatch):
    """Every start gets one file further than the one before: nothing is done twice."""
    cut(monkeypatch, 250)
    in_memory(trees(), files / "memory.parquet")
    out = files / "out.parquet"
    for _ in range(11):
        assert not out.exists()
        run_in_child(files, out, 1, lambda nth: die_at_replace(nth, after=True))
    assert out.read_bytes() == (files / "memory.parquet").read_bytes()


class Spy(LocalEngine):
    """Counts the rows that are scored."""

    def __init__(self):
        super().__init__(1)
        self.n = 0

    def scores(self, model, pieces):
        for tag, scores in super().scores(model, pieces):
            self.n += len(scores)
            yield tag, scores


class Enough(Exception):
    pass


def stop_when(stage, done):
    def tell(at, n, total):
        if at == stage and n >= done:
            raise Enough

    return tell


def test_going_on_scores_only_what_is_missing(files, monkeypatch):
    cut(monkeypatch, 100)
    out, spy = files / "out.parquet", Spy()
    with pytest.raises(Enough):
        in_pieces(trees(), files, out, on_progress=stop_when("scoring", 400))
    in_pieces(trees(), files, out, engine=spy)
    assert spy.n == 200


def test_other_inputs_or_settings_begin_anew(files, monkeypatch):
    cut(monkeypatch, 100)
    out = files / "out.parquet"
    for change in ("settings", "inputs"):
        with pytest.raises(Enough):
            in_pieces(trees(), files, out, on_progress=stop_when("scoring", 400))
        spy, seed = Spy(), 1 if change == "settings" else 0
        if change == "inputs":
            os.utime(files / "test" / "0.parquet", (1, 1))
        in_pieces(trees(random_state=seed), files, out, engine=spy)
        assert spy.n == N_NULL - 300 + N_TEST


def test_parts_of_another_model_are_scored_again(files, monkeypatch):
    cut(monkeypatch, 100)
    out, spy = files / "out.parquet", Spy()
    with pytest.raises(Enough):
        in_pieces(trees(), files, out, on_progress=stop_when("scoring", 400))
    note = files / ".out.parquet.work" / "model.json"
    note.write_text(json.dumps({"model": "another"}))
    in_pieces(trees(), files, out, engine=spy)
    assert spy.n == N_NULL - 300 + N_TEST


# Files that cannot be read


def test_a_truncated_parquet_file_is_named_and_nothing_is_left(files):
    broken = files / "test" / "1.parquet"
    broken.write_bytes(broken.read_bytes()[:-40])
    with pytest.raises(FileError, match=r"test/1\.parquet cannot be read"):
        in_pieces(trees(), files, files / "out.parquet")
    assert left_in(files) == ["null", "test"]


def test_damage_inside_a_parquet_file_is_named(files):
    broken = files / "test" / "2.parquet"
    content = bytearray(broken.read_bytes())
    content[4:400] = bytes(396)
    broken.write_bytes(content)
    with pytest.raises(FileError, match=r"test/2\.parquet cannot be read"):
        in_pieces(trees(), files, files / "out.parquet")
    assert left_in(files) == ["null", "test"]


def test_a_truncated_csv_file_is_named(tmp_path):
    files = make_files(tmp_path, "csv")
    broken = files / "null" / "1.csv"
    broken.write_bytes(broken.read_bytes()[:-40])
    with pytest.raises(FileError, match=r"null/1\.csv cannot be read"):
        in_pieces(trees(), files, files / "out.csv")
    assert left_in(files) == ["null", "test"]


def test_a_missing_value_is_named_with_file_and_column(files):
    table = pa_parquet.read_table(files / "test" / "2.parquet")
    values = table["x1"].to_numpy().copy()
    values[17] = np.nan
    changed = table.set_column(table.column_names.index("x1"), "x1", pa.array(values))
    pa_parquet.write_table(changed, files / "test" / "2.parquet")
    with pytest.raises(ColumnError, match=r"test/2\.parquet.*missing values: column 'x1' has 1"):
        in_pieces(trees(), files, files / "out.parquet")


def test_a_disappearing_file_is_named(files, monkeypatch):
    cut(monkeypatch, 100)

    def vanish(stage, done, total):
        if stage == "scoring":
            (files / "test" / "2.parquet").unlink(missing_ok=True)

    with pytest.raises(FileError, match=r"2\.parquet cannot be read"):
        in_pieces(trees(), files, files / "out.parquet", on_progress=vanish)
    assert left_in(files) == ["null", "test"]


# Memory and sources


@pytest.mark.parametrize(("text", "n"), [("1GB", 10**9), ("750 mb", 75 * 10**7), (2**30, 2**30)])
def test_amounts_of_memory(text, n):
    assert as_memory(text) == n


@pytest.mark.parametrize("text", ["", "GB", "1 parsec", "-1GB", "5MB", "1e9"])
def test_what_is_no_amount_of_memory(text):
    with pytest.raises(InputError, match="memory"):
        as_memory(text)


def test_a_budget_too_small_to_fit_in_is_refused_before_the_fit(files, monkeypatch):
    monkeypatch.setattr("conovel.site.files.memory._LIBRARIES", 10**9)
    with pytest.raises(InputError, match=r"600 rows of 3 columns takes about 1000MB"):
        in_pieces(trees(), files, files / "out.parquet", memory="1GB")
    assert left_in(files) == ["null", "test"]


@given(st.integers(10**8, 10**12), st.integers(1, 5000))
def test_a_plan_stays_within_the_budget(memory, n_features):
    plan = MemoryPlan.of(memory, n_features)
    in_flight = 8 * 6 * plan.piece * 8 * n_features
    assert plan.piece == 1024 or in_flight <= memory / 4
    assert 4 << plan.cell_bits <= memory


@settings(max_examples=20)
@given(st.integers(1, 700))
def test_pieces_have_one_size_whatever_the_files(tmp_path_factory, size):
    folder = tmp_path_factory.getbasetemp() / "pieces"
    if not folder.exists():
        folder.mkdir()
        make_files(folder)
    source = FileSource(folder / "test", None, "name")
    pieces = list(source.pieces(size))
    assert {len(piece) for piece in pieces[:-1]} <= {size}
    assert np.array_equal(np.concatenate([piece.rows() for piece in pieces]), draw()[1])
    assert [piece.start for piece in pieces] == list(range(0, N_TEST, size))
    assert pa.concat_arrays(
        [chunk for piece in pieces for chunk in piece.ids.chunks]
    ).to_pylist() == [f"row {i}" for i in range(N_TEST)]


# The command


def command(files, out, *more):
    options = ["--null", files / "null", "--test", files / "test", "--id", "name"]
    chosen = ["--scorer", "random-forest", "--out", out, "--json", *more]
    return CliRunner().invoke(app, ["detect", *map(str, [*options, *chosen])])


def test_the_command_gives_the_same_files_with_a_budget(files):
    for name, more in (("a", []), ("b", ["--memory", "800MB"])):
        done = command(files, files / f"{name}.parquet", *more)
        assert done.exit_code == 0, done.output
    assert (files / "a.parquet").read_bytes() == (files / "b.parquet").read_bytes()
    results = [json.loads((files / f"{name}.json").read_text()) for name in "ab"]
    assert [result.pop("table") for result in results] == ["a.parquet", "b.parquet"]
    assert results[0] == results[1]


def test_large_files_are_read_in_pieces_without_being_asked(files, monkeypatch):
    from conovel.cli import detect

    monkeypatch.setattr("conovel.site.files.memory._LARGE", 100)
    monkeypatch.setattr(detect, "_in_memory", None)
    assert command(files, files / "out.parquet").exit_code == 0
    assert (files / "out.parquet").exists()


@pytest.mark.parametrize(
    "more", [["--engine", "dask"], ["--engine", "spark"], ["--scheduler", "tcp://here:1"]]
)
def test_engine_and_scheduler_belong_together(files, more):
    done = command(files, files / "out.parquet", *more)
    assert isinstance(done.exception, InputError)
    assert "--scheduler" in str(done.exception)


def test_a_budget_needs_an_output(files):
    inputs = ["--null", str(files / "null"), "--test", str(files / "test")]
    done = CliRunner().invoke(app, ["detect", *inputs, "--memory", "1GB"])
    assert isinstance(done.exception, InputError)
    assert "--out" in str(done.exception)
