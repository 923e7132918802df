"""Principal components computed from a sketch: their number, directions, and variances with guaranteed intervals."""

# scikit-learn has no types.
# pyright: basic

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.warning import warn_caller
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._read_out import fix_row_signs
from fastsketch.sketching._spectrum import SpectrumOverview
from fastsketch.sklearn._routes import POWER_ITERATIONS

Floats = NDArray[np.float64]

# Passes over the rows end after MOST_PASSES, one for the sketch and those of randomized_svd, also if `tol` is not
# reached.
MOST_PASSES = POWER_ITERATIONS + 1
# Relative shortfall of the guaranteed share of variance that is rounding, and raises no warning.
CERTAIN_ENOUGH = 1e-6


class ComponentsReadOut(NamedTuple):
    """Leading principal components of a sketch, with estimates and guaranteed intervals of their eigenvalues.

    Eigenvalues are those of the centred X'X, not divided by the number of rows.
    """

    squares: Floats  # (k,) point estimates of the eigenvalues, descending
    low: Floats  # (k,) guaranteed lower ends of the eigenvalues
    high: Floats  # (k,) upper ends
    vt: Floats  # (k, d) orthonormal
    total: float  # sum of all eigenvalues
    mean: Floats  # (d,)
    rounding: float  # bound on the effect of rounding on an eigenvalue


class Reread(NamedTuple):
    """Result of reading the rows of a sketch again: passes made, accuracy reached, and estimated eigenvalues."""

    passes: int  # in all, that of the sketch included
    accuracy: Floats | None  # (2, k) relative residuals and estimated relative errors of the variances; None if unknown
    seen: SpectrumOverview | None  # the last spectrum; None if an exact method has replaced the sketch


def read_again(
    sketch: FrequentDirections,
    rows: Any,
    weights: NDArray[np.float64] | None,
    wanted: int | float,
    *,
    tol: float,
    most_passes: int,
    exactly: Callable[[], bool] = lambda: False,
) -> Reread:
    """Refine a sketch, in place, by further passes over its rows, and return passes and accuracy as a Reread.
    The passes end when the variances of components are accurate to `tol`.

    Each pass is a step of a block Krylov method that starts from the sketch (``block_krylov``). For a share of the
    variance the components are as many as the sketch estimates that it needs. If the variances are still not accurate
    after the last pass, `exactly` is called. If it returns True it has learned the rows by an exact method; otherwise a
    UserWarning is raised. Rows that differ from those of the sketch change nothing, after a warning.
    """
    if most_passes == 1 or not sketch.shrinkage > sketch._last_reading().rounding:
        return Reread(1, None, sketch._overview())
    k = wanted
    if not isinstance(k, int):
        seen = sketch._overview()
        k = min(len(seen.spectrum.values), count_for(wanted, seen.spectrum.values, seen.squared_norm))
    space = sketch._refine_leading(rows, weights, k, most_passes=most_passes - 1, tol=tol)
    if space is None:
        return Reread(1, None, sketch._overview())
    error = float(space.errors.max(initial=0.0))
    if error > tol / 2:
        if exactly():
            return Reread(1, None, None)
        warn_caller(
            f"explained_variance_ is not accurate to tol={tol:g}: after pass {1 + space.passes}, the last, the "
            f"estimated relative error of a component is {error:.1g}, half of tol being asked for, as in a flat "
            "spectrum; allow more passes or a larger tol, or take solver='exact', which has no such error"
        )
    return Reread(1 + space.passes, np.stack([space.residuals, space.errors]), sketch._overview())


def components_of(sketch: FrequentDirections, wanted: int | float) -> ComponentsReadOut:
    """Return the leading principal components of a sketch: a given number, or as many as explain a share of variance.

    If `wanted` is below 1, these are the fewest components that hold more than this share.

    A UserWarning is raised if the sketch does not hold that share; all components that it has are then returned. A
    further warning says if the share holds by the point estimates but is not guaranteed.
    """
    if isinstance(wanted, int):
        seen = sketch._overview(wanted)
        return first_components(seen, wanted)
    d = sketch.n_features or 0
    exact = sketch.resolved["solver"] == "exact"
    most = min(d, sketch.resolved["sketch_size"])
    while True:
        seen = sketch._overview(most)
        count = count_for(wanted, seen.spectrum.values, seen.squared_norm)
        if not exact or count <= len(seen.spectrum.values) or most == d:
            break
        most = min(d, 4 * most)
    known = len(seen.spectrum.values)
    if count > known and seen.shrinkage > 0:
        share = float(seen.spectrum.values.sum()) / seen.squared_norm
        warn_caller(
            f"n_components={wanted}: {known} components, all that sketch_size={most} holds, have only "
            f"{share:.3g} of the variance; take a larger sketch_size"
        )
    out = first_components(seen, max(1, min(count, known)))
    certain = float(out.low.sum()) / seen.squared_norm if seen.squared_norm > 0 else 1.0
    if count <= known and certain < wanted * (1 - CERTAIN_ENOUGH):
        most = count_for(wanted, seen.spectrum.low, seen.squared_norm)
        upper = str(most) if most <= known else f"more than {known}"
        warn_caller(
            f"n_components={wanted}: {count} components by estimates, of which a share of {certain:.3g} is certain; at "
            f"most {upper} hold it for certain; take a larger sketch_size, or read the rows again (refine)"
        )
    return out


def count_for(share: float, squares: Floats, total: float) -> int:
    """Return the smallest number of components that explain more than a share of the total variance.

    The result is one more than the number of components if all of them do not suffice.
    """
    shares = np.cumsum(squares) / total if total > 0 else np.ones(max(1, len(squares)))
    return int(np.searchsorted(shares, share, side="right")) + 1


def first_components(seen: SpectrumOverview, k: int) -> ComponentsReadOut:
    """Return the first k components of a spectrum, as a ComponentsReadOut.
    If there are fewer, components of variance 0 are appended.

    Those have as upper end of their interval what the sketch may have lost.
    """
    spectrum = seen.spectrum
    squares, low, high, vt = spectrum.values[:k], spectrum.low[:k], spectrum.high[:k], spectrum.vectors[:k]
    # directions of rounding alone are arbitrary, and are replaced by fixed ones
    vt = vt[: seen.rank]
    missing = k - len(squares)
    if missing > 0:
        # the sketch has no more rows: these eigenvalues are at most Delta, and at most what is left of the trace
        rest = max(
            0.0, min(seen.shrinkage + seen.rounding, seen.squared_norm - float(spectrum.low.sum()) + seen.rounding)
        )
        none = np.zeros(missing)
        squares, low = np.concatenate([squares, none]), np.concatenate([low, none])
        high = np.concatenate([high, none + rest])
    mean = np.zeros(spectrum.vectors.shape[1]) if seen.mean is None else seen.mean
    return ComponentsReadOut(
        squares, low, high, fix_row_signs(complete_basis(vt, k)), seen.squared_norm, mean, seen.rounding
    )


def complete_basis(vt: NDArray[Any], k: int) -> NDArray[Any]:
    """Return orthonormal rows extended to k rows, made from unit vectors in a fixed, reproducible order.

    Rows of vt come first.
    """
    r, d = vt.shape
    if r >= k:
        return vt
    candidates = np.vstack([vt, np.eye(k, d, dtype=vt.dtype)])
    q, triangle = np.linalg.qr(candidates.T)
    good = np.abs(np.diag(triangle)) > 1e-3
    extra = q.T[r:][good[r:]][: k - r]
    if len(extra) < k - r:  # the first k unit vectors are nearly in the span of vt: use all of them
        full = np.linalg.svd(vt, full_matrices=True)[2] if r else np.eye(d, dtype=vt.dtype)
        extra = full[r:k]
    return np.vstack([vt, extra])
