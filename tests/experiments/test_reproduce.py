"""The paper's experiments: shared fits change no decision, runs go on, jobs change nothing."""

import json
from dataclasses import replace

import joblib
import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier

import conovel as cn
from conovel.errors import FileError, InputError
from conovel.experiments import reproduce as runner
from conovel.experiments.figures import figures
from conovel.experiments.gaussian import Gaussian, gaussian_design
from conovel.experiments.limit import QUANTIZATION, SHIFT
from conovel.experiments.plans import (
    EXPERIMENTS,
    PAPER,
    Options,
    conservative_shift,
    merged,
    rows_of,
    shift,
)
from conovel.experiments.realdata import Real, real_sources
from conovel.experiments.reproduce import reproduce, run_tasks
from conovel.experiments.tables import ResultTable, estimate, where
from conovel.experiments.tasks import Cell, Learner, Task, Trial, counting_bits
from conovel.experiments.views import false_discoveries, views
from conovel.scorers.compiled_forest import CompiledForest

SMALL = Learner("forest", trees=5, depth=3)
CELLS = [
    Cell("isolated"),
    Cell("counts"),
    Cell("pooled"),
    Cell("split", "max", None),
    Cell("split", "stacked", 2),
    Cell("full", "mean", "compact"),
    Cell("full", "min", 1),
    Cell("full", "stacked", None),
    Cell("conservative", "max", 4),
]


@pytest.fixture(
    scope="module",
    params=[CompiledForest(20, 4), RandomForestClassifier(20, max_depth=4)],
    ids=["compiled", "scikit-learn"],
)
def drawn(request):
    """Three agents with many novelties, so that every regime rejects something."""
    agents = gaussian_design(1.0, 3, n_null=900, n_test=300, null_share=0.6)
    forest = request.param
    return agents, forest, Trial(agents, forest, level=0.3, seed=11)


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: f"{c.regime} {c.composite} {c.precision}")
def test_a_cell_is_what_a_network_decides(drawn, cell):
    agents, forest, trial = drawn
    network = cn.Network(
        [cn.Agent(name, a.X_null, a.X_test) for name, a in zip("abc", agents, strict=True)],
        regime=cell.regime,
        composite=cell.composite or "mean",
        bits=cell.bits,
        level=0.3,
        scorer=forest,
        random_state=11,
        train_fraction=0.5,
    )
    run, decision = network.run(), trial.decide(cell)
    for name, ranks, rejected in zip("abc", decision.ranks, decision.rejected, strict=True):
        np.testing.assert_array_equal(run[name].ranks, ranks)
        np.testing.assert_array_equal(run[name].rejected, rejected)
    assert run.n_rejected > 0
    assert len(decision.totals) == run.rounds
    if decision.totals:
        assert decision.totals[-1] == run.n_rejected


def test_sizes_are_those_of_the_models_on_the_wire(drawn):
    agents, forest, trial = drawn
    for bits in (None, 2, "compact"):
        run = cn.Network(
            [cn.Agent(name, a.X_null, a.X_test) for name, a in zip("abc", agents, strict=True)],
            regime="full",
            bits=bits,
            scorer=forest,
            random_state=11,
            train_fraction=0.5,
            composite="mean",
        ).run()
        told = run.transcript.totals()["by_kind"]["MODEL"]
        traffic = trial.decide(Cell("full", "mean", bits)).traffic
        # What is around a model in its message has a size of its own: 42 bytes each.
        assert told["bytes"] - traffic.n_bytes == 42 * told["messages"]
        if bits != 2:  # quantized trees shrink, and the paper counts them unpruned
            assert traffic.paper_bits == pytest.approx(told["paper_bits"])


def test_models_are_fitted_once_for_all_cells(monkeypatch):
    fits = []
    grow = CompiledForest.grow
    monkeypatch.setattr(
        CompiledForest, "grow", lambda self, X, y: fits.append(len(X)) or grow(self, X, y)
    )
    task = Task(
        Gaussian(1.0, n_null=900, n_test=120),
        SMALL,
        tuple(cell for cell in CELLS if cell.composite != "stacked"),
        "1/10",
        0,
        0,
    )
    task.run()
    whole, block, pooled = 3, 9, 1
    # A compact model imitates one that is fitted again, here in `full` only.
    imitated = 3
    assert len(fits) == whole + block + pooled + imitated


def test_blocks_too_small_to_reject_are_not_fitted():
    trial = Trial(gaussian_design(0.0, 0, n_agents=30), SMALL.scorer())
    assert not trial.resolves(Cell("split", "max"))
    assert trial.resolves(Cell("full", "max"))
    row, *_ = Task(Gaussian(0.0, 30), SMALL, (Cell("split", "max"),), "1/10", 0, 0).run()
    assert (row["tested"], row["rejected"], row["paper_bits"]) == (0, 0, None)


def test_the_same_seed_gives_the_same_table_whatever_the_jobs(tmp_path):
    options = Options(trials=1, learners=(SMALL,), composites=("max",))
    one = reproduce("conservative-shift", options, tmp_path / "one", n_jobs=1)
    with joblib.parallel_config(backend="threading", n_jobs=3):
        three = reproduce("conservative-shift", options, tmp_path / "three")
    assert one[0].rows == three[0].rows
    for ending in ("md", "tex", "json", "parquet"):
        first, second = (
            tmp_path / folder / f"conservative-shift.{ending}" for folder in ("one", "three")
        )
        assert first.read_bytes() == second.read_bytes()


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    tasks = shift(Options(trials=1, learners=(SMALL,), composites=("max",)))[:3]
    done = []
    run_tasks(tasks[:2], tmp_path, on_done=done.append)
    assert done == [0, 1, 2]
    ran = []
    original = runner._run
    monkeypatch.setattr(runner, "_run", lambda i, task: ran.append(i) or original(i, task))
    rows = run_tasks(tasks, tmp_path)
    assert ran == [2]
    assert rows == run_tasks(tasks, tmp_path / "afresh")
    half_written = next((tmp_path / "parts").rglob("*.json"))
    half_written.write_text('{"rows": [')
    assert run_tasks(tasks, tmp_path) == rows


def test_results_of_other_settings_are_not_taken_for_these():
    task = Task(Gaussian(1.0), SMALL, (Cell("counts"),), "1/10", 0, 0)
    others = [
        Task(Gaussian(2.0), SMALL, (Cell("counts"),), "1/10", 0, 0),
        Task(Gaussian(1.0), Learner("forest", 6, 3), (Cell("counts"),), "1/10", 0, 0),
        Task(Gaussian(1.0), replace(SMALL, engine="other"), (Cell("counts"),), "1/10", 0, 0),
        Task(Gaussian(1.0), SMALL, (Cell("isolated"),), "1/10", 0, 0),
        Task(Gaussian(1.0), SMALL, (Cell("counts"),), "1/5", 0, 0),
        Task(Gaussian(1.0), SMALL, (Cell("counts"),), "1/10", 1, 0),
        Task(Real("a", "here", "1"), SMALL, (Cell("counts"),), "1/10", 0, 0),
        Task(Real("a", "here", "2"), SMALL, (Cell("counts"),), "1/10", 0, 0),
    ]
    assert len({task.digest, *(other.digest for other in others)}) == 1 + len(others)
    assert Task(Gaussian(1.0), SMALL, (Cell("counts"),), "1/10", 0, 7).digest == task.digest
    moved = Task(Real("a", "there", "1"), SMALL, (Cell("counts"),), "1/10", 0, 0)
    assert moved.digest == others[6].digest


def test_merged_tasks_give_each_experiment_its_rows(tmp_path):
    options = Options(trials=1, learners=(SMALL,), composites=("max",))
    wide, narrow = shift(options), conservative_shift(options)
    tasks = merged([*wide, *narrow])
    assert len(tasks) == len(wide)
    rows = run_tasks(tasks[:1], tmp_path)
    assert {row["regime"] for row in rows_of(rows, narrow)} == {"conservative"}
    assert "conservative" not in {row["regime"] for row in rows_of(rows, wide)}
    assert len(rows_of(rows, narrow)) + len(rows_of(rows, wide)) == len(rows)


def made_up(name, options):
    return [
        {
            **task.source.columns(),
            **task.learner.columns(),
            "trial": task.trial,
            "regime": cell.regime,
            "composite": cell.composite,
            "precision": cell.precision,
            "power": 0.5 + task.trial / 10,
            "fdp": 0.1,
            "model_bytes": 1000,
            "paper_bits": 2000.0,
        }
        for task in EXPERIMENTS[name](options)
        for cell in task.cells
    ]


@pytest.mark.parametrize("learner", [Learner(), Learner("default")], ids=lambda one: one.name)
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_has_tables(name, learner):
    """Made-up rows: every view can be built, and every cell of it is filled."""
    tables = views(name, made_up(name, Options(trials=2, learners=(learner,))), "1/10")
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert table.rows
    ours = [cell for table in tables[:-1] for row in table.rows for cell in row]
    assert any("0.550 ± 0.050" in cell or "0.550" in cell for cell in ours)


@pytest.mark.parametrize("name", ["quantization", "conservative-quantization"])
def test_the_defaults_sweep_all_precisions_of_the_paper(name):
    tasks = EXPERIMENTS[name](Options(trials=1, learners=(Learner("default"),)))
    swept = {cell.precision for task in tasks for cell in task.cells if cell.composite == "max"}
    regime = "split" if name == "quantization" else "conservative"
    assert swept == {*QUANTIZATION[regime], "compact"}
    table = views(name, made_up(name, Options(1, learners=(Learner("default"),))), "1/10")[0]
    assert "scorer default" in table.title
    published = {row[0]: row[3] for row in table.rows}
    for precision in ("float64", "6-bit", "4-bit", "2-bit", "1-bit"):
        assert published[precision]


def test_one_figure_shows_power_against_agents_for_all_scorers(tmp_path):
    learners = (SMALL, Learner("default"))
    rows = made_up("agents", Options(trials=2, learners=learners, shifts=(2.0,)))
    assert figures("agents", rows, tmp_path) == ["agents-power.svg"]
    drawn = (tmp_path / "agents-power.svg").read_text("utf-8")
    for text in ("conovel's defaults, δ = 2", "limit, densities known", "full (ours), auto"):
        assert f"<!-- {text} -->" in drawn


def test_the_command_writes_what_a_report_reads(conovel, tmp_path):
    ran = conovel(
        "reproduce",
        "conservative-shift",
        "--trials",
        1,
        "--trees",
        4,
        "--depth",
        3,
        "--out",
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Conservative model exchange" in ran.stdout
    content = json.loads((tmp_path / "conservative-shift.json").read_text("utf-8"))
    assert content["command"] == "reproduce"
    assert content["experiment"] == "conservative-shift"
    assert content["settings"]["learners"][0]["trees"] == 4
    for table in content["tables"]:
        assert set(table) == {"title", "columns", "rows"}
    for figure in content["figures"]:
        assert (tmp_path / figure).read_text("utf-8").lstrip().startswith("<?xml")
        assert (tmp_path / figure).with_suffix(".png").exists()
    rows = pq.read_table(tmp_path / "conservative-shift.parquet")
    assert rows.num_rows == 6 * 4
    assert {"trial", "shift", "regime", "composite", "power", "fdp"} <= set(rows.column_names)
    assert r"\begin{tabular}" in (tmp_path / "conservative-shift.tex").read_text("utf-8")


def test_without_matplotlib_there_are_tables_and_a_word(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    options = Options(trials=1, learners=(SMALL,), composites=("max",))
    with pytest.warns(cn.errors.DataWarning, match=r"conovel\[plots\]"):
        outcome, *_ = reproduce("conservative-quantization", options, tmp_path)
    assert outcome.tables
    assert not list(tmp_path.glob("*.svg"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shift", "--scorer", "svm"], "choose from forest, default"),
        (["shift", "--depth", "deep"], "a number of levels, or none"),
        (["shift", "--grower", "steam"], "choose compiled or scikit-learn"),
        (["shift", "--engine", "steam"], "dask together with --scheduler"),
        (["sift"], "no experiment is called 'sift'"),
        (["real", "--data", "nowhere"], "has no .npz files"),
    ],
)
def test_bad_options_are_explained(conovel, tmp_path, arguments, message):
    ran = conovel("reproduce", *arguments, "--trials", 1, "--out", tmp_path / "out")
    assert ran.returncode == 2
    assert message in ran.stderr


def test_published_tables_cover_what_is_compared():
    assert set(SHIFT) == {"isolated", "counts", "split", "conservative"}
    assert all(set(cells) == {0.0, 0.5, 1.0, 2.0, 3.0, 4.0} for cells in SHIFT.values())
    # The quantization tables repeat the shift tables at δ = 2, up to their own trials.
    for regime, cells in QUANTIZATION.items():
        unquantized = cells.get("float64") or cells[""]
        assert abs(unquantized.power[0] - SHIFT[regime][2.0].power[0]) < 0.0025
    assert set(PAPER) < set(EXPERIMENTS)


def test_real_rows_are_dealt_once_and_novelties_are_few():
    agents = Real("digits").draw([0, 0])
    seen = np.concatenate([np.concatenate([a.X_null, a.X_test]) for a in agents])
    assert len(agents) == 3
    again = Real("digits").draw([0, 0])
    other = Real("digits").draw([0, 1])
    assert all(np.array_equal(a.X_test, b.X_test) for a, b in zip(agents, again, strict=True))
    assert not np.array_equal(agents[0].X_test, other[0].X_test)
    assert seen.shape[0] == sum(len(a.X_null) + len(a.X_test) for a in agents)
    for agent in agents:
        assert 0.05 < agent.is_novel.mean() < 0.15


def test_sites_are_agents_where_the_rows_name_them(tmp_path):
    rng = np.random.default_rng(0)
    site = np.repeat([1, 2, 3, 4], 500)
    y = (np.arange(2000) % 10 == 0) & (site != 4)  # the last site has no novelty
    X = np.column_stack([site, rng.normal(size=2000), np.zeros(2000)])
    np.savez(tmp_path / "sites.npz", X=X, y=y.astype(int), site=site)
    (source,) = real_sources(tmp_path)
    agents = source.draw([0, 0])
    assert [set(a.X_null[:, 0]) for a in agents] == [{1.0}, {2.0}, {3.0}]
    assert agents[0].X_null.shape[1] == 2  # a constant column tells nothing
    np.savez(tmp_path / "broken.npz", X=X)
    with pytest.raises(InputError, match="needs arrays X and y"):
        real_sources(tmp_path)[0].draw([0, 0])
    (tmp_path / "broken.npz").write_bytes(b"not an archive")
    with pytest.raises(FileError, match="cannot be read"):
        real_sources(tmp_path)[0].draw([0, 0])


def test_estimates_and_tables():
    assert estimate([1.0, 2.0, 3.0]) == pytest.approx((2.0, 1 / 3**0.5))
    assert np.isnan(estimate([None]).mean)
    assert where([{"a": 1}, {"a": 2}], a=2) == [{"a": 2}]
    table = ResultTable("α_1 of 5 %", ("x", "y"), (("1", "2 ± 3"),))
    assert table.to_markdown().splitlines()[2:] == ["| x | y |", "| --- | ---: |", "| 1 | 2 ± 3 |"]
    assert r"\caption{$\alpha$\_1 of 5 \%}" in table.to_latex()
    assert table.to_dict()["rows"] == [["1", "2 ± 3"]]
    # 3 agents of 333 tests: 9 bits to tell, 10 bits to hear.
    assert counting_bits(2, [333, 333, 333]) == 2 * 3 * 19


def test_false_discoveries_lists_the_worst_first():
    about = {"data": "gaussian", "shift": 1.0, "agents": 3, "scorer": "forest", "precision": ""}
    rows = [
        {**about, "regime": regime, "composite": "", "fdp": fdp + noise}
        for regime, fdp in (("counts", 0.05), ("isolated", 0.12))
        for noise in (-0.01, 0.01)
    ]
    table = false_discoveries(rows, "1/10")
    assert [row[2] for row in table.rows] == ["B2, isolated", "B3, counts"]
    assert [row[-1] for row in table.rows] == ["+2.0", "-5.0"]


@pytest.mark.parametrize("bits", [4])
def test_a_cell_of_a_model_that_is_imitated_is_what_a_network_decides(bits):
    agents = gaussian_design(1.0, 4, n_null=240, n_test=90, null_share=0.7)
    scorer = KNeighborsClassifier(15)
    trial = Trial(agents, scorer, level=0.3, train_fraction=None, seed=5)
    named = [cn.Agent(name, a.X_null, a.X_test) for name, a in zip("abc", agents, strict=True)]
    run = cn.Network(
        named,
        regime="full",
        composite="max",
        bits=bits,
        level=0.3,
        scorer=scorer,
        random_state=5,
    ).run()
    decision = trial.decide(Cell("full", "max", bits))
    for name, ranks in zip("abc", decision.ranks, strict=True):
        np.testing.assert_array_equal(run[name].ranks, ranks)
    told = run.transcript.totals()["by_kind"]["MODEL"]
    assert told["bytes"] - decision.traffic.n_bytes == 42 * told["messages"]


@pytest.mark.parametrize("regime", ["isolated", "counts", "pooled", "full", "joint"])
def test_defaults_are_those_of_a_network(regime):
    """Without a scorer or a share to train on, regimes split their rows in their own ways."""
    agents = gaussian_design(1.0, 4, n_null=240, n_test=90, null_share=0.7)
    cell = Cell(regime, "auto" if regime in ("full", "joint") else "", "compact")
    trial = Trial(agents, "logistic", level=0.3, train_fraction=None, seed=5)
    run = cn.Network(
        [cn.Agent(name, a.X_null, a.X_test) for name, a in zip("abc", agents, strict=True)],
        regime=regime,
        level=0.3,
        scorer="logistic",
        random_state=5,
    ).run()
    decision = trial.decide(cell)
    for name, ranks, rejected in zip("abc", decision.ranks, decision.rejected, strict=True):
        np.testing.assert_array_equal(run[name].ranks, ranks)
        np.testing.assert_array_equal(run[name].rejected, rejected)
