"""Frequent Directions sketch of one tensor's gradients, with large arrays on its device and small ones on the CPU."""

from typing import TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsketch._kernels.online.numbers import EVERY_ROUND, WHEN_FULL
from fastsketch._kernels.online.turning import CLEAR_SHARE, NEW_SHARE, SmallSpace
from fastsketch.torch._base import UNTYPED, compute_dtype

Floats = NDArray[np.float64]

# If more than the share CLEAR of a gradient's square is outside the span of the rows, the gradient becomes a row as it
# is; rounding of the other rows affects orthogonality by the inverse of that share. Otherwise its orthogonal part
# becomes a row, if that is longer than NEW times the gradient.
CLEAR = {torch.float64: CLEAR_SHARE, torch.float32: 1e-2}
NEW = {torch.float64: NEW_SHARE, torch.float32: 1e-5}
ON_CPU = ("turn", "lam", "gram")


class TensorSketch(TypedDict):
    """Frequent Directions sketch of the gradients of one tensor.

    It represents S'S = V diag(lam) V' with V' = turn rows and gram = rows rows'.

    A dict, as torch saves the state of an optimizer.
    """

    rows: Tensor  # (cap, numel) on the tensor's device, in compute_dtype
    turn: Tensor  # (most, cap) float64 on the CPU, as are lam and gram
    lam: Tensor  # (most,) descending
    gram: Tensor  # (cap, cap)
    rank: int  # number of directions, the used rows of `turn`
    n_rows: int  # number of used rows of `rows`
    turns: int  # rotations since the last orthogonalisation


def shapes(numel: int, sketch_size: int, *, every_round: bool) -> tuple[int, int]:
    """Return the largest rank of the sketch, and the number of rows that it stores."""
    most = min(numel, sketch_size if every_round else 2 * sketch_size)
    return most, 2 * sketch_size if every_round else most


def start(numel: int, sketch_size: int, *, every_round: bool, dtype: torch.dtype, device: torch.device) -> TensorSketch:
    """Return an empty sketch, before the first gradient."""
    most, cap = shapes(numel, sketch_size, every_round=every_round)
    return {
        "rows": torch.zeros(cap, numel, dtype=compute_dtype(dtype), device=device),
        "turn": torch.zeros(most, cap, dtype=torch.float64),
        "lam": torch.zeros(most, dtype=torch.float64),
        "gram": torch.zeros(cap, cap, dtype=torch.float64),
        "rank": 0,
        "n_rows": 0,
        "turns": 0,
    }


def direction(
    state: TensorSketch, g: Tensor, *, square: float, sketch_size: int, every_round: bool, delta: float
) -> Tensor:
    """Update the sketch in place with a gradient g, and return the preconditioned gradient H^-1 g.

    Here H = delta I + (S'S)^(1/2), and g has shape (numel,).

    ADA-FD (`every_round`) shrinks in every step, and the step uses the sketch after the shrink. ADA-FFD shrinks when 2
    sketch_size directions are full, after the step; here this happens before the next gradient, with the same result.
    `square` is |g|^2.
    """
    rows = state["rows"]
    small = SmallSpace(
        state["turn"].numpy(),
        state["lam"].numpy(),
        state["gram"].numpy(),
        rule=EVERY_ROUND if every_round else WHEN_FULL,
        sketch_size=sketch_size,
        rank=state["rank"],
        n_rows=state["n_rows"],
        turns=state["turns"],
    )
    if small.must_rebase():
        _rebase(state, small)
    p = _append(state, small, g=g, square=square)
    small.take_gradient()
    state["rank"], state["n_rows"], state["turns"] = small.rank, small.n_rows, small.turns
    steps = small.within(p, delta)
    return (g - _large(steps, rows) @ rows[: len(steps)]) / delta


def _append(state: TensorSketch, small: SmallSpace, *, g: Tensor, square: float) -> Floats:
    """Append the part of a gradient outside the sketch's span as a new row; return the rows times the gradient.

    `state` and `small` are changed in place; `small` also gets y = V'g. Nothing is appended if that part is negligible,
    or the sketch is full.
    """
    rows, n = state["rows"], small.n_rows
    p = np.zeros(len(rows))
    p[:n] = _small(rows[:n] @ g)
    rest = square - small.project(p)
    if small.rank == len(state["lam"]):
        return p
    if rest > CLEAR[rows.dtype] * square:
        rows[n], p[n] = g, square
        small.append(p, square, np.sqrt(rest))
        return p
    v = g.clone()
    for _ in range(2):
        v -= _large(small.within(_small(rows[:n] @ v)), rows) @ rows[:n]
    length = _length(v)
    if length > NEW[rows.dtype] * np.sqrt(square):
        rows[n] = v / length
        products = _small(rows[: n + 1] @ rows[n])
        p[n] = float(rows[n] @ g)
        small.project(p)
        small.append(products, products[n], p[n], unit=True)
    else:
        small.project(p)
    return p


def _length(v: Tensor) -> float:
    """Compute the Euclidean norm of a tensor."""
    return float(UNTYPED.linalg.vector_norm(v))


def _small(x: Tensor) -> Floats:
    """Copy a tensor to the CPU as a float64 array."""
    return x.to("cpu", torch.float64).numpy()


def _large(x: Floats, rows: Tensor) -> Tensor:
    """Copy a float64 array to the device and dtype of the rows."""
    return UNTYPED.from_numpy(np.ascontiguousarray(x)).to(rows.device, rows.dtype)


def _rebase(state: TensorSketch, small: SmallSpace) -> None:
    """Replace the stored rows of the sketch by its orthonormal directions, in place: `state` and `small` change."""
    rows, rank, n = state["rows"], small.rank, small.n_rows
    state["gram"].numpy()[:n, :n] = _small(rows[:n] @ rows[:n].T)
    small.polish()
    rows[:rank] = _large(state["turn"].numpy()[:rank, :n], rows) @ rows[:n]
    rows[rank:] = 0
    small.rebased()
