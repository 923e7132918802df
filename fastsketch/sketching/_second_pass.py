"""A second pass over the rows of a sketch, and an audit of its certificate."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular, svd

from fastsketch.sketching._rows_again import RowsAgain

Matrix = NDArray[np.float64]


class Refined(NamedTuple):
    """The best approximation of A'A from below whose rows A'A maps the span of the sketch to (Nystrom)."""

    squares: Matrix  # (r,) eigenvalues, descending: at most those of A'A
    vt: Matrix  # (r, d)
    squared_norm: float
    n_rows: int


def nystrom(rows: RowsAgain, vt: Matrix) -> Refined:
    """One pass: Y = A'A V', read out as Y (V Y)^-1 Y' without forming an inverse.

    Source: Tropp, Yurtsever, Udell, Cevher, *Fixed-rank approximation of a positive-semidefinite matrix from streaming
    data*, NeurIPS 2017, Algorithm 3 (the shift keeps the Cholesky factor away from rounding).
    """
    found = rows.multiply(vt.T)
    y = found.product
    shift = np.sqrt(y.shape[0]) * np.finfo(np.float64).eps * float(np.linalg.norm(y, 2)) if y.size else 0.0
    y = y + shift * vt.T
    core = vt @ y
    factor = _root((core + core.T) / 2)
    u, s, _ = svd(solve_triangular(factor, y.T, lower=True).T, full_matrices=False, check_finite=False)
    squares = np.maximum(s**2 - shift, 0.0)
    keep = squares > 0
    return Refined(squares[keep], u.T[keep], found.squared_norm, found.n_rows)


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
    """(largest |eigenvalue| of A'A - V' diag(squares) V - shift I, relative accuracy reached, passes), by block Krylov."""
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
