"""Eigenvalues of A'A from a second pass over the rows: Nystrom's approximation, with upper bounds.

A (n x d) are the rows, B their sketch with B'B <= A'A <= B'B + delta I. Formed as the formulas read, with A'A at hand.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def second_pass(a: Array, b: Array, *, delta: float) -> tuple[Array, Array, Array, Array]:
    """Estimate eigenvalues of A'A, with bounds, by a second pass over rows A of which B is a sketch.

    Parameters
    ----------
    a : (n, d) array of float64
        The rows.
    b : (l, d) array of float64
        Their sketch B, with B'B <= A'A <= B'B + delta I.
    delta : float
        Its certificate.

    Returns
    -------
    squares : (r,) array of float64
        Eigenvalues of Y (V Y)^-1 Y' <= A'A, Y = A'A V', V the r directions of B; descending.
    directions : (r, d) array of float64
        Their directions.
    estimates : (r,) array of float64
        Estimates of the leading eigenvalues of A'A.
    upper : (r,) array of float64
        The i-th largest eigenvalue of A'A lies between squares[i] and upper[i].

    References
    ----------
    Tropp, Yurtsever, Udell, Cevher, NeurIPS (2017), Algorithm 3.

    Examples
    --------
    After a second pass the leading eigenvalue has six correct digits. The sketch of five rows alone gives 5% less.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> a = np.random.default_rng(0).standard_normal((300, 12)) * 0.7 ** np.arange(12)
    >>> true = np.linalg.eigvalsh(a.T @ a)[::-1][:5]
    >>> b, delta = reference.frequent_directions(a, 6)
    >>> low, _, estimates, high = reference.second_pass(a, b, delta=delta)
    >>> bool((low <= true).all() and (true <= high).all())
    True
    >>> bool(abs(estimates[0] / true[0] - 1) < 1e-6), bool(np.sum(b[0] ** 2) / true[0] < 0.95)
    (True, True)
    """
    d = a.shape[1]
    _, s, v = np.linalg.svd(b, full_matrices=False)
    v = v[s > 1e-7 * s[0]]  # V, r orthonormal directions
    r = len(v)
    c = a.T @ a
    y = c @ v.T  # the pass
    t = v @ y
    values, vectors = np.linalg.eigh(y @ np.linalg.solve(t, y.T))  # Nystrom
    squares, directions = values[::-1][:r], vectors.T[::-1][:r]
    basis = np.linalg.qr(np.hstack([v.T, y]), mode="complete")[0].T  # V first
    rest = basis[r:]
    t, f = basis[:r] @ c @ basis[:r].T, rest @ c @ basis[:r].T  # A'A = [[T, F'], [F, G]]
    g = min(delta, np.trace(c) - np.trace(t))  # 0 <= G <= g I
    upper = np.linalg.eigvalsh(np.block([[t, f.T], [f, g * np.eye(d - r)]]))[::-1][:r]
    # the least G that there can be, and what the last direction holds, where F points
    where = np.linalg.svd(f, full_matrices=False)[0]
    least = f @ np.linalg.solve(t, f.T) + min(squares[-1], g) * where @ where.T
    estimates = np.linalg.eigvalsh(np.block([[t, f.T], [f, least]]))[::-1][:r]
    return squares, directions, np.asarray(estimates, float), np.asarray(upper, float)
