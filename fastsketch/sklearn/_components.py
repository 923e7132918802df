"""What a sketch says of the first k principal components."""

# reads what a sketch keeps to itself
# pyright: basic

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._read_out import upright
from fastsketch.sketching._spectrum import SpectrumOverview

Floats = NDArray[np.float64]

# Share by which what is certain may lie below what is asked for, without a word: rounding.
CERTAIN_ENOUGH = 1e-6


class Components(NamedTuple):
    """One read-out, in squared units of the centred rows; k of each."""

    squares: Floats  # (k,) point estimates of the eigenvalues, descending
    low: Floats  # (k,) the i-th eigenvalue lies between the i-th of these
    high: Floats  # (k,)
    vt: Floats  # (k, d) orthonormal
    total: float  # sum of all eigenvalues
    mean: Floats  # (d,)


def components_of(sketch: FrequentDirections, wanted: int | float) -> Components:
    """The first `wanted` components, or as many as hold more than this share (below 1) of the variance.

    Warns with a UserWarning where the sketch does not hold that share: it gives all that it has then.
    """
    if isinstance(wanted, int):
        seen = sketch._overview(wanted)
        return first_of(seen, wanted)
    d = sketch.n_features or 0
    exact = sketch.resolved["solver"] == "exact"
    most = min(d, sketch.resolved["sketch_size"])
    seen = sketch._overview(most)
    count = count_for(wanted, seen.spectrum.values, seen.squared_norm)
    while exact and count > len(seen.spectrum.values) and most < d:
        most = min(d, 4 * most)
        seen = sketch._overview(most)
        count = count_for(wanted, seen.spectrum.values, seen.squared_norm)
    known = len(seen.spectrum.values)
    if count > known and seen.shrinkage > 0:
        share = float(seen.spectrum.values.sum()) / seen.squared_norm
        warnings.warn(
            f"n_components={wanted}: {known} components, all that sketch_size={most} holds, have only "
            f"{share:.3g} of the variance; take a larger sketch_size",
            stacklevel=2,
        )
    out = first_of(seen, max(1, min(count, known)))
    certain = float(out.low.sum()) / seen.squared_norm if seen.squared_norm > 0 else 1.0
    if count <= known and certain < wanted * (1 - CERTAIN_ENOUGH):
        most = count_for(wanted, seen.spectrum.low, seen.squared_norm)
        upper = str(most) if most <= known else f"more than {known}"
        warnings.warn(
            f"n_components={wanted}: {count} components by estimates, of which a share of {certain:.3g} is certain; at "
            f"most {upper} hold it for certain; take a larger sketch_size, or read the rows again (refine)",
            stacklevel=2,
        )
    return out


def count_for(share: float, squares: Floats, total: float) -> int:
    """scikit-learn's count: the fewest whose share of the total is greater; one more than there are if none is."""
    shares = np.cumsum(squares) / total if total > 0 else np.ones(max(1, len(squares)))
    return int(np.searchsorted(shares, share, side="right")) + 1


def first_of(seen: SpectrumOverview, k: int) -> Components:
    """The first k components of a read-out."""
    found = seen.spectrum
    squares, low, high, vt = found.values[:k], found.low[:k], found.high[:k], found.vectors[:k]
    # directions of nothing but rounding are as good as any: take the same ones for the same rows
    vt = vt[: seen.rank]
    missing = k - len(squares)
    if missing > 0:
        # B has no more rows: these eigenvalues are at most Delta, and what the trace leaves
        rest = max(0.0, min(seen.shrinkage + seen.rounding, seen.squared_norm - float(found.low.sum()) + seen.rounding))
        none = np.zeros(missing)
        squares, low = np.concatenate([squares, none]), np.concatenate([low, none])
        high = np.concatenate([high, none + rest])
    mean = np.zeros(found.vectors.shape[1]) if seen.mean is None else seen.mean
    return Components(squares, low, high, upright(completed(vt, k)), seen.squared_norm, mean)


def completed(vt: NDArray[Any], k: int) -> NDArray[Any]:
    """k orthonormal rows that begin with vt: directions that no row has had yet follow in a fixed order."""
    r, d = vt.shape
    if r >= k:
        return vt
    candidates = np.vstack([vt, np.eye(k, d, dtype=vt.dtype)])
    q, triangle = np.linalg.qr(candidates.T)
    good = np.abs(np.diag(triangle)) > 1e-3
    extra = q.T[r:][good[r:]][: k - r]
    if len(extra) < k - r:  # the first k unit vectors lie too close to vt: use them all
        full = np.linalg.svd(vt, full_matrices=True)[2] if r else np.eye(d, dtype=vt.dtype)
        extra = full[r:k]
    return np.vstack([vt, extra])
