"""Expectation maximisation for a Gaussian from rows with missing entries, row by row, in plain NumPy."""

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def expectation_step(rows: Matrix, *, mean: Matrix, covariance: Matrix) -> tuple[Matrix, Matrix]:
    """Return rows whose missing entries are conditional means under a Gaussian, and the sum of their covariances.

    For a row with observed columns O and missing columns M the conditional mean is mu_M + S_MO S_OO^-1 (x_O - mu_O),
    the conditional covariance S_MM - S_MO S_OO^-1 S_OM.

    Source: Dempster, Laird, Rubin 1977, section 4.1.3; Little and Rubin, *Statistical Analysis with Missing Data*,
    chapter 11.

    Parameters
    ----------
    rows : (n, d) array of float64
        NaN where an entry is missing.
    mean : (d,) array of float64
    covariance : (d, d) array of float64
        Positive definite.

    Returns
    -------
    completed : (n, d) array of float64
        The rows with conditional means instead of NaN.
    uncertainty : (d, d) array of float64
        Sum over the rows of the conditional covariances of their missing entries, 0 elsewhere.

    Examples
    --------
    Two columns of variance 1 and correlation 0.8: one deviation up in the first column means 0.8 up in the second, with
    the variance 1 - 0.8^2 = 0.36.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rows, covariance = np.array([[1.0, np.nan]]), np.array([[1.0, 0.8], [0.8, 1.0]])
    >>> completed, uncertainty = reference.expectation_step(rows, mean=np.zeros(2), covariance=covariance)
    >>> completed.round(9).tolist(), uncertainty.round(9).tolist()
    ([[1.0, 0.8]], [[0.0, 0.0], [0.0, 0.36]])
    """
    completed, uncertainty = rows.copy(), np.zeros_like(covariance)
    for row in completed:
        missing = np.isnan(row)
        observed = ~missing
        within = covariance[np.ix_(observed, observed)]
        across = covariance[np.ix_(missing, observed)]
        coefficients = np.linalg.solve(within, across.T).T
        row[missing] = mean[missing] + coefficients @ (row[observed] - mean[observed])
        left = covariance[np.ix_(missing, missing)] - coefficients @ across.T
        uncertainty[np.ix_(missing, missing)] += left
    return completed, uncertainty


def maximization_step(completed: Matrix, uncertainty: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return the mean, the standard deviations and the shrunk correlations of completed rows.

    The shrinkage is the oracle approximating one: Chen, Wiesel, Eldar, Hero 2010, equation 23, without 2 / d as in
    scikit-learn.

    Parameters
    ----------
    completed : (n, d) array of float64
    uncertainty : (d, d) array of float64
        Both from ``expectation_step``.

    Returns
    -------
    mean : (d,) array of float64
    scale : (d,) array of float64
        Standard deviations.
    correlation : (d, d) array of float64
        (1 - a) R + a I, with the correlations R and the shrinkage a.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rows = np.array([[0.0, 0.0], [2.0, 2.0]])
    >>> mean, scale, correlation = reference.maximization_step(rows, np.zeros((2, 2)))
    >>> mean.tolist(), scale.tolist(), correlation.round(9).tolist()
    ([1.0, 1.0], [1.0, 1.0], [[1.0, 0.0], [0.0, 1.0]])
    """
    n, d = completed.shape
    if not n or not d:
        raise ValueError(f"completed must have rows and columns, got shape {completed.shape}")
    mean = completed.mean(axis=0)
    centred = completed - mean
    covariance = (centred.T @ centred + uncertainty) / n
    scale = np.sqrt(covariance.diagonal())
    correlation = covariance / scale / scale[:, np.newaxis]
    squares = float(np.sum(correlation**2)) / d**2
    below = (n + 1) * (squares - 1 / d)
    share = min((squares + 1) / below, 1.0) if below > 0 else 1.0
    return mean, scale, (1 - share) * correlation + share * np.eye(d)
