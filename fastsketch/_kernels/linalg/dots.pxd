from libc.stddef cimport ptrdiff_t


cdef extern from "fs_dots.h" nogil:
    void fs_dots_d(ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, const double *x, ptrdiff_t ld_x, const double *b,
                   ptrdiff_t ld_b, double *out, ptrdiff_t ld_out, int lower)
