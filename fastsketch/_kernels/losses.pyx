"""The numbers of losses and regularisers for Python and Numba (losses.pxd), and the Cython formulas for tests."""


def value_and_slope(int loss, double z, double y):
    """What the Cython learners compute for one prediction z of y."""
    cdef double slope = 0
    cdef double value = loss_and_slope(loss, z, y, &slope)
    return value, slope
