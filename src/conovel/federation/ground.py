"""What a site does on its own ground: read its rows, and write down its decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conovel.errors import FileError
from conovel.federation.settings import AS_PROPOSED, SiteFile
from conovel.federation.terms import Terms
from conovel.files import Sample, read_pair_of_files, write_json, write_table
from conovel.named import as_candidates
from conovel.participant import Participant
from conovel.regimes import guarantee
from conovel.results import SiteResult
from conovel.rows import as_ids, read_pair
from conovel.site import LocalSite, Settings
from conovel.transcript import Transcript, as_plain

FORMAT = "conovel-site-run-1"


class Ground:
    """A site's rows in one run.

    Parameters
    ----------
    file : SiteFile
        Where the rows are and how they are scored: the site's own word, not the run's.
    terms : Terms
    """

    def __init__(self, file: SiteFile, terms: Terms) -> None:
        self.file, self.terms = file, terms
        self._tests: Sample | None = None

    def open(self) -> LocalSite:
        """Read the rows, as an agent of a network in one process would have them."""
        file, terms = self.file, self.terms
        known, self._tests = read_pair_of_files(file.null, file.test, file.columns, file.id_column)
        null, test = read_pair(known.features, self._tests.features)
        as_ids(self._tests.ids, len(test))
        seed = terms.seed_of(file.name)
        settings = Settings(
            regime=terms.rules,
            composite=terms.composite,
            candidates=tuple(as_candidates(file.scorer, seed)),
            bits=terms.bits if file.bits is AS_PROPOSED else file.bits,
            level=terms.alpha,
            train_fraction=terms.share,
            seed=seed,
            n_agents=len(terms.agents),
        )
        return LocalSite(null, test, settings)

    def publish(self, site: LocalSite, participant: Participant, transcript: Transcript) -> Path:
        """Write the decisions, a summary and the site's own record; whole or not at all."""
        folder = self.file.results / self.terms.run_id
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise FileError(f"{folder} cannot be made: {error}") from None
        result = SiteResult(
            name=self.file.name,
            rejected=site.tested & (site.test_ranks <= participant.limit),
            ranks=site.test_ranks,
            scores=site.scores,
            tested=site.tested,
            n_calibration=site.n_calibration,
            test_rows=site.test,
            ids=as_ids(self._tests.ids if self._tests else None, len(site.test)),
            choices=site.choices,
        )
        write_table(folder / "decisions.parquet", result.columns())
        # Last, so that a folder with a run.json is a whole one.
        write_json(folder / "run.json", self._summary(result, participant, transcript))
        return folder

    def _summary(
        self, result: SiteResult, participant: Participant, transcript: Transcript
    ) -> dict[str, Any]:
        terms, outcome = self.terms, participant.outcome
        return {
            "format": FORMAT,
            "command": "agent",
            "site": result.name,
            "settings": {
                "regime": terms.regime,
                "composite": terms.composite if terms.rules.exchanges_models else None,
                "bits": terms.bits if terms.rules.exchanges_models else None,
                "level": terms.level,
                "random_state": terms.seed,
                "train_fraction": terms.train_fraction or None,
            },
            "guarantee": guarantee(
                terms.regime,
                terms.level,
                pi0=terms.pi0 or None,
                left_out=outcome.left_out,
                dropped=outcome.dropped,
            ),
            "outcome": as_plain(outcome),
            "limit": participant.limit,
            "n_rejected": result.n_rejected,
            "decisions": {result.name: _plain(result)},
            # What this site sent and received: the counts of others are not in it.
            "transcript": transcript.to_dict(),
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
