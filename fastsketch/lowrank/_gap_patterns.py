"""Conditional means and covariances of a Gaussian for rows with gaps: the expectation step of EM.

Rows are in standard units. Rows with the same pattern of gaps share one inverse, and patterns with the same number of
gaps are inverted together, as one stack of small matrices.
"""

# pyright: basic

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Bytes of a stack of small matrices: it stays in the cache of a processor.
STACK_BYTES = 1 << 21


class Group(NamedTuple):
    """Rows whose patterns have the same number of gaps."""

    missing: NDArray[np.intp]  # (p, m) columns of the gaps of each pattern
    observed: NDArray[np.intp]  # (p, d - m)
    rows: NDArray[np.intp]  # (r,) the rows, those of one pattern next to each other
    pattern: NDArray[np.intp]  # (r,) the pattern of each
    counts: Floats  # (p,) rows of each pattern


class Completed(NamedTuple):
    """Rows with conditional means in their gaps."""

    rows: Floats  # (n, d)
    uncertainty: Floats  # (d, d) sum over the rows of the conditional covariances of their gaps
    variances: Floats | None  # (n, d) conditional variances of the gaps, 0 elsewhere, where they were requested


def groups_of(gaps: NDArray[np.bool_]) -> list[Group]:
    """Group the rows of a mask (n, d), True for a gap, by their patterns; rows without gaps are in no group."""
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
    """Fill the gaps of rows by their conditional means under a Gaussian of mean 0.

    With the precision K the conditional covariance of the gaps M is K_MM^-1, and their mean -K_MM^-1 K_MO x_O: a small
    inverse where few entries are missing. Where more than half are, it is the inverse of the observed block that is
    small: the covariance is S_MM - S_MO S_OO^-1 S_OM, and the mean S_MO S_OO^-1 x_O.

    Parameters
    ----------
    rows : (n, d) array of float64
        In standard units, 0 in the gaps.
    groups : list of Group
        Of these rows, from ``groups_of``.
    correlation, precision : (d, d) arrays of float64
        A positive definite matrix and its inverse.
    variances : bool, default False
        Whether to return the conditional variance of every gap.
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
    """Return the blocks of a matrix at rows (p, a) and columns (p, b), (p, a, b)."""
    return matrix[first[:, :, np.newaxis], second[:, np.newaxis, :]]


def _times(matrices: Floats, vectors: Floats, pattern: NDArray[np.intp]) -> Floats:
    """Multiply each vector (r, b) by the matrix of its pattern, (p, a, b): (r, a)."""
    if len(matrices) == len(vectors):
        return (matrices @ vectors[:, :, np.newaxis])[:, :, 0]
    if len(matrices) == 1:
        return vectors @ matrices[0].T
    return np.einsum("rab,rb->ra", matrices[pattern], vectors)
