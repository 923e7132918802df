"""Two engines into one, and a shrink of loose rows."""

from collections.abc import Sequence
from math import frexp
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.sketching.state import ROUNDING_PER_SHRINK
from fastsketch.sketching._engines._base import AnyBuffer, exponent_for
from fastsketch.sketching._engines._decompose import decompose
from fastsketch.sketching._engines._dense_engine import DenseEngine
from fastsketch.sketching._engines._engine_setting import EngineSetting
from fastsketch.sketching._engines._exact_engine import ExactEngine
from fastsketch.sketching._engines._ledger import Known, joined, put_ledger
from fastsketch.sketching._engines._mapped_engine import MappedEngine
from fastsketch.sketching._engines._sparse_engine import SparseEngine, columns_of
from fastsketch.sketching._engines._tolerance import SHARE, Tolerance, squares_of

Buffer = TypeVar("Buffer", bound=AnyBuffer)


def merge_engines(
    mine: DenseEngine | SparseEngine | MappedEngine, theirs: DenseEngine | SparseEngine | MappedEngine
) -> DenseEngine | SparseEngine | MappedEngine:
    """Return the engine of the rows of both: the first is a clone, and used up; l is the larger of the two.

    Rows that neither decay nor wait for a mean pass the buffer of the first as they lie in that of the second. Others
    are reduced and stacked, with the correction row of FROSH Algorithm 3 between two means; one shrink brings them back
    to sketch_size - 1 rows, unless they fit as they are.
    """
    if merges_in_place(mine, theirs):
        assert isinstance(mine, DenseEngine)
        assert isinstance(theirs, DenseEngine)
        mine.absorb_engine(theirs)
        return mine
    theirs = theirs.clone()
    if isinstance(mine, MappedEngine):
        assert isinstance(theirs, MappedEngine)  # the parameters agree
        mine.settle()
        theirs.settle()
        correction = mine.take_over(theirs)
        inner = merge_engines(mine.inner, theirs.inner)
        assert isinstance(inner, DenseEngine)  # as both were
        mine.inner = inner
        if correction is not None:
            inner.update(correction)
        return mine
    assert not isinstance(theirs, MappedEngine)
    if isinstance(theirs, ExactEngine):
        mine, theirs = theirs, mine  # rows go into a sum, and not out of it
    mine, theirs = _in_common_columns(mine, theirs)
    mine.align(theirs)
    size = max(mine.setting.sketch_size, theirs.setting.sketch_size)
    if mine.setting.sketch_size < size:
        mine = mine.resized(size)
    if isinstance(mine, ExactEngine):
        mine.add(theirs)
        return mine
    if theirs.setting.sketch_size < size:
        theirs = theirs.resized(size)
    if mine.setting.tolerance is not None:
        return merge_growing(mine, theirs, mine.setting.tolerance)
    if mine.ledger is not None:
        known = mine.known(), theirs.known()
        _put_joined(mine, known, mine.take_over(theirs))
        return mine
    parts = [mine.reduce(), theirs.reduce()]
    correction = mine.take_over(theirs)
    if correction is not None:
        parts.append(correction)
    return _with_rows(mine, np.vstack(parts))


def merges_in_place(
    mine: DenseEngine | SparseEngine | MappedEngine, theirs: DenseEngine | SparseEngine | MappedEngine
) -> bool:
    """Return whether ``merge_engines`` changes the first engine alone, and needs nothing but the rows of the second."""
    setting = theirs.setting
    return (
        isinstance(mine, DenseEngine)
        and type(mine) is type(theirs)
        and mine is not theirs
        and setting == mine.setting
        and setting.decay == 1.0
        and not (setting.center or setting.tolerance or mine.ledger)
        and theirs.exponent == mine.exponent
    )


def _with_rows(mine: Buffer, rows: NDArray[Any]) -> Buffer:
    """Return the engine with these settled rows in place of its own, shrunk once if they are too many."""
    if len(rows) > mine.most_rows(mine.setting):
        rows = _shrunk(mine, rows)
    mine.replace_rows(rows)
    return mine


def _in_common_columns(
    mine: DenseEngine | SparseEngine, theirs: DenseEngine | SparseEngine
) -> tuple[DenseEngine | SparseEngine, DenseEngine | SparseEngine]:
    """Return engines whose rows have the same columns, those of `mine` first; one of dense rows has all of them."""
    if isinstance(mine, SparseEngine) and isinstance(theirs, SparseEngine):
        columns = mine.columns_with(theirs)
        return mine.on_columns(columns), theirs.on_columns(columns)
    every = np.arange(mine.n_features)
    if isinstance(mine, SparseEngine):
        return mine.on_columns(every), theirs
    return mine, theirs.on_columns(every) if isinstance(theirs, SparseEngine) else theirs


def merge_growing(mine: Buffer, theirs: AnyBuffer, tolerance: Tolerance) -> Buffer:
    """Merge engines at the l that a stream of all their rows would have grown to under the tolerance."""
    known: tuple[Known, ...] = ()
    if mine.ledger is not None:
        known = mine.known(reduced=False), theirs.known(reduced=False)
        parts = [np.sqrt(one.squares)[:, np.newaxis] * one.vt for one in known]
    else:
        parts = [mine.settled_rows(), theirs.settled_rows()]
    correction = mine.take_over(theirs)
    if correction is not None:
        parts.append(correction)
    rows = np.vstack(parts)
    wanted = tolerance.smallest(squares_of(rows), mine.state, rounding=0.0, share=SHARE)
    mine.replace_rows(rows[:0])
    mine = mine.resized(max(mine.setting.sketch_size, tolerance.bounded(wanted, mine.n_features)))
    if known:
        _put_joined(mine, known, correction)
        return mine
    return _with_rows(mine, rows)


def _put_joined(mine: AnyBuffer, known: Sequence[Known], correction: NDArray[Any] | None) -> None:
    """Shrink two sketches and the row between their means into one, the whole buffer."""
    extra = np.empty((0, mine.width)) if correction is None else correction.astype(np.float64)
    size = mine.setting.sketch_size
    most = mine.most_rows(mine.setting)
    merged, delta = joined(known[0], known[1], extra, most=most, n_keep=size - 1, n_spare=mine.setting.rows_spared)
    mine.state.shrinkage += delta
    eps, top = float(np.finfo(mine.dtype).eps), float(merged.squares.max(initial=0.0)) + delta
    mine.state.rounding = mine.joint_rounding((ROUNDING_PER_SHRINK * eps * top) ** 2)
    put_known(mine, merged)


def with_columns_multiplied(
    engine: DenseEngine | SparseEngine, factors: NDArray[np.float64], squared_norm: float
) -> DenseEngine | SparseEngine:
    """Return an engine of the rows whose columns are multiplied by factors (d,) of at most 1, as a new engine.

    From 0 <= A'A - B'B <= Delta I follows 0 <= T (A'A - B'B) T <= max(t)^2 Delta I: the certificate grows no further.
    `squared_norm` is that of the multiplied rows, which a sketch does not know.
    """
    engine = engine.clone()
    own = factors[columns_of(engine)]
    if (own == 1.0).all():
        return engine
    known = engine.known()
    s, vt = decompose(np.sqrt(known.squares)[:, np.newaxis] * known.vt * own)
    turn, unit = (known.vt * own) @ vt.T, np.ldexp(1.0, -2 * engine.exponent)
    seen, leaked = (turn.T @ matrix @ turn for matrix in (known.seen, known.leaked))
    state, most = engine.state, float(own.max(initial=0.0))
    state.squared_norm = squared_norm * unit
    lost = max(0.0, state.squared_norm - float(np.trace(seen)))
    put_known(engine, Known(s**2, vt, seen, leaked, lost, engine.n_features))
    state.shrinkage *= most * most
    state.rounding *= most**4
    eps, top = float(np.finfo(engine.dtype).eps), float(s.max(initial=0.0)) ** 2
    state.rounding = engine.joint_rounding((ROUNDING_PER_SHRINK * eps * top) ** 2)
    for mean in (engine.mean, engine.mean_low):
        mean *= own if len(mean) else 1.0
    return engine


def put_known(engine: AnyBuffer, known: Known) -> None:
    """Make a sketch of at most sketch_size rows the whole buffer."""
    size = engine.setting.sketch_size
    k = len(known.squares)
    engine.replace_rows((np.sqrt(known.squares)[:, np.newaxis] * known.vt)[::-1].astype(engine.dtype))
    engine.lam[:] = 0.0
    engine.lam[:k] = known.squares
    seen, leaked = np.zeros((size, size)), np.zeros((size, size))
    seen[:k, :k], leaked[:k, :k] = known.seen, known.leaked
    put_ledger(engine.ledger, {"seen": seen, "leaked": leaked, "lost": np.array([known.lost])})


def shrink_rows(rows: NDArray[Any], sketch_size: int) -> tuple[NDArray[Any], float]:
    """Shrink loose rows (m, d) once: return sketch_size - 1 rows, and the Delta that was removed."""
    exponent = exponent_for(frexp(float(np.abs(rows).max(initial=0.0)))[1], rows.dtype)
    if exponent:
        rows = np.ldexp(rows, -exponent)
    kept, bench = _flushed(rows, EngineSetting(sketch_size))
    with np.errstate(over="ignore", under="ignore"):
        lost = float(np.ldexp(bench.shrinkage, 2 * exponent))
    return np.ldexp(kept, exponent) if exponent else kept, lost


def _shrunk(engine: AnyBuffer, rows: NDArray[Any]) -> NDArray[Any]:
    """Shrink loose rows once, as `engine` would do it, which takes note of Delta."""
    kept, bench = _flushed(rows, engine.setting)
    engine.state.shrinkage += bench.shrinkage
    engine.state.rounding = engine.joint_rounding(bench.rounding)
    return kept


def _flushed(rows: NDArray[Any], setting: EngineSetting) -> tuple[NDArray[Any], DenseEngine]:
    """Return (the rows of one shrink of settled rows, the buffer that they passed)."""
    size = setting.sketch_size
    alone = EngineSetting(size, setting.share_lowered, buffer_size=max(0, len(rows) - size), solver="gram")
    bench = DenseEngine(alone, rows.shape[1], dtype=rows.dtype)
    bench.replace_rows(rows, kept=False)
    bench.flush()
    return bench.settled_rows(), bench
