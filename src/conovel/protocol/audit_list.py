"""Deriving again what a network published about its list over several batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from conovel.spec.guarantee import network_over_time
from conovel.spec.run_spec import RunSpec
from conovel.stats.batches import NETWORK_SHARE
from conovel.stats.levels import as_level


def list_findings(run: Mapping[str, Any], spec: RunSpec) -> Iterator[str]:
    """Check the list so far of a network: its level, its guarantee, and its counts.

    Parameters
    ----------
    run : mapping
        What :meth:`conovel.NetworkRun.to_dict` wrote of a network with a ledger.
    spec : RunSpec
        The settings of the run of the batch, at half the level.
    """
    told = run["ledger"]
    level = as_level(told["level"])
    if level * NETWORK_SHARE != spec.level or told["level"] != str(level):
        yield f"the batch ran at level {spec.level}, which is not half of {told['level']}"
    elif told["guarantee"] != network_over_time(replace(spec, level=level)):
        yield "the guarantee of the list is not that of these settings"
    yield from _count_findings(told["rounds"], told["sites"])
    if len({(site["batch"], type(site["batch"])) for site in told["sites"].values()}) != 1:
        yield "the agents do not tell the same number of batches"


def _count_findings(
    rounds: list[Mapping[str, Any]], sites: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    counts = [one["counts"] for one in rounds]
    numbers = [n for part in counts for n in part.values()] + [one["k"] for one in rounds]
    if not rounds or any(type(n) is not int or n < 0 for n in numbers):
        yield "the counts of the list are no numbers of rows"
        return
    if any(set(part) != set(sites) for part in counts):
        yield "the counts of the list are not those of its agents"
        return
    totals = [sum(part.values()) for part in counts]
    if [one["k"] for one in rounds[1:]] != totals[:-1]:
        yield "a question about the list does not follow from the counts before it"
    if any(after[name] > before[name] for before, after in pairwise(counts) for name in before):
        yield "a count of the list rises while k falls"
    if totals[-1] not in (0, rounds[-1]["k"]):
        yield "the counts of the list end before they stay"
    for name, site in sites.items():
        if type(site["n_listed"]) is not int or site["n_listed"] != counts[-1][name]:
            yield f"{name} lists {site['n_listed']} rows and counts {counts[-1][name]}"
