"""E-values of a procedure of which only rejections are looked at: Lemma 9(b) of docs/theory.md."""

from fractions import Fraction

import numpy as np

from conovel.stats.evidence import Evidence
from conovel.stats.levels import as_level


def rejection_evidence(rejected, level):
    """Turn R rejections into compound e-values, m/(βR) for a rejected row."""
    mask = np.asarray(rejected, dtype=bool)
    n = int(mask.sum())
    value = Fraction(mask.size) / (as_level(level) * n) if n else Fraction(0)
    return Evidence((Fraction(0), value), mask.astype(np.int64))
