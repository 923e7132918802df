"""Functions that choose, grow, read and merge sketch engines."""

from collections.abc import Sequence
from math import frexp
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastsketch._core import threads as _threads
from fastsketch._core.validation import is_sparse
from fastsketch._kernels.sketching.state import ROUNDING_PER_SHRINK
from fastsketch.sketching._decompose import decompose
from fastsketch.sketching._engines._base import AnyBuffer, exponent_for
from fastsketch.sketching._engines._dense_engine import DenseEngine, ExactEngine, dense_form
from fastsketch.sketching._engines._ledger import SketchSummary, merge_summaries, put_ledger
from fastsketch.sketching._engines._mapped_engine import MappedEngine
from fastsketch.sketching._engines._setting import SHARE, EngineSetting, Tolerance, exact_pays, squares_of
from fastsketch.sketching._engines._sparse_engine import SparseEngine, columns_of

AnyEngine = DenseEngine | SparseEngine | MappedEngine

# Share of nonzeros above which the dense kernels are faster on CSR rows.
DENSE_ABOVE = 0.15
# Largest dense buffer for sparse rows, in bytes, as their own size does not suggest so much memory.
MOST_BYTES = 1e9


def make_engine(setting: EngineSetting, rows: Any, *, dtype: np.dtype[Any]) -> AnyEngine:
    """Return an empty sketch engine for a stream that starts with these rows: mapped, sparse or dense.

    The choice depends on the first row only, so that it does not depend on how rows are split into batches. ValueError
    for sparse rows with solver "svd", whose buffer is dense, if it would take more than MOST_BYTES.
    """
    d = rows.shape[1]
    solver = setting.solver
    if solver == "auto":
        exact = setting.compressor is None and exact_pays(d, setting.sketch_size)
        solver = "exact" if exact else "gram"
    setting = setting.resolved(solver)
    kind = kind_for(setting, sparse=stays_sparse(rows[:1]))
    if kind is SparseEngine:
        setting = SparseEngine.for_features(setting, d)
    elif solver == "svd" and kind is DenseEngine and stays_sparse(rows[:1]):
        m = DenseEngine.capacity_for(setting)
        if (need := m * d * dtype.itemsize) > MOST_BYTES:
            raise ValueError(
                f"solver='svd' has a dense buffer of {m:,} x {d:,}, {need:,} bytes, more than {MOST_BYTES:g} for "
                "sparse rows: take solver='gram', whose buffer is sparse"
            )
    return kind(setting, d, dtype=dtype)


def stays_sparse(rows: Any) -> bool:
    """Return True if rows are a CSR matrix with so few nonzeros that the sparse engine is used for them."""
    return is_sparse(rows) and rows.nnz <= DENSE_ABOVE * rows.shape[0] * rows.shape[1]


def kind_for(setting: EngineSetting, *, sparse: bool) -> type[AnyEngine]:
    """Return the engine class for these settings: mapped, sparse or dense.

    Only solver "gram" has an engine for sparse rows.
    """
    if setting.compressor is not None:
        return MappedEngine
    return SparseEngine if sparse and setting.solver == "gram" else dense_form(setting)


Buffer = DenseEngine | SparseEngine
Weights = NDArray[np.float64] | None


def add_rows(engine: AnyEngine, rows: Any, weights: Weights) -> AnyEngine:
    """Add a batch of rows to a sketch engine, completely or not at all, and return the engine with these rows.

    It is the given engine, changed in place. If the rows may cause a shrink that exceeds the tolerance, it is a new
    and perhaps larger one, and the given one does not change.
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
        _threads.end_interrupted_limits()
        raise


def _absorbed(engine: Buffer, piece: Any, n: int, weights: Weights) -> Buffer:
    """Add n validated rows, a converted slice, and return the engine that has them.

    The sketch is enlarged where the tolerance requires it, in which case the engine is a new one.
    """
    start = 0
    while start < n:
        room = max(1, engine.room())
        stop = min(n, start + room) if engine.setting.grows else n
        part: Any = engine.part_of(piece, start, stop)
        part_weights = None if weights is None else weights[start:stop]
        saved = engine.arrays(copy=True) if engine.setting.grows and stop - start == room else None
        engine.absorb(part, part_weights)
        start = stop
        if saved is not None and _exceeds_tolerance_share(engine):
            engine.restore(saved)
            engine = _add_with_larger_size(engine, part, part_weights)
    return engine


def _rule(engine: Buffer) -> Tolerance:
    tolerance = engine.setting.tolerance
    assert tolerance is not None
    return tolerance


def _exceeds_tolerance_share(engine: Buffer) -> bool:
    """Return True if the sketch must grow: shrinks have caused more than their share of the allowed error.
    It is False if the sketch already has the largest allowed size.
    """
    tolerance, size = _rule(engine), engine.setting.sketch_size
    return tolerance.bounded(size + 1, engine.n_features) > size and tolerance.spent(engine.state, SHARE)


def misses_tolerance(engine: AnyEngine) -> bool:
    """Return True if the error that shrinks have caused so far exceeds the tolerance.
    The reason may be that ``max_sketch_size`` does not allow a larger sketch.
    """
    return not isinstance(engine, MappedEngine) and engine.setting.grows and _rule(engine).spent(engine.state, 1.0)


def _add_with_larger_size(engine: Buffer, part: Any, weights: Weights) -> Buffer:
    """Return a new engine that is larger and has the given rows too; the given engine does not change.
    At the present size a shrink would remove too much.
    """
    tolerance, d = _rule(engine), engine.n_features
    larger = engine.resized(tolerance.bounded(tolerance.next_size(engine.setting.sketch_size), d))
    larger.absorb(part, weights)
    settled, wanted = larger.clone(), larger.setting.sketch_size
    squares, whole = settled.leading_squares()
    size = tolerance.smallest(squares, settled.state, rounding=0.0, share=SHARE)
    if whole or size <= len(squares):  # else the next shrink will determine it
        wanted = max(wanted, tolerance.bounded(size, d))
    return _enlarged(larger, wanted)


def _enlarged(engine: Buffer, sketch_size: int) -> Buffer:
    """Return an engine that contains the same rows and has at least the given sketch size. If A'A is faster to
    accumulate than such a sketch, the result is an ExactEngine.
    """
    if isinstance(engine, DenseEngine) and _rule(engine).chooses and exact_pays(engine.n_features, sketch_size):
        setting = engine.setting.of_size(sketch_size).resolved("exact")
        total = ExactEngine(setting, engine.n_features, dtype=engine.dtype)
        total.align(engine)
        total.add(engine)
        return total
    return engine.resized(sketch_size) if sketch_size > engine.setting.sketch_size else engine


# -- reading -----------------------------------------------------------------------------------------------------------
def copy_to_read(engine: AnyEngine) -> AnyEngine:
    """Return a copy of an engine from which results are read, so that the original does not change.

    With a tolerance, the copy is reduced to the smallest sketch size that meets it.
    """
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
    """Return the smallest sketch size that meets the tolerance for the rows of this engine, limited to the sizes that
    are allowed. The engine does not change.
    """
    tolerance, settled = _rule(engine), engine.clone()
    squares, whole = settled.leading_squares()
    size = tolerance.smallest_to_read(squares, settled.state, settled.dtype)
    if not whole and size > len(squares):
        settled = engine.clone()
        size = tolerance.smallest_to_read(squares_of(settled.settled_rows()), settled.state, settled.dtype)
    return tolerance.bounded(size, engine.n_features)


AnyBufferT = TypeVar("AnyBufferT", bound=AnyBuffer)


def merge_engines(
    mine: DenseEngine | SparseEngine | MappedEngine, theirs: DenseEngine | SparseEngine | MappedEngine
) -> DenseEngine | SparseEngine | MappedEngine:
    """Return an engine that has the rows of both engines: `mine`, changed in place, or a new one.
    `theirs` does not change.

    Without decay, centring and log of removed mass, the rows of the second pass through the buffer of the first.
    Otherwise both are reduced and stacked, with the correction row of FROSH Algorithm 3 between two means, and one
    shrink leaves sketch_size - 1 rows, unless all fit.
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
        correction = mine.add_sums(theirs)
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
        summary = mine.summary(), theirs.summary()
        _put_merged(mine, summary, mine.add_sums(theirs))
        return mine
    parts = [mine.reduce(), theirs.reduce()]
    correction = mine.add_sums(theirs)
    if correction is not None:
        parts.append(correction)
    return _with_rows(mine, np.vstack(parts))


def merges_in_place(
    mine: DenseEngine | SparseEngine | MappedEngine, theirs: DenseEngine | SparseEngine | MappedEngine
) -> bool:
    """Return True if ``merge_engines`` can take its fast path and add the rows of the second engine to the buffer of
    the first, without a copy.

    They must be dense, of equal settings and scale, without centring, decay, tolerance and log of removed mass.
    """
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


def _with_rows(mine: AnyBufferT, rows: NDArray[Any]) -> AnyBufferT:
    """Overwrite the buffer of an engine with other rows, in place, and return the engine.
    More rows than the sketch may have are shrunk first.
    """
    if len(rows) > mine.most_rows(mine.setting):
        rows = _shrunk(mine, rows)
    mine.replace_rows(rows)
    return mine


def _in_common_columns(
    mine: DenseEngine | SparseEngine, theirs: DenseEngine | SparseEngine
) -> tuple[DenseEngine | SparseEngine, DenseEngine | SparseEngine]:
    """Return two engines with the same stored columns in the same order, as a merge needs them.

    Sparse engines are copied if their columns change. The columns of `mine` come first; an engine of dense rows has all
    columns.
    """
    if isinstance(mine, SparseEngine) and isinstance(theirs, SparseEngine):
        columns = mine.columns_with(theirs)
        return mine.on_columns(columns), theirs.on_columns(columns)
    every = np.arange(mine.n_features)
    if isinstance(mine, SparseEngine):
        return mine.on_columns(every), theirs
    return mine, theirs.on_columns(every) if isinstance(theirs, SparseEngine) else theirs


def merge_growing(mine: AnyBufferT, theirs: AnyBuffer, tolerance: Tolerance) -> AnyBufferT:
    """Return the merge of two engines that have a tolerance.
    It has the sketch size that the tolerance requires for the rows of both.
    """
    summary: tuple[SketchSummary, ...] = ()
    if mine.ledger is not None:
        summary = mine.summary(reduced=False), theirs.summary(reduced=False)
        parts = [np.sqrt(one.squares)[:, np.newaxis] * one.vt for one in summary]
    else:
        parts = [mine.settled_rows(), theirs.settled_rows()]
    correction = mine.add_sums(theirs)
    if correction is not None:
        parts.append(correction)
    rows = np.vstack(parts)
    wanted = tolerance.smallest(squares_of(rows), mine.state, rounding=0.0, share=SHARE)
    mine.replace_rows(rows[:0])
    mine = mine.resized(max(mine.setting.sketch_size, tolerance.bounded(wanted, mine.n_features)))
    if summary:
        _put_merged(mine, summary, correction)
        return mine
    return _with_rows(mine, rows)


def _put_merged(mine: AnyBuffer, summary: Sequence[SketchSummary], correction: NDArray[Any] | None) -> None:
    """Overwrite the engine `mine` with the merge of two sketch summaries and a row for their different means.

    The error sums include the shrink of the merge.
    """
    extra = np.empty((0, mine.width)) if correction is None else correction.astype(np.float64)
    size = mine.setting.sketch_size
    most = mine.most_rows(mine.setting)
    merged, delta = merge_summaries(
        summary[0], summary[1], extra, most=most, n_keep=size - 1, n_spare=mine.setting.rows_spared
    )
    mine.state.shrinkage += delta
    eps, top = float(np.finfo(mine.dtype).eps), float(merged.squares.max(initial=0.0)) + delta
    mine.state.rounding = mine.joint_rounding((ROUNDING_PER_SHRINK * eps * top) ** 2)
    put_summary(mine, merged)


def with_columns_multiplied(
    engine: DenseEngine | SparseEngine, factors: NDArray[np.float64], squared_norm: float
) -> DenseEngine | SparseEngine:
    """Return a new engine of the same rows, with every column multiplied by a factor of at most 1.

    From 0 <= A'A - B'B <= Delta I follows 0 <= T (A'A - B'B) T <= max(t)^2 Delta I: the certificate does not grow.
    `squared_norm` is that of the multiplied rows, which a sketch does not know.
    """
    engine = engine.clone()
    own = factors[columns_of(engine)]
    if (own == 1.0).all():
        return engine
    summary = engine.summary()
    s, vt = decompose(np.sqrt(summary.squares)[:, np.newaxis] * summary.vt * own)
    turn, unit = (summary.vt * own) @ vt.T, np.ldexp(1.0, -2 * engine.exponent)
    seen, leaked = (turn.T @ matrix @ turn for matrix in (summary.seen, summary.leaked))
    state, most = engine.state, float(own.max(initial=0.0))
    state.squared_norm = squared_norm * unit
    lost = max(0.0, state.squared_norm - float(np.trace(seen)))
    put_summary(engine, SketchSummary(s**2, vt, seen, leaked, lost, engine.n_features))
    state.shrinkage *= most * most
    state.rounding *= most**4
    eps, top = float(np.finfo(engine.dtype).eps), float(s.max(initial=0.0)) ** 2
    state.rounding = engine.joint_rounding((ROUNDING_PER_SHRINK * eps * top) ** 2)
    for mean in (engine.mean, engine.mean_low):
        mean *= own if len(mean) else 1.0
    return engine


def put_summary(engine: AnyBuffer, summary: SketchSummary) -> None:
    """Overwrite an engine's rows and its ledger of removed squares with those of a sketch summary, in place.

    The summary must have at most sketch_size rows.
    """
    size = engine.setting.sketch_size
    k = len(summary.squares)
    engine.replace_rows((np.sqrt(summary.squares)[:, np.newaxis] * summary.vt)[::-1].astype(engine.dtype))
    engine.lam[:] = 0.0
    engine.lam[:k] = summary.squares
    seen, leaked = np.zeros((size, size)), np.zeros((size, size))
    seen[:k, :k], leaked[:k, :k] = summary.seen, summary.leaked
    put_ledger(engine.ledger, {"seen": seen, "leaked": leaked, "lost": np.array([summary.lost])})


def shrink_rows(rows: NDArray[Any], sketch_size: int) -> tuple[NDArray[Any], float]:
    """Return (at most sketch_size - 1 rows, the value subtracted from squared norms) after one shrink of a matrix."""
    exponent = exponent_for(frexp(float(np.abs(rows).max(initial=0.0)))[1], rows.dtype)
    if exponent:
        rows = np.ldexp(rows, -exponent)
    kept, bench = _flushed(rows, EngineSetting(sketch_size))
    with np.errstate(over="ignore", under="ignore"):
        lost = float(np.ldexp(bench.shrinkage, 2 * exponent))
    return np.ldexp(kept, exponent) if exponent else kept, lost


def _shrunk(engine: AnyBuffer, rows: NDArray[Any]) -> NDArray[Any]:
    """Shrink rows once with the settings of an engine, and return the remaining rows.

    The subtracted square and the rounding error are added to the engine's sums.
    """
    kept, bench = _flushed(rows, engine.setting)
    engine.state.shrinkage += bench.shrinkage
    engine.state.rounding = engine.joint_rounding(bench.rounding)
    return kept


def _flushed(rows: NDArray[Any], setting: EngineSetting) -> tuple[NDArray[Any], DenseEngine]:
    """Return (rows after one shrink, temporary engine), whose shrinkage and rounding error the caller reads."""
    size = setting.sketch_size
    alone = EngineSetting(size, setting.share_lowered, buffer_size=max(0, len(rows) - size), solver="gram")
    bench = DenseEngine(alone, rows.shape[1], dtype=rows.dtype)
    bench.replace_rows(rows, kept=False)
    bench.flush()
    return bench.settled_rows(), bench
