"""``conovel run``, ``status`` and ``stop``: what an operator does."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from conovel.cli.show import (
    facts_table,
    print_fitted,
    print_json,
    require_there,
    say,
    split_names,
    stages,
    styled,
)
from conovel.cli.simulate import read_bits
from conovel.cli.tables import with_options
from conovel.errors import CODES, DataWarning, FileError, with_number
from conovel.spec.exits import NO, YES

if TYPE_CHECKING:
    from conovel.federation.settings import FederationFile
    from conovel.federation.terms import Terms

_FEDERATION = typer.Option("--federation", help="The operator's federation.toml.")


@with_options(
    federation=_FEDERATION,
    regime="auto, together, joint, consensus, full, counts, isolated, split or conservative. auto"
    " is together; joint with --composite or --bits; full with --pi0.",
    level="Largest tolerated share of false alarms over all sites.",
    sites="Which sites, separated by commas; all if not given.",
    composite="As in `conovel simulate`.",
    bits="How models are sent, unless a site has its own rule.",
    train_fraction="Share of the known normals used for training; each site chooses if not given.",
    on_dropout="When a site is lost: abort, or conservative to go on without it (not in together,"
    " joint and consensus; auto is then full).",
    liars=typer.Option(
        min=0,
        help="How many sites may lie about their counts. If not given: one from four sites on, in"
        " together, joint, full, counts and split. With --liars 0 the terms say that none may.",
    ),
    counting="committed (sites commit to all their counts before any are revealed) or rounds."
    " committed if not given, or rounds where it is not possible: with --pi0, with --on-dropout"
    " conservative, or in consensus.",
    reveal_to="Who sees revealed counts: coordinator, or all members.",
    masks="In together, hide the sums of each site from the coordinator. On if not given. Without"
    " liars the counts of each site are hidden, too.",
    privacy="ε of differential privacy for the models that sites send, or ε,δ: every site adds"
    " noise to its own. δ is 1/1000000 if not given.",
    strata="Columns, with commas, within whose values rows are compared: a branch, a month. The"
    " shares of these may then differ between known normals and tests. In together and joint; each"
    " site must allow these columns in its site.toml.",
    list_name=typer.Option(
        "--list",
        help="Continue the list of this name over several batches; each site names it and its"
        " ledger in site.toml. --level is then that of the list.",
    ),
    repeats=typer.Option(hidden=True),
    stage_seconds=typer.Option(min=0.1, help="How long a site may take to answer."),
    run_seconds=typer.Option(min=0.1, help="How long the run may take in all."),
    certificate="Say how many of the flagged rows can be false, and how many rows are novel at"
    " least, with this probability, such as 0.95. In together and joint. Sites are asked nothing"
    " more.",
    announce="Write the terms of the run into this file (.json) and end. Sites look at it with"
    " `conovel agent site.toml --check --terms FILE` before anybody waits for a run.",
    out="Where to write the outcome (.json), for verify.",
)
def run(
    *,
    federation: Path,
    regime: str = "auto",
    level: str = "0.1",
    sites: str | None = None,
    composite: str = "auto",
    bits: str = "compact",
    train_fraction: str | None = None,
    pi0: str | None = None,
    seed: int = 0,
    on_dropout: str = "abort",
    liars: int | None = None,
    counting: str | None = None,
    reveal_to: str = "coordinator",
    masks: bool | None = None,
    privacy: str | None = None,
    schema: Path | None = None,
    strata: str | None = None,
    list_name: str | None = None,
    repeats: int = 1,
    stage_seconds: float = 900.0,
    run_seconds: float = 3600.0,
    certificate: str | None = None,
    announce: Path | None = None,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Start a run between the sites of a federation and wait for its outcome.

    Every site writes its own decisions. The operator gets counts, the threshold and the
    transcript.
    Exit code 3 when the run was broken off or a site could not publish.

    Example: `conovel run --federation federation.toml --level 0.1`
    """
    require_there(federation, schema)

    from conovel.deciding.ways import ways_of  # noqa: PLC0415
    from conovel.federation.session import choose_sites  # noqa: PLC0415
    from conovel.federation.settings import read_federation  # noqa: PLC0415
    from conovel.federation.terms import Terms  # noqa: PLC0415
    from conovel.protocol.certificates import refuse_uncovered  # noqa: PLC0415
    from conovel.rows.schemas import as_whole_schema  # noqa: PLC0415
    from conovel.rows.storage import write_json  # noqa: PLC0415
    from conovel.spec.regimes import choose_regime  # noqa: PLC0415
    from conovel.spec.run_spec import RunSpec, of_batch  # noqa: PLC0415
    from conovel.spec.settings import (  # noqa: PLC0415
        ROUNDS,
        choose_counting,
        choose_liars,
        choose_masks,
        exposure_note,
    )
    from conovel.stats.certificate import as_confidence  # noqa: PLC0415

    chosen = choose_regime(
        regime,
        estimates_nulls=pi0 is not None,
        on_dropout=on_dropout,
        names_models=composite != "auto" or bits != "compact",
    )
    file = read_federation(federation)
    names = choose_sites(file.sites, split_names(sites) if sites else None)
    masks = choose_masks(chosen) if masks is None else masks
    counted = counting or choose_counting(chosen, pi0, on_dropout, repeats)
    if liars is None:
        excluded = {
            "--pi0": pi0 is not None,
            "--list": list_name is not None,
            "--strata": strata is not None,
            "--on-dropout conservative": on_dropout != "abort",
        }
        liars = choose_liars(chosen, len(names), counted, excluded)
    if counting is None and (masks or strata) and not liars:
        counted = ROUNDS  # in which masks hide the counts of each site
    spec = RunSpec.of(
        regime=chosen,
        level=level,
        composite=composite,
        bits=read_bits(bits),
        pi0=pi0,
        seed=seed,
        train_fraction=train_fraction,
        on_dropout=on_dropout,
        repeats=repeats,
        liars=liars,
        counting=counted,
        reveal_to=reveal_to,
        masks=masks,
        privacy=privacy,
        schema=as_whole_schema(schema),
        strata=split_names(strata) if strata else (),
    )
    if certificate is not None:
        as_confidence(certificate)
        refuse_uncovered(spec)
    if (
        ways_of(spec.regime).learning.model_rounds
        and spec.privacy is None
        and (note := exposure_note(spec.bits))
    ):
        warnings.warn(note, DataWarning, stacklevel=2)
    terms = Terms(
        names,
        spec if list_name is None else of_batch(spec),
        stage_seconds=stage_seconds,
        run_seconds=run_seconds,
        call_seconds=min(30.0, stage_seconds),
        list_name=list_name or "",
    )
    if announce is not None:
        write_json(announce, terms.to_dict())
        say(f"written to {announce}; at a site: conovel agent site.toml --check --terms FILE")
        return
    account = _carry_out(file, terms, certificate)
    if out is not None:
        write_json(out, account)
    if json:
        print_json(account)
    else:
        _print_account(account)
    if account["state"] != "done" or account["unpublished"]:
        raise typer.Exit(NO)


def _carry_out(file: FederationFile, terms: Terms, certificate: str | None) -> dict[str, Any]:
    """Run to the end, and return the account of the run."""
    from conovel.federation.session import connect  # noqa: PLC0415
    from conovel.federation.session import run as run_terms  # noqa: PLC0415
    from conovel.protocol.certificates import run_numbers  # noqa: PLC0415
    from conovel.protocol.transcript import Transcript  # noqa: PLC0415

    with stages() as show:
        show.stage("connecting")
        with connect(file) as session:
            show.stage("starting a process at every site")
            account = run_terms(session, terms, lambda progress: show.stage(_in_words(progress)))
    if certificate is not None and account["state"] == "done":
        transcript = Transcript.from_dict(account["transcript"])
        account["certificate"] = run_numbers(transcript, certificate)
    return account


@with_options(
    settings=typer.Argument(help="federation.toml, or a site's site.toml."),
    up="Of a party's own file: say whether its agent runs and is connected, or its coordinator"
    " listens; exit code 3 if not.",
)
def status(*, settings: Path, up: bool = False) -> None:
    """Show which sites are connected and how runs ended."""
    require_there(settings)
    if up:
        _print_up(settings)
        return
    if _is_site(settings):
        from conovel.federation.run_records import RunRecords  # noqa: PLC0415
        from conovel.federation.settings import read_site  # noqa: PLC0415

        _print_runs(RunRecords(read_site(settings).state))
        return
    from conovel.federation.session import connect  # noqa: PLC0415

    file = _federation(settings)
    with connect(file) as session:
        connected = session.connected()
        for site in file.sites:
            say(f"{site}: {'connected' if site in connected else 'NOT connected'}")
        for job in session.jobs():
            word = job.ending or "running"
            if not job.is_over and not session.progress(job.number):
                word = "starting, or interrupted"
            say(f"{job.submitted} {job.run_id} {word}")


@with_options(
    settings=typer.Argument(help="An operator's federation.toml, or a party's own file."),
    reason="Sent to the sites.",
)
def stop(*, settings: Path, reason: str = "an operator stopped it") -> None:
    """End all runs of a federation; or stop the local agent or coordinator."""
    require_there(settings)
    from conovel.federation.supervise import stop_party  # noqa: PLC0415

    if _is_site(settings):
        from conovel.federation.settings import read_site  # noqa: PLC0415

        stopped = stop_party(read_site(settings).state)
        say("stopped" if stopped else "no agent is running here")
        return
    file = _federation(settings)
    if file.operator_kit is None:
        stopped = stop_party(file.state)
        say("stopped" if stopped else "no coordinator is running here")
        return
    from conovel.federation.session import connect, stop_runs  # noqa: PLC0415

    with connect(file) as session:
        jobs = stop_runs(session, reason)
    runs = "run" if len(jobs) == 1 else "runs"
    say(f"stopped {len(jobs)} {runs}" if jobs else "no run is under way")


def _print_up(settings: Path) -> None:
    """Say whether a party is up; exit code 3 if not."""
    from conovel.federation.settings import read_site  # noqa: PLC0415
    from conovel.federation.supervise import coordinator_is_up, site_is_up  # noqa: PLC0415

    if _is_site(settings):
        is_up = site_is_up(read_site(settings))
    else:
        is_up = coordinator_is_up(_federation(settings))
    say("up" if is_up else "not up")
    raise typer.Exit(YES if is_up else NO)


def _federation(path: Path) -> FederationFile:
    from conovel.federation.settings import read_federation  # noqa: PLC0415

    return read_federation(path)


def _is_site(path: Path) -> bool:
    return path.name != "federation.toml" and "[site]" in _text(path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}") from None


def _in_words(progress: dict[str, Any]) -> str:
    """Describe the progress: the round, the sites, and the bytes sent so far."""
    parts = [f"round {progress['round']}" if progress["round"] else progress["state"]]
    for words, names in (("", progress["here"]), ("waiting for ", progress["owing"])):
        if names:
            parts.append(words + ", ".join(names))
    return " · ".join([*parts, f"{progress['bytes']:,} bytes"])


def _print_runs(records: Any) -> None:
    from datetime import datetime  # noqa: PLC0415

    from conovel.federation.run_records import in_words  # noqa: PLC0415

    for record in records.runs():
        began = datetime.fromtimestamp(record["began"])
        say(f"{began:%Y-%m-%d %H:%M} {record['run_id']} {in_words(record)}")


def _print_account(account: dict[str, Any]) -> None:
    terms, transcript = account["terms"], account["transcript"]
    if account["state"] != "done":
        message = with_number(account["message"], CODES.get(str(account.get("fault"))))
        print_fitted(styled(("broken off", "bold"), f": {message}"))
        print_fitted("Nothing was decided, and nothing was published anywhere.")
        return
    outcome = account["outcome"]
    table = facts_table()
    table.add_row("run", terms["run_id"])
    table.add_row("regime", terms["spec"]["regime"])  # the one that auto was resolved to
    table.add_row("sites", ", ".join(outcome["participants"]))
    table.add_row("rows tested", f"{outcome['n_tests']:,}")
    if outcome["rounds"]:
        what = "rejected in the batch" if "ledger" in account else "rows flagged"
        table.add_row(what, styled((f"{outcome['n_rejected']:,}", "bold"), " in all"))
        if outcome["slope"] != "0":  # cells decide in joint, and no common p-value
            k = outcome["k"] or outcome["n_rejected"]
            table.add_row("threshold", f"p ≤ {k} · {outcome['slope']}")
        table.add_row("counting", terms["spec"]["counting"])
        table.add_row("rounds", str(outcome["rounds"]))
    if "certificate" in account:
        from conovel.spec.findings import certificate_words  # noqa: PLC0415
        from conovel.stats.levels import as_level  # noqa: PLC0415

        level = as_level(terms["spec"]["level"])
        table.add_row("certificate", certificate_words(level, account["certificate"]))
    for name, moved in transcript["totals"]["by_agent"].items():
        table.add_row(name, f"{moved['sent']:,} bytes out, {moved['received']:,} bytes in")
    if "ledger" in account:
        listed = account["ledger"]
        table.add_row("level of the batch", f"{terms['spec']['level']}, half that of the list")
        for name, site in listed["sites"].items():
            table.add_row(f"list at {name}", f"{site['n_listed']:,} rows")
        table.add_row(
            "list so far",
            styled(
                (f"{listed['n_listed_in_all']:,}", "bold"),
                f" of {listed['rounds'][0]['k']:,} rows in"
                f" {next(iter(listed['sites'].values()))['batch']:,} batches",
            ),
        )
    table.add_row("guaranteed", account.get("ledger", account)["guarantee"])
    for name, why in account["unpublished"].items():
        table.add_row("not published", styled((name, "bold"), f": {why}"))
    print_fitted(table)
