"""Losses as the Numba loops compute them; the numbers come from losses.pxd, the table is fastsketch/_core/losses.py.

Numba keeps a compiled loop until the file of that loop changes: after a change here, touch products.py.
"""

# pyright: basic
# Numba has no types; losses_jit.pyi has them.

import numpy as np

from fastsketch._kernels.jit import compiled
from fastsketch._kernels.losses import (
    ABSOLUTE,
    HINGE,
    HUBER,
    LOGISTIC,
    POISSON,
    QUANTILE,
    SQUARE,
    SQUARED_HINGE,
)


# dividing by zero is not looked for: no denominator here is below 1
@compiled(error_model="numpy")
def value_slope_curvature(loss, p, z, y):
    """Return loss at prediction z of y, its derivative and its second derivative (0 where it has none).

    P its parameter.
    """
    if loss == SQUARE:
        r = z - y
        return 0.5 * r * r, r, 1.0
    if loss == LOGISTIC:
        margin = y * z
        if margin > 0:
            e = np.exp(-margin)
            s = e / (1.0 + e)
            return np.log1p(e), -y * s, s * (1.0 - s)
        e = np.exp(margin)
        s = 1.0 / (1.0 + e)
        return -margin + np.log1p(e), -y * s, s * (1.0 - s)
    if loss == SQUARED_HINGE:
        gap = 1.0 - y * z
        if gap <= 0:
            return 0.0, 0.0, 0.0
        return gap * gap, -2.0 * y * gap, 2.0
    if loss == HUBER:
        r = z - y
        if abs(r) <= p:
            return 0.5 * r * r, r, 1.0
        return p * (abs(r) - 0.5 * p), p * np.sign(r), 0.0
    if loss == POISSON:
        # rate exp(z), without the constant log y!; z is kept below what would overflow
        e = np.exp(min(z, 700.0))
        return e - y * z, e - y, e
    if loss == ABSOLUTE:
        r = z - y
        return abs(r), np.sign(r), 0.0
    if loss == HINGE:
        if y * z < 1.0:
            return 1.0 - y * z, -y, 0.0
        return 0.0, 0.0, 0.0
    if loss == QUANTILE:
        r = y - z
        if r > 0:
            return p * r, -p, 0.0
        if r < 0:
            return (p - 1.0) * r, 1.0 - p, 0.0
        return 0.0, 0.0, 0.0
    r = z - y  # epsilon-insensitive
    if r > p:
        return r - p, 1.0, 0.0
    if r < -p:
        return -r - p, -1.0, 0.0
    return 0.0, 0.0, 0.0
