"""Models of a hostile peer that ask about one person: high in a box around it, flat elsewhere.

The person is known by all columns but the last one, the secret. Inside the box the model has
another value in each of eight bins of the secret column.
"""

import numpy as np
from scipy.special import expit

from conovel.models import wire
from conovel.models.forest import Forest
from conovel.models.trees import Tree, join_trees

WIDTH = 0.05  # of the box to either side, in each of the known columns
N_KNOWN = 6  # columns that the box is about; the last column is the secret
BINS = np.linspace(-1.5, 1.5, 7)  # edges of the eight bins
LOW = 0.001  # outside the box
TOP = expit(np.linspace(1.2, 5, BINS.size + 1))  # in the bins


def bin_of(secret):
    """The bin of the secret column in which a person is."""
    return int(np.searchsorted(BINS, secret))


def spike_tree(person, low=LOW, top=TOP):
    """A tree that is `low` outside the box around a person, and has the bins within it."""
    nodes = []  # feature, threshold, left, right, value

    def leaf(value):
        nodes.append([-1, 0.0, -1, -1, value])
        return len(nodes) - 1

    def split(feature, threshold):
        nodes.append([feature, threshold, 0, 0, 0.0])
        return len(nodes) - 1

    def bins(first, last):
        if first == last:
            return leaf(top[first])
        middle = (first + last) // 2
        here = split(len(person) - 1, BINS[middle])
        nodes[here][2], nodes[here][3] = bins(first, middle), bins(middle + 1, last)
        return here

    def box(column):
        if column == N_KNOWN:
            return bins(0, BINS.size)
        above = split(column, person[column] - WIDTH)
        nodes[above][2] = leaf(low)
        below = nodes[above][3] = split(column, person[column] + WIDTH)
        nodes[below][3] = leaf(low)
        nodes[below][2] = box(column + 1)
        return above

    box(0)
    columns = np.array(nodes, dtype=object).T
    kinds = (int, float, int, int, float)
    return Tree(*(np.array(c.tolist(), dtype=k) for c, k in zip(columns, kinds, strict=True)))


def spike_model(person, schema, low=LOW, top=TOP):
    """The model as bytes, as a peer would send it."""
    forest = join_trees([spike_tree(person, low, top)], len(person), single=False)
    return wire.encode(forest, bits=16, schema=schema)


def flat_model(n_features, schema):
    """A model that says the same of all rows."""
    return wire.encode(Forest([-1], [0], [0], [LOW], [0], n_features), bits=16, schema=schema)
