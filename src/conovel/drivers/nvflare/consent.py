"""The limits that a site agrees to, and its reasons when it refuses a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from conovel.drivers.nvflare.terms import Terms
from conovel.errors import InputError
from conovel.protocol.bodies import Left, Roster
from conovel.protocol.messages import Message
from conovel.site.splitting import TrainingRows
from conovel.spec.regimes import REGIMES, as_deployable
from conovel.spec.schema import Schema, differing_columns
from conovel.spec.training import n_training
from conovel.stats.levels import as_level

OWN_RULE = "own rule"  # the share that the site would choose itself
_LEAST = {"min_agents": 2, "max_bytes_in": 1, "max_seconds": 1, "min_train_rows": 1}


@dataclass(frozen=True)
class Limits:
    """The limits of one site's consent; the defaults allow every run of a deployment.

    Attributes
    ----------
    regimes : tuple of str
        Regimes that are allowed. `joint` and `consensus` must be named, and `pooled` never is
        allowed.
    max_level : str
        The largest level.
    min_agents : int
        The smallest number of agents, this one included.
    max_bytes_in : int
        The most bytes of messages in one run.
    max_seconds : float
        The longest run.
    min_train_rows : int
        The fewest rows from which a model that leaves the site is learnt: known normals that
        train on one side, calibration and test rows on the other.
    min_train_share : str
        The smallest share of the known normals that trains such a model: ``"own rule"``, which is
        what :func:`conovel.spec.training.train_share` gives for the site's numbers, or a
        fraction.

    Examples
    --------
    >>> from conovel.spec.run_spec import RunSpec
    >>> limits = Limits(regimes=("counts",), min_agents=3)
    >>> print(limits.objection(Terms(("north", "south"), RunSpec.of(regime="counts"))))
    a run of 2 agents is too small: this site asks for 3
    """

    regimes: tuple[str, ...] = tuple(
        name for name, r in REGIMES.items() if r.deployable and not r.decides_by_cells
    )
    max_level: str = "1/2"
    min_agents: int = 2
    max_bytes_in: int = 256 * 2**20
    max_seconds: float = 24 * 3600.0
    min_train_rows: int = 20
    min_train_share: str = OWN_RULE

    def __post_init__(self) -> None:
        if isinstance(self.regimes, str) or not isinstance(self.regimes, Sequence):
            raise InputError("regimes must be a list of names")
        object.__setattr__(self, "regimes", tuple(as_deployable(r).name for r in self.regimes))
        object.__setattr__(self, "max_level", str(as_level(self.max_level)))
        if self.min_train_share != OWN_RULE:
            share = as_level(self.min_train_share, "min_train_share")
            object.__setattr__(self, "min_train_share", str(share))
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
                raise InputError(f"{name} must be a number from {least}, not {value!r}")

    @staticmethod
    def objection_to_schema(terms: Terms, own: Schema | None) -> str:
        """Return why the schema of a run is refused: a site takes its own schema and no other.

        Whoever submits a run could otherwise choose what the site's model says about its rows.
        """
        proposed = terms.spec.schema
        ours, theirs = ({} if s is None else s.digests for s in (own, proposed))
        if not (different := differing_columns(ours, theirs)):
            return ""
        return (
            f"the schema of the run is not the one in its site.toml: {'; '.join(different[:3])}."
            " Name the same file under schema in every site.toml and in conovel run --schema"
        )

    def objection(self, terms: Terms) -> str:
        """Return why these terms are refused; an empty text if they are not."""
        if terms.spec.regime.name not in self.regimes:
            return (
                f"regime {terms.spec.regime.name!r} is not among those this site agrees to"
                f" ({', '.join(self.regimes) or 'none'}): choose one of these, or the site adds"
                f" {terms.spec.regime.name!r} to regimes in its site.toml"
            )
        if (level := terms.promised.level) > Fraction(self.max_level):
            return f"level {level} is above the {self.max_level} this site agrees to"
        if terms.run_seconds > self.max_seconds:
            return (
                f"a run of up to {terms.run_seconds:g} s is too long: this site agrees to"
                f" {self.max_seconds:g}"
            )
        return self._too_few(len(terms.agents))

    def objection_to(self, message: Message, terms: Terms, n_here: int) -> tuple[str, int]:
        """Return why a message is refused, and the number of agents after it."""
        match message.body:
            case Roster(agents=agents):
                if strangers := sorted(set(agents) - set(terms.agents)):
                    return f"{', '.join(strangers)} took part without being in the terms", len(
                        agents
                    )
                return self._too_few(len(agents)), len(agents)
            case Left():
                return self._too_few(n_here - 1), n_here - 1
        return "", n_here

    def objection_to_training(
        self, terms: Terms, models: Sequence[TrainingRows]
    ) -> tuple[str, str]:
        """Return why these models must not be made, and the numbers for the site's record only.

        Rows can be reconstructed from a model that was learnt from few rows. Where no model
        leaves the site (`counts`, `isolated`) there is no objection: a count of ranks over all
        rows reveals far less about a single row.

        Parameters
        ----------
        terms : Terms
        models : sequence of TrainingRows
            Numbers of rows from which each model would be learnt.
        """
        share = terms.spec.train_fraction
        if not terms.spec.regime.exchanges_models:
            return "", ""
        asked = f"with train_fraction {share}"
        if share is None:
            asked = "without a train_fraction"
        for rows in models:
            needed, asks = rows.n_by_rule, "its own rule gives"
            if self.min_train_share != OWN_RULE:
                needed = n_training(rows.n_null, self.min_train_share, rows.most)
                asks = f"the {self.min_train_share} of them it asks for"
            if rows.n_train < needed:
                return (
                    f"{asked} fewer of its known normals would train its model than {asks}:"
                    f" {'choose a larger one' if share is None else 'leave it out'}, or the"
                    " site lowers min_train_share in its site.toml",
                    f"{rows.n_train:,} of {rows.n_null:,} would train, and {needed:,} are needed",
                )
            for what, n, change in (
                ("of its known normals", rows.n_train, "larger"),
                ("calibration and test rows", rows.n_mixture, "smaller"),
            ):
                if n < self.min_train_rows:
                    return (
                        f"{asked} fewer than {self.min_train_rows} {what} would train its"
                        f" model: choose a {change} one, or the site brings more rows or lowers"
                        " min_train_rows in its site.toml",
                        f"{n:,} would train",
                    )
        return "", ""

    def _too_few(self, n_agents: int) -> str:
        if n_agents >= self.min_agents:
            return ""
        return f"a run of {n_agents} agents is too small: this site asks for {self.min_agents}"
