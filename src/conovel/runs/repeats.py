"""A network that runs B times and decides once: e-BH by counts on the averaged evidence.

Every agent learns R_b, the rejections over all agents, from the outcome of run b, and knows which
of its own rows were rejected in it. So it can answer how many of its rows have E ≥ m/(αk).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from conovel.deciding.isolated import ISOLATED
from conovel.deciding.ways import guarantee, ways_of
from conovel.errors import ConovelWarning, SiteVanishedError
from conovel.runs.agents import AgentRows
from conovel.runs.network_run import Phase, run_network
from conovel.runs.one_site import in_run
from conovel.runs.results import NetworkRun
from conovel.runs.site_results import with_part
from conovel.spec.run_spec import RunSpec, as_agent_seed, repeat_seeds, repeated_specs
from conovel.stats.repeats import combine


@contextmanager
def once_warned(b: int) -> Iterator[None]:
    """Silence our warnings in all runs but the first: rows and numbers are the same in all."""
    with warnings.catch_warnings():
        if b:
            warnings.simplefilter("ignore", ConovelWarning)
        yield


def run_repeatedly(
    spec: RunSpec,
    members: Mapping[str, AgentRows],
    vanishing: Mapping[str, Phase],
    tell: Callable[[str], None],
) -> NetworkRun:
    """Run the whole protocol B times on rows that are read, and decide on the averaged evidence.

    An agent that has a seed of its own gets B seeds from it, as the network does from its seed.
    """
    runs = []
    for b, one in enumerate(repeated_specs(spec)):
        seeded = {
            name: replace(member, seed=_seed(member, b, spec.repeats))
            for name, member in members.items()
        }
        with once_warned(b):
            runs.append(run_network(one, seeded, vanishing, in_run(tell, b, spec.repeats)))
        if lost := runs[-1].lost:
            raise SiteVanishedError(
                f"{', '.join(lost)} vanished in run {b + 1} of {spec.repeats}: with repeats a run"
                " in which an agent vanishes is broken off as a whole",
                lost[0],
            )
    return _decided(spec, runs)


def _seed(member: AgentRows, b: int, repeats: int) -> int | None:
    return None if member.seed is None else repeat_seeds(as_agent_seed(member.seed), repeats)[b]


def _decided(spec: RunSpec, runs: Sequence[NetworkRun]) -> NetworkRun:
    first = runs[0]
    averaged = combine(
        {name: np.array([run[name].rejected for run in runs]) for name in first},
        {name: int(site.tested.sum()) for name, site in first.items()},
        spec.test_level(len(first)),
        [run.spec.seed for run in runs],
        spec.averaging,
        {name: site.n_calibration for name, site in first.items()},
        alone=ways_of(spec.regime).deciding is ISOLATED,  # nobody learns there what others reject
    )
    sites = {
        name: with_part(site, "repeats", averaged.parts[name], rejected=averaged.rejected[name])
        for name, site in first.items()
    }
    return replace(
        first,
        sites=sites,
        guarantee=guarantee(spec, uncovered=first.transcript.uncovered),
        spec=spec,
        runs=tuple(runs),
        evidence_rounds=averaged.rounds,
    )
