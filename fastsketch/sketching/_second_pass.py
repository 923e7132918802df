"""A second pass over the rows of a sketch: what it makes of their products with the directions kept."""

from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, qr, solve_triangular, svd

from fastsketch._core.threads import one_blas_thread
from fastsketch._frame.model import Arrays
from fastsketch._kernels.linalg.products import product
from fastsketch._kernels.sketching.state import SketchState
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._rows_again import Product

Matrix = NDArray[np.float64]


# Arrays of a sketch that a second pass leaves beside its engine.
CERTAIN = ("regained", "certain_high", "estimates")


class Refined(NamedTuple):
    """The best approximation of A'A from below whose rows A'A maps the span of the sketch to (Nystrom)."""

    squares: Matrix  # (r,) eigenvalues, descending: at most those of A'A
    vt: Matrix  # (r, d)
    values: Matrix  # (r,) estimates of the eigenvalues of A'A
    high: Matrix  # (r,) at least the eigenvalues of A'A
    leaked: Matrix  # (r, r) estimate of V (A'A - B'B) V'
    lost: float  # trace of A'A less squares
    dropped: float  # the largest square that was left out, where there are more than `most`
    allowance: float  # for rounding: of squares and of high alone


@one_blas_thread
def nystrom(products: Product, vt: Matrix, *, shrinkage: float, most: int) -> Refined:
    """Read Y = A'A V' out as Y (V Y)^-1 Y' without forming an inverse: at most `most` pairs of it, with upper ends.

    In a basis that begins with V, A'A = [[T, F'], [F, G]] with T = V Y and F = Y - V'T. All of B lies in V, so that
    0 <= G <= g I with g = min(shrinkage, tr A'A - tr T), and lambda_i(A'A) <= lambda_i([[T, F'], [F, g I]]). Nystrom
    takes the least G that there can be, F T^-1 F'. The estimates add to it what the last direction kept holds: where F
    points, the rows outside V are about as heavy. Of ten sets with k = 10 and 32 that is nearer than Nystrom, by 1.3 to
    17 times, on all but one (slow drift, k = 10: 2.0e-4 for 7.6e-5).

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
    """Return the eigenvalues of [[core, border'], [border, rest]], descending."""
    return np.linalg.eigvalsh(np.block([[core, border.T], [border, rest]]))[::-1]


def _root(core: Matrix) -> Matrix:
    """Return a lower triangular root; of a singular matrix, of one a few roundings away."""
    tiny = float(np.trace(core)) * np.finfo(np.float64).eps
    for _ in range(20):
        try:
            return cholesky(core, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            core = core + tiny * np.eye(len(core))
            tiny *= 10.0
    raise np.linalg.LinAlgError("the products of a second pass are not finite")


def validate_refined(arrays: Arrays, most: int) -> None:
    """Raise ValueError unless a sketch of at most `most` rows could have these, each of which may be absent."""
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
