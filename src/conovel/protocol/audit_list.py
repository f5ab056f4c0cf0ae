"""Deriving again what a network published about its list over several batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from conovel.spec.guarantee import network_over_time
from conovel.spec.listing import of_list
from conovel.spec.run_spec import RunSpec
from conovel.stats.batches import NETWORK_SHARE
from conovel.stats.levels import as_level


def list_findings(run: Mapping[str, Any], spec: RunSpec) -> Iterator[str]:
    """Check the list so far of a network: its name, level and guarantee, and its counts.

    Parameters
    ----------
    run : mapping
        What :meth:`conovel.NetworkRun.to_dict` wrote of a network with a ledger, the account of a
        coordinator, or the record of a site. Without a ledger, that none is named.
    spec : RunSpec
        The settings of the run of the batch, at half the level.
    """
    named = run["terms"].get("list_name", "") if "terms" in run else None
    if "ledger" not in run:
        if named:
            yield "the terms name a list, and there is none"
        return
    told = run["ledger"]
    if named is not None and (told["list"] != named or not named):
        yield "the list is not that of the terms"
    level = as_level(told["level"])
    if level * NETWORK_SHARE != spec.level or told["level"] != str(level):
        yield f"the batch ran at level {spec.level}, which is not half of {told['level']}"
    elif told["guarantee"] != str(network_over_time(of_list(spec))):
        yield "the guarantee of the list is not that of these settings"
    is_of_one_site = run.get("command") == "agent"
    yield from _count_findings(told["rounds"], told["sites"], is_of_one_site)
    if len({(site["batch"], type(site["batch"])) for site in told["sites"].values()}) != 1:
        yield "the agents do not tell the same number of batches"
    if "n_listed_in_all" in told:
        yield from _total_findings(told, is_of_one_site)


def _count_findings(
    rounds: list[Mapping[str, Any]], sites: Mapping[str, Mapping[str, Any]], is_of_one_site: bool
) -> Iterator[str]:
    counts, asked = [one["counts"] for one in rounds], [one["k"] for one in rounds]
    numbers = [n for part in counts for n in part.values()] + asked
    if not rounds or any(type(n) is not int or n < 0 for n in numbers):
        yield "the counts of the list are no numbers of rows"
        return
    if any(set(part) != set(sites) for part in counts):
        yield "the counts of the list are not those of its agents"
        return
    totals = [sum(part.values()) for part in counts]
    if is_of_one_site:  # it does not know what the others counted
        falls = all(
            own <= k < before for k, before, own in zip(asked[1:], asked, totals, strict=False)
        )
        if not falls:
            yield "k does not fall, to the sum of counts, between questions about the list"
    elif asked[1:] != totals[:-1]:
        yield "a question about the list does not follow from the counts before it"
    elif totals[-1] not in (0, asked[-1]):
        yield "the counts of the list end before they stay"
    if any(after[name] > before[name] for before, after in pairwise(counts) for name in before):
        yield "a count of the list rises while k falls"
    for name, site in sites.items():
        if type(site["n_listed"]) is not int or site["n_listed"] != counts[-1][name]:
            yield f"{name} lists {site['n_listed']} rows and counts {counts[-1][name]}"


def _total_findings(told: Mapping[str, Any], is_of_one_site: bool) -> Iterator[str]:
    """Check how many rows are on the list over all agents."""
    total, last = told["n_listed_in_all"], told["rounds"][-1]
    own = sum(last["counts"].values())
    fits = total in (0, last["k"]) and own <= total if is_of_one_site else total == own
    if type(total) is not int or not fits:
        yield f"{total} rows are told to be on the list of all agents"
