"""Ordinal Constraint Hashing (Liu, Ji, Wu, Huang, AAAI 2017), a rival in the FROSH paper, restated.

After the abstracts of its two papers and the short program that its authors published: signs of W'x with orthonormal W,
which keep the order of distances among a few hundred centres of the rows. What these leave open is decided here: rows
are brought to as many principal components as there are bits, steps are taken for all centres at once, and along the
objective itself.
"""

import numpy as np


class OrdinalConstraint:
    """Codes whose agreement with those of near centres is larger than with those of farther ones."""

    def __init__(self, n_bits, seed=0, *, centres=300, near=10, iterations=300):
        self.n_bits, self.seed, self.centres, self.near, self.iterations = n_bits, seed, centres, near, iterations

    def update(self, rows):
        rng = np.random.default_rng(self.seed)
        sample = np.asarray(rows[rng.permutation(len(rows))[:10_000]], dtype=np.float64)
        self.mean = sample.mean(axis=0)
        sample -= self.mean
        self.axes = np.linalg.eigh(sample.T @ sample)[1][:, ::-1][:, : self.n_bits]
        found = centres_of(sample, min(self.centres, len(sample)), rng)
        ordinal = Triples(found, self.near)
        self.w, self.objective = climbed(found @ self.axes, ordinal, self.n_bits, self.iterations, rng)
        return self

    def encode(self, rows):
        return np.packbits((rows - self.mean) @ self.axes @ self.w > 0, axis=1, bitorder="little")


class Triples:
    """(i, j, k): centre i is nearer to j, one of its few nearest, than to k."""

    def __init__(self, centres, near):
        squares = (centres**2).sum(axis=1)
        distances = squares[:, None] - 2 * centres @ centres.T + squares
        np.fill_diagonal(distances, -1)
        self.order = np.argsort(distances, axis=1)[:, 1:]  # but itself
        self.near = min(near, self.order.shape[1] - 1)
        self.farther = np.triu(np.ones((self.near, self.order.shape[1]), bool), 1)

    def value(self, h):
        """Return the sum of sigmoids of h_i'h_j - h_i'h_k, and its gradient by h."""
        s = np.take_along_axis(h @ h.T, self.order, axis=1)  # of each centre, from its nearest on
        y = 1 / (1 + np.exp(np.clip(s[:, None, :] - s[:, : self.near, None], -50, 50)))
        y *= self.farther
        slopes = y * (1 - y)
        by_rank = -slopes.sum(axis=1)
        by_rank[:, : self.near] += slopes.sum(axis=2)
        by_pair = np.zeros((len(h), len(h)))
        np.put_along_axis(by_pair, self.order, by_rank, axis=1)
        return y.sum(), (by_pair + by_pair.T) @ h


def centres_of(rows, n, rng, rounds=10):
    """Return centres by a few rounds of Lloyd's algorithm."""
    centres = rows[rng.permutation(len(rows))[:n]]
    for _ in range(rounds):
        nearest = ((centres**2).sum(axis=1) - 2 * rows @ centres.T).argmin(axis=1)
        counts = np.bincount(nearest, minlength=n)
        order = np.argsort(nearest, kind="stable")
        filled = counts > 0
        starts = np.cumsum(counts)[filled] - counts[filled]
        centres[filled] = np.add.reduceat(rows[order], starts) / counts[filled, None]
    return centres


def climbed(x, ordinal, n_bits, iterations, rng):
    """Return W with orthonormal columns after steps that go up, and the objective of each."""

    def at(w):
        h = np.tanh(x @ w)
        value, slope = ordinal.value(h)
        return value, x.T @ (slope * (1 - h * h))

    w, step, values = np.linalg.qr(rng.standard_normal((x.shape[1], n_bits)))[0], 1.0, []
    value, g = at(w)
    for _ in range(iterations):
        values.append(value)
        z = g - w @ g.T @ w  # the direction within the manifold
        length = np.linalg.norm(z)
        while step > 1e-8:
            u, _, vt = np.linalg.svd(w + step / max(length, 1e-300) * z, full_matrices=False)
            tried, slope = at(u @ vt)
            if tried > value:
                break
            step *= 0.5
        else:
            break
        w, value, g, step = u @ vt, tried, slope, 1.5 * step
    return w, values
