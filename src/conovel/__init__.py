"""conovel: novelty detection across organisations, with a guaranteed false discovery rate.

Conventions, everywhere: a higher score is more novel; ties count against the test point;
levels are exact fractions (0.1 means 1/10); integers decide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from conovel.spec.version import __version__ as __version__

if TYPE_CHECKING:
    from conovel.errors import BatchRefusedError as BatchRefusedError
    from conovel.errors import ColumnError as ColumnError
    from conovel.errors import ConovelError as ConovelError
    from conovel.errors import ConovelWarning as ConovelWarning
    from conovel.errors import DataWarning as DataWarning
    from conovel.errors import FileError as FileError
    from conovel.errors import GuaranteeWarning as GuaranteeWarning
    from conovel.errors import InputError as InputError
    from conovel.errors import LevelError as LevelError
    from conovel.errors import LocalProtocolError as LocalProtocolError
    from conovel.errors import MissingExtraError as MissingExtraError
    from conovel.errors import ModelError as ModelError
    from conovel.errors import PrivacyError as PrivacyError
    from conovel.errors import ProtocolError as ProtocolError
    from conovel.errors import RemoteProtocolError as RemoteProtocolError
    from conovel.errors import ResolutionWarning as ResolutionWarning
    from conovel.errors import SampleError as SampleError
    from conovel.errors import SavedFileError as SavedFileError
    from conovel.errors import ScorerError as ScorerError
    from conovel.errors import SiteVanishedError as SiteVanishedError
    from conovel.errors import ValueTypeError as ValueTypeError
    from conovel.errors import WireError as WireError
    from conovel.experiments.evaluation import Evaluation as Evaluation
    from conovel.experiments.evaluation import evaluate as evaluate
    from conovel.models.wire import Surrogate as Surrogate
    from conovel.protocol.transcript import Transcript as Transcript
    from conovel.rows.pairs import infer_schema as infer_schema
    from conovel.runs.agents import Agent as Agent
    from conovel.runs.check_order import Check as Check
    from conovel.runs.check_order import check as check
    from conovel.runs.detector import AdaDetect as AdaDetect
    from conovel.runs.kept import KeptDetector as KeptDetector
    from conovel.runs.ledger import Ledger as Ledger
    from conovel.runs.ledger_records import LedgerUpdate as LedgerUpdate
    from conovel.runs.network import Network as Network
    from conovel.runs.results import NetworkRun as NetworkRun
    from conovel.runs.site_results import Detection as Detection
    from conovel.runs.site_results import SiteResult as SiteResult
    from conovel.scorers.automatic import Automatic as Automatic
    from conovel.scorers.base import FittedScorer as FittedScorer
    from conovel.scorers.base import Mixture as Mixture
    from conovel.scorers.base import Scorer as Scorer
    from conovel.scorers.base import TrainingSet as TrainingSet
    from conovel.scorers.blend import Blend as Blend
    from conovel.scorers.blend import Refined as Refined
    from conovel.scorers.estimators import OneClass as OneClass
    from conovel.scorers.selection import Selection as Selection
    from conovel.site.checks.drift import ColumnDrift as ColumnDrift
    from conovel.site.checks.drift import Drift as Drift
    from conovel.site.sent.surrogate import decode as decode
    from conovel.site.sent.surrogate import encode as encode
    from conovel.spec.findings import Finding as Finding
    from conovel.spec.guarantee import Guarantee as Guarantee
    from conovel.spec.schema import Column as Column
    from conovel.spec.schema import Schema as Schema
    from conovel.stats.evidence import Evidence as Evidence
    from conovel.stats.evidence import e_bh as e_bh
    from conovel.stats.null_proportion import Quantile as Quantile
    from conovel.stats.null_proportion import Storey as Storey
    from conovel.stats.ranks import adjusted_pvalues as adjusted_pvalues
    from conovel.stats.ranks import conformal_pvalues as conformal_pvalues
    from conovel.stats.ranks import conformal_ranks as conformal_ranks
    from conovel.stats.repeats import EvidenceRound as EvidenceRound
    from conovel.stats.repeats import Repeated as Repeated
    from conovel.stats.resolution import Resolution as Resolution
    from conovel.stats.resolution import resolution as resolution
    from conovel.stats.stepup import StepUp as StepUp
    from conovel.stats.stepup import benjamini_hochberg as benjamini_hochberg
    from conovel.stats.stepup import fast_lsu as fast_lsu
    from conovel.stats.stepup import reject as reject

# Where each public name lives. Names are imported on first use, so that statistics need no
# scikit-learn and the command line answers at once.
_HOMES = {
    "AdaDetect": "runs.detector",
    "Agent": "runs.agents",
    "Automatic": "scorers.automatic",
    "BatchRefusedError": "errors",
    "Blend": "scorers.blend",
    "Check": "runs.check_order",
    "Column": "spec.schema",
    "ColumnDrift": "site.checks.drift",
    "ColumnError": "errors",
    "ConovelError": "errors",
    "ConovelWarning": "errors",
    "DataWarning": "errors",
    "Detection": "runs.site_results",
    "Drift": "site.checks.drift",
    "Evaluation": "experiments.evaluation",
    "Evidence": "stats.evidence",
    "EvidenceRound": "stats.repeats",
    "FileError": "errors",
    "Finding": "spec.findings",
    "FittedScorer": "scorers.base",
    "Guarantee": "spec.guarantee",
    "GuaranteeWarning": "errors",
    "InputError": "errors",
    "KeptDetector": "runs.kept",
    "Ledger": "runs.ledger",
    "LedgerUpdate": "runs.ledger_records",
    "LevelError": "errors",
    "LocalProtocolError": "errors",
    "MissingExtraError": "errors",
    "Mixture": "scorers.base",
    "ModelError": "errors",
    "Network": "runs.network",
    "NetworkRun": "runs.results",
    "OneClass": "scorers.estimators",
    "PrivacyError": "errors",
    "ProtocolError": "errors",
    "Quantile": "stats.null_proportion",
    "Refined": "scorers.blend",
    "RemoteProtocolError": "errors",
    "Repeated": "stats.repeats",
    "Resolution": "stats.resolution",
    "ResolutionWarning": "errors",
    "SampleError": "errors",
    "SavedFileError": "errors",
    "Schema": "spec.schema",
    "Scorer": "scorers.base",
    "ScorerError": "errors",
    "Selection": "scorers.selection",
    "SiteResult": "runs.site_results",
    "SiteVanishedError": "errors",
    "StepUp": "stats.stepup",
    "Storey": "stats.null_proportion",
    "Surrogate": "models.wire",
    "TrainingSet": "scorers.base",
    "Transcript": "protocol.transcript",
    "ValueTypeError": "errors",
    "WireError": "errors",
    "adjusted_pvalues": "stats.ranks",
    "benjamini_hochberg": "stats.stepup",
    "check": "runs.check_order",
    "conformal_pvalues": "stats.ranks",
    "conformal_ranks": "stats.ranks",
    "decode": "site.sent.surrogate",
    "e_bh": "stats.evidence",
    "encode": "site.sent.surrogate",
    "evaluate": "experiments.evaluation",
    "fast_lsu": "stats.stepup",
    "infer_schema": "rows.pairs",
    "reject": "stats.stepup",
    "resolution": "stats.resolution",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'conovel' has no attribute {name!r}")
    value = getattr(import_module(f"conovel.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
