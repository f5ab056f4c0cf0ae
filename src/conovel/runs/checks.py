"""The checks of all agents of a network: each looks at its own rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from conovel.errors import ResolutionWarning
from conovel.rows.tables import as_ids
from conovel.runs.agents import Agent
from conovel.runs.results import NetworkRun
from conovel.site.checks.rows import Looked, check_rows, with_findings
from conovel.site.site import Site
from conovel.spec.consensus import types_of
from conovel.spec.findings import Finding
from conovel.spec.groups import Numbers, can_reject, planned_calibration
from conovel.spec.run_spec import RunSpec
from conovel.spec.thin_calibration import thin_findings, thin_groups
from conovel.stats.consensus import MIXED
from conovel.stats.resolution import warn_resolution


def check_sites(
    spec: RunSpec,
    agents: Sequence[Agent],
    sites: Mapping[str, Site],
    note: Callable[[Finding], None],
) -> dict[str, list[Finding]]:
    """Let every agent look at its rows before anything is learnt; give findings by agent."""
    thin, found = _thin(spec, sites), {}
    for agent in agents:
        site = sites[agent.name]
        looked = Looked.of(site.null, site.test)
        found[agent.name] = check_rows(
            looked,
            looked.some(as_ids(agent.ids, len(site.test))),
            partial(_note_of, note, agent.name),
            thin.get(agent.name),
            n_agents=len(sites),
        )
    return found


def with_checks(
    run: NetworkRun, sites: Mapping[str, Site], found: Mapping[str, Sequence[Finding]]
) -> NetworkRun:
    """Give the results of a run the findings of before, and those about their decisions."""
    results = {
        name: with_findings(result, found[name], Looked.of(sites[name].null, sites[name].test))
        for name, result in run.sites.items()
    }
    return replace(run, sites=results)


def warn_thin(spec: RunSpec, sites: Mapping[str, Site]) -> None:
    """Warn, before any work, when no row of any agent can be rejected."""
    if spec.regime.pools_calibration:
        _warn_groups(spec, _numbers(sites))
        return
    if spec.regime.composite_null:
        _warn_types(spec, _numbers(sites))
        return
    blocks = list(_planned(spec, sites).values())
    if spec.regime.divides_level:  # each decides alone: warn when not even the largest can
        blocks = [max(blocks, key=lambda block: block[1])]
    if spec.pi0 is None:
        warn_resolution(blocks, spec.test_level(len(sites)))


def _warn_groups(spec: RunSpec, agents: Mapping[str, Numbers]) -> None:
    """Warn when no group of the regime `joint` has enough calibration rows for its tests."""
    n_agents = len(agents)
    if can_reject(agents, spec, n_agents):
        return
    size = sum(planned_calibration(rows, spec, n_agents) for rows in agents.values())
    warnings.warn(
        f"no row can be rejected at level {spec.level} in the regime {spec.regime.name!r}: {size}"
        f" calibration rows of {n_agents} agents are too few for"
        f" {sum(rows.n_test for rows in agents.values())} tests. Add known normals or agents, or"
        " lower train_fraction",
        ResolutionWarning,
        stacklevel=2,
    )


def _warn_types(spec: RunSpec, agents: Mapping[str, Numbers]) -> None:
    """Warn when the type with the fewest calibration rows keeps everybody from rejecting."""
    n_agents, n_tests = len(agents), sum(rows.n_test for rows in agents.values())
    types = types_of(agents, spec, n_agents)
    sizes = [planned_calibration(agents[name], spec, n_agents) for name in types]
    warn_resolution([(n_tests, min(sizes, default=0))], spec.level * MIXED[0][1])


def _thin(spec: RunSpec, sites: Mapping[str, Site]) -> dict[str, Finding]:
    if spec.regime.pools_calibration:
        return thin_groups(spec, _numbers(sites))
    return thin_findings(spec, _planned(spec, sites))


def _numbers(sites: Mapping[str, Site]) -> dict[str, Numbers]:
    return {name: Numbers(*site.facts[:2]) for name, site in sites.items()}


def _planned(spec: RunSpec, sites: Mapping[str, Site]) -> dict[str, tuple[int, int]]:
    """Return the tests and the calibration rows that each agent will have."""
    n = len(sites)
    return {
        name: (spec.regime.n_tested(len(site.test), i, n), site.n_calibration_planned(n))
        for i, (name, site) in enumerate(sites.items())
    }


def _note_of(note: Callable[[Finding], None], name: str, finding: Finding) -> None:
    note(finding.of_agent(name))
