"""Four hospitals with the columns and the gaps of the UCI heart disease files, drawn at random.

As there: `ca` has no value at two hospitals and few at a third, `thal` and `slope` are mostly
missing at some, and `chol` is 0 throughout at one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd


class Hospital(NamedTuple):
    """How many rows a hospital has, and which share of a column is missing."""

    n_healthy: int
    n_ill: int
    missing: Mapping[str, float]


HOSPITALS = {
    "cleveland": Hospital(164, 139, {"ca": 0.013, "thal": 0.007}),
    "hungarian": Hospital(
        188,
        106,
        {"slope": 0.65, "ca": 0.99, "thal": 0.9, "chol": 0.08, "fbs": 0.03},
    ),
    "switzerland": Hospital(60, 115, {"fbs": 0.61, "ca": 1.0, "thal": 0.42, "slope": 0.14}),
    "va": Hospital(
        51,
        149,
        {
            "trestbps": 0.28,
            "chol": 0.04,
            "fbs": 0.04,
            "thalach": 0.27,
            "exang": 0.27,
            "oldpeak": 0.28,
            "slope": 0.51,
            "ca": 1.0,
            "thal": 0.83,
        },
    ),
}


def rows_of(name: str, n: int, ill: bool, rng: np.random.Generator) -> pd.DataFrame:
    """Draw patients of a hospital."""
    worse = 1.0 if ill else 0.0
    frame = pd.DataFrame(
        {
            "age": np.rint(rng.normal(53 + 5 * worse, 8, n)),
            "sex": (rng.random(n) < 0.6 + 0.25 * worse).astype(float),
            "cp": np.where(rng.random(n) < 0.2 + 0.55 * worse, 4.0, rng.integers(1, 4, n)),
            "trestbps": np.rint(rng.normal(130 + 6 * worse, 16, n)),
            "chol": np.rint(rng.normal(240 + 10 * worse, 50, n)),
            "fbs": (rng.random(n) < 0.13).astype(float),
            "restecg": rng.choice([0.0, 1.0, 2.0], n),
            "thalach": np.rint(rng.normal(158 - 22 * worse, 18, n)),
            "exang": (rng.random(n) < 0.12 + 0.45 * worse).astype(float),
            "oldpeak": np.round(np.abs(rng.normal(0.4 + 1.4 * worse, 0.8, n)), 1),
            "slope": np.where(rng.random(n) < 0.65 - 0.4 * worse, 1.0, 2.0),
            "ca": np.where(rng.random(n) < 0.8 - 0.5 * worse, 0.0, rng.integers(1, 4, n)),
            "thal": np.where(rng.random(n) < 0.78 - 0.5 * worse, 3.0, 7.0),
        }
    )
    if name == "switzerland":
        frame["chol"] = 0.0
    for column, share in HOSPITALS[name].missing.items():
        frame.loc[rng.random(n) < share, column] = np.nan
    return frame


def draw_hospitals(
    seed: int = 0, most_ill: int = 25, scale: int = 1
) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """Draw known normals and rows to test, a third of the healthy and some of the ill."""
    rng = np.random.default_rng(seed)
    drawn = {}
    for name, hospital in HOSPITALS.items():
        healthy = rows_of(name, scale * hospital.n_healthy, False, rng)
        ill = rows_of(name, min(most_ill, hospital.n_ill), True, rng)
        n_test = len(healthy) // 3
        drawn[name] = (healthy[n_test:], pd.concat([healthy[:n_test], ill], ignore_index=True))
    return drawn


def write_hospitals(folder: Path, seed: int = 0, scale: int = 1) -> list[str]:
    """Write the files with ? for missing values, and give the options of the command line."""
    options = []
    for name, pair in draw_hospitals(seed, scale=scale).items():
        paths = [folder / f"{name}-{role}.csv" for role in ("normal", "today")]
        for path, rows in zip(paths, pair, strict=True):
            rows.to_csv(path, index=False, na_rep="?")
        options += ["--agent", f"{name}={paths[0]},{paths[1]}"]
    return options
