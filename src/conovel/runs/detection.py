"""What one site decides by itself: the result of a detection, in memory or in files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from conovel.runs.certificates import proof_of
from conovel.runs.site_results import SiteResult
from conovel.scorers.base import Selection
from conovel.spec.findings import Finding, headline
from conovel.spec.guarantee import Guarantee
from conovel.spec.training import NOTHING_FLAGGED, few_rows
from conovel.stats.conditional import Conditional
from conovel.stats.ranks import adjusted_pvalues
from conovel.stats.repeats import averaging_of, repeated_resolution
from conovel.stats.resolution import Resolution, resolution, resolution_words
from conovel.stats.stepup import RankHistogram, StepUp

if TYPE_CHECKING:
    from conovel.runs.file_detection import FileDetection
    from conovel.runs.weighted import Weighted


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Detection(SiteResult):
    """The decisions of one site alone, one entry per row of ``X_test``.

    It is a :class:`SiteResult` with a step-up, a guarantee and a summary of its own. With
    `repeats` the step-up is that of the first run, at its level. With a ledger it is that of the
    batch by itself, and does not decide.

    Attributes
    ----------
    calibration_scores : float array of shape (ℓ,)
        What the test scores were compared with.
    stepup : StepUp
        Level, rounds, threshold and, if asked for, the estimated proportion of nulls.
    n_train : int
        Known normals used for training; the rest calibrated.
    scorer : str
        Name of the scorer that ranked the rows.
    guarantee : Guarantee
        What holds, under which assumptions.

    See Also
    --------
    conovel.AdaDetect : Makes it.
    conovel.NetworkRun : The decisions of several sites together.
    """

    calibration_scores: NDArray[np.float64]
    stepup: StepUp
    n_train: int
    scorer: str
    guarantee: Guarantee

    def _shown(self) -> dict[str, str]:
        return facts_of(self)

    @cached_property
    def histogram(self) -> RankHistogram:
        """How often each rank occurs."""
        return RankHistogram(self.ranks[self.tested], self.n_calibration)

    @property
    def level(self) -> Fraction:
        """The level α, exact."""
        return self.stepup.level if self.repeated is None else self.repeated.level

    @property
    def confidence(self) -> Fraction | None:
        """With `confidence`, the probability of the promise about this list."""
        return self.parts.get("confidence")

    @property
    def conditional(self) -> Conditional | None:
        """With a detector that has a confidence, the p-values that decided, by rank."""
        return self.parts.get("conditional")

    @property
    def weighted(self) -> Weighted | None:
        """With `weights`, those of the rows, and the numbers that decided. Ranks did not."""
        return self.parts.get("weights")

    @property
    def p_values(self) -> NDArray[np.float64]:
        """Conformal p-values, ``ranks / (ℓ + 1)``; with `weights`, weighted ones."""
        return super().p_values if self.weighted is None else self.weighted.p_values

    @property
    def selection(self) -> Selection | None:
        """How the scorer was chosen, when there were several candidates."""
        return self.choices.get("scorer")

    @property
    def headline(self) -> str:
        """What came out, in one sentence; a finding that breaks the promise is named first."""
        return headline_of(self)

    @property
    def resolution(self) -> Resolution:
        """How few rows could have been rejected together with this calibration size."""
        if self.strata is not None:
            return self.strata.resolution(self.level)
        if self.conditional is not None:
            return self.conditional.resolution(self.ranks.size, self.level)
        numbers = self.n_calibration, self.ranks.size, self.level
        if self.weighted is not None:
            return resolution(*numbers)._replace(fewest=self.weighted.fewest)
        if self.repeated is None:
            return resolution(*numbers)
        return repeated_resolution(*numbers, averaging_of(self.level, self.repeated.run_level))

    def summary(self) -> dict[str, Any]:
        """Everything but the rows, ready for JSON."""
        summary = summary_of(self)
        if self.ledger is not None:
            summary["ledger"] = self.ledger.summary()
        if "verdicts" in self.parts:
            summary["verdicts"] = asdict(self.parts["verdicts"])
        if self.weighted is not None:
            del summary["largest_rejected_rank"]
            summary["weights"] = self.weighted.summary()
        if self.strata is not None:
            summary["strata"] = self.strata.to_dict(self.strata.n_rejected(self.rejected))
            del summary["largest_rejected_rank"]  # cells decide
        if "ties" in self.parts:
            summary["ties"] = self.parts["ties"]
        if self.conditional is not None:
            summary["confidence"] = str(self.conditional.confidence)
        if self.repeated is None:
            return summary
        for of_one_run in ("largest_rejected_rank", "pi0", "selection"):
            summary.pop(of_one_run, None)
        return summary | {
            "level": str(self.level),
            "repeats": {
                "level": str(self.repeated.run_level),
                "seeds": list(self.repeated.seeds),
                "n_rejected": list(self.repeated.n_rejected),
            },
        }

    @property
    def n_known(self) -> int:
        """Number of known novelties."""
        rows = None if self.explainer is None else self.explainer.known_rows
        return 0 if rows is None else len(rows)

    @cached_property
    def adjusted(self) -> NDArray[np.float64]:
        """BH-adjusted p-values (plain BH, whatever `pi0`)."""
        return adjusted_pvalues(self.ranks, self.n_calibration)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Per-row results by column name, ids first when there are any."""
        columns = super().columns()
        if self.strata is not None:
            return columns  # cells decide, not adjusted p-values
        del columns["tested"]  # every row is
        if self.weighted is not None:
            del columns["rank"]
            rejected, needs = columns.pop("rejected"), self.weighted.needs
            weighted = {"weight": self.weighted.weights, "needs_flagged": needs}
            return columns | weighted | {"rejected": rejected}
        if self.repeated is not None or self.ledger is not None:
            return columns  # adjusted p-values are about one run, and the batch by itself
        rejected = columns.pop("rejected")
        if self.conditional is not None:
            values = self.conditional.p_values(self.ranks)
            return columns | {"conditional_p_value": values, "rejected": rejected}
        return columns | {"adjusted_p_value": self.adjusted, "rejected": rejected}


def with_resolution(
    result: Detection | FileDetection, findings: Iterable[Finding]
) -> list[Finding]:
    """Add, where nothing is flagged, that calibration rows are few, unless that is among them."""
    before = list(findings)
    if not _was_too_coarse(result) or any(one.kind == "thin_calibration" for one in before):
        return before
    few = few_rows(*_resolved(result), share=NOTHING_FLAGGED, trains=result.n_train > 0)
    return before if few is None else [*before, few]


def _was_too_coarse(result: Detection | FileDetection) -> bool:
    """Tell whether no row is flagged, and no single one could be.

    A list over time, one by confidence, and one with an estimated share of nulls are made in other
    ways.
    """
    over_time = isinstance(result, SiteResult) and result.ledger is not None
    is_plain = result.stepup.pi0 is None and result.confidence is None and not over_time
    return is_plain and not result.n_rejected and result.resolution.fewest > 1


def _resolved(result: Detection | FileDetection) -> tuple[int, int, int, Fraction]:
    """Return calibration rows, the fewest rows that can be flagged together, tests and level."""
    return result.n_calibration, result.resolution.fewest, result.histogram.size, result.level


def headline_of(result: Detection | FileDetection) -> str:
    """Say what came out at one site, in one sentence."""
    numbers = result.n_rejected, result.histogram.size, result.level
    proof = None if result.n_rejected else proof_of(result)
    why = resolution_words(*_resolved(result)) if _was_too_coarse(result) else ""
    return headline(*numbers, result.warnings, proof, result.confidence, why)


def facts_of(result: Detection | FileDetection) -> dict[str, str]:
    """Return what a detection at one site shows of itself."""
    sizes = f"{result.n_train:,} train, {result.n_calibration:,} calibrate"
    return {"result": result.headline, "scorer": result.scorer, "known normals": sizes}


def summary_of(result: Detection | FileDetection) -> dict[str, Any]:
    """Return what both kinds of a detection at one site tell besides their rows, for JSON."""
    histogram, outcome = result.histogram, result.stepup
    last = np.array([result.n_rejected] if result.n_rejected else [], dtype=np.int64)
    proof, sure = None if result.n_rejected else proof_of(result), result.confidence
    certified: dict[str, Any] = {} if proof is None else {"certificate": proof}
    certified |= {} if sure is None else {"confidence": str(sure)}
    return certified | {
        "level": str(outcome.level),
        "n_train": result.n_train,
        "n_calibration": histogram.n_calibration,
        "n_test": histogram.size,
        "n_rejected": result.n_rejected,
        "largest_rejected_rank": int(histogram.smallest(last).max(initial=0)),
        "fewest_rejections_possible": result.resolution.fewest,
        "resolution": resolution_words(*_resolved(result)),
        "pi0": None if outcome.pi0 is None else float(outcome.pi0),
        "scorer": result.scorer,
        "selection": result.selection and result.selection.to_dict(),
        "guarantee": {
            "statement": result.guarantee.statement,
            "assumptions": list(result.guarantee.assumptions),
        },
        "warnings": [finding.to_dict() for finding in result.warnings],
    }
