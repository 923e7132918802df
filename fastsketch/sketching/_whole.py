"""The sketch of rows that are all there at once and fewer than their columns: from the n x n matrix of products."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch import _threads
from fastsketch._validation import is_sparse
from fastsketch.sketching._engines import DenseEngine, EngineSetting, Known, put_known
from fastsketch.sketching._leading import leading

Matrix = NDArray[np.float64]


def engine_of_all(rows: Any, setting: EngineSetting, *, dtype: np.dtype[Any]) -> DenseEngine:
    """An engine that has seen checked, finite rows (n, d) at once: one shrink of their exact singular values.

    Memory n^2 beside the rows (and, unless they are sparse, d l); the leading l - 1 singular values and directions are
    exact, and the certificate is the square of the next.
    """
    n, d = rows.shape
    size = setting.sketch_size
    mean = np.zeros(d)
    if setting.center and n:
        mean = np.asarray(rows.mean(axis=0, dtype=np.float64)).ravel()
    gram = _products(rows, mean)
    squared_norm = float(np.trace(gram))
    with _threads.blas_for(n):
        values, u = leading(gram, min(n, size))
    values = np.maximum(values, 0.0)
    kept = min(size - 1, int(np.count_nonzero(values > values[0] * np.finfo(float).eps))) if n else 0
    delta = float(values[size - 1]) if len(values) >= size else 0.0
    values, u = values[:kept], u[:kept]
    vt = _times(u, rows, mean) / np.sqrt(values)[:, np.newaxis]
    engine = DenseEngine(setting, d, dtype=dtype)
    state = engine.state
    none = np.zeros((kept, kept))
    put_known(engine, Known(values, vt, np.diag(values), none, max(0.0, squared_norm - float(values.sum()))))
    state.shrinkage, state.squared_norm = delta, squared_norm
    state.rounding = (4.0 * np.finfo(np.float64).eps * squared_norm) ** 2
    state.weight = float(n)
    state.n_rows = n
    state.settled_weight = float(n) if setting.center else 0.0
    engine.mean[:] = mean if setting.center else engine.mean
    return engine


def _products(rows: Any, mean: Matrix) -> Matrix:
    """(A - 1 mu')(A - 1 mu')', (n, n) float64."""
    if is_sparse(rows):
        x = rows.astype(np.float64)
        along = x @ mean
        return (x @ x.T).toarray() - along - along[:, np.newaxis] + mean @ mean
    centred = rows.astype(np.float64) - mean
    return centred @ centred.T


def _times(u: Matrix, rows: Any, mean: Matrix) -> Matrix:
    """U (A - 1 mu') for U (k, n)."""
    if is_sparse(rows):
        return (rows.T.astype(np.float64) @ u.T).T - np.outer(u.sum(axis=1), mean)
    return u @ rows.astype(np.float64) - np.outer(u.sum(axis=1), mean)
