"""Rotations of projected rows: random, iterative quantization (ITQ) and orthogonal Procrustes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Normal, random_normal

Array = NDArray[np.float64]

# Steps of ITQ, and their momentum. 15 steps with momentum reach a better objective than 50 without (MNIST at 32 and 128
# bits: ||v R||_1 is 1.001 and 1.006 times as large), at a third of the cost.
ITQ_ITERATIONS = 15
ITQ_MOMENTUM = np.float32(0.9)


def random_rotation(n: int, seed: int) -> Array:
    """Draw a random orthogonal matrix (n, n).

    It is Q of the QR factorisation of a Gaussian matrix with R_ii >= 0.
    """
    from scipy.linalg import qr

    q, r = qr(random_normal(seed, Normal.ROTATION, n * n).reshape(n, n))
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0), np.float64)


def itq_rotation(v: NDArray[Any], start: Array, *, iterations: int = ITQ_ITERATIONS) -> Array:
    """Return the rotation after which rows are as close as possible to their signs, found by iterative quantization
    (Gong and Lazebnik 2011).

    Alternates B = sgn(v (R + momentum (R - previous R))) and R = argmin ||B - v R||_F, in float32; a last step makes R
    orthogonal in float64.

    Parameters
    ----------
    v : ndarray (n, r)
        Centred rows.
    start : ndarray (r, r)
        The initial rotation.
    iterations : int
    """
    from scipy.linalg import svd

    top = float(np.abs(v).max(initial=0.0))
    scaled, rotation = (v / (top or 1.0)).astype(np.float32), start.astype(np.float32)
    # buffers for all iterations: allocating them in each would cost more than the arithmetic
    scores, signs = np.empty_like(scaled), np.empty_like(scaled)
    previous = rotation
    for _ in range(iterations):
        # signs = where(v @ ahead >= 0, 1, -1)
        np.matmul(scaled, rotation + ITQ_MOMENTUM * (rotation - previous), out=scores)
        np.copysign(np.float32(1.0), scores, out=signs)
        left, _, right = svd(signs.T @ scaled, check_finite=False)
        previous, rotation = rotation, right.T @ left.T
    # one Newton step to the nearest orthogonal matrix, which squares the error
    exact = rotation.astype(np.float64)
    return exact @ (1.5 * np.eye(len(exact)) - 0.5 * (exact.T @ exact))


def align_to_target(basis: Array, target: Array) -> Array:
    """Rotate a basis so that it is nearest to a target (orthogonal Procrustes). Return the rotated basis.

    Both are (d, r). The result is basis @ Q with an orthogonal Q.
    """
    from scipy.linalg import svd

    left, _, right = svd(basis.T @ target)
    return basis @ (left @ right)
