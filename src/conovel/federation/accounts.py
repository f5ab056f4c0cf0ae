"""What parties write down about a run: the coordinator's account, and the guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conovel.errors import ConovelError
from conovel.federation.terms import Terms
from conovel.protocol.not_checked import FORMATS
from conovel.protocol.transcript import Transcript
from conovel.spec.bodies import Outcome
from conovel.spec.guarantee import guarantee

FORMAT = FORMATS["run"]


def guarantee_of(terms: Terms, outcome: Outcome, transcript: Transcript) -> str:
    """Return the guarantee of a run with these terms, this outcome and these messages."""
    return guarantee(
        terms.spec,
        left_out=outcome.left_out,
        dropped=outcome.dropped,
        uncovered=transcript.uncovered,
    )


def account_of(
    error: ConovelError | None, terms: Mapping[str, Any], transcript: Transcript | None = None
) -> dict[str, Any]:
    """Return the fields of every account, also of a run that could not begin."""
    return {
        "format": FORMAT,
        "command": "run",
        "state": "done" if error is None else "failed",
        "message": "" if error is None else str(error),
        "fault": "" if error is None else type(error).__name__,
        "culprit": getattr(error, "culprit", ""),
        "terms": dict(terms),
        "unpublished": {},
        "seconds": {},
        "transcript": (transcript or Transcript()).to_dict(),
    }
