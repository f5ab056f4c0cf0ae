"""Agents that decide together without pooling their rows: the front of a network."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from conovel.errors import InputError
from conovel.protocol.certificates import refuse_uncovered
from conovel.rows.schemas import SchemaLike, as_whole_schema
from conovel.rows.strata import StrataLike, as_strata
from conovel.runs.agents import (
    Agent,
    as_agents,
    name_models,
    open_sites,
    read_agents,
    with_one_schema,
)
from conovel.runs.certificates import as_certain, flag_run_certified
from conovel.runs.ledger_network import as_folder, network_facts_of, run_with_ledger
from conovel.runs.network_run import Phase, as_dropouts, check_sites, run_network, with_checks
from conovel.runs.repeats import run_repeatedly
from conovel.runs.results import NetworkRun
from conovel.scorers.estimators import ScorerLike
from conovel.spec.findings import Finding
from conovel.spec.run_spec import RunSpec
from conovel.spec.schema import Schema
from conovel.spec.settings import Bits, PrivacyLike
from conovel.spec.shown import Shown
from conovel.stats.levels import Level, RandomState, as_callback, as_seed, as_whole
from conovel.stats.null_proportion import NullProportion

_log = logging.getLogger(__name__)


class Network(Shown):
    """Agents that decide together without pooling their rows.

    All options are given by name, and have the names and meanings that they have in
    :class:`conovel.AdaDetect`. They are checked by :meth:`run`, not when the object is made.

    Parameters
    ----------
    agents : sequence of Agent
        2 to 200 of them.
    regime : str
        "auto", "joint", "together", "consensus", "full", "counts", "isolated", "split",
        "conservative" or "pooled": who tests what at which level, see
        :mod:`conovel.spec.regimes`. "auto" is `together`: agents learn one score from sums. It is
        `joint` if `scorer`, `composite` or `bits` is given, which are about models that agents
        exchange, and `full` if `pi0` is. The settings of the result name the regime that
        was chosen. In `consensus` a row that is normal at some agent is no novelty, wherever it
        is.
    composite : {"auto", "mean", "max", "min", "stacked"}
        How an agent's own score and its peers' models are combined. "max" is the paper's. With
        "auto" each agent chooses for itself; its own score alone is one of the choices.
    bits : int, "compact", "compact:BYTES" or None
        How models are sent: the paper's quantizer with that many bits, a small forest that
        imitates the model (about 230 bytes with 20 features, or the best one of at most so
        many bytes), or float64. A model that is
        not made of numbers, such as a blend or nearest neighbours, is sent as a forest of 100
        trees with at most 20 leaves that imitates it, at that precision.
    level : float, str or Fraction
        Target false discovery rate over all agents together.
    scorer : classifier, OneClass, str, list of these, or None
        What tells known normals from the rest, unless an agent has its own. In `together` it is
        the score that stays at the agent, and counts where agents differ and have many rows.
    random_state : int, RandomState, Generator, SeedSequence or None
        Seed of every split and scorer that leaves its own open. From a generator of numpy, each
        run draws its own seed; None draws a fresh one. The settings of the result name the seed.
    train_fraction : float, str, Fraction or None
        Share of the known normals used for training. None lets each agent choose it from
        numbers of rows alone, see :func:`conovel.spec.training.train_share`.
    pi0 : None, "storey", "quantile", Storey or Quantile
        Adapt to the proportion of nulls, from counts alone.
    on_dropout : {"abort", "conservative"}
        When an agent is lost during the counts: end the run, or count it as zero. `together`,
        `joint` and `consensus` can only end it, so that "auto" is `full` with "conservative".
    repeats : int
        The number B of runs, from 1 to 100. With more than one, the whole protocol runs B times,
        each time with seeds of its own and at level 2α/5, and e-BH at level α decides by counts on
        the averaged evidence. In `isolated` and `conservative` closed e-BH decides at each agent,
        and the level is 3α/5. When an agent is lost in any run, all runs end.
    ledger : path or None
        A folder in which each agent has the file of its ledger. The batch runs at half the level,
        and e-BH at the level decides by counts about all batches so far. See
        :class:`conovel.Ledger`.
    liars : int
        How many agents may lie about their counts. The guarantee is then about the rows of the
        other agents.
    counting : {"rounds", "committed"}
        Ask for counts until they stay; or let each agent commit to all its counts before any are
        revealed. With liars counts are always committed. Without liars both decide alike.
    reveal_to : {"coordinator", "members"}
        Who sees what is revealed in committed counting.
    schema : Schema, path, mapping or None
        What the columns are, where they are not all plain numbers. All agents have the same, so
        that their models are about the same features. What is not said follows from the rows of
        all agents as one multiset; with `privacy` or a `ledger` all must be said. A column that
        an agent does not have is missing there. Between organisations
        :func:`conovel.infer_schema` makes one, and says from which rows.
    privacy : float, str or None
        ε of differential privacy for the models that each agent sends, or in the regime `together`
        for its sums; or a text "ε,δ"; δ is 1e-6 if it is not given. Noise from the operating
        system is added to what the models are made of, so that two runs differ. Counts stay exact.
        Needs the extra ``privacy``.
    min_group_rows : int or None
        How many rows of an agent each level of a peer's score, and each cell of counts in the
        regime `joint`, hold at least. In one process nothing leaves an agent, so it is 1. Between
        organisations each site has its own number. None is what a site has by default: 5, or 3
        with fewer than 400 rows.
    masks : bool
        In the regime `together`, hide each agent's numbers from the coordinator: pairs of agents
        add random numbers that cancel in the sum. The decisions are the same. In one process
        nothing leaves an agent, so it is off. Between organisations it is on. Needs the extra
        ``masks``.
    confidence : float, str, Fraction or None
        Flag the longest list over all agents of which at most `level` is false with this
        probability, in the regimes `together` and `joint`. None promises `level` on average.
    strata : str, int, list of these, or None
        A column, or several, within whose values each agent compares its rows; see
        :class:`conovel.AdaDetect`. In the regimes `together` and `joint`. Each agent tells how
        many rows it has in each stratum, not which.
    ties : {"against"}
        Agents count ties against a row; "random", which one site has, is refused.

    See Also
    --------
    conovel.AdaDetect : One site.
    conovel.NetworkRun : What a run decided.

    Examples
    --------
    >>> from conovel.experiments.gaussian import gaussian_design
    >>> rows = gaussian_design(2.0, 0)
    >>> agents = [Agent(name, a.X_null, a.X_test) for name, a in zip("abc", rows)]
    >>> run = Network(agents, regime="counts", scorer="logistic").run()
    >>> run.n_rejected == sum(run[name].n_rejected for name in "abc")
    True
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        *,
        regime: str = "auto",
        composite: str = "auto",
        bits: Bits = "compact",
        level: Level = 0.1,
        scorer: ScorerLike | str | list[ScorerLike | str] | None = None,
        random_state: RandomState = 0,
        train_fraction: Level | None = None,
        pi0: str | NullProportion | None = None,
        on_dropout: Literal["abort", "conservative"] = "abort",
        repeats: int = 1,
        ledger: str | Path | None = None,
        liars: int = 0,
        counting: Literal["rounds", "committed"] = "rounds",
        reveal_to: Literal["coordinator", "members"] = "coordinator",
        schema: SchemaLike = None,
        privacy: PrivacyLike = None,
        min_group_rows: int | None = 1,
        masks: bool = False,
        confidence: Level | None = None,
        ties: str = "against",
        strata: StrataLike = None,
    ) -> None:
        self.agents = agents
        self.regime = regime
        self.composite = composite
        self.bits = bits
        self.level = level
        self.scorer = scorer
        self.random_state = random_state
        self.train_fraction = train_fraction
        self.pi0 = pi0
        self.on_dropout = on_dropout
        self.repeats = repeats
        self.ledger = ledger
        self.liars = liars
        self.counting = counting
        self.reveal_to = reveal_to
        self.schema = schema
        self.privacy = privacy
        self.min_group_rows = min_group_rows
        self.masks = masks
        self.confidence = confidence
        self.ties = ties
        self.strata = strata

    def spec(self) -> RunSpec:
        """Check the settings and give them as the one record that all agents agree on."""
        return self._spec(None if self.schema is None else as_whole_schema(self.schema))

    def _spec(self, schema: Schema | None) -> RunSpec:
        if self.ties != "against":
            raise InputError(
                "ties='random' is for one site, AdaDetect(ties='random'): the agents of a network"
                " count ties against a row. Leave ties out"
            )
        return RunSpec.of(
            regime=self.regime,
            level=self.level,
            composite=self.composite,
            bits=self.bits,
            pi0=self.pi0,
            seed=as_seed(self.random_state),
            train_fraction=self.train_fraction,
            on_dropout=self.on_dropout,
            repeats=self.repeats,
            liars=self.liars,
            counting=self.counting,
            reveal_to=self.reveal_to,
            schema=schema,
            privacy=self.privacy,
            masks=self.masks,
            strata=() if self.strata is None else as_strata(self.strata),
            names_models=name_models(self.agents, self.scorer),
        )

    def _shown(self) -> dict[str, str]:
        agents = [str(getattr(agent, "name", agent)) for agent in self.agents]
        return {"agents": ", ".join(agents), "regime": str(self.regime), "level": str(self.level)}

    def run(
        self,
        *,
        dropouts: Mapping[str, Phase] | None = None,
        on_stage: Callable[[str], None] | None = None,
        on_finding: Callable[[Finding], None] | None = None,
        check: bool = True,
    ) -> NetworkRun:
        """Run the protocol to its end.

        Parameters
        ----------
        dropouts : mapping of agent name to {"hello", "models", "counts"}, optional
            Let agents vanish, to see what happens: before they say hello, when they should
            send models, or in the first round of counts.
        on_stage : callable, optional
            Called with what is going on, for a progress display.
        on_finding : callable, optional
            Called with each :class:`conovel.Finding` about the rows before anything is learnt.
        check : bool
            Let every agent look for what speaks against its result, such as drift or an id among
            the columns; the findings are ``run.warnings``. It changes no decision and no message.
        """
        tell = _log.info if on_stage is None else as_callback(on_stage, "on_stage")
        note = _log.warning if on_finding is None else as_callback(on_finding, "on_finding")
        schema = self.schema
        # With noise, and over batches, a schema may not follow from the rows of this run.
        is_open = schema is None or isinstance(schema, Mapping)
        is_open = is_open and self.privacy is None and self.ledger is None
        spec, agents = self._spec(None) if is_open else self.spec(), as_agents(self.agents)
        sure = None
        if self.confidence is not None:
            sure = as_certain(self.confidence, spec.repeats, spec.pi0, self.ledger)
            refuse_uncovered(spec)
        vanishing = as_dropouts(dropouts, agents)
        if self.min_group_rows is not None:
            as_whole(self.min_group_rows, "min_group_rows", least=1, others=" or None")
        tell("checking rows")
        if is_open:
            agents, schema = with_one_schema(agents, schema)
            spec = replace(spec, schema=schema)
        members = read_agents(spec, agents, self.scorer, schema, self.min_group_rows)
        sites, findings = open_sites(spec, members), {}
        if check:
            tell("checking columns and their order")
            findings = check_sites(spec, agents, sites, note)
        if self.ledger is not None:
            folder, facts = as_folder(self.ledger), network_facts_of(spec, agents, members)
            run = run_with_ledger(spec, members, facts, folder, vanishing, tell)
        elif spec.repeats > 1:
            run = run_repeatedly(spec, members, vanishing, tell)
        else:
            run = run_network(spec, members, vanishing, tell)
        if sure is not None:
            run = flag_run_certified(run, sure)
        return with_checks(run, sites, findings) if check else run
