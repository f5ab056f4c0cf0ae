"""The ε ledger of a site: what its models have spent on each data set, from its audit log.

ε and δ of all runs with the same rows add up (basic composition). A digest of the files does not
tell whether rows are the same: one more row makes another digest. So a site names its data set in
``site.toml``, and all its rows are one data set if it does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from conovel.errors import PrivacyError
from conovel.federation.exposure import LoggedRun
from conovel.spec.regimes import REGIMES
from conovel.spec.settings import Privacy, as_privacy
from conovel.stats.words import counted


class EpsilonSpent(NamedTuple):
    """What the models that left a data set, or still may, have spent together.

    Attributes
    ----------
    epsilon, delta : Fraction
        Sums over the runs with differential privacy.
    n_private : int
        How many these are.
    n_open : int
        Runs that sent models without differential privacy: there is no bound after one.
    """

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    n_private: int = 0
    n_open: int = 0

    def plus(self, privacy: Privacy | None) -> EpsilonSpent:
        """Return what is spent after one more run."""
        if privacy is None:
            return self._replace(n_open=self.n_open + 1)
        epsilon, delta = self.epsilon + privacy.epsilon, self.delta + privacy.delta
        return self._replace(epsilon=epsilon, delta=delta, n_private=self.n_private + 1)

    def __str__(self) -> str:
        """Return it in words."""
        said = f"ε {shown(self.epsilon)} in {counted(self.n_private, 'run')}"
        open_ = f", and {counted(self.n_open, 'run')} without privacy" if self.n_open else ""
        return said + open_


def epsilon_spent(runs: Iterable[LoggedRun], data_set: str) -> EpsilonSpent:
    """Add up what runs with the rows of a data set have spent.

    A run counts from the moment at which its rows are written down, and no longer if it ended
    before a model left.

    Examples
    --------
    >>> terms = {"spec": {"regime": "full", "privacy": "4,1/1000000"}}
    >>> run = LoggedRun("a", "2026-01-01T00:00:00+00:00", terms=terms, data="d", n_models=2)
    >>> str(epsilon_spent([run, run], ""))
    'ε 8 in 2 runs'
    """
    spent = EpsilonSpent()
    for run in runs:
        under_way = bool(run.data) and run.state == "running" and _sends_models(run)
        if run.data_set == data_set and (run.n_models or under_way):
            spent = spent.plus(privacy_of(run))
    return spent


def spent_by_set(runs: Iterable[LoggedRun]) -> dict[str, EpsilonSpent]:
    """Return what was spent on each data set of which models left, or still may."""
    listed = list(runs)
    found = {name: epsilon_spent(listed, name) for name in sorted({r.data_set for r in listed})}
    return {name: spent for name, spent in found.items() if spent.n_private or spent.n_open}


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
    return regime is None or regime.exchanges_models


def spec_of(run: LoggedRun) -> dict[str, object]:
    """Return the settings of a run as its terms had them; none if they cannot be read."""
    spec = run.terms.get("spec")
    return spec if isinstance(spec, dict) else {}
