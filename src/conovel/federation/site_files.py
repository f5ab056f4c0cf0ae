"""A site's own files in one run: its rows are read, its decisions are written."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from numpy.typing import NDArray

from conovel.deciding.ways import ways_of
from conovel.errors import FileError, InputError
from conovel.federation.run_records import guarantee_of, own_secret
from conovel.federation.settings import AS_PROPOSED, SiteFile
from conovel.federation.site_list import NEEDS_MEMORY, SiteList
from conovel.federation.terms import Terms
from conovel.protocol.agent import Agent
from conovel.protocol.not_checked import FORMATS
from conovel.protocol.plain_bodies import as_plain
from conovel.protocol.transcript import Transcript
from conovel.rows.fetched import fetch
from conovel.rows.known_files import KnownFile, read_samples_of_files
from conovel.rows.pairs import read_with_known
from conovel.rows.private_files import FOLDER_MODE, make_private_folder
from conovel.rows.schemas import columns_read
from conovel.rows.storage import are_large, write_json, write_table
from conovel.rows.tables import as_ids, numbered
from conovel.runs.ledger_network import agent_settings, network_facts
from conovel.runs.site_results import SiteResult, decide
from conovel.scorers.argument import as_candidates
from conovel.site.checks.known import known_findings
from conovel.site.checks.rows import CheckedRows, check_rows, with_findings
from conovel.site.open_files import open_files_site
from conovel.site.output import DecisionFile, explain_files
from conovel.site.site import Site
from conovel.site.strata import checked_within
from conovel.site.work import SiteWork
from conovel.spec.findings import Finding
from conovel.spec.run_spec import site_seed
from conovel.spec.training import thin_finding

FORMAT = FORMATS["agent"]
_MOST_EXPLAINED = 2_000  # rows: the other parties wait while a site writes its decisions


class SiteFiles:
    """A site's rows in one run."""

    def __init__(self, file: SiteFile, terms: Terms) -> None:
        self.file, self.terms = file, terms
        self.listing: SiteList | None = None
        if terms.list_name and file.ledger is not None:
            self.listing = SiteList(file.name, file.ledger, terms, self.decide)
        self._ids: NDArray[Any] | None = None

    def open(self) -> Site:
        """Read the rows; of large files, only the rows to learn from.

        Models, counts and decisions are those of an agent of a network in one process that has
        the seed of this site.
        """
        self.file, work = self._here(), self._own_work()
        file = self.file
        if file.memory is not None or are_large(file.null, file.test):
            if self.listing is not None:
                raise InputError(NEEDS_MEMORY)
            make_private_folder(file.results)
            self._folder = TemporaryDirectory(dir=file.results, prefix=".work-")
            return open_files_site(
                file.null,
                file.test,
                work,
                Path(self._folder.name) / "rows",
                columns=file.columns,
                id_column=file.id_column,
                reading=file.reading,
                schema=file.schema,
                memory=file.memory,
                known_file=self._known,
            )
        reading, columns = columns_read(file.schema, file.reading, file.columns)
        nulls, tests, novel = read_samples_of_files(
            file.null, file.test, columns, file.id_column, reading, self._known
        )
        fixed = work.columns_fixed
        rows = nulls.features, tests.features
        null, test, known_rows = read_with_known(
            *rows, novel, file.schema, shares_schema=True, fixed=fixed
        )
        self._ids = as_ids(tests.ids, len(test))
        if self.listing is not None:
            settings = agent_settings(file.scorer, work.spec.bits, has_own_seed=True)
            self.listing.facts = network_facts(*rows, self.terms.promised, settings)
        return Site(null, test, work, known_rows=known_rows)

    def _here(self) -> SiteFile:
        """Copy tables that are at an address to this machine, until the run ends."""
        if not self.file.addresses:
            return self.file
        self._copies = TemporaryDirectory(prefix="conovel-")
        copies = {}
        for key, address in self.file.addresses.items():
            folder = Path(self._copies.name) / key
            folder.mkdir()
            copies[key] = fetch(address, folder)
        return replace(self.file, **copies, addresses={})  # type: ignore[arg-type]

    @property
    def _known(self) -> KnownFile | None:
        path = self.file.known
        return None if path is None else KnownFile(path, self.file.kind_column)

    def digest(self) -> str:
        """Return a digest of the rows' files: the same where every byte of both samples is."""
        return digest_of(self.file.null, self.file.test)

    def _own_work(self) -> SiteWork:
        """Say how this site works: the run's settings, and its own scorer, seed and precision."""
        file, spec = self.file, self.terms.spec
        seed = site_seed(own_secret(file.state), spec.seed, file.name, self.terms.run_id)
        bits = spec.bits if file.bits is AS_PROPOSED else file.bits
        own = replace(spec, seed=seed, bits=bits)
        return SiteWork(
            own,
            tuple(as_candidates(file.scorer, seed)),
            len(self.terms.agents),
            group_rows=file.limits.own_group_rows,
            columns_fixed=ways_of(spec.regime).learning.one_score,
            share_known=file.limits.share_known,
        )

    def publish(self, site: Site, agent: Agent, transcript: Transcript) -> Path:
        """Write the decisions and the site's summary of the run; return their folder."""
        folder = self.file.results / self.terms.run_id
        try:
            make_private_folder(folder.parent)
            folder.mkdir(mode=FOLDER_MODE)
        except OSError as error:
            raise FileError(f"{folder} cannot be made: {error}") from None
        decisions = folder / "decisions.parquet"
        if site.store is not None:
            n_flagged = agent.n_rejected
            site.cut(agent.limit, agent.floors)
            reasons = explain_files(site, agent.limit, _MOST_EXPLAINED)
            written = DecisionFile(site, agent.limit, agent.outcome.conforming)
            written.write(decisions, reasons)
            self._folder.cleanup()
            thin = self._thin(site, site.n_calibration, agent)
            known_rows = known_findings(site.known_rows, site.null, site.test)
            findings = written.findings(thin, *known_rows, name=self.file.name)
            findings = findings if self.file.check else ()
            results = _without_rows(site)
        else:
            of_run = result = self.decide(site, agent)
            results = {"decisions": {result.name: _plain(of_run)}}
            if self.listing is not None:  # all batches so far decide, not this one by itself
                result = self.listing.decided(of_run)
                results["ledger"] = self.listing.to_dict()
            n_flagged = result.n_rejected
            reasons = result.most_novel_reasons(_MOST_EXPLAINED)
            reason_columns = reasons.file_columns(0, result.rejected.size)
            columns = numbered({**result.columns(), **reason_columns}, result.rejected.size)
            write_table(decisions, columns)
            findings = self._findings(site, result, agent) if self.file.check else ()
        # Reasons and findings stay at the site: no message holds them.
        results["reasons"] = {self.file.name: reasons.to_dict(n_flagged)}
        results["warnings"] = [finding.to_dict() for finding in findings]
        # Written last: a folder with a run.json is complete.
        write_json(folder / "run.json", self._summary(agent, transcript) | results)
        return folder

    def decide(self, site: Site, agent: Agent) -> SiteResult:
        """Decide about the rows in memory, as the run by itself does."""
        floor, conforming = agent.floor, agent.outcome.conforming
        about = agent.limit, self._ids, self.file.name, floor, conforming, agent.floors
        return decide(site, *about)

    def _findings(self, site: Site, result: SiteResult, agent: Agent) -> tuple[Finding, ...]:
        """Look for what speaks against the decisions, as an agent in one process does."""
        checked, thin = (
            CheckedRows.of(site.null, site.test),
            self._thin(site, site.n_calibration, agent),
        )
        compared, of_strata = checked_within(checked, site.strata)
        before = check_rows(
            compared,
            checked.entries_of(self._ids),
            lambda _: None,
            thin,
            *(known_findings(site.known_rows, site.null, site.test) if site.known_rows else ()),
            *of_strata,
            n_agents=len(self.terms.agents),
        )
        return with_findings(result, before, checked).warnings

    def _thin(self, site: Site, n_calibration: int, agent: Agent) -> Finding | None:
        """Say that calibration rows are few, as far as a site can tell by itself.

        In the regime `joint` the rows of a group count together, and a site does not know how
        many there are: nothing is said, unless it is in a group of its own.
        """
        spec, n_agents = self.terms.spec, len(self.terms.agents)
        if site.calibrates_with_others:
            return None
        deciding, n_tests = ways_of(spec.regime).deciding, site.facts.n_test
        if deciding.shares_ranks:
            n_tests = agent.outcome.n_tests
        level = spec.test_level(n_agents)
        return thin_finding(
            n_calibration, n_tests, level, spec.pi0, self.file.name, deciding.whose
        )

    def _summary(self, agent: Agent, transcript: Transcript) -> dict[str, Any]:
        outcome = agent.outcome
        return {
            "format": FORMAT,
            "command": "agent",
            "site": self.file.name,
            "guarantee": guarantee_of(self.terms, outcome, transcript),
            "outcome": as_plain(outcome),
            "limit": agent.limit,
            "n_rejected": agent.n_rejected,
            # What this site sent and received; it does not hold the counts of others.
            "transcript": transcript.to_dict(),
        }


def digest_of(*paths: Path) -> str:
    """Return a digest of files and folders, in this order.

    Examples
    --------
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a.csv").write_text("x")
    ...     one, both = digest_of(Path(folder) / "a.csv"), digest_of(Path(folder), Path(folder))
    >>> len(one), one == both
    (64, False)
    """
    whole = hashlib.sha256()
    try:
        for path in paths:
            files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
            whole.update(len(files).to_bytes(8, "little"))
            for one in files:
                name = str(one.relative_to(path)).encode() if path.is_dir() else b""
                with one.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").digest()
                whole.update(hashlib.sha256(name).digest() + content)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    return whole.hexdigest()


def _without_rows(site: Site) -> dict[str, Any]:
    """Return the results without the rows, which are in decisions.parquet."""
    return {
        "n_calibration": site.n_calibration,
        "choices": {what: choice.to_dict() for what, choice in site.choices.items()},
    }


def _plain(result: SiteResult) -> dict[str, Any]:
    """Return the decisions as JSON types; a row that is not tested has no score."""
    ids = {} if result.ids is None else {"ids": [str(name) for name in result.ids]}
    return ids | {
        "choices": {what: choice.to_dict() for what, choice in result.choices.items()},
        "n_calibration": result.n_calibration,
        "ranks": result.ranks.tolist(),
        "scores": [
            score if tested else None
            for score, tested in zip(result.scores.tolist(), result.tested, strict=True)
        ],
        "tested": result.tested.tolist(),
        **result.cells_as_plain(),
        **result.strata_as_plain(),
        "rejected": result.rejected.tolist(),
    }
