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
BLOCK_VECTORS = 8


class Triplet(NamedTuple):
    """A singular value with its left and right singular vectors, which have length 1."""

    u: Array  # (m,); its entry of largest absolute value is positive, so that the signs do not depend on the machine
    s: float
    v: Array  # (n,)


@one_blas_thread
def leading_triplet(
    observations: Entries,
    values: Array,
    start_block: Array,
    previous_vectors: Array,
    *,
    iterations: int,
    tolerance: float,
) -> tuple[Triplet, Array] | None:
    """Return the leading singular triplet of a sparse matrix, and a block from which the next search starts.
    The right vector is orthogonal to `previous_vectors`.

    Parameters
    ----------
    observations : Entries
        Their positions are those of the entries of A.
    values : (nnz,) array
        The entries of A.
    start_block : (n, 8) array
        Initial vectors, of any lengths.
    previous_vectors : (n, k) array
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
    basis = orthonormal_basis(start_block.astype(values.dtype), previous_vectors)
    while True:
        iterations -= 1
        product, w = gram_block(*observations.data.index_arrays, values, basis)
        w = project_out(previous_vectors, w)
        eigenvalues, rotation = np.linalg.eigh(gram_matrix(product))
        largest, rotation = eigenvalues[-1], rotation[:, ::-1].astype(values.dtype)
        if not largest > 0:
            return None
        u, v, w = product @ rotation[:, 0], basis @ rotation[:, 0], w @ rotation
        change = np.linalg.norm(w[:, 0] - values.dtype.type(largest) * v)
        basis = orthonormal_basis(w, previous_vectors)
        if change <= tolerance * largest or not iterations:
            break
    s = float(np.linalg.norm(u.astype(np.float64)))
    sign = values.dtype.type(-1 if u[np.argmax(np.abs(u))] < 0 else 1)
    return Triplet(u / values.dtype.type(sign * s), s, sign * v), basis[:, 1:]


def block_start(seed: int, n_searches: int, n: int, previous_block: Array | None) -> Array:
    """Return the eight vectors (n, 8) from which a subspace iteration starts.

    They are the seven vectors (n, 7) of the previous search and a random one, or all random if `previous_block` is
    None. `n_searches` numbers the random vector.
    """
    if previous_block is None:
        streams = [Normal.PURSUIT + 2**30 + q for q in range(BLOCK_VECTORS)]
        return np.stack([random_normal(seed, stream, n) for stream in streams], axis=1)
    return np.column_stack([previous_block, random_normal(seed, Normal.PURSUIT + n_searches, n)])


def gram_matrix(block: Array) -> Floats:
    """Return the Gram matrix X'X of a block X, in float64."""
    block64 = block.astype(np.float64)
    return block64.T @ block64


def orthonormal_basis(block: Array, previous_vectors: Array) -> Array:
    """Compute an orthonormal basis (n, 8) of the columns of a block that is orthogonal to previous vectors (n, k).

    Two rounds of Cholesky QR are used. If the columns are linearly dependent, Householder QR is used instead, which
    completes the basis. With previous vectors dependent columns become zero instead, since the completion could lie in
    the span of these vectors. If n < 8, the columns beyond n are zero.
    """
    dtype, basis = block.dtype, project_out(previous_vectors, block)
    try:
        for _ in range(2):
            inverse = np.linalg.inv(np.linalg.cholesky(gram_matrix(basis))).T
            if np.abs(inverse).max() > np.finfo(dtype).max:
                raise np.linalg.LinAlgError("the columns are linearly dependent up to underflow")
            basis = project_out(previous_vectors, basis @ inverse.astype(dtype))
    except np.linalg.LinAlgError:
        basis, r = np.linalg.qr(project_out(previous_vectors, block))
        if previous_vectors.shape[1]:
            diagonal_size = np.abs(r.diagonal())
            basis[:, diagonal_size <= 100 * np.finfo(dtype).eps * diagonal_size.max()] = 0.0
        basis = np.pad(basis, ((0, 0), (0, BLOCK_VECTORS - basis.shape[1])))
    return basis


def project_out(orthonormal: Array, block: Array) -> Array:
    """Return a block minus its projection onto the columns of `orthonormal`; the block itself if there are none."""
    return block - orthonormal @ (orthonormal.T @ block) if orthonormal.shape[1] else block
