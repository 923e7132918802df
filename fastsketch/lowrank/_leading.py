"""The leading singular triplet of a gradient: by subspace iteration on eight vectors, or by the power method.

The matrix has the values `a` of a state at the entries. Eight vectors cost little more than one:
seven begin where the last rank left them, near the singular vectors that come next; one is random, for what they cannot
see.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Key, Normal, as_normal, raw_numbers
from fastsketch._kernels.linalg.block import BLOCK, leading_of_block
from fastsketch._kernels.lowrank import entries
from fastsketch._kernels.lowrank import gradients as kernel
from fastsketch.lowrank._data import Array
from fastsketch.lowrank._entries import Entries

Floats = NDArray[np.float64]


class Triplet(NamedTuple):
    """A singular value and its vectors."""

    u: Array  # (m,) whose largest entry is positive: one sign for all machines
    s: float
    v: Array  # (n,)


# -- eight vectors -----------------------------------------------------------------------------------------------------
def leading_of_eight(
    observations: Entries,
    state: Any,
    last: Array | None,
    extra: Array | None,
    *,
    seed: int,
    iterations: int,
    tolerance: float,
) -> tuple[Triplet, Array] | None:
    """Return the leading triplet, and an orthonormal basis (n, 8) in which those after it will be found; None if zero.

    last: the basis of the last search, if there was one; extra (n,): a random direction beside it. Iterations stop when
    v turns by less than `tolerance` (sine of the angle), or after their number.
    """
    block = _block_start(seed, observations.n, last, extra).astype(observations.dtype)
    u, v = np.empty(observations.m, block.dtype), np.empty(observations.n, block.dtype)
    s = leading_of_block(*observations.data.where, state.a, block, iterations, tolerance, u, v)
    if not s > 0:
        return None
    u /= s
    if u[np.argmax(np.abs(u))] < 0:
        u, v = -u, -v
    return Triplet(u, s, v), block


def _block_start(seed: int, n: int, last: Array | None, extra: Array | None) -> Array:
    """Return eight directions (n, 8): random ones, or seven of the last search and `extra`."""
    if last is None:
        raw = [raw_numbers(seed, Key.NORMAL, 0, Normal.PURSUIT + 2**30 + q, n) for q in range(BLOCK)]
        return as_normal(np.stack(raw, axis=1))
    out = np.empty((n, BLOCK), last.dtype)
    out[:, :-1], out[:, -1] = last[:, 1:], extra
    return out


# -- one vector --------------------------------------------------------------------------------------------------------
def leading_by_power(
    observations: Entries,
    state: Any,
    start: Array,
    *,
    iterations: int,
    tolerance: float,
    minus: Sequence[Triplet] = (),
) -> Triplet | None:
    """Return the leading triplet of the gradient less sum s_q u_q v_q' over `minus`, from v = start; None if zero.

    Iterations stop when v turns by less than `tolerance` (sine of the angle), or after their number.
    """
    kind = observations.dtype.type
    v: Array = start.astype(observations.dtype) / kind(_norm(start) or 1)
    for _ in range(iterations):
        w, inner = _power(observations, state, v, minus)
        for each, along in zip(minus, inner, strict=True):
            w = w - kind(each.s * along) * each.v
        size = _norm(w)
        if not size > 0:
            return None
        w = w / kind(size)
        turned, v = w - kind(entries.dot(w, v)) * v, w  # of nearly equal vectors the cosine alone is rounding
        if _norm(turned) < tolerance:
            break
    return _triplet(observations, state, v, minus)


def _triplet(observations: Entries, state: Any, v: Array, minus: Sequence[Triplet]) -> Triplet | None:
    """Return the triplet whose right vector is v, of the gradient less `minus`."""
    u = _product(observations, state.a, v, minus)
    s = float(np.sqrt(entries.dot(u, u)))
    if not s > 0:
        return None
    negative = bool(u[np.argmax(np.abs(u))] < 0)
    return Triplet(u / u.dtype.type(-s if negative else s), s, -v if negative else v)


def _power(observations: Entries, state: Any, v: Array, minus: Sequence[Triplet]) -> tuple[Array, list[float]]:
    """Return A'u (n,) with u = A v less the triplets, and [u_q'u]."""
    w = np.empty(observations.n, v.dtype)
    if not minus:
        kernel.multiply(*observations.data.where, state.a, v, np.empty(observations.m, v.dtype), w)
        return w, []
    u = _product(observations, state.a, v, minus)
    kernel.multiply(*observations.data.where, state.a, None, u, w)
    return w, [entries.dot(each.u, u) for each in minus]


def _product(observations: Entries, a: Array, v: Array, minus: Sequence[Triplet]) -> Array:
    """Return A v (m,) less the triplets."""
    u = np.empty(observations.m, v.dtype)
    kernel.multiply(*observations.data.where, a, v, u)
    for each in minus:
        u -= u.dtype.type(each.s * entries.dot(each.v, v)) * each.u
    return u


def _norm(x: Array) -> float:
    # not by BLAS, whose bits depend on its threads
    return float(np.sqrt(entries.dot(x, x)))
