from fastsketch._kernels.linalg.blas cimport real


cdef Py_ssize_t partials_size(Py_ssize_t m, Py_ssize_t d) noexcept nogil
cdef void gram_products(Py_ssize_t m, Py_ssize_t kept, Py_ssize_t d, bint diagonal, const real* f, real* g,
                        real* partials, real* pack, Py_ssize_t n_pack) noexcept nogil
cdef void rotate_rows(Py_ssize_t m, Py_ssize_t r, Py_ssize_t d, real* f, const real* w, double* square, real* pack,
                      Py_ssize_t n_pack) noexcept nogil
cdef void outer_product(Py_ssize_t m, Py_ssize_t d, const real* f, double beta, real* total) noexcept nogil
