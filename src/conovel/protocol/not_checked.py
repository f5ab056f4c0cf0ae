"""Published values that nothing else in a record determines: an audit cannot derive them."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from conovel.spec.settings import TO_COORDINATOR

# What a deployment's records say they are: the account of the coordinator, and a site's own.
FORMATS = {"run": "conovel-outcome-2", "agent": "conovel-site-run-2"}
# Settings that ranks depend on, and nothing else that is published. A network in one process has
# them in the digest that is its run id, and the operator has them in its terms.
_BEHIND_THE_RANKS = tuple(
    f"transcript.spec.{name}"
    for name in ("bits", "composite", "on_dropout", "seed", "train_fraction")
)
# What runs with cells on a common scale have besides: cells are to them what ranks are to others.
_CELLS = "decisions.*.cells decisions.*.floor transcript.agents.*.n_wanted"
_CELL_COUNTS = {
    "network": "transcript.histograms.*.calibration",
    "run": "transcript.histograms",
    "agent": "limit n_rejected transcript.histograms transcript.outcome.cells transcript.rooms"
    " transcript.weights",
}
# What runs with masks have instead of histograms: totals of groups.
_TOTALS = {
    "network": "transcript.group_wanted transcript.group_cells.*.calibration",
    "run": "transcript.group_wanted transcript.group_cells",
    "agent": "transcript.all_ready transcript.group_wanted transcript.group_cells",
}
# What runs with types have besides.
_TYPES = "decisions.*.cells decisions.*.normal_at"
_TYPE_COUNTS = {
    "network": "transcript.shared.*.calibration transcript.shared.*.n_tail"
    " transcript.shared.*.near_trained",
    "run": "transcript.shared",
    "agent": "limit n_rejected transcript.shared transcript.outcome.cells"
    " transcript.outcome.conforms transcript.weights",
}
# What a site cannot derive in committed counting if counts are for the coordinator alone.
_COMMITTED_TO_COORDINATOR = ("transcript.commitments", "transcript.outcome.n_rejected")
# Published values that nothing else in the record determines, as patterns of their paths. Counts
# and decisions are derived from ranks; that these are true cannot be seen here.
_OF_ROWS = "decisions.*.choices decisions.*.ids decisions.*.ranks decisions.*.scores"
NOT_CHECKED = {
    "network": f"{_OF_ROWS} ledger.rounds ledger.sites made picture reasons"
    " transcript.agents.*.n_null truth warnings",
    "run": "ledger.bytes ledger.rounds ledger.sites message seconds"
    " transcript.agents.*.n_calibration transcript.agents.*.n_null unpublished",
    "agent": f"{_OF_ROWS} choices ledger.list ledger.n_listed_in_all ledger.rounds ledger.sites"
    " picture reasons site transcript.agents.*.n_null transcript.n_tests transcript.rounds"
    f" transcript.run_id warnings {' '.join(_BEHIND_THE_RANKS)}",
    "detect": "detector ledger made n_train null pi0 picture read_as reasons resolution scorer"
    " selection test verdicts warnings",
}
# With a nonce, the run id follows from all terms. Runs of earlier versions have none.
_TERMS_WITHOUT_A_NONCE = ("terms.*_seconds", "terms.asked_at")
# Of one site, these follow from the ranks, which are in the file of decisions.
_NUMBERS_OF_RANKS = (
    "certificate",
    "largest_rejected_rank",
    "n_calibration",
    "n_rejected",
    "n_test",
)
# Of one site with `repeats`: there are no ranks, and its seed is not published.
_OF_REPEATS = ("n_calibration", "repeats.seeds")
# Of one site with weights: what rows need follows from calibration rows, which are not published.
_OF_WEIGHTS = (
    "fewest_rejections_possible",
    "n_calibration",
    "needs_flagged",
    "weights.chance",
    "weights.effective_calibration_rows",
    "weights.source",
)
_NUMBERS_OF_FLAGS = ("n_rejected", "n_test", "repeats.n_rejected")


def not_checked(run: Mapping[str, Any]) -> list[str]:
    """Name the published values of a run that ``verify`` cannot derive, by their paths.

    Examples
    --------
    >>> not_checked({"command": "detect", "n_train": 10, "level": "1/10"})
    ['n_train']
    """
    kind = kind_of(run)
    patterns = NOT_CHECKED[kind].split() + _of_strata(run)
    if kind == "network" and "runs" in run:  # what is not checked of any of them
        patterns += {f"runs.*.{path}" for one in run["runs"] for path in not_checked(one)}
    if kind == "detect":
        patterns += _of_one_site(run)
    if kind == "run" and not run.get("terms", {}).get("nonce"):
        patterns += _TERMS_WITHOUT_A_NONCE
    transcript = run.get("transcript", {})
    spec = transcript.get("spec") or {}
    if kind == "network" and not transcript.get("messages"):  # all rows were pooled
        patterns += _BEHIND_THE_RANKS
    if transcript.get("rooms"):
        patterns += [*_CELLS.split(), *_CELL_COUNTS[kind].split()]
    if transcript.get("all_ready"):
        patterns += _TOTALS[kind].split()
    if transcript.get("shared"):
        patterns += [*_TYPES.split(), *_TYPE_COUNTS[kind].split()]
    if kind == "agent" and transcript.get("commitments") and spec["reveal_to"] == TO_COORDINATOR:
        patterns += _COMMITTED_TO_COORDINATOR
    patterns += [f"transcript.agents.{name}" for name in transcript.get("left", ())]
    return sorted(pattern for pattern in patterns if _occurs(run, pattern.split(".")))


def _of_one_site(run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is not checked by the way in which one site decided."""
    if "weights" in run:
        return _OF_WEIGHTS + (() if "needs_flagged" in run else ("n_rejected", "n_test"))
    if "repeats" in run:
        return _OF_REPEATS + (() if "flagged_in_runs" in run else _NUMBERS_OF_FLAGS)
    return () if "ranks" in run else _NUMBERS_OF_RANKS


def _of_strata(run: Mapping[str, Any]) -> list[str]:
    """Name what strata add: of one site, cells decide and are not in the result."""
    if "strata" in run:
        return ["certificate", "fewest_rejections_possible", "strata.strata"]
    spec = run.get("transcript", {}).get("spec") or {}
    return ["decisions.*.strata", "transcript.agents.*.strata"] if spec.get("strata") else []


def kind_of(run: Mapping[str, Any]) -> str:
    """Tell which command wrote a record."""
    command = run.get("command", "network")
    return command if command in NOT_CHECKED else "network"


def _occurs(plain: Any, steps: list[str]) -> bool:
    if not steps:
        return True
    if isinstance(plain, list):
        plain = dict(enumerate(plain))
    if not isinstance(plain, Mapping):
        return False
    matching = [value for key, value in plain.items() if fnmatchcase(str(key), steps[0])]
    return any(_occurs(value, steps[1:]) for value in matching)
