"""``conovel simulate``: a network of agents in one process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from conovel.cli.made import made
from conovel.cli.show import (
    print_certificate,
    print_findings,
    print_fitted,
    print_json,
    print_numbers,
    say,
    split_names,
    stages,
    styled,
    times_in_words,
)
from conovel.cli.sources import local_path
from conovel.cli.tables import FileOptions, as_known_file, with_options
from conovel.errors import InputError
from conovel.stats.words import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from conovel.protocol.group_records import AgentGroup
    from conovel.rows.schemas import SchemaLike
    from conovel.runs.agents import Agent
    from conovel.runs.network_run import Phase
    from conovel.runs.results import NetworkRun
    from conovel.spec.settings import Bits

    Truth = dict[str, NDArray[np.bool_]]


@with_options(
    "kind",
    agent="An agent's files as NAME=NULL,TEST, or NAME=NULL,TEST,KNOWN with known novelties;"
    " repeat for each agent. Without any, the paper's Gaussian design is drawn.",
    delta=typer.Option(min=0, help="Gaussian design: distance between the agents' normals."),
    agents=typer.Option(min=2, help="Gaussian design: how many agents."),
    nulls="Gaussian design: known normals in all.",
    tests="Gaussian design: rows to test in all.",
    regime="auto, together, joint, consensus, full, counts, isolated, split, conservative or"
    " pooled; or several, with commas. auto is together; joint with --scorer, --composite or"
    " --bits; full with --pi0.",
    composite="How scores are combined: auto (each agent chooses), mean, max (the paper's), min"
    " or stacked.",
    bits="How models are sent: compact, compact:BYTES, 1 to 16 bits, or float64.",
    level="Largest tolerated share of false alarms over the whole network.",
    drop="Simulate the loss of an agent: NAME=hello, NAME=models or NAME=counts.",
    on_dropout="When an agent is lost during the counts: abort, or conservative (not in together,"
    " joint and consensus; auto is then full).",
    repeats="Number of whole runs with random splits of their own, 1 to 100, whose evidence is"
    " averaged: the answer depends less on --seed. As in `conovel detect`.",
    strata="Columns, with commas, within whose values rows are compared: a branch, a month. The"
    " shares of these may then differ between known normals and tests. In together and joint.",
    ledger="A folder with the ledgers of the agents: decide together with all earlier batches,"
    " with one guarantee for the list of all flagged rows. It is made if it is not there.",
    liars=typer.Option(
        min=0, help="How many agents may lie about their counts, which are then committed."
    ),
    counting="rounds, or committed: agents commit to all their counts before any are revealed.",
    reveal_to="Who sees revealed counts: coordinator or members.",
    privacy="ε of differential privacy for the models that are sent, or ε,δ: noise is added to"
    " them. δ is 1/1000000 if not given.",
    as_deployed="Let scores of peers and counts tell no fewer than 5 rows of an agent apart, or 3"
    " with fewer than 400 rows, and hide sums behind masks in together, as sites between"
    " organisations do by default.",
    out="Where to write the run (.json); `conovel verify` reads it. With several regimes each has"
    " a file of its own: run.counts.json, run.joint.json.",
    certificate="Say how many of the flagged rows can be false, and how many rows are novel at"
    " least, with this probability, such as 0.95. In together and joint.",
    confidence="Flag the longest list of which at most LEVEL is false with this probability, such"
    " as 0.95, instead of on average. In together and joint.",
    check="As in `conovel detect`, for every agent.",
)
def simulate(
    *,
    agent: list[str] | None = None,
    kind_column: str | None = None,
    delta: float = 2.0,
    agents: int = 3,
    nulls: int = 3000,
    tests: int = 1000,
    regime: str = "auto",
    composite: str = "auto",
    bits: str = "compact",
    level: str = "0.1",
    scorer: str = "automatic",
    train_fraction: str | None = None,
    pi0: str | None = None,
    drop: list[str] | None = None,
    on_dropout: str = "abort",
    repeats: int = 1,
    strata: str | None = None,
    ledger: Path | None = None,
    liars: int = 0,
    counting: str = "rounds",
    reveal_to: str = "coordinator",
    privacy: str | None = None,
    as_deployed: bool = False,
    options: FileOptions,
    seed: int = 0,
    out: Path | None = None,
    certificate: str | None = None,
    confidence: str | None = None,
    check: bool = True,
    json: bool = False,
) -> None:
    """Run agents that exchange models and counts, but no rows, in one process.

    Example: `conovel simulate --regime isolated,counts,together --delta 2`

    Example: `conovel simulate --agent north=n0.parquet,n1.csv --agent south=s0.parquet,s1.csv`

    Example: `conovel simulate --agent north=n0.csv,n1.csv,fraud.csv --agent south=s0.csv,s1.csv`
    """
    from conovel.report import network_content  # noqa: PLC0415
    from conovel.rows.storage import write_json  # noqa: PLC0415
    from conovel.runs.network import Network  # noqa: PLC0415
    from conovel.spec.settings import choose_masks  # noqa: PLC0415

    regimes = split_names(regime)
    if ledger is not None and len(regimes) > 1:
        raise InputError("a ledger belongs to one regime: name a single one with --regime")
    outs = _named_by_regime(out, regimes)
    agreed = options.agreed_schema()
    with stages() as show:
        show.stage("reading rows")
        if agent:
            participants = _read_agents(agent, options, agreed, kind_column)
            truth = None
        else:
            participants, truth = _draw_agents(delta, seed, agents, nulls, tests)
        networks = [
            Network(
                participants,
                regime=name,
                composite=composite,
                bits=read_bits(bits),
                level=level,
                scorer=split_names(scorer),
                random_state=seed,
                train_fraction=train_fraction,
                pi0=pi0,
                on_dropout=on_dropout,  # type: ignore[arg-type]
                repeats=repeats,
                strata=split_names(strata) if strata else None,
                ledger=ledger,
                liars=liars,
                counting=counting,  # type: ignore[arg-type]
                reveal_to=reveal_to,  # type: ignore[arg-type]
                privacy=privacy,
                schema=agreed,
                min_group_rows=None if as_deployed else 1,
                confidence=confidence,
            )
            for name in regimes
        ]
        for network in networks if as_deployed else ():
            network.masks = choose_masks(network.spec().regime)
        runs = [
            network.run(
                dropouts=_read_dropouts(drop),
                on_stage=show.stage,
                on_finding=show.finding,
                check=check,
            )
            for network in networks
        ]
    certificates: list[dict[str, Any]] = [
        {} if certificate is None else {"certificate": _certificate(run, certificate)}
        for run in runs
    ]
    read = [file for text in agent or () for file in _named_files(text)[1:]]
    for path, run, more in zip(outs, runs, certificates, strict=False):
        how = {"made": made(path, read, seed=seed)}
        write_json(path, network_content(run, truth) | more | how)
    if json:
        contents = [run.to_dict() for run in runs]
        print_json([content | more for content, more in zip(contents, certificates, strict=True)])
        return
    for run in runs:
        _print_run(run, truth)
        print_certificate(run, certificate)
    for path in outs:
        say(f"written to {path}; check it with: conovel verify {path}")
        say(f"a page about it: conovel report {path}")


def _certificate(run: NetworkRun, confidence: str) -> dict[str, Any]:
    """Return the numbers of a certificate; its record is that of the promise on average."""
    return (run.mean or run).certificate(confidence).to_dict()


def _named_by_regime(out: Path | None, regimes: Sequence[str]) -> list[Path]:
    """Return the file of each run; with several, the regime is part of its name.

    Examples
    --------
    >>> [path.name for path in _named_by_regime(Path("run.json"), ["counts", "full"])]
    ['run.counts.json', 'run.full.json']
    """
    if out is None or len(regimes) == 1:
        return [] if out is None else [out]
    return [out.with_name(f"{out.stem}.{name}{out.suffix}") for name in regimes]


def read_bits(text: str) -> Bits:
    """Read a precision from the command line.

    Examples
    --------
    >>> read_bits("4"), read_bits("float64"), read_bits("compact:300")
    (4, None, 'compact:300')
    """
    from conovel.spec.settings import as_bits  # noqa: PLC0415

    if text in ("float64", "none"):
        return None
    return as_bits(int(text) if text.isdigit() else text)


def _draw_agents(
    delta: float, seed: int, n_agents: int, n_null: int, n_test: int
) -> tuple[list[Agent], Truth]:
    from conovel.experiments.gaussian import gaussian_design  # noqa: PLC0415
    from conovel.runs.agents import Agent  # noqa: PLC0415

    drawn = gaussian_design(delta, seed, n_agents=n_agents, n_null=n_null, n_test=n_test)
    names = [f"agent-{j + 1:0{len(str(n_agents))}d}" for j in range(n_agents)]
    participants = [Agent(name, a.X_null, a.X_test) for name, a in zip(names, drawn, strict=True)]
    return participants, {name: a.is_novel for name, a in zip(names, drawn, strict=True)}


def _read_agents(
    texts: list[str], options: FileOptions, schema: SchemaLike, kind_column: str | None
) -> list[Agent]:
    from conovel.rows.known_files import read_samples_of_files  # noqa: PLC0415
    from conovel.rows.schemas import columns_read  # noqa: PLC0415
    from conovel.runs.agents import Agent  # noqa: PLC0415

    split = [_named_files(text) for text in texts]
    if kind_column is not None and not any(known_file for *_, known_file in split):
        raise InputError("--kind-column names a column of known novelties: no --agent has any")
    participants = []
    for name, null, test, known_file in split:
        reading, features = columns_read(schema, options.reading, options.features)
        file = as_known_file(known_file, kind_column if known_file else None)
        normals, rows, novel = read_samples_of_files(
            null, test, features, options.id_column, reading, file
        )
        agent = Agent(name, normals.features, rows.features, ids=rows.ids, X_known=novel)
        participants.append(agent)
    return participants


def _named_files(text: str) -> tuple[str, Path, Path, Path | None]:
    """Read the name of an agent and its files.

    Examples
    --------
    >>> name, *paths = _named_files("north=a.csv,b.csv")
    >>> name, [path and path.name for path in paths]
    ('north', ['a.csv', 'b.csv', None])
    """
    name, _, files = text.partition("=")
    paths = files.split(",")
    if not (name and all(paths) and 2 <= len(paths) <= 3):
        raise InputError(f"--agent {text}: write NAME=NULL,TEST or NAME=NULL,TEST,KNOWN")
    null, test, *known_file = map(local_path, paths)
    return name, null, test, known_file[0] if known_file else None


def _read_dropouts(texts: list[str] | None) -> dict[str, Phase]:

    dropouts: dict[str, Any] = {}
    for text in texts or []:
        name, _, phase = text.partition("=")
        if phase not in ("hello", "models", "counts"):
            raise InputError(f"--drop {text}: write NAME=hello, NAME=models or NAME=counts")
        dropouts[name] = phase
    return dropouts


def _print_run(run: NetworkRun, truth: Truth | None) -> None:
    import numpy as np  # noqa: PLC0415

    from conovel.deciding.ways import ways_of  # noqa: PLC0415
    from conovel.report import correct_counts  # noqa: PLC0415

    spec = run.spec
    bits = spec.bits or "float64"
    how = f", {spec.composite} of {f'{bits}-bit' if isinstance(bits, int) else bits} models"
    how += "" if spec.privacy is None else f" with {spec.privacy.in_words}"
    title = f"{spec.regime.name}{how if ways_of(spec.regime).learning.model_rounds else ''}"
    heads = ["agent", "nulls", "tested", "flagged", "bytes out", "bytes in"]
    heads += ["false", "found"] if truth else []
    heads += ["in runs"] if run.runs else []  # how often the flagged rows were flagged
    rows = []
    traffic = [transcript.totals()["by_agent"] for transcript in run.transcripts]
    totals = np.zeros(9, dtype=int)
    for name, site in run.items():
        moved = [
            sum(part.get(name, {}).get(way, 0) for part in traffic) for way in ("sent", "received")
        ]
        novel = truth[name] if truth else np.zeros_like(site.rejected)
        counts = correct_counts(site.rejected, novel)
        numbers = [run.n_null[name], int(site.tested.sum()), site.tested.size, site.n_rejected]
        numbers += [*moved, counts["false"], counts["found"], counts["novel"]]
        totals += numbers
        times = [times_in_words(site)] if run.runs else []
        rows.append([name, *_cells(numbers, truth is not None), *times])
    last = ["all", *_cells(totals.tolist(), truth is not None), *([""] if run.runs else [])]
    print_numbers(title, heads, rows, [last])
    for what in () if run.runs else ("scorer", "composite"):  # every run has its own choices
        chosen = {
            name: site.choices[what].winner for name, site in run.items() if what in site.choices
        }
        if chosen:
            winners = ", ".join(f"{winner} ({name})" for name, winner in chosen.items())
            print_fitted(f"{what} chosen: {winners}")
    print_fitted(
        f"{counted(run.rounds, 'round')} of counts, {run.n_bytes:,} bytes in all messages"
    )
    for line in [*_group_lines(run.groups), *_list_lines(run)]:
        print_fitted(line)
    if truth:
        false, found_in_all, novel_in_all = totals[-3:]
        print_fitted(
            f"false alarms among flagged: {false / max(run.n_rejected, 1):.3f},"
            f" novelties found: {found_in_all / max(novel_in_all, 1):.3f}"
        )
    print_fitted(styled((str(run.guarantee), "dim")))
    say("")
    print_findings(run.warnings, run.headline)


def _list_lines(run: NetworkRun) -> list[str]:
    """Say what is on the list of all batches so far, where there is a ledger."""
    updates = {name: site.ledger for name, site in run.items() if site.ledger is not None}
    if not updates:
        return []
    listed = ", ".join(f"{update.n_listed:,} ({name})" for name, update in updates.items())
    left = sum(len(update.left) for update in updates.values())
    number = next(iter(updates.values())).number
    return [f"batch {number:,}; rows on the list so far: {listed}; {left:,} left it"]


def _group_lines(groups: Sequence[AgentGroup]) -> list[str]:
    """Say who calibrated with whom, where there are several groups or a floor was reached."""
    lines = []
    if len(groups) > 1:
        members = [
            f"{len(group.agents)} agents" if len(group.agents) > 3 else ", ".join(group.agents)
            for group in groups
        ]
        able = ["" if group.can_reject else " (could flag no row in this run)" for group in groups]
        parts = "; ".join(map("".join, zip(members, able, strict=True)))
        lines.append(f"{len(groups)} groups calibrated by themselves: {parts}")
    if reached := [name for group in groups for name in group.floors_reached]:
        lines.append(
            f"floor reached, so that more rows could not be flagged: {', '.join(reached)}"
        )
    return lines


def _cells(numbers: list[int], with_truth: bool) -> list[str]:
    nulls, tested, tests, flagged, sent, received, false, true, novel = numbers
    cells = [f"{nulls:,}", f"{tested:,}/{tests:,}", f"{flagged:,}", f"{sent:,}", f"{received:,}"]
    return cells + ([f"{false:,}", f"{true:,}/{novel:,}"] if with_truth else [])
