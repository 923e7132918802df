"""Frequent Directions and its family as printed in the RFD paper (Luo et al., JMLR 20, 2019) and in Desai et al. 2016.

Notation: A (T x d) is the whole stream, m the sketch size (l elsewhere in the library), sigma_1 >= sigma_2 >= ... .
Every function returns the output of its algorithm, with the certificate Delta = sum of the sigma_m^2 removed last.
A stream of fewer than m rows is its own sketch, as the algorithms' inputs imply.
"""

from collections.abc import Iterable
from math import ceil, floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def _svd(b_hat: Array, m: int) -> tuple[Array, Array]:
    """Singular values (padded with zeros to length m) and right singular vectors (m - 1 rows, padded likewise)."""
    _, s, vt = np.linalg.svd(b_hat, full_matrices=False)
    sigma = np.zeros(max(m, len(s)))
    sigma[: len(s)] = s
    v = np.zeros((m - 1, b_hat.shape[1]))
    v[: min(m - 1, len(s))] = vt[: m - 1]
    return sigma, v


def frequent_directions(a: Array, m: int) -> tuple[Array, float]:
    """RFD paper, Algorithm 1: Frequent Directions, one shrink a row. Returns (B, Delta)."""
    b, delta = a[: m - 1].copy(), 0.0  # 1: B^(m-1) = first m-1 rows
    for t in range(m - 1, len(a)):  # 2: for t = m..T
        b_hat = np.vstack([b, a[t]])  # 3: append row t
        sigma, v = _svd(b_hat, m)  # 4: SVD
        b = np.sqrt(sigma[: m - 1] ** 2 - sigma[m - 1] ** 2)[:, None] * v  # 5: sqrt(S^2 - sigma_m^2 I) V'
        delta += sigma[m - 1] ** 2
    return b, delta


def robust_frequent_directions(a: Array, m: int, *, alpha0: float = 0.0) -> tuple[Array, float, float]:
    """RFD paper, Algorithm 2: Robust Frequent Directions. Returns (B, alpha, Delta)."""
    b, alpha, delta = a[: m - 1].copy(), alpha0, 0.0  # 1: alpha^(m-1) = alpha0
    for t in range(m - 1, len(a)):  # 2
        b_hat = np.vstack([b, a[t]])  # 3
        sigma, v = _svd(b_hat, m)  # 4
        b = np.sqrt(sigma[: m - 1] ** 2 - sigma[m - 1] ** 2)[:, None] * v  # 5
        alpha += sigma[m - 1] ** 2 / 2  # 6: alpha += sigma_m^2 / 2
        delta += sigma[m - 1] ** 2
    return b, alpha, delta


def fast_frequent_directions(a: Array, m: int) -> tuple[Array, float]:
    """RFD paper, Algorithm 4: Fast FD, a shrink whenever the doubled buffer has 2m rows. Returns (B, Delta).

    B has up to 2m - 1 rows: the algorithm does not flush at its end.
    """
    b, delta = a[: m - 1].copy(), 0.0  # 1
    for t in range(m - 1, len(a)):  # 2
        b_hat = np.vstack([b, a[t]])  # 3
        if len(b_hat) == 2 * m:  # 4: if it has 2m rows
            sigma, v = _svd(b_hat, m)  # 5
            b = np.sqrt(sigma[: m - 1] ** 2 - sigma[m - 1] ** 2)[:, None] * v  # 6
            delta += sigma[m - 1] ** 2
        else:  # 7
            b = b_hat  # 8
    return b, delta


def fast_robust_frequent_directions(a: Array, m: int, *, alpha0: float = 0.0) -> tuple[Array, float, float]:
    """RFD paper, Algorithm 5: Fast RFD. Returns (B, alpha, Delta); B has up to 2m - 1 rows."""
    b, alpha, delta = a[: m - 1].copy(), alpha0, 0.0  # 1
    for t in range(m - 1, len(a)):  # 2
        b_hat = np.vstack([b, a[t]])  # 3
        if len(b_hat) == 2 * m:  # 4
            sigma, v = _svd(b_hat, m)  # 5
            b = np.sqrt(sigma[: m - 1] ** 2 - sigma[m - 1] ** 2)[:, None] * v  # 6
            alpha += sigma[m - 1] ** 2 / 2  # 7
            delta += sigma[m - 1] ** 2
        else:  # 8
            b = b_hat  # 9, 10: alpha stays
    return b, alpha, delta


def growing_frequent_directions(
    a: Array, m: int, *, tolerance: float, share: float, factor: float, counts: float = 0.5, of_largest: bool = False
) -> tuple[Array, float, int]:
    """Fast FD whose m grows so that counts Delta <= tolerance ||A||_F^2 (or sigma_1^2) at any moment.

    Returns (B, Delta, m): B of the fewest rows that meet the tolerance, and the m in use. A shrink is not made where
    Delta would go beyond `share` of what the rows so far allow; m then becomes the smallest that keeps it within, and
    at least `factor` m.
    """

    def fits(squares: NDArray[Any], size: int, part: float) -> bool:
        """Whether a shrink to size - 1 rows leaves Delta within this part of the tolerance."""
        removed = squares[size - 1] if size <= len(squares) else 0.0
        whole = max(squares[0] - removed, 0.0) if of_largest else norm
        return counts * (delta + removed) <= part * tolerance * whole

    def smallest(squares: NDArray[Any], part: float) -> int:
        return next(size for size in range(2, len(squares) + 2) if fits(squares, size, part))

    def shrunk(size: int) -> tuple[Array, float]:
        sigma, v = _svd(b, size)
        return np.sqrt(sigma[: size - 1] ** 2 - sigma[size - 1] ** 2)[:, None] * v, sigma[size - 1] ** 2

    b, delta, norm = a[:0], 0.0, 0.0
    for row in a:
        b, norm = np.vstack([b, row]), norm + row @ row
        if len(b) == 2 * m:
            squares = np.linalg.svd(b, compute_uv=False) ** 2
            if fits(squares, m, share) or m > len(row):
                b, removed = shrunk(m)
                delta += removed
            else:
                m = min(max(ceil(factor * m), m + 1, smallest(squares, share)), len(row) + 1)
    size = smallest(np.linalg.svd(b, compute_uv=False) ** 2, 1.0)
    if len(b) > size:
        b, removed = shrunk(size)
        delta += removed
    return b, delta, m


def robust_frequent_directions_blocks(
    blocks: Iterable[Array], m: int, *, alpha0: float = 0.0
) -> tuple[Array, float, float]:
    """RFD paper, Algorithm 7: Fast RFD on blocks A^(1), A^(2), ... of rows. Returns (B, alpha, Delta).

    The first block is taken as it is, every further one is followed by a shrink.
    """
    blocks = iter(blocks)
    b, alpha, delta = next(blocks).copy(), alpha0, 0.0  # 1: B^(1) = A^(1)
    for block in blocks:  # 2: for t' = 2..T'
        b_hat = np.vstack([b, block])  # 3
        sigma, v = _svd(b_hat, m)  # 4
        b = np.sqrt(sigma[: m - 1] ** 2 - sigma[m - 1] ** 2)[:, None] * v  # 5
        alpha += sigma[m - 1] ** 2 / 2  # 6
        delta += sigma[m - 1] ** 2
    return b, alpha, delta


def greedy_low_rank(a: Array, m: int) -> tuple[Array, float]:
    """RFD paper, Algorithm 8: greedy low-rank approximation (iterative SVD). Returns (B, Delta); no guarantee."""
    b, delta = a[: m - 1].copy(), 0.0  # 1
    for t in range(m - 1, len(a)):  # 2
        b_hat = np.vstack([b, a[t]])  # 3
        sigma, v = _svd(b_hat, m)  # 4
        b = sigma[: m - 1][:, None] * v  # 5: S_{m-1} V'_{m-1}
        delta += sigma[m - 1] ** 2
    return b, delta


def parameterized_frequent_directions(a: Array, m: int, *, beta: float) -> tuple[Array, float]:
    """Desai, Ghashami, Phillips 2016, PFD-beta: only the last floor(beta m) of m rows are shrunk. Returns (B, Delta).

    beta = 1 is Algorithm 1, beta = 0 is Algorithm 8.
    """
    spared = min(m - floor(beta * m), m - 1)
    b, delta = a[: m - 1].copy(), 0.0
    for t in range(m - 1, len(a)):
        sigma, v = _svd(np.vstack([b, a[t]]), m)
        squares = sigma[: m - 1] ** 2
        squares[spared:] -= sigma[m - 1] ** 2
        b = np.sqrt(squares)[:, None] * v
        delta += sigma[m - 1] ** 2
    return b, delta


def compensative_frequent_directions(a: Array, m: int) -> tuple[Array, float]:
    """Desai, Ghashami, Phillips 2016, CFD: FD, then Delta is added to all squared lengths. Returns (B, Delta)."""
    b, delta = frequent_directions(a, m)
    _, s, vt = np.linalg.svd(b, full_matrices=False)
    has = s > s.max(initial=0.0) * np.finfo(float).eps  # directions that B does have
    return np.sqrt(s[has] ** 2 + delta)[:, None] * vt[has], delta
