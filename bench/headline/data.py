"""Splits of the sets of codes for `headline`: in every run other rows are queries, none of which chose anything."""

import numpy as np

from codes import sets

ROWS, QUERIES = 20_000, 500


def sift5k(run):
    """200 queries that were queries of choices in none of the splits of `codes`."""
    first = sets.sift5k(0)
    if first is None:
        return None
    rows = np.concatenate([first[1], first[0]])
    used = np.zeros(len(rows), bool)
    order = np.random.default_rng(0).permutation(len(rows))  # row i here is row order[i] of the file
    for split in range(3):
        used |= np.isin(order, np.random.default_rng(split).permutation(len(rows))[-200:])
    asked = np.random.default_rng([7, run]).permutation(np.flatnonzero(~used))[:200]
    rest = np.setdiff1d(np.arange(len(rows)), asked)
    return rows[np.random.default_rng([8, run]).permutation(rest)], rows[asked]


def mnist(run):
    """20,000 training images; 500 test images are the queries."""
    found = sets.mnist()
    if found is None:
        return None
    rng = np.random.default_rng([7, run])
    return found[0][rng.permutation(len(found[0]))[:ROWS]], found[1][rng.permutation(len(found[1]))[:QUERIES]]


SPLITS = {"sift5k": sift5k, "MNIST": mnist}


def halves(name, run):
    """A CodeSet of the run, or None where files are absent."""
    made = SPLITS[name](run)
    if made is None:
        return None
    base, queries = made
    cut = len(base) - 200
    near, choice_near = sets.nearest(queries, base), sets.nearest(base[cut:], base[:cut])
    return sets.CodeSet(name, base, queries, near, 200, choice_near)
