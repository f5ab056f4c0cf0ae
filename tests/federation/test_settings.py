"""The files people edit, the terms of a run, consent and the ledger: nothing unknown passes."""

import inspect
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.errors import ConovelError, FileError, InputError, ReplayedMessageError
from conovel.federation import processes
from conovel.federation.consent import Limits
from conovel.federation.ledger import DONE, FAILED, Ledger
from conovel.federation.settings import read_federation, read_site
from conovel.federation.terms import Terms
from conovel.network import Network

SITE = """
[site]
name = "north"
kit = "kit"
[data]
null = "n.parquet"
test = "t.csv"
"""
TERMS = Terms(("north", "south"))
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


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[consent]\nmax_levl = 0.1", "[consent] has no key 'max_levl'"),
        ("[consents]\n", "there is no table [consents]"),
        ("[consent]\nmin_agents = true", "min_agents in [consent] cannot be True"),
        ("[consent]\nmin_agents = 1", "min_agents must be a number from 2"),
        ("[consent]\nregimes = ['pooled']", "pools raw rows"),
        ("[consent]\nmax_level = 2", "level"),
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
    for name in ("regime", "composite", "bits", "on_dropout"):
        assert getattr(TERMS, name) == network[name].default, name
    assert TERMS.share is network["train_fraction"].default is None


def test_terms_give_every_agent_the_seed_that_a_network_gives_it():
    import numpy as np

    expected = np.random.SeedSequence(7).generate_state(2).tolist()
    terms = Terms(("south", "north"), seed=7)
    assert [terms.seed_of("north"), terms.seed_of("south")] == expected


def test_every_run_has_an_id_of_its_own():
    assert Terms(("a", "b")).run_id != Terms(("a", "b")).run_id


@given(key=st.sampled_from([*TERMS.to_dict(), "path", "class"]), value=JSON)
def test_terms_from_anybody_are_read_or_refused(key, value):
    plain = TERMS.to_dict() | {key: value}
    try:
        terms = Terms.from_dict(plain)
    except ConovelError:
        return
    assert key in TERMS.to_dict()
    assert Terms.from_dict(terms.to_dict()) == terms


@pytest.mark.parametrize("plain", [None, [], {"agents": ["a", "b"]}, {"run_id": "0" * 32}])
def test_terms_that_lack_something_are_refused(plain):
    with pytest.raises(InputError):
        Terms.from_dict(plain)


def test_a_deployment_refuses_to_pool_rows():
    with pytest.raises(InputError, match="pools raw rows"):
        Terms(("a", "b"), regime="pooled")


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(), ""),
        (Limits(regimes=("counts",)), "regime 'full' is not among"),
        (Limits(max_level="1/20"), "level 1/10 is above the 1/20"),
        (Limits(min_agents=3), "a run of 2 agents is too small"),
        (Limits(max_seconds=60), "a run of up to 3600 s is too long"),
    ],
)
def test_consent_has_a_reason(limits, said):
    objection = limits.objection(TERMS)
    assert said in objection
    assert bool(objection) is bool(said)


def test_no_run_is_entered_twice(tmp_path):
    ledger = Ledger(tmp_path / "state")
    record = ledger.open(TERMS.run_id, 60)
    assert record.finish(DONE, "12 rows flagged")
    assert not record.finish(FAILED, "too late to matter")
    with pytest.raises(ReplayedMessageError, match="was here before"):
        ledger.open(TERMS.run_id, 60)
    (run,) = ledger.runs()
    assert (run["state"], run["message"]) == (DONE, "12 rows flagged")


def test_a_refusal_is_entered_and_uses_up_no_id(tmp_path):
    ledger = Ledger(tmp_path)
    for job in ("job 1", "job 2"):
        ledger.refuse(TERMS.run_id, "level 3/10 is above the 1/5", job)
    ledger.open(TERMS.run_id, 60, "job 3")
    assert [run["state"] for run in ledger.runs()] == ["refused", "refused", "running"]
    assert ledger.knows("job 1")
    assert ledger.knows("job 3")
    assert not ledger.knows("job 4")


def test_a_run_without_a_process_is_buried(tmp_path):
    ledger = Ledger(tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    ledger.open("0" * 32, 60).note(pid=ended.pid)
    late = ledger.open("1" * 32, 60)
    late.note(deadline=time.time() - 3600)
    ledger.open("2" * 32, 60)
    assert {run["run_id"][0] for run in ledger.bury()} == {"0", "1"}
    assert {run["run_id"][0]: run["state"] for run in ledger.runs()} == {
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
    assert os.getsid(child) == child  # a session of its own, as NVFlare's workers have
    end(parent.pid)
    parent.wait(10)
    assert processes.wait_for(lambda: not processes.is_running(child), 10)
