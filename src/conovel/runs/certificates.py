"""Certificates of results: how many rows of this very list can be false, with which probability.

What follows from counts is in :mod:`conovel.stats.certified`, and for a network in
:mod:`conovel.protocol.certificates`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError
from conovel.protocol.certificates import last_cell, places_of, refuse_uncovered, run_bounds
from conovel.rows.storage import read_columns
from conovel.spec.findings import certificate_words
from conovel.spec.guarantee import this_list
from conovel.spec.shown import Shown
from conovel.stats.batches import largest_listed_rank
from conovel.stats.cells import N_CELLS
from conovel.stats.certificate import Block, as_confidence, false_bound
from conovel.stats.certified import Counts, ListBounds, certificate_numbers, site_bounds
from conovel.stats.levels import Level, as_level
from conovel.stats.stepup import RankHistogram

if TYPE_CHECKING:
    from conovel.runs.detection import Detection
    from conovel.runs.file_detection import FileDetection
    from conovel.runs.ledger import Ledger
    from conovel.runs.results import NetworkRun
    from conovel.runs.site_results import SiteResult

CONFIDENCE = 0.95
Masks = Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Shown):
    """What holds for this very list, with the probability `confidence`.

    All its statements hold at once, so lists may be chosen after looking at it.

    Attributes
    ----------
    confidence : Fraction
    bounds : ListBounds
        False rows that each list can have at most.
    n_test : int
        Tested rows.
    level : Fraction or None
        The level of the result, where it has one of its own.

    See Also
    --------
    conovel.Detection, conovel.NetworkRun, conovel.SiteResult : Have it as ``certificate()``.
    """

    confidence: Fraction
    bounds: ListBounds
    n_test: int
    level: Fraction | None
    has_names: bool  # whether masks are by name: of agents, or of batches
    # Places and flags of the rows of each agent; one agent without a name is one site. Of files
    # they are read when they are needed.
    rows: Callable[[], tuple[Mapping[str, Counts], Masks]]
    flagged: Counts  # places
    liars: int = 0  # with some, all is about the rows of honest agents

    def _shown(self) -> dict[str, str]:
        return {"certificate": self.statement}

    @property
    def n_flagged(self) -> int:
        """The flagged rows."""
        return int(self.flagged.size)

    @cached_property
    def max_false(self) -> int:
        """At most so many of the flagged rows are false."""
        return self.bounds.max_false(self.flagged)

    @property
    def min_novelties(self) -> int:
        """At least so many of the tested rows are novelties, flagged or not."""
        return self.bounds.min_novelties

    def max_false_of(self, mask: ArrayLike | Mapping[str, ArrayLike]) -> int:
        """Return how many rows of a set of tests can be false at most.

        The set may be chosen by any rule after looking at the result.

        Parameters
        ----------
        mask : bool array of shape (m,), or a mapping from names of agents to such arrays
            Which rows. For a network also one array for all rows, in the order of
            ``run.to_frame()``.
        """
        places, _ = self.rows()
        given = self._by_agent(mask, places)
        chosen = [places[name][flags] for name, flags in given.items()]
        return self.bounds.max_false(np.concatenate(chosen) if chosen else self.flagged[:0])

    def _by_agent(self, mask: Any, places: Mapping[str, Counts]) -> dict[str, Any]:
        sizes = {name: own.size for name, own in places.items()}
        if isinstance(mask, Mapping):
            given = {name: np.asarray(own) for name, own in mask.items()}
        else:
            whole, stops = np.asarray(mask), np.cumsum(list(sizes.values()))
            if whole.shape != (stops[-1],):
                raise InputError(f"mask must have one entry for each of {stops[-1]} rows")
            given = dict(zip(sizes, np.split(whole, stops[:-1]), strict=True))
        for name, own in given.items():
            if own.dtype != np.bool_ or own.shape != (sizes.get(name),):
                raise InputError(
                    f"mask must have true or false for each row of a sample; {name!r} has not"
                )
        return given

    def list(self, max_share: Level = 0.1) -> Any:
        """Flag the longest list of which at most this share is false, with this confidence.

        Parameters
        ----------
        max_share : float, str or Fraction

        Returns
        -------
        bool array of shape (m,), or a dict of them by agent, or of a ledger by batch
        """
        last = self.bounds.last_place(as_level(max_share, "max_share"))
        masks = {name: own <= last for name, own in self.rows()[0].items()}
        return masks if self.has_names else masks[""]

    @property
    def statement(self) -> str:
        """What holds, in words."""
        whose = " This is about the rows of honest agents." if self.liars else ""
        return certificate_words(self.level, self.to_dict()) + whose

    def __str__(self) -> str:
        return self.statement

    def to_dict(self) -> dict[str, Any]:
        """Give its numbers as JSON types."""
        return certificate_numbers(self.bounds, self.flagged, self.n_test, self.confidence)


def _given(places: Mapping[str, Counts], masks: Masks) -> tuple[Mapping[str, Counts], Masks]:
    return places, masks


def _read(path: Path, limit: int) -> tuple[Mapping[str, Counts], Masks]:
    ranks = np.asarray(read_columns(path, ["rank"])["rank"])
    return {"": ranks - 1}, {"": ranks <= limit}


def certificate_of_files(result: FileDetection, confidence: Level = CONFIDENCE) -> Certificate:
    """Return the certificate of rows in files; ranks are read where rows are asked for."""
    if result.strata is not None:
        raise InputError(
            "there is no certificate with strata where files are read in pieces: read the rows and"
            " call AdaDetect(strata=...).detect(X_null, X_test)"
        )
    flagged = result.histogram.smallest(np.arange(1, result.n_rejected + 1)) - 1
    rows = partial(_read, result.out, result.limit)
    return _of_one(result.histogram, confidence, result.level, rows, flagged)


def _of_one(
    histogram: RankHistogram, confidence: Level, level: Fraction | None, rows: Any, flagged: Counts
) -> Certificate:
    sure, bounds = 1 - as_confidence(confidence), site_bounds(histogram, confidence)
    return Certificate(sure, bounds, histogram.size, level, False, rows, flagged)


def certificate_of_site(result: SiteResult, confidence: Level = CONFIDENCE) -> Certificate:
    """Return the certificate of one site or agent, by its own rows; see `SiteResult`."""
    why = result.parts.get("uncertified", "")
    if result.repeated is not None:
        why = "with repeats evidence decides, which no single score ranks"
    elif result.ledger is not None:
        why = "with a ledger other batches decide too; ask the ledger"
    elif result.roaming is not None:
        why = "in the regime 'consensus' a row that is normal elsewhere is no novelty"
    elif result.strata is not None:
        if "decided" in result.parts:
            return _of_strata(result, confidence)
        why = "with strata an agent by itself has none; the run has one"
    elif not result.tested.all():
        why = "in the regime 'split' rows are ranked in parts"
    if why:
        raise InputError(
            f"there is no certificate for this result: {why}. One site, 'joint' and 'together'"
            " have one"
        )
    level = getattr(result, "level", None)
    histogram = RankHistogram(result.ranks, result.n_calibration)
    places = result.ranks - 1
    rows = partial(_given, {"": places}, {"": result.rejected})
    return _of_one(histogram, confidence, level, rows, places[result.rejected])


def _of_strata(result: SiteResult, confidence: Level) -> Certificate:
    """Return the certificate of one site with strata: each of them is a block.

    Proof: Theorem 21 (docs/theory.md#thm-certificate), Theorem 22 (docs/theory.md#thm-strata).
    """
    above, blocks = result.parts["decided"].decided[2:4]
    tests, calibration = (np.cumsum(one[::-1]) for one in (above.tests, above.calibration))
    bounds = ListBounds(tests, calibration, false_bound(blocks, confidence))
    places = places_of(result.parts["cells"].cells)
    rows = partial(_given, {"": places}, {"": result.rejected})
    sure, n_test = 1 - as_confidence(confidence), int(result.tested.sum())
    level = getattr(result, "level", None)
    return Certificate(sure, bounds, n_test, level, False, rows, places[result.rejected])


def certificate_of_run(run: NetworkRun, confidence: Level = CONFIDENCE) -> Certificate:
    """Return the certificate of a network for the rows of all agents."""
    refuse_uncovered(run.spec)
    if run.batch is not None:
        raise InputError("with a ledger other batches decide too: ask run.batch.certificate()")
    bounds = run_bounds(run.transcript, confidence)
    places = {
        name: np.full(site.rejected.size, N_CELLS)
        if site.cells is None or name in run.lost
        else places_of(site.cells, site.floor)
        for name, site in run.items()
    }
    masks = {name: site.rejected for name, site in run.items()}
    flagged = np.concatenate([places[name][masks[name]] for name in places])
    n_test = sum(int(site.tested.sum()) for site in run.values())
    sure = 1 - as_confidence(confidence)
    level, liars = run.spec.level, run.spec.liars
    return Certificate(
        sure, bounds, n_test, level, True, partial(_given, places, masks), flagged, liars
    )


def certificate_of_list(ledger: Ledger, confidence: Level = CONFIDENCE) -> Certificate:
    """Return the certificate of the list so far, over all batches that one kept score ranked.

    Masks are by the names of the batches. Rows whose rank is too large for the list are not held,
    so no certified list has them. It holds after any number of batches that is fixed in advance.
    """
    if ledger.facts is None or not ledger.facts.by_rank or ledger.final:
        raise InputError(
            "there is no certificate for this list: it needs batches that one kept detector"
            " ranked without strata, and a list that is not final. A batch by itself has one"
        )
    size = ledger.entries[-1].batch.n_calibration
    most = largest_listed_rank(ledger.level, size)
    places, masks = {}, {}
    for entry, mask in zip(ledger.entries, ledger.decisions(), strict=True):
        own = np.full(entry.batch.n_tests, most)
        own[entry.batch.rows] = entry.batch.ranks - 1
        places[entry.name], masks[entry.name] = own, mask
    every = np.concatenate(list(places.values()))
    tests = np.cumsum(np.bincount(every, minlength=most + 1))[:most]
    bound = false_bound([Block(ledger.n_tests, size)], confidence)
    return Certificate(
        1 - as_confidence(confidence),
        ListBounds(tests, np.arange(most), bound),
        ledger.n_tests,
        ledger.level,
        True,
        partial(_given, places, masks),
        every[np.concatenate(list(masks.values()))],
    )


def proof_of(result: Detection | FileDetection | NetworkRun) -> dict[str, Any] | None:
    """Return the certificate's numbers of a result that flags nothing, if novelties are proven."""
    try:
        numbers = result.certificate(CONFIDENCE).to_dict()
    except InputError:  # no theorem covers it
        return None
    return numbers if numbers["min_novelties"] else None


# Flagging by a certificate ------------------------------------------------------------------


def as_certain(
    confidence: Level, repeats: int, pi0: object = None, ledger: object = None
) -> Fraction:
    """Check the confidence of a promise about this list."""
    sure = 1 - as_confidence(confidence)
    if repeats > 1 or pi0 is not None or ledger is not None:
        raise InputError(
            "with confidence the counts of one run decide: leave repeats, pi0 and ledger out"
        )
    return sure


def flag_certified(result: Detection, confidence: Fraction) -> Detection:
    """Flag the longest list of one site of which at most the level is false, so probably."""
    rejected = certificate_of_site(result, confidence).list(result.level)
    promise = this_list(result.guarantee, result.level, confidence)
    parts = {**result.parts, "confidence": confidence}
    return replace(result, rejected=rejected, guarantee=promise, parts=parts)


def flag_run_certified(run: NetworkRun, confidence: Fraction) -> NetworkRun:
    """Flag the longest list of all agents of which at most the level is false, so probably."""
    masks = certificate_of_run(run, confidence).list(run.spec.level)
    sites = {name: replace(site, rejected=masks[name]) for name, site in run.items()}
    promise = this_list(run.guarantee, run.spec.level, confidence, run.spec.liars)
    return replace(run, sites=sites, guarantee=promise, mean=run, confidence=confidence)


def certified_as_plain(run: NetworkRun, confidence: Fraction) -> dict[str, Any]:
    """Give the list of a network that a confidence asked for, as JSON types."""
    return {
        "confidence": str(confidence),
        "cell": last_cell(run.transcript, confidence, run.spec.level),
        "n_flagged": run.n_rejected,
        "guarantee": str(run.guarantee),
        "flagged": {
            name: np.flatnonzero(site.rejected).tolist()
            for name, site in run.items()
            if name not in run.lost
        },
    }
