"""Linear operators of B'B + alpha I and its inverse from singular values and vectors of B."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

Doubles = NDArray[np.float64]


def gram_operator(s: Doubles, vt: Doubles, *, alpha: float) -> "LinearOperator":
    """Return the LinearOperator of V diag(s^2) V' + alpha I; cost 4 d l a vector."""

    def apply(x: NDArray[Any]) -> NDArray[Any]:
        # V diag(s^2) V' x + alpha x
        return vt.T @ (_column(s * s, x) * (vt @ x)) + alpha * x

    return _symmetric(apply, vt.shape[1])


def solve_gram(s: Doubles, vt: Doubles, *, alpha: float, v: NDArray[Any]) -> NDArray[Any]:
    """Return (V diag(s^2) V' + alpha I)^-1 v by Woodbury with orthonormal V; alpha = 0 only if V is square."""
    squares = s * s
    y = vt @ v
    if alpha > 0:
        # (v - V diag(s^2 / (s^2 + alpha)) V' v) / alpha
        return (v - vt.T @ (_column(squares / (squares + alpha), v) * y)) / alpha
    return vt.T @ (y / _column(squares, v))


def inverse_operator(s: Doubles, vt: Doubles, *, alpha: float) -> "LinearOperator":
    """Return the LinearOperator of the inverse, as the preconditioner M of scipy.sparse.linalg.cg, say."""

    def apply(x: NDArray[Any]) -> NDArray[Any]:
        return solve_gram(s, vt, alpha=alpha, v=x)

    return _symmetric(apply, vt.shape[1])


def _symmetric(apply: Any, d: int) -> "LinearOperator":
    from scipy.sparse.linalg import LinearOperator

    return LinearOperator((d, d), matvec=apply, rmatvec=apply, matmat=apply, rmatmat=apply, dtype=np.dtype(np.float64))


def _column(values: Doubles, x: NDArray[Any]) -> Doubles:
    return values if x.ndim == 1 else values[:, np.newaxis]
