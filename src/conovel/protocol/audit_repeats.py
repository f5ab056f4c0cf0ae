"""Deriving again what several runs on the same rows decided together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.protocol.transcript import Transcript
from conovel.spec.guarantee import guarantee, one_site
from conovel.spec.run_spec import RunSpec
from conovel.spec.seeds import repeated_specs
from conovel.stats.levels import as_level, as_repeats
from conovel.stats.repeats import Combined, combine, read_flags, repeated_resolution, run_level
from conovel.stats.words import counted


def network_findings(
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
    spec, runs = RunSpec.from_dict(run["spec"]), run["runs"]
    if spec.repeats == 1 or len(runs) != spec.repeats:
        yield f"there are {len(runs)} runs, and repeats is {spec.repeats}"
        return
    names = sorted(run["decisions"])
    wrong = [
        f"run {b}: {finding}"
        for b, (one, expected) in enumerate(zip(runs, repeated_specs(spec), strict=True), 1)
        for finding in _run_findings(one, expected, names, verify)
    ]
    yield from wrong or _together_findings(run, spec, combined(spec, run))


def _together_findings(run: Mapping[str, Any], spec: RunSpec, found: Combined) -> Iterator[str]:
    asked = [round_._asdict() for round_ in found.rounds]
    if _differ(run["evidence_rounds"], asked):
        yield "the counts of the evidence do not follow from the runs"
    for name, part in found.parts.items():
        times = part.times_flagged.tolist()
        if _differ(run["decisions"][name]["times_flagged"], times):
            yield f"{name} does not say how often its rows were flagged"
        if _differ(run["decisions"][name]["rejected"], found.rejected[name].tolist()):
            yield f"the decisions of {name} do not follow from the evidence"
    n_rejected = sum(int(rejected.sum()) for rejected in found.rejected.values())
    if _differ(run["n_rejected"], n_rejected):
        yield f"{run['n_rejected']} rejections are told, and there are {n_rejected}"
    first = Transcript.from_dict(run["runs"][0]["transcript"])
    if run["guarantee"] != str(guarantee(spec, uncovered=first.uncovered)):
        yield "the guarantee is not that of this run"


def _run_findings(
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
    return combine(
        {name: np.array([of[name]["rejected"] for of in decisions]) for name in names},
        {name: sum(decisions[0][name]["tested"]) for name in names},
        spec.test_level(len(names)),
        [one.seed for one in repeated_specs(spec)],
        alone=spec.regime.divides_level,
    )


def one_site_findings(run: Mapping[str, Any]) -> Iterator[str]:
    """Check the numbers of one site's repeated detection, and its decisions if there are rows."""
    level, told, m = as_level(run["level"]), run["repeats"], run["n_test"]
    sizes = told["n_rejected"]
    repeats = as_repeats(len(sizes))
    numbers = (m, run["n_rejected"], run["n_calibration"], run["n_train"], *sizes)
    if any(type(n) is not int or n < 0 for n in numbers) or max(run["n_rejected"], *sizes) > m:
        yield "a number of rows is none, or more rows are rejected than tested"
        return
    if told["level"] != str(run_level(level)):
        yield f"the level of each run is {run_level(level)}"
    if repeats == 1 or len(told["seeds"]) != repeats:
        yield f"there are {len(told['seeds'])} seeds of {repeats} runs"
    resolved = repeated_resolution(run["n_calibration"], m, level)
    if run["fewest_rejections_possible"] != resolved.fewest:
        yield "the fewest rejections that are possible are not those of these numbers"
    promised = one_site(level, None, repeats)
    words = {"statement": promised.statement, "assumptions": [*promised.assumptions]}
    if run["guarantee"] != words:
        yield "the guarantee is not that of these settings"
    if "flagged_in_runs" in run:
        yield from _row_findings(run, read_flags(run["flagged_in_runs"], repeats))


def _row_findings(run: Mapping[str, Any], flags: NDArray[np.bool_]) -> Iterator[str]:
    """Check that the decisions of one site follow from which runs flagged its rows."""
    if flags.shape[1] != run["n_test"]:
        yield f"there are {flags.shape[1]} rows, and {run['n_test']} were tested"
        return
    told = run["repeats"]
    found = combine({"": flags}, {"": run["n_test"]}, as_level(run["level"]), told["seeds"])
    part, rejected = found.parts[""], found.rejected[""]
    if list(part.n_rejected) != told["n_rejected"]:
        yield f"the runs rejected {list(part.n_rejected)} rows, and {told['n_rejected']} are told"
    if _differ(run["times_flagged"], part.times_flagged.tolist()):
        yield "it does not say how often the rows were flagged"
    if not np.array_equal(np.asarray(run["e_values"]), part.e_values):
        yield "the e-values are not those of the runs"
    if _differ(run["rejected"], rejected.tolist()):
        yield "the decisions do not follow from the evidence"
    if run["n_rejected"] != rejected.sum():
        yield f"{counted(int(rejected.sum()), 'row')} rejected, and {run['n_rejected']} are told"


def _differ(told: Any, derived: Any) -> bool:
    """Compare JSON values, in which 1, 1.0 and true are different ones."""
    return json.dumps(told, sort_keys=True) != json.dumps(derived, sort_keys=True)
