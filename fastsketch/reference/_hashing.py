"""Sketching hashing as printed in the FROSH paper (Chen et al.), with an explicit Hadamard matrix.

Notation: rows F (m x d) of one chunk, B (l x d) the sketch (l is `size`), q = l / 2 sampled rows, r bits. `draw(t, m)`
returns for the t-th chunk the signs on the diagonal of D (m of +-1) and the q rows that S samples; so a test can hand
in the numbers that the fast version draws.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# (t, m) -> signs (m,) and sampled rows (q,)
Draw = Callable[[int, int], tuple[NDArray[Any], NDArray[Any]]]
# (B, mean, number of rows)
CentredSketch = tuple[Array, Array, int]
# (B, rows of F that wait, chunks done)
Chunks = tuple[Array, Array, int]


def hadamard(m: int) -> Array:
    """H_m of section 3.2 for m a power of two: [[H, H], [H, -H]], entries +-1."""
    h = np.ones((1, 1))
    while len(h) < m:
        h = np.block([[h, h], [h, -h]])
    return h


def subsampled_hadamard(f: Array, *, signs: NDArray[Any], sample: NDArray[Any]) -> Array:
    """Phi F = sqrt(m / q) S H D F with H = H_m / sqrt(m); rows beyond those of F are zero."""
    m, q = len(signs), len(sample)
    padded = np.zeros((m, f.shape[1]))
    padded[: len(f)] = f
    h = hadamard(m) / np.sqrt(m)
    return np.sqrt(m / q) * (h @ (signs[:, None] * padded))[sample]


def faster_frequent_directions(a: Array, size: int, *, m: int, draw: Draw, state: Chunks | None = None) -> Chunks:
    """Algorithm 2: FFD(A, B). Returns (B, rows of F that wait, chunks done); state: the result of an earlier call."""
    q = size // 2
    if state is None:
        state = np.zeros((size, a.shape[1])), np.zeros((0, a.shape[1])), 0  # 1-4
    b, f, t = state
    for row in a:  # 5: for i in [n]
        f = np.vstack([f, row])  # 6: insert into F
        if len(f) == m:  # 7: no zero row left
            signs, sample = draw(t, m)  # 8: Phi_t = S_t H D_t
            b[size - q :] = subsampled_hadamard(f, signs=signs, sample=sample)  # 9: into the last l/2 rows
            _, sigma, vt = np.linalg.svd(b, full_matrices=False)  # 10
            s = np.zeros(size)
            s[: len(sigma)] = sigma
            hat = np.sqrt(np.maximum(s**2 - s[q - 1] ** 2, 0.0))  # 11: sigma_{l/2} is subtracted
            b = np.zeros_like(b)
            b[: len(vt)] = hat[: len(vt), None] * vt  # 12
            f, t = np.zeros((0, a.shape[1])), t + 1  # 14
    return b, f, t


def _centred(blocks: Iterable[Array], take: Callable[[Array], None]) -> tuple[Array, int]:
    """Algorithm 1, steps 2 to 10: feed `take` with the blocks' centred rows; returns (mean, count)."""
    mean, tau = np.zeros(0), 0
    for block in blocks:
        mu, h = block.mean(axis=0), len(block)  # 2, 6
        rows = block - mu
        if tau == 0:
            mean = mu  # 3
        else:
            shift = np.sqrt(tau * h / (tau + h)) * (mu - mean)  # 7
            rows = np.vstack([rows, shift])  # 8
            mean = tau * mean / (tau + h) + h * mu / (tau + h)  # 9
        take(rows)  # 4, 8
        tau += h  # 10
    return mean, tau


def frosh_sketch(blocks: Iterable[Array], size: int, *, m: int, draw: Draw) -> CentredSketch:
    """Algorithm 1, steps 1 to 10. Returns (B, mean, n): rows that still wait in F are not in B."""
    state: Chunks | None = None

    def take(rows: Array) -> None:
        nonlocal state
        state = faster_frequent_directions(rows, size, m=m, draw=draw, state=state)

    mean, n = _centred(blocks, take)
    if state is None:
        raise ValueError("blocks must hold at least one block")
    return state[0], mean, n


def top_directions(b: Array, r: int) -> Array:
    """Algorithm 1, step 13: W, the top r right singular vectors of B, (d, r)."""
    return np.linalg.svd(b, full_matrices=False)[2][:r].T


def online_sketching_hashing(blocks: Iterable[Array], size: int) -> CentredSketch:
    """OSH (Leng et al. 2015): Algorithm 1 with Frequent Directions in place of FFD. Returns (B, mean, n)."""
    b = np.zeros((size, 0))

    def take(rows: Array) -> None:
        nonlocal b
        b = b if b.size else np.zeros((size, rows.shape[1]))
        for row in rows:
            if not (b == 0).all(axis=1).any():  # no zero row left: shrink at sigma_{l/2}
                _, sigma, vt = np.linalg.svd(b, full_matrices=False)
                hat = np.sqrt(np.maximum(sigma**2 - sigma[min(size // 2, len(sigma)) - 1] ** 2, 0.0))
                b = np.zeros_like(b)
                b[: len(vt)] = hat[:, None] * vt
            b[np.flatnonzero((b == 0).all(axis=1))[0]] = row

    mean, n = _centred(blocks, take)
    return b, mean, n


def distributed_frosh(parts: Sequence[CentredSketch], size: int) -> CentredSketch:
    """Algorithm 3, steps 4 to 13: parts are (B_i, mean_i, n_i); Frequent Directions on the stacked sketches.

    Returns (B, mean, n), B with at most size rows.
    """
    b, mean, n = parts[0]  # 4-6
    for other, mu, h in parts[1:]:  # 7
        shift = np.sqrt(n * h / (n + h)) * (mu - mean)  # 9
        stacked = np.vstack([b, other, shift])  # 10: sketch into B
        _, sigma, vt = np.linalg.svd(stacked, full_matrices=False)
        cut = sigma[size] ** 2 if len(sigma) > size else 0.0
        b = np.sqrt(np.maximum(sigma[:size] ** 2 - cut, 0.0))[:, None] * vt[:size]
        mean = n * mean / (n + h) + h * mu / (n + h)  # 11
        n += h  # 12
    return b, mean, n
