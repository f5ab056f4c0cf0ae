"""One run of a network in one process: the real protocol, real bytes, no transport.

Every agent is a :class:`~conovel.protocol.agent.Agent` over its own rows. What it carries from one
machine to the next is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from conovel.deciding.folds import agreed_of
from conovel.deciding.ways import guarantee
from conovel.models.wire.header import VERSION as WIRE_VERSION
from conovel.protocol import agent as protocol
from conovel.protocol.coordinator import Coordinator
from conovel.protocol.transcript import Transcript
from conovel.rows.tables import pool_pairs
from conovel.runs.agents import AgentRows, open_sites
from conovel.runs.carrying import Phase, carry, raise_first_fault
from conovel.runs.checks import warn_thin
from conovel.runs.results import NetworkRun
from conovel.runs.site_results import decide
from conovel.site.blocks import Ranked
from conovel.site.site import Site
from conovel.spec.consensus import Agreed
from conovel.spec.guarantee import Guarantee
from conovel.spec.run_spec import RunSpec
from conovel.spec.seeds import nonce_of, run_id_of
from conovel.spec.version import __version__
from conovel.stats.cells import N_CELLS
from conovel.stats.stepup import step_up


def run_network(
    spec: RunSpec,
    members: Mapping[str, AgentRows],
    vanishing: Mapping[str, Phase] = MappingProxyType({}),
    tell: Callable[[str], None] = lambda _: None,
) -> NetworkRun:
    """Run once on rows that are read: agents and coordinator exchange messages to the end.

    Parameters
    ----------
    spec : RunSpec
        What all agents agree on; `repeats` is 1.
    members : mapping of AgentRows
        The agents by name, see :func:`conovel.runs.agents.read_agents`.
    vanishing : mapping of {"hello", "models", "counts"}
        Agents that vanish, and when.
    tell : callable
        Called with what is going on.
    """
    sites = open_sites(spec, members)
    warn_thin(spec, sites)
    if not spec.regime.deployable:
        return _run_pooled(spec, members, sites, tell)
    run_id = run_id_of(spec, sites)
    coordinator = Coordinator(list(sites), spec=spec, run_id=run_id)
    machines = {
        name: protocol.Agent(
            name,
            spec=spec,
            run_id=run_id,
            software=__version__,
            wire_version=WIRE_VERSION,
            nonce=nonce_of(run_id, name),
        )
        for name in sites
    }
    transcript = carry(coordinator, machines, sites, dict(vanishing), tell)
    raise_first_fault(machines)
    outcome = coordinator.outcome
    lost = tuple(name for name in sites if name not in outcome.participants)
    none = N_CELLS if spec.regime.decides_by_cells else 0  # rejects no row
    limits = {name: none if name in lost else machines[name].limit for name in sites}
    losses = {"left_out": outcome.left_out, "dropped": outcome.dropped}
    promise = guarantee(spec, **losses, uncovered=transcript.uncovered)
    floors = {name: machine.floor for name, machine in machines.items()}
    agreed = agreed_of(outcome)
    return _result(spec, members, sites, limits, transcript, promise, lost, floors, agreed)


def _run_pooled(
    spec: RunSpec,
    members: Mapping[str, AgentRows],
    sites: Mapping[str, Site],
    tell: Callable[[str], None],
) -> NetworkRun:
    """Pool all rows and run AdaDetect once (Baseline 1); in simulations only."""
    tell("pooling all rows")
    first = next(iter(sites.values()))
    # All rows are compared with all: one representation for everybody's.
    null, test = pool_pairs(
        [(site.null.in_memory(), site.test.in_memory()) for site in sites.values()]
    )
    pool = Site(null, test, replace(first.work, n_agents=1))
    pool.ranks({})
    outcome = step_up([(pool.test_ranks, pool.n_calibration)], spec.level, spec.pi0)
    stops = np.cumsum([len(site.test) for site in sites.values()])[:-1]
    shares = zip(np.split(pool.scores, stops), np.split(pool.test_ranks, stops), strict=True)
    for site, (scores, ranks) in zip(sites.values(), shares, strict=True):
        tested = np.ones(ranks.size, dtype=np.bool_)
        site.ranked = Ranked.of(tested, pool.calibration_scores, scores, ranks)
        site.choices, site.explainer = pool.choices, pool.explainer
    limits = dict.fromkeys(sites, outcome.limits[0])
    return _result(spec, members, sites, limits, Transcript(spec=spec), guarantee(spec))


def _result(
    spec: RunSpec,
    members: Mapping[str, AgentRows],
    sites: Mapping[str, Site],
    limits: Mapping[str, int],
    transcript: Transcript,
    promise: Guarantee,
    lost: tuple[str, ...] = (),
    floors: Mapping[str, int] = MappingProxyType({}),
    agreed: Agreed | None = None,
) -> NetworkRun:
    results = {
        name: decide(
            site,
            limits[name],
            members[name].ids,
            name,
            floors.get(name, 0),
            None if name in lost else agreed,
        )
        for name, site in sites.items()
    }
    n_null = {name: len(site.null) for name, site in sites.items()}
    return NetworkRun(results, transcript, promise, spec, n_null, lost)
