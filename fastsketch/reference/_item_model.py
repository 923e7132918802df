"""EASE (Steck 2019), an item-to-item recommender, exact and from a sketch, with dense item matrices."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def ease(gram: ArrayLike, ridge: ArrayLike) -> Array:
    """Compute the item-to-item weights of the EASE recommender from the Gram matrix of the items.

    With P = (gram + diag(ridge))^-1: -P_ij / P_jj, and 0 on the diagonal.

    Parameters
    ----------
    gram : (items, items) array of float64
        X'X of the users' rows X.
    ridge : float or (items,) array of float64
        One number, or one for every item, above 0.

    Returns
    -------
    (items, items) array of float64
        W: the scores of a user with the row x are x W.

    References
    ----------
    Steck, WWW (2019).

    Examples
    --------
    Who has bread has butter; the lamp is bought by others. No item recommends itself.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> X = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 1], [0, 0, 1]])  # bread, butter, lamp
    >>> w = reference.ease(X.T @ X, 1.0)
    >>> w.round(2).tolist()
    [[0.0, 0.73, 0.14], [0.73, 0.0, 0.14], [0.09, 0.09, 0.0]]
    >>> int(np.argmax(np.array([1, 0, 0]) @ w))  # to one with bread alone
    1
    """
    gram = np.asarray(gram, np.float64)
    p = np.linalg.inv(gram + np.diag(np.broadcast_to(np.asarray(ridge, np.float64), len(gram))))
    weights = -p / np.diag(p)
    np.fill_diagonal(weights, 0.0)
    return weights


def sketched_ease(b: ArrayLike, squares: ArrayLike, *, ridge: float, lost: float = 0.0) -> Array:
    """Compute the item-to-item weights of the EASE recommender from a sketch of the users' rows.

    The squared singular values of B are lowered by the smallest of them, or by `lost` if that is less. A diagonal is
    then added, so that the diagonal of the matrix equals `squares`.

    Parameters
    ----------
    b : (r, items) array of float64
        A sketch B of the users' rows X.
    squares : (items,) array of float64
        The sums of squares of the columns of X.
    ridge : float
        Above 0.
    lost : float, default 0.0
        What the sketch has lost, its Delta.

    Returns
    -------
    (items, items) array of float64
        W: the scores of a user with the row x are x W.

    Examples
    --------
    From a sketch that has lost nothing they are those of all rows; from one of four rows they point the same way.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((200, 12)) < np.where(rng.integers(0, 2, (200, 1)) == np.arange(12) // 6, 0.7, 0.1)
    >>> X, squares = X.astype(float), X.sum(axis=0)
    >>> whole = reference.ease(X.T @ X, 10.0)
    >>> np.allclose(reference.sketched_ease(X, squares, ridge=10.0), whole)
    True
    >>> b, delta = reference.frequent_directions(X, 5)
    >>> sketched = reference.sketched_ease(b, squares, ridge=10.0, lost=delta)
    >>> bool(np.corrcoef(sketched.ravel(), whole.ravel())[0, 1] > 0.8)
    True
    """
    squares = np.asarray(squares, np.float64)
    _, s, vt = np.linalg.svd(np.asarray(b, np.float64), full_matrices=False)
    s, vt = s[s > 1e-12 * s[0]], vt[s > 1e-12 * s[0]]
    s2 = np.maximum(s**2 - min(s[-1] ** 2, lost), 0.0)
    gram = vt.T @ (s2[:, np.newaxis] * vt)
    return ease(gram, np.maximum(squares - np.diag(gram), 0.0) + ridge)
