"""The sketch of one tensor's gradients: rows on the tensor's device, all that is small in float64 on the CPU."""

import numpy as np
import torch

from fastsketch._kernels.adaptive import rank_one_update

# A gradient of which a larger share (squared) is new becomes a row as it is: what its neighbours' rounding does to
# orthogonality grows with the inverse. Below NEW of its length nothing is new.
CLEAR = {torch.float64: 1e-4, torch.float32: 1e-2}
NEW = {torch.float64: 1e-10, torch.float32: 1e-5}
POLISH = 256  # turns between two corrections of T
TENSORS = ("rows", "turn", "lam", "gram")


def compute_dtype(dtype):
    """float64 for float64 tensors, float32 for all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def shapes(numel, sketch_size, every_round):
    """(most, cap): largest rank, rows held."""
    most = min(numel, sketch_size if every_round else 2 * sketch_size)
    return most, 2 * sketch_size if every_round else most


def n_bytes(numel, sketch_size, every_round, dtype):
    """Bytes of the state of one tensor."""
    most, cap = shapes(numel, sketch_size, every_round)
    width = 8 if dtype == torch.float64 else 4
    return cap * numel * width + 8 * (most * cap + most + cap * cap)


def start(numel, sketch_size, every_round, dtype, device):
    """A state dict: S'S = V diag(lam) V', V' = turn rows, gram = rows rows'."""
    most, cap = shapes(numel, sketch_size, every_round)
    return {
        "rows": torch.zeros(cap, numel, dtype=compute_dtype(dtype), device=device),
        "turn": torch.zeros(most, cap, dtype=torch.float64),
        "lam": torch.zeros(most, dtype=torch.float64),
        "gram": torch.zeros(cap, cap, dtype=torch.float64),
        "rank": 0,
        "n_rows": 0,
        "turns": 0,
    }


def direction(state, g, square, sketch_size, every_round, delta):
    """Take the gradient g (numel,) into the sketch; returns H^-1 g, H = delta I + (S'S)^(1/2).

    ADA-FD shrinks in every round (every_round) and steps with what is left; ADA-FFD when 2 sketch_size directions are
    full, after the step: here before the next gradient comes, which is the same.
    """
    rows, turn, lam, gram = (state[name] for name in TENSORS)
    turn, lam, gram = turn.numpy(), lam.numpy(), gram.numpy()
    cap, numel = rows.shape
    most, rank = len(lam), state["rank"]
    if not every_round and rank == 2 * sketch_size:
        lam[: sketch_size - 1] -= lam[sketch_size - 1]
        lam[sketch_size - 1 :] = 0
        _rebase(state, sketch_size - 1)
    elif state["n_rows"] == cap and rank < cap:
        _rebase(state, rank)
    rank, n = state["rank"], state["n_rows"]
    p = np.zeros(cap)
    p[:n] = _small(rows[:n] @ g)
    y = np.zeros(most + 1)
    y[:rank] = turn[:rank, :n] @ p[:n]
    if rank < most:
        rest = square - y[:rank] @ y[:rank]
        if rest > CLEAR[rows.dtype] * square:
            rows[n] = g
            gram[n, :n] = gram[:n, n] = p[:n]
            gram[n, n] = p[n] = square
            turn[:rank, n] = 0
            turn[rank, :n] = -(y[:rank] @ turn[:rank, :n]) / np.sqrt(rest)
            turn[rank, n] = 1 / np.sqrt(rest)
            lam[rank], y[rank] = 0, np.sqrt(rest)
            rank, n = rank + 1, n + 1
        else:
            v = g.clone()
            for _ in range(2):
                inner = turn[:rank, :n] @ _small(rows[:n] @ v)
                v -= _large(turn[:rank, :n].T @ inner, rows) @ rows[:n]
            length = float(torch.linalg.vector_norm(v))
            if length > NEW[rows.dtype] * np.sqrt(square):
                rows[n] = v / length
                gram[n, : n + 1] = gram[: n + 1, n] = _small(rows[: n + 1] @ rows[n])
                turn[:rank, n] = 0
                turn[rank, :n], turn[rank, n] = 0, 1
                p[n] = float(rows[n] @ g)
                lam[rank], y[rank] = 0, p[n]
                rank, n = rank + 1, n + 1
    if rank:
        rank_one_update(turn, lam, rank, n, y, 1.0)
        state["turns"] += 1
    if every_round and rank == sketch_size:
        lam[:rank] -= lam[rank - 1]
        rank -= 1
    state["rank"], state["n_rows"] = rank, n
    if state["turns"] >= POLISH:
        _polish(state, rank)
    root = np.sqrt(np.maximum(lam[:rank], 0))
    coef = (root / (delta + root) * (turn[:rank, :n] @ p[:n])) @ turn[:rank, :n]
    return (g - _large(coef, rows) @ rows[:n]) / delta


def _small(x):
    return x.to("cpu", torch.float64).numpy()


def _large(x, rows):
    return torch.from_numpy(np.ascontiguousarray(x)).to(rows.device, rows.dtype)


def _polish(state, rank):
    """T' <- (3/2 I - E/2) T', E = V'V: one Newton step for orthonormality."""
    n = state["n_rows"]
    turn, gram = state["turn"].numpy(), state["gram"].numpy()[:n, :n]
    kept = turn[:rank, :n]
    turn[:rank, :n] = (1.5 * np.eye(rank) - 0.5 * kept @ gram @ kept.T) @ kept
    state["turns"] = 0


def _rebase(state, rank):
    """rows <- V' of `rank` directions."""
    rows, n = state["rows"], state["n_rows"]
    turn, gram = state["turn"].numpy(), state["gram"].numpy()
    gram[:n, :n] = _small(rows[:n] @ rows[:n].T)
    _polish(state, rank)
    rows[:rank] = _large(turn[:rank, :n], rows) @ rows[:n]
    rows[rank:] = 0
    for small in (turn, gram):
        small[:] = 0
        np.fill_diagonal(small[:rank, :rank], 1)
    state["rank"] = state["n_rows"] = rank
