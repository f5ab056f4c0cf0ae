"""The checks of all agents of a network: each looks at its own rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from conovel.deciding.ways import ways_of
from conovel.rows.tables import as_ids
from conovel.runs.agents import Agent
from conovel.runs.results import NetworkRun
from conovel.site.checks.rows import CheckedRows, check_rows, with_findings
from conovel.site.site import Site
from conovel.spec.findings import Finding
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers


def check_sites(
    spec: RunSpec,
    agents: Sequence[Agent],
    sites: Mapping[str, Site],
    note: Callable[[Finding], None],
) -> dict[str, list[Finding]]:
    """Let every agent look at its rows before anything is learnt; give findings by agent."""
    thin, findings = _thin(spec, sites), {}
    for agent in agents:
        site = sites[agent.name]
        checked = CheckedRows.of(site.null, site.test)
        findings[agent.name] = check_rows(
            checked,
            checked.entries_of(as_ids(agent.ids, len(site.test))),
            partial(_note_of, note, agent.name),
            thin.get(agent.name),
            n_agents=len(sites),
        )
    return findings


def with_checks(
    run: NetworkRun, sites: Mapping[str, Site], findings: Mapping[str, Sequence[Finding]]
) -> NetworkRun:
    """Give the results of a run the findings of before, and those about their decisions."""
    results = {
        name: with_findings(
            result, findings[name], CheckedRows.of(sites[name].null, sites[name].test)
        )
        for name, result in run.sites.items()
    }
    return replace(run, sites=results)


def warn_thin(spec: RunSpec, sites: Mapping[str, Site]) -> None:
    """Warn, before any work, when no row of any agent can be rejected."""
    deciding = ways_of(spec.regime).deciding
    deciding.warn_thin(spec, _numbers(sites), _planned(spec, sites))


def _thin(spec: RunSpec, sites: Mapping[str, Site]) -> dict[str, Finding]:
    deciding = ways_of(spec.regime).deciding
    return deciding.thin(spec, _numbers(sites), _planned(spec, sites))


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
