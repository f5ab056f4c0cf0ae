"""Computing again what was decided without messages: at one site, over runs, over batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.deciding.asking import Count
from conovel.deciding.ways import guarantee, network_over_time
from conovel.errors import ConovelError, CountRisingError, InputError
from conovel.learning.base import State
from conovel.protocol.listing import ListingAgent, ListingCoordinator
from conovel.protocol.messages import encode
from conovel.protocol.states import Machine
from conovel.protocol.transcript import Transcript
from conovel.spec.bodies import COORDINATOR, Body, History, Listed, Listing, Message
from conovel.spec.guarantee import (
    Guarantee,
    kept_score,
    over_time,
    this_list,
    with_lots,
    with_verdicts,
)
from conovel.spec.guarantee import one_site as one_site_guarantee
from conovel.spec.run_spec import RunSpec, of_list, repeated_specs
from conovel.stats.batches import NETWORK_SHARE
from conovel.stats.certified import certificate_numbers, site_bounds
from conovel.stats.conditional import Conditional
from conovel.stats.levels import as_level, as_repeats
from conovel.stats.null_proportion import as_estimator
from conovel.stats.ranks import as_block
from conovel.stats.repeats import (
    Combined,
    averaging_of,
    combine,
    read_flags,
    repeated_resolution,
    run_level,
)
from conovel.stats.resolution import rank_limit, resolution
from conovel.stats.stepup import RankHistogram, step_up, within_limit
from conovel.stats.words import briefly

_MOST_CALIBRATION = 2**27  # a file that says more would take the memory

_RUN_ID = bytes(16)  # of a list: its rounds do not depend on it
_DIGEST = bytes(32)


def differences(published: Any, follows: Any, path: str = "") -> Iterator[str]:
    """Compare JSON values, in which 1, 1.0 and true are different ones; name what differs.

    Of a list of numbers, the first that differs.
    """
    if json.dumps(published, sort_keys=True) == json.dumps(follows, sort_keys=True):
        return
    both, is_list = (published, follows), isinstance(published, list)
    if is_list and isinstance(follows, list) and len(published) == len(follows):
        both = dict(enumerate(published)), dict(enumerate(follows))
    if all(isinstance(value, dict) for value in both):
        for key in sorted(both[0].keys() | both[1].keys()):
            inner = both[0].get(key), both[1].get(key)
            findings = [*differences(*inner, f"{path}.{key}" if path else str(key))]
            yield from findings
            if findings and is_list and not isinstance(inner[0], dict):
                return
    else:
        yield f"{path} is {briefly(published)}, and follows to be {briefly(follows)}"


def one_site_findings(run: Mapping[str, Any]) -> Iterator[str]:
    """Check the numbers of one site's detection, and its decisions if there are ranks."""
    level, k = as_level(run["level"]), run["n_rejected"]
    size, m, largest = run["n_calibration"], run["n_test"], run["largest_rejected_rank"]
    if not _are_numbers((k, size, m, largest, run["n_train"])):
        yield "numbers of rows must be whole numbers from 0 on"
        return
    adjusted = _conditional(run, size)
    need = resolution(size, m, level) if adjusted is None else adjusted.resolution(m, level)
    yield from differences(
        run["fewest_rejections_possible"], need.fewest, "fewest_rejections_possible"
    )
    decided_by_bh = run["pi0"] is None and "ledger" not in run and not _is_certified(run)
    if not 0 <= k <= m or (k == 0) != (largest == 0) or largest > size + 1:
        yield f"{k} of {m} rows up to rank {largest} among {size} cannot be rejected"
    elif decided_by_bh and k and largest > _limit(adjusted, level / m, k, size):
        yield f"rank {largest} is not within the limit of {k} rejections"
    if "ranks" in run:
        yield from _row_findings(run, level, adjusted, decided_by_bh=decided_by_bh)
    if run["guarantee"] not in [_stated(run, one) for one in _possible_guarantees(run, level)]:
        yield "the guarantee is not that of these settings"


def _row_findings(
    run: Mapping[str, Any], level: Fraction, adjusted: Conditional | None, *, decided_by_bh: bool
) -> Iterator[str]:
    """Check the decisions of one site against its ranks."""
    k, size = run["n_rejected"], run["n_calibration"]
    m, largest = run["n_test"], run["largest_rejected_rank"]
    ranks, _ = as_block(run["ranks"], size)
    rejected = np.asarray(run["rejected"])
    if ranks.size != m or not np.array_equal(rejected, within_limit(ranks, largest)):
        yield f"the rejected rows are not those up to rank {largest}"
    elif largest != ranks[rejected].max(initial=0):
        yield f"the largest rejected rank is not {largest}"
    yield from differences(k, int(rejected.sum()), "n_rejected")
    if not np.array_equal(np.asarray(run["p_values"]), ranks / (size + 1)):
        yield f"the p-values are not those of {size} calibration rows"
    if decided_by_bh and _n_rejected(adjusted, ranks, size, level) != rejected.sum():
        yield f"the step-up at level {level} rejects another number of rows"
    yield from _certificate_findings(run, RankHistogram(ranks, size), level, largest)


def _certificate_findings(
    run: Mapping[str, Any], histogram: RankHistogram, level: Fraction, largest: int
) -> Iterator[str]:
    """Check the certificate of one site, and the list that a confidence asked for."""
    if _is_certified(run):
        last = 1 + site_bounds(histogram, run["confidence"]).last_place(level)
        if histogram.at_most(last) != histogram.at_most(largest):
            yield f"the list with confidence {run['confidence']} has the ranks up to {last}"
    if "certificate" in run:
        bounds = site_bounds(histogram, run["certificate"]["confidence"])
        flagged = histogram.smallest(np.arange(1, run["n_rejected"] + 1)) - 1
        sure = as_level(run["certificate"]["confidence"], "confidence")
        follows = certificate_numbers(bounds, flagged, histogram.size, sure)
        yield from differences(run["certificate"], follows, "certificate")


def _is_certified(run: Mapping[str, Any]) -> bool:
    """Tell whether a certificate chose the list; a detector's confidence is about its p-values."""
    return "confidence" in run and "detector" not in run


def _conditional(run: Mapping[str, Any], size: int) -> Conditional | None:
    """Return the p-values of a detector that has a confidence."""
    if "confidence" not in run or "detector" not in run:
        return None
    if size > _MOST_CALIBRATION:
        raise InputError(f"n_calibration is {size}: that many rows are not computed again")
    return Conditional(size, as_level(run["confidence"], "confidence"))


def _limit(adjusted: Conditional | None, slope: Fraction, k: int, size: int) -> int:
    return rank_limit(slope, k, size) if adjusted is None else adjusted.limit(slope, k)


def _n_rejected(
    adjusted: Conditional | None, ranks: NDArray[np.int64], size: int, level: Fraction
) -> int:
    if adjusted is not None:
        return adjusted.step_up(ranks, level).n_rejected
    return step_up([(ranks, size)], level, None).n_rejected


def _possible_guarantees(run: Mapping[str, Any], level: Fraction) -> list[Guarantee]:
    """Return the guarantees that a result of one site with these settings may state."""
    if "ledger" in run:
        score = "kept" if "detector" in run else "refitted"
        return [over_time(level, score, final=final) for final in (False, True)]
    if "detector" in run:
        size = run["n_calibration"]
        if (adjusted := _conditional(run, size)) is not None:
            return [kept_score(level, size, adjusted.confidence)]
        return [kept_score(level, size), kept_score(level)]
    if run["pi0"] is None:
        plain = one_site_guarantee(level, None)
        sure = run.get("confidence")
        return [plain if sure is None else this_list(plain, level, as_level(sure, "confidence"))]
    return [one_site_guarantee(level, as_estimator(pi0)) for pi0 in ("storey", "quantile")]


def _stated(run: Mapping[str, Any], promise: Guarantee) -> dict[str, Any]:
    """Return a guarantee as a result states it; a score that learnt from verdicts needs more."""
    if run.get("ties") == "random":
        promise = with_lots(promise)
    verdicts = run.get("verdicts")
    if isinstance(verdicts, Mapping) and verdicts.get("batches"):
        promise = with_verdicts(promise)
    return {"statement": promise.statement, "assumptions": [*promise.assumptions]}


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(type(n) is int and n >= 0 for n in values)


def repeated_site_findings(run: Mapping[str, Any]) -> Iterator[str]:
    """Check the numbers of one site's repeated detection, and its decisions if there are rows."""
    level, of_runs, m = as_level(run["level"]), run["repeats"], run["n_test"]
    sizes, seeds = of_runs["n_rejected"], of_runs["seeds"]
    repeats = as_repeats(len(sizes))
    numbers = (m, run["n_rejected"], run["n_calibration"], run["n_train"], *sizes)
    if not _are_numbers(numbers) or max(run["n_rejected"], *sizes) > m:
        yield "numbers of rows must be whole numbers from 0 on, and not more than were tested"
        return
    if repeats == 1 or len(seeds) != repeats:
        yield f"there are {len(seeds)} seeds of {repeats} runs"
    rule = averaging_of(level, as_level(of_runs["level"]))
    if str(rule.share) not in ("2/5", "1/2", "3/5"):
        yield f"no run of {repeats} has the level {of_runs['level']}"
        return
    fewest = repeated_resolution(run["n_calibration"], m, level, rule).fewest
    yield from differences(of_runs["level"], str(run_level(level, rule)), "repeats.level")
    yield from differences(run["fewest_rejections_possible"], fewest, "fewest_rejections_possible")
    if run["guarantee"] != _stated(run, one_site_guarantee(level, None, repeats, rule)):
        yield "the guarantee is not that of these settings"
    if "flagged_in_runs" not in run:
        return
    flags = read_flags(run["flagged_in_runs"], repeats)
    if flags.shape[1] != m:
        yield f"there are {flags.shape[1]} rows, and {m} were tested"
        return
    together = combine({"": flags}, {"": m}, level, seeds, rule, {"": run["n_calibration"]})
    part, rejected = together.parts[""], together.rejected[""]
    yield from differences(sizes, list(part.n_rejected), "repeats.n_rejected")
    yield from differences(run["times_flagged"], part.times_flagged.tolist(), "times_flagged")
    yield from differences(run["rejected"], rejected.tolist(), "rejected")
    yield from differences(run["n_rejected"], int(rejected.sum()), "n_rejected")
    if not np.array_equal(np.asarray(run["e_values"]), part.e_values):
        yield "the e-values are not those of the runs"


def repeated_findings(
    run: Mapping[str, Any], verify: Callable[[Mapping[str, Any]], list[str]]
) -> Iterator[str]:
    """Check every run of a network by itself, and then what they decided together.

    Parameters
    ----------
    run : mapping
        What :meth:`conovel.NetworkRun.to_dict` wrote of a network with `repeats`.
    verify : callable
        Checks one run.
    """
    spec, runs, names = RunSpec.from_dict(run["spec"]), run["runs"], sorted(run["decisions"])
    if spec.repeats == 1 or len(runs) != spec.repeats:
        yield f"there are {len(runs)} runs, and repeats is {spec.repeats}"
        return
    wrong = False
    for number, (one, expected) in enumerate(zip(runs, repeated_specs(spec), strict=True), 1):
        for finding in _of_one_run(one, expected, names, verify):
            wrong = True
            yield f"run {number}: {finding}"
    if wrong:
        return
    together = combined(spec, run)
    rounds = [round_._asdict() for round_ in together.rounds]
    yield from differences(run["evidence_rounds"], rounds, "evidence_rounds")
    for name, part in together.parts.items():
        own, path = run["decisions"][name], f"decisions.{name}"
        times, rejected = part.times_flagged.tolist(), together.rejected[name].tolist()
        yield from differences(own["times_flagged"], times, f"{path}.times_flagged")
        yield from differences(own["rejected"], rejected, f"{path}.rejected")
    n_rejected = sum(int(rejected.sum()) for rejected in together.rejected.values())
    yield from differences(run["n_rejected"], n_rejected, "n_rejected")
    first = Transcript.from_dict(runs[0]["transcript"])
    if run["guarantee"] != str(guarantee(spec, uncovered=first.uncovered)):
        yield "the guarantee is not that of this run"


def _of_one_run(
    run: Mapping[str, Any],
    expected: RunSpec,
    names: list[str],
    verify: Callable[[Mapping[str, Any]], list[str]],
) -> Iterator[str]:
    if run.get("command") != "network" or "runs" in run:
        yield "it is no run of a network"
        return
    yield from verify(run)
    yield from expected.differences(RunSpec.from_dict(run["transcript"]["spec"]))
    if sorted(run["decisions"]) != names or run["transcript"]["left"]:
        yield "an agent is missing, and such a run is broken off"


def combined(spec: RunSpec, run: Mapping[str, Any]) -> Combined:
    """Decide again by what the runs of a network rejected."""
    names, decisions = sorted(run["decisions"]), [one["decisions"] for one in run["runs"]]
    flags: dict[str, NDArray[np.bool_]] = {
        name: np.array([of[name]["rejected"] for of in decisions]) for name in names
    }
    n_tested = {name: sum(decisions[0][name]["tested"]) for name in names}
    level, seeds = spec.test_level(len(names)), [one.seed for one in repeated_specs(spec)]
    sizes = {name: decisions[0][name]["n_calibration"] for name in names}
    alone = spec.regime.deciding == "isolated"
    return combine(flags, n_tested, level, seeds, spec.averaging, sizes, alone=alone)


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
    name = run["terms"].get("list_name", "") if "terms" in run else None
    if "ledger" not in run:
        if name:
            yield "the terms name a list, and there is none"
        return
    ledger = run["ledger"]
    if name is not None and (ledger["list"] != name or not name):
        yield "the list is not that of the terms"
    level = as_level(ledger["level"])
    if level * NETWORK_SHARE != spec.level or ledger["level"] != str(level):
        yield f"the batch ran at level {spec.level}, which is not half of {ledger['level']}"
    elif ledger["guarantee"] != str(network_over_time(of_list(spec))):
        yield "the guarantee of the list is not that of these settings"
    yield from _list_count_findings(ledger, is_of_one_site=run.get("command") == "agent")


def _list_count_findings(ledger: Mapping[str, Any], *, is_of_one_site: bool) -> Iterator[str]:
    rounds, sites = ledger["rounds"], ledger["sites"]
    if len({(site["batch"], type(site["batch"])) for site in sites.values()}) != 1:
        yield "the agents do not tell the same number of batches"
    numbers = [n for one in rounds for n in (one["k"], *one["counts"].values())]
    if not rounds or not _are_numbers(numbers):
        yield "the counts of the list are no numbers of rows"
        return
    if any(set(one["counts"]) != set(sites) for one in rounds):
        yield "the counts of the list are not those of its agents"
        return
    for agent, site in sites.items():
        last = rounds[-1]["counts"][agent]
        yield from differences(site["n_listed"], last, f"ledger.sites.{agent}.n_listed")
    try:
        if is_of_one_site:
            _replay_list_agent(ledger, *sites)
        else:
            yield from _replay_list(ledger, sorted(sites))
    except ConovelError as error:
        yield f"the counts of the list are wrong: {error}"


def _replay_list(ledger: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    """Feed the counts of a list to its coordinator."""
    machine, rounds = ListingCoordinator(names, _RUN_ID), ledger["rounds"]
    for name in names:
        _receive(machine, name, History(1, rounds[0]["k"], _DIGEST))
    for number, one in enumerate(rounds, 1):
        for name in names:
            _receive(machine, name, Count(one["counts"][name]), number)
    follows = [{"counts": counts, "k": k} for k, counts in machine.rounds]
    yield from differences(rounds, follows, "ledger.rounds")
    if machine.state is not State.DONE:
        yield "the counts of the list end before they stay"
    total = sum(rounds[-1]["counts"].values())
    yield from differences(ledger.get("n_listed_in_all", total), total, "ledger.n_listed_in_all")


def _replay_list_agent(ledger: Mapping[str, Any], name: str) -> None:
    """Feed the questions about a list to the agent whose counts are recorded."""
    rounds = ledger["rounds"]
    counts = {one["k"]: one["counts"][name] for one in rounds}
    machine = ListingAgent(name, _RUN_ID, counts.__getitem__)
    machine.tell(History(1, rounds[0]["k"], _DIGEST))
    for number, one in enumerate(rounds, 1):
        _receive(machine, COORDINATOR, Listing(one["k"]), number)
    if any(after > before for before, after in pairwise(count for _, count in machine.rounds)):
        raise CountRisingError("a count rises while k falls", name)
    if "n_listed_in_all" in ledger:
        _receive(machine, COORDINATOR, Listed(ledger["n_listed_in_all"]), len(rounds))


def _receive(machine: Machine, sender: str, body: Body, round_: int = 0) -> None:
    machine.receive(encode(Message(_RUN_ID, sender, machine.name, round_, body)), sender)
    if machine.error is not None:
        raise machine.error
