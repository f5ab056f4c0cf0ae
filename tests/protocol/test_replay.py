"""Everything that is published is derived again and compared, or named as not checked."""

import copy
import json

import numpy as np
import pytest
from support.forgeries import assert_every_forgery_is_found

import conovel as cn
from conovel.cli.results import _with_ranks
from conovel.errors import ConovelError, InputError, LevelError, MalformedMessageError
from conovel.federation.terms import Terms
from conovel.protocol.messages import decode, encode
from conovel.protocol.replay import verify
from conovel.protocol.transcript import Transcript
from conovel.report import network_content
from conovel.report.page import render
from conovel.spec.bodies import Message, Roster
from conovel.spec.fields import MAX_AGENTS
from conovel.spec.run_spec import RunSpec
from conovel.stats.levels import as_level

REGIMES = ["isolated", "counts", "split", "conservative", "full", "pooled", "joint", "consensus"]
REGIMES += ["together"]
HOSTILE_LEVELS = [
    "1/0",
    "1e300000000",
    "1e-99999999999",
    "nan",
    "inf",
    "9" * 5000,
    "1/" + "9" * 900,
]
pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


def run_of(regime, dropouts=None, random_state=0, **options):
    rng = np.random.default_rng(3)
    agents = []
    for name in ("north", "south", "west"):
        X_test = rng.normal(size=(24, 2))
        X_test[:6] += 5
        agents.append(cn.Agent(name, rng.normal(size=(300, 2)), X_test))
    network = cn.Network(
        agents, regime=regime, scorer="logistic", level=0.2, random_state=random_state, **options
    )
    run = network.run(dropouts=dropouts)
    assert run.n_rejected
    return json.loads(json.dumps(network_content(run)))


@pytest.mark.parametrize("regime", REGIMES)
def test_every_published_value_is_checked_or_named(regime):
    assert_every_forgery_is_found(run_of(regime))


@pytest.mark.parametrize(
    "options",
    [
        {"regime": "full", "pi0": "storey"},
        {"regime": "isolated", "pi0": "storey"},
        {"regime": "full", "random_state": None},
        {"regime": "full", "dropouts": {"west": "hello"}},
        {"regime": "counts", "dropouts": {"west": "models"}},
        {"regime": "full", "dropouts": {"west": "counts"}, "on_dropout": "conservative"},
        {"regime": "joint", "dropouts": {"west": "models"}},
        {"regime": "together", "masks": True},
    ],
    ids=lambda options: ", ".join(map(str, options.values())),
)
def test_the_same_with_an_estimate_and_without_some_agents(options):
    assert_every_forgery_is_found(run_of(**options))


def two_groups():
    """Return three agents that calibrate together, and one with many tests by itself."""
    rng = np.random.default_rng(5)
    agents = []
    for name, n_null, m in (("a", 60, 20), ("b", 60, 20), ("c", 60, 20), ("odd", 40, 400)):
        X_test = rng.normal(size=(m, 2))
        X_test[:5] += 6
        agents.append(cn.Agent(name, rng.normal(size=(n_null, 2)), X_test))
    return agents


def test_every_value_of_groups_is_checked():
    """Two groups: one of several agents, and an agent by itself."""
    run = cn.Network(two_groups(), regime="joint", scorer="logistic", level=0.2).run()
    assert [len(group.agents) for group in run.groups] == [3, 1]
    assert run.n_rejected
    plain = json.loads(json.dumps(network_content(run)))
    assert_every_forgery_is_found(plain)
    for path, value, found in [
        (("weights", "a"), "1/2", "weights.a is '1/2', and follows to be"),
        (("weights", "odd"), "7/3", "weights.odd is '7/3', and follows to be"),
        (("agents", "a", "n_null"), -1, "not a number of rows"),
        (("agents", "a", "n_null"), 10**400, "not a number of rows"),
        (("agents", "b", "n_test"), 10**30, "not a number of rows"),
        (("rooms", "b"), "1/20", "rooms.b is '1/20'"),
        (("rooms", "odd"), "1/20", "rooms.odd is '1/20'"),
        (("outcome", "cells", 0), 1, "outcome.cells.0 is 1"),
        (("outcome", "cells", 3), 1, "outcome.cells.3 is 1"),
    ]:
        changed = copy.deepcopy(plain)
        holder = changed["transcript"]
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = value
        assert any(found in sentence for sentence in verify(changed))


def test_every_value_of_groups_under_masks_is_checked():
    """A group of which only totals are in the record, and an agent by itself."""
    run = cn.Network(two_groups(), regime="together", level=0.2, masks=True).run()
    assert [len(group.agents) for group in run.groups] == [3, 1]
    assert run.n_rejected
    plain = json.loads(json.dumps(network_content(run)))
    assert_every_forgery_is_found(plain)
    assert not plain["transcript"]["histograms"]
    assert sorted(plain["transcript"]["group_cells"]) == ["a", "odd"]
    for path, value, found in [
        (("weights", "a"), "1/2", "weights.a is '1/2', and follows to be"),
        (("rooms", "b"), "1/20", "rooms.b is '1/20'"),
        (("outcome", "cells", 0), 1, "outcome.cells.0 is 1"),
        (("outcome", "cells", 3), 1, "outcome.cells.3 is 1"),
        (("group_cells", "a", "tests", 127), 10**6, "counts add up to what no agents have"),
        (("group_wanted", "a", 0), 10**6, "adds up to what no agents have"),
        (("group_wanted", "a"), [1], "not asked for"),
    ]:
        changed = copy.deepcopy(plain)
        holder = changed["transcript"]
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = value
        assert any(found in sentence for sentence in verify(changed)), verify(changed)


def test_a_removed_value_is_no_way_out():
    run = run_of("full")
    for path in [("transcript", "totals"), ("transcript", "outcome"), ("transcript",)]:
        holder = changed = copy.deepcopy(run)
        for step in path[:-1]:
            holder = holder[step]
        del holder[path[-1]]
        assert verify(changed)


def test_what_is_not_checked_is_short_and_printed(tmp_path, conovel):
    file = tmp_path / "run.json"
    file.write_text(json.dumps(run_of("full")))
    done = conovel("verify", file)
    assert done.returncode == 0
    printed = [line for line in done.stdout.splitlines() if line.startswith("not checked: ")]
    assert printed == [
        "not checked: decisions.*.choices",
        "not checked: decisions.*.ranks",
        "not checked: picture",
        "not checked: reasons",
        "not checked: transcript.agents.*.n_null",
        "not checked: warnings",
    ]


@pytest.fixture
def detection(tmp_path, conovel):
    rng = np.random.default_rng(0)
    for name, shift in (("null", 0), ("test", 4)):
        rows = rng.normal(size=(200, 2))
        rows[:20] += shift
        text = "a,b\n" + "\n".join(f"{a},{b}" for a, b in rows.tolist())
        (tmp_path / f"{name}.csv").write_text(text)
    paths = [tmp_path / name for name in ("null.csv", "test.csv", "out.csv")]
    done = conovel(
        "detect", "--null", paths[0], "--test", paths[1], "--out", paths[2], "--scorer", "logistic"
    )
    assert done.returncode == 0
    return tmp_path / "out.csv.json"


def test_a_result_of_one_site_gets_a_clear_answer(detection, conovel):
    done = conovel("verify", detection)
    assert done.returncode == 0
    assert "a result of one site" in done.stdout
    assert "follow from the ranks" in done.stdout
    assert "not checked: scorer" in done.stdout
    run = _with_ranks(json.loads(detection.read_text()), detection)
    assert run["n_rejected"]
    assert_every_forgery_is_found(run)
    detection.with_name("out.csv").unlink()
    without = conovel("verify", detection)
    assert without.returncode == 0
    assert "its ranks are not here" in without.stdout
    assert "not checked: n_rejected" in without.stdout


def test_something_else_is_told_to_be_no_run(tmp_path, conovel):
    file = tmp_path / "other.json"
    file.write_text('{"a": 1}')
    done = conovel("verify", file)
    assert done.returncode == 3
    assert "it has no transcript" in done.stdout


@pytest.mark.parametrize("level", HOSTILE_LEVELS)
def test_hostile_levels_are_refused_at_once(level):
    with pytest.raises(LevelError):
        as_level(level)
    with pytest.raises(InputError):
        cn.Storey(level)
    with pytest.raises(InputError):
        RunSpec.of(level=level)
    with pytest.raises(InputError):
        RunSpec.of(pi0=f"storey:{level}")
    with pytest.raises(InputError):
        RunSpec.of(train_fraction=level)
    run = run_of("counts")
    for change in ({"level": level}, {"pi0": f"storey:{level}"}):
        run["transcript"]["spec"] |= change
        assert verify(run)
        with pytest.raises(ConovelError):
            render(run)


def test_too_many_names_are_refused_at_once():
    names = tuple(f"{i:04d}" for i in range(4000))
    run = run_of("full")
    run["transcript"]["roster"] = list(names)
    assert "more than 200 agents" in verify(run)[0]
    with pytest.raises(InputError):
        Transcript.from_dict(run["transcript"])
    with pytest.raises(ConovelError):
        render(run)
    with pytest.raises(InputError):
        Terms(names)
    with pytest.raises(InputError):
        cn.Network([cn.Agent(name, [[0.0]], [[0.0]]) for name in names]).run()
    small = encode(Message(bytes(16), "coordinator", "a", 0, Roster(("a", "b"), 1, 1)))
    assert decode(small).body.agents == ("a", "b")
    with pytest.raises(ConovelError):
        encode(Message(bytes(16), "coordinator", "a", 0, Roster(names, 1, 1)))
    with pytest.raises(MalformedMessageError):
        decode(small.replace(b"\x02\x00\x01a", b"\xa0\x0f\x01a"))


def test_as_many_agents_as_are_allowed_fit_into_a_message():
    names = tuple(f"{i:04d}" for i in range(MAX_AGENTS))
    message = Message(bytes(16), "coordinator", "0000", 0, Roster(names, 1, 1))
    assert decode(encode(message)) == message
