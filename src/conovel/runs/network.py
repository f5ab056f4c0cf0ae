"""A network of agents in one process: the real protocol, real bytes, no transport.

Every agent is a :class:`~conovel.protocol.agent.Agent` over its own rows; this driver only
carries bytes from one machine to the next, and writes down what it carried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from conovel.deciding.folds import agreed_of
from conovel.errors import (
    ColumnError,
    ConovelError,
)
from conovel.models.wire.header import VERSION as WIRE_VERSION
from conovel.protocol import agent as protocol
from conovel.protocol.coordinator import Coordinator
from conovel.protocol.transcript import Transcript
from conovel.rows.asked import SchemaLike, as_whole_schema
from conovel.rows.pairs import read_pair
from conovel.rows.tables import as_ids, pool_pairs, unify
from conovel.runs.agents import Agent, as_agents, is_inherited
from conovel.runs.carrying import Phase, as_dropouts, carry, raise_first_fault
from conovel.runs.checks import check_sites, warn_thin, with_checks
from conovel.runs.ledger_network import as_folder, run_with_ledger
from conovel.runs.repeats import once_warned, run_repeatedly
from conovel.runs.results import NetworkRun
from conovel.runs.site_results import decide
from conovel.scorers.automatic import as_candidates
from conovel.scorers.estimators import ScorerLike
from conovel.site.blocks import Ranked
from conovel.site.site import Site
from conovel.site.work import SiteWork
from conovel.spec.consensus import Agreed
from conovel.spec.findings import Finding
from conovel.spec.guarantee import Guarantee, guarantee
from conovel.spec.made_from import require_made_for, together
from conovel.spec.run_spec import RunSpec
from conovel.spec.schema import Schema, differing_columns
from conovel.spec.seeds import agent_seeds, as_agent_seed, nonce_of, run_id_of
from conovel.spec.settings import Bits, PrivacyLike
from conovel.spec.shown import Shown
from conovel.spec.version import __version__
from conovel.stats.cells import N_CELLS
from conovel.stats.levels import Level, RandomState, as_callback, as_seed, as_whole
from conovel.stats.null_proportion import NullProportion
from conovel.stats.stepup import step_up


class Network(Shown):
    """Agents that decide together without pooling their rows.

    All options are given by name, and have the names and meanings that they have in
    :class:`conovel.AdaDetect`. They are checked by :meth:`run`, not when the object is made.

    Parameters
    ----------
    agents : sequence of Agent
        2 to 200 of them.
    regime : str
        "auto", "joint", "consensus", "full", "counts", "isolated", "split", "conservative" or
        "pooled": who tests what at which level, see :mod:`conovel.spec.regimes`. "auto" is
        `joint`, or `full` if `pi0` is given. The settings of the result name the regime that was
        chosen. In `consensus` a row that is normal at some agent is no novelty, wherever it is.
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
        What tells known normals from the rest, unless an agent has its own.
    random_state : int, RandomState, Generator, SeedSequence or None
        Seed of every split and scorer that leaves its own open. From a generator of numpy, each
        run draws its own seed; None draws a fresh one. The settings of the result name the seed.
    train_fraction : float, str, Fraction or None
        Share of the known normals used for training. None lets each agent choose it from
        numbers of rows alone, see :func:`conovel.spec.training.train_share`.
    pi0 : None, "storey", "quantile", Storey or Quantile
        Adapt to the proportion of nulls, from counts alone.
    on_dropout : {"abort", "conservative"}
        When an agent is lost during the counts: end the run, or count it as zero. `joint` and
        `consensus` can only end it, so that "auto" is `full` with "conservative".
    repeats : int
        The number B of runs, from 1 to 100. With more than one, the whole protocol runs B times,
        each time with seeds of its own and at level 2α/5, and e-BH at level α decides by counts on
        the averaged evidence. When an agent is lost in any run, all runs end.
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
    schema : Schema, path or None
        What the columns are, where they are not all plain numbers. All agents have the same, so
        that their models are about the same features; :func:`conovel.infer_schema` makes one, and
        says from which rows.
    privacy : float, str or None
        ε of differential privacy for the models that each agent sends, or a text "ε,δ"; δ is 1e-6
        if it is not given. Noise from the operating system is added to what the models are made
        of, so that two runs differ. Counts stay exact. Needs the extra ``privacy``.
    min_group_rows : int or None
        How many rows of an agent each level of a peer's score, and each cell of counts in the
        regime `joint`, hold at least. In one process nothing leaves an agent, so it is 1. Between
        organisations each site has its own number. None is what a site has by default: 5, or 3
        with fewer than 400 rows.

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

    def spec(self) -> RunSpec:
        """Check the settings and give them as the one record that all agents agree on."""
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
            schema=as_whole_schema(self.schema),
            privacy=self.privacy,
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
        tell = as_callback(on_stage, "on_stage")
        note = as_callback(on_finding, "on_finding")
        spec, agents = self.spec(), as_agents(self.agents)
        vanishing = as_dropouts(dropouts, agents)
        tell("checking rows")
        with once_warned(int(spec.repeats > 1)):  # then the first of the runs warns
            sites = self._sites(spec, agents)
        found = {}
        if check:
            tell("checking columns and their order")
            found = check_sites(spec, agents, sites, note)

        def run_once(one: RunSpec, members: list[Agent], tell_run: Any) -> NetworkRun:
            network = copy(self)
            network.agents, network.repeats, network.ledger = members, one.repeats, None
            network.level, network.random_state = one.level, one.seed
            network.privacy = one.privacy
            return network.run(dropouts=vanishing, on_stage=tell_run, check=False)

        if self.ledger is not None:
            folder = as_folder(self.ledger)
            run = run_with_ledger(spec, agents, folder, run_once, tell, self.scorer)
        elif spec.repeats > 1:
            run = run_repeatedly(spec, agents, run_once, tell)
        else:
            run = run_on_sites(spec, agents, sites, vanishing, tell)
        return with_checks(run, sites, found) if check else run

    def _sites(self, spec: RunSpec, agents: Sequence[Agent]) -> dict[str, Site]:
        """Read every agent's rows and say how each works."""
        sites: dict[str, Site] = {}
        if self.min_group_rows is not None:
            as_whole(self.min_group_rows, "min_group_rows", least=1, others=" or None")
        for agent, drawn in zip(agents, agent_seeds(spec.seed, len(agents)), strict=True):
            try:
                seed = drawn if agent.seed is None else as_agent_seed(agent.seed)
                # Rows of one agent are compared with rows of others.
                fixed = spec.regime.composite_null or not spec.regime.deployable
                samples = agent.X_null, agent.X_test
                null, test = read_pair(*samples, self.schema, agreed=True, fixed=fixed)
                scorer = self.scorer if is_inherited(agent.scorer) else agent.scorer
                bits = spec.bits if is_inherited(agent.bits) else agent.bits
                own = replace(spec, seed=seed, bits=bits)
                candidates = tuple(as_candidates(scorer, seed))
                work = SiteWork(own, candidates, len(agents), group_rows=self.min_group_rows)
                as_ids(agent.ids, len(test))
                if own.privacy is not None:
                    own.privacy.require_small_delta(len(null) + len(test))
            except ConovelError as error:
                raise type(error)(f"agent {agent.name}: {error}") from error
            sites[agent.name] = Site(null, test, work)
        _check_columns(sites)
        _check_schema(spec, sites)
        if spec.regime.composite_null:
            _unify(sites)
        warn_thin(spec, sites)
        return sites


def _check_schema(spec: RunSpec, sites: Mapping[str, Site]) -> None:
    """Check that the schema was not made from the known normals of all agents, or their tests."""
    if isinstance(spec.schema, Schema):
        null = together(site.null.contents for site in sites.values())
        test = together(site.test.contents for site in sites.values())
        fixed = spec.regime.composite_null
        require_made_for(spec.schema.made_from, null, test, fixed=fixed)


def _check_columns(sites: Mapping[str, Site]) -> None:
    first, *others = sites
    for name in others:
        if sites[name].facts[2:] != sites[first].facts[2:]:
            columns = [sites[agent].columns for agent in (first, name)]
            which = differing_columns(*(dict.fromkeys(names, "") for names in columns))
            raise ColumnError(
                f"agents {first} and {name} do not have the same columns; at {name},"
                f" {', '.join(which[:3])}"
            )


def _unify(sites: Mapping[str, Site]) -> None:
    """Give all agents' columns one type each: rows of one agent are compared with another's."""
    everybody = [rows.in_memory() for site in sites.values() for rows in (site.null, site.test)]
    alike = iter(unify(*everybody))
    for site in sites.values():
        site.null, site.test = next(alike), next(alike)


def run_on_sites(
    spec: RunSpec,
    agents: Sequence[Agent],
    sites: Mapping[str, Site],
    vanishing: dict[str, Phase],
    tell: Callable[[str], None],
) -> NetworkRun:
    """Run once on rows that are read: agents and coordinator exchange messages to the end."""
    if not spec.regime.deployable:
        return _run_pooled(spec, agents, sites, tell)
    run_id = run_id_of(spec, sites)
    coordinator = Coordinator(list(sites), spec=spec, run_id=run_id)
    machines = {
        name: protocol.Agent(
            name,
            spec=spec,
            run_id=run_id,
            software=__version__,
            wire_version=WIRE_VERSION,
            nonce=nonce_of(run_id, name),
        )
        for name in sites
    }
    transcript = carry(coordinator, machines, sites, vanishing, tell)
    raise_first_fault(machines)
    outcome = coordinator.outcome
    lost = tuple(name for name in sites if name not in outcome.participants)
    none = N_CELLS if spec.regime.decides_by_cells else 0  # rejects no row
    limits = {name: none if name in lost else machines[name].limit for name in sites}
    losses = {"left_out": outcome.left_out, "dropped": outcome.dropped}
    promise = guarantee(spec, **losses, uncovered=transcript.uncovered)
    floors = {name: machine.floor for name, machine in machines.items()}
    agreed = agreed_of(outcome)
    return _result(spec, agents, sites, limits, transcript, promise, lost, floors, agreed)


def _run_pooled(
    spec: RunSpec,
    agents: Sequence[Agent],
    sites: Mapping[str, Site],
    tell: Callable[[str], None],
) -> NetworkRun:
    """Pool all rows and run AdaDetect once (Baseline 1); in simulations only."""
    tell("pooling all rows")
    first = next(iter(sites.values()))
    # All rows are compared with all: one representation for everybody's.
    null, test = pool_pairs(
        [(site.null.in_memory(), site.test.in_memory()) for site in sites.values()]
    )
    pool = Site(null, test, replace(first.work, n_agents=1))
    pool.ranks({})
    outcome = step_up([(pool.test_ranks, pool.n_calibration)], spec.level, spec.pi0)
    stops = np.cumsum([len(site.test) for site in sites.values()])[:-1]
    shares = zip(np.split(pool.scores, stops), np.split(pool.test_ranks, stops), strict=True)
    for site, (scores, ranks) in zip(sites.values(), shares, strict=True):
        tested = np.ones(ranks.size, dtype=np.bool_)
        site.ranked = Ranked.of(tested, pool.calibration_scores, scores, ranks)
        site.choices, site.explainer = pool.choices, pool.explainer
    limits = dict.fromkeys(sites, outcome.limits[0])
    return _result(spec, agents, sites, limits, Transcript(spec=spec), guarantee(spec))


def _result(
    spec: RunSpec,
    agents: Sequence[Agent],
    sites: Mapping[str, Site],
    limits: Mapping[str, int],
    transcript: Transcript,
    promise: Guarantee,
    lost: tuple[str, ...] = (),
    floors: Mapping[str, int] = MappingProxyType({}),
    agreed: Agreed | None = None,
) -> NetworkRun:
    ids = {agent.name: as_ids(agent.ids, len(sites[agent.name].test)) for agent in agents}
    results = {
        name: decide(
            site,
            limits[name],
            ids[name],
            name,
            floors.get(name, 0),
            None if name in lost else agreed,
        )
        for name, site in sites.items()
    }
    n_null = {name: len(site.null) for name, site in sites.items()}
    return NetworkRun(results, transcript, promise, spec, n_null, lost)
