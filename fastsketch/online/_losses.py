"""Losses of a prediction z against a target y, by name; the kernels know them by number.

Numbers, not the kernel's names, so that loading a model of another kind does not load Numba; a test compares the two.
"""

import numpy as np

# name: (number in the kernel, whether targets are labels -1 and +1)
LOSSES = {
    "square": (0, False),
    "logistic": (1, True),
    "squared_hinge": (2, True),
    "huber": (3, False),
    "absolute": (4, False),
}


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
