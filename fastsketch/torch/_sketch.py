"""Sketch of one tensor's gradients: rows on the tensor's device, everything small in float64 on the CPU."""

from typing import TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsketch._kernels.online.numbers import EVERY_ROUND, WHEN_FULL
from fastsketch._kernels.online.turning import CLEAR_SHARE, NEW_SHARE, SmallSpace
from fastsketch.torch._base import UNTYPED, compute_dtype

Floats = NDArray[np.float64]

# A gradient of which a larger share (squared) is new becomes a row as it is: the effect of its neighbours' rounding on
# orthogonality grows with the inverse. Below NEW of its length nothing is new.
CLEAR = {torch.float64: CLEAR_SHARE, torch.float32: 1e-2}
NEW = {torch.float64: NEW_SHARE, torch.float32: 1e-5}
ON_CPU = ("turn", "lam", "gram")


class TensorSketch(TypedDict):
    """Sketch S'S = V diag(lam) V', V' = turn rows, gram = rows rows'; a dict, as torch saves an optimiser's state."""

    rows: Tensor  # (cap, numel) on the tensor's device, in compute_dtype
    turn: Tensor  # (most, cap) float64 on the CPU, as are lam and gram
    lam: Tensor  # (most,) descending
    gram: Tensor  # (cap, cap)
    rank: int  # directions: the used rows of turn
    n_rows: int  # used rows of `rows`
    turns: int  # since the last polish


def shapes(numel: int, sketch_size: int, *, every_round: bool) -> tuple[int, int]:
    """Return (most, cap): largest rank, rows held."""
    most = min(numel, sketch_size if every_round else 2 * sketch_size)
    return most, 2 * sketch_size if every_round else most


def start(numel: int, sketch_size: int, *, every_round: bool, dtype: torch.dtype, device: torch.device) -> TensorSketch:
    """Return the sketch before the first gradient."""
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
    """Take the gradient g (numel,) into the sketch; return H^-1 g, H = delta I + (S'S)^(1/2). square: |g|^2.

    ADA-FD shrinks in every round (every_round) and steps with the rest; ADA-FFD when 2 sketch_size directions are
    full, after the step: here before the next gradient comes, which is the same.
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
    """Append the new part of g as a row; return rows g, with y = V'g in `small`."""
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
    return float(UNTYPED.linalg.vector_norm(v))


def _small(x: Tensor) -> Floats:
    return x.to("cpu", torch.float64).numpy()


def _large(x: Floats, rows: Tensor) -> Tensor:
    return UNTYPED.from_numpy(np.ascontiguousarray(x)).to(rows.device, rows.dtype)


def _rebase(state: TensorSketch, small: SmallSpace) -> None:
    """Set rows <- V'."""
    rows, rank, n = state["rows"], small.rank, small.n_rows
    state["gram"].numpy()[:n, :n] = _small(rows[:n] @ rows[:n].T)
    small.polish()
    rows[:rank] = _large(state["turn"].numpy()[:rank, :n], rows) @ rows[:n]
    rows[rank:] = 0
    small.rebased()
