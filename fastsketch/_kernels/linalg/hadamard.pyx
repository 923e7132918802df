"""Walsh-Hadamard transforms in place."""

from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.level cimport follow


follow()


def fwht_columns(real[:, :] x):
    """x = H @ x for a power of two of rows whose columns are contiguous; H has entries +-1."""
    cdef Py_ssize_t m = x.shape[0], d = x.shape[1], ld = x.strides[0] // <Py_ssize_t> sizeof(real)
    if m == 0 or d == 0:
        return
    with nogil:
        transform_columns(m, d, ld, &x[0, 0])


def fwht_rows(real[:, :] x):
    """x = x @ H for rows of a power of two of contiguous elements."""
    cdef Py_ssize_t n = x.shape[0], m = x.shape[1], ld = x.strides[0] // <Py_ssize_t> sizeof(real)
    if n == 0 or m == 0:
        return
    with nogil:
        transform_rows(n, m, ld, &x[0, 0])
