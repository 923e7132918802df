"""A sketch read out feature by feature: directions (slots, r) in its own dtype.

Of the CSR engine, whose kept rows lie like this already: beside it, one array of its size and a few blocks of features
in double. The singular values come from the Gram matrix of the rows, summed up in double.
"""

from math import ldexp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._kernels.linalg.products import add_gram, product
from fastsketch.sketching._engines import AnyEngine, SparseEngine

Matrix = NDArray[np.float64]

# Features that are made double at a time: at l = 128 a block of them stays in the third cache.
BLOCK = 4096
# Units of rounding of the largest square below which the Gram matrix of the rows says nothing of one, for each row.
GRAM_ROUNDING = 16.0
_EPS = float(np.finfo(np.float64).eps)


class ByFeature(NamedTuple):
    """A matrix that stands for A'A: directions' (squares directions), in squared units of the rows."""

    squares: Matrix  # (r,) descending
    directions: NDArray[Any]  # (slots, r) orthonormal columns, C-ordered
    shrinkage: float  # Delta
    rounding: float  # square of the allowance for the rounding of shrinks, in stored units
    squared_norm: float


def reads_by_feature(engine: AnyEngine) -> bool:
    """Return whether an engine has rows that are settled where they lie."""
    return isinstance(engine, SparseEngine) and not engine.setting.center and engine.setting.tolerance is None


@one_blas_thread
def columns_of(engine: AnyEngine) -> ByFeature:
    """Read an engine that ``reads_by_feature``, which stays as it is."""
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
    # over the columns themselves: what is written lies before all that is still to be read
    flat = engine.z.reshape(-1)
    for start in range(0, d, BLOCK):
        part = product(columns[start : start + BLOCK].astype(np.float64, order="C"), turn)
        flat[start * r : start * r + part.size] = part.reshape(-1)
    unit = ldexp(1.0, engine.exponent)
    with np.errstate(over="ignore", under="ignore"):
        return ByFeature(
            squares * unit * unit,
            flat[: d * r].reshape(d, r),
            engine.shrinkage * unit * unit,
            engine.rounding,
            engine.squared_norm * unit * unit,
        )


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
