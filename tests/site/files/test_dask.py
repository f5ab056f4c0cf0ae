"""A real Dask cluster of processes: the same bytes, and a killed worker loses nothing."""

import os
import signal

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier
from support.files import in_memory, make_files

import conovel as cn
from conovel.errors import ClusterError
from conovel.runs.file_detection import detect_files
from conovel.site.engines import MemoryPlan

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster():
    from conovel.site.engines import DaskEngine

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as started:
        engine = DaskEngine(started.scheduler_address)
        yield engine
        engine.close()


def detector():
    return cn.AdaDetect(ExtraTreesClassifier(8, max_depth=4), max_train_rows=300)


def run(files, out, engine, piece, monkeypatch, **options):
    monkeypatch.setattr(MemoryPlan, "of", classmethod(lambda cls, *_: cls(piece, 16)))
    sources = files / "null", files / "test", out
    return detect_files(detector(), *sources, id_column="name", engine=engine, **options)


@pytest.fixture
def expected(tmp_path):
    make_files(tmp_path)
    in_memory(detector(), tmp_path / "memory.parquet")
    return tmp_path, (tmp_path / "memory.parquet").read_bytes()


@pytest.mark.parametrize("piece", [50, 1000])
def test_a_cluster_gives_the_bytes_of_memory(expected, cluster, piece, monkeypatch):
    files, content = expected
    run(files, files / "out.parquet", cluster, piece, monkeypatch)
    assert (files / "out.parquet").read_bytes() == content


def test_a_killed_worker_loses_nothing(expected, cluster, monkeypatch):
    files, content = expected
    victims = []

    def kill(stage, done, total):
        if stage == "scoring" and done >= 100 and not victims:
            victims.append(next(iter(cluster.client.run(os.getpid).values())))
            os.kill(victims[0], signal.SIGKILL)

    run(files, files / "out.parquet", cluster, 20, monkeypatch, on_progress=kill)
    assert victims
    assert (files / "out.parquet").read_bytes() == content


def test_scores_come_back_in_order(cluster):
    class Model:
        def score(self, X):
            return X[:, 0] * 2

    pieces = [(i, np.full((3, 1), float(i))) for i in range(10)]
    found = list(cluster.scores(Model(), iter(pieces)))
    assert [tag for tag, _ in found] == list(range(10))
    assert all(np.all(scores == 2 * tag) for tag, scores in found)


def test_trials_on_a_cluster_give_the_rows_of_this_process(tmp_path, cluster):
    from conovel.cli.reproduce import trials_on
    from conovel.experiments.plans import Options
    from conovel.experiments.reproduce import reproduce
    from conovel.experiments.tasks import Learner

    options = Options(trials=1, learners=(Learner("forest", 3, 2, "1/2"),), composites=("max",))
    tables = []
    for engine, address in (("local", None), ("dask", cluster.client.scheduler.address)):
        with trials_on(engine, address):
            outcomes = reproduce("conservative-shift", options, tmp_path / engine)
        tables.append([table.rows for outcome in outcomes for table in outcome.tables])
    assert tables[0] == tables[1]


def test_a_scheduler_that_does_not_answer_is_named():
    from conovel.site.engines import DaskEngine

    with pytest.raises(ClusterError, match=r"tcp://127\.0\.0\.1:1"):
        DaskEngine("tcp://127.0.0.1:1", timeout=0.5)
