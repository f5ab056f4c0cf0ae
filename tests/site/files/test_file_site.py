"""An agent whose rows are in files: messages and decisions have the bytes of memory."""

from fractions import Fraction
from functools import partial
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pytest
from sklearn.ensemble import ExtraTreesClassifier, IsolationForest
from support.fake_link import Link
from support.files import N_NULL, N_TEST, cut, draw, make_files, named, write_folder
from support.scorers import FunctionScore

import conovel as cn
from conovel.deciding.ways import ways_of
from conovel.errors import ColumnError, SampleError, SiteFailedError
from conovel.learning.base import State
from conovel.rows.pairs import read_pair
from conovel.rows.storage import write_table
from conovel.runs.agents import open_sites, read_agents
from conovel.runs.site_results import decide
from conovel.scorers.argument import as_candidates
from conovel.scorers.blend import Refined, shallow_trees, shrunken_logistic
from conovel.site.composite import Composite, fit_composite
from conovel.site.open_files import open_files_site
from conovel.site.output import DecisionFile
from conovel.site.site import Site
from conovel.site.work import SiteWork
from conovel.spec.regimes import as_regime
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers, needed_calibration, planned_calibration
from conovel.stats.stepup import RankHistogram

LEVEL = Fraction(1, 5)
TREES = ExtraTreesClassifier(8, max_depth=4)


def settings(seed=3, **more):
    given = {"composite": "mean", "bits": 4, "scorer": TREES, "most": 10**5} | more
    given = {"regime": "full"} | given
    candidates, most = tuple(as_candidates(given.pop("scorer"), seed)), given.pop("most")
    return SiteWork(RunSpec.of(level=LEVEL, seed=seed, **given), candidates, 2, most)


def in_memory(rows, asked):
    return Site(*read_pair(*(pa.table(named(sample)) for sample in rows)), asked)


def small(asked):
    """A peer with few rows, all of them in memory."""
    null, test = draw(1)
    return in_memory((null[:250], test[:150]), asked)


def in_files(folder, asked):
    return open_files_site(
        folder / "null", folder / "test", asked, folder / "work", id_column="name", memory="1GB"
    )


def run(big, peer, asked):
    regime = asked.spec.regime
    pi0 = None if ways_of(regime).deciding.by_cells else "storey"
    link = Link({"big": big, "small": peer}, regime=regime, level=LEVEL, pi0=pi0)
    return link.run()


def both(tmp_path, monkeypatch, most=250, piece=128, **more):
    """Run twice, with the rows of one agent in memory and in files."""
    cut(monkeypatch, piece)
    make_files(tmp_path)
    asked, others = settings(most=most, **more), settings(seed=4, most=most, **more)
    sites = in_memory(draw(), asked), in_files(tmp_path, asked)
    return sites, [run(site, small(others), asked) for site in sites]


def columns_of(site, limit, conforming=MappingProxyType({})):
    names = np.array([f"row {i}" for i in range(N_TEST)])
    return decide(site, limit, names, "big", conforming=conforming).columns()


def assert_same(tmp_path, sites, links):
    local, streamed = sites
    assert links[0].delivered == links[1].delivered
    limits = {link.agents["big"].limit for link in links}
    assert len(limits) == 1
    limit = limits.pop()
    conforming = links[0].coordinator.outcome.conforming
    write_table(tmp_path / "memory.parquet", columns_of(local, limit, conforming))
    DecisionFile(streamed, limit, conforming).write(tmp_path / "pieces.parquet")
    expected = (tmp_path / "memory.parquet").read_bytes()
    assert (tmp_path / "pieces.parquet").read_bytes() == expected
    assert streamed.choices == local.choices
    assert 0 < links[1].agents["big"].n_rejected < N_TEST
    streamed.close()
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("composite", ["mean", "max", "min", "stacked", "auto"])
def test_every_composite_gives_the_bytes_of_memory(tmp_path, monkeypatch, composite):
    sites, links = both(tmp_path, monkeypatch, composite=composite)
    assert sites[0].n_calibration == sites[1].n_calibration == N_NULL - 250
    assert_same(tmp_path, sites, links)


@pytest.mark.parametrize(
    "regime", ["full", "counts", "isolated", "conservative", "split", "joint", "consensus"]
)
def test_every_regime(tmp_path, monkeypatch, regime):
    assert_same(tmp_path, *both(tmp_path, monkeypatch, regime=as_regime(regime)))


@pytest.mark.parametrize("n_test", [1, 9])
def test_few_test_rows_in_the_regime_consensus(tmp_path, monkeypatch, n_test):
    """No row may end the run for all agents."""
    cut(monkeypatch, 128)
    (null, test), asked = draw(), settings(regime="consensus")
    write_folder(tmp_path / "null", named(null), 2, "parquet")
    names = [f"row {i}" for i in range(n_test)]
    write_folder(tmp_path / "test", {"name": names, **named(test[:n_test])}, 1, "parquet")
    sites = in_memory((null, test[:n_test]), asked), in_files(tmp_path, asked)
    peer = settings(seed=4, regime="consensus")
    links = [run(site, small(peer), asked) for site in sites]
    assert [link.coordinator.state for link in links] == [State.DONE] * 2
    assert links[0].delivered == links[1].delivered
    sites[1].close()


@pytest.mark.parametrize(("most", "piece"), [(10**6, 64), (60, 37), (100, 10_000)])
@pytest.mark.parametrize("composite", ["mean", "auto"])
def test_blocks_of_rows(tmp_path, monkeypatch, most, piece, composite):
    more = {"regime": as_regime("split"), "composite": composite}
    sites, links = both(tmp_path, monkeypatch, most=most, piece=piece, **more)
    assert sites[0].tested.sum() == sites[1].tested.sum() == N_TEST // 2
    assert_same(tmp_path, sites, links)


def test_blocks_of_rows_without_names(tmp_path, monkeypatch):
    make_files(tmp_path)
    cut(monkeypatch, 37)
    asked = settings(regime=as_regime("split"))
    memory = in_memory(draw(), asked)
    features = list(named(draw()[0]))
    paths = tmp_path / "null", tmp_path / "test"
    files = open_files_site(*paths, asked, tmp_path / "work", columns=features)
    peer = small(settings(seed=4, regime=as_regime("split")))
    limits = [run(site, peer, asked).agents["big"].limit for site in (memory, files)]
    assert limits[0] == limits[1]
    DecisionFile(files, limits[0]).write(tmp_path / "out.parquet")
    found, expected = (
        pa.parquet.read_table(tmp_path / "out.parquet"),
        columns_of(memory, limits[0]),
    )
    names = [name for name in expected if name != "id"]
    assert found.column_names == ["row", *names]
    assert found["row"].to_pylist() == list(range(found.num_rows))
    for name in names:
        np.testing.assert_array_equal(found[name].to_numpy(), expected[name])


def test_more_blocks_than_rows(tmp_path):
    make_files(tmp_path)
    site = in_files(tmp_path, settings(regime=as_regime("split")))
    with pytest.raises(SampleError, match="test rows cannot be split among the agents"):
        site.models(0, [str(i) for i in range(N_TEST + 1)])


REFINED = Refined(shallow_trees(8), shrunken_logistic())
ONE_CLASS = cn.OneClass(IsolationForest(n_estimators=8), higher="normal")


@pytest.mark.parametrize("scorer", [REFINED, ONE_CLASS], ids=["refined", "one-class"])
def test_other_scorers(tmp_path, monkeypatch, scorer):
    more = {
        "scorer": scorer,
        "bits": "compact",
        "composite": "stacked" if scorer is REFINED else "mean",
    }
    assert_same(tmp_path, *both(tmp_path, monkeypatch, **more))


@pytest.mark.parametrize(("most", "piece"), [(10**6, 64), (100, 37), (250, 10_000)])
def test_any_piece_and_any_number_of_rows_to_learn_from(tmp_path, monkeypatch, most, piece):
    assert_same(tmp_path, *both(tmp_path, monkeypatch, most=most, piece=piece))


def test_a_network_has_the_messages_of_such_a_run(tmp_path, monkeypatch):
    """The agent in files answers what an agent of a network in one process answers."""
    monkeypatch.setattr("conovel.runs.agents.SiteWork", partial(SiteWork, max_train_rows=250))
    make_files(tmp_path)
    null, test = draw()
    agents = [
        cn.Agent("big", pa.table(named(null)), pa.table(named(test))),
        cn.Agent("small", pa.table(named(null[:250])), pa.table(named(test[:150]))),
    ]
    options = {"composite": "mean", "bits": 4, "level": LEVEL, "scorer": TREES}
    network = cn.Network(agents, regime="full", **options)
    expected = network.run()["big"]
    spec = network.spec()
    sites = open_sites(spec, read_agents(spec, agents, TREES))
    site = in_files(tmp_path, sites["big"].work)
    models = sites["small"].models(1, ["big", "small"])
    found = site.ranks({"small": models["big"]})
    assert isinstance(found, RankHistogram)
    assert np.array_equal(site.test_ranks, expected.ranks)


def test_a_value_that_is_no_number_ends_it_before_the_hello(tmp_path):
    make_files(tmp_path)
    table = pa.table({**named(draw()[0][:5]), "x1": [0.0, 1.0, None, 2.0, 3.0]})
    pa.parquet.write_table(table, tmp_path / "null" / "0.parquet")
    with pytest.raises(ColumnError, match=r"null/0\.parquet.*column 'x1' has 1"):
        in_files(tmp_path, settings())


def test_a_composite_that_looks_at_neighbours_gets_all_rows_in_one_call(tmp_path, monkeypatch):
    make_files(tmp_path)
    site = in_files(tmp_path, settings())
    sizes = []

    def centred(rows):
        sizes.append(len(rows))
        return rows[:, 0] - rows[:, 0].mean()

    found = Composite(FunctionScore(centred))
    monkeypatch.setattr("conovel.site.site.fit_composite", lambda *_: found)
    site.ranks({})
    scores = site.scores
    null, test = draw()
    used = null[site.split(N_NULL)[1]]
    distinct = np.unique(np.concatenate([used, test]), axis=0)
    assert len(distinct) in sizes
    assert scores.tolist() == (test[:, 0] - distinct[:, 0].mean()).tolist()


def test_without_peers_the_composite_is_the_local_score():
    assert fit_composite("mean", TREES, [], None).model is TREES


def test_what_goes_wrong_while_scoring_is_the_sites_own_fault(tmp_path, monkeypatch):
    make_files(tmp_path)
    asked = settings()
    site = in_files(tmp_path, asked)
    (tmp_path / "work" / "test.rows").unlink()
    link = Link({"big": site, "small": small(asked)}, regime=asked.spec.regime, level=LEVEL)
    assert isinstance(link.run().agents["big"].error, SiteFailedError)


def test_a_group_leaves_rows_to_train_on(tmp_path, monkeypatch):
    """What trains changes after the roster, so files are read for it once more."""
    cut(monkeypatch, 128)
    make_files(tmp_path)
    asked, others = (settings(seed=seed, regime=as_regime("joint")) for seed in (3, 4))
    sites = in_memory(draw(), asked), in_files(tmp_path, asked)
    null, test = draw(1)
    links = [run(site, in_memory((null[:90], test[:150]), others), asked) for site in sites]
    weight = links[0].transcript.weights["big"]
    spec = links[0].coordinator.spec
    by_itself = planned_calibration(Numbers(N_NULL, N_TEST), spec, 2)
    needed = needed_calibration(N_TEST, weight)
    assert sites[0].n_calibration == sites[1].n_calibration == needed < by_itself
    assert sites[1].n_train(N_NULL) == N_NULL - needed
    assert_same(tmp_path, sites, links)
