"""Rotations of a code: a random one, ITQ, and the one that brings one basis nearest to another."""

import numpy as np

from fastsketch.sketching import random_normal

ITQ_ITERATIONS = 50


def random_rotation(n, seed):
    """Orthogonal (n, n), a function of the seed: QR of a Gaussian matrix, signs fixed by the diagonal of R."""
    from scipy.linalg import qr

    q, r = qr(random_normal(seed, 0, n * n).reshape(n, n))
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)


def itq_rotation(v, start, iterations=ITQ_ITERATIONS):
    """Iterative quantisation: R that brings v R near to its own signs (Gong, Lazebnik 2011), v (n, r) centred.

    Alternates B = sgn(v R) and R = argmin ||B - v R||_F; `start` is an orthogonal (r, r).
    """
    from scipy.linalg import svd

    r = start
    for _ in range(iterations):
        b = np.where(v @ r > 0, 1.0, -1.0)
        left, _, right = svd(b.T @ v)
        r = right.T @ left.T
    return r


def aligned(basis, target):
    """basis Q with the orthogonal Q that brings it nearest to target (orthogonal Procrustes); both (d, r)."""
    from scipy.linalg import svd

    left, _, right = svd(basis.T @ target)
    return basis @ (left @ right)
