"""What a sketch says of the eigenvalues of A'A: intervals that always hold, and a point inside each."""

from math import hypot, ldexp, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.sketching._engines import AnyEngine, DenseEngine, Known
from fastsketch.sketching._leading import LEADING_ROUNDING
from fastsketch.sketching._methods import Method
from fastsketch.sketching._reading import READ_OUT_ROUNDING, upright

Matrix = NDArray[np.float64]


class Spectrum(NamedTuple):
    """Estimates of the leading eigenvalues of A'A (squared singular values of A), and what is certain of them.

    Attributes
    ----------
    values : ndarray (r,)
        Estimates, descending, in squared units of the rows.
    vectors : ndarray (r, d)
        Orthonormal directions that belong to them.
    low, high : ndarray (r,)
        The i-th largest eigenvalue of A'A lies in [low[i], high[i]].
    """

    values: Matrix
    vectors: Matrix
    low: Matrix
    high: Matrix


class Overview(NamedTuple):
    """A spectrum, and what else there is to know of the rows, in one read-out."""

    spectrum: Spectrum
    squared_norm: float
    mean: Matrix | None  # (d,) of a centred sketch
    rounding: float  # what rounding may have moved an eigenvalue by


def overview_of(
    engine: AnyEngine, method: Method, *, certain_high: Matrix | None, most: int | None = None
) -> Overview:
    """Read an engine, which stays as it is; of an exact sum only the `most` leading pairs, in double throughout."""
    exact = isinstance(engine, DenseEngine) and engine.accumulated
    if not (exact and engine.state.fill == 0):  # else nothing is changed by reading, and there is no copy of the sum
        engine = engine.clone()
    known = engine.known(most) if isinstance(engine, DenseEngine) else engine.known()
    top = float(known.squares[0]) if len(known.squares) else 0.0
    unit = ldexp(1.0, engine.exponent)
    rounding = sqrt(engine.rounding)
    if exact:
        rounding += LEADING_ROUNDING * top
    else:
        rounding = hypot(rounding, READ_OUT_ROUNDING[engine.dtype.itemsize] * float(np.finfo(engine.dtype).eps) * top)
    with np.errstate(over="ignore", under="ignore"):
        rounding, squared_norm = rounding * unit * unit, engine.squared_norm * unit * unit
    found = _spectrum(known, engine, method, rounding=rounding, squared_norm=squared_norm, certain_high=certain_high)
    return Overview(found, squared_norm, engine.mean * unit if engine.setting.center else None, rounding)


def spectrum_of(
    engine: AnyEngine, method: Method, *, rounding: float, squared_norm: float, certain_high: Matrix | None
) -> Spectrum:
    """Read an engine, which stays as it is; `rounding`: the allowance of the certificate, in units of the rows."""
    engine = engine.clone()
    return _spectrum(
        engine.known(), engine, method, rounding=rounding, squared_norm=squared_norm, certain_high=certain_high
    )


def _spectrum(
    known: Known,
    engine: AnyEngine,
    method: Method,
    *,
    rounding: float,
    squared_norm: float,
    certain_high: Matrix | None,
) -> Spectrum:
    unit = ldexp(1.0, engine.exponent)
    low, high = known.squares, known.squares + engine.shrinkage
    if method.tracks:
        values, turn = np.linalg.eigh(known.seen + known.leaked)
        values, vectors = values[::-1], turn[:, ::-1].T @ known.vt
    else:
        # FD lowers a leading direction at every shrink: it has lost nearly all of Delta
        values, vectors = high if method.lowers_all else low, known.vt
    vectors = upright(vectors)
    with np.errstate(over="ignore", under="ignore"):
        low = np.maximum(low * unit * unit - rounding, 0.0)
        high = high * unit * unit + rounding
        if len(low):
            # the trace is known: what others have at least is not left for this one
            high = np.minimum(high, np.maximum(squared_norm - (low.sum() - low), low))
        if certain_high is not None:
            sure = min(len(high), len(certain_high))
            high[:sure] = np.maximum(np.minimum(high[:sure], certain_high[:sure] + rounding), low[:sure])
        return Spectrum(np.clip(values * unit * unit, low, high), vectors, low, high)
