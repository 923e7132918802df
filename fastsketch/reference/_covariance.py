"""Reference covariance estimators in dense NumPy: completion from leading eigenvalues, shrinkage, and MRCD."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def pooled_covariance(values: Matrix, vectors: Matrix, *, trace: float) -> Matrix:
    """Return a covariance matrix with given leading eigenvalues and a given trace.

    All other eigenvalues are equal. Given eigenvalues that are smaller are replaced by that value.

    Parameters
    ----------
    values : (k,) array of float64
        Leading eigenvalues, descending.
    vectors : (k, d) array of float64
        Their directions, orthonormal rows.
    trace : float
        Of the whole matrix, at least the sum of the values.

    Returns
    -------
    (d, d) array of float64
        Symmetric, with this trace.

    Examples
    --------
    One direction is known to have the variance 4, and all three together have 6: each of the others gets 1.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> reference.pooled_covariance(np.array([4.0]), np.array([[1.0, 0.0, 0.0]]), trace=6.0).round(9).tolist()
    [[4.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
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
    """Compute the Ledoit-Wolf shrinkage intensity for the covariance of rows.

    Parameters
    ----------
    rows : (n, d) array of float64
        All rows at once.
    center : bool, default True
        Whether their mean is subtracted.

    Returns
    -------
    float
        In [0, 1]: 0 leaves the empirical covariance, 1 leaves a multiple of the identity.

    References
    ----------
    Ledoit, Wolf, Journal of Multivariate Analysis 88 (2004), section 3.3.

    Examples
    --------
    Twenty rows of twenty features say little of their covariance, two thousand say much; what is the same in all
    directions is a multiple of the identity.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> noise = np.random.default_rng(0).standard_normal((2000, 20))
    >>> scales = np.linspace(5, 0.1, 20)
    >>> shares = [reference.ledoit_wolf_shrinkage(rows) for rows in (noise[:20] * scales, noise * scales, noise)]
    >>> bool(shares[0] > 0.4), bool(shares[1] < 0.05), bool(shares[2] > 0.9)
    (True, True, True)
    """
    rows = np.asarray(rows, np.float64)
    n, d = rows.shape
    moved = rows - rows.mean(axis=0) if center else rows
    s = moved.T @ moved / n
    mean = np.trace(s) / d
    d2 = np.sum((s - mean * np.eye(d)) ** 2) / d
    b2 = sum(np.sum((np.outer(x, x) - s) ** 2) for x in moved) / d / n**2
    return float(min(b2, d2) / d2) if b2 > 0 and d > 1 else 0.0


def oracle_approximating_shrinkage(covariance: Matrix, n: float) -> float:
    """Compute the oracle approximating shrinkage (OAS) intensity for the covariance of n normal rows.

    Parameters
    ----------
    covariance : (d, d) array of float64
        Empirical covariance, or correlation matrix.
    n : float
        Rows that it is of; effective ones, if they have weights.

    Returns
    -------
    float
        In [0, 1].

    References
    ----------
    Chen, Wiesel, Eldar, Hero, IEEE Trans. Signal Processing 58 (2010), equation 23, without its terms in 2 / d, as in
    scikit-learn's OAS.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import reference
    >>> reference.oracle_approximating_shrinkage(np.eye(3), 10)
    1.0
    >>> round(reference.oracle_approximating_shrinkage(np.diag([3.0, 1.0, 0.1]), 1000), 4)
    0.0061
    """
    d = len(covariance)
    squares, trace = np.sum(covariance**2), np.trace(covariance) ** 2
    below = (n + 1) * (squares - trace / d)
    return float(min(1.0, (squares + trace) / below)) if below > 0 else float(d > 1)


def mrcd_distances(rows: Matrix, new: Matrix, *, support_fraction: float = 0.75, steps: int = 2) -> Matrix:
    """Compute squared Mahalanobis distances of new rows by the minimum regularised covariance determinant (MRCD).

    Parameters
    ----------
    rows : (n, d) array of float64
        That are learned from; no column is constant.
    new : (m, d) array of float64
    support_fraction : float, default 0.75
        Share of the rows that are kept, those that lie nearest.
    steps : int, default 2
        Concentration steps from the distances by all rows.

    Returns
    -------
    (m,) array of float64

    Notes
    -----
    The target of shrinkage is the diagonal of the covariance of the rows kept, its intensity that of
    ``oracle_approximating_shrinkage`` for their correlation matrix. The paper takes the least intensity for which the
    condition number is at most 50.

    References
    ----------
    Boudt, Rousseeuw, Vanduffel, Verdonck, Statistics and Computing 30 (2020); Croux, Haesbroeck, J. Multivariate
    Analysis 71 (1999).

    Examples
    --------
    A tenth of the rows are shifted by 8: the distance by all rows hardly shows them.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rows = np.random.default_rng(0).standard_normal((400, 3))
    >>> rows[:40] += 8
    >>> covariance = np.cov(rows.T, bias=True)
    >>> shift = np.full(3, 8) - rows.mean(axis=0)
    >>> float((shift @ np.linalg.inv(covariance) @ shift).round()), bool(
    ...     reference.mrcd_distances(rows, np.full((1, 3), 8.0))[0] > 100
    ... )
    (8.0, True)
    """
    from scipy.stats import chi2

    def fitted(some: Matrix) -> tuple[Matrix, Matrix]:
        covariance = np.asarray(np.cov(some.T, bias=True), np.float64)
        scale = np.sqrt(np.diag(covariance))
        share = oracle_approximating_shrinkage(covariance / np.outer(scale, scale), len(some))
        inverse = np.linalg.inv((1 - share) * covariance + share * np.diag(scale**2))
        return np.asarray(some.mean(axis=0), np.float64), np.asarray(inverse, np.float64)

    def squared(some: Matrix, mean: Matrix, inverse: Matrix) -> Matrix:
        return np.asarray((some - mean) @ inverse * (some - mean), np.float64).sum(axis=1)

    n, d = rows.shape
    n_kept = int(np.ceil(support_fraction * n))
    mean, inverse = fitted(rows)
    for _ in range(steps):
        kept = np.argsort(squared(rows, mean, inverse), kind="stable")[:n_kept]
        mean, inverse = fitted(rows[kept])
    share = n_kept / n
    law = cast("Any", chi2)
    inside = float(law.cdf(law.ppf(share, d), d + 2)) if share < 1 else 1.0
    return squared(new, mean, inverse) * inside / share
