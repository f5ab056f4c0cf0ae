"""What a site has revealed so far, from the entries of its audit log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, NamedTuple

from conovel.deciding.ways import ways_of
from conovel.errors import PrivacyError
from conovel.rows.chained_lines import now
from conovel.spec.regimes import REGIMES
from conovel.spec.settings import Privacy, as_privacy
from conovel.stats.words import counted

DAY = timedelta(hours=24)
# Messages that follow from no row but the number of rows: a run that sends no other revealed none.
REVEAL_NOTHING = frozenset({"HELLO", "READY", "ABORT", "KEY"})


@dataclass
class LoggedRun:
    """One run that began at the site."""

    # Its id, the time of its first entry, and who asked for it.
    run: str
    began: str
    operator: str = ""
    terms: Mapping[str, Any] = field(default_factory=dict)  # what was asked for
    data: str = ""  # the digest of the rows; empty until they were read
    data_set: str = ""  # the name of the data set, as the site calls it
    # Known normals, test rows, and how many known normals trained the models that left.
    n_null: int = 0
    n_test: int = 0
    n_train: int = 0
    models: dict[str, int] = field(default_factory=dict)  # bytes of models, by receiver
    # Models that left, sums over rows that left while agents learnt together, other messages that
    # left and follow from rows, messages that came in.
    n_models: int = 0
    n_sums: int = 0
    n_counts: int = 0
    n_received: int = 0
    # How it ended; `state` is ``"running"`` if no end is noted.
    state: str = "running"
    reason: str = ""

    @property
    def spends(self) -> bool:
        """Whether it counts as a run: it sent a model, sums or counts, or still may."""
        n_sent = self.n_models + self.n_sums + self.n_counts
        return bool(n_sent or (self.data and self.state == "running"))

    def take(self, entry: Mapping[str, Any]) -> None:
        """Add an entry of this run."""
        match entry:
            case {"entry": "begin"}:
                self.operator, self.terms = entry.get("operator", ""), entry.get("terms", {})
            case {"entry": "data"}:
                self.data, self.data_set = entry["data"], entry.get("set", "")
                self.n_null, self.n_test = entry["n_null"], entry["n_test"]
            case {"entry": "sent", "kind": "MODEL", "to": to}:
                self.n_models += 1
                self.models[to] = self.models.get(to, 0) + entry["bytes"]
                self.n_train = max(self.n_train, entry["n_train"])
            case {"entry": "sent", "kind": "SUMS"}:
                self.n_sums += 1
            case {"entry": "sent", "kind": kind} if kind not in REVEAL_NOTHING:
                self.n_counts += 1
            case {"entry": "received"}:
                self.n_received += 1
            case {"entry": "end"}:
                self.state, self.reason = entry["state"], entry["reason"]


class RunsSpent(NamedTuple):
    """How many runs sent a model or counts, or still may."""

    last_day: int
    same_data: int


class Exposure(NamedTuple):
    """What all runs together have revealed."""

    # Runs that began, and runs that were refused before they did.
    n_runs: int
    n_refused: int
    n_models: int  # models that left the site
    receivers: dict[str, int]  # to whom, and how many
    n_data: int  # different data sets from which a model was learnt that left
    # Different known normals that can have been in null_train of such a model, at most.
    n_trained: int
    # Different rows that such a model can have learnt from, at most: the test rows are in the
    # mixture.
    n_rows: int


def runs_of(entries: Iterable[Mapping[str, Any]]) -> list[LoggedRun]:
    """Gather the entries of every run that began, the oldest first."""
    runs: dict[str, LoggedRun] = {}
    for entry in entries:
        if entry.get("entry") == "begin":
            runs[entry["run"]] = LoggedRun(entry["run"], entry["time"])
        if entry.get("entry") != "refused" and entry.get("run") in runs:
            runs[entry["run"]].take(entry)
    return list(runs.values())


def runs_spent(runs: Iterable[LoggedRun], data: str, at: str | None = None) -> RunsSpent:
    """Count the runs of the last day, and those with these rows."""
    since = datetime.fromisoformat(at or now()) - DAY
    counted = [run for run in runs if run.spends]
    recent = sum(datetime.fromisoformat(run.began) > since for run in counted)
    return RunsSpent(recent, sum(run.data == data for run in counted))


def exposure_of(entries: Sequence[Mapping[str, Any]]) -> Exposure:
    """Add up what all runs revealed."""
    runs = runs_of(entries)
    receivers: dict[str, int] = {}
    for entry in entries:
        if entry.get("entry") == "sent" and entry.get("kind") == "MODEL":
            receivers[entry["to"]] = receivers.get(entry["to"], 0) + 1
    by_data: dict[str, list[LoggedRun]] = {}
    for run in runs:
        if run.n_models:
            by_data.setdefault(run.data, []).append(run)
    # Other rows train in every run, so that the numbers of the runs add up.
    trained = [min(group[0].n_null, sum(r.n_train for r in group)) for group in by_data.values()]
    return Exposure(
        n_runs=len(runs),
        n_refused=sum(entry.get("entry") == "refused" for entry in entries),
        n_models=sum(receivers.values()),
        receivers=dict(sorted(receivers.items())),
        n_data=len(by_data),
        n_trained=sum(trained),
        n_rows=sum(group[0].n_null + group[0].n_test for group in by_data.values()),
    )


class EpsilonSpent(NamedTuple):
    """What the models that left a data set, or still may, have spent together."""

    # Sums over the runs with differential privacy.
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    n_private: int = 0  # how many these are
    # Runs that sent models without differential privacy: there is no bound after one.
    n_open: int = 0

    def plus(self, privacy: Privacy | None) -> EpsilonSpent:
        """Return what is spent after one more run."""
        if privacy is None:
            return self._replace(n_open=self.n_open + 1)
        epsilon, delta = self.epsilon + privacy.epsilon, self.delta + privacy.delta
        return self._replace(epsilon=epsilon, delta=delta, n_private=self.n_private + 1)

    def __str__(self) -> str:
        """Return it in words."""
        private = f"ε {shown(self.epsilon)} in {counted(self.n_private, 'run')}"
        open_ = f", and {counted(self.n_open, 'run')} without privacy" if self.n_open else ""
        return private + open_


def epsilon_spent(runs: Iterable[LoggedRun], data_set: str) -> EpsilonSpent:
    """Add up what runs with the rows of a data set have spent.

    A run counts from the moment at which its rows are written down, and no longer if it ended
    before a model or a sum left.
    """
    spent = EpsilonSpent()
    for run in runs:
        under_way = bool(run.data) and run.state == "running" and _sends_models(run)
        if run.data_set == data_set and (run.n_models or run.n_sums or under_way):
            spent = spent.plus(privacy_of(run))
    return spent


def spent_by_set(runs: Iterable[LoggedRun]) -> dict[str, EpsilonSpent]:
    """Return what was spent on each data set of which models left, or still may."""
    listed = list(runs)
    by_set = {name: epsilon_spent(listed, name) for name in sorted({r.data_set for r in listed})}
    return {name: spent for name, spent in by_set.items() if spent.n_private or spent.n_open}


def privacy_of(run: LoggedRun) -> Privacy | None:
    """Return ε and δ of a run; None if it had none, or none that can be read."""
    try:
        return as_privacy(spec_of(run).get("privacy"))
    except PrivacyError:
        return None


def shown(epsilon: Fraction) -> str:
    """Write ε for people: as a decimal number where it is short."""
    return f"{float(epsilon):g}" if epsilon == Fraction(f"{float(epsilon):g}") else str(epsilon)


def _sends_models(run: LoggedRun) -> bool:
    regime = REGIMES.get(str(spec_of(run).get("regime")))
    return regime is None or ways_of(regime).learning.spends


def spec_of(run: LoggedRun) -> dict[str, object]:
    """Return the settings of a run as its terms had them; none if they cannot be read."""
    spec = run.terms.get("spec")
    return spec if isinstance(spec, dict) else {}
