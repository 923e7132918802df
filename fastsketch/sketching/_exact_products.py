"""Exact sketches of rows that are all in memory, from the matrix of inner products of their rows or columns.

``RowProducts`` is (A - 1 mu')(A - 1 mu')', n x n, for few rows; ``column_products`` is the d x d matrix of an exact
sketch. Both read dense rows in blocks, so that nothing of the size of the rows is ever copied, and CSR rows by sparse
products.
"""

from collections.abc import Callable, Iterable, Iterator
from math import frexp, ldexp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Normal, random_normal
from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import in_place, is_sparse
from fastsketch._kernels.linalg.products import add_gram, column_sums, product, settled
from fastsketch._kernels.sketching import dense
from fastsketch._kernels.sketching.csr_products import add_csr_gram, csr_gram_times
from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch._kernels.sketching.state import SketchState
from fastsketch.sketching._decompose import LEADING_ROUNDING, lanczos, leading
from fastsketch.sketching._engines import (
    DenseEngine,
    EngineSetting,
    ExactEngine,
    SketchSummary,
    SparseEngine,
    decompose,
    exponent_for,
    put_summary,
    stays_sparse,
)
from fastsketch.sketching._rereading import ritz_errors

Matrix = NDArray[np.float64]

# Bytes of rows that are converted to float64, centred and multiplied at a time, and the smallest number of columns (or
# rows) of such a block: with fewer BLAS is slow.
BLOCK_BYTES, LEAST = 4 << 20, 128
# Multiply-adds of a dense product in the time of one that adds to an entry by its index: 0.48 ns and 0.021 ns on Zen 5.
INDEXED_STEP = 23.0
# Stored entries of sparse rows that are multiplied at a time: they and their copies stay in the third cache.
BLOCK_ENTRIES = 1 << 18
# Vectors of a block of the block Krylov method: the kernel multiplies as many at a time.
KRYLOV_BLOCK = 16
# Rows whose entries are counted to find the dense columns: a choice of speed alone.
DENSITY_ROWS = 4096

_EPS = float(np.finfo(np.float64).eps)


class ExactSketch(NamedTuple):
    """Result of an exact sketch: the engine, bounds of the leading eigenvalues of A'A, and squares of the columns."""

    engine: DenseEngine | SparseEngine
    certain_high: Matrix | None  # upper bounds of the leading eigenvalues of A'A, in squared units of the rows
    squares: Matrix  # (d,) sums of the squares of the weighted, centred columns, in the same units


class _Rows:
    """Validated rows in memory, dense or CSR, which are read in blocks, so that no copy of all rows is made.

    The blocks are converted to float64, divided by a power of two, centred and weighted.
    """

    def __init__(self, rows: Any, weights: Matrix | None, *, center: bool) -> None:
        self.n, self.d = rows.shape
        self.sparse = is_sparse(rows)
        rows = rows if self.sparse else _plain(rows)
        self.top, largest = 0, _largest(rows.data) if self.sparse else dense.scan(rows)[1]
        if weights is not None and largest > 0:  # squares of entries are multiplied by the weights
            largest = min(largest * min(max(float(np.sqrt(weights.max())), 1e-150), 1e150), 1e308)
        if largest > 0:
            self.top = frexp(largest)[1]
        self.exponent = exponent_for(self.top, np.dtype(np.float64)) if largest > 0 else 0
        self.seen = largest > 0
        self.scale = ldexp(1.0, -self.exponent)  # by which the entries are multiplied
        self.rows: Any = rows
        self.weights = weights
        self.root = np.ones(self.n) if weights is None else np.sqrt(weights)
        self.weight = float(self.n) if weights is None else float(weights.sum())
        self.mean = np.zeros(self.d)
        if center and self.weight > 0:
            if self.sparse:
                sums = np.zeros(self.d)
                for part in self.sparse_parts():
                    block = rows[part]
                    of_entry = np.repeat(self.root[part] * self.root[part], np.diff(block.indptr))
                    sums += np.bincount(
                        block.indices, of_entry * (block.data * np.float64(self.scale)), minlength=self.d
                    )
            else:
                sums = column_sums(rows, weights) * self.scale
            self.mean = sums / self.weight

    @staticmethod
    def parts(length: int, across: int) -> Iterator[slice]:
        step = max(LEAST, BLOCK_BYTES // (8 * max(1, across)))
        return map(slice, range(0, length, step), range(step, length + step, step))

    def sparse_parts(self) -> Iterator[slice]:
        """Yield consecutive slices of row indices, of which each selects about BLOCK_ENTRIES stored entries of the
        sparse rows.
        """
        step = max(1, int(BLOCK_ENTRIES * self.n / max(1, self.rows.nnz)))
        return map(slice, range(0, self.n, step), range(step, self.n + step, step))

    def by_columns(self) -> Iterator[tuple[slice, Matrix]]:
        """Yield the dense rows in blocks of columns, as pairs (slice of columns, block (n, b)). The blocks are scaled,
        centred and weighted.
        """
        for part in self.parts(self.d, self.n):
            yield part, self._settled(self.rows[:, part], self.mean[part], self.root)

    def by_rows(self) -> Iterator[tuple[slice, Matrix]]:
        """Yield the rows in dense blocks, as pairs (slice of rows, block (b, d)). The blocks are scaled, centred and
        weighted.
        """
        for part in self.parts(self.n, self.d):
            block = self.rows[part]
            yield part, self._settled(block.toarray() if self.sparse else block, self.mean, self.root[part])

    def _settled(self, block: Any, mean: Matrix, root: Matrix) -> Matrix:
        return settled(block, mean, None if self.weights is None else root, self.scale)[0]

    def csr(self, part: slice = slice(None)) -> Any:
        """Return the sparse rows, or a slice of them, as a float64 CSR matrix. They are scaled and weighted, but not
        centred, which would make them dense.
        """
        rows = self.rows if part == slice(None) else self.rows[part]
        if rows.dtype == np.float64 and self.scale == 1.0 and self.weights is None:
            return rows
        data = rows.data * np.float64(self.scale)
        if self.weights is not None:
            data *= np.repeat(self.root[part], np.diff(rows.indptr))
        return type(rows)((data, rows.indices, rows.indptr), shape=rows.shape)

    def column_squares(self) -> Matrix:
        """Return the sum of squares of each column of sparse rows, after centring and weighting."""
        plain = np.zeros(self.d)
        for part in self.sparse_parts():
            x = self.csr(part)
            plain += np.bincount(x.indices, x.data * x.data, minlength=self.d)
        # sum of w (x - mu)^2 = sum of w x^2 - W mu^2
        return np.maximum(plain - self.weight * self.mean**2, 0.0)

    def put_into(self, engine: DenseEngine | SparseEngine) -> None:
        """Set the weight, number, scale and mean of these rows in a sketch engine, in place.

        The caller sets the rows of the sketch.
        """
        state: SketchState = engine.state
        state.weight, state.n_rows = self.weight, self.n
        if self.seen:
            state.top, state.exponent = self.top, self.exponent
        if engine.setting.center:
            state.settled_weight = self.weight
            engine.mean[:] = engine.in_slots(self.mean) if isinstance(engine, SparseEngine) else self.mean

    def count(self, chunk: "_Rows") -> None:
        """Add a chunk's number of rows, weight and mean to those of this object, in place.
        Both get a common scale.
        """
        if chunk.seen:
            self.top, self.seen = (max(self.top, chunk.top) if self.seen else chunk.top), True
        exponent = exponent_for(self.top, np.dtype(np.float64)) if self.seen else 0
        for rows in (self, chunk):
            rows.mean = np.ldexp(rows.mean, rows.exponent - exponent)
            rows.exponent, rows.scale = exponent, ldexp(1.0, -exponent)
        self.mean = (self.weight * self.mean + chunk.weight * chunk.mean) / max(1.0, self.weight + chunk.weight)
        self.n, self.weight = self.n + chunk.n, self.weight + chunk.weight

    def unit(self, squares: Matrix) -> Matrix:
        """Return squared values of the scaled rows in the units of the original rows."""
        back = ldexp(1.0, self.exponent)
        with np.errstate(over="ignore", under="ignore"):
            return squares * back * back


def _largest(values: Any) -> float:
    return max(float(values.max()), -float(values.min())) if values.size else 0.0


def _plain(rows: NDArray[Any]) -> NDArray[Any]:
    """Return dense rows as float32 or float64 with each row contiguous, without a copy where possible."""
    if rows.dtype.type not in (np.float32, np.float64) or not rows.flags.aligned:
        rows = rows.astype(np.float64)
    return rows if rows.strides[1] == rows.itemsize and rows.strides[0] >= 0 else np.ascontiguousarray(rows)


def rounding_of_sums(length: int, block: int, size: float) -> float:
    """Return a bound on the rounding error of a sum of `length` products, accumulated in blocks of `block`.
    `size` is the sum of the products' magnitudes.
    """
    return (0.5 * min(block, length) + length / max(1, block) + 4.0) * _EPS * size


class RowProducts:
    """The n x n Gram matrix of n centred, weighted rows. An exact sketch is computed from it if there are few rows with
    many columns.

    Takes memory n^2, whatever the number of columns.
    """

    def __init__(self, rows: Any, weights: Matrix | None, *, center: bool) -> None:
        self._rows = _Rows(rows, weights, center=center)
        self.n, self.d = rows.shape
        # column-major lower triangle, as an array transposed
        self._lower, self._squares, self._rounding = self._sum_up()
        self.squared_norm = float(np.trace(self._lower))

    def _sum_up(self) -> tuple[Matrix, Matrix, float]:
        rows, n = self._rows, self.n
        lower, squares = np.zeros((n, n)), np.zeros(self.d)
        if rows.sparse:
            x, root = rows.csr(), rows.root
            transposed = x.T.tocsr()
            along = np.asarray(x @ rows.mean)
            offset = float(rows.mean @ rows.mean)
            for part in rows.parts(n, n):
                # root root' - along root' - root along': the mean enters by linearity
                block = (x[part] @ transposed).toarray()
                block -= np.outer(along[part], root) + np.outer(root[part], along) - offset * np.outer(root[part], root)
                lower[part] = block
            size = float(x.data @ x.data) + rows.weight * offset
            return lower, rows.column_squares(), rounding_of_sums(self.d, self.d, size)
        block = 1
        for part, z in rows.by_columns():
            block = max(block, z.shape[1])
            add_gram(z, lower)  # G += z @ z.T
            squares[part] = np.einsum("ij,ij->j", z, z)
        return lower, squares, rounding_of_sums(self.d, block, float(np.trace(lower)))

    def eigenvalues(self) -> Matrix:
        """Return all eigenvalues of the n x n Gram matrix, in descending order. They are the squared singular values of
        the rows. The matrix does not change.
        """
        return np.maximum(top_eigh(self._lower.copy(), 1)[0][::-1], 0.0)

    def exact_sketch(self, setting: EngineSetting) -> ExactSketch:
        """Return a sketch of the rows, whose leading singular values are exact; the Gram matrix is overwritten.

        The first l - 1 singular values and directions are exact, and the certificate is the square of the next value.
        """
        rows, n, size = self._rows, self.n, setting.sketch_size
        values, u = leading(self._lower, min(n, size), overwrite=True)
        values = np.maximum(values, 0.0)
        delta = float(values[size - 1]) if len(values) >= size else 0.0
        # U'A has orthogonal rows; its singular values are more accurate than the roots of the eigenvalues
        s, vt = decompose(self._times(u[: min(len(u), size - 1)]))
        allowance = self._rounding + LEADING_ROUNDING * float(values[0] if len(values) else 0.0)
        return _of_pairs(rows, setting, s, vt, self._squares, delta=delta, allowance=allowance)

    def _times(self, u: Matrix) -> Matrix:
        """Return the product U A of a matrix `u` (k, n) and the centred, weighted rows A (n, d)."""
        rows = self._rows
        if rows.sparse:
            return np.asarray((rows.csr().T @ u.T).T) - np.outer(u @ rows.root, rows.mean)
        out, u = np.empty((len(u), self.d)), np.ascontiguousarray(u)
        for part, z in rows.by_columns():
            out[:, part] = product(u, z)
        return out


def column_products(rows: Any, weights: Matrix | None, setting: EngineSetting) -> ExactSketch:
    """Return the exact matrix A'A of validated rows A, computed in float64, and the squares of each column.
    The result is an ExactSketch, whose engine has the matrix.
    """
    source = _Rows(rows, weights, center=setting.center)
    engine = ExactEngine(setting.resolved("exact"), source.d, dtype=np.dtype(np.float64))
    sums = SparseSums(rows, engine.cov) if source.sparse else None
    if sums is not None and sums.n_dense < source.d:
        sums.add(source)
        sums.finish()
        return _of_sparse_sums(engine, source)
    block = 1
    for _, z in source.by_rows():
        block = max(block, len(z))
        add_gram(z, engine.cov, turned=True)  # C += z.T @ z
    return _of_sums(engine, source, rounding_of_sums(source.n, block, float(np.trace(engine.cov))))


def chunk_products(chunks: Iterable[Any], d: int, setting: EngineSetting) -> ExactSketch:
    """Compute the exact matrix A'A of CSR rows A of width d, read in chunks, and return it as an ExactSketch.

    The chunks must be finite, float and without duplicate entries. Takes memory 2 d^2, and that of a few chunks.
    """
    from scipy.sparse import csr_array

    none = csr_array((0, d))
    whole, entries_planned = _Rows(none, None, center=setting.center), 0.0
    engine = ExactEngine(setting.resolved("exact"), d, dtype=np.dtype(np.float64))
    sums = SparseSums(none, engine.cov)
    for rows in chunks:
        chunk, entries_of_row = _Rows(rows, None, center=setting.center), rows.nnz / max(1, rows.shape[0])
        before = whole.exponent
        whole.count(chunk)
        if whole.exponent != before:
            sums.multiply(2 * (before - whole.exponent))
        if entries_of_row > 2.0 * entries_planned:  # the order of columns was chosen for far fewer entries
            sums.finish()
            sums, entries_planned = SparseSums(rows, engine.cov), entries_of_row
        sums.add(chunk)
    sums.finish()
    return _of_sparse_sums(engine, whole)


def _of_sparse_sums(engine: ExactEngine, source: _Rows) -> ExactSketch:
    """Convert an engine's products X'X of sparse rows to those of centred rows, in place; return an ExactSketch."""
    size = float(np.trace(engine.cov)) + source.weight * float(source.mean @ source.mean)
    for row, mean in zip(engine.cov, source.mean, strict=True):  # X'X - W mu mu'
        row -= source.weight * mean * source.mean
    return _of_sums(engine, source, rounding_of_sums(source.n, source.n, size))


def _of_sums(engine: ExactEngine, source: _Rows, allowance: float) -> ExactSketch:
    """Complete the state of an engine whose matrix has the products of centred rows; return it in an ExactSketch.
    `allowance` bounds its rounding error.
    """
    source.put_into(engine)
    squares = np.maximum(np.diag(engine.cov), 0.0)
    engine.state.squared_norm = float(squares.sum())
    engine.state.rounding = allowance * allowance
    engine.state.age = 1  # the sum is no longer zero
    return ExactSketch(engine, None, source.unit(squares))


def columns_by_density(rows: Any) -> tuple[NDArray[np.intp], int]:
    """Return (columns of CSR rows X, the densest first; how many of them X'X multiplies faster as a dense matrix).

    The m densest columns take m^2 steps of a dense product for each row, or INDEXED_STEP times the square of the number
    of their entries, whose mean is taken as the square of the mean number. Densities are those of evenly spaced rows.
    """
    sample = rows[:: max(1, rows.shape[0] // DENSITY_ROWS)]
    density = np.bincount(sample.indices, minlength=sample.shape[1]) / max(1, sample.shape[0])
    order = np.argsort(-density, kind="stable")
    entries = np.concatenate([[0.0], np.cumsum(density[order])])
    return order, int(np.argmin(np.arange(len(entries)) ** 2.0 - INDEXED_STEP * entries**2))


class SparseSums:
    """Sum X'X of weighted sparse rows X, added to the symmetric matrix `out`; call ``finish`` at the end.

    Columns are ordered by their density in the rows given to the constructor. The densest ones, `n_dense`, are
    multiplied by BLAS.
    """

    def __init__(self, rows: Any, out: Matrix) -> None:
        order, self.n_dense = columns_by_density(rows)
        self._rank = np.empty(len(out), np.int32)
        self._rank[order] = np.arange(len(out))
        permute(out, order.astype(np.int32))
        self._out, self._of_dense = out, np.zeros((self.n_dense, self.n_dense))
        self._buffer = np.empty((0, self.n_dense))  # a block of the dense columns

    def add(self, source: _Rows) -> None:
        """Add the products X'X of more sparse rows to the sum, in place."""
        for part in source.sparse_parts():
            rows = source.csr(part)
            if len(self._buffer) < rows.shape[0]:
                self._buffer = np.empty((rows.shape[0], self.n_dense))
            dense = self._buffer[: rows.shape[0]]
            dense[:] = 0.0
            add_csr_gram(rows.indptr, rows.indices, rows.data, self._rank, dense, self._out)
            add_gram(dense, self._of_dense, turned=True)

    def multiply(self, exponent: int) -> None:
        """Multiply the sum by 2**exponent, exactly unless it underflows."""
        for matrix in (self._out, self._of_dense):
            np.ldexp(matrix, exponent, out=matrix)

    def finish(self) -> None:
        """Fill the lower triangle of `out`, and put its rows and columns into the order of the columns of X."""
        n, out = self.n_dense, self._out
        out[:n, :n] += self._of_dense
        for i in range(len(out)):
            out[i:, i] = out[i, i:]
        permute(out, self._rank)


def permute(matrix: Matrix, rank: NDArray[np.int32]) -> None:
    """Set matrix[i, j] = matrix[rank[i], rank[j]], in place: a second d x d matrix would be the largest array."""
    is_moved = np.zeros(len(rank), bool)
    for start in range(len(rank)):  # along each cycle of the permutation
        first, i = matrix[start].copy(), start
        while not is_moved[i]:
            is_moved[i], following = True, int(rank[i])
            matrix[i] = first if following == start else matrix[following]
            i = following
    for row in matrix:
        row[:] = row[rank]


def sparse_pairs(rows: Any, weights: Matrix | None, setting: EngineSetting, k: int) -> ExactSketch | None:
    """Return a sketch of CSR rows made from their k leading singular pairs, as an ExactSketch.
    The Lanczos method finds the pairs; the result is None if it does not converge.

    Memory 2 k + 20 vectors of length min(n, d), and a copy of the nonzeros. The certificate is the square of the next
    singular value. None if the steps do not converge, as on a flat spectrum.
    """
    source = _Rows(rows, weights, center=setting.center)
    n, d, x, root, mean = source.n, source.d, source.csr(), source.root, source.mean
    transposed = x.T

    def along(v: Matrix) -> Matrix:  # A v
        return x @ v - root * (mean @ v)

    def back(u: Matrix) -> Matrix:  # A'u
        return transposed @ u - mean * (root @ u)

    wide = n <= d
    pairs = lanczos((lambda u: along(back(u))) if wide else (lambda v: back(along(v))), min(n, d), k + 1)
    if pairs is None:
        return None
    values, vectors = np.maximum(pairs[0], 0.0), pairs[1][:k]
    if wide:
        s, vt = decompose(np.stack([back(u) for u in vectors]))
    else:
        # the square roots of the eigenvalues, more accurately
        s, vt = np.array([float(np.linalg.norm(along(v))) for v in vectors]), vectors
    squares = source.column_squares()
    longest = max(int(np.diff(x.indptr).max(initial=0)), int(column_counts(x).max(initial=0)))
    size = float(x.data @ x.data) + source.weight * float(mean @ mean)
    allowance = rounding_of_sums(longest, longest, size) + LEADING_ROUNDING * float(values[0])
    return _of_pairs(source, setting, s, vt, squares, delta=float(values[k]), allowance=allowance)


class _KrylovSpace(NamedTuple):
    """Leading Ritz pairs of A'A in a block Krylov space."""

    ritz: Matrix  # (r,) approximate eigenvalues of the whole space, in descending order
    residuals: Matrix  # (r,) ||A'A v - s v|| of each pair (s, v)
    errors: Matrix  # (k + 1,) estimated errors of the leading eigenvalues, see ``ritz_errors``
    vt: Matrix  # (k, d) leading directions


def krylov_width(k: int) -> int:
    """Return the smallest size of a block of the block Krylov method that is more than k."""
    return (k // KRYLOV_BLOCK + 1) * KRYLOV_BLOCK


@one_blas_thread
def krylov_pairs(
    rows: Any, weights: Matrix | None, setting: EngineSetting, k: int, *, tol: float, most_steps: int
) -> ExactSketch | None:
    """Return a sketch of CSR rows made from their k leading singular pairs, as an ExactSketch.
    A block Krylov method finds the pairs from random directions.

    A block of 16 random directions finds at most 16 eigenvectors of a multiple eigenvalue. If 16 of the k eigenvalues
    are almost equal, they are computed again with blocks of more than k directions, which find k of any multiplicity.

    Memory `most_steps` vectors of length d at most; the entries of the rows are not copied. The certificate is the
    estimate of the next eigenvalue of ``ritz_errors``. None if the estimated relative error of an eigenvalue is above
    `tol` after `most_steps` vectors.
    """
    source = _Rows(rows, weights, center=setting.center)
    mean = source.mean
    indptr, indices = in_place(rows.indptr, np.int64), in_place(rows.indices, np.int32)
    data = in_place(rows.data, np.float32 if rows.dtype == np.float32 else np.float64)
    own = None if weights is None else np.ascontiguousarray(weights, np.float64)
    ascending = bool(rows.has_sorted_indices)
    squares = source.column_squares()
    total = float(squares.sum())

    def multiply(block: Matrix) -> Matrix:  # A'A q
        return csr_gram_times(indptr, indices, data, own, mean, source.scale, block, ascending=ascending)

    rounding = LEADING_ROUNDING * max(total, np.finfo(np.float64).tiny)
    limits: Any = {"tol": tol, "rounding": rounding, "most_steps": min(source.d, most_steps)}
    space = _krylov_space(multiply, source.d, k, width=KRYLOV_BLOCK, **limits)
    if space is not None and _may_lack_multiples(space.ritz, k, tol):
        space = _krylov_space(multiply, source.d, k, width=krylov_width(k), **limits)
    if space is None:
        return None
    ritz, residuals, errors, vt = space
    # A'A - B'B is [[0, F'], [F, G]] in a basis that begins with the k directions
    following, joint = float(ritz[k] + errors[k]), float(np.linalg.norm(residuals[:k]))
    delta = (following + float(np.hypot(following, 2.0 * joint))) / 2.0
    size = total + 2.0 * source.weight * float(mean @ mean)
    longest = max(int(np.diff(rows.indptr).max(initial=0)), source.n)
    allowance = rounding_of_sums(longest, longest, size) + float(errors[:k].max())
    return _of_pairs(source, setting, np.sqrt(ritz[:k]), vt, squares, delta=delta, allowance=allowance)


def _may_lack_multiples(ritz: Matrix, k: int, tol: float) -> bool:
    """Return True if a block Krylov method with blocks of KRYLOV_BLOCK directions may have missed eigenvalues that are
    among the k leading ones or equal to one of them.

    It finds KRYLOV_BLOCK of the eigenvectors of one eigenvalue. Of eigenvalues that differ by a share s it finds
    mixtures with residuals of up to s times the eigenvalue, which change an eigenvalue by s^2 (see ``ritz_errors``):
    if this is not more than `tol`, the method ends before it has found the others.
    """
    if len(ritz) <= k:
        return True
    last = ritz[KRYLOV_BLOCK - 1 : k]
    first = ritz[: len(last)]
    return bool((first - last <= np.sqrt(tol) * first).any())


def _krylov_space(
    multiply: Callable[[Matrix], Matrix],
    d: int,
    k: int,
    *,
    width: int,
    tol: float,
    rounding: float,
    most_steps: int,
) -> _KrylovSpace | None:
    """Return Ritz pairs of a d x d matrix in a block Krylov space, or None if `most_steps` vectors are too few.

    The space is spanned by the powers of the matrix times a block of `width` random directions. It grows until the k
    leading pairs are accurate to `tol`, or until no power adds a direction; it may then have k dimensions or fewer. All
    blocks are orthogonalised and kept, which is the block Lanczos method with full orthogonalisation. `rounding` bounds
    the rounding error of a product.

    Blocks may be smaller than k: Meyer, Musco, Musco, *On the unreasonable effectiveness of single vector Krylov
    methods for low-rank approximation*, SODA 2024, prove for them what Musco and Musco 2015 prove for larger blocks, if
    eigenvalues differ.
    """
    most = most_steps // width * width
    basis, small = np.empty((most, d)), np.zeros((most + width, most + width))
    # the same directions in every version of NumPy, so that results can be reproduced
    block = np.linalg.qr(random_normal(0, Normal.KRYLOV_START, d * width).reshape(d, width))[0]
    r, checked = 0, 0
    while r < most:
        block = np.ascontiguousarray(block)
        image = multiply(block)
        basis[r : r + width] = block.T
        inner = product(np.ascontiguousarray(block.T), image)
        small[r : r + width, r : r + width] = (inner + inner.T) / 2
        r += width
        for _ in range(2):  # once more against rounding
            image -= product(basis[:r], product(basis[:r], image), turned=True)
        block, coupling = np.linalg.qr(image)
        # where the image has fewer dimensions, the directions that were added are not orthogonal to the basis yet
        block -= product(basis[:r], product(basis[:r], np.ascontiguousarray(block)), turned=True)
        block, again = np.linalg.qr(block)
        coupling = again @ coupling
        is_exhausted = float(np.abs(coupling).max()) <= rounding
        if is_exhausted or (r > k and r >= min(most, checked + checked // 10 + 1)):
            checked = r
            ritz, vectors = np.linalg.eigh(small[:r, :r])
            ritz, vectors = np.maximum(ritz[::-1], 0.0), vectors[:, ::-1]
            residuals = np.linalg.norm(coupling @ vectors[-width:], axis=0)
            errors = ritz_errors(ritz, residuals, k + 1)
            if is_exhausted or (errors[:k] <= np.maximum(tol * ritz[:k], rounding)).all():
                vt = product(np.ascontiguousarray(vectors[:, :k].T), basis[:r])
                return _KrylovSpace(ritz, residuals, errors, vt)
        small[r : r + width, r - width : r] = coupling
        small[r - width : r, r : r + width] = coupling.T
    return None


def _of_pairs(
    rows: _Rows,
    setting: EngineSetting,
    s: Matrix,
    vt: Matrix,
    column_squares: Matrix,
    *,
    delta: float,
    allowance: float,
) -> ExactSketch:
    """Return an ExactSketch made from exact singular values `s` and directions `vt` of the rows.

    `delta`, the largest squared singular value left out, becomes its error bound.
    """
    setting = setting.resolved("gram")
    kind = SparseEngine if rows.sparse and stays_sparse(rows.rows) else DenseEngine
    engine = kind(setting, rows.d, dtype=np.dtype(np.float64))
    rows.put_into(engine)
    squares, none = s * s, np.zeros((len(s), len(s)))
    squared_norm = float(column_squares.sum())
    lost = max(0.0, squared_norm - float(squares.sum()))
    directions = engine.in_slots(vt) if isinstance(engine, SparseEngine) else vt
    put_summary(engine, SketchSummary(squares, directions, np.diag(squares), none, lost, rows.d))
    engine.state.shrinkage, engine.state.squared_norm = delta, squared_norm
    engine.state.rounding = allowance * allowance
    return ExactSketch(engine, rows.unit(squares + allowance), rows.unit(column_squares))


def row_steps(rows: Any) -> float:
    """Return the number of multiply-adds of the product X'X for a CSR matrix X, to compare the cost of methods.

    They are all pairs of entries of each row.
    """
    return float(np.sum(np.diff(rows.indptr).astype(np.float64) ** 2))


def column_steps(rows: Any) -> float:
    """Return the number of multiply-adds of the product X X' for a CSR matrix X, to compare the cost of methods.

    They are all pairs of entries of each column.
    """
    return float(np.sum(column_counts(rows).astype(np.float64) ** 2))


def column_counts(rows: Any) -> NDArray[np.int64]:
    """Return the number of stored entries (d,) of each column of CSR rows.

    Entries are counted in blocks, because ``numpy.bincount`` makes a copy of the indices with 8 bytes each.
    """
    counts, step = np.zeros(rows.shape[1], np.int64), max(BLOCK_ENTRIES, rows.shape[1])
    for start in range(0, len(rows.indices), step):
        counts += np.bincount(rows.indices[start : start + step], minlength=len(counts))
    return counts
