"""Linear operators of B'B + alpha I and its inverse from singular values and vectors of B."""

import numpy as np


def gram_operator(s, vt, alpha, dtype):
    """LinearOperator of V diag(s^2) V' + alpha I; cost 4 d l a vector."""
    from scipy.sparse.linalg import LinearOperator

    d = vt.shape[1]

    def apply(x):
        # V diag(s^2) V' x + alpha x
        return vt.T @ (_column(s * s, x) * (vt @ x)) + alpha * x

    return LinearOperator((d, d), matvec=apply, rmatvec=apply, matmat=apply, rmatmat=apply, dtype=dtype)


def solve_gram(s, vt, alpha, x):
    """(V diag(s^2) V' + alpha I)^-1 x by Woodbury with orthonormal V; alpha = 0 only if V is square."""
    squares = s * s
    y = vt @ x
    if alpha > 0:
        # (x - V diag(s^2 / (s^2 + alpha)) V' x) / alpha
        return (x - vt.T @ (_column(squares / (squares + alpha), x) * y)) / alpha
    return vt.T @ (y / _column(squares, x))


def inverse_operator(s, vt, alpha, dtype):
    """LinearOperator of the inverse, for instance as the preconditioner M of scipy.sparse.linalg.cg."""
    from scipy.sparse.linalg import LinearOperator

    d = vt.shape[1]

    def apply(x):
        return solve_gram(s, vt, alpha, x)

    return LinearOperator((d, d), matvec=apply, rmatvec=apply, matmat=apply, rmatmat=apply, dtype=dtype)


def _column(values, x):
    return values if x.ndim == 1 else values[:, np.newaxis]
