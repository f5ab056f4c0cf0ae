"""The limits that a site agrees to, and its reasons when it refuses a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from conovel.deciding.ways import ways_of
from conovel.errors import InputError, WireError
from conovel.federation.consent_sums import objection_to_sums
from conovel.federation.exposure import EpsilonSpent, RunsSpent, shown
from conovel.federation.terms import Terms
from conovel.models.wire import FAMILIES, family_of, n_nodes_of
from conovel.site.blocks import TrainingRows
from conovel.spec.bodies import Left, Message, Roster, Start
from conovel.spec.records import Positive, check_fields
from conovel.spec.regimes import REGIMES, as_deployable
from conovel.spec.schema import Schema, differing_columns
from conovel.spec.settings import COMPACT, COMPOSITES, MAX_BITS, TO_MEMBERS, Bits, check_bits
from conovel.spec.training import n_training
from conovel.stats.levels import as_fraction, as_level, as_liars, as_whole
from conovel.stats.words import briefly, counted

OWN_RULE = "own rule"  # the share that the site would choose itself
FLOAT64 = "float64"
NO_BOUND = "none"
# Why a run is refused, for all parties; and numbers for the site's own record.
Objection: TypeAlias = tuple[str, str]
NONE: Objection = ("", "")
_Number: TypeAlias = str | int | float


@dataclass(frozen=True)
class Limits:
    """The limits of one site's consent; the defaults allow every run of a deployment."""

    # Regimes that are allowed. The finer counts of joint and consensus must be named.
    regimes: tuple[str, ...] = tuple(
        name
        for name, regime in REGIMES.items()
        if not ways_of(regime).learning.simulated and not ways_of(regime).deciding.by_cells
    )
    max_level: _Number = "1/2"
    min_agents: Annotated[int, Meta(ge=2)] = 2  # this one included
    max_bytes_in: Positive = 256 * 2**20  # of the messages of one run
    max_seconds: Annotated[float, Meta(ge=1)] = 24 * 3600.0
    # A model that leaves is learnt from so many known normals, and so many mixture rows, at least.
    min_train_rows: Positive = 20
    # Of the known normals, the share that trains such a model: a fraction, or by train_share.
    min_train_share: _Number = OWN_RULE
    min_liars: int = 0  # a run with counts must tolerate so many lying members
    # Who may see the counts that the site reveals; "members" allows both.
    reveal_to: Literal["coordinator", "members"] = "coordinator"
    min_calibration_rows: Positive = 10  # of a run in which counts leave the site
    # Of a model that leaves: "compact", numbers of so many bits and compact models, or "float64".
    max_bits: int | str = MAX_BITS
    model_families: tuple[str, ...] = FAMILIES  # of models that leave or come in
    # Deep forests give single rows away. The paper's forests of depth 5 have up to 9,000 bytes.
    max_forest_bytes: Positive = 16 * 2**10
    # "max" and "min" must be named: there a single peer decides the score of a row.
    composites: tuple[str, ...] = tuple(c for c in COMPOSITES if c not in ("max", "min"))
    max_nodes_in: Positive = 16 * 2**10  # nodes or weights of a model that comes in
    # Rows of the site that each level of a peer's score, and each cell of counts, hold at least: a
    # number, or by least_rows. With 1, a peer's model can ask for single rows.
    min_group_rows: int | str = OWN_RULE
    max_runs_per_day: Positive = 24  # that send a model or counts
    max_runs_per_data: Positive = 10  # with the same rows
    # Where agents learn together, refuse runs in which the coordinator would see this site's sums.
    masks: bool = True
    # Columns that a run may name as strata: numbers of rows by their values then leave the site.
    strata: tuple[str, ...] = ()
    # Whether what leaves the site may be learnt from its known novelties, too.
    share_known: bool = False
    # Of sums: their rounds, bins of a column in a round, trees, and rows of all in a leaf.
    max_sum_rounds: Positive = 40
    max_bins: Positive = 1024
    max_trees: Positive = 200
    min_leaf_rows: Positive = 5
    # Test rows of all other agents for each of the site's: it is told their total alone.
    max_peer_share: Annotated[float, Meta(ge=0)] = 100.0
    # The sum of ε over all runs with models of the data set. With a bound, no model leaves
    # without differential privacy.
    max_epsilon: _Number = NO_BOUND
    # A person at the site agrees to each run within so many seconds (`conovel desk`); 0: nobody is
    # asked.
    ask_seconds: Annotated[float, Meta(ge=0)] = 0.0

    def __post_init__(self) -> None:
        put = object.__setattr__
        check_fields(self)
        put(self, "regimes", tuple(as_deployable(r).name for r in self.regimes))
        put(self, "max_level", str(as_level(self.max_level, "max_level")))
        if self.min_train_share != OWN_RULE:
            share = as_level(self.min_train_share, "min_train_share")
            put(self, "min_train_share", str(share))
        if self.max_epsilon != NO_BOUND:
            put(self, "max_epsilon", str(_as_max_epsilon(self.max_epsilon)))
        as_liars(self.min_liars)
        if self.max_bits not in (COMPACT, FLOAT64):
            put(self, "max_bits", _as_max_bits(self.max_bits))
        for key, allowed in (("model_families", FAMILIES), ("composites", COMPOSITES)):
            put(self, key, _as_names(getattr(self, key), key, allowed))
        if self.min_group_rows != OWN_RULE:
            as_whole(self.min_group_rows, "min_group_rows", least=1)

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
        return (
            self._objection_to_composite(terms)
            or objection_to_sums(self, terms.spec)
            or self._objection_to_counting(terms)
            or self._objection_to_strata(terms)
            or self._too_few(len(terms.agents))
        )

    @property
    def own_group_rows(self) -> int | None:
        """How many rows a level or a cell holds at least; None for the site's own rule."""
        return None if isinstance(self.min_group_rows, str) else self.min_group_rows

    def _objection_to_composite(self, terms: Terms) -> str:
        composite = terms.spec.composite
        if not ways_of(terms.spec.regime).learning.combines or composite in self.composites:
            return ""
        return (
            f"composite {composite!r} is not among those this site agrees to"
            f" ({', '.join(self.composites) or 'none'}): leave out --composite, or the site adds"
            f" {composite!r} to composites in its site.toml"
        )

    def _objection_to_strata(self, terms: Terms) -> str:
        if not (others := [name for name in terms.spec.strata if name not in self.strata]):
            return ""
        return (
            f"strata of {', '.join(others)} would tell numbers of rows by their values: leave out"
            " --strata, or the site adds the columns to strata in its site.toml"
        )

    def _objection_to_counting(self, terms: Terms) -> str:
        spec = terms.spec
        if ways_of(spec.regime).deciding.shares_counts and spec.liars < self.min_liars:
            return (
                f"a run that tolerates {spec.liars} lying members is refused: this site asks for"
                f" {self.min_liars} (conovel run --liars)"
            )
        if spec.reveal_to == TO_MEMBERS != self.reveal_to:
            return (
                "counts would be revealed to all members, and this site agrees to the coordinator"
                " alone: leave out --reveal-to, or the site sets reveal_to in its site.toml"
            )
        return ""

    def objection_to(self, message: Message, terms: Terms, n_here: int) -> tuple[str, int]:
        """Return why a message is refused, and the number of agents after it."""
        match message.body:
            case Roster(agents=agents):
                strangers = ", ".join(sorted(set(agents) - set(terms.agents)))
                others = f"{strangers} took part without being in the terms" if strangers else ""
                return others or self._too_few(len(agents)), len(agents)
            case Left():
                return self._too_few(n_here - 1), n_here - 1
        return "", n_here

    def objection_to_training(self, terms: Terms, models: Sequence[TrainingRows]) -> Objection:
        """Return why these models must not be made, and the numbers for the site's record only.

        Rows can be reconstructed from a model that was learnt from few rows, and from sums over
        them. A count of ranks over all rows reveals far less about a single row.
        """
        share = terms.spec.train_fraction
        if not ways_of(terms.spec.regime).learning.spends:
            return NONE
        request = "without a train_fraction" if share is None else f"with train_fraction {share}"
        for rows in models:
            needed, asks = rows.n_by_rule, "its own rule gives"
            if self.min_train_share != OWN_RULE:
                needed = n_training(rows.n_null, self.min_train_share, rows.most)
                asks = f"the {self.min_train_share} of them it asks for"
            if rows.n_train < needed:
                return (
                    f"{request} fewer of its known normals would train its model than {asks}:"
                    f" {'choose a larger one' if share is None else 'leave it out'}, or the"
                    " site lowers min_train_share in its site.toml",
                    f"{rows.n_train:,} of {rows.n_null:,} would train, and {needed:,} are needed",
                )
            for what, n, change in (
                ("of its known normals", rows.n_train, "larger"),
                ("calibration and test rows", rows.n_mixture, "smaller"),
            ):
                if n is not None and n < self.min_train_rows:
                    return (
                        f"{request} fewer than {self.min_train_rows} {what} would train its"
                        f" model: choose a {change} one, or the site brings more rows or lowers"
                        " min_train_rows in its site.toml",
                        f"{n:,} would train",
                    )
        return NONE

    def objection_to_calibration(self, terms: Terms, models: Sequence[TrainingRows]) -> Objection:
        """Return why counts over so few calibration rows must not leave the site."""
        if not ways_of(terms.spec.regime).deciding.shares_counts:
            return NONE
        fewest = min(rows.n_null - rows.n_train for rows in models)
        if fewest >= self.min_calibration_rows:
            return NONE
        return (
            f"fewer than {self.min_calibration_rows} of its known normals would calibrate: choose"
            " a smaller train_fraction, or the site brings more rows or lowers"
            " min_calibration_rows in its site.toml",
            f"{fewest:,} would calibrate",
        )

    def objection_to_runs(self, spent: RunsSpent) -> Objection:
        """Return why one more run with these rows is too many."""
        for name, n, what in (
            ("max_runs_per_day", spent.last_day, "within 24 hours"),
            ("max_runs_per_data", spent.same_data, "with the rows it has now"),
        ):
            most = getattr(self, name)
            if n >= most:
                return (
                    f"it agrees to {counted(most, 'run')} {what}: wait, or the site brings other"
                    f" rows or raises {name} in its site.toml",
                    f"{n:,} so far, see conovel audit",
                )
        return NONE

    def objection_to_epsilon(self, terms: Terms, spent: EpsilonSpent, n_rows: int) -> Objection:
        """Return why a model, or a sum, must not leave a data set of which so much was spent.

        `n_rows` is the number of rows of the site, for the bound on δ.
        """
        privacy, bounded = terms.spec.privacy, self.max_epsilon != NO_BOUND
        spends = ways_of(terms.spec.regime).learning.spends
        if not spends or (privacy is None and not bounded):
            return NONE
        more = "the site brings other rows under another [data] set, or raises max_epsilon"
        if privacy is None:
            return (
                "its models leave with differential privacy only: give the run an ε with --privacy"
                ", or the site sets max_epsilon to 'none' in its site.toml",
                "",
            )
        after = spent.plus(privacy)
        if after.delta * n_rows >= 1:
            return (
                "δ of the run, added to that of earlier runs, is too large for its number of rows:"
                f" choose a smaller δ, such as --privacy {shown(privacy.epsilon)},1e-9",
                f"δ {after.delta} in all, for {n_rows:,} rows",
            )
        if bounded and (spent.n_open or after.epsilon > Fraction(self.max_epsilon)):
            return (
                f"what it agrees to spend of ε is spent: choose a smaller ε, or {more} in its"
                " site.toml",
                f"{spent} so far, and {self.max_epsilon} in all; see conovel audit",
            )
        return NONE

    def objection_to_sizes(self, message: Message, terms: Terms, n_test: int) -> Objection:
        """Return why the others have too many test rows for a site with this many.

        Counts that are too large do more harm the more rows their sender claims.
        """
        shares_counts = ways_of(terms.spec.regime).deciding.shares_counts
        match message.body:
            case Roster(n_test=total) | Start(n_tests=total) if shares_counts:
                if total - n_test > self.max_peer_share * n_test:
                    return (
                        f"the other agents have more than {self.max_peer_share:g} test rows for"
                        " each of its own: leave out the largest, or the site raises"
                        " max_peer_share in its site.toml",
                        f"{total - n_test:,} for its {n_test:,}",
                    )
        return NONE

    def _too_few(self, n_agents: int) -> str:
        if n_agents >= self.min_agents:
            return ""
        return f"a run of {n_agents} agents is too small: this site asks for {self.min_agents}"


def _as_max_epsilon(epsilon: _Number) -> Fraction:
    exact = as_fraction(str(epsilon), "max_epsilon")
    if exact <= 0:
        raise InputError(f"max_epsilon must be a number above 0 or {NO_BOUND!r}, not {epsilon!r}")
    return exact


def _as_max_bits(bits: int | str) -> int:
    try:
        return check_bits(bits)  # type: ignore[arg-type]
    except InputError:
        raise InputError(
            f"max_bits must be an integer from 1 to {MAX_BITS}, {COMPACT!r} or {FLOAT64!r}, not"
            f" {bits!r}"
        ) from None


def _as_names(names: Sequence[str], key: str, allowed: Sequence[str]) -> tuple[str, ...]:
    if not set(names) <= set(allowed):
        raise InputError(f"{key} must be a list of {', '.join(allowed)}, not {briefly(names)}")
    return tuple(dict.fromkeys(names))


def objection_to_precision(limits: Limits, terms: Terms, bits: Bits) -> str:
    """Return why a model of this precision, or of the family it would have, may not leave."""
    learning = ways_of(terms.spec.regime).learning
    if not learning.model_rounds:
        return ""
    is_forest = isinstance(bits, str) or terms.spec.privacy is not None
    families = {"forest"} if is_forest else set()
    if _order(bits) > _order(limits.max_bits):
        precision = FLOAT64 if bits is None else bits
        return (
            f"its model would be sent with bits {precision}, and it agrees to {limits.max_bits} at"
            " most: choose smaller bits, or the site raises max_bits in its site.toml"
        )
    return _objection_to_families(limits, families)


def objection_to_model_out(limits: Limits, blob: bytes) -> str:
    """Return why a model that was made may not leave the site: the check before it does."""
    family, is_exact = family_of(blob)
    if is_exact and limits.max_bits != FLOAT64:
        return f"its model has numbers in {FLOAT64}, and it agrees to {limits.max_bits} at most"
    if family == "forest" and len(blob) > limits.max_forest_bytes:
        return (
            f"its model is a forest of {len(blob):,} bytes, and it agrees to"
            f" {limits.max_forest_bytes:,} at most: rows behind a deep forest are told from"
            " others with AUC 0.9. Choose bits compact, or the site raises max_forest_bytes"
        )
    return _objection_to_families(limits, {family})


def objection_to_model_in(limits: Limits, blob: bytes) -> str:
    """Return why a model of a peer is not taken; empty where it is no model at all.

    What a peer's model may be is what the site's own may be. Its size bounds the work.
    """
    try:
        family, is_exact = family_of(blob)
        n_nodes = n_nodes_of(blob)
    except WireError:
        return ""  # the decoder says what is wrong with it
    if n_nodes > limits.max_nodes_in:
        return (
            f"a peer's model has {n_nodes:,} nodes, and this site takes {limits.max_nodes_in:,}"
            " at most: choose bits compact, or the site raises max_nodes_in in its site.toml"
        )
    if is_exact and limits.max_bits != FLOAT64:
        return (
            f"a peer's model has numbers in {FLOAT64}, and this site takes {limits.max_bits} at"
            " most: choose bits compact, or the site raises max_bits in its site.toml"
        )
    if family not in limits.model_families:
        return (
            f"a peer's model is of the family {family!r}, which this site does not take: the"
            " site adds it to model_families in its site.toml"
        )
    return ""


def _objection_to_families(limits: Limits, families: Iterable[str]) -> str:
    if not (others := sorted(set(families) - set(limits.model_families))):
        return ""
    return (
        f"its model would be of the family {others[0]!r}, which may not leave it: the site"
        " changes bits or scorer, or adds the family to model_families in its site.toml"
    )


def _order(bits: Bits) -> int:
    """Order precisions: compact models, then numbers of more and more bits, then float64."""
    if bits is None or bits == FLOAT64:
        return MAX_BITS + 1
    return 0 if isinstance(bits, str) else bits
