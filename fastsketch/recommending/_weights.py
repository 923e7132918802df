"""The weights of EASE out of a sketch: P = (V' diag(s2) V + diag(D))^-1 by Woodbury, kept as one thin matrix.

With W_j = V_j / D_j and M = (diag(1 / s2) + sum_j W_j V_j')^-1, the off-diagonal of P is -W_i M W_j', its diagonal
1 / D_j - W_j M W_j'. So the weight -P_ij / P_jj of item i in the score of item j is F_i . F_j times a number of j.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

# Items at a time: temporary arrays in double stay below a megabyte or two at l = 128, which a cache holds.
BLOCK = 2048


class ItemWeights(NamedTuple):
    """Item i has the weight F_i . F_j gain_j in the score of item j; no item has one in its own."""

    factors: NDArray[Any]  # F (items, r)
    gain: NDArray[Any]  # (items,)

    @property
    def n_items(self) -> int:
        """Items."""
        return len(self.gain)

    def projected(self, rows: Any) -> NDArray[Any]:
        """X F (k, r) of CSR rows (k, items)."""
        # y = x @ F
        return np.asarray(rows @ self.factors)

    def scores(self, rows: Any) -> NDArray[Any]:
        """(k, items) of CSR rows: a column j holds x_i F_i . F_j gain_j, summed over all i but j."""
        projected = self.projected(rows)
        out = np.empty((len(projected), self.n_items), self.factors.dtype)
        for start in range(0, self.n_items, BLOCK):
            part = slice(start, start + BLOCK)
            # z = (x F) F' gain
            np.matmul(projected, self.factors[part].T, out=out[:, part])
            out[:, part] *= self.gain[part]
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        out[owner, rows.indices] -= rows.data * self.own(rows.indices)
        return out

    def own(self, items: NDArray[Any]) -> NDArray[Any]:
        """F_j . F_j gain_j: what the products hold of an item's own."""
        f = self.factors[items]
        return np.einsum("ij,ij->i", f, f) * self.gain[items]

    def of_target(self, items: NDArray[Any], target: int) -> Matrix:
        """Weights of these items in the score of `target`, in double."""
        f = self.factors[items].astype(np.float64)
        out = f @ self.factors[target].astype(np.float64) * float(self.gain[target])
        out[items == target] = 0.0
        return out


def item_weights(vt: NDArray[Any], squares: Matrix, diagonal: Matrix | float, *, dtype: np.dtype[Any]) -> ItemWeights:
    """The weights of P = (vt' diag(squares) vt + diag(diagonal))^-1; vt (r, items) with orthonormal rows."""
    r, n = vt.shape
    spread = np.ndim(diagonal) > 0
    level = float(np.mean(diagonal))
    root = np.sqrt(squares)
    d = np.asarray(diagonal, np.float64) / level
    if spread:
        gram = np.zeros((r, r))
        for start in range(0, n, BLOCK):
            part = slice(start, start + BLOCK)
            v = vt[:, part].astype(np.float64)
            # G += V diag(1 / D) V'
            gram += v / d[part] @ v.T
        # C C' = I + S^1/2 G S^1/2, F = V' diag(1 / D) S^1/2 C^-T
        inner = np.eye(r) + root[:, np.newaxis] * gram * root / level
        turn = np.linalg.solve(np.linalg.cholesky(inner), np.diag(root / np.sqrt(level)))
    else:  # V V' = I
        turn = np.diag(np.sqrt(squares / (squares + level)))
    factors, gain = np.empty((n, r), dtype), np.empty(n, dtype)
    for start in range(0, n, BLOCK):
        part = slice(start, start + BLOCK)
        here = d[part] if spread else d
        f = (turn @ (vt[:, part].astype(np.float64) / here)).T
        # h = 1 - D |F|^2, gain = D / h
        factors[part] = f
        gain[part] = here / (1.0 - here * np.einsum("ij,ij->i", f, f))
    return ItemWeights(factors, gain)
