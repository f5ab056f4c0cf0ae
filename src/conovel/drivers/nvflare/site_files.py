"""What a site does on its own ground: read its rows, and write down its decisions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from numpy.typing import NDArray

from conovel.drivers.nvflare.secret import own_secret
from conovel.drivers.nvflare.settings import AS_PROPOSED, SiteFile
from conovel.drivers.nvflare.terms import Terms
from conovel.errors import FileError
from conovel.protocol.agent import Agent
from conovel.protocol.not_checked import FORMATS
from conovel.protocol.transcript import Transcript, as_plain
from conovel.scorers.registry import as_candidates
from conovel.site.files import FileSite
from conovel.site.files.memory import DEFAULT_MEMORY, are_large
from conovel.site.results import SiteResult, decide
from conovel.site.site import LocalSite, Site, SiteWork
from conovel.site.storage import read_pair_of_files, write_json, write_table
from conovel.site.tables import as_ids, read_pair
from conovel.spec.guarantee import guarantee
from conovel.spec.seeds import site_seed

FORMAT = FORMATS["agent"]


class SiteFiles:
    """A site's rows in one run.

    Parameters
    ----------
    file : SiteFile
        Where the rows are and how they are scored: the site's own word, not the run's.
    terms : Terms
    """

    def __init__(self, file: SiteFile, terms: Terms) -> None:
        self.file, self.terms = file, terms
        self._ids: NDArray[Any] | None = None

    def open(self) -> LocalSite | FileSite:
        """Read the rows, or what to learn from where they are many.

        Models, counts and decisions are those of an agent of a network in one process that has
        the seed of this site.
        """
        file, work = self.file, self._own_work()
        if file.memory is not None or are_large(file.null, file.test):
            file.results.mkdir(parents=True, exist_ok=True)
            self._folder = TemporaryDirectory(dir=file.results, prefix=".work-")
            return FileSite(
                file.null,
                file.test,
                work,
                Path(self._folder.name) / "rows",
                columns=file.columns,
                id_column=file.id_column,
                memory=file.memory or DEFAULT_MEMORY,
            )
        known, tests = read_pair_of_files(file.null, file.test, file.columns, file.id_column)
        null, test = read_pair(known.features, tests.features)
        self._ids = as_ids(tests.ids, len(test))
        return LocalSite(null, test, work)

    def _own_work(self) -> SiteWork:
        """Say how this site works: the run's settings, and its own scorer, seed and precision."""
        file, spec = self.file, self.terms.spec
        seed = site_seed(own_secret(file.state), spec.seed, file.name)
        bits = spec.bits if file.bits is AS_PROPOSED else file.bits
        own = replace(spec, seed=seed, bits=bits)
        return SiteWork(own, tuple(as_candidates(file.scorer, seed)), len(self.terms.agents))

    def publish(self, site: Site, agent: Agent, transcript: Transcript) -> Path:
        """Write the decisions, a summary and the site's own record; whole or not at all."""
        folder = self.file.results / self.terms.run_id
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise FileError(f"{folder} cannot be made: {error}") from None
        decisions = folder / "decisions.parquet"
        if isinstance(site, FileSite):
            site.write(decisions, agent.limit)
            self._folder.cleanup()
            told = _outline(site)
        else:
            result = decide(cast(LocalSite, site), agent.limit, self._ids, self.file.name)
            write_table(decisions, result.columns())
            told = {"decisions": {result.name: _plain(result)}}
        # Last, so that a folder with a run.json is a whole one.
        write_json(folder / "run.json", self._summary(agent, transcript) | told)
        return folder

    def _summary(self, agent: Agent, transcript: Transcript) -> dict[str, Any]:
        outcome = agent.outcome
        return {
            "format": FORMAT,
            "command": "agent",
            "site": self.file.name,
            "guarantee": guarantee(
                self.terms.spec, left_out=outcome.left_out, dropped=outcome.dropped
            ),
            "outcome": as_plain(outcome),
            "limit": agent.limit,
            "n_rejected": agent.n_rejected,
            # What this site sent and received: the counts of others are not in it.
            "transcript": transcript.to_dict(),
        }


def _outline(site: FileSite) -> dict[str, Any]:
    """Give what is known of many rows without listing them; they are in the other file."""
    return {
        "n_calibration": site.histogram.n_calibration,
        "choices": {what: choice.to_dict() for what, choice in site.choices.items()},
    }


def _plain(result: SiteResult) -> dict[str, Any]:
    """Give the decisions as JSON types; a score that is not there is null."""
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
        "rejected": result.rejected.tolist(),
    }
