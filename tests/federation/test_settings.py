"""The files people edit, the terms of a run, consent and the records: nothing unknown passes."""

import inspect
import itertools
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.terms import changed_terms, make_terms

from conovel.errors import (
    ConovelError,
    FederationError,
    FileError,
    InputError,
    ReplayedMessageError,
)
from conovel.federation import processes
from conovel.federation.consent import Limits
from conovel.federation.run_records import DONE, FAILED, RunRecords, own_secret
from conovel.federation.settings import read_federation, read_site
from conovel.federation.terms import Terms
from conovel.runs.network import Network
from conovel.site.blocks import TrainingRows
from conovel.spec.regimes import as_regime
from conovel.spec.run_spec import as_agent_seed, site_seed

SITE = """
[site]
name = "north"
kit = "kit"
[data]
null = "n.parquet"
test = "t.csv"
"""
TERMS = make_terms(("north", "south"), regime="full")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


def write(folder, text, name="site.toml"):
    path = folder / name
    path.write_text(text)
    return path


def test_paths_are_relative_to_the_file(tmp_path):
    file = read_site(write(tmp_path, SITE))
    assert file.null == tmp_path / "n.parquet"
    assert (file.results, file.state) == (tmp_path / "results", tmp_path / "state")
    assert file.limits == Limits()
    assert file.check
    assert not read_site(write(tmp_path, f"{SITE}check = false")).check
    with pytest.raises(InputError, match=r"\[data\]: check must be true or false, not 0"):
        read_site(write(tmp_path, f"{SITE}check = 0"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "[consent]\nmax_levl = 0.1",
            "[consent]: there is no key 'max_levl'",
        ),
        ("[consents]\nx = 1", "there is no key 'consents'; choose from site,"),
        (
            "[consent]\nmin_agents = true",
            "[consent]: min_agents must be a whole",
        ),
        (
            "[consent]\nmin_train_rows = false",
            "min_train_rows must be a whole",
        ),
        ("[consent]\nmin_agents = 1", "min_agents must be a whole number from 2"),
        ("[consent]\nregimes = ['pooled']", "pools raw rows"),
        ("[consent]\nmax_level = 2", "level"),
        ("[consent]\nmin_train_rows = 0", "min_train_rows must be a whole number from 1"),
        (
            "[consent]\nmin_train_rows = 20.5",
            "min_train_rows must be a whole number",
        ),
        ("[consent]\nmin_train_share = 'no rule'", "min_train_share must be a number"),
        ("[consent]\nmin_train_share = 1.5", "min_train_share must lie"),
        (
            "[consent]\nmin_calibration_rows = 0",
            "min_calibration_rows must be a whole",
        ),
        ("[consent]\nmax_bits = 17", "max_bits must be an integer from 1 to 16, 'compact' or"),
        ("[consent]\nmax_bits = 'compact:300'", "max_bits must be an integer"),
        ("[consent]\nmodel_families = ['tree']", "model_families must be a list of forest, lin"),
        ("[consent]\nmax_runs_per_data = 0", "max_runs_per_data must be a whole number from 1"),
        ("[consent]\nmax_epsilon = 0", "max_epsilon must be a number above 0"),
        (
            "[consent]\nmax_epsilon = true",
            "max_epsilon must be a text or",
        ),
        ("[consent]\nmax_epsilon = 'much'", "max_epsilon must be a number such as"),
        ("set = ''\n", "name"),
        ("[consent]\nmax_peer_share = -1", "max_peer_share must be a number from 0"),
        ("[model]\nscorer = 'magic'", "no scorer is called 'magic'"),
        ("[model]\nbits = 40", "bits"),
        ("[consent", "is not TOML"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, more, said):
    with pytest.raises(InputError) as error:
        read_site(write(tmp_path, SITE + more))
    assert said in str(error.value)
    assert "site.toml" in str(error.value)


def test_an_older_file_gets_the_safe_limits(tmp_path):
    older = "[consent]\nregimes = ['full']\nmax_level = 0.1\nmin_train_rows = 5\n"
    limits = read_site(write(tmp_path, SITE + older)).limits
    assert limits == Limits(regimes=("full",), max_level="1/10", min_train_rows=5)
    assert (limits.max_bits, limits.min_calibration_rows, limits.max_runs_per_data) == (16, 10, 10)
    for regime in ("joint", "consensus", "counts"):
        assert "is not among" in limits.objection(make_terms(("north", "south"), regime=regime))


@pytest.mark.parametrize("n", [0, -3])
def test_at_least_one_run_is_kept(tmp_path, n):
    with pytest.raises(InputError, match="keep_runs must be a whole number from 1"):
        read_site(write(tmp_path, SITE.replace('kit = "kit"', f'kit = "kit"\nkeep_runs = {n}')))
    text = f'[federation]\nname = "f"\nsites = ["a", "b"]\n[coordinator]\nkeep_runs = {n}\n'
    with pytest.raises(InputError, match="keep_runs must be a whole number from 1"):
        read_federation(write(tmp_path, text, "federation.toml"))


def test_a_missing_setting_is_named(tmp_path):
    with pytest.raises(InputError, match="needs the key 'test'"):
        read_site(write(tmp_path, SITE.replace('test = "t.csv"', "")))
    with pytest.raises(FileError, match="cannot be read"):
        read_site(tmp_path / "nowhere.toml")


def test_a_federation_file(tmp_path):
    text = (
        '[federation]\nname = "f"\nsites = ["b", "a"]\n[operator]\nname = "o@x.y"\nkit = "kit"\n'
    )
    file = read_federation(write(tmp_path, text, "federation.toml"))
    assert file.sites == ("a", "b")
    assert file.operator_kit == tmp_path / "kit"
    assert file.coordinator_kit is None
    with pytest.raises(InputError, match="cannot be the name of an agent"):
        read_federation(write(tmp_path, text.replace('"a"', '"coordinator"'), "federation.toml"))


def test_terms_have_the_defaults_of_a_network():
    network = inspect.signature(Network).parameters
    plain = Terms(("north", "south")).to_dict()["spec"]
    assert plain["regime"] == Network([]).spec().regime.name == "together"
    for name in ("composite", "bits", "on_dropout", "pi0", "train_fraction"):
        assert plain[name] == network[name].default, name
    assert plain["seed"] == network["random_state"].default


def test_a_site_mixes_its_secret_and_the_run_into_the_seed_of_a_run():
    seeds = {
        site_seed(bytes([secret] * 32), seed, agent, run_id)
        for secret, seed, agent, run_id in itertools.product(
            (0, 1), (0, 1, 256, 2**70), "ab", ("7f", "80")
        )
    }
    assert len(seeds) == 32
    assert all(as_agent_seed(seed) == seed for seed in seeds)
    for wrong in (-1, 2**32, True, 0.5):
        with pytest.raises(InputError, match="seed must be a whole number"):
            as_agent_seed(wrong)


def test_a_secret_is_made_once_and_for_its_owner_alone(tmp_path):
    state = tmp_path / "state"
    with ThreadPoolExecutor(8) as pool:  # runs that begin at once
        (secret,) = set(pool.map(lambda _: own_secret(state), range(8)))
    (path,) = state.iterdir()
    assert (len(secret), path.stat().st_mode & 0o777, state.stat().st_mode & 0o777) == (
        32,
        0o600,
        0o700,
    )
    assert own_secret(tmp_path / "another") != secret
    for text in ("", "ab" * 31, "no number"):
        path.write_text(text)
        with pytest.raises(FederationError, match="64 hexadecimal digits: remove it"):
            own_secret(state)


def test_every_run_has_an_id_of_its_own():
    assert Terms(("a", "b")).run_id != Terms(("a", "b")).run_id


KEYS = [*TERMS.to_dict(), *TERMS.to_dict()["spec"]]


@given(key=st.sampled_from([*KEYS, "path", "class"]), value=JSON)
def test_terms_from_anybody_are_read_or_refused(key, value):
    plain = changed_terms(TERMS.to_dict(), **{key: value})
    try:
        terms = Terms.from_dict(plain)
    except ConovelError:
        return
    assert key in KEYS
    assert Terms.from_dict(terms.to_dict()) == terms


@pytest.mark.parametrize("plain", [None, [], {"agents": ["a", "b"]}, {"run_id": "0" * 32}])
def test_terms_that_lack_something_are_refused(plain):
    with pytest.raises(InputError):
        Terms.from_dict(plain)


def test_a_deployment_refuses_to_pool_rows():
    with pytest.raises(InputError, match="pools raw rows"):
        make_terms(("a", "b"), regime="pooled")


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(), ""),
        (Limits(regimes=("counts",)), "regime 'full' is not among"),
        (Limits(regimes=("joint",)), "(joint): choose one of these, or the site adds 'full' to"),
        (Limits(max_level="1/20"), "level 1/10 is above the 1/20"),
        (Limits(min_agents=3), "a run of 2 agents is too small"),
        (Limits(max_seconds=60), "a run of up to 3600 s is too long"),
    ],
)
def test_consent_has_a_reason(limits, said):
    objection = limits.objection(TERMS)
    assert said in objection
    assert bool(objection) is bool(said)


def test_the_default_regime_must_be_named_by_a_site():
    """Sums over rows say more than a total, so files from before them do not agree to them."""
    default = Terms(("north", "south"))
    assert "the site adds 'together' to regimes in its site.toml" in Limits().objection(default)
    assert Limits(regimes=("together",)).objection(default) == ""


def training(n_train, n_null=1000, n_by_rule=500, n_mixture=600):
    return TrainingRows(n_null, n_train, n_by_rule, n_mixture, 100_000)


TENTH = make_terms(("north", "south"), train_fraction="1/10")


@pytest.mark.parametrize(
    ("limits", "terms", "models", "said"),
    [
        (Limits(), TERMS, [training(500)], ""),
        (Limits(), TENTH, [training(500)], ""),
        (Limits(), TENTH, [training(499)], "than its own rule gives: leave it out, or"),
        (Limits(), TENTH, [training(500), training(499)], "than its own rule gives"),
        (Limits(min_train_share="0.1"), TENTH, [training(100)], ""),
        (Limits(min_train_share="0.1"), TENTH, [training(99)], "than the 1/10 of them it asks"),
        (Limits(min_train_share="0.6"), TERMS, [training(500)], "choose a larger one, or"),
        (Limits(), TERMS, [training(20, 60, 20)], ""),
        (Limits(), TERMS, [training(19, 60, 19)], "fewer than 20 of its known normals would"),
        (Limits(min_train_rows=6), TERMS, [training(6, 60, 6)], ""),
        (Limits(min_train_rows=100), TERMS, [training(99, 300, 99)], "fewer than 100 of its"),
        (Limits(), TENTH, [training(990, n_mixture=19)], "fewer than 20 calibration and test"),
        (Limits(), TENTH, [training(990, n_mixture=None)], ""),  # it learns from normals alone
    ],
)
def test_a_model_of_few_rows_is_objected_to(limits, terms, models, said):
    objection, numbers = limits.objection_to_training(terms, models)
    assert said in objection
    assert bool(objection) is bool(numbers) is bool(said)
    for regime in ("counts", "isolated"):  # in which no model leaves
        quiet = replace(terms, spec=replace(terms.spec, regime=as_regime(regime)))
        assert limits.objection_to_training(quiet, models) == ("", "")


def test_no_run_is_entered_twice(tmp_path):
    records = RunRecords(tmp_path / "state")
    record = records.open(TERMS.run_id, 60)
    assert record.finish(DONE, "12 rows flagged")
    assert not record.finish(FAILED, "too late to matter")
    with pytest.raises(ReplayedMessageError, match="was here before"):
        records.open(TERMS.run_id, 60)
    (run,) = records.runs()
    assert (run["state"], run["message"]) == (DONE, "12 rows flagged")


def test_a_refusal_is_entered_and_uses_up_no_id(tmp_path):
    records = RunRecords(tmp_path)
    for job in ("job 1", "job 2"):
        records.refuse(TERMS.run_id, "level 3/10 is above the 1/5", job)
    records.open(TERMS.run_id, 60, "job 3")
    assert [run["state"] for run in records.runs()] == ["refused", "refused", "running"]
    assert records.knows("job 1")
    assert records.knows("job 3")
    assert not records.knows("job 4")


def test_a_run_without_a_process_is_buried(tmp_path):
    records = RunRecords(tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    records.open("0" * 32, 60).note(pid=ended.pid)
    late = records.open("1" * 32, 60)
    late.note(deadline=time.time() - 3600)
    records.open("2" * 32, 60)
    assert {run["run_id"][0] for run in records.close_ended()} == {"0", "1"}
    assert {run["run_id"][0]: run["state"] for run in records.runs()} == {
        "0": "failed",
        "1": "failed",
        "2": "running",
    }


FAMILY = """
import subprocess, sys, time
child = "import time; print('up', flush=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
time.sleep(600)
"""


@pytest.mark.parametrize("end", [processes.stop_tree, processes.kill_tree])
def test_a_process_ends_with_all_it_began(end):
    parent = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE)
    parent.stdout.readline()
    (child,) = processes.descendants(parent.pid)
    assert parent.pid in processes.find("subprocess.Popen", "time.sleep(600)")
    assert parent.pid not in processes.find("subprocess.Popen", "no such word")
    assert os.getsid(child) == child  # a session of its own, as NVFlare's workers have
    end(parent.pid)
    parent.wait(10)
    assert processes.wait_for(lambda: not processes.is_running(child), 10)
    assert processes.descendants(parent.pid) == []
