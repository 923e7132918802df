"""Covariance matrices from leading eigenvalues and a trace, and how far they are shrunk, in dense NumPy."""

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def pooled_covariance(values: Matrix, vectors: Matrix, *, trace: float) -> Matrix:
    """The (d, d) matrix with these leading eigenvalues (k,) descending and directions (k, d), and this trace.

    All other eigenvalues are equal; kept ones that lie below them are made equal to them.
    """
    k, d = vectors.shape
    complete, _ = np.linalg.qr(np.vstack([vectors, np.eye(d)]).T)
    basis = np.vstack([vectors, complete.T[k:d]])  # the first k columns span the given directions
    kept = k

    def mean_of_the_rest() -> float:
        return float(trace - values[:kept].sum()) / (d - kept) if kept < d else 0.0

    while kept and values[kept - 1] < mean_of_the_rest():
        kept -= 1
    rest = mean_of_the_rest()
    every = np.concatenate([values[:kept], np.full(d - kept, rest)])
    return (basis.T * every) @ basis


def ledoit_wolf_shrinkage(rows: Matrix, *, center: bool = True) -> float:
    """Share of the scaled identity in Ledoit and Wolf's estimator (2004, section 3.3), from all rows (n, d) at once."""
    rows = np.asarray(rows, np.float64)
    n, d = rows.shape
    moved = rows - rows.mean(axis=0) if center else rows
    s = moved.T @ moved / n
    mean = np.trace(s) / d
    d2 = np.sum((s - mean * np.eye(d)) ** 2) / d
    b2 = sum(np.sum((np.outer(x, x) - s) ** 2) for x in moved) / d / n**2
    return float(min(b2, d2) / d2) if b2 > 0 and d > 1 else 0.0
