"""What a sketch says of the eigenvalues of A'A: intervals that always hold, and a point inside each."""

from math import ldexp
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.sketching._engines import AnyEngine
from fastsketch.sketching._methods import Method
from fastsketch.sketching._reading import upright

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


def spectrum_of(engine: AnyEngine, method: Method, *, rounding: float, squared_norm: float) -> Spectrum:
    """Read an engine, which stays as it is; `rounding`: the allowance of the certificate, in units of the rows."""
    engine = engine.clone()
    known = engine.known()
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
        return Spectrum(np.clip(values * unit * unit, low, high), vectors, low, high)


def seen_of(engine: AnyEngine) -> tuple[Matrix, Matrix]:
    """(values (r,) descending, vectors (r, d)) of an engine with a ledger: what was seen along the kept directions.

    No estimate, but what A'A has there at least: the part of the trace that it leaves was not seen along any of them.
    """
    known = engine.clone().known()
    unit = ldexp(1.0, engine.exponent)
    values, turn = np.linalg.eigh(known.seen)
    with np.errstate(over="ignore", under="ignore"):
        return np.maximum(values[::-1], 0.0) * unit * unit, turn[:, ::-1].T @ known.vt
