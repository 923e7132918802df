"""The leading singular triplet of a gradient, by subspace iteration on eight vectors.

The matrix has the values `a` of a state at the entries. Eight vectors cost little more than one: seven begin where the
last search left them, near the singular vectors that come next; one is random, for what they cannot see.
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

# Vectors of the block, as the compiled loop has them.
BLOCK = 8


class Triplet(NamedTuple):
    """A singular value and its vectors."""

    u: Array  # (m,) whose largest entry is positive: one sign for all machines
    s: float
    v: Array  # (n,)


@one_blas_thread
def leading_triplet(
    observations: Entries, values: Array, start: Array, found: Array, *, iterations: int, tolerance: float
) -> tuple[Triplet, Array] | None:
    """Find the leading singular triplet of a matrix A, less those of the right singular vectors `found` (n, k).

    Returns the triplet, and (n, 7) directions near the right vectors after it; None if what is left is zero.

    Parameters
    ----------
    observations : Entries
        Where A has its entries.
    values : (nnz,) array
        The entries.
    start : (n, 8) array
        The vectors that the iteration begins with, in any scale.
    found : (n, k) array
        Orthonormal.
    iterations, tolerance : int, float
        Iterations end when the right vector turns by at most `tolerance` (sine of the angle), or after their number.
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
    """Return eight directions (n, 8): random ones, or the seven of `last` (n, 7) and a random one.

    `number` is that of the search in the fit.
    """
    if last is None:
        streams = [Normal.PURSUIT + 2**30 + q for q in range(BLOCK)]
        return np.stack([random_normal(seed, stream, n) for stream in streams], axis=1)
    return np.column_stack([last, random_normal(seed, Normal.PURSUIT + number, n)])


def _gram(block: Array) -> Floats:
    """Return X'X in float64."""
    wide = block.astype(np.float64)
    return wide.T @ wide


def _orthonormal(block: Array, found: Array) -> Array:
    """Return an orthonormal basis (n, 8) of the columns of a block, orthogonal to `found`: by Cholesky twice.

    Where columns depend on each other Householder's method completes the basis; with `found`, whose directions it could
    bring back, such columns are 0 instead, and so are those beyond n.
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
    """Return a block less its projection on the orthonormal columns `found`."""
    return block - found @ (found.T @ block) if found.shape[1] else block
