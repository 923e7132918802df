"""The read-out of a sketch: B = diag(s) vt, and the certificate that belongs to it."""

from math import ldexp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.sketching._by_feature import columns_of, make_upright, reads_by_feature
from fastsketch.sketching._engines import AnyEngine, decompose, to_read

# Units of rounding of the largest squared singular value, by size of the dtype, by which a read-out itself may be off.
# It runs in double: of a float32 sketch, its values and vectors are rounded once; of a float64 sketch, what counts is
# the decomposition of its rows, whose error was measured up to 72 units on 6,000 streams (LAPACK's SVD: 71).
READ_OUT_ROUNDING = {4: 8.0, 8: 128.0}


class SketchReadOut(NamedTuple):
    """One read-out, in the units of the rows."""

    s: NDArray[Any]  # (r,) descending
    vt: NDArray[Any]  # (r, width) orthonormal rows, in the columns that the engine stores
    shrinkage: float  # Delta
    rounding: float  # allowance for rounding in the certificate
    mean: NDArray[np.float64] | None  # (width,) of a centred sketch
    squared_norm: float


def upright(vt: NDArray[Any]) -> NDArray[Any]:
    """Return rows with the sign that makes their largest entry positive: the same from every solver."""
    if not vt.size:
        return vt
    return vt * np.where(vt[np.arange(len(vt)), np.abs(vt).argmax(axis=1)] < 0, -1.0, 1.0)[:, np.newaxis]


def allowance(dtype: np.dtype[Any], rounding: float, longest: float) -> float:
    """Return the allowance for rounding in the certificate of a reduced engine, in stored units."""
    return float(np.hypot(np.sqrt(rounding), READ_OUT_ROUNDING[dtype.itemsize] * float(np.finfo(dtype).eps) * longest))


def unspent(shrinkage: float, regained: float) -> float:
    """Return the part of Delta that every kept direction of FD has lost: not what a second pass has given back."""
    return max(0.0, shrinkage - regained) if regained < np.inf else 0.0


def read_out(engine: AnyEngine, *, compensates: bool, regained: float = 0.0) -> SketchReadOut:
    """Read an engine, which stays as it is; `compensates`: add Delta less `regained` to the squared singular values."""
    if engine.dtype == np.float32 and reads_by_feature(engine):
        return _read_by_feature(engine, compensates=compensates, regained=regained)
    engine = to_read(engine)
    s, vt = decompose(engine.reduce().astype(np.float64, copy=False))
    dtype = engine.dtype
    unit, shrinkage = ldexp(1.0, engine.exponent), engine.shrinkage
    longest = float(s[0]) if len(s) else 0.0
    rounding = allowance(engine.dtype, engine.rounding, longest * longest)
    if compensates and shrinkage > 0:
        s = np.sqrt(s**2 + unspent(shrinkage, regained / unit / unit))
    vt = upright(vt)
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
    """Read in less memory, of float32 rows: what their products in double leave of the smallest is rounded away."""
    by_feature, unit = columns_of(engine), ldexp(1.0, engine.exponent)
    longest = float(by_feature.squares.max(initial=0.0)) / unit / unit
    rounding, squares = allowance(engine.dtype, by_feature.rounding, longest), by_feature.squares
    if compensates:
        squares = squares + unspent(by_feature.shrinkage, regained)
    make_upright(by_feature.directions)
    with np.errstate(over="ignore", under="ignore"):
        s = np.sqrt(squares).astype(engine.dtype)
        return SketchReadOut(
            s, by_feature.directions.T, by_feature.shrinkage, rounding * unit * unit, None, by_feature.squared_norm
        )
