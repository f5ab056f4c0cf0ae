"""A network over several batches: what is listed, what is refused, and a run that was killed."""

import json
from fractions import Fraction

import numpy as np
import pytest

import conovel as cn
from conovel.errors import BatchRefusedError
from conovel.protocol.not_checked import not_checked
from conovel.protocol.replay import verify
from conovel.report.page import story_of
from conovel.report.run_pictures import network_content
from conovel.runs import ledger_network
from conovel.stats.evidence import e_bh

LEVEL = Fraction(1, 5)
NAMES = "abc"
pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")


def normals(seed=0):
    rng = np.random.default_rng([seed, 1])
    return {name: rng.normal(size=(240, 2)) for name in NAMES}


def agents(day, n_novel=4, known=None, n_tests=20):
    rng = np.random.default_rng([day, 2])
    found = []
    for name, X_null in (known or normals()).items():
        X_test = rng.normal(size=(n_tests, 2))
        X_test[:n_novel] += 6
        ids = [f"{name}{day}-{i}" for i in range(n_tests)]
        found.append(cn.Agent(name, X_null, X_test, ids=ids))
    return found


def network(members, folder, **options):
    settings = {"regime": "full", "scorer": "logistic", "composite": "mean", "bits": 4}
    return cn.Network(members, level=LEVEL, ledger=folder, **settings | options)


@pytest.mark.parametrize("regime", ["full", "joint", "together"])
def test_the_list_is_e_bh_over_all_batches_and_agents(tmp_path, regime):
    flags, numbers = {name: [] for name in NAMES}, []
    for day, n_novel in enumerate([4, 1, 5, 4]):
        run = network(agents(day, n_novel), tmp_path / "ledgers", regime=regime).run()
        assert run.batch.spec.level == LEVEL / 2
        numbers.append((60, run.batch.n_rejected))
        for name in NAMES:
            flags[name].append(run.batch[name].rejected)
    e_values = {
        name: [
            np.where(mask, Fraction(m) / (LEVEL / 2 * r) if r else Fraction(0), Fraction(0))
            for mask, (m, r) in zip(masks, numbers, strict=True)
        ]
        for name, masks in flags.items()
    }
    together = np.concatenate([part for parts in e_values.values() for part in parts])
    expected = np.split(e_bh(list(together), LEVEL), len(NAMES))
    for name, mask in zip(NAMES, expected, strict=True):
        ledger = cn.Ledger.load(tmp_path / "ledgers" / f"{name}.json")
        assert np.array_equal(np.concatenate(ledger.decisions()), mask)
        assert ledger.list_size == sum(part.sum() for part in expected)
        assert np.array_equal(run[name].rejected, ledger.decisions()[-1])
        assert run[name].ledger.n_listed == mask.sum()
    assert ledger.list_size > 0
    assert run.evidence_rounds[0].k == 240
    assert "list of all batches so far and all agents at most 1/5" in str(run.guarantee)
    assert verify(run.to_dict()) == []
    story = story_of(network_content(run))
    assert [row[0] for row in story.sections[0].tables[0].rows] == list(NAMES)
    assert run.to_dict()["ledger"]["sites"]["a"]["batch"] == 4


def test_a_forged_list_is_found(tmp_path):
    for day in (0, 1):
        run = network(agents(day), tmp_path / "l").run()
    plain = run.to_dict()
    assert verify(plain) == []
    assert {"ledger.rounds", "ledger.sites"} <= set(not_checked(plain))
    told, last = plain["ledger"], len(plain["ledger"]["rounds"]) - 1
    assert last
    for place, value, finding in (
        (("level",), "1/10", "is not half of 1/10"),
        (("guarantee",), "all is well", "the guarantee of the list"),
        (("rounds", 0, "counts", "a"), 0, "a counts more rows than for a larger k"),
        (("rounds", last, "counts", "a"), 99, "a counts more rows than for a larger k"),
        (("rounds", last, "counts", "a"), 1, "end before they stay"),
        (("rounds", last, "counts", "a"), -1, "no numbers of rows"),
        (("rounds", last, "counts"), {}, "not those of its agents"),
        (("sites", "a", "n_listed"), 0, "ledger.sites.a.n_listed is 0, and follows to be"),
        (("sites", "a", "batch"), 7, "the same number of batches"),
    ):
        forged = json.loads(json.dumps(plain))
        inner = forged["ledger"]
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]] = value
        assert any(finding in found for found in verify(forged)), place
    assert verify(plain | {"ledger": {}}) != []
    assert told["rounds"][0]["k"] == 120


def test_what_a_network_refuses(tmp_path):
    network(agents(0), tmp_path / "l").run()
    for change, message in (
        ({"random_state": 3}, "agent a: this batch was .* other settings of the network"),
        ({"scorer": "boosting"}, "agent a: this batch has another scorer than the earlier"),
        ({"level": "1/10"}, "ledger has level 1/5 and the detector 1/10"),
        ({"regime": "isolated"}, "nobody learns how many rows others reject"),
        ({"repeats": 2}, "leave repeats at 1"),
        ({"pi0": "quantile"}, "runs with a proven bound"),
    ):
        members = agents(1)
        settings = {"regime": "full", "scorer": "logistic", "composite": "mean", "bits": 4}
        settings |= {"level": LEVEL} | change
        with pytest.raises(cn.InputError, match=message):
            cn.Network(members, ledger=tmp_path / "l", **settings).run()
    for own in ({"scorer": "boosting"}, {"bits": 8}, {"seed": 5}):
        members = [cn.Agent(a.name, a.X_null, a.X_test, **own) for a in agents(1)]
        with pytest.raises(BatchRefusedError, match=f"agent a: .* another {next(iter(own))}"):
            network(members, tmp_path / "l").run()
    with pytest.raises(BatchRefusedError, match="agent a: the ledger has seen these rows"):
        network(agents(0), tmp_path / "l").run()
    with pytest.raises(BatchRefusedError, match=r"agent a: .* other known normals"):
        network(agents(1, known=normals(7)), tmp_path / "l").run()
    with pytest.raises(cn.InputError, match="must be the path of a folder"):
        network(agents(1), 3).run()
    (tmp_path / "file").write_text("")
    with pytest.raises(cn.FileError, match="cannot be a folder of ledgers"):
        network(agents(1), tmp_path / "file").run()
    assert len(cn.Ledger.load(tmp_path / "l" / "a.json").entries) == 1


def test_a_batch_that_only_some_ledgers_have_is_taken_back(tmp_path, monkeypatch):
    for day in (0, 1):
        network(agents(day), tmp_path / "whole").run()
    network(agents(0), tmp_path / "killed").run()
    write, written = ledger_network.write_ledger, []

    def killed(ledger, path):
        if written:
            raise KeyboardInterrupt
        written.append(path)
        write(ledger, path)

    monkeypatch.setattr(ledger_network, "write_ledger", killed)
    with pytest.raises(KeyboardInterrupt):
        network(agents(1), tmp_path / "killed").run()
    monkeypatch.undo()
    sizes = [len(cn.Ledger.load(tmp_path / "killed" / f"{n}.json").entries) for n in NAMES]
    assert sizes == [2, 1, 1]
    network(agents(1), tmp_path / "killed").run()
    for name in NAMES:
        whole, again = ((tmp_path / d / f"{name}.json").read_text() for d in ("whole", "killed"))
        assert whole == again


def test_ledgers_of_other_batches_are_found(tmp_path):
    network(agents(0), tmp_path / "l").run()
    (tmp_path / "l" / "b.json").unlink()
    with pytest.raises(cn.ProtocolError, match="all agents need the ledgers of the same batches"):
        network(agents(1), tmp_path / "l").run()


@pytest.mark.slow
def test_the_rate_after_every_batch_without_novelties(tmp_path):
    """Every listed row is false. What any of the batches rejects is far too much."""
    listed, rejected = [], []
    for trial in range(50):
        known, found, any_batch = normals(trial), [], False
        for day in range(8):
            members = agents(1000 * trial + day, n_novel=0, known=known, n_tests=2)
            run = network(members, tmp_path / str(trial), regime="counts").run(check=False)
            found.append(any(site.ledger.n_listed for site in run.values()))
            any_batch |= run.batch.n_rejected > 0
        listed.append(found)
        rejected.append(any_batch)
    rates, errors = np.mean(listed, axis=0), np.std(listed, axis=0) / len(listed) ** 0.5
    assert (rates <= float(LEVEL) + 3 * errors).all()
    assert rates.max() > 0
    assert np.mean(rejected) > float(LEVEL) + 3 * np.std(rejected) / len(rejected) ** 0.5
