"""A rival of a sketch that keeps rows: principal components of a uniform sample, with the rotations of SketchHash."""

import numpy as np

from fastsketch.neighbours.summaries._rotation import itq_rotation, random_rotation


class UniformSample:
    """Hash functions from a reservoir of rows: their leading directions, a rotation, codes packed as SketchHash's."""

    def __init__(self, n_bits, size=1000, rotation="itq", seed=0):
        self.n_bits, self.size, self.rotation, self.seed = n_bits, size, rotation, seed
        self._random = np.random.default_rng(seed)
        self._rows, self._keys = None, np.empty(0)

    def update(self, rows):
        keys = self._random.random(len(rows))
        chosen = np.argsort(-keys)[: self.size]
        held = rows[chosen] if self._rows is None else np.concatenate([self._rows, rows[chosen]])
        keys = np.concatenate([self._keys, keys[chosen]])
        best = np.argsort(-keys)[: self.size]
        self._rows, self._keys = held[best], keys[best]
        return self

    @property
    def projection(self):
        """(d, n_bits), and the mean of the rows in ``mean``."""
        self.mean = self._rows.mean(axis=0)
        centred = self._rows - self.mean
        basis = top_directions(centred, self.n_bits)
        rotation = random_rotation(self.n_bits, self.seed)
        if self.rotation == "itq":
            rotation = itq_rotation((centred @ basis).astype(np.float64), rotation)
        return basis @ rotation

    def seal(self):
        """Learn from the sampled rows."""
        self._learned = self.projection
        return self

    def encode(self, rows):
        projection = self._learned.astype(rows.dtype, copy=False)
        positive = rows @ projection > self.mean.astype(rows.dtype, copy=False) @ projection
        return np.packbits(positive, axis=1, bitorder="little")


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
