"""What a peer reads about the rows behind a model, by the number of rows and the precision.

Rows have ten standard normal columns. A site has 400 known normals and 200 test rows, of which 20
are novelties (each column shifted by 1). `n` of the known normals train. The peer gets the model
and nothing else, and knows the distribution of normal rows. It tries:

- `mean`: it takes the mean of the one percent of 20,000 random rows that the model finds most
  normal. The number is the correlation of this guess with the mean of null_train, over columns.
- `row`: the largest correlation of the same guess with a row of null_train, and what it is with as
  many rows that did not train (`row by chance`).
- `member`: it tells rows of null_train from fresh normal rows by their scores (AUC; 0.5 is a
  guess).
- `novelty`: it tells the novelties among the test rows from fresh novelties by their scores (AUC).

With `--models 8` the site answers eight runs with different seeds, and the peer uses the mean of
the scores of eight models, for which other rows of the same data train.
"""

import argparse
import warnings
from fractions import Fraction

import numpy as np

from conovel.experiments.attacks import area
from conovel.rows.pairs import read_pair
from conovel.scorers.argument import as_candidates
from conovel.site.sent.surrogate import decode, make_surrogate
from conovel.site.site import Site
from conovel.site.work import SiteWork
from conovel.spec.run_spec import RunSpec

N_NULL, N_TEST, N_NOVEL, WIDTH, SHIFT = 400, 200, 20, 10, 1.0
N_GUESSES, N_FRESH = 20_000, 200
PRECISIONS = ("compact", 4, 8, 16, None)


def models_of(null, test, n_train, seed):
    """Fit a site's model once; return it at every precision, and which known normals train."""
    share = str(Fraction(n_train, N_NULL))
    spec = RunSpec.of(regime="full", seed=seed, train_fraction=share)
    rows = read_pair(null, test, None, shares_schema=True)
    site = Site(*rows, SiteWork(spec, tuple(as_candidates(None, seed)), 2))
    training, fitted = site.own_block.training, site.fitted
    models = [
        decode(make_surrogate(bits, fitted, training, seed, candidates=site.work.candidates))
        for bits in PRECISIONS
    ]
    return models, site.split(N_NULL)[0]


def attack(n_train, seed, n_models):
    """Return what a peer reads from the models of a site: a line for each precision."""
    rng = np.random.default_rng([seed, n_train])
    null = rng.normal(size=(N_NULL, WIDTH))
    test = rng.normal(size=(N_TEST, WIDTH))
    test[:N_NOVEL] += SHIFT
    made = [models_of(null, test, n_train, seed + 10_000 * number) for number in range(n_models)]
    train = np.unique(np.concatenate([rows for _, rows in made]))
    guesses = rng.normal(size=(N_GUESSES, WIDTH))
    fresh = rng.normal(size=(N_FRESH, WIDTH))
    found = []
    for models in zip(*(models for models, _ in made), strict=True):

        def score(rows, models=models):
            return np.mean([model.score(rows) for model in models], axis=0)

        best = np.argsort(score(guesses), kind="stable")[: N_GUESSES // 100]
        guess = guesses[best].mean(axis=0)
        found.append(
            (
                np.corrcoef(guess, null[train].mean(axis=0))[0, 1],
                nearest(guess, null[train]),
                nearest(guess, rng.normal(size=(len(train), WIDTH))),
                area(score(null[train]), score(fresh)),
                area(score(fresh + SHIFT), score(test[:N_NOVEL])),
            )
        )
    return found


def nearest(guess, rows):
    """Return the largest correlation of a guess with a row."""
    return max(np.corrcoef(guess, row)[0, 1] for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 20, 50, 100])
    parser.add_argument("--models", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of libraries, about a covariance of one row
    print("| rows | precision | mean | row | row by chance | member | novelty |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for n_train in options.rows:
        found = np.array([attack(n_train, r, options.models) for r in range(options.repetitions)])
        errors = found.std(axis=0, ddof=1) / np.sqrt(len(found))
        for bits, means, spread in zip(PRECISIONS, found.mean(axis=0), errors, strict=True):
            cells = " | ".join(f"{m:.2f} ± {e:.2f}" for m, e in zip(means, spread, strict=True))
            print(f"| {n_train} | {bits or 'float64'} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
