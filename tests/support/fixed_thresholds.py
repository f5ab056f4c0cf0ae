"""The e-values of Theorem 11 and Lemma 9(d) of docs/theory.md, which no run uses."""

from fractions import Fraction

import numpy as np

from conovel.stats.evidence import Evidence


def fixed_threshold_evidence(blocks):
    """Return m/D with D = max_j w_j + Σ_j w_j C_j and w_j = m_j/ℓ_j, zero without a row above."""
    taking = [block for block in blocks if block.takes_part]
    if not taking:
        return Fraction(0)
    weights = [Fraction(block.n_test, block.n_calibration) for block in taking]
    known = [sum(block.calibration_counts) for block in taking]
    total = max(weights) + sum(w * n for w, n in zip(weights, known, strict=True))
    return sum(block.n_test for block in blocks) / total


def joined(parts):
    """Put the rows of several parts behind each other."""
    starts = np.cumsum([0, *(len(part.values) for part in parts)])[:-1]
    codes = [part.codes + start for part, start in zip(parts, starts, strict=True)]
    return Evidence(tuple(v for part in parts for v in part.values), np.concatenate(codes))
