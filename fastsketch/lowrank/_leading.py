"""The leading singular vectors of a sparse matrix: by subspace iteration on eight vectors, or by the power method."""

from collections.abc import Sequence
from math import frexp, ldexp
from typing import NamedTuple

import numpy as np

from fastsketch._kernels.linalg.block import BLOCK, leading_of_block
from fastsketch._kernels.lowrank import entries
from fastsketch._kernels.lowrank import gradients as kernel
from fastsketch._random import Normal, random_normal
from fastsketch.lowrank._data import Array, Observed

# Iterations stop when v turns by less than this (sine of the angle), or after the number asked for.
TURNED = 1e-3
# Values beyond 2**+-MODEST are brought near 1 by a power of two, exactly: iterations take their fourth powers, and
# squares in their own dtype.
MODEST = 32


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
    block = np.ascontiguousarray(start, data.o.dtype)
    left, right = np.empty(data.m, block.dtype), np.empty(data.n, block.dtype)
    a, exponent = _modest(a)
    s = leading_of_block(*data.where, a, block, iterations, TURNED, left, right)
    return Found(_signed(left / s, ldexp(s, exponent), right), block) if s > 0 else None


def leading(
    data: Observed, a: Array, start: Array, *, iterations: int, minus: Sequence[Triplet] = ()
) -> Triplet | None:
    """The leading triplet of that matrix less sum s_q u_q v_q' over `minus`, by the power method from v = start."""
    dtype = data.o.dtype
    a, exponent = (a, 0) if minus else _modest(a)  # a part of a matrix is of the size of slopes of kinks
    u, w = np.empty(data.m, dtype), np.empty(data.n, dtype)
    v = start / dtype.type(_norm(start) or 1)
    for _ in range(iterations):
        if minus:
            kernel.times(*data.where, a, v, u)
            for uq, sq, vq in minus:
                u -= dtype.type(sq * entries.dot(vq, v)) * uq
            kernel.transposed_times(*data.where, a, u, w)
            for uq, sq, vq in minus:
                w -= dtype.type(sq * entries.dot(uq, u)) * vq
        else:
            kernel.gram_product(*data.where, a, v, u, w)
        size = _norm(w)
        if not size > 0:
            return None
        w /= dtype.type(size)
        inner = entries.dot(w, v)
        v, w = w, v
        if inner * inner > 1 - TURNED * TURNED:
            break
    kernel.times(*data.where, a, v, u)
    for uq, sq, vq in minus:
        u -= dtype.type(sq * entries.dot(vq, v)) * uq
    s = _norm(u)
    if not s > 0:
        return None
    return _signed(u / s, ldexp(s, exponent), v)


def _modest(a: Array) -> tuple[Array, int]:
    """(b, e) with a = b 2**e, b itself where its values are neither huge nor tiny."""
    exponent = frexp(max(float(a.max(initial=0.0)), -float(a.min(initial=0.0))))[1]
    return (a, 0) if abs(exponent) <= MODEST else (np.ldexp(a, -exponent), exponent)


def _signed(u: Array, s: float, v: Array) -> Triplet:
    return Triplet(-u, s, -v) if u[np.argmax(np.abs(u))] < 0 else Triplet(u, s, v)


def _norm(x: Array) -> float:
    # not by BLAS, whose bits depend on its threads
    return float(np.sqrt(entries.dot(x, x)))
