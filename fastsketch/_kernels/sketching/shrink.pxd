from fastsketch._kernels.linalg.blas cimport real, blas_int
from fastsketch._kernels.sketching.ledger cimport Ledger


cdef Py_ssize_t arena_size(Py_ssize_t m) noexcept nogil
cdef Py_ssize_t iwork_size(Py_ssize_t m) noexcept nogil
cdef Py_ssize_t small_size(Py_ssize_t m, Py_ssize_t n_keep) noexcept nogil
cdef int top_eigenpairs(Py_ssize_t m, Py_ssize_t k, real* g, real* w, real* z, real* work, Py_ssize_t lwork,
                        double* doubles, blas_int* iwork) noexcept nogil
cdef int reduce_to_tridiagonal(Py_ssize_t m, real* g, real* d, real* e, real* tau, real* work,
                               Py_ssize_t lwork) noexcept nogil
cdef int turn_back(Py_ssize_t m, Py_ssize_t k, real* g, real* tau, real* z, real* work, Py_ssize_t lwork) noexcept nogil
cdef void rotation(Py_ssize_t m, Py_ssize_t first, Py_ssize_t kept, Py_ssize_t r, const real* z, const double* gain,
                   Py_ssize_t step, real* out, double* square) noexcept nogil
cdef double shorten(Py_ssize_t m, Py_ssize_t n_keep, Py_ssize_t n_spare, Ledger ledger, const double* square,
                    const double* vector_square, double* lam, double* gain) noexcept nogil
cdef int gram_shrink(Py_ssize_t m, Py_ssize_t kept, Py_ssize_t d, Py_ssize_t n_keep, Py_ssize_t n_spare,
                     Ledger ledger, bint diagonal, real* f, double* lam, double* gain, double* top, double* delta,
                     real* arena, real* partials, double* small, blas_int* iwork) noexcept nogil
cdef int svd_shrink(Py_ssize_t m, Py_ssize_t kept, Py_ssize_t d, Py_ssize_t n_keep, Py_ssize_t n_spare,
                    Ledger ledger, real* f, double* lam, double* gain, double* top, double* delta, real* work,
                    Py_ssize_t lwork, blas_int* iwork) noexcept nogil
cdef Py_ssize_t svd_work_size(Py_ssize_t m, Py_ssize_t d, real* kind) noexcept nogil
