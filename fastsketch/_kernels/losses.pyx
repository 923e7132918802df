"""The numbers of losses and regularisers for Python (losses.pxd), and the Cython formulas for tests."""


def value_slope_curvature(int loss, double p, double z, double y):
    """Return (value, slope, curvature) of a loss, as the Cython loops compute them, for one prediction z of y."""
    cdef double slope = 0, curve = 0
    cdef double value = loss_terms(loss, p, z, y, &slope, &curve)
    return value, slope, curve
