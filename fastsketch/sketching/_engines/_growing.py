"""Engines whose l follows a tolerance: each function returns the engine to continue with, the same or a larger one.

A shrink is made, and taken back if it has removed too much: the rows that led to it then go into a larger buffer.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core import threads as _threads
from fastsketch.sketching._engines._dense_engine import DenseEngine
from fastsketch.sketching._engines._engine_choice import AnyEngine
from fastsketch.sketching._engines._engine_setting import exact_pays
from fastsketch.sketching._engines._exact_engine import ExactEngine
from fastsketch.sketching._engines._mapped_engine import MappedEngine
from fastsketch.sketching._engines._sparse_engine import SparseEngine
from fastsketch.sketching._engines._tolerance import SHARE, Tolerance, squares_of

Buffer = DenseEngine | SparseEngine
Weights = NDArray[np.float64] | None


def updated(engine: AnyEngine, rows: Any, weights: Weights) -> AnyEngine:
    """Take all rows of a batch, or none, as ``SketchEngine.update``; return the engine that has them.

    It is another one, and the one given stays as it was, where rows may bring a shrink that goes beyond the tolerance.
    """
    if isinstance(engine, MappedEngine) or not engine.setting.grows or rows.shape[0] < engine.room():
        engine.update(rows, weights)
        return engine
    n, step = rows.shape[0], engine.step(rows)
    try:
        grown: Buffer = engine.clone()
        for start in range(0, n, step):
            part = None if weights is None else weights[start : start + step]
            piece = grown.checked(rows[start : start + step] if step < n else rows, part, offset=start)
            grown = _absorbed(grown, piece, min(step, n - start), part)
        return grown
    except BaseException:
        _threads.settle()
        raise


def _absorbed(engine: Buffer, piece: Any, n: int, weights: Weights) -> Buffer:
    """Take a checked slice of n rows, in parts of one shrink at most; one that removes too much is taken back."""
    start = 0
    while start < n:
        room = max(1, engine.room())
        stop = min(n, start + room) if engine.setting.grows else n
        part: Any = engine.part_of(piece, start, stop)
        part_weights = None if weights is None else weights[start:stop]
        saved = engine.arrays(copy=True) if engine.setting.grows and stop - start == room else None
        engine.absorb(part, part_weights)
        start = stop
        if saved is not None and _too_much(engine):
            engine.restore(saved)
            engine = _with_room_for(engine, part, part_weights)
    return engine


def _rule(engine: Buffer) -> Tolerance:
    tolerance = engine.setting.tolerance
    assert tolerance is not None
    return tolerance


def _too_much(engine: Buffer) -> bool:
    """Return whether shrinks have removed more than the tolerance leaves to them, though l may still grow."""
    tolerance, size = _rule(engine), engine.setting.sketch_size
    return tolerance.bounded(size + 1, engine.n_features) > size and tolerance.spent(engine.state, SHARE)


def misses_tolerance(engine: AnyEngine) -> bool:
    """Return whether shrinks alone have removed more than the whole tolerance."""
    return not isinstance(engine, MappedEngine) and engine.setting.grows and _rule(engine).spent(engine.state, 1.0)


def _with_room_for(engine: Buffer, part: Any, weights: Weights) -> Buffer:
    """Take a part that would lead to a shrink into a larger buffer instead."""
    tolerance, d = _rule(engine), engine.n_features
    larger = engine.resized(tolerance.bounded(tolerance.next_size(engine.setting.sketch_size), d))
    larger.absorb(part, weights)
    settled, wanted = larger.clone(), larger.setting.sketch_size
    squares, whole = settled.leading_squares()
    size = tolerance.smallest(squares, settled.state, rounding=0.0, share=SHARE)
    if whole or size <= len(squares):  # else the next shrink will say more
        wanted = max(wanted, tolerance.bounded(size, d))
    return _enlarged(larger, wanted)


def _enlarged(engine: Buffer, sketch_size: int) -> Buffer:
    """Return an engine of at least so large an l, or the exact sum where that is faster; nothing is lost."""
    if isinstance(engine, DenseEngine) and _rule(engine).chooses and exact_pays(engine.n_features, sketch_size):
        setting = engine.setting.of_size(sketch_size).resolved("exact")
        total = ExactEngine(setting, engine.n_features, dtype=engine.dtype)
        total.align(engine)
        total.add(engine)
        return total
    return engine.resized(sketch_size) if sketch_size > engine.setting.sketch_size else engine


# -- reading -----------------------------------------------------------------------------------------------------------
def to_read(engine: AnyEngine) -> AnyEngine:
    """Return a clone to read from: where l follows a tolerance, shrunk to the smallest that meets it."""
    clone = engine.clone()
    if isinstance(clone, MappedEngine) or not clone.setting.grows:
        return clone
    size = _smallest_size(clone)
    if size > clone.setting.sketch_size:
        clone = clone.resized(size)  # there are arrays for as many rows first
    setting, state = clone.setting.of_size(size), clone.state
    # a last shrink, which leaves as many rows as under that setting
    state.n_keep, state.n_spare = size - 1, setting.rows_spared
    if clone.ledger is not None:
        clone.ledger.n_spare = min(state.n_spare, state.n_keep)
    if state.fill + (setting.center and state.fill > state.kept) > clone.most_rows(setting):
        clone.flush()
    return clone if size == clone.setting.sketch_size else clone.resized(size)


def _smallest_size(engine: Buffer) -> int:
    """Return the smallest l that meets the tolerance, or the largest there is."""
    tolerance, settled = _rule(engine), engine.clone()
    squares, whole = settled.leading_squares()
    size = tolerance.smallest_to_read(squares, settled.state, settled.dtype)
    if not whole and size > len(squares):
        settled = engine.clone()
        size = tolerance.smallest_to_read(squares_of(settled.settled_rows()), settled.state, settled.dtype)
    return tolerance.bounded(size, engine.n_features)
