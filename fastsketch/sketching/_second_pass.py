"""A second pass over the rows of a sketch, and an audit of its certificate."""

from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, qr, solve_triangular, svd

from fastsketch._kernels.state import SketchState
from fastsketch._model import Arrays
from fastsketch.io import _checks as checks
from fastsketch.sketching._rows_again import Product, RowsAgain

Matrix = NDArray[np.float64]


class Refined(NamedTuple):
    """The best approximation of A'A from below whose rows A'A maps the span of the sketch to (Nystrom)."""

    squares: Matrix  # (r,) eigenvalues, descending: at most those of A'A
    vt: Matrix  # (r, d)
    high: Matrix  # (r,) at least the eigenvalues of A'A
    lost: float  # trace of A'A less squares
    allowance: float  # for rounding: of squares and of high alone


def nystrom(found: Product, vt: Matrix, *, shrinkage: float) -> Refined:
    """Y = A'A V' of one pass, read out as Y (V Y)^-1 Y' without forming an inverse, with upper ends.

    In a basis that begins with V, A'A = [[T, F'], [F, G]] with T = V Y and F = Y - V'T. All of B lies in V, so that
    0 <= G <= g I with g = min(shrinkage, tr A'A - tr T), and lambda_i(A'A) <= lambda_i([[T, F'], [F, g I]]).

    Source: Tropp, Yurtsever, Udell, Cevher, *Fixed-rank approximation of a positive-semidefinite matrix from streaming
    data*, NeurIPS 2017, Algorithm 3 (the shift keeps the Cholesky factor away from rounding).
    """
    total, y = found.squared_norm, found.product
    d, r = y.shape
    eps = float(np.finfo(np.float64).eps)
    allowance = eps * max(100.0, 10.0 * sqrt(found.n_rows + d)) * found.magnitude
    if not r or allowance == 0.0:
        return Refined(np.zeros(0), np.zeros((0, d)), np.zeros(0), total, allowance)
    core = vt @ y
    core = (core + core.T) / 2
    shifted = y + allowance * vt.T
    factor = _root(core + allowance * np.eye(r))
    u, s, _ = svd(solve_triangular(factor, shifted.T, lower=True).T, full_matrices=False, check_finite=False)
    squares = s**2 - allowance
    kept = int(np.count_nonzero(squares > allowance))
    squares = squares[:kept]
    # M in the basis of V and of F = Q R; in what is left it is g I
    outside = y - vt.T @ core
    triangle = qr(outside, mode="r", check_finite=False)[0][: min(d, r)]
    rest = max(0.0, min(shrinkage, total - float(np.trace(core)))) + allowance
    whole = np.block([[core, triangle.T], [triangle, rest * np.eye(len(triangle))]])
    high = np.linalg.eigvalsh(whole)[::-1][:kept] + allowance
    if r < d:
        high = np.maximum(high, rest)
    return Refined(squares, u.T[:kept], np.maximum(high, squares), max(0.0, total - float(squares.sum())), allowance)


def _root(core: Matrix) -> Matrix:
    """A lower triangular root; of a singular matrix, of one a few roundings away."""
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
    if "certain_high" in arrays:
        found = checks.array_of(arrays, "certain_high", arrays["certain_high"].shape[:1])
        if len(found) > most or np.isnan(found).any() or (found < 0).any() or (found[1:] > found[:-1]).any():
            raise ValueError(f"array 'certain_high' must hold at most {most} squares, the largest first")
        count = checks.named_numbers(arrays, "count", SketchState.COUNTS, np.int64)
        if "cov" not in arrays and count["fill"] > count["kept"]:
            raise ValueError("array 'certain_high' goes with no new rows")


class Audit(NamedTuple):
    """The spectral error of a sketch, measured.

    Attributes
    ----------
    error : float
        The norm of A'A + alpha0 I - B'B - alpha I found: a lower bound, up to `accuracy`.
    error_bound : float
        The certificate that it is to be held against.
    accuracy : float
        Relative: the largest eigenvalue differs from `error` by at most about this share of it.
    passes : int
        Over the rows.
    """

    error: float
    error_bound: float
    accuracy: float
    passes: int


def spectral_norm(
    rows: RowsAgain, vt: Matrix, squares: Matrix, shift: float, *, accuracy: float, width: int = 8, max_passes: int = 40
) -> tuple[float, float, int]:
    """(largest |eigenvalue| of A'A - V' diag(squares) V - shift I, accuracy reached, passes), by block Krylov."""
    d = vt.shape[1]
    rng = np.random.default_rng(0)
    width = min(width, d)
    basis = np.linalg.qr(rng.standard_normal((d, width)))[0]
    images = np.empty((d, 0))
    value, reached, passes = 0.0, np.inf, 0
    while passes < max_passes:
        new = basis[:, images.shape[1] :]
        image = rows.multiply(new).product - vt.T @ (squares[:, np.newaxis] * (vt @ new)) - shift * new
        passes += 1
        images = np.hstack([images, image])
        small = basis.T @ images
        w, u = np.linalg.eigh((small + small.T) / 2)
        i = int(np.argmax(np.abs(w)))
        residual = float(np.linalg.norm(images @ u[:, i] - w[i] * (basis @ u[:, i])))
        value = abs(float(w[i]))
        reached = residual / value if value > 0 else 0.0
        if reached <= accuracy or basis.shape[1] >= d:
            break
        block = image - basis @ (basis.T @ image)
        block -= basis @ (basis.T @ block)
        q, triangle = np.linalg.qr(block)
        good = np.abs(np.diag(triangle)) > 1e-12 * max(value, np.finfo(float).tiny)
        if not good.any():
            break
        basis = np.hstack([basis, q[:, good][:, : d - basis.shape[1]]])
    return value, reached, passes
