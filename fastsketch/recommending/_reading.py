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
from fastsketch.sketching._by_feature import reads_by_feature
from fastsketch.sketching._engines import AnyEngine, SparseEngine

Matrix = NDArray[np.float64]

# Items at a time, whose products are summed up in double: a block of them stays in the second cache.
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
    real = values > values.max(initial=0.0) * len(values) * np.finfo(z.dtype).eps
    values, vectors = values[real], vectors[:, real]
    # a direction of this length is all noise, and the others hold as much of it: what one shrink of FD would take
    level = min(float(values.min(initial=np.inf)), removed)
    root = vectors * np.sqrt(np.maximum(1.0 - level / values, 0.0))
    root = np.ascontiguousarray(root[:, values > level])
    unit = ldexp(1.0, engine.exponent) ** 2
    return Reading(z, root, lost_of(z, root, squares / unit), unit)


def item_matrix(engine: AnyEngine) -> NDArray[Any]:
    """The rows of an engine, shrunk to those that a sketch keeps, as (items, t)."""
    if not (isinstance(engine, SparseEngine) and reads_by_feature(engine)):
        return np.ascontiguousarray(engine.reduce().T)
    width = engine.columns().shape[1]
    z, kept = engine.z, engine.state.kept
    z[:, :kept] *= engine.gain[:kept].astype(z.dtype)
    z[:, width:] = 0  # a kernel reads whole rows
    return z


def blocks(n: int) -> list[slice]:
    """Of all items."""
    return [slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]


@one_blas_thread
def gram_of(z: NDArray[Any], diagonal: Matrix | None = None) -> Matrix:
    """Z' diag(1 / diagonal) Z (t, t) in double."""
    out = np.zeros((z.shape[1], z.shape[1]))
    by = None if diagonal is None else (1.0 / diagonal).astype(z.dtype)
    for part in blocks(len(z)):
        here = z[part]
        # G += Z' diag(1 / D) Z
        out += here.T @ (here if by is None else here * by[part, np.newaxis])
    return (out + out.T) / 2


@one_blas_thread
def eigh(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """Eigenvalues and eigenvectors of a small symmetric matrix."""
    return np.linalg.eigh(matrix)


@one_blas_thread
def lost_of(z: NDArray[Any], root: Matrix, squares: Matrix) -> Matrix:
    """What a model of X'X lacks of the squares of the columns (items,), not below zero."""
    out, root = np.empty(len(z)), root.astype(z.dtype)
    for part in blocks(len(z)):
        # |Z root|^2 of every item
        here = z[part] @ root
        out[part] = squares[part] - np.einsum("ij,ij->i", here, here)
    return np.maximum(out, 0.0, out=out)
