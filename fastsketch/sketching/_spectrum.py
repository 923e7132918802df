"""Estimates and guaranteed intervals of the eigenvalues of A'A, computed from a sketch of the rows A.

The proofs are in docs/read-outs.md.
"""

from math import ldexp, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch.sketching._decompose import leading_rounding
from fastsketch.sketching._engines import AnyEngine, ExactEngine, MappedEngine, SketchSummary, by_column, copy_to_read
from fastsketch.sketching._methods import Method
from fastsketch.sketching._read_out import allowance, fix_row_signs, remaining_shrinkage

Matrix = NDArray[np.float64]

MOST, LEAST = float(np.finfo(np.float64).max), float(np.finfo(np.float64).smallest_subnormal)


class Spectrum(NamedTuple):
    """Estimates of the leading eigenvalues of A'A for the rows A of a stream, with guaranteed intervals.

    They are the squared singular values of A.

    Attributes
    ----------
    values : ndarray (r,)
        Estimates, descending, in squared units of the rows.
    vectors : ndarray (r, d)
        Orthonormal directions, in the same order.
    low, high : ndarray (r,)
        The i-th largest eigenvalue of A'A lies in [low[i], high[i]].
    """

    values: Matrix
    vectors: Matrix
    low: Matrix
    high: Matrix


class SpectrumOverview(NamedTuple):
    """A spectrum, with the norm, shrinkage, rounding error, rank and mean of the same sketch.

    All in squared units of the rows, except the mean.
    """

    spectrum: Spectrum
    squared_norm: float
    shrinkage: float
    rounding: float  # what rounding may have moved an eigenvalue by
    rank: int  # number of directions with a larger eigenvalue
    mean: Matrix | None  # (d,) of a centred sketch


def overview_of(
    engine: AnyEngine,
    method: Method,
    *,
    regained: float = 0.0,
    certain_high: Matrix | None = None,
    estimates: Matrix | None = None,
    most: int | None = None,
) -> SpectrumOverview:
    """Return the estimated eigenvalues of A'A and further results of a sketch engine, as a SpectrumOverview.
    The engine does not change.

    `most`: number of leading pairs to read from an exact sum, by default as many as the sketch keeps. Results of a
    second pass, in squared units of the rows: `regained`, the part of Delta that was given back to the retained
    directions; `certain_high` and `estimates`, better upper bounds and values.
    """
    exact = isinstance(engine, ExactEngine) and engine.accumulated
    if not (isinstance(engine, ExactEngine) and engine.is_settled_sum):
        engine = copy_to_read(engine)
    summary = engine.summary(most)
    top = float(summary.squares.max(initial=0.0))
    if exact:
        # float32 rows are rounded when they are weighted and decayed, also in a sum of few rows
        rounding = sqrt(engine.rounding) + 4.0 * float(np.finfo(engine.dtype).eps) * engine.squared_norm
        rounding += leading_rounding(engine.n_features, len(summary.squares)) * top
    else:
        rounding = allowance(engine.dtype, engine.rounding, top)
    unit, rank = ldexp(1.0, engine.exponent), int(np.count_nonzero(summary.squares > rounding))
    spectrum = _spectrum(summary, engine, method, rounding, (regained, certain_high, estimates))
    with np.errstate(over="ignore", under="ignore"):
        return SpectrumOverview(
            spectrum,
            engine.squared_norm * unit * unit,
            engine.shrinkage * unit * unit,
            rounding * unit * unit,
            rank,
            by_column(engine, engine.mean) * unit if engine.setting.center else None,
        )


def _spectrum(
    summary: SketchSummary,
    engine: AnyEngine,
    method: Method,
    rounding: float,
    second_pass: tuple[float, Matrix | None, Matrix | None],
) -> Spectrum:
    """Return estimates of the eigenvalues of A'A, each with a guaranteed interval, from a sketch's `summary`.
    Results of a second pass make the intervals narrower.

    `rounding` is in the scale of the engine. `second_pass` has the results of one: (regained, certain_high, estimates).
    """
    regained, certain_high, estimates = second_pass
    unit = ldexp(1.0, engine.exponent)
    values, vectors = _estimates(summary, remaining_shrinkage(engine.shrinkage, regained / unit / unit), method)
    low = np.maximum(summary.squares - rounding, 0.0)
    high = summary.squares + (engine.shrinkage + rounding)
    total = engine.squared_norm + rounding + engine.squared_norm * _sum_rounding(engine)
    high = np.minimum(high, _trace_bound(low, total))
    if certain_high is not None:
        n = min(len(high), len(certain_high))
        with np.errstate(over="ignore", under="ignore"):
            high[:n] = np.minimum(high[:n], certain_high[:n] / unit / unit)
    high = np.maximum(high, low)
    if estimates is not None:
        n = min(len(values), len(estimates))
        values[:n] = estimates[:n] / unit / unit
    values = np.clip(values, low, high)
    if isinstance(engine, MappedEngine):  # nothing is certified for the rows before the map
        low, high = np.zeros_like(low), np.full_like(high, np.inf)
    with np.errstate(over="ignore", under="ignore"):
        # values that overflow stay between the two bounds
        low, high = np.minimum(low * unit * unit, MOST), high * unit * unit + LEAST
        return Spectrum(np.clip(values * unit * unit, low, high), by_column(engine, fix_row_signs(vectors)), low, high)


@one_blas_thread
def _estimates(summary: SketchSummary, spent: float, method: Method) -> tuple[Matrix, Matrix]:
    """Return (estimated eigenvalues of A'A in descending order, their directions) from the summary of a sketch.

    `spent`: what Frequent Directions subtracted from every retained direction.
    """
    if not method.tracks:
        # every shrink shortens a leading direction of FD: nearly all of Delta is lost
        return summary.squares + (spent if method.share_lowered == 1.0 else 0.0), summary.vt
    squares, turn = _from_log(summary)
    return squares, summary.vt if turn is None else turn.T @ summary.vt


def _from_log(summary: SketchSummary) -> tuple[Matrix, Matrix | None]:
    """Return estimated (eigenvalues, eigenvectors) of A'A: those of observed squares plus squares that shrinks removed.

    Directions are in the basis of `summary`, and None if they are the same as those of `summary`.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        both = summary.seen + summary.leaked
    if not np.isfinite(both).all():  # sums that overflow
        return summary.squares, None
    values, turn = np.linalg.eigh(both)
    return np.maximum(values[::-1], 0.0), np.ascontiguousarray(turn[:, ::-1])


def _sum_rounding(engine: AnyEngine) -> float:
    """Return a bound on the relative rounding error of the sum of squares of all rows.

    There are at most three roundings of a row, and a sum in double precision.
    """
    return 4 * float(np.finfo(engine.dtype).eps) + 2 * engine.n_rows * float(np.finfo(np.float64).eps)


def _trace_bound(low: Matrix, total: float) -> Matrix:
    """Return upper bounds (r,) of eigenvalues, given lower bounds and an upper bound `total` on their sum.

    If the i-th eigenvalue is x, those before it are at least x: the sum of max(low_j, x) over j <= i, and of low_j over
    j > i, is at most `total`. The largest such x is reached by raising the last of the first i bounds to one level.
    """
    spare = max(0.0, total - float(low.sum()))
    out = np.empty_like(low)
    for i in range(len(low)):
        upward = low[i::-1]  # from the i-th to the first, ascending
        count = np.arange(1, i + 2)
        levels = (spare + np.cumsum(upward)) / count  # of the last 1, 2, .. of them, raised to one level
        out[i] = levels.min()
    return out


@one_blas_thread
def observed_spectrum(engine: AnyEngine) -> tuple[Matrix, Matrix]:
    """Return (eigenvalues, eigenvectors) of what a sketch recorded of A'A along its directions.
    Nothing is added for what it missed, and the engine does not change.

    The engine must have a log of removed mass. Returns the values (r,) in descending order, and the vectors (r, d).
    Mass that was removed before a direction was retained is not included.
    """
    engine = copy_to_read(engine)
    summary = engine.summary()
    unit = ldexp(1.0, engine.exponent)
    values, turn = np.linalg.eigh(summary.seen)
    with np.errstate(over="ignore", under="ignore"):
        return np.maximum(values[::-1], 0.0) * unit * unit, by_column(engine, turn[:, ::-1].T @ summary.vt)
