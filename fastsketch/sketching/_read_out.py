"""The results of a sketch: singular values and directions, the error bound, and linear operators made from them."""

from math import ldexp
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._kernels.linalg.products import add_gram, product
from fastsketch.sketching._engines import AnyEngine, SparseEngine, copy_to_read, decompose

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

Matrix = NDArray[np.float64]

# Features that are converted to double at a time: at l = 128 a block of them fits the third cache.
BLOCK = 4096
# Squares below this many units of rounding of the largest, for each row, are rounding of the Gram matrix.
GRAM_ROUNDING = 16.0
_EPS = float(np.finfo(np.float64).eps)


class DirectionsByFeature(NamedTuple):
    """Singular values and directions of a sketch of sparse rows; directions have one row per feature.

    The sparse engine stores them so, which saves memory.
    """

    squares: Matrix  # (r,) descending
    directions: NDArray[Any]  # (slots, r) orthonormal columns, C-ordered
    shrinkage: float  # Delta
    rounding: float  # square of the allowance for the rounding of shrinks, in stored units
    squared_norm: float


def reads_by_feature(engine: AnyEngine) -> bool:
    """Return True if ``columns_of`` can compute the results of this engine: it stores sparse rows, and has neither
    centring nor a tolerance.
    """
    return isinstance(engine, SparseEngine) and not engine.setting.center and engine.setting.tolerance is None


@one_blas_thread
def columns_of(engine: AnyEngine) -> DirectionsByFeature:
    """Return singular values and directions of a sketch of sparse rows, in less memory than ``read_out`` takes.

    For engines for which ``reads_by_feature`` is true; they do not change. The singular values come from the Gram
    matrix of the rows, summed up in double.
    """
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
    turn = np.ascontiguousarray(gain[:, np.newaxis] * turn)
    # overwrites the columns: what is written lies before all that is still to be read
    flat = engine.z.reshape(-1)
    for start in range(0, d, BLOCK):
        part = product(columns[start : start + BLOCK].astype(np.float64, order="C"), turn)
        flat[start * r : start * r + part.size] = part.reshape(-1)
    unit = ldexp(1.0, engine.exponent)
    with np.errstate(over="ignore", under="ignore"):
        return DirectionsByFeature(
            squares * unit * unit,
            flat[: d * r].reshape(d, r),
            engine.shrinkage * unit * unit,
            engine.rounding,
            engine.squared_norm * unit * unit,
        )


def fix_column_signs(directions: NDArray[Any]) -> None:
    """Flip the signs of columns of `directions`, in place, so that each column's largest entry is positive.

    This makes the sign of singular vectors unique.
    """
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


# Rounding of the read-out itself, in units of the largest squared singular value, by itemsize of the dtype. It runs in
# double: results of a float32 sketch are rounded once; for a float64 sketch the decomposition of its rows counts, whose
# error was measured up to 72 units on 6,000 streams (LAPACK's SVD: 71).
READ_OUT_ROUNDING = {4: 8.0, 8: 128.0}


class SketchReadOut(NamedTuple):
    """Results of a sketch: singular values and directions, shrinkage, rounding error, mean and squared norm."""

    s: NDArray[Any]  # (r,) descending
    vt: NDArray[Any]  # (r, width) orthonormal rows, in the columns that the engine stores
    shrinkage: float  # Delta
    rounding: float  # allowance for rounding in the certificate
    mean: NDArray[np.float64] | None  # (width,) of a centred sketch
    squared_norm: float


def fix_row_signs(vt: NDArray[Any]) -> NDArray[Any]:
    """Return rows with signs flipped so that the entry of largest magnitude in each is positive.

    This makes the sign of singular vectors unique.
    """
    if not vt.size:
        return vt
    return vt * np.where(vt[np.arange(len(vt)), np.abs(vt).argmax(axis=1)] < 0, -1.0, 1.0)[:, np.newaxis]


def allowance(dtype: np.dtype[Any], rounding: float, longest: float) -> float:
    """Return the rounding error that the error bound must include, a float.

    It is the root of the sum of two squares: of the error of shrinks, whose square is `rounding`, and of the error of
    computed eigenvalues. `longest` is the largest squared singular value, in the engine's scale.
    """
    return float(np.hypot(np.sqrt(rounding), READ_OUT_ROUNDING[dtype.itemsize] * float(np.finfo(dtype).eps) * longest))


def remaining_shrinkage(shrinkage: float, regained: float) -> float:
    """Return the shrinkage that still affects the sketch: the total minus what a second pass has restored."""
    return max(0.0, shrinkage - regained) if regained < np.inf else 0.0


def read_out(engine: AnyEngine, *, compensates: bool, regained: float = 0.0) -> SketchReadOut:
    """Return the singular values, directions and error terms of a sketch, as a SketchReadOut.
    The engine itself does not change.

    `compensates`: add Delta - `regained` to the squared singular values, as method "cfd" does.
    """
    if engine.dtype == np.float32 and reads_by_feature(engine):
        return _read_by_feature(engine, compensates=compensates, regained=regained)
    engine = copy_to_read(engine)
    s, vt = decompose(engine.reduce().astype(np.float64, copy=False))
    dtype = engine.dtype
    unit, shrinkage = ldexp(1.0, engine.exponent), engine.shrinkage
    longest = float(s[0]) if len(s) else 0.0
    rounding = allowance(engine.dtype, engine.rounding, longest * longest)
    if compensates and shrinkage > 0:
        s = np.sqrt(s**2 + remaining_shrinkage(shrinkage, regained / unit / unit))
    vt = fix_row_signs(vt)
    with np.errstate(over="ignore", under="ignore"):
        return SketchReadOut(
            (s * unit).astype(dtype),
            vt.astype(dtype, copy=False),
            shrinkage * unit * unit,
            rounding * unit * unit,
            engine.mean * unit if engine.setting.center else None,
            engine.squared_norm * unit * unit,
        )


def _read_by_feature(engine: AnyEngine, *, compensates: bool, regained: float) -> SketchReadOut:
    """Return the results of a float32 sketch of sparse rows as a SketchReadOut, in less memory than ``read_out`` takes.
    The engine does not change.

    The result is rounded to float32.
    """
    by_feature, unit = columns_of(engine), ldexp(1.0, engine.exponent)
    longest = float(by_feature.squares.max(initial=0.0)) / unit / unit
    rounding, squares = allowance(engine.dtype, by_feature.rounding, longest), by_feature.squares
    if compensates:
        squares = squares + remaining_shrinkage(by_feature.shrinkage, regained)
    fix_column_signs(by_feature.directions)
    with np.errstate(over="ignore", under="ignore"):
        s = np.sqrt(squares).astype(engine.dtype)
        return SketchReadOut(
            s, by_feature.directions.T, by_feature.shrinkage, rounding * unit * unit, None, by_feature.squared_norm
        )


Doubles = NDArray[np.float64]


def gram_operator(s: Doubles, vt: Doubles, *, alpha: float) -> "LinearOperator":
    """Return a scipy LinearOperator for the d x d matrix V diag(s^2) V' + alpha I, without forming it. `vt` has the
    directions V as rows.

    A product with a vector costs 4 d l.
    """

    def apply(x: NDArray[Any]) -> NDArray[Any]:
        # V diag(s^2) V' x + alpha x
        return vt.T @ (_column(s * s, x) * (vt @ x)) + alpha * x

    return _symmetric(apply, vt.shape[1])


def solve_gram(s: Doubles, vt: Doubles, *, alpha: float, v: NDArray[Any]) -> NDArray[Any]:
    """Solve (V diag(s^2) V' + alpha I) x = v by the Woodbury identity, and return x. With alpha = 0, V must be
    square.
    """
    squares = s * s
    y = vt @ v
    if alpha > 0:
        # (v - V diag(s^2 / (s^2 + alpha)) V' v) / alpha
        return (v - vt.T @ (_column(squares / (squares + alpha), v) * y)) / alpha
    return vt.T @ (y / _column(squares, v))


def inverse_operator(s: Doubles, vt: Doubles, *, alpha: float) -> "LinearOperator":
    """Return a scipy LinearOperator for the inverse of V diag(s^2) V' + alpha I, without forming it.

    For example as the preconditioner M of scipy.sparse.linalg.cg.
    """

    def apply(x: NDArray[Any]) -> NDArray[Any]:
        return solve_gram(s, vt, alpha=alpha, v=x)

    return _symmetric(apply, vt.shape[1])


def _symmetric(apply: Any, d: int) -> "LinearOperator":
    from scipy.sparse.linalg import LinearOperator

    return LinearOperator((d, d), matvec=apply, rmatvec=apply, matmat=apply, rmatmat=apply, dtype=np.dtype(np.float64))


def _column(values: Doubles, x: NDArray[Any]) -> Doubles:
    return values if x.ndim == 1 else values[:, np.newaxis]
