"""conovel: novelty detection across organisations, with a guaranteed false discovery rate.

Conventions, everywhere: a higher score is more novel; ties count against the test point;
levels are exact fractions (0.1 means 1/10); integers decide.
"""

from __future__ import annotations

import logging
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from conovel import errors as errors
from conovel.spec.version import __version__ as __version__

if TYPE_CHECKING:
    from conovel.errors import ConovelError as ConovelError
    from conovel.errors import ConovelWarning as ConovelWarning
    from conovel.errors import FileError as FileError
    from conovel.errors import InputError as InputError
    from conovel.errors import ProtocolError as ProtocolError
    from conovel.experiments.evaluation import evaluate as evaluate
    from conovel.rows.fetched import read as read
    from conovel.rows.pairs import infer_schema as infer_schema
    from conovel.runs.agents import Agent as Agent
    from conovel.runs.check_order import check as check
    from conovel.runs.clean import clean_normals as clean_normals
    from conovel.runs.clean import suspicious_normals as suspicious_normals
    from conovel.runs.detection import Detection as Detection
    from conovel.runs.detector import AdaDetect as AdaDetect
    from conovel.runs.kept import KeptDetector as KeptDetector
    from conovel.runs.ledger import Ledger as Ledger
    from conovel.runs.network import Network as Network
    from conovel.runs.results import NetworkRun as NetworkRun
    from conovel.runs.site_results import SiteResult as SiteResult
    from conovel.runs.verdicts import Verdicts as Verdicts
    from conovel.scorers.automatic import Automatic as Automatic
    from conovel.scorers.base import FittedScorer as FittedScorer
    from conovel.scorers.base import Scorer as Scorer
    from conovel.scorers.base import TrainingSet as TrainingSet
    from conovel.scorers.blend import Blend as Blend
    from conovel.scorers.blend import Refined as Refined
    from conovel.scorers.estimators import OneClass as OneClass
    from conovel.scorers.fixed import FixedScore as FixedScore
    from conovel.site.sent.surrogate import decode as decode
    from conovel.site.sent.surrogate import encode as encode
    from conovel.spec.findings import Finding as Finding
    from conovel.spec.guarantee import Guarantee as Guarantee
    from conovel.spec.schema import Column as Column
    from conovel.spec.schema import Schema as Schema
    from conovel.stats.evidence import e_bh as e_bh
    from conovel.stats.null_proportion import Quantile as Quantile
    from conovel.stats.null_proportion import Storey as Storey
    from conovel.stats.ranks import adjusted_pvalues as adjusted_pvalues
    from conovel.stats.ranks import conformal_pvalues as conformal_pvalues
    from conovel.stats.ranks import conformal_ranks as conformal_ranks
    from conovel.stats.resolution import resolution as resolution
    from conovel.stats.stepup import benjamini_hochberg as benjamini_hochberg
    from conovel.stats.stepup import fast_lsu as fast_lsu
    from conovel.stats.stepup import reject as reject

# Stages are told at the level INFO and findings at WARNING, to those who listen.
logging.getLogger("conovel").addHandler(logging.NullHandler())

# Where each public name lives. Names are imported on first use, so that statistics need no
# scikit-learn and the command line answers at once.
_HOMES = {
    "AdaDetect": "runs.detector",
    "Agent": "runs.agents",
    "Automatic": "scorers.automatic",
    "Blend": "scorers.blend",
    "Column": "spec.schema",
    "ConovelError": "errors",
    "ConovelWarning": "errors",
    "Detection": "runs.detection",
    "FileError": "errors",
    "Finding": "spec.findings",
    "FittedScorer": "scorers.base",
    "FixedScore": "scorers.fixed",
    "Guarantee": "spec.guarantee",
    "InputError": "errors",
    "KeptDetector": "runs.kept",
    "Ledger": "runs.ledger",
    "Network": "runs.network",
    "NetworkRun": "runs.results",
    "OneClass": "scorers.estimators",
    "ProtocolError": "errors",
    "Quantile": "stats.null_proportion",
    "Refined": "scorers.blend",
    "Schema": "spec.schema",
    "Scorer": "scorers.base",
    "SiteResult": "runs.site_results",
    "Storey": "stats.null_proportion",
    "TrainingSet": "scorers.base",
    "Verdicts": "runs.verdicts",
    "adjusted_pvalues": "stats.ranks",
    "benjamini_hochberg": "stats.stepup",
    "check": "runs.check_order",
    "clean_normals": "runs.clean",
    "conformal_pvalues": "stats.ranks",
    "conformal_ranks": "stats.ranks",
    "decode": "site.sent.surrogate",
    "e_bh": "stats.evidence",
    "encode": "site.sent.surrogate",
    "evaluate": "experiments.evaluation",
    "fast_lsu": "stats.stepup",
    "infer_schema": "rows.pairs",
    "read": "rows.fetched",
    "reject": "stats.stepup",
    "resolution": "stats.resolution",
    "suspicious_normals": "runs.clean",
}
# Names that were here up to version 0.2: import them from their homes. From here they come with a
# warning, for one release.
_MOVED = {
    **dict.fromkeys(
        (
            "BatchRefusedError",
            "ColumnError",
            "DataWarning",
            "GuaranteeWarning",
            "LevelError",
            "LocalProtocolError",
            "MissingExtraError",
            "ModelError",
            "PrivacyError",
            "RemoteProtocolError",
            "ResolutionWarning",
            "SampleError",
            "SavedFileError",
            "ScorerError",
            "SiteVanishedError",
            "ValueTypeError",
            "WireError",
        ),
        "errors",
    ),
    "Check": "runs.check_order",
    "ColumnDrift": "site.checks.drift",
    "Drift": "site.checks.drift",
    "Evaluation": "experiments.evaluation",
    "Evidence": "stats.evidence",
    "EvidenceRound": "stats.repeats",
    "LedgerUpdate": "runs.ledger_records",
    "Mixture": "scorers.base",
    "Repeated": "stats.repeats",
    "Resolution": "stats.resolution",
    "Selection": "scorers.base",
    "StepUp": "stats.stepup",
    "Surrogate": "models.wire",
    "Transcript": "protocol.transcript",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        home = f"conovel.{_MOVED[name]}"
        warnings.warn(
            f"conovel.{name} has moved: import it from {home}", DeprecationWarning, stacklevel=2
        )
        return getattr(import_module(home), name)
    if name not in _HOMES:
        raise AttributeError(f"module 'conovel' has no attribute {name!r}")
    value = getattr(import_module(f"conovel.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
