"""What item weights are made of: the rows of a sketch as an item matrix, and what the sketch has lost of each item.

The model of X'X is Z Q Z' + diag(lost). Z (items, t) are the rows of the sketch, one row for each item, as the sparse
engine keeps them anyway; Q takes the level of what was lost from every eigenvalue; lost_j puts back on the diagonal
what is then missing of the sum of squares of column j, which is known exactly.
"""

# pyright: reportPrivateUsage=false

from math import ldexp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._threads import one_blas_thread
from fastsketch.sketching._engines import AnyEngine, SparseEngine

Matrix = NDArray[np.float64]

# Items at a time: arrays in double for a block of them stay in the second cache.
BLOCK = 1024


class Reading(NamedTuple):
    """A model of X'X in stored units: one of them is `unit` squared units of the rows."""

    z: NDArray[Any]  # (items, t)
    root: Matrix  # (t, r), Q = root root'
    lost: Matrix  # (items,)
    unit: float

    @property
    def n_items(self) -> int:
        """Items."""
        return len(self.z)

    def with_items(self, squares: Matrix) -> "Reading":
        """The same for sums of squares of all columns (items,), in units of the rows."""
        return self._replace(lost=lost_of(self.z, self.root, squares / self.unit))


def read(engine: AnyEngine, squares: Matrix) -> Reading:
    """Read a clone of an engine, which is used up; `squares` (items,) of all columns, in units of the rows."""
    shrinkage = engine.shrinkage
    z = item_matrix(engine)
    removed = max(shrinkage, engine.shrinkage)
    values, vectors = eigh(gram_of(z))
    real = values > values.max(initial=0.0) * len(values) * np.finfo(np.float64).eps
    values, vectors = values[real], vectors[:, real]
    # a direction of this length is all noise, and the others hold as much of it: what one shrink of FD would take
    level = min(float(values.min(initial=np.inf)), removed)
    root = vectors * np.sqrt(np.maximum(1.0 - level / values, 0.0))
    root = np.ascontiguousarray(root[:, values > level])
    unit = ldexp(1.0, engine.exponent) ** 2
    return Reading(z, root, lost_of(z, root, squares / unit), unit)


def item_matrix(engine: AnyEngine) -> NDArray[Any]:
    """The rows of an engine, shrunk to those that a sketch keeps, as (items, t)."""
    if isinstance(engine, SparseEngine) and engine.setting.decay == 1.0:
        state = engine.state
        if state.fill > engine.most_rows(engine.setting):
            engine.flush()
        kept, n = state.kept, state.fill - state.kept
        if state.fill <= engine.z.shape[1]:
            z = engine.z
            z[:, kept:] = 0
            z[:, :kept] *= engine.gain[:kept].astype(z.dtype)
            own = engine.own_arrays()
            z[own["indices"], kept + np.repeat(np.arange(n), np.diff(own["indptr"]))] = own["data"]
            return z
    return np.ascontiguousarray(engine.reduce().T)


def blocks(n: int) -> list[slice]:
    """Of all items."""
    return [slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]


@one_blas_thread
def gram_of(z: NDArray[Any], diagonal: Matrix | None = None) -> Matrix:
    """Z' diag(1 / diagonal) Z (t, t) in double."""
    out = np.zeros((z.shape[1], z.shape[1]))
    for part in blocks(len(z)):
        here = z[part].astype(np.float64)
        # G += Z' diag(1 / D) Z
        out += here.T @ (here if diagonal is None else here / diagonal[part, np.newaxis])
    return (out + out.T) / 2


@one_blas_thread
def eigh(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """Eigenvalues and eigenvectors of a small symmetric matrix."""
    return np.linalg.eigh(matrix)


@one_blas_thread
def lost_of(z: NDArray[Any], root: Matrix, squares: Matrix) -> Matrix:
    """What a model of X'X lacks of the squares of the columns (items,), not below zero."""
    out = np.empty(len(z))
    for part in blocks(len(z)):
        # |Z root|^2 of every item
        here = z[part].astype(np.float64) @ root
        out[part] = squares[part] - np.einsum("ij,ij->i", here, here)
    return np.maximum(out, 0.0, out=out)
