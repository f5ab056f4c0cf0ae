"""The federation that tests run on, and the same network in one process."""

import pyarrow as pa

import conovel as cn
from conovel.drivers.nvflare.paths import OWN_SEED_FILE
from conovel.drivers.nvflare.secret import own_secret
from conovel.spec.seeds import run_id_of, site_seed

SITES = ("north", "south", "west")
SCORER = "logistic"


def give_secret(state, number):
    """Write the secret of a site before it makes one."""
    state.mkdir(exist_ok=True)
    (state / OWN_SEED_FILE).write_text(f"{number:02x}" * 32)


def in_one_process(rows, states, seed, **more):
    """A network in this process whose agents have the secrets of the sites in these folders."""
    agents = []
    for name, (null, test) in rows.items():
        own = site_seed(own_secret(states[name]), seed, name)
        tables = (part if isinstance(part, pa.Table) else pa.table(part) for part in (null, test))
        agents.append(cn.Agent(name, *tables, seed=own))
    return cn.Network(agents, random_state=seed, **more)


def run_id_of_network(network):
    """The id, in hexadecimal digits, that a run of this network has."""
    return run_id_of(network.spec(), [agent.name for agent in network.agents]).hex()
