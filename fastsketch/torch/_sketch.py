"""The sketch of one tensor's gradients: rows on the tensor's device, all that is small in float64 on the CPU."""

from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsketch._kernels.online.adaptive import rank_one_update

Floats = NDArray[np.float64]

# A gradient of which a larger share (squared) is new becomes a row as it is: the effect of its neighbours' rounding on
# orthogonality grows with the inverse. Below NEW of its length nothing is new.
CLEAR = {torch.float64: 1e-4, torch.float32: 1e-2}
NEW = {torch.float64: 1e-10, torch.float32: 1e-5}
POLISH = 256  # turns between two corrections of T
# torch, for the functions that it declares without types.
UNTYPED: Any = torch
ON_CPU = ("turn", "lam", "gram")


class TensorSketch(TypedDict):
    """S'S = V diag(lam) V', V' = turn rows, gram = rows rows'; a dict, as torch saves the state of an optimiser."""

    rows: Tensor  # (cap, numel) on the tensor's device, in compute_dtype
    turn: Tensor  # (most, cap) float64 on the CPU, as are lam and gram
    lam: Tensor  # (most,) descending
    gram: Tensor  # (cap, cap)
    rank: int  # directions: the used rows of turn
    n_rows: int  # used rows of `rows`
    turns: int  # since the last polish


class _Small(NamedTuple):
    """The tensors on the CPU as arrays, which share their memory."""

    turn: Floats
    lam: Floats
    gram: Floats


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64 tensors, float32 for all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def shapes(numel: int, sketch_size: int, *, every_round: bool) -> tuple[int, int]:
    """(most, cap): largest rank, rows held."""
    most = min(numel, sketch_size if every_round else 2 * sketch_size)
    return most, 2 * sketch_size if every_round else most


def n_bytes(numel: int, sketch_size: int, *, every_round: bool, dtype: torch.dtype) -> int:
    """Bytes of the state of one tensor."""
    most, cap = shapes(numel, sketch_size, every_round=every_round)
    width = 8 if dtype == torch.float64 else 4
    return cap * numel * width + 8 * (most * cap + most + cap * cap)


def start(numel: int, sketch_size: int, *, every_round: bool, dtype: torch.dtype, device: torch.device) -> TensorSketch:
    """The sketch before the first gradient."""
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
    """Take the gradient g (numel,) into the sketch; returns H^-1 g, H = delta I + (S'S)^(1/2). square: |g|^2.

    ADA-FD shrinks in every round (every_round) and steps with the rest; ADA-FFD when 2 sketch_size directions are
    full, after the step: here before the next gradient comes, which is the same.
    """
    rows, small = state["rows"], _Small(state["turn"].numpy(), state["lam"].numpy(), state["gram"].numpy())
    turn, lam = small.turn, small.lam
    if not every_round and state["rank"] == 2 * sketch_size:
        lam[: sketch_size - 1] -= lam[sketch_size - 1]
        lam[sketch_size - 1 :] = 0
        _rebase(state, small, sketch_size - 1)
    elif state["n_rows"] == len(rows) and state["rank"] < len(rows):
        _rebase(state, small, state["rank"])
    p, y = _append(state, small, g=g, square=square)
    rank, n = state["rank"], state["n_rows"]
    if rank:
        rank_one_update(turn, lam, rank, n, y, 1.0)
        state["turns"] += 1
    if every_round and rank == sketch_size:
        lam[:rank] -= lam[rank - 1]
        rank -= 1
    state["rank"] = rank
    if state["turns"] >= POLISH:
        _polish(state, small, rank)
    root = np.sqrt(np.maximum(lam[:rank], 0))
    steps: Floats = (root / (delta + root) * (turn[:rank, :n] @ p[:n])) @ turn[:rank, :n]
    return (g - _large(steps, rows) @ rows[:n]) / delta


def _append(state: TensorSketch, small: _Small, *, g: Tensor, square: float) -> tuple[Floats, Floats]:
    """The new part of g becomes a row; returns (rows g, V'g), each with room for more."""
    rows, turn, lam, gram = state["rows"], small.turn, small.lam, small.gram
    rank, n = state["rank"], state["n_rows"]
    p, y = np.zeros(len(rows)), np.zeros(len(lam) + 1)
    p[:n] = _small(rows[:n] @ g)
    y[:rank] = turn[:rank, :n] @ p[:n]
    if rank == len(lam):
        return p, y
    rest = square - y[:rank] @ y[:rank]
    if rest > CLEAR[rows.dtype] * square:
        rows[n] = g
        gram[n, :n] = gram[:n, n] = p[:n]
        gram[n, n] = p[n] = square
        turn[:rank, n] = 0
        turn[rank, :n] = -(y[:rank] @ turn[:rank, :n]) / np.sqrt(rest)
        turn[rank, n] = 1 / np.sqrt(rest)
        lam[rank], y[rank] = 0, np.sqrt(rest)
    else:
        v = g.clone()
        for _ in range(2):
            inner = turn[:rank, :n] @ _small(rows[:n] @ v)
            v -= _large(turn[:rank, :n].T @ inner, rows) @ rows[:n]
        length = _length(v)
        if not length > NEW[rows.dtype] * np.sqrt(square):
            return p, y
        rows[n] = v / length
        gram[n, : n + 1] = gram[: n + 1, n] = _small(rows[: n + 1] @ rows[n])
        turn[:rank, n] = 0
        turn[rank, :n], turn[rank, n] = 0, 1
        p[n] = float(rows[n] @ g)
        lam[rank], y[rank] = 0, p[n]
    state["rank"], state["n_rows"] = rank + 1, n + 1
    return p, y


def _length(v: Tensor) -> float:
    return float(UNTYPED.linalg.vector_norm(v))


def _small(x: Tensor) -> Floats:
    return x.to("cpu", torch.float64).numpy()


def _large(x: Floats, rows: Tensor) -> Tensor:
    return UNTYPED.from_numpy(np.ascontiguousarray(x)).to(rows.device, rows.dtype)


def _polish(state: TensorSketch, small: _Small, rank: int) -> None:
    """T' <- (3/2 I - E/2) T', E = V'V: one Newton step for orthonormality."""
    n = state["n_rows"]
    kept = small.turn[:rank, :n]
    small.turn[:rank, :n] = (1.5 * np.eye(rank) - 0.5 * kept @ small.gram[:n, :n] @ kept.T) @ kept
    state["turns"] = 0


def _rebase(state: TensorSketch, small: _Small, rank: int) -> None:
    """rows <- V' of `rank` directions."""
    rows, n = state["rows"], state["n_rows"]
    small.gram[:n, :n] = _small(rows[:n] @ rows[:n].T)
    _polish(state, small, rank)
    rows[:rank] = _large(small.turn[:rank, :n], rows) @ rows[:n]
    rows[rank:] = 0
    for matrix in (small.turn, small.gram):
        matrix[:] = 0
        np.fill_diagonal(matrix[:rank, :rank], 1)
    state["rank"] = state["n_rows"] = rank
