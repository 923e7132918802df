"""Ratings and signed links: how they are read, and what of them is training."""

from inspect import signature

import numpy as np
from scipy import sparse

from bench_data import located, movielens_100k, signed_links
from bench_tools import few

GENERATED = "generated"


def ratings_of(name):
    """(rows, columns, stars, shape) of MovieLens, or generated ones, or None."""
    if name == GENERATED:
        return generated()
    if name == "ML-100K":
        lines = movielens_100k()
        if lines is None:
            return None
        rows, columns = (np.unique(lines[:, k], return_inverse=True)[1] for k in (0, 1))
        return rows, columns, lines[:, 2].astype(np.float32), (rows.max() + 1, columns.max() + 1)
    path = located(name, "ml-1m/movielens1m.mat", "MovieLens 1M")
    if path is None:
        return None
    from scipy.io import loadmat

    # newer versions of scipy warn where nothing is said of this argument, older ones do not know it
    chosen = {"spmatrix": False} if "spmatrix" in signature(loadmat).parameters else {}
    found = sparse.csr_array(loadmat(path, **chosen)["data"])[: few(10**9, 100)].tocoo()
    return found.row.astype(np.int64), found.col.astype(np.int64), found.data.astype(np.float32), found.shape


def generated(*, signs=False):
    """(rows, columns, values, shape) by biases, five factors and noise: 50 stars of 2,000 users, 100 signs of 1,000."""
    (m, n, many), rng = (1_000, 200, 100) if signs else (2_000, 500, 50), np.random.default_rng(100)
    m = few(m, 100)
    z = 0.4 * rng.standard_normal((m, 1)) + 0.5 * rng.standard_normal(n)
    z = z + (2.0 if signs else 0.5) / np.sqrt(5) * rng.standard_normal((m, 5)) @ rng.standard_normal((5, n))
    # items are taken with weights 1, 1/2, 1/3 ...
    taken = rng.gumbel(size=z.shape) - np.log(1 + np.arange(n)) * (not signs)
    rows, columns = np.repeat(np.arange(m), many), np.argsort(-taken, axis=1)[:, :many].ravel()
    z = z[rows, columns]
    values = (
        np.sign(z + rng.logistic(size=len(z)))
        if signs
        else np.clip(np.round(3.5 + z + 0.7 * rng.standard_normal(len(z))), 1, 5)
    )
    return rows, columns, values.astype(np.float32), (m, n)


def links_of(name, *, shared=False):
    """(rows, columns, signs, shape) of a signed network, users with fewer than two observations dropped; or None.

    shared: rows and columns have one numbering of users.
    """
    if name == GENERATED:
        return generated(signs=True)
    lines = signed_links(name)
    if lines is None:
        return None
    rows, columns, signs = lines[:, 0], lines[:, 1], np.where(lines[:, 2] > 0, 1.0, -1.0)
    keys = np.unique(rows * (columns.max() + 1) + columns, return_index=True)[1]  # a pair that stands twice counts once
    rows, columns, signs = rows[keys], columns[keys], signs[keys]
    for side in (0, 1):
        ids = (rows, columns)[side]
        many = np.bincount(ids)[ids] >= 2
        rows, columns, signs = rows[many], columns[many], signs[many]
    if shared:
        rows, columns = np.unique(np.stack([rows, columns]), return_inverse=True)[1].reshape(2, -1)
        return rows, columns, signs, (max(rows.max(), columns.max()) + 1,) * 2
    rows, columns = (np.unique(ids, return_inverse=True)[1] for ids in (rows, columns))
    return rows, columns, signs, (rows.max() + 1, columns.max() + 1)


def matrix(found, chosen, values=None):
    """The chosen entries as CSR."""
    rows, columns, stars, shape = found
    values = stars if values is None else values
    return sparse.csr_array(sparse.coo_array((values[chosen], (rows[chosen], columns[chosen])), shape=shape))


def halves(found, splits):
    """(training, test) places of the entries: half and half, by chance."""
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(found[2]))
        yield order[: len(order) // 2], order[len(order) // 2 :]


def tenths(found, splits):
    """(training, test) places of the entries: every test a tenth of its own."""
    order = np.random.default_rng(0).permutation(len(found[2]))
    for k in range(splits):
        yield order[np.arange(len(order)) % 10 != k], order[k::10]


def few_of_each(found, splits, many=5):
    """(training, test) places of the entries: so many of every row, by chance, and all others."""
    rows, many = found[0], few(many, 5)  # the first rows of a file may have no more than that to test
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(rows))
        order = order[np.argsort(rows[order], kind="stable")]
        counts = np.bincount(rows)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        yield order[place < many], order[place >= many]
