"""Networks in one process that commit to their counts: decisions, guarantees, and refusals."""

import json

import numpy as np
import pytest
from support.forgeries import assert_every_forgery_is_found

import conovel as cn
from benchmarks._lying_scores import LiarDesign, by_cells, by_ranks, draw
from conovel.errors import InputError, SiteVanishedError
from conovel.protocol.replay import verify
from conovel.report import network_content
from conovel.report.page import render
from conovel.spec.regimes import as_regime
from conovel.spec.run_spec import RunSpec
from conovel.spec.settings import choose_counting, choose_liars

NAMES = ("north", "south", "west")
REGIMES = ("counts", "split", "full", "joint")
pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


@pytest.fixture(scope="module")
def agents():
    rng = np.random.default_rng(3)
    found = []
    for name in NAMES:
        X_test = rng.normal(size=(24, 2))
        X_test[:6] += 5
        found.append(cn.Agent(name, rng.normal(size=(300, 2)), X_test))
    return found


def run_of(agents, regime, **options):
    return cn.Network(agents, regime=regime, scorer="logistic", level=0.2, **options).run()


@pytest.mark.parametrize("regime", REGIMES)
def test_rounds_and_commitments_decide_alike(regime, agents):
    rounds = run_of(agents, regime)
    assert rounds.n_rejected
    for reveal_to in ("coordinator", "members"):
        told = run_of(agents, regime, counting="committed", reveal_to=reveal_to)
        for name in NAMES:
            for part in ("rejected", "ranks", "scores"):
                found, known = getattr(told[name], part), getattr(rounds[name], part)
                assert np.array_equal(found, known, equal_nan=part == "scores")
        assert told.guarantee == rounds.guarantee
        assert "if no member lies about its counts" in str(told.guarantee)
        assert set(told.transcript.reveals) == set(NAMES)
        assert not told.transcript.rounds


@pytest.mark.parametrize(
    ("regime", "reveal_to"),
    [("split", "members"), pytest.param("joint", "coordinator", marks=pytest.mark.slow)],
)
def test_every_published_value_is_checked_or_named(regime, reveal_to, agents):
    run = run_of(agents, regime, counting="committed", reveal_to=reveal_to, liars=1)
    plain = json.loads(json.dumps(network_content(run)))
    assert_every_forgery_is_found(plain)
    for path, value in [
        (("commitments", "north"), "00" * 32),
        (("reveals", "south", "nonce"), "00" * 32),
        (("spec", "liars"), 0),
        (("spec", "counting"), "rounds"),
        (("outcome", "k"), 99),
    ]:
        changed = json.loads(json.dumps(plain))
        holder = changed["transcript"]
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = value
        assert verify(changed)


def test_commitments_and_liars_are_told(agents):
    run = run_of(agents, "full", counting="committed", liars=1)
    assert "if at most 1 members lie about their counts" in str(run.guarantee)
    assert "of all members that do not lie" in str(run.guarantee)
    page = render(json.loads(json.dumps(network_content(run))))
    for words in ("committed to its counts", "at most 1 of the sites lie", "liars", "counting"):
        assert words in page


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"regime": "isolated", "liars": 1}, "has no counts that an agent could lie about"),
        ({"regime": "isolated", "counting": "committed"}, "has no counts"),
        ({"regime": "conservative", "counting": "committed"}, "has no counts"),
        ({"regime": "pooled", "liars": 1}, "has no counts"),
        ({"regime": "consensus", "liars": 1}, "not tolerated in the regime 'consensus'"),
        ({"regime": "consensus", "counting": "committed"}, "not tolerated"),
        (
            {"regime": "full", "counting": "committed", "pi0": "storey"},
            "pi0 needs counting='rounds'",
        ),
        (
            {"regime": "full", "counting": "committed", "on_dropout": "conservative"},
            "leave on_dropout at 'abort'",
        ),
        ({"regime": "full", "counting": "committed", "liars": 1, "repeats": 2}, "repeats adds up"),
        ({"regime": "full", "reveal_to": "members"}, "are not revealed to members"),
        ({"regime": "full", "counting": "sealed"}, "counting must be 'rounds' or 'committed'"),
        ({"regime": "full", "reveal_to": "all"}, "reveal_to must be 'coordinator' or 'members'"),
        ({"regime": "full", "counting": "committed", "liars": -1}, "liars must be"),
    ],
)
def test_what_is_not_proven_is_refused_with_the_reason(options, said):
    with pytest.raises(InputError, match=said):
        RunSpec.of(**options)


def test_a_network_refuses_liars_with_a_ledger_or_too_many_of_them(agents, tmp_path):
    committed = {"counting": "committed", "regime": "counts"}
    with pytest.raises(InputError, match="a ledger lists rows by counts"):
        cn.Network(agents, **committed, liars=1, ledger=tmp_path).run()
    with pytest.raises(InputError, match="liars must be smaller than the number of agents, 3"):
        cn.Network(agents, **committed, scorer="logistic", liars=3).run(check=False)


@pytest.mark.parametrize("regime", ["counts", "joint"])
def test_a_lost_agent_ends_the_run(regime, agents):
    network = cn.Network(agents, regime=regime, scorer="logistic", counting="committed")
    with pytest.raises(SiteVanishedError, match="south vanished and did not reveal its counts"):
        network.run(dropouts={"south": "counts"}, check=False)
    left = network.run(dropouts={"south": "models"}, check=False)
    assert left.lost == ("south",)
    assert set(left.transcript.reveals) == {"north", "west"}


def test_settings_that_differ_are_named():
    spec = RunSpec.of(regime="full", counting="committed", liars=1)
    other = RunSpec.of(regime="full", counting="committed", reveal_to="members")
    assert spec.differences(other) == [
        "liars is 0 instead of 1",
        "reveal_to is 'members' instead of 'coordinator'",
    ]
    assert RunSpec.from_text(spec.to_text()) == spec


def test_between_organisations_counts_are_committed_where_it_can_be():
    def chosen(regime, pi0=None, on_dropout="abort"):
        return choose_counting(as_regime(regime), pi0, on_dropout)

    assert {chosen(regime) for regime in REGIMES} == {"committed"}
    assert chosen("full", pi0="storey") == chosen("full", on_dropout="conservative") == "rounds"
    assert {chosen(r) for r in ("isolated", "conservative", "consensus")} == {"rounds"}


def test_between_organisations_one_liar_is_tolerated_from_four_sites_on():
    def chosen(regime, n_agents=4, counting="committed", **excluded):
        return choose_liars(as_regime(regime), n_agents, counting, excluded)

    assert [chosen("joint", n) for n in (2, 3, 4, 9, 200)] == [0, 0, 1, 1, 1]
    assert {chosen(regime) for regime in REGIMES} == {1}
    without_counts = ("isolated", "conservative", "consensus")
    assert {chosen(regime, counting="rounds") for regime in without_counts} == {0}
    with pytest.raises(InputError, match=r"not possible with --list: .* or write --liars 0"):
        chosen("full", **{"--pi0": False, "--list": True})
    with pytest.raises(InputError, match="not possible with --counting rounds"):
        chosen("full", counting="rounds")
    assert chosen("full", 3, counting="rounds", **{"--list": True}) == 0


@pytest.mark.parametrize(("decide", "shift"), [(by_ranks, 3.0), (by_cells, 3.0)])
def test_one_of_four_sites_breaks_the_level_without_the_default_and_not_with_it(decide, shift):
    """The liar has as many rows as each of the others."""
    design, trials = LiarDesign(4, 1, 333, 97, 3, shift), 60
    default = choose_liars(as_regime("joint"), design.n_agents, "committed")
    found = {
        tolerated: np.array(
            [
                decide(draw(design, seed), design, is_lying=True, tolerated=tolerated)
                for seed in range(trials)
            ]
        )[:, 0]
        for tolerated in (0, default)
    }
    error = found[default].std() / trials**0.5
    assert found[default].mean() <= 0.1 + 3 * error
    assert found[0].mean() > 0.2 + 3 * found[0].std() / trials**0.5


def test_repeats_may_commit_to_their_counts(agents):
    run = run_of(agents, "counts", counting="committed", repeats=2)
    assert all(set(one.transcript.reveals) == set(NAMES) for one in run.runs)
    assert verify(json.loads(json.dumps(network_content(run)))) == []


def test_the_command_line_knows_liars(conovel, tmp_path):
    out = tmp_path / "run.json"
    sizes = ("--agents", 3, "--nulls", 900, "--tests", 300, "--scorer", "logistic")
    counting = ("--counting", "committed", "--liars", 1, "--reveal-to", "members")
    done = conovel("simulate", "--regime", "counts", *sizes, *counting, "--out", out)
    assert done.returncode == 0, done.stderr
    told = json.loads(out.read_text())["transcript"]["spec"]
    assert (told["liars"], told["counting"], told["reveal_to"]) == (1, "committed", "members")
    assert conovel("verify", out).returncode == 0


def test_with_liars_counts_are_committed():
    assert RunSpec.of(regime="full", liars=1).is_committed
    with pytest.raises(InputError, match="liars=1 needs counting='committed'"):
        RunSpec(regime="full", liars=1)  # what comes from a peer is not changed
