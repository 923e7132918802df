"""Losses of a prediction z against a target y, by name; the kernels know them by number.

Numbers, not the kernels' names, so that loading a model of another kind does not load Numba. Three forms of the same
losses (here, in _kernels/newton and in _kernels/adaptive: no compiler sees across them) are compared by a test.
"""

import numpy as np
from scipy.special import expit

# name: (number in the kernel, whether targets are labels -1 and +1)
LOSSES = {
    "square": (0, False),
    "logistic": (1, True),
    "squared_hinge": (2, True),
    "huber": (3, False),
    "absolute": (4, False),
}


def loss_and_slope(loss, z, y):
    """The loss of every prediction and its derivative in z, float64 of the shape of z."""
    if loss == "square":
        return (z - y) ** 2, 2.0 * (z - y)
    if loss == "logistic":
        return np.logaddexp(0.0, -y * z), -y * expit(-y * z)
    if loss == "squared_hinge":
        gap = np.maximum(0.0, 1.0 - y * z)
        return gap**2, -2.0 * y * gap
    r = z - y
    if loss == "huber":
        return np.where(np.abs(r) <= 1.0, 0.5 * r * r, np.abs(r) - 0.5), np.clip(r, -1.0, 1.0)
    return np.abs(r), np.sign(r)


def as_targets(y, n, loss, name="y"):
    """Contiguous float64 targets (n,), labels 0 and 1 taken as -1 and +1 where the loss asks for labels."""
    if isinstance(y, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array")
    out = np.asarray(y)
    if out.ndim == 0:
        out = out[np.newaxis]
    if out.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {out.dtype}")
    if out.shape != (n,):
        raise ValueError(f"{name} must have one entry for each of the {n} rows, got shape {out.shape}")
    out = np.ascontiguousarray(out, np.float64)
    if not np.isfinite(out).all():
        raise ValueError(f"{name} must be finite: entry {int(np.argmin(np.isfinite(out)))} is not")
    if LOSSES[loss][1]:
        found = np.unique(out)
        if not (np.isin(found, (-1.0, 1.0)).all() or np.isin(found, (0.0, 1.0)).all()):
            strange = found[~np.isin(found, (-1.0, 0.0, 1.0))]
            listed = ", ".join(f"{value:g}" for value in (strange if strange.size else found)[:5])
            raise ValueError(f"{name} must hold labels -1 and +1 (or 0 and 1) for loss={loss!r}, got {listed}")
        out = np.where(out > 0, 1.0, -1.0)
    return out
