"""A network that tests batch after batch, with one guarantee for the list of all flagged rows.

Every agent keeps a ledger of its own. The run of a batch has half the level, and what it rejects
is evidence. Then the agents decide by counts about the rows of all batches
(:mod:`conovel.protocol.listing`). Ledgers are written when all agents have agreed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from conovel.deciding.ways import network_over_time
from conovel.errors import ConovelError, FileError, InputError, RunAbortedError, SiteVanishedError
from conovel.protocol.listing import ListingAgent, ListingCoordinator, history_of
from conovel.protocol.states import Send
from conovel.rows.private_files import FOLDER_MODE
from conovel.rows.samples import raw_numbers, read_sample
from conovel.rows.storage import locked
from conovel.runs.agents import Agent, AgentRows
from conovel.runs.ledger import Ledger
from conovel.runs.ledger_file import open_ledger, write_ledger
from conovel.runs.ledger_records import (
    BatchFacts,
    columns_digest,
    content_digest,
    settings_digests,
)
from conovel.runs.network_run import Phase, run_network
from conovel.runs.results import NetworkRun
from conovel.runs.site_results import with_part
from conovel.scorers.argument import spell, spell_scorer
from conovel.spec.bodies import COORDINATOR
from conovel.spec.run_spec import RunSpec, of_batch, require_listable, run_id_of
from conovel.spec.settings import Bits
from conovel.stats.repeats import EvidenceRound


def as_folder(ledger: Any) -> Path:
    """Read the `ledger` argument of a network: a folder, which is made if it is not there."""
    if not isinstance(ledger, str | Path):
        raise InputError(f"ledger must be the path of a folder, not {ledger!r}")
    folder = Path(ledger)
    try:
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot be a folder of ledgers: {error.strerror}") from None
    return folder


def run_with_ledger(
    spec: RunSpec,
    members: Mapping[str, AgentRows],
    facts: Mapping[str, BatchFacts],
    folder: Path,
    vanishing: Mapping[str, Phase],
    tell: Callable[[str], None],
) -> NetworkRun:
    """Run a batch at half the level, and decide about all batches so far."""
    with ExitStack() as stack:
        paths = {name: folder / f"{quote(name, safe=' ')}.json" for name in members}
        for path in paths.values():  # in the order of the agents' names
            stack.enter_context(locked(path))
        ledgers = _open(paths, facts, spec)
        batch = run_network(of_batch(spec), members, vanishing, tell)
        if lost := batch.lost:
            raise SiteVanishedError(
                f"{', '.join(lost)} vanished: with a ledger a run in which an agent vanishes is"
                " broken off as a whole",
                lost[0],
            )
        tell("making the list")
        numbers = (sum(int(site.tested.sum()) for site in batch.values()), batch.n_rejected)
        before = {name: ledger.listed() for name, ledger in ledgers.items()}
        for name, ledger in ledgers.items():
            site = batch[name]
            ledger.add_of_network(site.rejected, numbers, facts[name], site.ids)
        rounds = make_list(ledgers, run_id_of(batch.spec, ledgers))
        for name, ledger in ledgers.items():
            write_ledger(ledger, paths[name])
    sites = {}
    for name, ledger in ledgers.items():
        update = ledger.update_since(before[name])
        sites[name] = with_part(batch[name], "ledger", update, rejected=update.rejected)
    return replace(
        batch,
        sites=sites,
        spec=spec,
        guarantee=network_over_time(spec),
        evidence_rounds=rounds,
        batch=batch,
    )


def network_facts_of(
    spec: RunSpec, agents: Sequence[Agent], members: Mapping[str, AgentRows]
) -> dict[str, BatchFacts]:
    """Return what the ledger of every agent compares."""
    require_listable(spec)
    facts = {}
    for agent in agents:
        own = members[agent.name]
        settings = agent_settings(own.scorer, own.bits, has_own_seed=own.seed is not None)
        try:
            facts[agent.name] = network_facts(agent.X_null, agent.X_test, spec, settings)
        except ConovelError as error:
            raise type(error)(f"agent {agent.name}: {error}") from error
    return facts


def agent_settings(scorer: Any, bits: Bits, *, has_own_seed: bool) -> dict[str, str]:
    """Spell what an agent chooses by itself.

    The seed of the network is one of its settings. Whether an agent has one of its own is
    compared, and not which: that of a site follows from its secret.
    """
    seed = "its own" if has_own_seed else "of the network"
    return {"scorer": spell_scorer(scorer), "bits": spell(bits), "seed": seed}


def network_facts(
    X_null: Any, X_test: Any, spec: RunSpec, settings: Mapping[str, str]
) -> BatchFacts:
    """Return what an agent's ledger compares: its normals and the settings, columns, and rows.

    Parameters
    ----------
    X_null, X_test : matrix or frame
    spec : RunSpec
        The settings of the list.
    settings : mapping of str
        Those of the agent, see :func:`agent_settings`.
    """
    null = read_sample(X_null, "X_null")
    test = read_sample(X_test, "X_test", null.columns)
    text = content_digest(raw_numbers(null)) + spec.to_text()
    return BatchFacts(
        "network",
        hashlib.sha256(text.encode()).hexdigest(),
        columns_digest(null.columns, null.width),
        content_digest(raw_numbers(test)),
        settings_digests(settings),
    )


def _open(
    paths: Mapping[str, Path], facts: Mapping[str, BatchFacts], spec: RunSpec
) -> dict[str, Ledger]:
    """Read all ledgers. A batch that only some of them have was broken off, and is taken back.

    Without `privacy` a run is a function of rows and settings, so the batch gives the same
    rejections again. With `privacy` the noise is drawn anew: it is a second attempt, which the
    guarantee says, and nothing of the first was published.
    """
    ledgers = {name: open_ledger(path, spec.level) for name, path in paths.items()}
    have = [
        ledger
        for name, ledger in ledgers.items()
        if ledger.entries and ledger.entries[-1].content == facts[name].content
    ]
    if len(have) < len(ledgers):
        for ledger in have:
            ledger.entries.pop()
    for name, ledger in ledgers.items():
        try:
            ledger.require(facts[name])
        except ConovelError as error:
            raise type(error)(f"agent {name}: {error}") from error
    return ledgers


def make_list(ledgers: Mapping[str, Ledger], run_id: bytes) -> tuple[EvidenceRound, ...]:
    """Let agents decide by counts which rows are on the list; each ledger notes how many."""
    coordinator = ListingCoordinator(list(ledgers), run_id)
    machines = {name: ListingAgent(name, run_id, of.count) for name, of in ledgers.items()}
    queue: deque[Send] = deque()
    for name, machine in machines.items():
        queue.extend(machine.tell(history_of(ledgers[name].history, ledgers[name].level)))
    while queue:
        sent = queue.popleft()
        receiver = coordinator if sent.receiver == COORDINATOR else machines[sent.receiver]
        events = receiver.receive(sent.data, sent.message.sender)
        queue.extend(event for event in events if isinstance(event, Send))
    if coordinator.error is not None and not isinstance(coordinator.error, RunAbortedError):
        raise coordinator.error
    for name, machine in machines.items():
        ledgers[name].list_size = machine.n_listed
    return tuple(EvidenceRound(k, counts) for k, counts in coordinator.rounds)
