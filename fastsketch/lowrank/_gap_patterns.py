"""Conditional means and covariances of the missing entries of rows under a Gaussian: the E step of EM.

Rows are standardised. Rows with the same pattern of missing entries share one inverse matrix. Patterns with the same
number of missing entries are inverted together, as a stack of small matrices.
"""

# pyright: basic

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Bytes of a stack of small matrices, which should stay in the cache.
STACK_BYTES = 1 << 21


class Group(NamedTuple):
    """Rows with the same number m of missing entries, sorted by which columns are missing (p patterns)."""

    missing: NDArray[np.intp]  # (p, m) missing columns of each pattern
    observed: NDArray[np.intp]  # (p, d - m) observed columns of each pattern
    rows: NDArray[np.intp]  # (r,) indices of the rows, sorted by pattern
    pattern: NDArray[np.intp]  # (r,) pattern of each row
    counts: Floats  # (p,) number of rows of each pattern


class Completed(NamedTuple):
    """Rows with conditional means in place of missing entries, and the conditional covariances of these entries."""

    rows: Floats  # (n, d)
    uncertainty: Floats  # (d, d) sum over the rows of the conditional covariances of missing entries
    variances: Floats | None  # (n, d) conditional variances, 0 for observed entries; None unless requested


def groups_of(gaps: NDArray[np.bool_]) -> list[Group]:
    """Group rows by the number and the columns of their missing entries. Complete rows are in no group.

    gaps: mask (n, d) of missing entries.
    """
    return list(_groups_of(gaps))


def _groups_of(gaps: NDArray[np.bool_]) -> Iterator[Group]:
    d = gaps.shape[1]
    packed = np.ascontiguousarray(np.packbits(gaps, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, which, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(which, kind="stable")
    starts = np.cumsum(counts) - counts
    patterns = gaps[first]
    sizes = patterns.sum(axis=1)
    for m in np.unique(sizes[sizes > 0]).tolist():
        same = np.flatnonzero(sizes == m)
        # the largest array of a pattern: the smaller block's inverse, or its product with the other block
        step = max(1, STACK_BYTES // (8 * max(m, 1) * (m if 2 * m <= d else max(m, d - m))))
        for start in range(0, len(same), step):
            some = same[start : start + step]
            number = counts[some]
            pattern = np.repeat(np.arange(len(some)), number)
            within = np.arange(len(pattern)) - np.repeat(np.cumsum(number) - number, number)
            rows = order[starts[some][pattern] + within]
            columns = [np.nonzero(each)[1].reshape(len(some), -1) for each in (patterns[some], ~patterns[some])]
            yield Group(columns[0], columns[1], rows, pattern, number.astype(np.float64))


def complete(
    rows: Floats, groups: list[Group], correlation: Floats, precision: Floats, *, variances: bool = False
) -> Completed:
    """Fill missing entries of standardised rows with conditional means under a Gaussian, and compute their covariances.

    Let M be the missing and O the observed columns of a row, S the correlations and K their inverse. If at most half of
    the columns are missing, the covariance is K_MM^-1 and the mean -K_MM^-1 K_MO x_O. Otherwise they are
    S_MM - S_MO S_OO^-1 S_OM and S_MO S_OO^-1 x_O, which need the smaller inverse.

    Parameters
    ----------
    rows : (n, d) array of float64
        Standardised, 0 for missing entries.
    groups : list of Group
        From ``groups_of`` the missing entries of these rows.
    correlation, precision : (d, d) arrays of float64
        A positive definite matrix and its inverse.
    variances : bool, default False
        Whether to return the conditional variance of each missing entry.
    """
    n, d = rows.shape
    out, uncertainty = rows.copy(), np.zeros(d * d)
    spread = np.zeros((n, d)) if variances else None
    weighted = rows @ precision
    for missing, observed, members, pattern, counts in groups:
        at = members[:, np.newaxis], missing[pattern]
        if 2 * missing.shape[1] <= d:
            left = _inverses(_block(precision, missing, missing))
            means = -_times(left, weighted[at], pattern)
        else:
            across = _block(correlation, missing, observed)
            coefficients = across @ _inverses(_block(correlation, observed, observed))
            left = _block(correlation, missing, missing) - coefficients @ across.transpose(0, 2, 1)
            means = _times(coefficients, rows[members[:, np.newaxis], observed[pattern]], pattern)
        out[at] = means
        places = missing[:, :, np.newaxis] * d + missing[:, np.newaxis, :]
        uncertainty += np.bincount(places.ravel(), (left * counts[:, np.newaxis, np.newaxis]).ravel(), d * d)
        if spread is not None:
            spread[at] = np.maximum(np.einsum("pii->pi", left), 0.0)[pattern]
    return Completed(out, uncertainty.reshape(d, d), spread)


def _inverses(matrices: Floats) -> Floats:
    out: Any = np.linalg.inv(matrices)
    return out


def _block(matrix: Floats, first: Any, second: Any) -> Floats:
    """Return the submatrix of each pattern of row and column indices, stacked.

    Row indices are (p, a), column indices (p, b), and the result is (p, a, b).
    """
    return matrix[first[:, :, np.newaxis], second[:, np.newaxis, :]]


def _times(matrices: Floats, vectors: Floats, pattern: NDArray[np.intp]) -> Floats:
    """Multiply each vector by the matrix of its pattern of missing entries.

    Matrices are (p, a, b), vectors (r, b), and the result is (r, a).
    """
    if len(matrices) == len(vectors):
        return (matrices @ vectors[:, :, np.newaxis])[:, :, 0]
    if len(matrices) == 1:
        return vectors @ matrices[0].T
    return np.einsum("rab,rb->ra", matrices[pattern], vectors)
