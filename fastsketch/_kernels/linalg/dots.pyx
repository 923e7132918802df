"""Inner products of rows, whose bits do not depend on how many are computed together (csrc/fs_dots)."""

from fastsketch._kernels.level cimport follow

follow()


def row_products(const double[:, ::1] x, const double[:, ::1] b, double[:, ::1] out, Py_ssize_t first, bint lower=False):
    """Set out[:n, first : first + m] = x b' for x (n, d), b (m, d); with `lower` only on and below the diagonal."""
    cdef Py_ssize_t n = x.shape[0], m = b.shape[0], d = x.shape[1]
    if b.shape[1] != d or out.shape[0] < n or out.shape[1] < first + m or first < 0:
        raise ValueError("x, b and out do not belong together")
    if n == 0 or m == 0:
        return
    if d == 0:
        out[:n, first : first + m] = 0
        return
    with nogil:
        fs_dots_d(n, m, d, &x[0, 0], d, &b[0, 0], d, &out[0, first], out.shape[1], lower)
