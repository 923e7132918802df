"""Second passes over the rows of a sketch: products with A'A, refinement of the sketch, and measurement of its error.

``RowsAgain`` reads the rows of a sketch again. ``nystrom`` turns the products with the sketch's directions into a
refined sketch, ``block_krylov`` finds leading directions in several passes, ``spectral_norm`` measures the error.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import isfinite, sqrt
from os import PathLike
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, qr, solve_triangular, svd

from fastsketch._core.random import Normal, random_normal
from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import Rows, as_rows, as_weights, check_finite, in_place, is_sparse, rows_with_weight
from fastsketch._core.warning import warn_caller
from fastsketch._frame.batches import FeatureNames, WeightedChunks, as_source, names_of, require_same_names
from fastsketch._frame.model import Arrays
from fastsketch._kernels.linalg.products import product, settled
from fastsketch._kernels.sketching.csr_products import rows_times, turned_rows_times
from fastsketch._kernels.sketching.state import SketchState
from fastsketch.data.files import _checks as checks
from fastsketch.data.sources import Source, naming, open_rows

# Bytes of rows that are converted, centred and multiplied at a time.
BLOCK_BYTES = 4 << 20

Matrix = NDArray[np.float64]
# Rows, their weights, and the number of the first.
Block = tuple[Any, Matrix | None, int]
# An array, a sparse matrix, a table, a source, or what ``open_rows`` opens: files, a folder, several of them.
Readable = Rows | str | PathLike[str] | Source | Iterable[str | PathLike[str] | Source]


class OtherRows(UserWarning):
    """Warning that a second pass has read other rows than those that the sketch has seen, so that its result is not
    used.
    """


class Product(NamedTuple):
    """Product A'A Q of some rows A with vectors Q, and the number and squared norm of these rows.

    Products of different rows can be added.
    """

    product: Matrix  # A'A Q (d, r)
    squared_norm: float  # of the (weighted, centred) rows
    n_rows: int
    magnitude: float  # that the roundings of the product are relative to

    @classmethod
    def none(cls, q: Matrix) -> Self:
        """Return a product of zero rows, of the shape of `q`, to which others are added."""
        return cls(np.zeros(q.shape), 0.0, 0, 0.0)

    def plus(self, other: Self) -> Self:
        """Return a new product, of the rows of both products together; neither is changed."""
        return type(self)(self.product.copy(), *self[1:]).adding(other)

    def adding(self, other: Self) -> Self:
        """Add another product to this one's array, in place, and return the sum with its counts.
        If both share one array, that has the sum already.
        """
        if other.product is not self.product:
            np.add(self.product, other.product, out=self.product)
        return type(self)(
            self.product,
            self.squared_norm + other.squared_norm,
            self.n_rows + other.n_rows,
            self.magnitude + other.magnitude,
        )


@dataclass(frozen=True)
class StoredForm:
    """Dtype, mean and scale by which a sketch converts rows before it stores them.

    A second pass multiplies rows converted in the same way.
    """

    n_features: int
    dtype: np.dtype[Any]
    mean: Matrix  # (d,) mean of the rows in their own units; zero if they are not centred
    scale: float

    def multiply(
        self, rows: Any, weights: Matrix | None, q: Matrix, *, offset: int = 0, out: Matrix | None = None
    ) -> Product:
        """Return the Product A'A Q for a block of rows A, converted to the sketch's dtype, centred and scaled.

        Rows are (n, d), array or CSR, and Q is (d, r).

        `offset` is the number of the first row, for errors. The product of dense rows is added to `out` (d, r), if that
        is given, and the result has this array. Sparse rows are centred by linearity and stay sparse.
        """
        mean, q = self.mean * self.scale, np.ascontiguousarray(q)
        with np.errstate(over="ignore", invalid="ignore"):
            x = rows.astype(self.dtype, copy=False)
            total = float(rows.shape[0] if weights is None else weights.sum())
            shift = total * float(mean @ mean)
            if is_sparse(x):
                x = x.astype(np.float64, copy=False) * self.scale
                arrays = in_place(x.indptr, np.int64), in_place(x.indices, np.int32), x.data
                # (x - 1 mu') q, by linearity: nothing is made dense
                z = rows_times(*arrays, q) - mean @ q
                squares = np.asarray(x.multiply(x).sum(axis=1)).ravel() - 2.0 * (x @ mean) + mean @ mean
                if weights is not None:
                    z *= weights[:, np.newaxis]
                    squares *= weights
                of_q = turned_rows_times(*arrays, z, self.n_features)
                np.subtract(of_q, np.outer(mean, z.sum(axis=0)), out=of_q)
                squared = float(squares.sum())
                magnitude = squared + 2.0 * shift
            else:
                x = np.ascontiguousarray(x) if x.strides[1] != x.itemsize or not x.flags.aligned else x
                x, squared = settled(x, mean, None if weights is None else np.sqrt(weights), self.scale)
                of_q = np.zeros(q.shape) if out is None else out
                product(x, product(x, q), of_q, turned=True)
                magnitude = squared + sqrt(squared) * sqrt(shift) if isfinite(squared) else squared
        if not isfinite(squared):
            check_finite(rows, offset=offset)
            raise ValueError(f"the squares of these rows leave the range of numbers, or of {self.dtype}")
        return Product(of_q, squared, rows.shape[0], magnitude)


class RowsAgain:
    """The rows of a sketch, in memory or in files, which each call of ``multiply`` reads once."""

    def __init__(
        self,
        source: Readable,
        view: StoredForm,
        sample_weight: ArrayLike | None = None,
        *,
        feature_names: FeatureNames | None = None,
    ) -> None:
        self._view, self._read = view, False
        self._chunks = _chunks_of(source, view.n_features, sample_weight, feature_names)

    def multiply(self, q: Matrix) -> Product:
        """Compute A'A Q in one pass over all rows A, and return the Product. ValueError if the source cannot be read
        again.
        """
        q, chunks = np.ascontiguousarray(q), self._chunks
        if not isinstance(chunks, WeightedChunks):
            return self._adding(Product.none(q), *chunks, q)
        if self._read and not chunks.source.repeatable:
            raise ValueError(f"{chunks.source.name} comes once, and has to be read again: save its rows to a file")
        self._read = True
        out = Product.none(q)
        for rows, weights in chunks:
            with naming(chunks.source, chunks.row):
                some, own_weights = rows_with_weight(rows, weights)
                out = self._adding(out, some, own_weights, q)
        return out

    def _adding(self, out: Product, rows: Any, weights: Matrix | None, q: Matrix) -> Product:
        """Return the Product A'A Q of further rows A added to `out`, whose array is changed in place."""
        for block, part, first in blocks_of(rows, weights, q.shape[1]):
            out = out.adding(self._view.multiply(block, part, q, offset=first, out=out.product))
        return out


def blocks_of(rows: Any, weights: Matrix | None, width: int) -> Iterator[Block]:
    """Yield (block of rows, its weights or None, index of its first row) for products with `width` vectors.
    The blocks limit memory.

    A block has at least as many rows as there are vectors, so that the vectors are not read more often than the rows.
    """
    n, d = rows.shape
    # a product of a sparse block is a dense (d, width), as large as what it is added to
    step = max(d, BLOCK_BYTES // (8 * max(1, width))) if is_sparse(rows) else max(width, BLOCK_BYTES // (8 * d), 1)
    for start in range(0, n, step):
        part = slice(start, start + step)
        block = rows if step >= n else rows[part]
        yield block, None if weights is None else weights[part], start


def _chunks_of(
    rows: Any, n_features: int, sample_weight: ArrayLike | None, feature_names: FeatureNames | None
) -> "WeightedChunks | tuple[Any, Matrix | None]":
    """Return the rows of a second pass: weighted chunks of files, or (rows, weights) in memory.
    ValueError if the columns are not those of the sketch.
    """
    source = open_rows(rows, n_features=n_features) if _names_files(rows) else as_source(rows)
    if source is None:
        checked = as_rows(rows, n_features)
        require_same_names(names_of(rows), feature_names, "rows")
        return cast("tuple[Any, Matrix | None]", rows_with_weight(checked, as_weights(sample_weight, checked.shape[0])))
    if source.n_features != n_features:
        raise ValueError(f"{source.name} has {source.n_features} columns, the sketch {n_features}")
    require_same_names(source.feature_names, feature_names, source.name)
    return WeightedChunks(source, sample_weight)


def _names_files(item: Any) -> bool:
    """Return True if an argument names files or sources: a path, or a non-empty list or tuple of paths and sources."""
    if isinstance(item, list | tuple) and item:
        return all(isinstance(one, str | PathLike | Source) for one in cast("list[Any]", item))
    return isinstance(item, str | PathLike)


# Names of the arrays that a second pass adds to the state of a sketch.
CERTAIN = ("regained", "certain_high", "estimates")


class Refined(NamedTuple):
    """Result of a second pass: the Nystrom approximation of A'A, with estimates and bounds of its eigenvalues."""

    squares: Matrix  # (r,) eigenvalues, descending: at most those of A'A
    vt: Matrix  # (r, d)
    values: Matrix  # (r,) estimates of the eigenvalues of A'A
    high: Matrix  # (r,) at least the eigenvalues of A'A
    leaked: Matrix  # (r, r) estimate of V (A'A - B'B) V'
    lost: float  # trace of A'A less squares
    dropped: float  # the largest square that was left out, where there are more than `most`
    allowance: float  # for the rounding of squares and of high


@one_blas_thread
def nystrom(products: Product, vt: Matrix, *, shrinkage: float, most: int) -> Refined:
    """Return the Nystrom approximation of A'A, with estimates and bounds of its eigenvalues, as Refined.
    It is computed from the product of A'A with a sketch's directions `vt`.

    The result has at most `most` eigenpairs of Y (V Y)^-1 Y' with Y = A'A V'. No inverse is formed.

    In a basis that begins with V, A'A = [[T, F'], [F, G]] with T = V Y and F = Y - V'T. All of B lies in V, so that 0
    <= G <= g I with g = min(shrinkage, tr A'A - tr T), and lambda_i(A'A) <= lambda_i([[T, F'], [F, g I]]). Nystrom uses
    the smallest possible G, F T^-1 F'. The estimates (`values`) add the eigenvalue of the last retained direction to
    it, because the rows outside of V are about as heavy in the directions of F. On ten data sets with k = 10 and 32
    that is 1.3 to 17 times as accurate as Nystrom, on all but one (slow drift, k = 10: 2.0e-4 instead of 7.6e-5).

    Source: Tropp, Yurtsever, Udell, Cevher, *Fixed-rank approximation of a positive-semidefinite matrix from streaming
    data*, NeurIPS 2017, Algorithm 3 (the shift keeps the Cholesky factor away from rounding).
    """
    total, y = products.squared_norm, products.product
    d, r = y.shape
    eps = float(np.finfo(np.float64).eps)
    allowance = eps * max(100.0, 10.0 * sqrt(products.n_rows + d)) * products.magnitude
    if not r or allowance == 0.0:
        none = np.zeros(0)
        return Refined(none, np.zeros((0, d)), none, none, np.zeros((0, 0)), total, 0.0, allowance)
    vt, y = np.ascontiguousarray(vt), np.ascontiguousarray(y)
    core = product(vt, y)
    core = (core + core.T) / 2
    shifted = y + allowance * vt.T
    factor = _root(core + allowance * np.eye(r))
    u, s, _ = svd(solve_triangular(factor, shifted.T, lower=True).T, full_matrices=False, check_finite=False)
    squares = s**2 - allowance
    kept = int(np.count_nonzero(squares > allowance))
    squares, vectors = squares[:kept], u.T[:kept]
    # M in the basis of V and of F = Q R; in what is left it is g I
    triangle = qr(y - product(vt, core, turned=True), mode="r", check_finite=False)[0][: min(d, r)]
    rest = max(0.0, min(shrinkage, total - float(np.trace(core)))) + allowance
    high = np.maximum(_bordered(core, triangle, rest * np.eye(len(triangle)))[:kept] + allowance, squares)
    if r < d:
        high = np.maximum(high, rest)
    outside = float(min(squares[-1], rest)) if kept == r < d else 0.0
    least = solve_triangular(factor, triangle.T, lower=True, check_finite=False)
    values = _bordered(core, triangle, least.T @ least + outside * np.eye(len(triangle)))[:kept]
    dropped = float(squares[most]) if kept > most else 0.0
    squares, vectors, values, high = squares[:most], vectors[:most], values[:most], high[:most]
    inside = product(vt, np.ascontiguousarray(vectors.T))
    leaked = outside * (np.eye(len(squares)) - inside.T @ inside)
    lost = max(0.0, total - float(squares.sum()))
    return Refined(squares, vectors, np.clip(values, squares, high), high, leaked, lost, dropped, allowance)


def _bordered(core: Matrix, border: NDArray[Any], rest: NDArray[Any]) -> NDArray[Any]:
    """Return the eigenvalues of the symmetric block matrix [[core, border'], [border, rest]], in descending order."""
    return np.linalg.eigvalsh(np.block([[core, border.T], [border, rest]]))[::-1]


def _root(core: Matrix) -> Matrix:
    """Return the lower Cholesky factor of a positive semidefinite matrix, slightly shifted if it is singular."""
    tiny = float(np.trace(core)) * np.finfo(np.float64).eps
    for _ in range(20):
        try:
            return cholesky(core, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            core = core + tiny * np.eye(len(core))
            tiny *= 10.0
    raise np.linalg.LinAlgError("the products of a second pass are not finite")


def validate_refined(arrays: Arrays, most: int) -> None:
    """Validate the arrays of a second pass that were read from a file. ValueError if one is invalid, or has more than
    `most` entries.
    """
    if "regained" in arrays:
        checks.number_within(float(checks.array_of(arrays, "regained", (1,))[0]), "regained", 0.0, np.inf)
    for name in CERTAIN[1:]:
        if name not in arrays:
            continue
        squares = checks.array_of(arrays, name, arrays[name].shape[:1])
        if len(squares) > most or np.isnan(squares).any() or (squares < 0).any() or (squares[1:] > squares[:-1]).any():
            raise ValueError(f"array {name!r} must hold at most {most} squares, the largest first")
        count = checks.named_numbers(arrays, "count", SketchState.COUNTS, np.int64)
        if "cov" not in arrays and count["fill"] > count["kept"]:
            raise ValueError(f"array {name!r} does not go with new rows")


class KrylovSpace(NamedTuple):
    """Result of ``block_krylov``: orthonormal directions, the products of A'A with them, and error estimates of the
    leading eigenvalues.
    """

    basis: Matrix  # (r, d) orthonormal; it begins with the directions of the sketch
    products: Product  # A'A V' (d, r) of all of it
    passes: int
    residuals: Matrix  # (k,) norms of the residuals of the leading pairs, as shares of their eigenvalues
    errors: Matrix  # (k,) estimates of the relative errors of these eigenvalues


@one_blas_thread
def block_krylov(
    multiply: Callable[[Matrix], Product], start: Matrix, k: int, *, width: int, most_passes: int, tol: float
) -> KrylovSpace:
    """Find the k leading eigenpairs of A'A by a block Krylov method, and return a KrylovSpace.
    Each step calls `multiply`, which reads the rows A once, until the eigenvalues are accurate to `tol`.

    Each block after the first consists of the residuals of the leading Ritz pairs, orthogonalised against all earlier
    directions. The Ritz values lie below the eigenvalues, and are as close as in any space that these passes can reach
    (Musco and Musco 2015, Algorithm 2).

    Parameters
    ----------
    multiply : function
        Of Q (d, b) the product A'A Q of all rows: one pass over them.
    start : ndarray (r, d)
        Orthonormal directions, the first block.
    k : int
        Number of leading pairs.
    width : int
        Largest number of directions of a block after the first, k or more.
    most_passes : int
    tol : float
        The passes end when the estimated relative error of each of the k values is at most half of this: half, because
        the next eigenvalue may be above the next Ritz value. The error of the Ritz values is that of ``ritz_errors``.
        The values of ``nystrom``, from the same products, belong to the space of the vectors A'A V', as the Ritz values
        of the next pass would. Their error is therefore extrapolated, as that of a sequence which converges linearly:
        it falls once more as it fell in the last pass.
    """
    block: Any = np.ascontiguousarray(start)
    basis: Any = block
    whole: Product | None = None
    passes, before = 0, None
    while True:
        part = multiply(block.T)
        whole = part if whole is None else part._replace(product=np.hstack([whole.product, part.product]))
        passes += 1
        core = product(basis, np.ascontiguousarray(whole.product))
        ritz, vectors = np.linalg.eigh((core + core.T) / 2)
        ritz = ritz[::-1]
        values, vectors = ritz[:width], np.ascontiguousarray(vectors[:, ::-1][:, :width])
        left = whole.product @ vectors - product(basis, vectors * values, turned=True)
        sizes = np.sqrt(np.einsum("ij,ij->j", left, left))
        leading = np.maximum(values[:k], np.finfo(np.float64).tiny)
        ritz_error = ritz_errors(ritz, sizes, k) / leading
        fall = 1.0 if before is None else np.minimum(ritz_error / np.maximum(before, np.finfo(np.float64).tiny), 1.0)
        errors, before = ritz_error * fall, ritz_error
        space = KrylovSpace(basis, whole, passes, np.where(values[:k] > 0.0, sizes[:k] / leading, 0.0), errors)
        if (errors <= tol / 2).all() or passes == most_passes:
            return space
        for _ in range(2):  # once more against rounding
            left -= product(basis, product(basis, np.ascontiguousarray(left)), turned=True)
        directions, triangle = qr(left, mode="economic", check_finite=False)
        tiny = max(left.shape) * float(np.finfo(np.float64).eps) * float(values[0])
        block = np.ascontiguousarray(directions[:, np.abs(np.diag(triangle)) > tiny].T)
        if not len(block):  # all eigenvectors of the rows are in the space
            return space._replace(errors=np.zeros(len(errors)))
        basis = np.vstack([basis, block])


def ritz_errors(ritz: Matrix, residuals: Matrix, k: int) -> Matrix:
    """Return estimates (k,) of how far the k leading Ritz values of a matrix are below its eigenvalues.

    The j leading Ritz pairs, with residuals of the joint norm e, make the matrix [[Ritz values, e'], [e, G]]. If no
    eigenvalue of G exceeds the next Ritz value, the i-th eigenvalue is at most 2 e^2 / (g + sqrt(g^2 + 4 e^2)) above
    the i-th Ritz value, with g the gap from that to the next one (Li and Li, *A note on eigenvalues of perturbed
    Hermitian matrices*, Linear Algebra and its Applications 395, 2005, theorem 2). This is about e^2 / g, and e where
    there is no gap. The smallest bound over all j >= i is taken, so that near eigenvalues count as one cluster.

    Parameters
    ----------
    ritz : ndarray (r,)
        All Ritz values, in descending order.
    residuals : ndarray (w,)
        Norms of the residuals of the w <= r leading ones.
    k : int
    """
    squares = np.cumsum(residuals * residuals)
    following = np.append(ritz, 0.0)[1 : len(squares) + 1]
    out = np.empty(min(k, len(squares)))
    for i in range(len(out)):
        gaps, joint = ritz[i] - following[i:], squares[i:]
        divisors = gaps + np.sqrt(gaps * gaps + 4.0 * joint)
        out[i] = np.divide(2.0 * joint, divisors, out=np.zeros_like(joint), where=divisors > 0.0).min()
    return out


# Number of initial random directions, and of steps at most: the basis is then (d, 320) float64.
WIDTH, MOST_PASSES = 8, 40
# Directions whose remainder, relative to the error, is below this are rounding.
NOTHING = 1e-10


class Audit(NamedTuple):
    """The measured spectral error of a sketch, the guaranteed bound, and the accuracy of the measurement.

    Attributes
    ----------
    error : float
        The norm of A'A + alpha0 I - B'B - alpha I that was found. It is a lower bound of that norm (up to rounding),
        and most probably within `accuracy` of it.
    error_bound : float
        The certificate: an upper bound.
    accuracy : float
        Relative: some eigenvalue differs from `error` by at most this share of it. No finite number of passes can show
        that there is no larger one; the probability that eight random directions miss it falls with every pass.
    passes : int
        Number of passes over the rows.
    """

    error: float
    error_bound: float
    accuracy: float
    passes: int


def spectral_norm(
    multiply: Callable[[Matrix], Matrix], d: int, *, accuracy: float, floor: float = 0.0
) -> tuple[float, float, int]:
    """Return (estimated spectral norm of a symmetric d x d matrix, its relative accuracy, number of products).

    Block Lanczos from random directions with full orthogonalization; the basis is all that is stored. It stops when the
    residual of the largest |Ritz value| is at most `accuracy` of it and the last step has raised that value by at most
    a tenth of that; when the basis cannot grow; or when residual or value are below `floor`. After MOST_PASSES it stops
    with a UserWarning if `accuracy` is not reached.
    """
    width = min(WIDTH, d)
    block = np.linalg.qr(random_normal(0, Normal.NORM_START, d * width).reshape(d, width))[0]
    basis, small = np.empty((d, 0)), np.empty((0, 0))
    coupling = np.empty((block.shape[1], 0))  # of this block with the one before
    value, reached, passes = 0.0, np.inf, 0
    while passes < MOST_PASSES:
        image = multiply(block)
        passes += 1
        n, b = basis.shape[1], block.shape[1]
        basis = np.hstack([basis, block])
        # T = basis' E basis is block tridiagonal
        grown = np.zeros((n + b, n + b))
        grown[:n, :n] = small
        inner = block.T @ image
        grown[n:, n:] = (inner + inner.T) / 2
        before = coupling.shape[1]
        grown[n:, n - before : n], grown[n - before : n, n:] = coupling, coupling.T
        small = grown
        for _ in range(2):
            image -= basis @ (basis.T @ image)
        u, s, wt = np.linalg.svd(image, full_matrices=False)
        ritz, vectors = np.linalg.eigh(small)
        i = int(np.argmax(np.abs(ritz)))
        last, value = value, abs(float(ritz[i]))
        residual = float(np.linalg.norm(s * (wt @ vectors[n:, i])))
        reached = residual / value if value > 0 else 0.0
        settled = reached <= accuracy and value - last <= 0.1 * accuracy * value
        kept = min(int(np.count_nonzero(s > NOTHING * max(value, floor))), d - basis.shape[1])
        if kept <= 0:
            return value, min(reached, NOTHING), passes
        if settled or value <= floor or residual <= floor:
            break
        block, coupling = u[:, :kept], s[:kept, np.newaxis] * wt[:kept]
    else:
        if reached > accuracy:
            warn_caller(
                f"the audit has ended after {passes} passes, the most that it makes, with an accuracy of {reached:.2g} "
                f"instead of {accuracy:.2g}"
            )
    return value, reached, passes
