# The loops of rows.pxd on the threads of the pool, where there is work enough; the same bits as without.

from fastsketch._kernels.linalg.blas cimport real


cdef Py_ssize_t scan_parts(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, const real* x, double* largest) noexcept nogil
cdef void load_parts(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, const real* x, const double* root_weight,
                     Py_ssize_t root_step, double scale, real* out, Py_ssize_t ld_out, double* square) noexcept nogil
cdef void square_parts(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, const real* x, double* square) noexcept nogil
cdef void scale_parts(Py_ssize_t n, Py_ssize_t d, real* x, const double* factor) noexcept nogil
cdef void centre_parts(Py_ssize_t n, Py_ssize_t d, real* x, real* correction, const double* root_weight,
                       double old_weight, double block_weight, double* mean, double* low, double* base,
                       double* shift) noexcept nogil
cdef void add_lower_parts(Py_ssize_t d, const real* part, double* total) noexcept nogil
cdef void scale_lower(Py_ssize_t d, double* total, double factor) noexcept nogil
