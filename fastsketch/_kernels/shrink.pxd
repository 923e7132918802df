from fastsketch._kernels.blas cimport real, blas_int


cdef Py_ssize_t arena_size(Py_ssize_t m) noexcept nogil
cdef Py_ssize_t iwork_size(Py_ssize_t m) noexcept nogil
cdef int top_eigenpairs(Py_ssize_t m, Py_ssize_t k, real* g, real* w, real* z, real* work, Py_ssize_t lwork,
                        blas_int* iwork) noexcept nogil
cdef double shrink_weights(Py_ssize_t m, Py_ssize_t n_keep, Py_ssize_t n_spare, const real* w, const real* z,
                           real* out, double* lam) noexcept nogil
cdef int gram_shrink(Py_ssize_t m, Py_ssize_t kept, Py_ssize_t d, Py_ssize_t n_keep, Py_ssize_t n_spare,
                     bint diagonal, real* f, double* lam, double* delta, real* arena,
                     blas_int* iwork) noexcept nogil
cdef int svd_shrink(Py_ssize_t m, Py_ssize_t d, Py_ssize_t n_keep, Py_ssize_t n_spare, real* f, double* lam,
                    double* delta, real* work, Py_ssize_t lwork, blas_int* iwork) noexcept nogil
cdef Py_ssize_t svd_work_size(Py_ssize_t m, Py_ssize_t d, real* kind) noexcept nogil
