"""The leading singular triplet of a sparse matrix, by subspace iteration with eight vectors.

Eight vectors take little longer than one. Seven start at the result of the previous search, near the next singular
vectors of the gradient. One is random, because the gradient may have a component that is orthogonal to the seven.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Normal, random_normal
from fastsketch._core.threads import one_blas_thread
from fastsketch._kernels.lowrank.products import gram_block
from fastsketch.lowrank._data import Array
from fastsketch.lowrank._entries import Entries

Floats = NDArray[np.float64]

# Number of vectors, which the compiled loop fixes.
BLOCK = 8


class Triplet(NamedTuple):
    """A singular value with its left and right singular vectors, which have length 1."""

    u: Array  # (m,); its entry of largest absolute value is positive, so that the signs do not depend on the machine
    s: float
    v: Array  # (n,)


@one_blas_thread
def leading_triplet(
    observations: Entries, values: Array, start: Array, found: Array, *, iterations: int, tolerance: float
) -> tuple[Triplet, Array] | None:
    """Find the leading singular triplet of a sparse matrix, orthogonal to right singular vectors found before.

    Parameters
    ----------
    observations : Entries
        Their positions are those of the entries of A.
    values : (nnz,) array
        The entries of A.
    start : (n, 8) array
        Initial vectors, of any lengths.
    found : (n, k) array
        F, right singular vectors that were found before; orthonormal columns.
    iterations : int
        Largest number of iterations.
    tolerance : float
        They stop when the right vector turns by an angle whose sine is at most this.

    Returns
    -------
    (triplet, block) or None
        block (n, 7) is a basis near the next right singular vectors. None if the matrix is zero.
    """
    basis = _orthonormal(start.astype(values.dtype), found)
    while True:
        iterations -= 1
        product, w = gram_block(*observations.data.where, values, basis)
        w = _without(found, w)
        eigenvalues, turn = np.linalg.eigh(_gram(product))
        largest, turn = eigenvalues[-1], turn[:, ::-1].astype(values.dtype)
        if not largest > 0:
            return None
        u, v, w = product @ turn[:, 0], basis @ turn[:, 0], w @ turn
        turned = np.linalg.norm(w[:, 0] - values.dtype.type(largest) * v)
        basis = _orthonormal(w, found)
        if turned <= tolerance * largest or not iterations:
            break
    s = float(np.linalg.norm(u.astype(np.float64)))
    sign = values.dtype.type(-1 if u[np.argmax(np.abs(u))] < 0 else 1)
    return Triplet(u / values.dtype.type(sign * s), s, sign * v), basis[:, 1:]


def block_start(seed: int, number: int, n: int, last: Array | None) -> Array:
    """Return eight initial vectors of a subspace iteration: seven of the previous search and a random one, or all
    random."""
    if last is None:
        streams = [Normal.PURSUIT + 2**30 + q for q in range(BLOCK)]
        return np.stack([random_normal(seed, stream, n) for stream in streams], axis=1)
    return np.column_stack([last, random_normal(seed, Normal.PURSUIT + number, n)])


def _gram(block: Array) -> Floats:
    """Return the Gram matrix X'X of a block X, in float64."""
    wide = block.astype(np.float64)
    return wide.T @ wide


def _orthonormal(block: Array, found: Array) -> Array:
    """Return an orthonormal basis of the columns of a block, orthogonal to the vectors `found`, by two rounds of
    Cholesky QR.

    Its shape is (n, 8).

    For linearly dependent columns Householder QR is used, which completes the basis. With `found`, of which it could
    return directions, dependent columns are zero instead. If n < 8, the columns beyond n are zero.
    """
    dtype, basis = block.dtype, _without(found, block)
    try:
        for _ in range(2):
            turned = basis @ np.linalg.inv(np.linalg.cholesky(_gram(basis))).T.astype(dtype)
            basis = _without(found, turned)
    except np.linalg.LinAlgError:
        basis, r = np.linalg.qr(_without(found, block))
        if found.shape[1]:
            size = np.abs(r.diagonal())
            basis[:, size <= 100 * np.finfo(dtype).eps * size.max()] = 0.0
        basis = np.pad(basis, ((0, 0), (0, BLOCK - basis.shape[1])))
    return basis


def _without(found: Array, block: Array) -> Array:
    """Return a block minus its projection onto the orthonormal columns of `found`."""
    return block - found @ (found.T @ block) if found.shape[1] else block
