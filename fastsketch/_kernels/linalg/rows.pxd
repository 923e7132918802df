# csrc/fs_rows.h, where each loop is explained: one name for float and double.

from libc.stddef cimport ptrdiff_t

from fastsketch._kernels.linalg.blas cimport real


cdef extern from "fs_rows.h" nogil:
    ptrdiff_t fs_scan_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, double *largest)
    ptrdiff_t fs_scan_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, double *largest)
    void fs_load_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, const double *root_weight,
                        ptrdiff_t root_step, double scale, float *out, ptrdiff_t ld_out, double *square)
    void fs_load_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, const double *root_weight,
                        ptrdiff_t root_step, double scale, double *out, ptrdiff_t ld_out, double *square)
    void fs_square_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, double *square)
    void fs_square_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, double *square)
    double fs_copy_square_s(ptrdiff_t n, const float *x, float *out)
    double fs_copy_square_d(ptrdiff_t n, const double *x, double *out)
    void fs_scale_rows_s(ptrdiff_t n, ptrdiff_t d, float *x, const double *factor)
    void fs_scale_rows_d(ptrdiff_t n, ptrdiff_t d, double *x, const double *factor)
    void fs_centre_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, float *x, float *correction,
                          const double *root_weight, double old_weight, double block_weight, double *mean,
                          double *low, double *base, double *shift)
    void fs_centre_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, double *x, double *correction,
                          const double *root_weight, double old_weight, double block_weight, double *mean,
                          double *low, double *base, double *shift)
    void fs_move_mean(ptrdiff_t d, double old_weight, double block_weight, double *mean, double *low, double *base,
                      const double *shift)
    void fs_add_lower_s(ptrdiff_t d, ptrdiff_t first, ptrdiff_t stop, const float *part, double *total)
    void fs_add_lower_d(ptrdiff_t d, ptrdiff_t first, ptrdiff_t stop, const double *part, double *total)


cdef inline Py_ssize_t scan_rows(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, const real* x,
                                 double* largest) noexcept nogil:
    if real is float:
        return fs_scan_rows_s(n, d, ld, x, largest)
    else:
        return fs_scan_rows_d(n, d, ld, x, largest)


cdef inline void load_rows(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, const real* x, const double* root_weight,
                           Py_ssize_t root_step, double scale, real* out, Py_ssize_t ld_out,
                           double* square) noexcept nogil:
    if real is float:
        fs_load_rows_s(n, d, ld, x, root_weight, root_step, scale, out, ld_out, square)
    else:
        fs_load_rows_d(n, d, ld, x, root_weight, root_step, scale, out, ld_out, square)


cdef inline void square_rows(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, const real* x, double* square) noexcept nogil:
    if real is float:
        fs_square_rows_s(n, d, ld, x, square)
    else:
        fs_square_rows_d(n, d, ld, x, square)


cdef inline double copy_square(Py_ssize_t n, const real* x, real* out) noexcept nogil:
    if real is float:
        return fs_copy_square_s(n, x, out)
    else:
        return fs_copy_square_d(n, x, out)


cdef inline void scale_rows(Py_ssize_t n, Py_ssize_t d, real* x, const double* factor) noexcept nogil:
    if real is float:
        fs_scale_rows_s(n, d, x, factor)
    else:
        fs_scale_rows_d(n, d, x, factor)


cdef inline void centre_rows(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, real* x, real* correction,
                             const double* root_weight, double old_weight, double block_weight, double* mean,
                             double* low, double* base, double* shift) noexcept nogil:
    if real is float:
        fs_centre_rows_s(n, d, ld, x, correction, root_weight, old_weight, block_weight, mean, low, base, shift)
    else:
        fs_centre_rows_d(n, d, ld, x, correction, root_weight, old_weight, block_weight, mean, low, base, shift)


cdef inline void add_lower(Py_ssize_t d, Py_ssize_t first, Py_ssize_t stop, const real* part,
                           double* total) noexcept nogil:
    if real is float:
        fs_add_lower_s(d, first, stop, part, total)
    else:
        fs_add_lower_d(d, first, stop, part, total)
