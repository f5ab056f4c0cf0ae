"""The default scorer with few trees and folds: all its steps, in a fraction of the time."""

from dataclasses import fields, replace

from sklearn.base import clone

from conovel.scorers.automatic import Automatic
from conovel.scorers.binned_forest import RandomisedTrees
from conovel.scorers.blend import Blend
from conovel.scorers.weighted_forests import WeightedForests

_candidates = Automatic.candidates


def few_candidates(scorer):
    """Stand in for `Automatic.candidates`."""
    return shrunk(_candidates(replace(scorer, n_folds=2)))


def shrunk(part):
    """Copy a scorer, or several: the same steps, with few and shallow trees."""
    if isinstance(part, dict):
        return {name: shrunk(one) for name, one in part.items()}
    if isinstance(part, list | tuple):
        return type(part)(map(shrunk, part))
    if isinstance(part, RandomisedTrees):
        return clone(part).set_params(n_trees=4, max_depth=4)
    if isinstance(part, WeightedForests):
        return replace(part, n_trees=4)
    if isinstance(part, Blend):
        return replace(part, **{f.name: shrunk(getattr(part, f.name)) for f in fields(part)})
    return part
