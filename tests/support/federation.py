"""The federation that tests run on, and the same network in one process."""

from dataclasses import replace

import pyarrow as pa

import conovel as cn
from conovel.federation.processes import OWN_SEED_FILE
from conovel.federation.run_records import own_secret
from conovel.spec.run_spec import run_id_of, site_seed

SITES = ("north", "south", "west")
SCORER = "logistic"


def give_secret(state, number):
    """Write the secret of a site before it makes one."""
    state.mkdir(exist_ok=True)
    (state / OWN_SEED_FILE).write_text(f"{number:02x}" * 32)


def in_one_process(rows, states, seed, run_id=None, **more):
    """A network in this process whose agents have the secrets of the sites in these folders.

    Without the id of a run, it has its own.
    """
    more = {"min_group_rows": None} | more  # as sites have it by default
    agents = []
    for name, pair in rows.items():
        tables = (part if isinstance(part, pa.Table) else pa.table(part) for part in pair)
        agents.append(cn.Agent(name, *tables))
    run_id = run_id or run_id_of_network(cn.Network(agents, random_state=seed, **more))
    secrets = {name: own_secret(state) for name, state in states.items()}
    own = [replace(a, seed=site_seed(secrets[a.name], seed, a.name, run_id)) for a in agents]
    return cn.Network(own, random_state=seed, **more)


def run_id_of_network(network):
    """The id, in hexadecimal digits, that a run of this network has."""
    return run_id_of(network.spec(), [agent.name for agent in network.agents]).hex()
