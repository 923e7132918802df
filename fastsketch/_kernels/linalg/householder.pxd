# csrc/fs_tridiag.h, where each loop is explained: one name for float and double.

from libc.stddef cimport ptrdiff_t

from fastsketch._kernels.linalg.blas cimport real


cdef extern from "fs_tridiag.h" nogil:
    int fs_tridiagonal_pays(ptrdiff_t n, size_t real)
    void fs_tridiagonalise_s(ptrdiff_t n, float *a, float *d, float *e, float *tau, float *work)
    void fs_tridiagonalise_d(ptrdiff_t n, double *a, double *d, double *e, double *tau, double *work)


cdef inline void tridiagonalise(Py_ssize_t n, real* a, real* d, real* e, real* tau, real* work) noexcept nogil:
    if real is float:
        fs_tridiagonalise_s(n, a, d, e, tau, work)
    else:
        fs_tridiagonalise_d(n, a, d, e, tau, work)
