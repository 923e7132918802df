from fastsketch._kernels.linalg.blas cimport real, blas_int


cdef Py_ssize_t doubles_size(Py_ssize_t n) noexcept nogil
cdef Py_ssize_t integers_size(Py_ssize_t n) noexcept nogil
cdef int tridiagonal_top(Py_ssize_t n, Py_ssize_t top, real* d, real* e, real* z, real* work, double* doubles,
                         blas_int* integers) noexcept nogil
