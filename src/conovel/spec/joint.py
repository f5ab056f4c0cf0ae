"""Constants of the regime `joint` that all parties share."""

from __future__ import annotations

# Cells of the common scale. More cells reveal more; docs/results/joint.md has power against cells.
N_CELLS = 128
