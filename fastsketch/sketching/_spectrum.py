"""What a sketch says of the eigenvalues of A'A: intervals that always hold, and a point inside each."""

from math import hypot, ldexp, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.sketching._engines import AnyEngine, DenseEngine, Known
from fastsketch.sketching._leading import LEADING_ROUNDING
from fastsketch.sketching._methods import Method
from fastsketch.sketching._reading import READ_OUT_ROUNDING, unspent, upright

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


def spectrum_of(
    engine: AnyEngine,
    method: Method,
    *,
    rounding: float,
    regained: float = 0.0,
    certain_high: Matrix | None = None,
) -> Spectrum:
    """Read an engine, which stays as it is.

    In squared units of the rows: `rounding`, the allowance of the certificate; `regained`, the part of Delta that the
    kept directions have not lost; `certain_high`, upper ends that are known.
    """
    engine = engine.clone()
    return _spectrum(engine.known(), engine, method, rounding=rounding, regained=regained, certain_high=certain_high)


class Overview(NamedTuple):
    """A spectrum and what belongs to it, in one read-out."""

    spectrum: Spectrum
    squared_norm: float
    shrinkage: float
    rounding: float  # what rounding may have moved an eigenvalue by
    rank: int  # directions that hold more than that
    mean: Matrix | None  # (d,) of a centred sketch


def overview_of(
    engine: AnyEngine, method: Method, *, regained: float, certain_high: Matrix | None, most: int | None
) -> Overview:
    """Read an engine, which stays as it is; of an exact sum only the `most` leading pairs, in double throughout."""
    exact = isinstance(engine, DenseEngine) and engine.accumulated
    if not exact or engine.state.fill:  # else there is nothing that reading changes, and the sum need not be copied
        engine = engine.clone()
    known = engine.known(most)
    top = float(known.squares.max(initial=0.0))
    if exact:
        rounding = sqrt(engine.rounding) + LEADING_ROUNDING * top
    else:
        eps = float(np.finfo(engine.dtype).eps)
        rounding = hypot(sqrt(engine.rounding), READ_OUT_ROUNDING[engine.dtype.itemsize] * eps * top)
    unit, rank = ldexp(1.0, engine.exponent), int(np.count_nonzero(known.squares > rounding))
    with np.errstate(over="ignore", under="ignore"):
        rounding = rounding * unit * unit
        found = _spectrum(known, engine, method, rounding=rounding, regained=regained, certain_high=certain_high)
        squared_norm, shrinkage = engine.squared_norm * unit * unit, engine.shrinkage * unit * unit
        mean = engine.mean * unit if engine.setting.center else None
    return Overview(found, squared_norm, shrinkage, rounding, rank, mean)


def _spectrum(
    known: Known,
    engine: AnyEngine,
    method: Method,
    *,
    rounding: float,
    regained: float,
    certain_high: Matrix | None,
) -> Spectrum:
    unit = ldexp(1.0, engine.exponent)
    if method.tracks:
        values, turn = np.linalg.eigh(known.seen + known.leaked)
        values, vectors = values[::-1], turn[:, ::-1].T @ known.vt
    else:
        # FD lowers a leading direction at every shrink: it has lost nearly all of Delta but what it was given back
        lost = unspent(engine.shrinkage, regained / unit / unit) if method.lowers_all else 0.0
        values, vectors = known.squares + lost, known.vt
    allowance = rounding / unit / unit
    low = np.maximum(known.squares - allowance, 0.0)
    high = known.squares + engine.shrinkage + allowance
    if len(low):
        # the trace is known: what others have at least is not left for this one
        total = engine.squared_norm * (1.0 + 2.0 * float(np.finfo(engine.dtype).eps)) + allowance
        high = np.minimum(high, np.maximum(total - (low.sum() - low), low))
    if certain_high is not None:
        n = min(len(high), len(certain_high))
        high[:n] = np.minimum(high[:n], certain_high[:n] / unit / unit)
    high = np.maximum(high, low)
    values = np.clip(values, low, high)
    with np.errstate(over="ignore", under="ignore"):
        low, high, values = (x * unit * unit for x in (low, high, values))
    return Spectrum(values, upright(vectors), np.minimum(low, np.finfo(np.float64).max), high)
