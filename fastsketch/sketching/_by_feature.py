"""A sketch read out feature by feature: directions (d, r) in its own dtype, for models that have a row for each column.

Of the CSR engine, whose kept rows lie like this already: beside it, one array of its size and a few blocks of features
in double. The singular values come from the Gram matrix of the rows, summed up in double.
"""

from math import ldexp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._kernels.linalg.products import add_gram, product
from fastsketch.sketching._engines import AnyEngine, ExactEngine, Known, SparseEngine, to_read
from fastsketch.sketching._methods import Method

Matrix = NDArray[np.float64]

# Features that are made double at a time: at l = 128 a block of them stays in the third cache.
BLOCK = 4096
# Units of rounding of the largest square below which the Gram matrix of the rows says nothing of one, for each row.
GRAM_ROUNDING = 16.0
_EPS = float(np.finfo(np.float64).eps)


class ByFeature(NamedTuple):
    """A matrix that stands for A'A: directions' (squares directions), in squared units of the rows."""

    squares: Matrix  # (r,) descending: of B, or what a ledger says that the directions hold
    directions: NDArray[Any]  # (d, r) orthonormal columns, C-ordered
    shrinkage: float  # Delta
    rounding: float  # square of the allowance for the rounding of shrinks, in stored units
    squared_norm: float


def by_feature(engine: AnyEngine, method: Method, *, most: int | None = None) -> ByFeature:
    """Read an engine, which stays as it is; of an exact sum `most` pairs, by default as many as it keeps."""
    if reads_by_feature(engine):
        return columns_of(engine, tracks=method.tracks)
    if not (isinstance(engine, ExactEngine) and engine.is_settled_sum):
        engine = to_read(engine)
    known = engine.known(most)
    squares, turn = held(known) if method.tracks else (known.squares, None)
    vt = known.vt if turn is None else product(np.ascontiguousarray(turn.T), np.ascontiguousarray(known.vt))
    return _in_units(engine, squares, np.ascontiguousarray(vt.T, engine.dtype))


def reads_by_feature(engine: AnyEngine) -> bool:
    """Return whether an engine has rows that are settled where they lie."""
    return isinstance(engine, SparseEngine) and not engine.setting.center and engine.setting.tolerance is None


@one_blas_thread
def columns_of(engine: AnyEngine, *, tracks: bool = False) -> ByFeature:
    """Return the same of an engine that ``reads_by_feature``: of B, or (`tracks`) of its ledger."""
    assert isinstance(engine, SparseEngine)
    engine = engine.clone()
    columns = engine.columns()
    d, m = columns.shape
    gram = np.zeros((m, m))
    for start in range(0, d, BLOCK):
        # G += Z.T @ Z
        add_gram(columns[start : start + BLOCK].astype(np.float64, order="C"), gram, turned=True)
    gain = np.append(engine.gain[: engine.state.kept], np.ones(m - engine.state.kept))
    gram = np.triu(gram) + np.triu(gram, 1).T
    gram *= gain * gain[:, np.newaxis]
    if not np.isfinite(gram).all():
        raise np.linalg.LinAlgError("the rows of the sketch have left the range of numbers")
    squares, turn = (array[..., ::-1] for array in np.linalg.eigh(gram))
    least = GRAM_ROUNDING * m * _EPS * float(squares.max(initial=0.0))
    r = int(np.count_nonzero(squares > least))
    squares = squares[:r].copy()
    # the directions are Z turn
    turn = turn[:, :r] / np.sqrt(squares)
    if tracks:
        squares, inner = held(_known_by_products(engine, gram, turn, squares))
        turn = turn if inner is None else turn @ inner
    turn = np.ascontiguousarray(gain[:, np.newaxis] * turn)
    # over the columns themselves: what is written lies before all that is still to be read
    flat = engine.z.reshape(-1)
    for start in range(0, d, BLOCK):
        part = product(columns[start : start + BLOCK].astype(np.float64, order="C"), turn)
        flat[start * r : start * r + part.size] = part.reshape(-1)
    return _in_units(engine, squares, flat[: d * r].reshape(d, r))


def make_upright(directions: NDArray[Any]) -> None:
    """Give columns the sign that makes their largest entry positive, in place."""
    r = directions.shape[1]
    largest, sign = np.zeros(r, directions.dtype), np.ones(r, directions.dtype)
    for start in range(0, len(directions), BLOCK):
        block = directions[start : start + BLOCK]
        here = block[np.abs(block).argmax(axis=0), np.arange(r)]
        larger = np.abs(here) > largest
        largest[larger] = np.abs(here[larger])
        sign[larger] = np.where(here[larger] < 0, -1, 1)
    for start in range(0, len(directions), BLOCK):
        directions[start : start + BLOCK] *= sign


def _known_by_products(engine: SparseEngine, gram: Matrix, turn: Matrix, squares: Matrix) -> Known:
    """Return what ``known_of`` returns, from the Gram matrix of the rows: vt is left empty."""
    k, ledger = engine.state.kept, engine.ledger
    assert ledger is not None
    lengths = np.sqrt(np.diag(gram)[:k])
    inverse = np.divide(1.0, lengths, out=np.zeros(k), where=lengths > 0)
    before = np.asarray(ledger.seen)[:k, :k]
    # the directions along those that the ledger knows, and along the new rows
    along, new = turn.T @ gram[:, :k] * inverse, turn.T @ gram[:, k:]
    outside = np.eye(len(squares)) - along @ along.T
    density = ledger.lost / (engine.n_features - k) if engine.n_features > k else 0.0
    seen = along @ before @ along.T + new @ new.T
    leaked = along @ np.asarray(ledger.leaked)[:k, :k] @ along.T + outside * density
    return Known(squares, np.empty((len(squares), 0)), seen, leaked, 0.0)


def held(known: Known) -> tuple[Matrix, Matrix | None]:
    """Return squares by a ledger, and their directions in terms of those known, by columns; None for the same."""
    with np.errstate(over="ignore", invalid="ignore"):
        both = known.seen + known.leaked
    if not np.isfinite(both).all():  # of sums beyond the range of a double
        return known.squares, None
    values, turn = np.linalg.eigh(both)
    return np.maximum(values[::-1], 0.0), np.ascontiguousarray(turn[:, ::-1])


def _in_units(engine: AnyEngine, squares: Matrix, directions: NDArray[Any]) -> ByFeature:
    unit = ldexp(1.0, engine.exponent)
    with np.errstate(over="ignore", under="ignore"):
        return ByFeature(
            squares * unit * unit,
            directions,
            engine.shrinkage * unit * unit,
            engine.rounding,
            engine.squared_norm * unit * unit,
        )
