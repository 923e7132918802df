"""What is done beside the entries of one partition: pure functions, which read what they are given and change nothing.

A partition is a matrix of some rows with all columns. Of rows it has its own, of columns all; sums over entries are its
share of the sums of all.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.linalg.block import BLOCK, gram_block, next_block, orthonormal_block
from fastsketch._kernels.lowrank import coefficients, entries
from fastsketch._kernels.lowrank import gradients as kernel
from fastsketch.lowrank._biases import ColumnSums, RowBiases, RowSteps
from fastsketch.lowrank._crew import added
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._fitted import Side
from fastsketch.lowrank._ground import losses_of
from fastsketch.lowrank._leading import TURNED
from fastsketch.lowrank._noise import scores
from fastsketch.lowrank._pursuit import settle
from fastsketch.lowrank._refine import Terms
from fastsketch.lowrank._setting import LossSetting
from fastsketch.lowrank._units import Steepness, steepness

Floats = NDArray[np.float64]


class Place(NamedTuple):
    """The entries of a partition."""

    data: Observed
    held: Observed | None  # held out for validation
    left: Array  # (m,) degree scaling of the rows
    first_row: int


# -- biases ------------------------------------------------------------------------------------------------------------
def steep(place: Place, loss: LossSetting, level: float) -> Steepness:
    """Of mean curvature."""
    return steepness(place.data, loss, level)


def bias_columns(place: Place, loss: LossSetting, smooth: float, row: Any, level: float, cb: Array) -> ColumnSums:
    """At level + row + cb; row (m,) None: zeros."""
    return RowBiases(place.data, loss, smooth, _row_of(row)).columns(level, cb)


def bias_move(
    place: Place, loss: LossSetting, smooth: float, row: Any, level: float, cb: Array, ridge: float, limit: float
) -> tuple[Floats, RowSteps]:
    """(row after a step, what is left of the common slope)."""
    rows = RowBiases(place.data, loss, smooth, _row_of(row))
    steps = rows.move(level, cb, ridge, limit)
    return rows.row, steps


def _row_of(moved: tuple[Floats, RowSteps] | None) -> Floats | None:
    return None if moved is None else moved[0]


def row_biases(place: Place, row: tuple[Floats, RowSteps] | None, level: float) -> Array:
    """(m,) with the level in them."""
    row_ = np.zeros(place.data.m) if row is None else row[0]
    return (level + row_).astype(place.data.o.dtype)


# -- scores and the gradient -------------------------------------------------------------------------------------------
class Advance(NamedTuple):
    """What a step has come to."""

    value: float  # sum of losses
    most_z: float
    most_a: float  # size of the gradient in scaled rows and columns


class State(NamedTuple):
    """Scores of the entries, and the gradient there."""

    z: Array
    a: Array
    advance: Advance


def _state(z: Array, a: Array, value: float) -> State:
    largest = max(float(a.max(initial=0.0)), -float(a.min(initial=0.0)))
    return State(z, a, Advance(value, float(z.max(initial=0.0)), largest))


def restart(
    place: Place, loss: LossSetting, rb: Array, cb: Array, scale: Array, us: list[Array], vs: Array, coefficient: Floats
) -> State:
    """At the biases and the ranks held; vs (n, t)."""
    data, dtype = place.data, place.data.o.dtype
    left = np.stack(us, axis=1) * coefficient if us else np.zeros((data.m, 0), dtype)
    return _gradient(place, loss, scores(data, left, vs, rb, cb), scale)


def _gradient(place: Place, loss: LossSetting, z: Array, scale: Array) -> State:
    data, a = place.data, np.empty_like(place.data.o)
    value = kernel.gradient(loss.number, loss.parameter, *data.where, z, data.o, data.c, place.left, scale, a)
    return _state(z, a, value)


def step(
    place: Place, state: State, loss: LossSetting, rb: Array, cb: Array, scale: Array, keep: float, theta: float,
    u: Array, v: Array,
) -> State:  # fmt: skip
    """z = b + keep (z - b) + theta u_i v_j, b the biases."""
    data, dtype = place.data, place.data.o.dtype.type
    z, a = state.z.copy(), np.empty_like(data.o)
    before = loss.number, loss.parameter, *data.where, z, data.o, data.c, place.left, scale
    value = kernel.step_gradient(*before, dtype(keep), dtype(theta), u, v, rb, cb, a)
    return _state(z, a, value)


class HeldLoss(NamedTuple):
    """Of the entries held out."""

    value: float
    entries: int


def held_loss(
    place: Place, loss: LossSetting, rb: Array, cb: Array, us: list[Array], vs: Array, coefficient: Floats
) -> HeldLoss:
    """Of the ranks of a pursuit."""
    assert place.held is not None
    left = np.stack(us, axis=1) * coefficient if us else np.zeros((place.data.m, 0), place.data.o.dtype)
    return HeldLoss(_loss(place.held, loss, scores(place.held, left, vs, rb, cb)), len(place.held.o))


def _loss(data: Observed, loss: LossSetting, z: Array) -> float:
    return entries.objective(loss.number, loss.parameter, z, data.o, data.c)[0]


# -- the leading pair --------------------------------------------------------------------------------------------------
class Search(NamedTuple):
    """A step of subspace iteration."""

    v: Array  # (n, 8) orthonormal: where the next step begins
    right: Array  # (n,) the leading vector, once it is done
    top: float  # square of the leading singular value
    done: bool


class Products(NamedTuple):
    """For the block V of a search: A'A V and V'A'A V; of partitions they are added."""

    w: Array  # (n, 8)
    inner: Floats  # (8, 8)
    same_search: Search


def began(start: Array) -> Search:
    """With the span of start (n, 8)."""
    v = np.empty_like(start)
    orthonormal_block(start, v)
    return Search(v, v[:, 0], 0.0, False)


def products(place: Place, state: State, before: list[Products], start: Search | None, exponent: int) -> Products:
    """Of the gradient over 2^exponent, for the search that the products of all partitions before have come to.

    Every partition takes that step for itself: it is little work beside the way to somebody who would do it for all.
    """
    search = start or searched(before, last=False)
    if search.done:
        return Products(np.zeros(0), np.zeros(0), search)
    w, u = np.empty_like(search.v), np.empty((place.data.m, BLOCK), search.v.dtype)
    inner = gram_block(*place.data.where, _modest(state.a, exponent), search.v, u, w)
    if not place.data.m:
        w[:] = 0
    return Products(w, inner, search)


def searched(nodes: list[Products], *, last: bool) -> Search:
    """The next step; `nodes` are added."""
    found = added(nodes)
    before: Search = found.same_search
    if before.done:
        return before
    v, right = np.empty_like(before.v), np.empty(len(before.v), before.v.dtype)
    w, inner = found.w.copy(), found.inner.copy()
    top, done = next_block(before.v, w, inner, last, TURNED, right, v)
    return Search(v if top > 0 else before.v, right, top, done or not top > 0)


class Length(NamedTuple):
    """Of a vector of all rows."""

    squares: float
    most_size: tuple[float, int, bool]  # the largest entry, the earliest of them first; whether it is negative


def direction(
    place: Place, state: State, v: Array, exponent: int, minus: list[Any], number: int
) -> tuple[Array, Length]:
    """u = A v of the gradient over 2^exponent, less (u_q, s_q v_q'v) of those in `minus`."""
    u = np.empty(place.data.m, place.data.o.dtype)
    kernel.times(*place.data.where, _modest(state.a, exponent), v, u)
    for uq, weight in _pairs(minus):
        u -= u.dtype.type(weight) * uq
    size = np.abs(u)
    at = int(np.argmax(size)) if len(u) else -1
    length = (float(size[at]), -number, bool(u[at] < 0)) if len(u) else (0.0, -number, False)
    return u, Length(entries.dot(u, u), length)


class Power(NamedTuple):
    """A step of the power method on A less what was found."""

    w: Array  # (n,) A'u
    inner: Floats  # (q,) u_q'u


def power(place: Place, state: State, v: Array, exponent: int, minus: list[Any]) -> Power:
    """Its share."""
    data, a = place.data, _modest(state.a, exponent)
    u, w = np.empty(data.m, data.o.dtype), np.zeros(data.n, data.o.dtype)
    kernel.times(*data.where, a, v, u)
    for uq, weight in _pairs(minus):
        u -= u.dtype.type(weight) * uq
    kernel.transposed_times(*data.where, a, u, w)
    return Power(w, np.array([entries.dot(uq, u) for uq, _ in _pairs(minus)]))


def _pairs(minus: list[Any]) -> list[tuple[Array, float]]:
    # [u_1, u_2, ..., weights]
    return list(zip(minus[:-1], minus[-1], strict=True)) if minus else []


def _modest(a: Array, exponent: int) -> Array:
    return np.ldexp(a, -exponent) if exponent else a


def times(found: tuple[Array, Length], factor: float) -> Array:
    """u (m,) of `direction`, times a number."""
    return (found[0] * found[0].dtype.type(factor)).astype(found[0].dtype)


def unscaled(place: Place, u: Array) -> Array:
    """Of the rows, not of those scaled."""
    return u * place.left


# -- coefficients ------------------------------------------------------------------------------------------------------
class Dots(NamedTuple):
    """The sums of ``entries.five_dots``."""

    sums: Floats  # (6,)


def dots(
    place: Place, state: State, loss: LossSetting, rb: Array, cb: Array, u: Array, v: Array, keep: float, theta: float
) -> Dots:
    """At (keep, theta)."""
    data, dtype, out = place.data, place.data.o.dtype.type, np.empty(6)
    about = loss.number, loss.parameter, *data.where, state.z, data.o, data.c, rb, cb
    entries.five_dots(*about, dtype(keep), dtype(theta), u, v, out)
    return Dots(out)


def newton_terms(
    place: Place, loss: LossSetting, rb: Array, cb: Array, left: Array, right: Array, theta: Floats, curved: bool
) -> Terms:
    """Of all coefficients."""
    data, t = place.data, len(theta)
    slope, bound, curvature = np.empty(t), np.zeros(t), np.empty((t, t) if curved else (0, 0))
    about = loss.number, loss.parameter, loss.about.lipschitz or 0.0, *data.where, data.o, data.c, rb, cb
    if not data.m:
        return Terms(0.0, np.zeros(t), np.zeros(curvature.shape), bound)
    value = coefficients.newton_terms(*about, left, right, theta, slope, bound, curvature)
    return Terms(value, slope, curvature, bound)


def stacked(place: Place, us: list[Array]) -> Array:
    """(m, t)."""
    dtype = place.data.o.dtype
    return np.ascontiguousarray(np.stack(us, axis=1), dtype) if us else np.zeros((place.data.m, 0), dtype)


# -- losses with kinks -------------------------------------------------------------------------------------------------
class Squares(NamedTuple):
    """One sum."""

    total: float


def squares(place: Place, state: State) -> Squares:
    """Of the gradient."""
    return Squares(entries.dot(state.a, state.a))


def aim(place: Place, us: list[Array], vs: Array, s: Floats) -> Array:
    """-sum s u v' at the entries."""
    data, dtype = place.data, place.data.o.dtype
    none = np.zeros(max(data.m, data.n), dtype)
    return scores(data, np.ascontiguousarray(-np.stack(us, axis=1) * s, dtype), vs, none[: data.m], none[: data.n])


class Reach(NamedTuple):
    """Largest sizes."""

    most_d: float


def reach(place: Place, d: Array) -> Reach:
    """Of d."""
    return Reach(float(np.abs(d).max(initial=0.0)))


def slope(place: Place, state: State, d: Array, loss: LossSetting, eta: float) -> Squares:
    """Of f(z + eta d)."""
    data = place.data
    return Squares(entries.slope_along(loss.number, loss.parameter, state.z, data.o, data.c, d, eta)[1])


def kinks(place: Place, state: State, d: Array) -> tuple[Floats, Floats]:
    """Where z + eta d meets the observations, and how much each weighs."""
    data, n = place.data, len(place.data.o)
    places, weights = np.empty(max(n, 1)), np.empty(max(n, 1))
    count = entries.kinks(state.z, data.o, data.c, d, places, weights) if n else 0
    return places[:count].copy(), weights[:count].copy()


def follow(place: Place, state: State, d: Array, eta: float, largest: float, loss: LossSetting, scale: Array) -> State:
    """z + eta d; largest: of all observations."""
    z = state.z + place.data.o.dtype.type(eta) * d
    settle(z, place.data, largest)
    return _gradient(place, loss, z, scale)


# -- fitted models -----------------------------------------------------------------------------------------------------
class Moments(NamedTuple):
    """Of some numbers: not to be added, but merged (`merged_moments`)."""

    size: int
    mean: float
    squares: float  # about the mean


def moments(values: NDArray[Any]) -> Moments:
    """Of values (k,)."""
    if not len(values):
        return Moments(0, 0.0, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        wide = values.astype(np.float64)
        mean = float(wide.mean())
        return Moments(len(values), mean, float(((wide - mean) ** 2).sum()))


def merged_moments(parts: list[Moments]) -> Moments:
    """Of all, in their order."""
    out = parts[0]
    for part in parts[1:]:
        if part.size:
            count, apart = out.size + part.size, part.mean - out.mean
            mean = out.mean + apart * part.size / count
            out = Moments(count, mean, out.squares + part.squares + apart**2 * out.size * part.size / count)
    return out


def held_moments(place: Place, loss: LossSetting, rows: Side, columns: Side, level: float) -> Moments:
    """Of the losses of a model, held out."""
    held = place.held
    assert held is not None
    z = scores(held, rows.factors, columns.factors, rows.biases + level, columns.biases)
    return moments(losses_of(held, loss, z))


def model_loss(place: Place, loss: LossSetting, rows: Side, columns: Side, level: float, held: bool) -> HeldLoss:
    """Of a model, at the entries that it was fitted to or at those held out."""
    data = place.held if held else place.data
    assert data is not None
    z = scores(data, rows.factors, columns.factors, rows.biases + level, columns.biases)
    return HeldLoss(_loss(data, loss, z), len(data.o))


def side_of(place: Place, us: list[Array], rb: Array, level: float) -> Side:
    """What a pursuit has of the rows."""
    return Side(stacked(place, us), (rb - level).astype(place.data.o.dtype))


def side_times(place: Place, rows: Side, factor: Floats) -> Side:
    """The first ranks, as many as there are factors, each times its own."""
    return Side((rows.factors[:, : len(factor)] * factor).astype(rows.factors.dtype), rows.biases)


class Norms(NamedTuple):
    """Of all columns of a side, squared."""

    squares: Floats  # (t,)
    rows: int


def norms(place: Place, rows: Side, rank: int) -> Norms:
    """Of the first ranks."""
    return Norms((rows.factors[:, :rank].astype(np.float64) ** 2).sum(axis=0), place.data.m)
