"""The leading singular triplet of a gradient: by subspace iteration on eight vectors, or by the power method.

The matrix has the values `a` of a state where the partitions have entries. Eight vectors cost little more than one:
seven begin where the last rank left them, near the singular vectors that come next; one is random, for what they cannot
see.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Key, Normal, as_normal, raw_numbers
from fastsketch._kernels.linalg.block import BLOCK, gram_block, leading_of_block, next_block, orthonormal_block
from fastsketch._kernels.lowrank import entries
from fastsketch._kernels.lowrank import gradients as kernel
from fastsketch.lowrank._data import Array
from fastsketch.lowrank._partitions import Entries, First, Largest, Partition, added

Floats = NDArray[np.float64]

# Iterations stop when v turns by less than this (sine of the angle), or after the number asked for.
TURNED = 1e-3
# Steps over partitions that are asked for at once: most ranks take as many, and those after the last cost nothing.
AT_ONCE = 8


class Triplet(NamedTuple):
    """A singular value and its vectors."""

    u: Any  # (m,) of every partition; the largest entry of all is positive: one sign for all machines
    s: float
    v: Array  # (n,)


# -- eight vectors -----------------------------------------------------------------------------------------------------
def leading_of_eight(
    parts: Entries, state: Any, last: Array | None, extra: Array | None, *, seed: int, iterations: int
) -> tuple[Triplet, Array] | None:
    """Return the leading triplet, and an orthonormal basis (n, 8) in which those after it will be found; None if zero.

    last: the basis of the last search, if there was one; extra (n,): a random direction beside it.
    """
    start = _block_start(seed, parts.n, last, extra).astype(parts.dtype, copy=False)
    if parts.alone:
        answers = parts.each(_lead, parts.places, state, start, iterations, TURNED)
        s, v, block = parts.sum_of(answers, 1)
        return (Triplet(parts.items(answers, 0), s, v), block) if s > 0 else None
    search, nodes = parts.crew.call(_began, start), list[Any]()
    for k in range(iterations):
        nodes = parts.nodes(parts.each(_products, parts.places, state, nodes, None if k else search, TURNED))
        if (k + 1) % AT_ONCE == 0 and k + 1 < iterations and parts.crew.fetch(nodes)[0].search.value.done:
            break
    end = _searched(parts.crew.fetch(nodes), TURNED, last=True)
    triplet = _triplet(parts, state, end.right, ()) if end.top > 0 else None
    return None if triplet is None else (triplet, end.v)


def _block_start(seed: int, n: int, last: Array | None, extra: Array | None) -> Array:
    """Return eight directions (n, 8): random ones, or seven of the last search and `extra`."""
    if last is None:
        raw = [raw_numbers(seed, Key.NORMAL, 0, Normal.PURSUIT + 2**30 + q, n) for q in range(BLOCK)]
        return as_normal(np.stack(raw, axis=1))
    out = np.empty((n, BLOCK), last.dtype)
    out[:, :-1], out[:, -1] = last[:, 1:], extra
    return out


def _lead(
    place: Partition, state: Any, start: Array, iterations: int, turned: float
) -> tuple[Array, tuple[float, Array, Array]]:
    """Return u, and s, v and the basis, where all rows are in one place."""
    data, block = place.data, start.copy()
    u, v = np.empty(data.m, block.dtype), np.empty(data.n, block.dtype)
    s = leading_of_block(*data.where, state.a, block, iterations, turned, u, v)
    if s > 0:
        u /= s
        if u[np.argmax(np.abs(u))] < 0:
            u, v = -u, -v
    return u, (s, v, block)


class Search(NamedTuple):
    """A step of subspace iteration."""

    v: Array  # (n, 8) orthonormal: where the next step begins
    right: Array  # (n,) the leading vector, once it is done
    top: float  # square of the leading singular value
    done: bool


class Products(NamedTuple):
    """A'A V and V'A'A V for the block V of a search."""

    w: Array  # (n, 8)
    inner: Floats  # (8, 8)
    search: First


def _began(start: Array) -> Search:
    """Begin a search in the span of start (n, 8)."""
    v = np.empty_like(start)
    orthonormal_block(start, v)
    return Search(v, v[:, 0], 0.0, False)


def _products(place: Partition, state: Any, before: list[Products], start: Search | None, turned: float) -> Products:
    """Multiply the block of the search that the products of all partitions before have come to.

    Every partition takes that step for itself: it is little work beside the way to somebody who would do it for all.
    """
    search = start or _searched(before, turned, last=False)
    if search.done:
        return Products(np.zeros(0), np.zeros(0), First(search))
    w, u = np.empty_like(search.v), np.empty((place.data.m, BLOCK), search.v.dtype)
    inner = gram_block(*place.data.where, state.a, search.v, u, w)
    if not place.data.m:
        w[:] = 0
    return Products(w, inner, First(search))


def _searched(nodes: list[Products], turned: float, *, last: bool) -> Search:
    """Take the next step with the sum of these products."""
    sums: Products = added(nodes)
    before: Search = sums.search.value
    if before.done:
        return before
    v, right = np.empty_like(before.v), np.empty(len(before.v), before.v.dtype)
    top, done = next_block(before.v, sums.w.copy(), sums.inner.copy(), last, turned, right, v)
    return Search(v if top > 0 else before.v, right, top, done or not top > 0)


# -- one vector --------------------------------------------------------------------------------------------------------
def leading_by_power(
    parts: Entries, state: Any, start: Array, *, iterations: int, minus: Sequence[Triplet] = ()
) -> Triplet | None:
    """Return the leading triplet of the gradient less sum s_q u_q v_q' over `minus`, from v = start; None if zero."""
    kind = parts.dtype.type
    v: Array = start.astype(parts.dtype) / kind(_norm(start) or 1)
    for _ in range(iterations):
        w, inner = parts.total(_power, parts.places, state, parts.put(v), *_less(parts, minus, v))
        for each, along in zip(minus, inner, strict=True):
            w = w - kind(each.s * along) * each.v
        size = _norm(w)
        if not size > 0:
            return None
        w = w / kind(size)
        turned, v = entries.dot(w, v), w
        if turned * turned > 1 - TURNED * TURNED:
            break
    return _triplet(parts, state, v, minus)


def _triplet(parts: Entries, state: Any, v: Array, minus: Sequence[Triplet]) -> Triplet | None:
    """Return the triplet whose right vector is v, of the gradient less `minus`."""
    raw = parts.each(_left, parts.places, state, parts.put(v), *_less(parts, minus, v), parts.numbers)
    squares, longest = parts.sum_of(raw, 1)
    s = float(np.sqrt(squares))
    if not s > 0:
        return None
    negative = longest.value[2]
    u = parts.each(_divided, parts.items(raw, 0), -s if negative else s)
    return Triplet(u, s, -v if negative else v)


def _less(parts: Entries, minus: Sequence[Triplet], v: Array) -> tuple[Any, list[float]]:
    """Return u_q of every partition, and s_q v_q'v."""
    return parts.together([each.u for each in minus]), [each.s * entries.dot(each.v, v) for each in minus]


def _power(place: Partition, state: Any, v: Array, us: list[Array], weights: list[float]) -> tuple[Array, Floats]:
    """Return A'u (n,) with u = A v less the triplets, and (q,) u_q'u."""
    w = np.empty(place.data.n, v.dtype)
    if not us:
        kernel.multiply(*place.data.where, state.a, v, np.empty(place.data.m, v.dtype), w)
        return w, np.empty(0)
    u = _product(place, state.a, v, us, weights)
    kernel.multiply(*place.data.where, state.a, None, u, w)
    return w, np.array([entries.dot(uq, u) for uq in us])


def _left(
    place: Partition, state: Any, v: Array, us: list[Array], weights: list[float], number: int
) -> tuple[Array, tuple[float, Largest]]:
    """Return u = A v less the triplets; and u'u, with the largest entry, the earliest of them first, and its sign."""
    u = _product(place, state.a, v, us, weights)
    at = int(np.argmax(np.abs(u))) if len(u) else -1
    longest = (float(abs(u[at])), -number, bool(u[at] < 0)) if len(u) else (0.0, -number, False)
    return u, (entries.dot(u, u), Largest(longest))


def _product(place: Partition, a: Array, v: Array, us: list[Array], weights: list[float]) -> Array:
    u = np.empty(place.data.m, v.dtype)
    kernel.multiply(*place.data.where, a, v, u)
    for uq, weight in zip(us, weights, strict=True):
        u -= u.dtype.type(weight) * uq
    return u


def _divided(u: Array, size: float) -> Array:
    return u / u.dtype.type(size)


def _norm(x: Array) -> float:
    # not by BLAS, whose bits depend on its threads
    return float(np.sqrt(entries.dot(x, x)))
