"""EASE (Steck 2019), and EASE from a sketch, with items x items matrices at hand."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def ease(gram: ArrayLike, ridge: ArrayLike) -> Array:
    """Weights (items, items) of P = (gram + diag(ridge))^-1: -P_ij / P_jj, and 0 on the diagonal.

    A user's scores are x W. `gram` is X'X, `ridge` a number or one for every item.
    """
    gram = np.asarray(gram, np.float64)
    p = np.linalg.inv(gram + np.diag(np.broadcast_to(np.asarray(ridge, np.float64), len(gram))))
    weights = -p / np.diag(p)
    np.fill_diagonal(weights, 0.0)
    return weights


def sketched_ease(b: ArrayLike, squares: ArrayLike, *, ridge: float, lost: float = 0.0) -> Array:
    """Weights (items, items) from a sketch B (r, items) of X.

    The squared singular values of B are lowered by the smallest of them, or by what the sketch has lost if that is
    less; what is then missing of `squares` (items,), the sums of squares of the columns of X, is put on the diagonal.
    """
    squares = np.asarray(squares, np.float64)
    _, s, vt = np.linalg.svd(np.asarray(b, np.float64), full_matrices=False)
    s, vt = s[s > 1e-12 * s[0]], vt[s > 1e-12 * s[0]]
    s2 = np.maximum(s**2 - min(s[-1] ** 2, lost), 0.0)
    gram = vt.T @ (s2[:, np.newaxis] * vt)
    return ease(gram, np.maximum(squares - np.diag(gram), 0.0) + ridge)
