"""The agents of a network in one process, as a user names them, and their rows once read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import ArrayLike, NDArray

from conovel.deciding.ways import ways_of
from conovel.errors import ColumnError, ConovelError, InputError
from conovel.protocol.messages import as_name
from conovel.rows.pairs import KnownRows, aligned, read_with_known
from conovel.rows.profiles import joined_profiles, profiles_of
from conovel.rows.samples import Table, as_frame, as_table, completed, read_sample
from conovel.rows.schemas import SchemaLike, schema_from
from conovel.rows.tables import Rows, as_ids, unify
from conovel.scorers.argument import as_candidates
from conovel.scorers.estimators import ScorerLike
from conovel.site.site import Site
from conovel.site.work import SiteWork
from conovel.spec.fields import MAX_AGENTS
from conovel.spec.made_from import require_made_for, together
from conovel.spec.run_spec import RunSpec, agent_seeds, as_agent_seed
from conovel.spec.schema import Schema, differing_columns
from conovel.spec.settings import Bits
from conovel.spec.shown import Shown
from conovel.stats.words import listed

INHERIT: Any = "as the network"


@dataclass(frozen=True, eq=False, repr=False)
class Agent(Shown):
    """One organisation and its rows.

    Parameters
    ----------
    name : str
        Unique in the network.
    X_null, X_test : array or frame
        Known normals, and rows to test.
    scorer : classifier, OneClass, str, list of these, or None
        Overrides the network's.
    bits : int, "compact", "compact:BYTES" or None
        Overrides the network's: how its own model is sent.
    ids : array of shape (m,), optional
        Names of the test rows.
    seed : int, optional
        Overrides the seed that follows from the network's `random_state`. A site of a federation
        mixes a secret into its own and notes it in its record of the run; given here, it repeats
        what that site did.
    X_known : array or frame, optional
        Known novelties: confirmed cases of the same columns. The agent's score learns from them,
        and through what agents exchange the scores of others do. They are neither tested nor
        calibration rows. A frame may have one column more, `kind`, which reasons then name.

    See Also
    --------
    conovel.Network : Agents that decide together.
    """

    name: str
    X_null: Any
    X_test: Any
    scorer: ScorerLike | str | list[ScorerLike | str] | None = INHERIT
    bits: Bits = INHERIT
    ids: ArrayLike | None = None
    seed: int | None = None
    X_known: Any = None

    def _shown(self) -> dict[str, str]:
        sizes = {
            "known normals": self.X_null,
            "rows to test": self.X_test,
            "known novelties": self.X_known,
        }
        numbers = {term: f"{len(X):,}" for term, X in sizes.items() if hasattr(X, "__len__")}
        return {"name": self.name, **numbers}


def is_inherited(setting: Any) -> bool:
    """Tell whether an agent takes a setting from its network.

    A copy of an agent, from another process say, has a text that is equal but not the same object.
    """
    return isinstance(setting, str) and setting == INHERIT


def name_models(agents: Any, scorer: Any) -> bool:
    """Tell whether agents, or their network, say what models are learnt or how they are sent."""
    agents = agents if isinstance(agents, list | tuple) else ()  # others are refused later
    scorers = [scorer, *(getattr(agent, "scorer", INHERIT) for agent in agents)]
    bits = [getattr(agent, "bits", INHERIT) for agent in agents]
    return not all(map(is_inherited, bits)) or not all(map(_is_default, scorers))


def _is_default(scorer: Any) -> bool:
    given = scorer if isinstance(scorer, list | tuple) else [scorer]
    return all(one is None or is_inherited(one) or _names_automatic(one) for one in given)


def _names_automatic(scorer: Any) -> bool:
    return isinstance(scorer, str) and scorer == "automatic"


def as_agents(agents: Any) -> list[Agent]:
    """Check the agents and sort them by name."""
    try:
        listed = list(agents)
    except TypeError:
        raise InputError(f"agents must be a list of Agent, not {agents!r}") from None
    for agent in listed:
        if not isinstance(agent, Agent):
            raise InputError(f"agents must be a list of Agent; {agent!r} is none")
        as_name(agent.name)
    names = sorted(agent.name for agent in listed)
    if not 2 <= len(names) <= MAX_AGENTS or len(set(names)) < len(names):
        raise InputError(
            f"a network needs 2 to {MAX_AGENTS} agents of different names, not"
            f" {len(names)}: {', '.join(names[:5])}"
        )
    return sorted(listed, key=lambda agent: agent.name)


@dataclass(frozen=True, eq=False)
class AgentRows:
    """An agent whose rows are read: what every run of it works with."""

    null: Rows  # known normals and rows to test
    test: Rows
    ids: NDArray[Any] | None  # names of the test rows
    scorer: Any  # as of Agent, with what it takes from its network filled in
    bits: Bits
    seed: int | None
    group_rows: int | None  # as of SiteWork
    known_rows: KnownRows | None  # known novelties

    def site(self, spec: RunSpec, drawn: int, n_agents: int) -> Site:
        """Make the site of one run; its seed is the agent's own, or the one that was drawn."""
        return Site(
            self.null, self.test, self.work(spec, drawn, n_agents), known_rows=self.known_rows
        )

    def work(self, spec: RunSpec, drawn: int, n_agents: int) -> SiteWork:
        """Say how the site works in one run."""
        seed = drawn if self.seed is None else as_agent_seed(self.seed)
        own = replace(spec, seed=seed, bits=self.bits)
        if own.privacy is not None:
            own.privacy.require_small_delta(len(self.null) + len(self.test))
        candidates = tuple(as_candidates(self.scorer, seed))
        return SiteWork(own, candidates, n_agents, group_rows=self.group_rows)


def with_one_schema(
    agents: Sequence[Agent], given: SchemaLike
) -> tuple[list[Agent], Schema | None]:
    """Read the rows, and make one schema of all agents' rows where they need one.

    They do where a column is no plain number, or where an agent does not have it: then it is
    missing there. `given` is None, or kinds of columns; of all columns they are a schema.
    """
    kinds = given if isinstance(given, Mapping) else None
    if kinds is not None and all(_names(agent.X_null) <= set(kinds) for agent in agents):
        return list(agents), Schema.from_dict(kinds)
    pairs: dict[str, tuple[Rows | Table, Rows | Table]] = {}
    for agent in agents:
        try:
            null = read_sample(agent.X_null, "X_null", None, kinds)
            pairs[agent.name] = null, read_sample(agent.X_test, "X_test", null.columns, kinds)
        except ConovelError as error:
            raise type(error)(f"agent {agent.name}: {error}") from error
    read = [
        replace(agent, X_null=pairs[agent.name][0], X_test=pairs[agent.name][1])
        for agent in agents
    ]
    tables = {name: (as_table(null), as_table(test)) for name, (null, test) in pairs.items()}
    columns = list(dict.fromkeys(c for null, _ in tables.values() for c in null.values))
    is_alike = all(list(table.values) == columns for pair in tables.values() for table in pair)
    is_plain = all(isinstance(sample, Rows) for pair in pairs.values() for sample in pair)
    has_names = all(null.columns is not None for null, _ in pairs.values())
    shared = set(columns).intersection(*(null.values for null, _ in tables.values()))
    if not is_alike and not has_names:
        return list(agents), None
    if not shared:
        raise ColumnError(
            f"the agents have no column in common: {agents[0].name} has {listed(columns, 5)}"
        )
    if is_plain and is_alike and not kinds:
        return read, None
    _refuse_spellings({name: null.values for name, (null, _) in tables.items()})
    whole = {
        name: (completed(null, columns), completed(test, columns))
        for name, (null, test) in tables.items()
    }
    return read, infer_for_all(whole, kinds)


def infer_for_all(
    agents: Mapping[str, tuple[Table, Table]], kinds: Mapping[str, Any] | None
) -> Schema:
    """Make the schema of a network from the rows of all agents, as one multiset.

    Proof: Corollary 4 (docs/theory.md#cor-tables).

    Every agent has both its samples, with the same columns as the others. It keeps nothing of what
    it was made from: no exchange of rows changes it.
    """
    columns = iter(aligned([table for pair in agents.values() for table in pair]))
    seen = []
    for name in agents:
        try:
            seen.append(profiles_of([next(columns), next(columns)], ("X_null", "X_test")))
        except ColumnError as error:
            raise type(error)(f"agent {name}: {error}") from None
    return schema_from(joined_profiles(seen), kinds, "the agents")


def _names(sample: Any) -> set[str]:
    frame = as_frame(sample, "X_null")
    numbers = range(getattr(sample, "shape", (0,))[-1])
    return set(map(str, numbers if frame is None else frame.columns))


def _refuse_spellings(columns: Mapping[str, Collection[str]]) -> None:
    """Refuse names of columns that two agents write in two ways."""
    spelled: dict[str, tuple[str, str]] = {}
    for agent, names in columns.items():
        for name in names:
            first, other = spelled.setdefault("".join(name.split()).casefold(), (name, agent))
            if first != name and first not in names:
                raise ColumnError(
                    f"agent {other} has the column {first!r}, and {agent} the column {name!r}:"
                    " give it one name"
                )


def read_agents(
    spec: RunSpec,
    agents: Sequence[Agent],
    scorer: Any = None,
    schema: SchemaLike = None,
    group_rows: int | None = 1,
) -> dict[str, AgentRows]:
    """Read the rows of every agent, once for all runs; `scorer` is that of the network."""
    members: dict[str, AgentRows] = {}
    # Rows of one agent are compared with rows of others.
    learning = ways_of(spec.regime).learning
    fixed = learning.scores_compared
    for agent in agents:
        try:
            samples = agent.X_null, agent.X_test, agent.X_known
            null, test, known_rows = read_with_known(
                *samples, schema, shares_schema=True, fixed=fixed
            )
            members[agent.name] = AgentRows(
                null,
                test,
                as_ids(agent.ids, len(test)),
                scorer if is_inherited(agent.scorer) else agent.scorer,
                spec.bits if is_inherited(agent.bits) else agent.bits,
                agent.seed,
                group_rows,
                known_rows,
            )
        except ConovelError as error:
            raise type(error)(f"agent {agent.name}: {error}") from error
    _check_columns(members)
    _check_schema(spec, members)
    return _unified(members) if learning.one_score else members


def open_sites(spec: RunSpec, members: Mapping[str, AgentRows]) -> dict[str, Site]:
    """Make the site of every agent for one run."""
    sites = {}
    seeds = agent_seeds(spec.seed, len(members))
    for (name, member), drawn in zip(members.items(), seeds, strict=True):
        try:
            sites[name] = member.site(spec, drawn, len(members))
        except ConovelError as error:
            raise type(error)(f"agent {name}: {error}") from error
    return sites


def _check_schema(spec: RunSpec, members: Mapping[str, AgentRows]) -> None:
    """Check that the schema was not made from the known normals of all agents, or their tests."""
    if isinstance(spec.schema, Schema):
        null = together(member.null.contents for member in members.values())
        test = together(member.test.contents for member in members.values())
        fixed = ways_of(spec.regime).learning.one_score
        require_made_for(spec.schema.made_from, null, test, fixed=fixed)


def _check_columns(members: Mapping[str, AgentRows]) -> None:
    columns = {
        name: member.null.columns or tuple(map(str, range(member.null.width)))
        for name, member in members.items()
    }
    first, *others = columns
    for name in others:
        if columns[name] != columns[first]:
            pair = (dict.fromkeys(columns[agent], "") for agent in (first, name))
            which = differing_columns(*pair)
            raise ColumnError(
                f"agents {first} and {name} do not have the same columns; at {name},"
                f" {', '.join(which[:3])}"
            )


def _unified(members: Mapping[str, AgentRows]) -> dict[str, AgentRows]:
    """Give all agents' columns one type each: rows of one agent are compared with another's."""
    alike = iter(unify(*(rows for one in members.values() for rows in (one.null, one.test))))
    unified = {}
    for name, one in members.items():
        null, test = next(alike), next(alike)
        known_rows = None if one.known_rows is None else one.known_rows.like(one.null, null)
        unified[name] = replace(one, null=null, test=test, known_rows=known_rows)
    return unified
