"""Rivals of a sketch that keep rows: principal components of a sample, with the rotations that SketchHash has.

Each takes a stream in one pass and touches no more of it than it needs. The uniform sample reads the rows that it keeps
and nothing else; the one by squared length reads all, for their lengths and their mean.
"""

import numpy as np

from fastsketch.neighbours.summaries._rotation import itq_rotation, random_rotation


class Rival:
    """What the samples have in common: top directions of the rows kept, a rotation, codes packed as ours are."""

    def __init__(self, n_bits, size=1000, rotation="itq", seed=0):
        self.n_bits, self.size, self.rotation, self.seed = n_bits, size, rotation, seed
        self._random = np.random.default_rng(seed)
        self._rows, self._keys, self._limit, self.n_rows = [], [], -np.inf, 0

    def update(self, rows):
        keys = self._new_keys(rows)
        self.n_rows += len(rows)
        chosen = np.flatnonzero(keys > self._limit)
        if len(chosen) > self.size:
            chosen = np.sort(chosen[np.argpartition(-keys[chosen], self.size - 1)[: self.size]])
        self._rows.append(rows[chosen])
        self._keys.append(keys[chosen])
        if sum(map(len, self._keys)) > 2 * self.size:
            self._trim()
        return self

    def _trim(self):
        keys = np.concatenate(self._keys)
        if len(keys) > self.size:
            kept = np.argpartition(-keys, self.size - 1)[: self.size]
            self._rows, self._keys = [np.concatenate(self._rows)[kept]], [keys[kept]]
            self._limit = self._keys[0].min()
        else:
            self._rows, self._keys = [np.concatenate(self._rows)], [keys]

    def sample(self):
        """The rows kept (at most size, d)."""
        self._trim()
        return self._rows[0]

    @property
    def projection(self):
        """(d, n_bits), and the mean of the rows in ``mean``."""
        self.mean, centred, learned_from = self._centred()
        basis = top_directions(centred, self.n_bits)
        if self.rotation is None:
            return basis
        rotation = random_rotation(self.n_bits, self.seed)
        if self.rotation == "itq":
            rotation = itq_rotation((learned_from @ basis).astype(np.float64), rotation)
        return basis @ rotation

    def seal(self):
        """Learn from what is kept."""
        self._learned = self.projection
        return self

    def encode(self, rows):
        projection = self._learned.astype(rows.dtype, copy=False)
        positive = rows @ projection > self.mean.astype(rows.dtype, copy=False) @ projection
        return np.packbits(positive, axis=1, bitorder="little")

    def nbytes(self):
        """Of the rows kept."""
        return self.sample().nbytes


class UniformSample(Rival):
    """Every row with the same chance, whatever the length of the stream."""

    def _new_keys(self, rows):
        return self._random.random(len(rows))

    def _centred(self):
        rows = self.sample()
        mean = rows.mean(axis=0)
        centred = rows - mean
        return mean, centred, centred


class FirstRows(Rival):
    """The rows that came first: what is kept when a model is trained once and then left alone."""

    def _new_keys(self, rows):
        return -np.arange(self.n_rows, self.n_rows + len(rows), dtype=np.float64)

    _centred = UniformSample._centred


class LengthSample(Rival):
    """Rows with chances by their squared distance from the mean of the first batch, scaled back for their products.

    The strongest of the samples where rows are of different length. The mean is that of all rows.
    """

    _total = _origin = None
    _weight = 0.0

    def _new_keys(self, rows):
        total = rows.sum(axis=0, dtype=np.float64)
        if self._total is None:
            self._total, self._origin = np.zeros(rows.shape[1]), (total / len(rows)).astype(rows.dtype)
        self._total += total
        away = rows - self._origin
        weights = np.maximum(np.einsum("ij,ij->i", away, away, dtype=np.float64), 1e-300)
        self._weight += weights.sum()
        return np.log(self._random.random(len(rows))) / weights  # the largest: Efraimidis and Spirakis

    def _centred(self):
        rows = self.sample()
        mean = (self._total / self.n_rows).astype(rows.dtype)
        centred, away = rows - mean, rows - self._origin
        weights = np.einsum("ij,ij->i", away, away, dtype=np.float64)
        # a row that is kept surely stands for itself alone
        surely = np.minimum(1.0, self.size * weights / self._weight)
        scaled = centred / np.sqrt(np.maximum(surely, 1e-300))[:, np.newaxis].astype(rows.dtype)
        return mean, scaled, scaled


def top_directions(rows, r):
    """Top r right singular vectors of rows as (d, r): of the smaller of the two Gram matrices."""
    from scipy.linalg import eigh, qr

    n, d = rows.shape
    if n <= d:
        values, left = eigh(rows @ rows.T, subset_by_index=(max(0, n - r), n - 1), check_finite=False)
        found = rows.T @ left[:, values > 1e-9 * values[-1]][:, ::-1]
        found = qr(found, mode="economic", check_finite=False)[0]
        if found.shape[1] < r:  # fewer rows than directions: any others
            more = np.random.default_rng(0).standard_normal((d, r - found.shape[1]))
            found = qr(np.hstack([found, more]), mode="economic", check_finite=False)[0]
        return found
    return eigh(rows.T @ rows, subset_by_index=(d - r, d - 1), check_finite=False)[1][:, ::-1]
