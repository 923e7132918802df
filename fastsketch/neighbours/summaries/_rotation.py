"""Rotations of a code: a random one, ITQ, and the one that brings one basis nearest to another."""

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Normal, random_normal

Array = NDArray[np.float64]

ITQ_ITERATIONS = 50


def random_rotation(n: int, seed: int) -> Array:
    """Return an orthogonal (n, n), a function of the seed: QR of a Gaussian matrix, signs by the diagonal of R."""
    from scipy.linalg import qr

    q, r = qr(random_normal(seed, Normal.ROTATION, n * n).reshape(n, n))
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0), np.float64)


def itq_rotation(v: Array, start: Array, *, iterations: int = ITQ_ITERATIONS) -> Array:
    """Return R that brings v R near its own signs: iterative quantisation (Gong, Lazebnik 2011), v (n, r) centred.

    Alternates B = sgn(v R) and R = argmin ||B - v R||_F; `start` is an orthogonal (r, r).
    """
    from scipy.linalg import svd

    rotation = start
    # in one working space: memory that is asked for in every iteration costs more than the arithmetic
    scores, signs, positive = np.empty(v.shape), np.empty(v.shape), np.empty(v.shape, np.bool_)
    for _ in range(iterations):
        # signs = where(v @ rotation > 0, 1, -1)
        np.greater(np.matmul(v, rotation, out=scores), 0.0, out=positive)
        np.subtract(np.multiply(positive, 2.0, out=signs), 1.0, out=signs)
        left, _, right = svd(signs.T @ v)
        rotation = right.T @ left.T
    return rotation


def aligned(basis: Array, target: Array) -> Array:
    """Return basis Q with the orthogonal Q that brings it nearest to target (Procrustes); both (d, r)."""
    from scipy.linalg import svd

    left, _, right = svd(basis.T @ target)
    return basis @ (left @ right)
