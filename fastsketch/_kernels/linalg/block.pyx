"""A sparse matrix times eight vectors, and its transpose times the result (csrc/fs_block)."""

from libc.stdint cimport uint32_t
from libc.string cimport memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport real

follow()

BLOCK = FS_BLOCK


def gram_block(const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] a, const real[:, ::1] v,
               real[:, ::1] u, real[:, ::1] w):
    """u (m, 8) = A v, w (n, 8) = A'u for CSR A, whose indices must lie below n."""
    cdef Py_ssize_t m = indptr.shape[0] - 1
    if not (v.shape[1] == u.shape[1] == w.shape[1] == FS_BLOCK and u.shape[0] == m and w.shape[0] == v.shape[0]
            and indices.shape[0] == a.shape[0] and indptr[m] == <uint32_t> a.shape[0]):
        raise ValueError("the matrix, v, u and w do not belong together")
    if m == 0 or v.shape[0] == 0:
        return
    with nogil:
        memset(&w[0, 0], 0, w.shape[0] * FS_BLOCK * sizeof(real))
        block_of_products(m, &indptr[0], &indices[0] if a.shape[0] else NULL, &a[0] if a.shape[0] else NULL, &v[0, 0],
                          &u[0, 0], &w[0, 0])
