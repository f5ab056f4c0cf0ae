"""NVFlare's recipe of horizontal XGBoost in its simulator, beside histograms of pooled rows."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import xgboost
from nvflare.app_opt.xgboost.histogram_based_v2.csv_data_loader import CSVDataLoader
from nvflare.app_opt.xgboost.recipes import XGBHorizontalRecipe
from nvflare.recipe import SimEnv, set_per_site_config

from benchmarks._contest_draws import Draw
from benchmarks._contestants import TREES, XGBOOST, federated_xgboost


def compare(draw: Draw, folder: Path, n_known: int = 20) -> str:
    """Train both on one draw, and say how far their scores of the tests are apart."""
    held = draw.known_rows(n_known, "all")
    names = [f"site-{i + 1}" for i in range(len(draw.sites))]
    for name, site, rows in zip(names, draw.sites, held, strict=True):
        labels = np.repeat([0.0, 1.0], [len(site.X_null), len(rows)])
        table = np.column_stack([labels, np.vstack([site.X_null, rows])])
        (folder / "rows" / name).mkdir(parents=True)
        for part in ("train", "valid"):  # all rows train; nothing is stopped early
            # XGBoost holds 32-bit numbers, which 9 digits give exactly.
            np.savetxt(folder / "rows" / name / f"{part}.csv", table, "%.9g", delimiter=",")
    recipe = XGBHorizontalRecipe(
        name="contest",
        min_clients=len(names),
        num_rounds=TREES,
        early_stopping_rounds=TREES,
        xgb_params=XGBOOST,
    )
    loader = {"data_loader": CSVDataLoader(folder=str(folder / "rows"))}
    set_per_site_config(recipe, {name: dict(loader) for name in names})
    start = time.perf_counter()
    recipe.execute(SimEnv(clients=names, workspace_root=str(folder / "work")))
    seconds = time.perf_counter() - start
    model = xgboost.Booster(model_file=str(next(folder.rglob("model.json"))))
    scores = model.predict(xgboost.DMatrix(draw.X_test))
    pooled = federated_xgboost(draw, held, 0).keys[0]
    n = int(draw.is_novel.sum())
    first = [set(np.argsort(-one, kind="stable")[:n]) for one in (scores, pooled)]
    return (
        f"{model.num_boosted_rounds()} trees, scores differ by at most"
        f" {np.abs(scores - pooled).max():.2g}, {len(first[0] & first[1])} of the {n} highest are"
        f" the same; {seconds:.0f} s in the simulator"
    )
