"""An audit of a certificate: the spectral error of a sketch, measured in a few passes over its rows."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.warning import warn_caller

Matrix = NDArray[np.float64]

# Random directions to begin with, and the most steps: the basis is (d, 320) float64 then.
WIDTH, MOST_PASSES = 8, 40
# What is left of a block of directions, relative to the error, that is rounding.
NOTHING = 1e-10


class Audit(NamedTuple):
    """The spectral error of a sketch, measured.

    Attributes
    ----------
    error : float
        The norm of A'A + alpha0 I - B'B - alpha I that was found. It is a lower bound of the norm for certain (up to
        rounding), and most probably within `accuracy` of it.
    error_bound : float
        The certificate: an upper bound.
    accuracy : float
        Relative: some eigenvalue differs from `error` by at most this share of it. (That none is larger, no finite
        number of passes can show; eight random directions miss one with a probability that falls with every pass.)
    passes : int
        Over the rows.
    """

    error: float
    error_bound: float
    accuracy: float
    passes: int


def spectral_norm(
    multiply: Callable[[Matrix], Matrix], d: int, *, accuracy: float, floor: float = 0.0
) -> tuple[float, float, int]:
    """Return norm, relative accuracy reached and products of a symmetric matrix (d, d), given as products with (d, b).

    Block Lanczos from random directions with full orthogonalization: the basis is all that is kept. It ends when the
    residual of the largest |Ritz value| is at most `accuracy` of it and the last step has not raised it by more than a
    tenth of that, when the basis can grow no more, or when residual or value are below `floor`; after MOST_PASSES, with
    a UserWarning to the caller's caller if `accuracy` is not reached.
    """
    rng = np.random.default_rng(0)
    block = np.linalg.qr(rng.standard_normal((d, min(WIDTH, d))))[0]
    basis, small = np.empty((d, 0)), np.empty((0, 0))
    coupling = np.empty((block.shape[1], 0))  # of this block with the one before
    value, reached, passes = 0.0, np.inf, 0
    while passes < MOST_PASSES:
        image = multiply(block)
        passes += 1
        n, b = basis.shape[1], block.shape[1]
        basis = np.hstack([basis, block])
        # T = basis' E basis is block tridiagonal
        grown = np.zeros((n + b, n + b))
        grown[:n, :n] = small
        inner = block.T @ image
        grown[n:, n:] = (inner + inner.T) / 2
        before = coupling.shape[1]
        grown[n:, n - before : n], grown[n - before : n, n:] = coupling, coupling.T
        small = grown
        for _ in range(2):
            image -= basis @ (basis.T @ image)
        u, s, wt = np.linalg.svd(image, full_matrices=False)
        ritz, vectors = np.linalg.eigh(small)
        i = int(np.argmax(np.abs(ritz)))
        last, value = value, abs(float(ritz[i]))
        residual = float(np.linalg.norm(s * (wt @ vectors[n:, i])))
        reached = residual / value if value > 0 else 0.0
        settled = reached <= accuracy and value - last <= 0.1 * accuracy * value
        kept = min(int(np.count_nonzero(s > NOTHING * max(value, floor))), d - basis.shape[1])
        if kept <= 0:
            return value, min(reached, NOTHING), passes
        if settled or value <= floor or residual <= floor:
            break
        block, coupling = u[:, :kept], s[:kept, np.newaxis] * wt[:kept]
    else:
        if reached > accuracy:
            warn_caller(
                f"the audit has ended after {passes} passes, the most that it makes, with an accuracy of {reached:.2g} "
                f"instead of {accuracy:.2g}"
            )
    return value, reached, passes
