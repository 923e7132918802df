"""The item weights of EASE out of a model of X'X: P = (Z Q Z' + D)^-1 by Woodbury, D diagonal.

With M = (Q^-1 + Z' D^-1 Z)^-1, P = D^-1 - D^-1 Z M Z' D^-1. So P_jj = h_j / D_j with h_j = 1 - Z_j' M Z_j / D_j, and
the weight -P_ij / P_jj of item i in the score of item j is (Z_i' M Z_j) / (D_i h_j): nothing larger than Z is needed.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.linalg.best import best_columns
from fastsketch._kernels.recommending import items as kernel
from fastsketch._threads import one_blas_thread
from fastsketch._validation import in_place
from fastsketch.recommending._events import owners
from fastsketch.recommending._reading import Matrix, Reading, blocks, gram_of

# Of D over its mean, and of h: what is smaller is rounding.
LEAST = 1e-12

Best = tuple[NDArray[np.int64], NDArray[np.float64]]


class ItemWeights(NamedTuple):
    """Item i has the weight given_i (Z_i' M Z_j) gain_j in the score of item j; no item has one in its own."""

    z: NDArray[Any]  # (items, t)
    inner: NDArray[Any]  # M (t, t), of the dtype of Z as all else
    given: NDArray[Any]  # (items,) 1 / D
    gain: NDArray[Any]  # (items,) 1 / h

    @property
    def n_items(self) -> int:
        """Items."""
        return len(self.z)

    def projected(self, rows: Any) -> NDArray[Any]:
        """X D^-1 Z M (k, t) of CSR rows X (k, items): scores are its products with Z, times gain."""
        indptr, indices = in_place(rows.indptr, np.int64), in_place(rows.indices, np.int32)
        return kernel.project(indptr, indices, rows.data * self.given[indices], self.z, self.inner)

    def scores(self, rows: Any) -> NDArray[Any]:
        """(k, items) of CSR rows: in column j what all items of the row but j contribute."""
        out = np.empty((rows.shape[0], self.n_items), self.z.dtype)
        kernel.scores(self.projected(rows), self.z, out, self.gain)
        owner = owners(rows)
        # an item's own weight would be 1 / h - 1
        out[owner, rows.indices] -= rows.data * (self.gain[rows.indices] - 1)
        return out

    def best(self, projected: NDArray[Any], n: int, *, left_out: Iterable[Any], allowed: NDArray[np.int32]) -> Best:
        """The n items of the highest score of each projected row, best first; -1 and -inf for none."""
        found = np.empty((len(projected), n), np.int64)
        values = np.empty(found.shape)
        best_columns(projected, self.z, found, values, scale=self.gain, left_out=left_out, allowed=allowed)
        return found, values

    @one_blas_thread
    def of_target(self, items: NDArray[np.int64], target: int) -> Matrix:
        """Weights of these items in the score of `target`, in double."""
        here = self.z[items].astype(np.float64) * self.given[items].astype(np.float64)[:, np.newaxis]
        out = here @ (self.inner.astype(np.float64) @ self.z[target].astype(np.float64)) * float(self.gain[target])
        return np.where(items == target, 0.0, out)


def item_weights(reading: Reading, ridge: float) -> ItemWeights:
    """The weights at a ridge, in squared units of the rows.

    Two passes over Z, 4 items t^2 flops: what the sketch has lost differs from item to item, and with it D.
    """
    z, root = reading.z, reading.root
    d = reading.lost + ridge / reading.unit
    # D over its mean: so nothing leaves the range of float32
    level = float(d.mean())
    d = np.maximum(d / level, LEAST)
    inner = (inner_of(gram_of(z, d) / level, root) / level).astype(z.dtype)
    h = 1.0 - quadratic(z, inner) / d
    return ItemWeights(z, inner, (1.0 / d).astype(z.dtype), (1.0 / np.maximum(h, LEAST)).astype(z.dtype))


@one_blas_thread
def inner_of(gram: Matrix, root: Matrix) -> Matrix:
    """M = (Q^-1 + G)^-1 for Q = root root'."""
    # root (I + root' G root)^-1 root'
    turned = root.T @ gram @ root
    turned[np.diag_indices_from(turned)] += 1.0
    half = np.linalg.solve(np.linalg.cholesky((turned + turned.T) / 2), root.T)
    return half.T @ half


@one_blas_thread
def quadratic(z: NDArray[Any], inner: NDArray[Any]) -> Matrix:
    """Z_j' M Z_j of every item (items,)."""
    out = np.empty(len(z))
    for part in blocks(len(z)):
        here = z[part]
        out[part] = np.einsum("ij,ij->i", here @ inner, here)
    return out
