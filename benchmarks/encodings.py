"""How categories become numbers: one feature per level, or one feature for all, by power.

Two numbers and a category. In `noise` the category says nothing about novelties, in `levels` most
novelties have a level of their own, and in `interaction` the numbers of a normal row depend on its
category. Power of three scorers, mean over repetitions; the baseline leaves the category out.
"""

import argparse
import warnings

import numpy as np

import conovel as cn

N_NULL, N_TEST, N_NOVEL = 1000, 300, 30
SCORERS = (None, "extra-trees", "boosting")
FORMS = ("apart", "top 10 apart", "place", "rows", "left out")


def draw(design, n_levels, rng, n, novel):
    levels, numbers = rng.integers(0, n_levels, n), rng.normal(size=(n, 2))
    if design == "interaction":
        middle = n_levels // 2
        if novel:
            levels = np.where(rng.random(n) < 0.5, middle, levels)
            numbers[:, 0] += 3 * (levels != middle)
            numbers[:, 1] += 2.5
        else:
            numbers[:, 0] += 3 * (levels == middle)
    elif novel:
        numbers += 3
        if design == "levels":
            own = n_levels + rng.integers(0, 3, n)
            levels = np.where(rng.random(n) < 0.8, own, levels)
    return numbers, levels


def encode(levels, everywhere, form):
    """Encode by how often each level occurs among all rows: a function of the multiset."""
    known, rows = np.unique(everywhere, return_counts=True)
    by_rows = np.argsort(-rows, kind="stable")
    at = np.searchsorted(known, levels)
    if form == "place":
        return np.argsort(by_rows)[at][:, None].astype(float)
    if form == "rows":
        return rows[at][:, None].astype(float)
    top = known[by_rows if form == "apart" else by_rows[:10]]
    apart = levels[:, None] == top
    return np.column_stack([apart, ~apart.any(axis=1)]).astype(float)


def power(design, n_levels, form, scorer, seed):
    rng = np.random.default_rng(seed)
    parts = [
        draw(design, n_levels, rng, n, novel)
        for n, novel in ((N_NULL, False), (N_TEST - N_NOVEL, False), (N_NOVEL, True))
    ]
    everywhere = np.concatenate([levels for _, levels in parts])
    matrices = [
        numbers
        if form == "left out"
        else np.column_stack([numbers, encode(levels, everywhere, form)])
        for numbers, levels in parts
    ]
    detector = cn.AdaDetect(scorer, random_state=seed)
    found = detector.detect(matrices[0], np.concatenate(matrices[1:]))
    return found.rejected[-N_NOVEL:].mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--levels", type=int, nargs="+", default=[4, 8, 12, 60])
    parser.add_argument("--designs", nargs="+", default=["noise", "levels", "interaction"])
    options = parser.parse_args()
    print(
        "design       levels  form           "
        + "  ".join(f"{s or 'default':>11}" for s in SCORERS)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for design in options.designs:
            for n_levels in options.levels:
                for form in FORMS:
                    found = [
                        np.mean(
                            [
                                power(design, n_levels, form, s, r)
                                for r in range(options.repetitions)
                            ]
                        )
                        for s in SCORERS
                    ]
                    cells = "  ".join(f"{value:11.2f}" for value in found)
                    print(f"{design:<12} {n_levels:>6}  {form:<14} {cells}", flush=True)


if __name__ == "__main__":
    main()
