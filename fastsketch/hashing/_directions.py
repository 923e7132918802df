"""Top principal directions of what a sketch holds."""

import numpy as np

from fastsketch.sketching import random_normal

# Squared singular values below this share of the largest are lost in the rounding of a Gram matrix.
GRAM_PRECISION = 1e-9


def top_of_rows(rows, r, seed):
    """The top r right singular vectors of rows (m, d) as (r, d) float64, completed if the rank is lower."""
    from scipy.linalg import eigh, svd

    rows = rows.astype(np.float64, copy=False)
    top = np.abs(rows).max(initial=0.0)
    if top == 0:
        return completed(np.empty((0, rows.shape[1])), r, seed)
    rows = rows / top
    m, d = rows.shape
    if m <= d:
        values, left = eigh(rows @ rows.T, check_finite=False, overwrite_a=True, driver="evd")
        values, left = values[::-1][:r], left[:, ::-1][:, :r]
        if values[-1] > GRAM_PRECISION * values[0]:
            return _signed((left.T @ rows) / np.sqrt(values)[:, np.newaxis])
    _, s, vt = svd(rows, full_matrices=False, check_finite=False)
    rank = int(np.count_nonzero(s > s[0] * max(m, d) * np.finfo(float).eps))
    return completed(_signed(vt[: min(r, rank)]), r, seed)


def top_of_moment(moment, r, seed):
    """The same for a symmetric (d, d) sum of squares."""
    from scipy.linalg import eigh

    top = np.abs(moment).max(initial=0.0)
    if top == 0:
        return completed(np.empty((0, len(moment))), r, seed)
    d = len(moment)
    values, vectors = eigh(moment / top, subset_by_index=(d - r, d - 1), check_finite=False)
    rank = int(np.count_nonzero(values > values[-1] * d * np.finfo(float).eps))
    return completed(_signed(vectors.T[::-1][:rank]), r, seed)


def _signed(vt):
    """Largest component of each vector positive: the same signs whatever solver found them."""
    return vt * np.where(vt[np.arange(len(vt)), np.abs(vt).argmax(axis=1)] < 0, -1.0, 1.0)[:, np.newaxis]


def completed(vt, r, seed):
    """vt with orthonormal rows added up to r: directions in which nothing was seen, the same ones for a seed."""
    missing = r - len(vt)
    if missing == 0:
        return vt
    extra = random_normal(seed, 1, missing * vt.shape[1]).reshape(missing, -1)
    for _ in range(2):  # once more for what rounding left
        extra = extra - (extra @ vt.T) @ vt
    return np.vstack([vt, np.linalg.qr(extra.T)[0].T])
