"""conovel: novelty detection across organisations, with a guaranteed false discovery rate.

Conventions, everywhere: a higher score is more novel; ties count against the test point;
levels are exact fractions (0.1 means 1/10); integers decide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conovel.automatic import Automatic as Automatic
    from conovel.blend import Blend as Blend
    from conovel.detector import AdaDetect as AdaDetect
    from conovel.detector import Detection as Detection
    from conovel.errors import ConovelError as ConovelError
    from conovel.errors import ConovelWarning as ConovelWarning
    from conovel.errors import WireError as WireError
    from conovel.guarantee import Guarantee as Guarantee
    from conovel.network import Agent as Agent
    from conovel.network import Network as Network
    from conovel.pi0 import Quantile as Quantile
    from conovel.pi0 import Storey as Storey
    from conovel.ranks import conformal_pvalues as conformal_pvalues
    from conovel.ranks import conformal_ranks as conformal_ranks
    from conovel.refine import Refined as Refined
    from conovel.results import NetworkRun as NetworkRun
    from conovel.results import SiteResult as SiteResult
    from conovel.scoring import OneClass as OneClass
    from conovel.stepup import StepUp as StepUp
    from conovel.stepup import adjusted_pvalues as adjusted_pvalues
    from conovel.stepup import benjamini_hochberg as benjamini_hochberg
    from conovel.stepup import fast_lsu as fast_lsu
    from conovel.stepup import reject as reject
    from conovel.stepup import resolution as resolution
    from conovel.surrogate import decode as decode
    from conovel.surrogate import encode as encode

__version__ = "0.1.0"

# Where each public name lives. Names are imported on first use, so that statistics need no
# scikit-learn and the command line answers at once.
_HOMES = {
    "AdaDetect": "detector",
    "Agent": "network",
    "Automatic": "automatic",
    "Blend": "blend",
    "ConovelError": "errors",
    "ConovelWarning": "errors",
    "Detection": "detector",
    "Guarantee": "guarantee",
    "Network": "network",
    "NetworkRun": "results",
    "OneClass": "scoring",
    "Quantile": "pi0",
    "Refined": "refine",
    "SiteResult": "results",
    "StepUp": "stepup",
    "Storey": "pi0",
    "WireError": "errors",
    "adjusted_pvalues": "stepup",
    "benjamini_hochberg": "stepup",
    "conformal_pvalues": "ranks",
    "conformal_ranks": "ranks",
    "decode": "surrogate",
    "encode": "surrogate",
    "fast_lsu": "stepup",
    "reject": "stepup",
    "resolution": "stepup",
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
