"""Principal directions, computed from the rows of a sketch or from a matrix of sums of squares and products."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Normal, random_normal

Array = NDArray[np.float64]

# Squared singular values below this share of the largest are rounding errors of a Gram matrix.
GRAM_PRECISION = 1e-9


def top_right_singular_vectors(rows: NDArray[Any], n: int, *, seed: int) -> Array:
    """Compute the top n right singular vectors of a matrix. Return them as orthonormal rows.

    The matrix is (m, d) with n <= d, the result (n, d) float64.

    If the rank is lower, they are completed by directions that depend on the seed.
    """
    from scipy.linalg import eigh, svd

    rows = rows.astype(np.float64, copy=False)
    top = _largest_magnitude(rows)
    if top == 0:
        return _complete_basis(np.empty((0, rows.shape[1])), n, seed=seed)
    rows = rows / top
    m, d = rows.shape
    if 1 < m <= d:  # m > 1: scipy 1.13.0 allocates too little memory for this driver and m = 1
        values, left_vectors = eigh(rows @ rows.T, check_finite=False, overwrite_a=True, driver="evd")
        values, left_vectors = values[::-1][:n], left_vectors[:, ::-1][:, :n]
        if values[-1] > GRAM_PRECISION * values[0]:
            return _complete_basis(_fix_signs((left_vectors.T @ rows) / np.sqrt(values)[:, np.newaxis]), n, seed=seed)
    _, s, vt = svd(rows, full_matrices=False, check_finite=False)
    rank = int(np.count_nonzero(s > s[0] * max(m, d) * np.finfo(float).eps))
    return _complete_basis(_fix_signs(vt[: min(n, rank)]), n, seed=seed)


def top_eigenvectors(moment: Array, n: int, *, seed: int) -> Array:
    """Compute the top n eigenvectors of a matrix of sums of squares and products. Return them as orthonormal rows.

    The matrix is (d, d). If the rank is lower, the rows are completed as in ``top_right_singular_vectors``.
    """
    from scipy.linalg import eigh

    top = _largest_magnitude(moment)
    if top == 0:
        return _complete_basis(np.empty((0, len(moment))), n, seed=seed)
    d = len(moment)
    values, vectors = eigh(moment / top, subset_by_index=(d - n, d - 1), check_finite=False)
    rank = int(np.count_nonzero(values > values[-1] * d * np.finfo(float).eps))
    return _complete_basis(_fix_signs(vectors.T[::-1][:rank]), n, seed=seed)


def _largest_magnitude(matrix: NDArray[Any]) -> float:
    """Return the largest magnitude of an entry. Raise LinAlgError if it is not finite.

    LAPACK may not terminate for infinity.
    """
    top = float(np.abs(matrix).max(initial=0.0))
    if not np.isfinite(top):
        raise np.linalg.LinAlgError("the sums of the rows have left the range of numbers")
    return top


def _fix_signs(vt: Array) -> Array:
    """Return vectors (rows) with signs flipped so that the component of largest magnitude is positive.

    The result then does not depend on the solver.
    """
    return vt * np.where(vt[np.arange(len(vt)), np.abs(vt).argmax(axis=1)] < 0, -1.0, 1.0)[:, np.newaxis]


def _complete_basis(vt: Array, n: int, *, seed: int) -> Array:
    """Return orthonormal rows extended to n rows by random directions, which depend on the seed only."""
    missing = n - len(vt)
    if missing == 0:
        return vt
    extra = random_normal(seed, Normal.COMPLETION, missing * vt.shape[1]).reshape(missing, -1)
    for _ in range(2):  # the second time removes the rounding errors of the first
        extra = extra - (extra @ vt.T) @ vt
    return np.vstack([vt, np.linalg.qr(extra.T)[0].T])
