"""The leading singular vectors of a sparse matrix: by subspace iteration on eight vectors, or by the power method."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastsketch._kernels.linalg.block import BLOCK, gram_block
from fastsketch._kernels.lowrank import products as kernel
from fastsketch._random import Normal, random_normal
from fastsketch.lowrank._data import Array, Observed

# Iterations stop when v turns by less than this (sine of the angle), or after the number asked for.
TURNED = 1e-3


class Triplet(NamedTuple):
    """A singular value and its vectors."""

    u: Array  # (m,), its largest entry positive: one sign for all machines
    s: float
    v: Array  # (n,)


class Found(NamedTuple):
    """The leading triplet, and (n, 8) an orthonormal basis in which those after it will be found."""

    triplet: Triplet
    block: Array


def block_start(seed: int, n: int, last: Array | None, extra: Array) -> Array:
    """Eight directions to begin with: random ones, or seven of the last search and `extra`."""
    if last is None:
        return np.stack([random_normal(seed, Normal.PURSUIT + 2**30 + q, n) for q in range(BLOCK)], axis=1)
    return np.column_stack([last[:, 1:], extra])


def leading_of_eight(data: Observed, a: Array, start: Array, *, iterations: int) -> Found | None:
    """The leading triplet of the matrix with values a where `data` has entries; None if it is zero.

    Eight vectors cost little more than one. Of `start` (n, 8) seven begin where the last rank left them, near the
    singular vectors that come next; one is random, for what they cannot see.
    """
    dtype = data.o.dtype
    u, w = np.empty((data.m, BLOCK), dtype), np.empty((data.n, BLOCK), dtype)
    v = _orthonormal(start.astype(dtype))
    y, ritz = v[:BLOCK], v[:, 0]
    for _ in range(iterations):
        gram_block(*data.where, a, v, u, w)
        values, vectors = np.linalg.eigh((u.T @ u).astype(np.float64))
        y = vectors[:, ::-1].astype(dtype)
        top = float(values[-1])
        if not top > 0:
            return None
        rest = w @ y[:, 0] - dtype.type(top) * (v @ y[:, 0])
        ritz = v @ y[:, 0]
        if float(rest @ rest) <= (TURNED * top) ** 2:
            break
        v = _orthonormal(w @ y)
    block = _orthonormal(w @ y)
    left = u @ y[:, 0]
    s = float(np.linalg.norm(left))
    return Found(_signed(left / s, s, ritz), block)


def leading(
    data: Observed, a: Array, start: Array, *, iterations: int, minus: Sequence[Triplet] = ()
) -> Triplet | None:
    """The leading triplet of that matrix less sum s_q u_q v_q' over `minus`, by the power method from v = start."""
    dtype = data.o.dtype
    u, w = np.empty(data.m, dtype), np.empty(data.n, dtype)
    v = start / (np.linalg.norm(start) or 1)
    for _ in range(iterations):
        if minus:
            kernel.times(*data.where, a, v, u)
            for uq, sq, vq in minus:
                u -= sq * (vq @ v) * uq
            kernel.transposed_times(*data.where, a, u, w)
            for uq, sq, vq in minus:
                w -= sq * (uq @ u) * vq
        else:
            kernel.gram_product(*data.where, a, v, u, w)
        size = np.linalg.norm(w)
        if not size > 0:
            return None
        w /= size
        inner = float(w @ v)
        v, w = w, v
        if inner * inner > 1 - TURNED * TURNED:
            break
    kernel.times(*data.where, a, v, u)
    for uq, sq, vq in minus:
        u -= sq * (vq @ v) * uq
    s = float(np.linalg.norm(u))
    if not s > 0:
        return None
    return _signed(u / s, s, v)


def _signed(u: Array, s: float, v: Array) -> Triplet:
    return Triplet(-u, s, -v) if u[np.argmax(np.abs(u))] < 0 else Triplet(u, s, v)


def _orthonormal(w: Array) -> Array:
    """Orthonormal columns with the span of w (n, 8): by Cholesky twice, or by Householder if that fails."""
    for _ in range(2):
        gram = (w.T @ w).astype(np.float64)
        try:
            lower = np.linalg.cholesky(gram)
        except np.linalg.LinAlgError:
            return np.ascontiguousarray(np.linalg.qr(w.astype(np.float64))[0].astype(w.dtype))
        w = np.ascontiguousarray(w @ np.linalg.inv(lower).T.astype(w.dtype))
    return w
