"""The one record of a run's settings: one spelling, strict reading, named differences."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import conovel as cn
from conovel.errors import ConovelError, InputError
from conovel.spec.regimes import REGIMES
from conovel.spec.run_spec import MAX_SEED, RunSpec, nonce_of, run_id_of, run_id_of_terms

FULL = RunSpec.of(regime="full")
PLAIN = FULL.to_dict()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)


def test_every_form_of_a_value_is_the_same_spec():
    forms = [
        RunSpec.of(level=0.1, pi0="storey", train_fraction=0.5),
        RunSpec.of(level="1/10", pi0=cn.Storey(), train_fraction="1/2"),
        RunSpec(
            REGIMES["full"],
            level=Fraction(1, 10),
            pi0=cn.Storey("1/2"),
            train_fraction=Fraction(1, 2),
        ),
    ]
    assert forms[0] == forms[1] == forms[2]
    assert len({spec.to_text() for spec in forms}) == 1
    assert RunSpec.from_text(forms[0].to_text()) == forms[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        FULL.to_text() + " ",
        json.dumps(PLAIN),  # spaces after the commas
        json.dumps(PLAIN | {"level": "0.1"}, separators=(",", ":")),
        json.dumps(PLAIN | {"path": "x"}, separators=(",", ":")),
        json.dumps({k: v for k, v in PLAIN.items() if k != "bits"}, separators=(",", ":")),
        json.dumps(PLAIN | {"seed": MAX_SEED + 1}, separators=(",", ":")),
        json.dumps(PLAIN | {"seed": True}, separators=(",", ":")),
        json.dumps(PLAIN | {"regime": "auto"}, separators=(",", ":")),  # a request, no regime
        json.dumps(PLAIN | {"repeats": True}, separators=(",", ":")),
        json.dumps(PLAIN | {"repeats": 101}, separators=(",", ":")),
        json.dumps(PLAIN | {"repeats": 2, "pi0": "quantile:1/2"}, separators=(",", ":")),
    ],
)
def test_only_the_one_spelling_is_read(text):
    with pytest.raises(InputError):
        RunSpec.from_text(text)


@given(st.sampled_from(sorted(PLAIN)), JSON)
def test_plain_values_from_anybody_are_read_or_refused(name, value):
    try:
        spec = RunSpec.from_dict(PLAIN | {name: value})
    except ConovelError:
        return
    assert RunSpec.from_dict(spec.to_dict()) == spec
    assert RunSpec.from_text(spec.to_text()) == spec


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({}, "together"),
        ({"regime": "auto"}, "together"),
        ({"regime": "auto", "pi0": None, "repeats": 5}, "together"),
        ({"composite": "mean"}, "joint"),
        ({"bits": 4}, "joint"),
        ({"privacy": 4}, "together"),
        ({"regime": "auto", "pi0": "storey"}, "full"),
        ({"pi0": cn.Quantile(), "on_dropout": "conservative"}, "full"),
        ({"on_dropout": "conservative"}, "full"),
        ({"regime": "counts", "pi0": "storey"}, "counts"),
        ({"regime": "full"}, "full"),
    ],
)
def test_auto_is_resolved_when_the_settings_are_made(asked, chosen):
    spec = RunSpec.of(**asked)
    assert spec.regime.name == spec.to_dict()["regime"] == chosen
    assert cn.Network([], **asked).spec() == spec


@pytest.mark.parametrize(
    ("network", "agent", "chosen"),
    [
        ({"scorer": None}, {}, "together"),
        ({"scorer": ["automatic"]}, {"scorer": "automatic"}, "together"),
        ({"scorer": "logistic"}, {}, "joint"),
        ({}, {"scorer": "logistic"}, "joint"),
        ({}, {"bits": 4}, "joint"),
        ({"regime": "together", "scorer": "logistic"}, {}, "together"),
    ],
)
def test_settings_about_models_ask_for_models(network, agent, chosen):
    agents = [cn.Agent("a", [[0.0]], [[0.0]], **agent)]
    assert cn.Network(agents, **network).spec().regime.name == chosen


def test_an_unknown_regime_is_told_what_may_be_asked_for():
    with pytest.raises(
        InputError, match=r"one of auto, isolated, .*, joint, together, consensus, not 'all'"
    ):
        RunSpec.of(regime="all")
    with pytest.raises(
        InputError, match=r"one of isolated, .*, joint, together, consensus, not 'auto'"
    ):
        RunSpec("auto")


def test_differences_name_the_setting_and_both_values():
    ours, theirs = RunSpec.of(bits=4), RunSpec.of(bits=8, seed=3, repeats=2)
    assert ours.differences(theirs) == [
        "bits is 8 instead of 4",
        "seed is 3 instead of 0",
        "repeats is 2 instead of 1",
    ]
    assert ours.differences(ours) == []


@pytest.mark.parametrize("regime", ["full", "pooled"])
def test_a_network_a_transcript_and_a_file_hold_the_same_spec(regime, tmp_path):
    agents = [cn.Agent(name, [[float(i)] for i in range(60)], [[99.0]] * 5) for name in "ab"]
    network = cn.Network(agents, regime=regime, scorer="logistic", random_state=None)
    run = network.run()
    assert run.spec == run.transcript.spec
    run.save(tmp_path / "run.json")
    plain = json.loads((tmp_path / "run.json").read_text())
    assert RunSpec.from_dict(plain["transcript"]["spec"]) == run.spec
    again = cn.Network(agents, regime=regime, scorer="logistic", random_state=run.spec.seed).run()
    assert all((again[name].ranks == run[name].ranks).all() for name in "ab")


def test_ids_of_runs_follow_from_all_that_they_name():
    spec = RunSpec.of()
    assert len(run_id_of(spec, ["north", "south"])) == 16
    assert run_id_of(spec, ["north", "south"]) == run_id_of(spec, ["south", "north"])
    assert run_id_of(spec, ["north", "south"]) != run_id_of(spec, ["north", "west"])
    assert len(nonce_of(bytes(16), "north")) == 32
    terms = {"agents": ["north", "south"], "nonce": "00" * 16}
    assert run_id_of_terms(terms) == run_id_of_terms(terms | {"run_id": "7"})
    assert run_id_of_terms(terms) != run_id_of_terms(terms | {"agents": ["north", "west"]})
