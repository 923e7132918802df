"""Measures of rows that were learned from, by what all others give: a part of them at a time, nothing learned again.

All rows and matrices here are in standard units (``_column_scales.py``). Of a sum of products the rows of a part are
taken out. Its leading pairs are those of the whole, turned by what was taken out; distances under the shrunk matrix of
the others need no factor of their own, since it differs from one matrix in so many directions as rows were taken out
and directions are kept (Woodbury).

The matrix of the others is shrunk by as much as that of all, not by what they would choose: a row that is the only one
in some column is as far away as that floor is low, and of a hundred rows five more or less may halve it.
"""

# pyright: basic

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch.sketching import FrequentDirections
from fastsketch.sklearn._gaussian import (
    DenseCovariance,
    ShrunkCovariance,
    SpikedCovariance,
    column_distances,
    empirical_covariance,
    leading_pairs,
    least_trace,
    projected,
    sketch_size_of,
)

Floats = NDArray[np.float64]
Pairs = tuple[Floats, Floats]  # (k,) eigenvalues, descending, and (k, d) directions

# Products with the sum of all rows by which leading pairs are turned. Real rows need one; in flat noise, where they
# follow the rows learned from, one leaves 7.3% of alarms where 5% are asked for (2,000 rows of 784 columns), two 5.7%.
TURNS = 2
# Squared length that rows of length 1 need along a direction to add it: less is near to rounding.
BESIDE = 1e-12
# A matrix of less than this reciprocal condition is factored anew for each part: what rows are taken out by cancels.
CONDITION = 1e-10
# A share of shrinkage is at most so much here, where the sum of products is divided by the rest.
MOST_SHARE = 1 - 1e-6
# Rows of a part, as a share of the columns, up to which they cost less to take out than a factor of the others does.
FEW = 2


class RowModel(NamedTuple):
    """Covariance in standard units that rows are measured against."""

    matrix: SpikedCovariance | DenseCovariance  # shrunk
    pairs: Pairs  # leading ones of the covariance before shrinkage

    def measures(self, rows: Any, mean: Floats, counts: list[int]) -> Floats:
        """Return ``all_measures`` of rows, array or CSR (n, d)."""
        distances = self.matrix.distances(rows, mean)
        return all_measures(distances, rows, mean, self.matrix.diagonal(), self.pairs, counts)


class KeptSample(NamedTuple):
    """Rows of a sample, which a sketch has learned from, and the covariance of all rows; in standard units."""

    sketch: FrequentDirections
    matrix: SpikedCovariance | DenseCovariance  # nothing shrunk
    rows: Any  # array or CSR (m, d), as ``Standardization.apply`` returns them
    mean: Floats  # (d,) of all rows, likewise
    weights: Floats  # (m,)

    def some(self, chosen: NDArray[np.intp]) -> Self:
        """Return the sample of some of its rows."""
        return self._replace(rows=self.rows[chosen], weights=self.weights[chosen])


def all_measures(
    distances: Floats, rows: Any, mean: Floats, variances: Floats, pairs: Pairs, counts: list[int]
) -> Floats:
    """Return squared distances, those by the variances of columns, what so many leading directions leave, and those
    along each of the directions of the last count, ``(n_measures(counts), n)``.
    """
    k = max(counts, default=0)
    values, vectors = pairs[0][:k], pairs[1][:k]
    inside, outside = projected(rows, mean, vectors)
    measures = np.zeros((n_measures(counts), len(distances)))
    measures[0], measures[1] = distances, column_distances(rows, mean, variances)
    squares = np.square(inside, dtype=np.float64).T
    for number, count in enumerate(counts, start=2):
        measures[number] = outside + squares[count:].sum(axis=0)
    np.divide(
        squares, values[:, np.newaxis], out=measures[2 + len(counts) :][: len(squares)], where=values[:, np.newaxis] > 0
    )
    return measures


def n_measures(counts: list[int]) -> int:
    """Count the measures of a row."""
    return 2 + len(counts) + max(counts, default=0)


class Downdate(NamedTuple):
    """Rows that are taken out of all: around their own mean, the others have the products A'A - R'R."""

    rows: Floats  # (n, d) around the mean of all
    weights: Floats  # (n,)
    roots: Floats  # R (n + 1, d), or (n, d) where there is no mean
    shift: Floats  # (d,) mean of all less that of the others
    left: float  # weight of the others

    @classmethod
    def by(cls, sample: KeptSample) -> Self:
        """Return what the rows of a sample have added to the products of all rows."""
        rows, weights = sample.rows, sample.weights
        y = (rows if isinstance(rows, np.ndarray) else rows.toarray()) - sample.mean
        left = sample.sketch.total_weight - float(weights.sum())
        if not left > 0:
            raise ValueError("a threshold needs rows whose weights are not nearly those of all: learn from more rows")
        roots = np.sqrt(weights)[:, np.newaxis] * y
        if not sample.sketch.center:
            return cls(y, weights, roots, np.zeros(y.shape[1]), left)
        # the rows that are left sum up to -s around the mean of all, s = Y'w: A'A - Y'WY - s s' / left
        s = weights @ y
        return cls(y, weights, np.vstack([roots, s / np.sqrt(left)]), s / left, left)


def orthonormal_beside(basis: Floats, rows: Floats) -> Floats:
    """Return an orthonormal basis of what rows (n, d) add to that of (k, d), without what is rounding."""
    for _ in range(2):  # the second time for what rounding has left
        whole = np.einsum("ij,ij->i", rows, rows)
        rows = rows - (rows @ basis.T) @ basis
        squares = np.einsum("ij,ij->i", rows, rows)
        added = squares > BESIDE * whole
        rows = rows[added] / np.sqrt(squares[added, np.newaxis])
        values, turn = np.linalg.eigh(rows @ rows.T)
        kept = values > BESIDE * len(rows)
        rows = (turn[:, kept] / np.sqrt(values[kept])).T @ rows
    return rows


def downdated_pairs(gram: Floats, pairs: Pairs, roots: Floats) -> Pairs:
    """Return the leading eigenpairs of gram - R'R (d, d), those of gram given; exact where 3 k >= d.

    By Rayleigh and Ritz on the directions known, what R turns them to, and its products with gram.
    """
    values, basis = pairs
    k = len(basis)
    images = np.zeros((0, len(gram)))
    # N = V R'R; its rows are mixtures of those of R, which are taken where they are fewer
    beside = roots if len(roots) < k else (basis @ roots.T) @ roots
    for _ in range(TURNS):
        added = orthonormal_beside(basis, beside)
        beside = added @ gram
        basis, images = np.vstack([basis, added]), np.vstack([images, beside])
    # Q (G - R'R) Q', where Q G Q' is diagonal in the directions known and has nothing between these and the others
    along = roots @ basis.T
    small = -(along.T @ along)
    small[np.arange(k), np.arange(k)] += values
    small[k:, k:] += images @ basis[k:].T
    values, turn = np.linalg.eigh(small)
    return np.maximum(values[::-1][:k], 0.0), turn.T[::-1][:k] @ basis


class ShiftedFactor:
    """Factor L of A'A + shift I = L L', and distances under what is left of it without some rows."""

    def __init__(self, lower: Floats, products: Floats, shrunk: ShrunkCovariance) -> None:
        """Take L, the diagonal of A'A, and how the covariance is shrunk."""
        self._lower, self._products, self._shrunk = lower, products, shrunk

    @classmethod
    def made(cls, gram: Floats, shrunk: ShrunkCovariance, left: float) -> "ShiftedFactor | None":
        """Return the factor for matrices of weight `left`, shrunk as `shrunk` is; None if taking out would cancel."""
        from scipy.linalg import LinAlgError, cholesky
        from scipy.linalg.lapack import dpocon

        matrix = gram.copy()
        matrix[np.diag_indices_from(matrix)] += left * shrunk.floor / (1 - min(shrunk.share, MOST_SHARE))
        size = float(np.abs(matrix).sum(axis=0).max())
        try:
            lower = cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return None
        return cls(lower, gram.diagonal(), shrunk) if dpocon(lower, size, uplo="L")[0] > CONDITION else None

    def variances(self, out: Downdate, pairs: Pairs) -> Floats:
        """Return the diagonal of the shrunk covariance of the others, (d,)."""
        shrunk, (values, vectors) = self._shrunk, pairs
        left = np.maximum(self._products - np.einsum("ij,ij->j", out.roots, out.roots), 0.0) / out.left
        spread = (values[: shrunk.kept] - shrunk.mean) @ vectors[: shrunk.kept] ** 2
        return (1 - shrunk.share) * left + shrunk.share * spread + shrunk.floor

    def distances(self, out: Downdate, pairs: Pairs) -> Floats:
        """Compute squared distances of rows taken out under the shrunk covariance of the others, (n,).

        That is (1 - s) / left (B - R'R + V'D V) with B = A'A + shift I and V the directions kept: of a row U'z, with
        U = (R, V), S = (-I, D), K = U B^-1 U', the squared distance is left / (1 - s) z'K (I + S K)^-1 z.
        """
        from scipy.linalg import solve_triangular

        n, m, shrunk = len(out.rows), len(out.roots), self._shrunk
        scale = out.left / (1 - min(shrunk.share, MOST_SHARE))
        values, vectors = pairs[0][: shrunk.kept], pairs[1][: shrunk.kept]
        turned = solve_triangular(self._lower, np.vstack([out.roots, vectors]).T, lower=True, check_finite=False)
        k = turned.T @ turned
        signs = np.append(np.full(m, -1.0), scale * shrunk.share * (values - shrunk.mean))
        z = np.zeros((len(k), n))
        z[np.arange(n), np.arange(n)] = 1 / np.sqrt(out.weights)
        z[n:m] = 1 / np.sqrt(out.left)
        solved = np.linalg.solve(np.eye(len(k)) + signs[:, np.newaxis] * k, z)
        return scale * np.einsum("ij,ij->j", k @ z, solved)


def measures_left_out(
    sample: KeptSample, pairs: Pairs, folds: int, counts: list[int], shrunk: ShrunkCovariance
) -> Floats:
    """Return ``all_measures`` of the rows of a sample, each by what the rows outside its fold give.

    Rows k, k + folds, ... are fold k; `pairs` are those of the covariance of all rows, `shrunk` is that as it is given
    out.
    """
    n_rows = sample.rows.shape[0]
    parts = [np.arange(fold, n_rows, folds) for fold in range(folds)]
    if isinstance(sample.matrix, DenseCovariance):
        found = _by_sums(sample, pairs, parts, counts, shrunk)
    elif n_rows == sample.sketch.n_rows:  # sketches of the others can be made
        found = _by_sketches(FrequentDirections(**sample.sketch.parameters), sample, parts, counts, shrunk)
    else:
        found = (_by_span(sample.some(part), counts, shrunk) for part in parts)
    measures = np.empty((n_measures(counts), n_rows))
    for part, of_part in zip(parts, found, strict=True):
        measures[:, part] = of_part
    return measures


def _by_sums(
    sample: KeptSample, pairs: Pairs, parts: list[NDArray[np.intp]], counts: list[int], shrunk: ShrunkCovariance
) -> Iterator[Floats]:
    """Yield the measures of each part, taken out of the sum of products."""
    total, factor = sample.sketch.total_weight, None
    gram, whole = total * sample.matrix.matrix(), (total * pairs[0], pairs[1])
    for part in parts:
        out = Downdate.by(sample.some(part))
        values, vectors = downdated_pairs(gram, whole, out.roots)
        left = values / out.left, vectors
        if factor is not None:
            distances, variances = factor.distances(out, left), factor.variances(out, left)
        else:
            matrix = shrunk.as_much(DenseCovariance((gram - out.roots.T @ out.roots) / out.left), left)
            distances, variances = matrix.distances(out.rows, -out.shift), matrix.diagonal()
            if part is parts[0] and len(parts) > 1 and FEW * len(part) <= len(gram):
                factor = ShiftedFactor.made(gram, shrunk, out.left)
        yield all_measures(distances, out.rows, -out.shift, variances, left, counts)


def _by_sketches(
    sketch: FrequentDirections,
    sample: KeptSample,
    parts: list[NDArray[np.intp]],
    counts: list[int],
    shrunk: ShrunkCovariance,
) -> Iterator[Floats]:
    """Yield the measures of each part by a sketch of the others: each half of the parts learns the other half first."""
    if len(parts) > 1:
        half = len(parts) // 2
        for mine, others in ((parts[:half], parts[half:]), (parts[half:], parts[:half])):
            outside = sample.some(np.concatenate(others))
            yield from _by_sketches(sketch.copy().update(outside.rows, outside.weights), sample, mine, counts, shrunk)
        return
    matrix = empirical_covariance(sketch, sketch.total_weight)
    pairs = leading_pairs(matrix, sketch_size_of(sketch))
    mean = np.zeros(sample.rows.shape[1]) if sketch.mean is None else sketch.mean
    yield RowModel(shrunk.as_much(matrix, pairs), pairs).measures(sample.rows[parts[0]], mean, counts)


def _by_span(sample: KeptSample, counts: list[int], shrunk: ShrunkCovariance) -> Floats:
    """Measure the rows of a sample that are taken out of a sketch in the span of its directions."""
    out, total = Downdate.by(sample), sample.sketch.total_weight
    whole: Any = sample.matrix
    along = out.roots @ whole.vectors.T
    values, turn = np.linalg.eigh(np.diag(total * whole.values) - along.T @ along)
    values = np.maximum(values[::-1], 0.0) / out.left
    trace = max(total * whole.trace - float(np.einsum("ij,ij->", out.roots, out.roots)), 0.0) / out.left
    matrix = SpikedCovariance.pooled(
        values, turn.T[::-1] @ whole.vectors, certain=values, trace=trace, rounding=least_trace(sample.sketch, trace)
    )
    pairs = matrix.values, matrix.vectors
    return RowModel(shrunk.as_much(matrix, pairs), pairs).measures(out.rows, -out.shift, counts)
