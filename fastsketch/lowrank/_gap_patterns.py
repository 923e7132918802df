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


class PatternGroup(NamedTuple):
    """Rows with the same number of missing entries, sorted by pattern: which columns are missing.
    They are completed together.
    """

    missing: NDArray[np.intp]  # (p, m) missing columns of each pattern
    observed: NDArray[np.intp]  # (p, d - m) observed columns of each pattern
    rows: NDArray[np.intp]  # (r,) indices of the rows, sorted by pattern
    pattern: NDArray[np.intp]  # (r,) pattern of each row
    counts: Floats  # (p,) number of rows of each pattern


class CompletedRows(NamedTuple):
    """Rows with conditional means in place of missing entries, and the sum of the entries' conditional covariances."""

    rows: Floats  # (n, d)
    uncertainty: Floats  # (d, d) sum over the rows of the conditional covariances of missing entries
    variances: Floats | None  # (n, d) conditional variances, 0 for observed entries; None unless requested


def group_by_pattern(is_missing: NDArray[np.bool_]) -> list[PatternGroup]:
    """Return a list of groups of rows with equal numbers of missing entries, sorted by which columns are missing.
    Complete rows are in no group.

    gaps: mask (n, d) of missing entries.
    """
    return list(iterate_groups(is_missing))


def iterate_groups(is_missing: NDArray[np.bool_]) -> Iterator[PatternGroup]:
    d = is_missing.shape[1]
    packed = np.ascontiguousarray(np.packbits(is_missing, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first_row, pattern_of_row, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(pattern_of_row, kind="stable")
    starts = np.cumsum(counts) - counts
    patterns = is_missing[first_row]
    sizes = patterns.sum(axis=1)
    for m in np.unique(sizes[sizes > 0]).tolist():
        pattern_indices = np.flatnonzero(sizes == m)
        # the largest array of a pattern: the smaller block's inverse, or its product with the other block
        patterns_per_group = max(1, STACK_BYTES // (8 * max(m, 1) * (m if 2 * m <= d else max(m, d - m))))
        for start in range(0, len(pattern_indices), patterns_per_group):
            group_patterns = pattern_indices[start : start + patterns_per_group]
            group_counts = counts[group_patterns]
            pattern = np.repeat(np.arange(len(group_patterns)), group_counts)
            position_in_pattern = np.arange(len(pattern)) - np.repeat(
                np.cumsum(group_counts) - group_counts, group_counts
            )
            rows = order[starts[group_patterns][pattern] + position_in_pattern]
            columns = [
                np.nonzero(mask)[1].reshape(len(group_patterns), -1)
                for mask in (patterns[group_patterns], ~patterns[group_patterns])
            ]
            yield PatternGroup(columns[0], columns[1], rows, pattern, group_counts.astype(np.float64))


def complete_rows(
    rows: Floats, groups: list[PatternGroup], correlation: Floats, precision: Floats, *, variances: bool = False
) -> CompletedRows:
    """Return standardised rows with conditional means for missing entries under a Gaussian, as CompletedRows.
    It also has the sum of the conditional covariances of the filled entries.

    Let M be the missing and O the observed columns of a row, S the correlations and K their inverse. If at most half of
    the columns are missing, the covariance is K_MM^-1 and the mean -K_MM^-1 K_MO x_O. Otherwise they are
    S_MM - S_MO S_OO^-1 S_OM and S_MO S_OO^-1 x_O, which need the smaller inverse.

    Parameters
    ----------
    rows : (n, d) array of float64
        Standardised, 0 for missing entries.
    groups : list of Group
        From ``group_by_pattern`` the missing entries of these rows.
    correlation, precision : (d, d) arrays of float64
        A positive definite matrix and its inverse.
    variances : bool, default False
        Whether to return the conditional variance of each missing entry.
    """
    n, d = rows.shape
    completed, uncertainty = rows.copy(), np.zeros(d * d)
    conditional_variances = np.zeros((n, d)) if variances else None
    precision_products = rows @ precision
    for missing, observed, members, pattern, counts in groups:
        missing_entries = members[:, np.newaxis], missing[pattern]
        if 2 * missing.shape[1] <= d:
            covariances = invert_stack(submatrices(precision, missing, missing))
            means = -multiply_by_pattern(covariances, precision_products[missing_entries], pattern)
        else:
            cross_covariances = submatrices(correlation, missing, observed)
            coefficients = cross_covariances @ invert_stack(submatrices(correlation, observed, observed))
            covariances = submatrices(correlation, missing, missing) - coefficients @ cross_covariances.transpose(
                0, 2, 1
            )
            means = multiply_by_pattern(coefficients, rows[members[:, np.newaxis], observed[pattern]], pattern)
        completed[missing_entries] = means
        flat_positions = missing[:, :, np.newaxis] * d + missing[:, np.newaxis, :]
        uncertainty += np.bincount(
            flat_positions.ravel(), (covariances * counts[:, np.newaxis, np.newaxis]).ravel(), d * d
        )
        if conditional_variances is not None:
            conditional_variances[missing_entries] = np.maximum(np.einsum("pii->pi", covariances), 0.0)[pattern]
    return CompletedRows(completed, uncertainty.reshape(d, d), conditional_variances)


def invert_stack(matrices: Floats) -> Floats:
    inverses: Any = np.linalg.inv(matrices)
    return inverses


def submatrices(matrix: Floats, first: Any, second: Any) -> Floats:
    """Return a stack (p, a, b) of submatrices, one for each pattern of row indices (p, a) and column indices (p, b).

    Row indices are (p, a), column indices (p, b), and the result is (p, a, b).
    """
    return matrix[first[:, :, np.newaxis], second[:, np.newaxis, :]]


def multiply_by_pattern(matrices: Floats, vectors: Floats, pattern: NDArray[np.intp]) -> Floats:
    """Multiply each vector (r, b) by the matrix of its pattern. Return the products (r, a).

    Matrices are (p, a, b), vectors (r, b), and the result is (r, a).
    """
    if len(matrices) == len(vectors):
        return (matrices @ vectors[:, :, np.newaxis])[:, :, 0]
    if len(matrices) == 1:
        return vectors @ matrices[0].T
    return np.einsum("rab,rb->ra", matrices[pattern], vectors)
