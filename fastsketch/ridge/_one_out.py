"""Ridge regressions of all rows but one, for each of some hundred rows, at every ridge by one decomposition."""

from typing import Any

import numpy as np

from fastsketch._core.validation import is_sparse
from fastsketch.ridge._gram_model import Matrix
from fastsketch.ridge._moments import Moments
from fastsketch.ridge._read_out import TINY, Rows, Scorer

# Of an eigenvalue to the largest, and of what is left of a row's own say: what is smaller is rounding.
ROUNDING = 1e-12


class OneOut:
    """Predictions of every row (n, d) by ridge regression of all others.

    X are weighted, centred rows, D a penalty, U the eigenvectors of X D^-1 X' that have no part in the mean, S their
    eigenvalues. At ridge r the residual of row i is what is left of its target, (U r / (S + r) U'y)_i, over what is
    left of its own say, (U r / (S + r) U')_ii.
    """

    def __init__(self, rows: Rows, moments: Moments, penalty: Matrix, *, center: bool) -> None:
        root = np.sqrt(rows.weight)[:, np.newaxis]
        free = np.linalg.qr(root, mode="complete")[0][:, 1:] if center else np.eye(len(root))
        kernel = root * _kernel(rows.x, moments.mean, penalty) * root.T
        values, vectors = np.linalg.eigh(free.T @ kernel @ free)
        self._values: Matrix = np.maximum(values, 0.0)
        self._vectors: Matrix = free @ vectors
        self._y, self._root = rows.y, root
        self._turned: Matrix = self._vectors.T @ (root * (rows.y - moments.target_mean))

    def predict(self, ridge: float) -> Matrix:
        """Predict the targets (n, c) of each row by the others."""
        if ridge > 0:
            by = 1.0 / (self._values / ridge + 1.0)
        else:  # least squares
            by = (self._values <= ROUNDING * self._values.max(initial=0.0)).astype(np.float64)
        left = self._vectors @ (by[:, np.newaxis] * self._turned)
        own = self._vectors**2 @ by
        off = left / (np.maximum(own, TINY)[:, np.newaxis] * self._root)
        if not ridge > 0:
            off[own <= ROUNDING] = np.inf  # of a row that no other has anything to say of
        return self._y - off

    def residuals(self, ridges: Matrix, scorer: Scorer, rows: Rows) -> Matrix:
        """Compute what predictions of each row (n, c) by the others are off, at the ridge that is best for the others.

        A ridge that a row has chosen itself flatters it: of ten rows intervals would hold a tenth less than they say.
        """
        if len(ridges) == 1:
            return rows.y - self.predict(float(ridges[0]))
        predicted = np.stack([self.predict(float(ridge)) for ridge in ridges])
        errors = np.stack([scorer.errors(of_ridge, rows) for of_ridge in predicted])
        best = (errors.sum(axis=1, keepdims=True) - errors).argmin(axis=0)
        return rows.y - predicted[best, np.arange(len(rows.y))]


def _kernel(x: Any, mean: Matrix, penalty: Matrix) -> Matrix:
    """Compute (X - mean) D^-1 (X - mean)' (n, n) of rows, array or CSR."""
    if not is_sparse(x):
        scaled: Matrix = (x - mean) / np.sqrt(penalty)
        return scaled @ scaled.T
    level: Matrix = x @ (mean / penalty)
    products: Matrix = (x / penalty @ x.T).toarray()
    return products - level - level[:, np.newaxis] + mean @ (mean / penalty)
