"""What is promised, and what the promise rests on."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from conovel.stats.null_proportion import NullProportion


@dataclass(frozen=True)
class Guarantee:
    """A statement and its assumptions, in words a user can check."""

    statement: str
    assumptions: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.statement, *(f"  needs: {a}" for a in self.assumptions)])


EXCHANGEABLE = (
    "the known normals and the normal test rows are exchangeable (e.g. drawn independently"
    " from the same source)"
)
BLIND_SCORER = (
    "the scorer is deterministic given its rows and seed (conovel hides from it which rows"
    " are calibration rows)"
)


def one_site(level: Fraction, pi0: NullProportion | None) -> Guarantee:
    """State the guarantee of AdaDetect at one site (docs/theory.md)."""
    alpha = f"{float(level):g}"
    if pi0 is None:
        statement = (
            f"The expected share of false alarms among the rejected rows is at most {alpha}"
            " times the share of normal rows in the test sample. Exact for every sample"
            " size; ties are allowed."
        )
    elif pi0.proven_for_several:
        statement = (
            f"The expected share of false alarms among the rejected rows is at most {alpha},"
            " with the share of normal rows estimated (Storey). Proven for one site and for"
            " several."
        )
    else:
        statement = (
            f"The expected share of false alarms among the rejected rows is at most {alpha},"
            " with the share of normal rows estimated (quantile). Proven for one site; not"
            " proven for several."
        )
    return Guarantee(statement, (EXCHANGEABLE, BLIND_SCORER))
